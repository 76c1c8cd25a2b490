//! What headers say about the framing of a message: the headers of its connection, and where its
//! body ends.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};

/// The options of `Connection`, among them names of headers.
pub fn connection_options(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    elements(headers, &header::CONNECTION)
}

/// The headers that `Connection` names: they are for the next recipient alone (RFC 9110, section
/// 7.6.1).
pub(crate) fn named_by_connection(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    connection_options(headers).filter_map(|option| HeaderName::from_bytes(option).ok())
}

/// Whether the final response with this status to a request of this method has a body (RFC 9110,
/// section 6.4.1).
pub(crate) fn has_body(method: &Method, status: StatusCode) -> bool {
    *method != Method::HEAD && !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// The first number of `Content-Length`, in digits. Pingora has checked that all of them are equal.
pub(crate) fn content_length(headers: &HeaderMap) -> Option<&str> {
    let length = elements(headers, &header::CONTENT_LENGTH).next()?;
    let is_number = !length.is_empty() && length.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(length).ok().filter(|_| is_number)
}

/// Whether `Content-Length` is missing or one number. Else it is unknown where the response ends.
pub(crate) fn has_clear_length(headers: &HeaderMap) -> bool {
    let mut lengths = elements(headers, &header::CONTENT_LENGTH);
    let Some(first) = lengths.next() else { return true };
    content_length(headers).is_some() && lengths.all(|length| length == first)
}

/// The value that replaces several equal `Content-Length` values, in several lines or in a list;
/// `None` if there is only one. Pingora accepts them; the next server may reject them, or read them
/// differently. RFC 9110, section 8.6, requires one.
pub(crate) fn one_length(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut lines = headers.get_all(header::CONTENT_LENGTH).iter();
    let (first, second) = (lines.next()?, lines.next().is_some());
    let length = elements(headers, &header::CONTENT_LENGTH).next()?;
    let is_one = !second && length.len() == first.len();
    if is_one { None } else { HeaderValue::from_bytes(length).ok() }
}

/// The elements of a header that is a list, of all lines.
pub(crate) fn elements<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a [u8]> {
    let lines = headers.get_all(name).into_iter();
    lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_length_is_clear_if_it_is_one_number() {
        let table: [(&[&'static str], bool); 8] = [
            (&[], true),
            (&["2"], true),
            (&["2", "2"], true),
            (&["2, 2"], true),
            (&["2", "3"], false),
            (&["2,3"], false),
            (&[""], false),
            (&["+2"], false),
        ];
        for (lines, expected) in table {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::CONTENT_LENGTH, HeaderValue::from_static(line));
            }
            assert_eq!(has_clear_length(&headers), expected, "{lines:?}");
        }
    }
}
