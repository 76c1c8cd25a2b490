//! Texts of errors from Redis, without secrets. Some servers and proxies repeat what they were
//! sent, passwords included.

use redis::RedisError;

use super::script;
use crate::net::io_text::without_manual;
use crate::policy::redis::{Login, Secret};

/// Maximum length of a shown text, in bytes.
const MAX_BYTES: usize = 200;

/// Maximum number of bytes of a text that are read.
const MAX_READ_BYTES: usize = 4_096;

/// Replacement for a secret.
const MASK: &str = "***";

/// Minimum length of a run of letters, digits and `+=_-` that may be a key or a hash.
const MIN_TOKEN_BYTES: usize = 20;

/// A user that every server has.
const DEFAULT_USER: &str = "default";

/// Names of settings whose value is a secret: `token=...`, `password: ...`.
const SECRET_NAMES: [&str; 13] = [
    "auth",
    "authorization",
    "api_key",
    "apikey",
    "access_key",
    "masterauth",
    "pass",
    "passwd",
    "password",
    "pwd",
    "requirepass",
    "secret",
    "token",
];

/// Secrets of the configuration, which no error may show.
#[derive(Debug, Clone, Default)]
pub struct Secrets(Vec<Secret>);

impl Secrets {
    /// Password and user of a login.
    pub fn of(login: &Login) -> Self {
        let user = login.username.clone().filter(|user| user != DEFAULT_USER).map(Secret::new);
        let mut secrets: Vec<Secret> = login.password.clone().into_iter().chain(user).collect();
        secrets.retain(|secret| !secret.reveal().is_empty());
        // The longer first: one may contain the other.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.reveal().len()));
        Self(secrets)
    }

    /// Text of the error on one line of ASCII, at most 200 bytes and an ellipsis. Masks these
    /// secrets and everything that looks like a secret.
    pub fn describe(&self, error: &RedisError) -> String {
        match (error.code(), error.detail()) {
            (Some(code), Some(detail)) => self.strip(&format!("{code} {detail}")),
            _ => self.strip(&error.to_string()),
        }
    }

    fn strip(&self, text: &str) -> String {
        let mask = |text: String, secret: &Secret| text.replace(secret.reveal(), MASK);
        let text = self.0.iter().fold(text.to_owned(), mask);
        let (text, is_cut) = beginning(without_manual(&text));
        let mut shown = String::new();
        // Number of the next words that are secrets.
        let mut secret_words = 0_u8;
        for word in text.split(|c: char| c.is_whitespace() || c.is_control()) {
            let bare = word.trim_matches(['\'', '"', '`']);
            if bare.is_empty() {
                continue;
            }
            if !shown.is_empty() {
                shown.push(' ');
            }
            // `AUTH <password>` is a placeholder, not a login.
            if secret_words > 0 && !bare.starts_with('<') {
                secret_words -= 1;
                shown.push_str(MASK);
                continue;
            }
            push_word(&mut shown, word, bare);
            secret_words = secrets_after(bare);
            if shown.ends_with("args beginning with:") {
                shown.push(' ');
                shown.push_str(MASK);
                break;
            }
            if shown.len() > MAX_BYTES {
                break;
            }
        }
        let is_long = shown.len() > MAX_BYTES;
        // All of it is ASCII.
        shown.truncate(MAX_BYTES);
        shown.truncate(shown.trim_end_matches('.').len());
        if is_long || is_cut {
            shown.push_str("...");
        }
        shown
    }
}

/// Part of the text that is read, in whole words, and whether there is more.
fn beginning(text: &str) -> (&str, bool) {
    if text.len() <= MAX_READ_BYTES {
        return (text, false);
    }
    let end = (0..=MAX_READ_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let end = text[..end].rfind(char::is_whitespace).unwrap_or(0);
    (&text[..end], true)
}

/// Number of words after this one that are secrets.
fn secrets_after(bare: &str) -> u8 {
    let lower = bare.to_ascii_lowercase();
    match lower.as_str() {
        "auth" | "authorization:" | "authorization=" => 2,
        "requirepass" | "masterauth" | "bearer" | "basic" => 1,
        _ => u8::from(lower.strip_suffix([':', '=']).is_some_and(is_secret_name)),
    }
}

fn is_secret_name(name: &str) -> bool {
    SECRET_NAMES.contains(&name)
}

/// Adds a word and masks what looks like a secret. `bare` is the word without quotes.
fn push_word(shown: &mut String, word: &str, bare: &str) {
    // A password as `ACL SETUSER` takes it.
    if bare.len() > 1 && bare.starts_with('>') {
        shown.push_str(MASK);
        return;
    }
    let mut word = word;
    if let Some((scheme, rest)) = word.split_once("://")
        && let Some((_, host)) = rest.rsplit_once('@')
    {
        push_tokens(shown, scheme);
        shown.push_str("://***@");
        word = host;
    }
    for part in word.split_inclusive(['&', ';', ',', '?']) {
        let name = part.find(['=', ':']).and_then(|at| part.get(..at));
        let name = name.map(|name| name.trim_start_matches(|c: char| !c.is_ascii_alphanumeric()));
        match part.find(['=', ':']) {
            Some(at)
                if at + 1 < part.len()
                    && name.is_some_and(|name| is_secret_name(&name.to_ascii_lowercase())) =>
            {
                push_tokens(shown, &part[..=at]);
                shown.push_str(MASK);
            }
            _ => push_tokens(shown, part),
        }
    }
}

/// Adds a text in ASCII and masks long runs of letters and digits.
fn push_tokens(shown: &mut String, text: &str) {
    let is_of_token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '=' | '_' | '-');
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = rest.find(|c| !is_of_token(c)).unwrap_or(rest.len());
        let (run, after) = rest.split_at(length.max(first.len_utf8()));
        let has = |kind: fn(&u8) -> bool| run.bytes().any(|byte| kind(&byte));
        // Redis names the script that failed by its hash.
        let is_script = run.strip_prefix("f_").unwrap_or(run) == script::SHA.as_str();
        if run.len() >= MIN_TOKEN_BYTES
            && !is_script
            && has(u8::is_ascii_digit)
            && has(u8::is_ascii_alphabetic)
        {
            shown.push_str(MASK);
        } else {
            for c in run.chars() {
                if c.is_ascii() {
                    shown.push(c);
                } else {
                    shown.extend(c.escape_default());
                }
            }
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(username: Option<&str>, password: &str) -> Secrets {
        let username = username.map(str::to_owned);
        Secrets::of(&Login { username, password: Some(Secret::new(password.to_owned())) })
    }

    #[test]
    fn known_error_texts_are_shown_unchanged() {
        for text in [
            "READONLY You can't write against a read only replica",
            "NOAUTH Authentication required",
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
             <proto> AUTH <user> <pass> option can be used",
            "WRONGPASS invalid username-password pair or user is disabled",
            "ERR AUTH <password> called without any password configured for the default user",
            "ERR Client sent AUTH, but no password is set",
            "NOPERM User gateway has no permissions to run the 'evalsha' command",
            "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist",
            "MOVED 3999 127.0.0.1:6381",
            "OOM command not allowed when used memory > 'maxmemory'",
            "ERR DB index is out of range",
        ] {
            assert_eq!(Secrets::default().strip(text), text);
        }
    }

    #[test]
    fn text_that_looks_like_a_secret_is_masked() {
        let table = [
            (
                "ERR unknown command 'AUTH', with args beginning with: 'user' 'hunter2' ",
                "ERR unknown command 'AUTH', with args beginning with: ***",
            ),
            ("ERR AUTH user hunter2 failed", "ERR AUTH *** *** failed"),
            ("ERR auth 'user' \"hunter2\"", "ERR auth *** ***"),
            ("ERR HELLO 3 AUTH user hunter2", "ERR HELLO 3 AUTH *** ***"),
            ("ERR AUTH\thunter2\r\nx", "ERR AUTH *** ***"),
            ("ERR CONFIG SET requirepass hunter2", "ERR CONFIG SET requirepass ***"),
            ("ERR modifier '>hunter2': syntax", "ERR modifier *** syntax"),
            ("ERR redis://u:p@ss@10.0.0.1:6379/0 x", "ERR redis://***@10.0.0.1:6379/0 x"),
            ("ERR see (rediss://:pw@h), x", "ERR see (rediss://***@h), x"),
            ("ERR password=hunter2, x", "ERR password=*** x"),
            ("ERR url?a=1&Token=hunter2&b=2", "ERR url?a=1&Token=***b=2"),
            ("ERR Password: hunter2 x", "ERR Password: *** x"),
            ("ERR Authorization: Bearer hunter2", "ERR Authorization: *** ***"),
            ("ERR f_0123456789abcdef0123456789abcdef01234567: x", "ERR ***: x"),
            ("ERR c2VjcmV0MTIzNDU2Nzg5MDEy= x", "ERR *** x"),
        ];
        for (text, expected) in table {
            assert_eq!(Secrets::default().strip(text), expected);
        }
    }

    #[test]
    fn configured_secrets_are_masked_anywhere_in_the_text() {
        let secrets = secrets(Some("gateway"), "hunter2 gateway");
        assert_eq!(secrets.strip("ERR xhunter2 gatewayx of gateway"), "ERR x***x of ***");
        let default = Secrets::of(&Login { username: Some("default".to_owned()), password: None });
        assert_eq!(default.strip("ERR the default user"), "ERR the default user");
    }

    #[test]
    fn control_and_non_ascii_characters_are_escaped() {
        let shown = Secrets::default().strip("ERR \u{1b}[31mred\u{7}\n2026 WARN \u{202e}ü");
        assert_eq!(shown, "ERR [31mred 2026 WARN \\u{202e}\\u{fc}");
    }

    #[test]
    fn long_text_is_cut_without_revealing_part_of_a_secret() {
        let strip = |text: &str| secrets(None, "hunter2-hunter2").strip(text);
        assert_eq!(strip(&format!("ERR {}", "x ".repeat(500))).len(), MAX_BYTES + 3);
        for length in 0..400 {
            let shown = strip(&format!("{} hunter2-hunter2", "x".repeat(length)));
            assert!(!shown.contains("hunter") && shown.len() <= MAX_BYTES + 3, "{shown}");
        }
        for length in MAX_READ_BYTES - 60..MAX_READ_BYTES + 60 {
            let filler = "AUTH ".repeat(length / 5);
            let shown = strip(&format!("{filler}{}password=other", "x".repeat(length % 5)));
            assert!(!shown.contains("other") && shown.len() <= MAX_BYTES + 3, "{shown}");
        }
    }

    #[test]
    fn shown_text_starts_with_the_error_code() {
        for reply in ["-LOADING Redis is loading the dataset in memory", "-X", "-ERR a: -OOM x"] {
            let value = redis::parse_redis_value(format!("{reply}\r\n").as_bytes()).unwrap();
            let shown = Secrets::default().describe(&value.extract_error().unwrap_err());
            assert!(shown.contains(reply[1..].split(' ').next().unwrap()), "{reply}: {shown}");
        }
    }
}
