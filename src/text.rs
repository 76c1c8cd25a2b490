//! Formats numbers and addresses for headers and the access log, with fewer instructions than `fmt`.

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
}
