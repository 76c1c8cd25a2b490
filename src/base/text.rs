//! Formats numbers and addresses for headers and the access log, with fewer instructions than
//! `fmt`; makes texts of others safe to show.

use std::net::IpAddr;

use bytes::BufMut;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Appends an address in the format of its `Display`.
pub fn put_ip(text: &mut impl BufMut, address: IpAddr) {
    let IpAddr::V4(address) = address else {
        // The rules for leaving out zeros (RFC 5952) are those of `Display`.
        text.put_slice(address.to_string().as_bytes());
        return;
    };
    let mut digits = itoa::Buffer::new();
    for (index, octet) in address.octets().into_iter().enumerate() {
        if index > 0 {
            text.put_u8(b'.');
        }
        text.put_slice(digits.format(octet).as_bytes());
    }
}

/// Formats a number as 16 hexadecimal digits in lower case.
pub fn hex(number: u64) -> [u8; 16] {
    let mut digits = [0; 16];
    let mut rest = number;
    for digit in digits.iter_mut().rev() {
        *digit = HEX.get((rest & 15) as usize).copied().unwrap_or_default();
        rest >>= 4;
    }
    digits
}

/// At most `most` characters of a text from the file or from Redis, with characters replaced that
/// break the line, control a terminal or change the direction of text, so that a message stays one
/// short line.
pub fn cut(text: &str, most: usize) -> String {
    let is_unsafe = |c: char| {
        let is_separator = matches!(c, '\u{2028}' | '\u{2029}');
        let is_direction = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        c.is_control() || is_separator || is_direction
    };
    let mut short: String =
        text.chars().take(most).map(|c| if is_unsafe(c) { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(most).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_formatted_as_by_fmt() {
        for shown in ["0.0.0.0", "255.10.0.1", "::1", "2001:db8::7", "::ffff:203.0.113.7"] {
            let mut text = Vec::new();
            put_ip(&mut text, shown.parse().unwrap());
            assert_eq!(String::from_utf8(text).unwrap(), shown);
        }
    }

    #[test]
    fn hex_is_formatted_as_by_fmt() {
        for number in [0, 1, 0x0123_4567_89ab_cdef, u64::MAX] {
            assert_eq!(hex(number), *format!("{number:016x}").as_bytes());
        }
    }

    #[test]
    fn shown_texts_are_one_line_and_are_cut() {
        assert_eq!(cut("a\nb\u{1b}c", 9), "a\u{fffd}b\u{fffd}c");
        assert_eq!(cut("a\u{2028}b\u{202e}c\u{2066}", 9), "a\u{fffd}b\u{fffd}c\u{fffd}");
        assert_eq!(cut("äöü", 2), "äö…");
    }
}
