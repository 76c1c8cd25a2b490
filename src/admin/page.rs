//! The files of the dashboard, which are part of the binary.

use std::sync::LazyLock;

use http::{HeaderValue, Method, Response, StatusCode, header};
use pingora::prelude::RequestHeader;
use sha2::{Digest as _, Sha256};

/// One file of the page.
struct Asset {
    path: &'static str,
    /// Media type, as in `Content-Type`.
    kind: &'static str,
    content: &'static str,
}

/// Content security policy of the page: only resources of this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const ICON: &str = "image/svg+xml";
const TEXT: &str = "text/plain; charset=utf-8";

macro_rules! assets {
    ($($path:literal = $file:literal, $kind:expr;)*) => {
        &[$(Asset { path: $path, kind: $kind, content: include_str!(concat!("page/", $file)) }),*]
    };
}

const ASSETS: &[Asset] = assets! {
    "/" = "index.html", HTML;
    "/page/icon.svg" = "icon.svg", ICON;
    "/page/style.css" = "style.css", CSS;
    "/page/parts.css" = "parts.css", CSS;
    "/page/api.js" = "api.js", SCRIPT;
    "/page/audit.js" = "audit.js", SCRIPT;
    "/page/bans.js" = "bans.js", SCRIPT;
    "/page/bucket.js" = "bucket.js", SCRIPT;
    "/page/kinds.js" = "kinds.js", SCRIPT;
    "/page/usage.js" = "usage.js", SCRIPT;
    "/page/bucketcard.js" = "bucketcard.js", SCRIPT;
    "/page/changes.js" = "changes.js", SCRIPT;
    "/page/chart.js" = "chart.js", SCRIPT;
    "/page/client.js" = "client.js", SCRIPT;
    "/page/clients.js" = "clients.js", SCRIPT;
    "/page/dialogs.js" = "dialogs.js", SCRIPT;
    "/page/dom.js" = "dom.js", SCRIPT;
    "/page/events.js" = "events.js", SCRIPT;
    "/page/explain.js" = "explain.js", SCRIPT;
    "/page/format.js" = "format.js", SCRIPT;
    "/page/health.js" = "health.js", SCRIPT;
    "/page/history.js" = "history.js", SCRIPT;
    "/page/keys.js" = "keys.js", SCRIPT;
    "/page/main.js" = "main.js", SCRIPT;
    "/page/overview.js" = "overview.js", SCRIPT;
    "/page/outcomes.js" = "outcomes.js", SCRIPT;
    "/page/policy.js" = "policy.js", SCRIPT;
    "/page/range.js" = "range.js", SCRIPT;
    "/page/refusals.js" = "refusals.js", SCRIPT;
    "/page/reloads.js" = "reloads.js", SCRIPT;
    "/page/runs.js" = "runs.js", SCRIPT;
    "/page/series.js" = "series.js", SCRIPT;
    "/page/sortable.js" = "sortable.js", SCRIPT;
    "/page/theme.js" = "theme.js", SCRIPT;
    "/page/timechart.js" = "timechart.js", SCRIPT;
    "/page/times.js" = "times.js", SCRIPT;
    "/page/tokens.js" = "tokens.js", SCRIPT;
    "/page/traffic.js" = "traffic.js", SCRIPT;
    "/page/view.js" = "view.js", SCRIPT;
    "/page/visualizer.js" = "visualizer.js", SCRIPT;
    "/page/zone.js" = "zone.js", SCRIPT;
    "/page/uplot.min.js" = "vendor/uplot.min.js", SCRIPT;
    "/page/uplot.min.css" = "vendor/uplot.min.css", CSS;
    "/page/uplot.LICENSE" = "vendor/uplot.LICENSE", TEXT;
};

/// The response with a file of the dashboard; `None` if there is no such file.
pub(super) fn answer(request: &RequestHeader) -> Option<Response<Vec<u8>>> {
    let asset = ASSETS.iter().find(|asset| asset.path == request.uri.path())?;
    if !matches!(request.method, Method::GET | Method::HEAD) {
        return None;
    }
    let known = request.headers.get(header::IF_NONE_MATCH);
    let is_known = known.is_some_and(|known| known.as_bytes() == tag().as_bytes());
    let is_sent = !is_known && request.method == Method::GET;
    let body = if is_sent { asset.content.as_bytes().to_vec() } else { Vec::new() };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // Revalidated at each use; the entity tag changes with the binary.
        (header::CACHE_CONTROL, "no-cache"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.extend(HeaderValue::from_str(tag()).ok().map(|tag| (header::ETAG, tag)));
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.kind));
        headers.insert(header::CONTENT_LENGTH, asset.content.len().into());
    }
    Some(response)
}

/// Entity tag of all files, a hash of their contents.
fn tag() -> &'static str {
    static TAG: LazyLock<String> = LazyLock::new(|| {
        let mut sum = Sha256::new();
        for asset in ASSETS {
            sum.update(asset.content);
        }
        let sum = sum.finalize();
        let start = sum.iter().take(8).fold(0_u64, |all, byte| (all << 8) | u64::from(*byte));
        format!("\"{start:016x}\"")
    });
    &TAG
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_uses_only_files_of_the_binary() {
        for asset in ASSETS {
            let literals = asset.content.split(['"', '\'', '`']);
            for word in literals.filter(|word| word.starts_with("/page/") || word.starts_with("./"))
            {
                let path = word.replacen("./", "/page/", 1);
                let is_included = ASSETS.iter().any(|other| other.path == path);
                assert!(is_included, "{} refers to {word}", asset.path);
            }
        }
    }
}
