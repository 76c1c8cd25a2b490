//! Errors of the operating system in plain words.

use std::io;

/// What precedes the address of a manual, which rustls adds to the error of a session that has no
/// end.
const MANUAL: &str = ": https://docs.rs/";

/// The text of an error without the address of a manual.
pub fn without_manual(text: &str) -> &str {
    text.find(MANUAL).map_or(text, |end| &text[..end])
}

/// The text of an error without its number, in lower case: `connection refused`.
pub fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = without_manual(&text).split(" (os error ").next().unwrap_or_default();
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_has_neither_a_number_nor_a_capital_letter() {
        let table = [
            (io::Error::from_raw_os_error(111), "connection refused"),
            (io::Error::from_raw_os_error(13), "permission denied"),
            (io::ErrorKind::TimedOut.into(), "timed out"),
            (io::Error::other("none"), "none"),
            (
                io::Error::other("Session ended: https://docs.rs/rustls/latest/rustls/manual"),
                "session ended",
            ),
        ];
        for (error, expected) in table {
            assert_eq!(plain(&error), expected);
        }
    }
}
