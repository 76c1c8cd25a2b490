//! The requests of `requests.txt`.

/// A request, or several on one connection, and what the gateway does with it.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
    /// What the gateway does, as the file spells it.
    pub(super) expected: String,
    pub(super) responses: Vec<Expected>,
    pub(super) ending: Ending,
}

/// A response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) status: u16,
    /// Whether the request was counted, and ended afterwards.
    pub(super) is_after_check: bool,
}

/// What happens to the connection after the responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It serves another request.
    Keep,
    /// The gateway closes it.
    Close,
    /// The gateway waits for the rest of a request.
    Wait,
}

impl Case {
    /// The methods of the requests, as far as the bytes show them.
    pub(super) fn methods(&self) -> impl Iterator<Item = &'static str> + use<> {
        let is_head = self.bytes.starts_with(b"HEAD ");
        std::iter::once(if is_head { "HEAD" } else { "GET" })
    }
}

/// All cases.
pub(super) fn cases() -> Vec<Case> {
    let lines = include_str!("requests.txt").lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(parse).collect()
}

fn parse(line: &str) -> Case {
    let mut columns = line.splitn(3, " | ");
    let mut column = || columns.next().unwrap_or_else(|| panic!("three columns: {line}"));
    let (name, expected, text) = (column(), column(), column());
    let mut words: Vec<&str> = expected.split(' ').collect();
    let ending = match words.pop() {
        Some("keep") => Ending::Keep,
        Some("close") => Ending::Close,
        Some("wait") => Ending::Wait,
        _ => panic!("keep, close or wait: {line}"),
    };
    let response = |word: &&str| Expected {
        status: word.trim_matches(['(', ')']).parse().unwrap(),
        is_after_check: word.starts_with('('),
    };
    Case {
        name: name.to_owned(),
        bytes: bytes(text, name),
        expected: expected.to_owned(),
        responses: words.iter().map(response).collect(),
        ending,
    }
}

/// The bytes that a line of the file describes.
fn bytes(text: &str, name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.chars();
    while let Some(letter) = rest.next() {
        match letter {
            '^' => bytes.extend_from_slice(b"\r\n"),
            '@' => bytes.extend_from_slice(name.as_bytes()),
            '\\' => bytes.push(escape(&mut rest)),
            '{' => {
                let (repeated, after) = rest.as_str().split_once('}').unwrap();
                let (count, repeated) = repeated.split_once('*').unwrap();
                let once = self::bytes(repeated, name);
                bytes.extend(once.repeat(count.parse().unwrap()));
                rest = after.chars();
            }
            _ => bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

fn escape(rest: &mut std::str::Chars<'_>) -> u8 {
    match rest.next() {
        Some('r') => b'\r',
        Some('n') => b'\n',
        Some('t') => b'\t',
        Some('0') => 0,
        Some('x') => {
            let digits: String = rest.by_ref().take(2).collect();
            u8::from_str_radix(&digits, 16).unwrap()
        }
        other => panic!("no escape: {other:?}"),
    }
}
