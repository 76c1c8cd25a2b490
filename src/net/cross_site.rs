//! Whether a page of another site sends a request, by the headers that browsers add.

use http::{HeaderMap, HeaderValue, header};

/// Whether a page of another site sends the request with these headers. A request without the
/// headers of browsers does not come from one.
pub fn is_cross_site(headers: &HeaderMap) -> bool {
    let mut sites = headers.get_all("sec-fetch-site").iter().peekable();
    if sites.peek().is_some() {
        return !sites.all(|site| matches!(site.as_bytes(), b"same-origin" | b"none"));
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return false };
    let origin = origin.to_str().ok().and_then(|origin| Some(origin.split_once("://")?.1));
    let host = headers.get(header::HOST).and_then(|host: &HeaderValue| host.to_str().ok());
    match (origin, host) {
        (Some(origin), Some(host)) => !origin.eq_ignore_ascii_case(host),
        _ => true,
    }
}
