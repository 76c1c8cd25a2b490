//! Headers that list what a client prefers, each item with a weight (RFC 9110, section 12.4.2):
//! `Accept` and `Accept-Encoding`. Items that are not valid are left out.

use http::{HeaderMap, HeaderName};

/// How many items of a header are read. Browsers send less than ten.
const MAX_ITEMS: usize = 64;

/// The weight of an item that states none, and the largest one.
pub(crate) const FULL: u16 = 1_000;

/// An item of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Weighted<'a> {
    /// The item without its parameters.
    pub(crate) item: &'a str,
    /// In thousandths; 0: not accepted.
    pub(crate) quality: u16,
}

/// The items of all lines of a header.
pub(crate) fn items<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = Weighted<'a>> {
    let values = headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
    values.flat_map(|line| line.split(',')).filter_map(weighted).take(MAX_ITEMS)
}

/// An item with its weight; `None` if it is not valid.
fn weighted(text: &str) -> Option<Weighted<'_>> {
    let mut parts = text.split(';').map(str::trim);
    let item = parts.next().filter(|item| !item.is_empty())?;
    let weight = parts.find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then_some(value.trim())
    });
    Some(Weighted { item, quality: weight.map_or(Some(FULL), quality)? })
}

/// A weight, such as `0.8`, in thousandths. Some clients write `.8`.
fn quality(text: &str) -> Option<u16> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_valid = fraction.len() <= 3 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let thousandths = format!("{fraction:0<3}").parse().ok().filter(|_| is_valid)?;
    match whole {
        "" if fraction.is_empty() => None,
        "" | "0" => Some(thousandths),
        "1" if thousandths == 0 => Some(FULL),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header};

    use super::*;

    #[test]
    fn items_have_the_weights_that_they_state() {
        let table: [(&str, &[(&str, u16)]); 8] = [
            ("gzip", &[("gzip", 1_000)]),
            ("br;q=0.9, gzip;q=.8", &[("br", 900), ("gzip", 800)]),
            ("br ; Q = 0.05,,", &[("br", 50)]),
            ("text/html;level=1;q=0", &[("text/html", 0)]),
            ("gzip;q=1.001, br;q=1.000", &[("br", 1_000)]),
            ("gzip;q=, br;q=-1, zstd;q=0.1234, *", &[("*", 1_000)]),
            ("", &[]),
            (";q=1", &[]),
        ];
        for (line, expected) in table {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(line));
            let read = items(&headers, &header::ACCEPT_ENCODING);
            let read: Vec<_> = read.map(|it| (it.item, it.quality)).collect();
            assert_eq!(read, expected, "{line}");
        }
    }

    #[test]
    fn a_bounded_number_of_items_is_read() {
        let mut headers = HeaderMap::new();
        let line = HeaderValue::try_from("a,".repeat(100)).unwrap();
        headers.append(header::ACCEPT, line.clone());
        headers.append(header::ACCEPT, line);
        assert_eq!(items(&headers, &header::ACCEPT).count(), MAX_ITEMS);
    }
}
