//! Times, sizes, rates and networks in the spellings of other gateways.

use ipnet::IpNet;
use std::net::IpAddr;

/// The longest time of a setting, in milliseconds: one day.
const MAX_MS: u64 = 86_400_000;

/// A time in milliseconds as gateway.toml writes it, between 1 ms and one day.
pub(super) fn time(ms: u64) -> String {
    let ms = ms.clamp(1, MAX_MS);
    for (unit_ms, unit) in [(3_600_000, "h"), (60_000, "m"), (1_000, "s")] {
        if ms.is_multiple_of(unit_ms) {
            return format!("{}{unit}", ms / unit_ms);
        }
    }
    format!("{ms}ms")
}

/// Milliseconds of a time such as `10s`, `1m30s`, `1.5s`, `250ms` or `60`, which has the unit
/// `bare_ms`, rounded down. None if it is not one.
pub(super) fn milliseconds(text: &str, bare_ms: u64) -> Option<u64> {
    Some(parts(text, bare_ms)?.0)
}

/// The same, rounded up: the time in which a number of requests is allowed is never shorter.
pub(super) fn milliseconds_up(text: &str, bare_ms: u64) -> Option<u64> {
    let (whole, rounded) = parts(text, bare_ms)?;
    whole.checked_add(rounded)
}

/// Milliseconds of a time, rounded down, and how many of its parts were.
fn parts(text: &str, bare_ms: u64) -> Option<(u64, u64)> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    let (mut total, mut rounded): (u64, u64) = (0, 0);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let unit_end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let unit_ms = match unit {
            "" => bare_ms,
            "ms" => 1,
            "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => MAX_MS,
            "w" => 7 * MAX_MS,
            "M" => 30 * MAX_MS,
            "y" => 365 * MAX_MS,
            _ => return None,
        };
        let (part, is_exact) = scaled(number, unit_ms)?;
        total = total.checked_add(part)?;
        rounded += u64::from(!is_exact);
        rest = after.trim_start();
    }
    Some((total, rounded))
}

/// A decimal number times `unit`, rounded down, and whether that is exact.
fn scaled(number: &str, unit: u64) -> Option<(u64, bool)> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = whole.parse().ok()?;
    let (digits, rest) = fraction.split_at_checked(6).unwrap_or((fraction, ""));
    let (part, is_exact) = if digits.is_empty() {
        (0, true)
    } else {
        let scale = 10_u64.checked_pow(u32::try_from(digits.len()).ok()?)?;
        let scaled = digits.parse::<u64>().ok()?.checked_mul(unit)?;
        (scaled / scale, scaled.is_multiple_of(scale))
    };
    let is_exact = is_exact && rest.bytes().all(|digit| digit == b'0');
    Some((whole.checked_mul(unit)?.checked_add(part)?, is_exact))
}

/// Bytes of a size such as `10m`, `8k`, `1g`, `10MB` or `1024`.
pub(super) fn bytes(text: &str) -> Option<i64> {
    let text = text.trim().to_ascii_lowercase();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit: i64 = match unit.trim().trim_end_matches('b').trim_end_matches('i') {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return None,
    };
    // The largest size that the gateway accepts.
    number.parse::<i64>().ok()?.checked_mul(unit).map(|bytes| bytes.min(1 << 50))
}

/// A rate of `count` in `period_ms`; none if there is none.
pub(super) fn rate(count: u64, period_ms: u64) -> Option<String> {
    if count == 0 || period_ms == 0 {
        return None;
    }
    for (unit_ms, unit) in [(MAX_MS, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")] {
        if period_ms.is_multiple_of(unit_ms) {
            let number = period_ms / unit_ms;
            return Some(if number == 1 {
                format!("{count}/{unit}")
            } else {
                format!("{count}/{number}{unit}")
            });
        }
    }
    Some(format!("{count}/{period_ms}ms"))
}

/// An address or a network as gateway.toml accepts it; none if it is neither.
pub(super) fn network(text: &str) -> Option<String> {
    let text = text.trim();
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_string());
    }
    text.parse::<IpNet>().ok().map(|network| network.trunc().to_string())
}

/// The addresses that are in both networks; none if there are none.
pub(super) fn overlap(first: &str, second: &str) -> Option<String> {
    let net = |text: &str| {
        text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
    };
    let (a, b) = (net(first)?, net(second)?);
    if a.contains(&b) { Some(second.to_owned()) } else { b.contains(&a).then(|| first.to_owned()) }
}

/// `host:port`, with `default` for a missing port. None for what is no host.
pub(super) fn with_port(text: &str, default: u16) -> Option<String> {
    let text = text.trim();
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let address: std::net::Ipv6Addr = address.parse().ok()?;
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().ok()?,
            None => default,
        };
        return Some(format!("[{address}]:{port}"));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, port.parse::<u16>().ok()?),
        None => (text, default),
    };
    (!host.is_empty() && host.chars().all(valid)).then(|| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written() {
        let table = [
            ("10s", 10_000, "10s"),
            ("60", 60_000, "1m"),
            ("1m30s", 90_000, "90s"),
            ("0.25s", 250, "250ms"),
            ("1.5h", 5_400_000, "90m"),
            ("100ms", 100, "100ms"),
            ("1h 30m", 5_400_000, "90m"),
        ];
        for (text, ms, written) in table {
            assert_eq!(milliseconds(text, 1000), Some(ms), "{text}");
            assert_eq!(time(ms), written, "{text}");
        }
        for text in ["", "x", "1x", "s", "-1s", "99999999999999999999", ".", "1.x"] {
            assert_eq!(milliseconds(text, 1000), None, "{text}");
        }
        for (text, up) in [
            ("0.0505s", 51),
            ("1.9999s", 2_000),
            ("0.05s", 50),
            ("0.05000000001s", 51),
            ("1.0000000s", 1_000),
            ("50ms", 50),
        ] {
            assert_eq!(milliseconds_up(text, 1000), Some(up), "{text}");
        }
        assert_eq!(time(0), "1ms");
        assert_eq!(time(u64::MAX), "24h");
    }

    #[test]
    fn sizes_rates_and_addresses() {
        assert_eq!(bytes("10m"), Some(10 << 20));
        assert_eq!(bytes("8KB"), Some(8 << 10));
        assert_eq!(bytes("1x"), None);
        assert_eq!(rate(100, 60_000).as_deref(), Some("100/m"));
        assert_eq!(rate(5, 250).as_deref(), Some("5/250ms"));
        assert_eq!(rate(5, 10_000).as_deref(), Some("5/10s"));
        assert_eq!(rate(0, 1000), None);
        assert_eq!(network("10.1.2.3/8").as_deref(), Some("10.0.0.0/8"));
        assert_eq!(network("x"), None);
        assert_eq!(with_port("a.internal", 80).as_deref(), Some("a.internal:80"));
        assert_eq!(with_port("[::1]:9", 80).as_deref(), Some("[::1]:9"));
        assert_eq!(with_port("unix:/run/x.sock", 80), None);
        assert_eq!(with_port("$backend", 80), None);
    }
}
