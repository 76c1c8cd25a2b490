//! Suggestions for names that do not exist.

use crate::base::text::cut;

/// Maximum length of names that are compared.
const MAX_COMPARED_BYTES: usize = 64;

/// How many names a list shows: more than any table has settings. Only names that the user chose
/// are more.
const MAX_LISTED: usize = 60;

/// Where a list of names continues on a new line, in characters.
const MAX_LINE: usize = 100;

/// The candidate that `word` most likely misspells: the one at the smallest edit distance, if that
/// is small.
pub fn closest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    if word.is_empty() || word.len() > MAX_COMPARED_BYTES {
        return None;
    }
    let folded = fold(word);
    let most_edits = (word.chars().count() / 3).max(1);
    candidates
        .iter()
        .filter(|candidate| candidate.len() <= MAX_COMPARED_BYTES)
        .map(|candidate| (strsim::damerau_levenshtein(&folded, &fold(candidate)), *candidate))
        .filter(|(edits, candidate)| *edits <= most_edits && *edits < candidate.chars().count())
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
        .or_else(|| only_with(&folded, candidates))
}

/// The only candidate that begins with the word, or that is the word's last part: `ipv6_prefix` for
/// `ipv6`, `key` for `per-key`.
fn only_with<'a>(folded: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let last = folded.rsplit('_').next().unwrap_or_default();
    let mut alike = candidates.iter().filter(|candidate| {
        let candidate = fold(candidate);
        (folded.len() > 2 && candidate.starts_with(folded)) || candidate == last
    });
    let only = alike.next()?;
    alike.next().is_none().then_some(*only)
}

/// A help line for a name that does not exist: the closest candidate, or else all of them.
pub fn help(word: &str, candidates: &[&str]) -> String {
    if let Some(candidate) = closest(word, candidates) {
        return format!("did you mean `{candidate}`?");
    }
    match candidates {
        [] => "the file has none".to_owned(),
        [only] => format!("there is only `{only}`"),
        _ => format!("possible here: {}", list(candidates, "and")),
    }
}

/// As [`help`], over several lines if it is long.
pub fn help_lines(word: &str, candidates: &[&str]) -> String {
    wrap(&help(word, candidates))
}

/// The text over several lines.
pub fn wrap(text: &str) -> String {
    let mut wrapped = String::with_capacity(text.len());
    let mut line = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if line > 0 && line + 1 + length > MAX_LINE {
            wrapped.push('\n');
            line = 0;
        } else if line > 0 {
            wrapped.push(' ');
            line += 1;
        }
        wrapped.push_str(word);
        line += length;
    }
    wrapped
}

/// A message about an unknown name in `whole`, such as `the body`, in one line.
pub fn unknown(whole: &str, name: &str, possible: &[&str]) -> String {
    let help = help(name, possible);
    format!("{whole} has an unknown name `{}`: {help}", cut(name, MAX_COMPARED_BYTES))
}

/// A list of names in backticks, the last one after `conjunction`. A long list is cut.
pub fn list(names: &[&str], conjunction: &str) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{}`", cut(name, 64))).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [only] => only.clone(),
        [..] if quoted.len() > MAX_LISTED => {
            let more = quoted.len() - MAX_LISTED;
            format!("{} and {more} more", quoted[..MAX_LISTED].join(", "))
        }
        [first @ .., last] => format!("{} {conjunction} {last}", first.join(", ")),
    }
}

/// A name as TOML writes it, at most 64 characters of it: in quotes if it has a dot, which would
/// separate tables.
pub fn key(name: &str) -> String {
    let short = cut(name, MAX_COMPARED_BYTES);
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !short.is_empty() && short.chars().all(is_bare) { short } else { format!("{short:?}") }
}

/// The names that lead to a table, as TOML writes them in its head.
pub fn head(path: &[impl AsRef<str>]) -> String {
    path.iter().map(|name| key(name.as_ref())).collect::<Vec<_>>().join(".")
}

/// The form in which names are compared: case and `-` or `_` do not matter.
fn fold(name: &str) -> String {
    name.to_lowercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closest_name_is_suggested() {
        let names = ["per-key", "per-ip", "burst", "rate"];
        let table = [
            ("per_key", Some("per-key")),
            ("perkey", Some("per-key")),
            ("Per-IP", Some("per-ip")),
            ("brust", Some("burst")),
            ("rtae", Some("rate")),
            ("bur", Some("burst")),
            ("max-rate", Some("rate")),
            ("per", None),
            ("x", None),
            ("", None),
            ("something else", None),
        ];
        for (word, expected) in table {
            assert_eq!(closest(word, &names), expected, "{word}");
        }
    }

    #[test]
    fn names_with_a_dot_are_quoted() {
        assert_eq!(key("per-key_1"), "per-key_1");
        assert_eq!(key("v1.2"), "\"v1.2\"");
        assert_eq!(key(""), "\"\"");
        assert_eq!(head(&["plans", "v1.2"]), "plans.\"v1.2\"");
    }

    #[test]
    fn lists_are_phrases_and_are_cut() {
        assert_eq!(list(&["a"], "or"), "`a`");
        assert_eq!(list(&["a", "b", "c"], "or"), "`a`, `b` or `c`");
        assert!(list(&["a"; 100], "or").ends_with("`a` and 40 more"));
    }
}
