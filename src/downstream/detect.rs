//! Which protocol a client in clear speaks, from its first bytes. Pure.

/// The first bytes of an HTTP/2 connection (RFC 9113, section 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What the first bytes of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detected {
    /// The beginning of the preface: more bytes are needed.
    Incomplete,
    /// A request of HTTP/1, or no request at all: the parser of HTTP/1 finds out.
    Http1,
    /// The preface of HTTP/2.
    Http2,
}

/// Detects the protocol. A byte that differs from the preface decides at once: the client may be
/// waiting for the response to a short request.
pub(super) fn detect(first: &[u8]) -> Detected {
    let length = first.len().min(PREFACE.len());
    match (first[..length] == PREFACE[..length], length == PREFACE.len()) {
        (false, _) => Detected::Http1,
        (true, true) => Detected::Http2,
        (true, false) => Detected::Incomplete,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn preface_is_detected_at_its_last_byte() {
        for length in 0..PREFACE.len() {
            assert_eq!(detect(&PREFACE[..length]), Detected::Incomplete, "{length}");
        }
        assert_eq!(detect(PREFACE), Detected::Http2);
    }

    #[test]
    fn first_different_byte_decides() {
        for request in [&b"GET / HTTP/1.1\r\n"[..], b"P", b"PR", b"PUT / HTTP/1.1", b"\x16\x03\x01"]
        {
            let decided = (1..=request.len())
                .find(|length| detect(&request[..*length]) != Detected::Incomplete);
            let differs = request.iter().zip(PREFACE).position(|(a, b)| a != b);
            assert_eq!(decided, differs.map(|index| index + 1), "{request:?}");
        }
        assert_eq!(detect(b"PRI * HTTP/1.1\r\n"), Detected::Http1);
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn result_depends_only_on_whether_the_bytes_begin_with_the_preface(
            kept in 0..=PREFACE.len(),
            rest in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let bytes = [&PREFACE[..kept], &rest].concat();
            let expected = if bytes.starts_with(PREFACE) {
                Detected::Http2
            } else if PREFACE.starts_with(&bytes) {
                Detected::Incomplete
            } else {
                Detected::Http1
            };
            prop_assert_eq!(detect(&bytes), expected);
        }

        #[test]
        fn decision_never_changes_with_more_bytes(
            kept in 0..=PREFACE.len(),
            rest in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let bytes = [&PREFACE[..kept], &rest].concat();
            let whole = detect(&bytes);
            for split in 0..bytes.len() {
                let part = detect(&bytes[..split]);
                prop_assert!(part == Detected::Incomplete || part == whole);
            }
        }
    }
}
