//! `tollgate hash-key`: prints the `[keys.…]` table of an API key, which holds only its hash.

use std::fmt::Write as _;
use std::io::Read as _;
use std::process::ExitCode;

use sha2::{Digest as _, Sha256};

use super::EXIT_BAD_FILE;
use crate::identity::MAX_KEY_BYTES;

/// Length of a new key in bytes (192 bits).
const NEW_KEY_BYTES: usize = 24;

/// Prints the table of `key`, of the key on standard input (`-`), or of a new random key.
pub(super) fn hash_key(key: Option<&str>) -> ExitCode {
    let (key, is_new) = match key {
        None => match new_key() {
            Ok(key) => (key, true),
            Err(error) => return fail(&format!("cannot generate a random key: {error}")),
        },
        Some("-") => match read_key() {
            Ok(key) => (key, false),
            Err(error) => return fail(&format!("cannot read the key: {error}")),
        },
        Some(key) => (key.to_string(), false),
    };
    if key.is_empty() {
        return fail("the key is empty");
    }
    if key.len() > MAX_KEY_BYTES {
        return fail(&format!("the key is longer than {MAX_KEY_BYTES} bytes"));
    }
    if key.chars().any(char::is_control) || key.trim() != key {
        return fail(
            "HTTP cannot transmit the key: it contains control characters, or begins or ends with space",
        );
    }
    print!("{}", lines(&key, is_new));
    ExitCode::SUCCESS
}

fn fail(message: &str) -> ExitCode {
    eprintln!("error: {message}");
    ExitCode::from(EXIT_BAD_FILE)
}

fn new_key() -> Result<String, getrandom::Error> {
    let mut bytes = [0; NEW_KEY_BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(format!("tg_{}", hex(&bytes)))
}

/// The key on standard input, without the line break that `echo` adds.
fn read_key() -> std::io::Result<String> {
    let mut text = String::new();
    let most = u64::try_from(MAX_KEY_BYTES).unwrap_or(u64::MAX) + 3;
    std::io::stdin().lock().take(most).read_to_string(&mut text)?;
    Ok(text.trim_end_matches(['\r', '\n']).to_string())
}

fn lines(key: &str, is_new: bool) -> String {
    let mut lines = String::new();
    let note = if is_new { "  # give it to the client; it is not stored" } else { "" };
    let _ = writeln!(lines, "# key: {key}{note}");
    let _ = writeln!(lines, "[keys.NAME]  # the name that logs and metrics show");
    let _ = writeln!(lines, "sha256 = \"{}\"", hex(&Sha256::digest(key)));
    let _ = writeln!(lines, "plan = \"PLAN\"  # one of [plans.…]");
    lines
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_ready_to_paste() {
        // The SHA-256 of "test", as `printf test | sha256sum` prints it.
        let expected = "# key: test\n\
            [keys.NAME]  # the name that logs and metrics show\n\
            sha256 = \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"\n\
            plan = \"PLAN\"  # one of [plans.…]\n";
        assert_eq!(lines("test", false), expected);
    }

    #[test]
    fn new_keys_differ() {
        assert_ne!(new_key().unwrap(), new_key().unwrap());
    }
}
