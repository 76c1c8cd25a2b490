//! The questions that `tollgate init` asks on a terminal about what no flag says.

use std::io::{self, BufRead, ErrorKind, Write};

use super::file::{Choices, LISTEN, LISTEN_TLS, Per, RATE, Tls, UPSTREAM};

/// What the flags have already said.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_excessive_bools, reason = "one for each question")]
pub(super) struct Known {
    pub(super) servers: bool,
    pub(super) tls: bool,
    pub(super) listen: bool,
    pub(super) per: bool,
    pub(super) rate: bool,
    pub(super) redis: bool,
}

/// Asks for what is missing in `choices`. An empty answer is the default. An answer that `problem`
/// rejects is asked for again.
///
/// # Errors
/// Those of reading and writing, and `UnexpectedEof` at the end of the input.
pub(super) fn ask(
    choices: &mut Choices,
    known: Known,
    input: &mut dyn BufRead,
    output: &mut dyn Write,
    problem: &dyn Fn(&Choices) -> Option<String>,
) -> io::Result<()> {
    let mut dialogue = Dialogue { input, output, problem };
    if !known.servers {
        let servers = |answer: &str, choices: &mut Choices| {
            choices.servers =
                answer.split([',', ' ']).filter(|it| !it.is_empty()).map(str::to_owned).collect();
            Ok(())
        };
        dialogue.question(choices, "Where is your API? host:port", UPSTREAM, &servers)?;
    }
    if !known.tls {
        let domain = |answer: &str, choices: &mut Choices| {
            choices.tls = Tls::Acme { domains: vec![answer.to_owned()], email: None };
            Ok(())
        };
        let text = "HTTPS with a certificate of Let's Encrypt? domain, such as api.example.com";
        dialogue.question(choices, text, "", &domain)?;
    }
    if !known.listen {
        let listen = |answer: &str, choices: &mut Choices| {
            choices.listen = Some(answer.to_owned());
            Ok(())
        };
        let default = if choices.tls == Tls::None { LISTEN } else { LISTEN_TLS };
        dialogue.question(choices, "Where do clients connect? address:port", default, &listen)?;
    }
    if !known.per {
        let per = |answer: &str, choices: &mut Choices| {
            choices.per = Per::parse(answer)?;
            Ok(())
        };
        dialogue.question(choices, "Limit each what? ip, key, header:NAME, or all", "ip", &per)?;
    }
    if !known.rate {
        let rate = |answer: &str, choices: &mut Choices| {
            answer.clone_into(&mut choices.rate);
            Ok(())
        };
        dialogue.question(
            choices,
            "How many requests? such as 10/s, 100/m or 1000/h",
            RATE,
            &rate,
        )?;
    }
    if !known.redis {
        let redis = |answer: &str, choices: &mut Choices| {
            choices.redis = Some(answer.to_owned());
            Ok(())
        };
        let text =
            "Several gateways? URL of the Redis that they share, such as redis://127.0.0.1:6379";
        dialogue.question(choices, text, "", &redis)?;
    }
    Ok(())
}

struct Dialogue<'a> {
    input: &'a mut dyn BufRead,
    output: &'a mut dyn Write,
    problem: &'a dyn Fn(&Choices) -> Option<String>,
}

impl Dialogue<'_> {
    /// Asks one question until the answer is valid. `default` is shown; it is what `choices` has.
    fn question(
        &mut self,
        choices: &mut Choices,
        text: &str,
        default: &str,
        apply: &dyn Fn(&str, &mut Choices) -> Result<(), String>,
    ) -> io::Result<()> {
        let default = if default.is_empty() { "none" } else { default };
        loop {
            write!(self.output, "{text} [{default}]: ")?;
            self.output.flush()?;
            let mut line = Vec::new();
            let is_end = self.input.read_until(b'\n', &mut line)? == 0;
            if line.last() != Some(&b'\n') {
                writeln!(self.output)?;
            }
            if is_end {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let Ok(line) = std::str::from_utf8(&line) else {
                writeln!(self.output, "  the answer is not in UTF-8")?;
                continue;
            };
            let answer = line.trim();
            if answer.is_empty() {
                return Ok(());
            }
            let mut changed = choices.clone();
            let problem = apply(answer, &mut changed).err().or_else(|| (self.problem)(&changed));
            match problem {
                None => {
                    *choices = changed;
                    return Ok(());
                }
                Some(problem) => writeln!(self.output, "  {problem}")?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Known =
        Known { servers: false, tls: false, listen: false, per: false, rate: false, redis: false };

    fn asked(known: Known, answers: &str) -> (Choices, String) {
        let (choices, output, result) = ended(known, answers.as_bytes());
        result.unwrap();
        (choices, output)
    }

    fn ended(known: Known, mut answers: &[u8]) -> (Choices, String, io::Result<()>) {
        let mut choices = Choices::default();
        let mut output = Vec::new();
        let problem = |choices: &Choices| {
            choices.rate.contains('x').then(|| "the rate has no number".to_owned())
        };
        let result = ask(&mut choices, known, &mut answers, &mut output, &problem);
        (choices, String::from_utf8(output).unwrap(), result)
    }

    #[test]
    fn answers_become_choices() {
        let (choices, _) = asked(NOTHING, "a:1, b:2\napi.example.com\n\nkey\n100/m\nredis://r\n");
        assert_eq!(choices.servers, ["a:1", "b:2"]);
        assert!(matches!(choices.tls, Tls::Acme { .. }));
        assert_eq!((choices.listen, choices.rate.as_str()), (None, "100/m"));
        assert_eq!(choices.per, Per::parse("key").unwrap());
        assert_eq!(choices.redis.as_deref(), Some("redis://r"));
    }

    #[test]
    fn empty_answers_are_the_defaults() {
        let (choices, _) = asked(NOTHING, "\n\n\n\n\n\n");
        assert_eq!(choices.text(), Choices::default().text());
    }

    #[test]
    fn end_of_the_input_is_an_error_and_other_bytes_are_asked_for_again() {
        for answers in ["", "a:1\n", "a:1\n\n\n\n\n"] {
            let (_, _, result) = ended(NOTHING, answers.as_bytes());
            assert_eq!(result.unwrap_err().kind(), ErrorKind::UnexpectedEof, "{answers:?}");
        }
        let known = Known { rate: false, ..KNOWN };
        let (choices, output, result) = ended(known, b"\xff\n5/s");
        assert!(result.is_ok() && choices.rate == "5/s", "{output}");
        assert!(output.contains("  the answer is not in UTF-8\n"), "{output}");
    }

    #[test]
    fn wrong_answers_are_asked_for_again() {
        let known = Known { rate: false, ..KNOWN };
        let (choices, output) = asked(known, "x/s\n5/s\n");
        assert_eq!(choices.rate, "5/s");
        assert_eq!(output.matches("How many requests?").count(), 2, "{output}");
        assert!(output.contains("  the rate has no number\n"), "{output}");
    }

    const KNOWN: Known =
        Known { servers: true, tls: true, listen: true, per: true, rate: true, redis: true };

    #[test]
    fn what_flags_say_is_not_asked() {
        assert_eq!(asked(KNOWN, "").1, "");
    }
}
