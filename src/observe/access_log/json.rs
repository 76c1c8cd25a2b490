//! The JSON of a line. Through serde, member by member, a line takes more than twice as many
//! instructions; what is written is the same, to which the tests of `line` hold it.

use std::net::SocketAddr;

use crate::observe::address::ShownAddress;
use crate::observe::time::Moment;
use crate::text::{hex, put_ip};

/// An object in the making, behind what is in the buffer already. A member without a value is
/// `null`.
pub(super) struct Object<'a> {
    text: &'a mut Vec<u8>,
    before: u8,
}

impl<'a> Object<'a> {
    pub(super) fn open(text: &'a mut Vec<u8>) -> Self {
        Self { text, before: b'{' }
    }

    pub(super) fn close(self) {
        self.text.push(b'}');
    }

    /// Adds a member of whatever form, as `put` writes it. Names are ours: nothing in them is to be
    /// escaped.
    fn member<T>(&mut self, name: &str, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
        self.text.push(self.before);
        self.before = b',';
        self.text.push(b'"');
        self.text.extend_from_slice(name.as_bytes());
        self.text.extend_from_slice(b"\":");
        match value {
            Some(value) => put(self.text, value),
            None => self.text.extend_from_slice(b"null"),
        }
    }

    /// A string, whatever is in it.
    pub(super) fn string(&mut self, name: &str, value: Option<&str>) {
        self.member(name, value, |text, value| {
            if value.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
                quote(text, |text| text.extend_from_slice(value.as_bytes()));
            } else {
                // Writing to memory that grows does not fail.
                let _ = serde_json::to_writer(text, value);
            }
        });
    }

    pub(super) fn number(&mut self, name: &str, value: Option<u64>) {
        self.member(name, value, put_number);
    }

    /// Ticks as milliseconds with one to three decimals.
    pub(super) fn milliseconds(&mut self, name: &str, ticks: Option<u64>) {
        self.member(name, ticks, |text, ticks| {
            put_number(text, ticks / 1_000);
            let rest = ticks % 1_000;
            let digit = |place: u64| b"0123456789".get((place % 10) as usize).copied();
            let [tenth, hundredth, thousandth] =
                [rest / 100, rest / 10, rest].map(|place| digit(place).unwrap_or_default());
            text.extend([b'.', tenth]);
            if rest % 100 > 0 {
                text.push(hundredth);
            }
            if rest % 10 > 0 {
                text.push(thousandth);
            }
        });
    }

    pub(super) fn moment(&mut self, name: &str, moment: Moment) {
        self.member(name, Some(moment), |text, moment| {
            quote(text, |text| match moment.digits() {
                Some(digits) => text.extend_from_slice(&digits),
                None => text.extend_from_slice(moment.to_string().as_bytes()),
            });
        });
    }

    pub(super) fn shown(&mut self, name: &str, address: Option<ShownAddress>) {
        self.member(name, address, |text, address| {
            quote(text, |text| match address {
                ShownAddress::Plain(ip) => put_ip(text, ip),
                ShownAddress::Hashed(hash) => {
                    text.extend_from_slice(b"h:");
                    text.extend_from_slice(&hex(u64::from_be_bytes(hash)));
                }
            });
        });
    }

    pub(super) fn server(&mut self, name: &str, server: Option<SocketAddr>) {
        self.member(name, server, |text, server| {
            quote(text, |text| {
                let SocketAddr::V4(server) = server else {
                    text.extend_from_slice(server.to_string().as_bytes());
                    return;
                };
                put_ip(text, (*server.ip()).into());
                text.push(b':');
                put_number(text, server.port().into());
            });
        });
    }
}

fn quote(text: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>)) {
    text.push(b'"');
    put(text);
    text.push(b'"');
}

fn put_number(text: &mut Vec<u8>, number: u64) {
    text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
