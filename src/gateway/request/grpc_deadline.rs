//! Deadlines of gRPC calls, which their clients choose.

use std::time::Duration;

use http::HeaderMap;
use pingora::prelude::{Error, ErrorType};
use pingora::proxy::Session;
use tokio::time::Instant;

use crate::base::clock;
use crate::gateway::respond::failure;
use crate::net::grpc::Form;

/// The deadline of a gRPC call in any form whose head was received at `started` (microseconds);
/// `None`: it has none.
pub(in crate::gateway) fn of(session: &Session, started: u64) -> Option<Instant> {
    let headers = &session.req_header().headers;
    Form::of(headers)?;
    let timeout = grpc_timeout(headers)?;
    let elapsed = Duration::from_micros(clock::now().saturating_sub(started));
    Instant::now().checked_add(timeout.saturating_sub(elapsed))
}

/// The error of a call whose deadline has passed.
#[allow(clippy::unnecessary_box_returns, reason = "the type of Pingora's errors")]
pub(in crate::gateway) fn passed() -> Box<Error> {
    Error::new(ErrorType::Custom(failure::DEADLINE_PASSED)).into_up()
}

/// The timeout of a gRPC call ("Requests" in gRPC's description of its protocol over HTTP/2);
/// `None` if there is none or it is malformed.
fn grpc_timeout(headers: &HeaderMap) -> Option<Duration> {
    parse(headers.get("grpc-timeout")?.as_bytes())
}

/// Parses up to 8 digits and a unit.
fn parse(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = std::str::from_utf8(digits).ok()?.parse::<u64>().ok()?;
    match unit {
        b'H' => Some(Duration::from_secs(number * 3_600)),
        b'M' => Some(Duration::from_secs(number * 60)),
        b'S' => Some(Duration::from_secs(number)),
        b'm' => Some(Duration::from_millis(number)),
        b'u' => Some(Duration::from_micros(number)),
        b'n' => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn grpc_timeouts() {
        let table: [(&str, Option<Duration>); 14] = [
            ("1H", Some(Duration::from_secs(3_600))),
            ("2M", Some(Duration::from_secs(120))),
            ("3S", Some(Duration::from_secs(3))),
            ("100m", Some(Duration::from_millis(100))),
            ("5u", Some(Duration::from_micros(5))),
            ("7n", Some(Duration::from_nanos(7))),
            ("0S", Some(Duration::ZERO)),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3_600))),
            ("123456789S", None),
            ("S", None),
            ("", None),
            ("1", None),
            ("+1S", None),
            ("1s", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse(text.as_bytes()), expected, "{text}");
        }
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn any_bytes_are_a_timeout_or_none(value in any::<Vec<u8>>()) {
            if parse(&value).is_some() {
                prop_assert!((2..=9).contains(&value.len()));
            }
        }
    }
}
