//! Whether Pingora has already read bytes of a connection's next request.
//!
//! Pingora 0.9.1 keeps such bytes in `HttpPersistentSettings`, which has no method that says so:
//! only its debug output does.

use std::fmt::{self, Write as _};

use pingora::apps::HttpPersistentSettings;

/// The name of the field.
const FIELD: &str = "pipelined_prefix";

/// Reads the debug output up to the value of [`FIELD`].
#[derive(Debug, Default, PartialEq, Eq)]
enum Probe {
    /// Before the name of the field.
    #[default]
    Before,
    /// After the name.
    Named,
    /// There are no such bytes.
    Absent,
    /// There are bytes, or the output is not as expected.
    Present,
}

/// Whether the settings may contain bytes of the next request. False only if they certainly do not:
/// output in an unknown format means that they may.
pub(super) fn may_have_prefix(settings: &HttpPersistentSettings) -> bool {
    let mut probe = Probe::default();
    // An error ends the output once the value is known.
    let _ = write!(probe, "{settings:?}");
    probe != Probe::Absent
}

impl fmt::Write for Probe {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        *self = match (&self, part) {
            (Self::Before, FIELD) => Self::Named,
            (Self::Before, _) | (Self::Named, ": ") => return Ok(()),
            (Self::Named, "None") => Self::Absent,
            _ => Self::Present,
        };
        if *self == Self::Named { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use pingora::protocols::http::ServerSession;

    use super::*;

    fn settings() -> HttpPersistentSettings {
        let (stream, _) = tokio::io::duplex(64);
        let mut session = ServerSession::new_http1(Box::new(stream));
        session.set_keepalive(Some(60));
        session.set_pipelining_enabled(true);
        HttpPersistentSettings::for_session(&session)
    }

    #[test]
    fn settings_without_bytes_have_no_prefix() {
        assert!(!may_have_prefix(&settings()));
    }

    #[test]
    fn bytes_of_the_next_request_are_found() {
        for bytes in ["GET / HTTP/1.1\r\n\r\n", "None", "G"] {
            let mut settings = settings();
            settings.set_pipelined_prefix(BytesMut::from(bytes));
            assert!(may_have_prefix(&settings), "{bytes}");
        }
    }

    #[test]
    fn context_with_the_text_of_an_absent_prefix_is_not_mistaken_for_it() {
        let mut settings = settings();
        settings.set_user_context(Box::new("pipelined_prefix: None"));
        settings.set_pipelined_prefix(BytesMut::from("GET"));
        assert!(may_have_prefix(&settings));
    }
}
