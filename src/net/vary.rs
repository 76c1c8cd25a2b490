//! The header `Vary` of a response.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::framing;

/// The value of `Vary` of a response that also depends on the request header `name`, if it does not
/// say so yet.
pub(crate) fn also(response: &HeaderMap, name: &HeaderName) -> Option<HeaderValue> {
    let is_said = |own: &[u8]| own == b"*" || own.eq_ignore_ascii_case(name.as_str().as_bytes());
    if framing::elements(response, &header::VARY).any(is_said) {
        return None;
    }
    // One line: some caches read only one.
    let lines = response.get_all(header::VARY).iter().map(HeaderValue::as_bytes);
    let lines = lines.filter(|line| !line.trim_ascii().is_empty());
    let written = written(name);
    let lines: Vec<&[u8]> = lines.chain([written.as_bytes()]).collect();
    HeaderValue::from_bytes(&lines.join(&b", "[..])).ok()
}

/// The name as HTTP/1.1 usually writes it.
fn written(name: &HeaderName) -> &str {
    match *name {
        header::ORIGIN => "Origin",
        header::ACCEPT_ENCODING => "Accept-Encoding",
        _ => name.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_joined_in_one_line() {
        let table: [(&[&'static str], Option<&str>); 7] = [
            (&[], Some("Accept-Encoding")),
            (&[""], Some("Accept-Encoding")),
            (&["Origin"], Some("Origin, Accept-Encoding")),
            (&["Origin", "Cookie, Accept"], Some("Origin, Cookie, Accept, Accept-Encoding")),
            (&["*"], None),
            (&["Origin", "x, accept-encoding"], None),
            (&["Accept"], Some("Accept, Accept-Encoding")),
        ];
        for (lines, expected) in table {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(header::VARY, HeaderValue::from_static(line));
            }
            let vary = also(&headers, &header::ACCEPT_ENCODING);
            assert_eq!(vary.as_ref().map(HeaderValue::as_bytes), expected.map(str::as_bytes));
        }
    }
}
