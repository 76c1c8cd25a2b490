use proptest::prelude::*;

use super::*;

fn addresses(source: &str, destination: &str) -> Addresses {
    Addresses { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
}

fn invalid(bytes: &[u8]) -> Invalid {
    match parse(bytes) {
        Parsed::Invalid(invalid) => invalid,
        other => panic!("{other:?}: {}", bytes.escape_ascii()),
    }
}

fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(body.len()).unwrap();
    [&v2::SIGNATURE[..], &[command, family], &len.to_be_bytes(), body].concat()
}

/// Headers that HAProxy 2.6.12 sent on loopback, with the addresses of the connections.
fn of_haproxy() -> Vec<(&'static [u8], Option<Addresses>)> {
    let v4 = |source: &str, destination: &str| {
        Some(addresses(&format!("127.0.0.1:{source}"), &format!("127.0.0.1:{destination}")))
    };
    let v6 = |source: &str, destination: &str| {
        Some(addresses(&format!("[::1]:{source}"), &format!("[::1]:{destination}")))
    };
    vec![
        // send-proxy: TCP over IPv4, IPv6, IPv4 on an IPv6 socket; a Unix socket.
        (b"PROXY TCP4 127.0.0.1 127.0.0.1 44442 43100\r\n", v4("44442", "43100")),
        (b"PROXY TCP6 ::1 ::1 38758 43100\r\n", v6("38758", "43100")),
        (
            b"PROXY TCP6 ::ffff:127.0.0.1 ::ffff:127.0.0.1 35976 43400\r\n",
            v4("35976", "43400"),
        ),
        (b"PROXY UNKNOWN\r\n", None),
        // send-proxy-v2.
        (
            b"\r\n\r\n\x00\r\nQUIT\n!\x11\x00\x0c\x7f\x00\x00\x01\x7f\x00\x00\x01\xdc2\xa8]",
            v4("56370", "43101"),
        ),
        (
            b"\r\n\r\n\x00\r\nQUIT\n!!\x00$\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\
            \x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x91\x90\xa8]",
            v6("37264", "43101"),
        ),
        (
            b"\r\n\r\n\x00\r\nQUIT\n!!\x00$\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x7f\x00\
            \x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x7f\x00\x00\x01\xea\xfe\xa9\x89",
            v4("60158", "43401"),
        ),
        (b"\r\n\r\n\x00\r\nQUIT\n \x00\x00\x00", None),
        // With proxy-v2-options crc32c.
        (
            b"\r\n\r\n\x00\r\nQUIT\n!\x11\x00\x13\x7f\x00\x00\x01\x7f\x00\x00\x01\x9a\xf0\xa8^\
            \x03\x00\x04\xc2\xc2\x17N",
            v4("39664", "43102"),
        ),
        (
            b"\r\n\r\n\x00\r\nQUIT\n!!\x00+\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\
            \x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x95B\xa8^\
            \x03\x00\x04\xb1?\xc6\xd0",
            v6("38210", "43102"),
        ),
        (b"\r\n\r\n\x00\r\nQUIT\n \x00\x00\x07\x03\x00\x04\xa9\xb8~\x8f", None),
        // send-proxy-v2-ssl-cn with all options: checksum, server name, unique id, TLS.
        (
            b"\r\n\r\n\x00\r\nQUIT\n!\x11\x00r\x7f\x00\x00\x01\x7f\x00\x00\x01\xeaF\xa8_\
            \x03\x00\x04\xe0%k\x92\x02\x00\x0fapi.example.com\x05\x00\x03abc \x00D\x01\x00\x00\x00\x00\
            !\x00\x07TLSv1.3%\x00\x05EC256$\x00\x11ecdsa-with-SHA256#\x00\x16TLS_AES_256_GCM_SHA384",
            v4("59974", "43103"),
        ),
    ]
}

#[test]
fn headers_of_haproxy_are_parsed_and_end_before_the_first_byte_of_the_client() {
    for (bytes, addresses) in of_haproxy() {
        let expected = Parsed::Header { addresses, len: bytes.len() };
        assert_eq!(parse(bytes), expected, "{}", bytes.escape_ascii());
        assert_eq!(parse(&[bytes, b"GET / HTTP/1.1\r\n"].concat()), expected);
    }
}

#[test]
fn part_of_a_header_is_incomplete_wherever_it_ends() {
    for (bytes, _) in of_haproxy() {
        for end in 0..bytes.len() {
            assert_eq!(parse(&bytes[..end]), Parsed::Incomplete, "{}", bytes[..end].escape_ascii());
        }
    }
}

#[test]
fn headers_without_options_are_encoded_as_haproxy_does() {
    for (bytes, addresses) in [0, 1, 3, 4, 5, 7].map(|index| of_haproxy()[index]) {
        let version = if bytes.starts_with(b"PROXY") { Version::V1 } else { Version::V2 };
        assert_eq!(encode(version, addresses), bytes, "{}", bytes.escape_ascii());
    }
}

#[test]
fn first_wrong_byte_is_invalid_at_once() {
    for text in ["G", "PROXX", "PROXY\t", "\r\nG", "\r\n\r\n\0\r\nQUIT\r", "\x16\x03\x01", "PRI * "]
    {
        assert_eq!(invalid(text.as_bytes()), Invalid::Signature, "{text:?}");
    }
}

#[test]
fn malformed_line_is_invalid() {
    for line in [
        "",
        " ",
        "TCP4",
        "TCP5 192.0.2.1 192.0.2.2 1 2",
        "tcp4 192.0.2.1 192.0.2.2 1 2",
        "UNKNOWNX",
        "TCP4 192.0.2.1 192.0.2.2 1",
        "TCP4 192.0.2.1 192.0.2.2 1 2 3",
        "TCP4 192.0.2.1  192.0.2.2 1 2",
        "TCP4 192.0.2.1 192.0.2.2 1 2 ",
        "TCP4 192.0.2.01 192.0.2.2 1 2",
        "TCP4 192.0.2.256 192.0.2.2 1 2",
        "TCP4 ::1 ::1 1 2",
        "TCP6 192.0.2.1 192.0.2.2 1 2",
        "TCP6 [::1] ::1 1 2",
        "TCP6 fe80::1%eth0 ::1 1 2",
        "TCP4 192.0.2.1 192.0.2.2 +1 2",
        "TCP4 192.0.2.1 192.0.2.2 -1 2",
        "TCP4 192.0.2.1 192.0.2.2 01 2",
        "TCP4 192.0.2.1 192.0.2.2 1 65536",
        "TCP4 192.0.2.1 192.0.2.2 1 \u{e9}",
        "TCP4 192.0.2.1 192.0.2.2 1 2\rx",
    ] {
        assert_eq!(invalid(format!("PROXY {line}\r\n").as_bytes()), Invalid::Line, "{line:?}");
    }
    assert_eq!(invalid(b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n"), Invalid::Line);
    assert_eq!(invalid(b"PROXY TCP4 192.0.2.1 192.0.2.2 1 \xff\r\n"), Invalid::Line);
}

#[test]
fn line_of_unknown_may_have_107_bytes_and_no_more() {
    let line = |len: usize| format!("PROXY UNKNOWN {}\r\n", "\u{7f}".repeat(len - 16)).into_bytes();
    assert_eq!(parse(&line(107)), Parsed::Header { addresses: None, len: 107 });
    assert_eq!(invalid(&line(108)), Invalid::LineTooLong);
    assert_eq!(parse(&line(108)[..106]), Parsed::Incomplete);
    assert_eq!(invalid(&line(108)[..107]), Invalid::LineTooLong);
}

#[test]
fn other_families_leave_the_addresses_of_the_connection() {
    let header =
        |bytes: &[u8]| parse(bytes) == Parsed::Header { addresses: None, len: bytes.len() };
    // Unix sockets, datagrams, no family.
    for family in [0x31, 0x32, 0x12, 0x22, 0x00, 0x01, 0x10] {
        assert!(header(&v2(0x21, family, &[7; 216])), "{family:#x}");
        assert!(header(&v2(0x21, family, b"")), "{family:#x}");
    }
    // LOCAL, with whatever else.
    for family in [0x00, 0x11, 0x21, 0x31, 0xff] {
        assert!(header(&v2(0x20, family, &[7; 12])), "{family:#x}");
        assert!(header(&v2(0x20, family, b"")), "{family:#x}");
    }
}

#[test]
fn binary_header_with_unknown_numbers_is_invalid_before_it_is_complete() {
    for (command, family) in [(0x22, 0x11), (0x11, 0x11), (0x31, 0x11), (0x21, 0x13), (0x21, 0x41)]
    {
        let header = v2(command, family, &[7; 36]);
        assert_eq!(invalid(&header), Invalid::Unknown, "{command:#x} {family:#x}");
        assert_eq!(invalid(&header[..14]), Invalid::Unknown, "{command:#x} {family:#x}");
    }
}

#[test]
fn binary_header_with_a_wrong_length_is_invalid() {
    assert_eq!(invalid(&v2(0x21, 0x11, &[7; 11])), Invalid::TooShort);
    assert_eq!(invalid(&v2(0x21, 0x21, &[7; 35])), Invalid::TooShort);
    assert_eq!(invalid(&v2(0x21, 0x11, &[0; 4_081])), Invalid::TooLong);
    assert_eq!(invalid(&v2(0x20, 0x00, &[0; 4_081])[..16]), Invalid::TooLong);
    let longest = v2(0x21, 0x11, &[&[0; 12][..], &[4, 0x0f, 0xe1], &[0; 4_065]].concat());
    assert_eq!(longest.len(), MAX_HEADER_BYTES);
    assert!(matches!(parse(&longest), Parsed::Header { len: MAX_HEADER_BYTES, .. }));
}

#[test]
fn field_beyond_the_header_is_invalid() {
    for field in
        [&[4][..], &[4, 0], &[4, 0, 1], &[4, 0xff, 0xff, 0], &[3, 0, 3, 0, 0, 0], &[3, 0, 0]]
    {
        let header = v2(0x21, 0x11, &[&[7; 12], field].concat());
        assert_eq!(invalid(&header), Invalid::Field, "{field:?}");
    }
}

#[test]
fn wrong_bit_in_a_header_with_a_checksum_is_found() {
    let (bytes, _) = of_haproxy()[8];
    for bit in 16 * 8..28 * 8 {
        let mut header = bytes.to_vec();
        header[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(invalid(&header), Invalid::Checksum, "bit {bit}");
    }
    let mut header = bytes.to_vec();
    *header.last_mut().unwrap() ^= 1;
    assert_eq!(invalid(&header), Invalid::Checksum);
}

fn socket_address() -> impl Strategy<Value = SocketAddr> {
    (any::<std::net::IpAddr>(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

fn any_addresses() -> impl Strategy<Value = Option<Addresses>> {
    let addresses = (socket_address(), socket_address());
    prop::option::of(addresses.prop_map(|(source, destination)| Addresses { source, destination }))
}

/// Bytes that get past the signature.
fn nearly_a_header() -> impl Strategy<Value = Vec<u8>> {
    let rest = prop::collection::vec(any::<u8>(), 0..64);
    let line = "(TCP4|TCP6|UNKNOWN)( [0-9a-f.:]{1,12}){0,5}(\r\n)?.{0,3}";
    prop_oneof![
        rest.clone(),
        line.prop_map(|line| [v1::SIGNATURE, line.as_bytes()].concat()),
        (0x1fu8..0x23, any::<u8>(), 0u8..70, rest).prop_map(|(command, family, len, rest)| {
            [&v2::SIGNATURE[..], &[command, family, 0, len], &rest].concat()
        }),
    ]
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    #[test]
    fn encoded_header_is_parsed_to_its_addresses(
        addresses in any_addresses(),
        version in prop_oneof![Just(Version::V1), Just(Version::V2)],
        after in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        let header = encode(version, addresses);
        let expected = addresses.map(Addresses::to_canonical);
        let parsed = parse(&[&header[..], &after].concat());
        prop_assert_eq!(parsed, Parsed::Header { addresses: expected, len: header.len() });
    }

    #[test]
    fn any_prefix_agrees_with_all_bytes(bytes in nearly_a_header()) {
        let whole = parse(&bytes);
        for end in 0..bytes.len() {
            match parse(&bytes[..end]) {
                Parsed::Incomplete => {}
                Parsed::Header { len, .. } if len > end => prop_assert!(false, "{len} of {end}"),
                early => prop_assert_eq!(early, whole),
            }
        }
    }
}
