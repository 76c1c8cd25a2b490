//! `balance` and `sticky` of an upstream.

use http::HeaderName;

use super::environment::{Environment, expand};
use super::values::optional_duration;
use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::suggest::{self, closest};
use crate::config::tables::{self, Field};
use crate::policy::redis::Secret;
use crate::policy::servers::{Balance, HashSource, Sticky};

/// Other names of the same things.
const FOREIGN: [(&str, &[&str]); 5] = [
    ("round_robin", &["roundrobin", "round-robin", "rr", "wrr", "weighted", "static-rr", "first"]),
    (
        "least_request",
        &["least_conn", "leastconn", "least_connections", "least-connections", "lc", "p2c-ewma"],
    ),
    ("random_two", &["random", "p2c", "random two", "random_choose", "power_of_two"]),
    (
        "hash:ip",
        &["ip_hash", "source", "client_ip_hash", "maglev", "ring_hash", "hash", "consistent"],
    ),
    ("hash:header:<name>", &["header", "hdr", "uri", "uri_hash", "url_hash"]),
];

/// How requests are distributed; none with an error.
pub(super) fn balance(
    field: Option<&Spanned<String>>,
    diagnostics: &mut Diagnostics,
) -> Option<Balance> {
    let Some(field) = field else { return Some(Balance::default()) };
    let text = field.get_ref().as_str();
    if let Some(plain) = Balance::PLAIN.into_iter().find(|plain| plain.to_string() == text) {
        return Some(plain);
    }
    let header = text.strip_prefix("hash:header:").map(str::trim);
    if let Some(name) = header.and_then(|name| name.parse::<HeaderName>().ok()) {
        return Some(Balance::Hash(HashSource::Header(name)));
    }
    diagnostics.push(unknown(field, header.is_some()));
    None
}

fn unknown(field: &Spanned<String>, is_header: bool) -> Diagnostic {
    let text = field.get_ref();
    if is_header {
        let message = format!("`{}` names no header", cut(text, 64));
        let help = "it looks like `hash:header:x-tenant`";
        return Diagnostic::new(field.span(), message).help(help);
    }
    let lower = text.to_ascii_lowercase();
    let foreign = FOREIGN.iter().find(|(_, names)| names.contains(&lower.as_str()));
    let plain = Balance::PLAIN.map(|plain| plain.to_string());
    let words = |header| plain.iter().map(String::as_str).chain([header]).collect::<Vec<_>>();
    let meant = foreign.map(|(word, _)| *word);
    let help = meant.or_else(|| closest(text, &words("hash:header:"))).map_or_else(
        || format!("possible here: {}", suggest::list(&words("hash:header:<name>"), "and")),
        |meant| format!("write `balance = \"{meant}\"`"),
    );
    let message = format!("`balance` has no value `{}`", cut(text, 64));
    Diagnostic::new(field.span(), message).help(help)
}

/// The cookie of `sticky`; none with an error.
pub(super) fn sticky(
    table: &Spanned<tables::Sticky>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Sticky> {
    let tables::Sticky { cookie, ttl, secret } = table.get_ref();
    let cookie = match cookie {
        None => {
            let message = "`sticky` needs the name of its `cookie`";
            let help = "write `sticky = { cookie = \"srv\" }`";
            diagnostics.push(Diagnostic::new(table.span(), message).help(help));
            None
        }
        Some(field) => cookie_name(field, diagnostics),
    };
    let ttl = self::ttl(ttl, diagnostics);
    let secret = match secret {
        None => Some(None),
        Some(field) => secret_of(field, environment, diagnostics).map(Some),
    };
    Some(Sticky { cookie: cookie?, ttl: ttl?, secret: secret? })
}

/// A token of RFC 6265.
fn cookie_name(field: &Spanned<String>, diagnostics: &mut Diagnostics) -> Option<Box<str>> {
    let name = field.get_ref();
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if (1..=64).contains(&name.len()) && name.bytes().all(is_token) {
        return Some(name.as_str().into());
    }
    let message = format!("`{}` is not the name of a cookie", cut(name, 64));
    let help = "a name has 1 to 64 letters, digits, `_` and `-`, such as `srv`";
    diagnostics.push(Diagnostic::new(field.span(), message).help(help));
    None
}

/// The time of a cookie; the inner result is none if it is left out.
#[allow(
    clippy::option_option,
    reason = "an error and a setting that is left out are different things"
)]
fn ttl(
    field: &Field<String>,
    diagnostics: &mut Diagnostics,
) -> Option<Option<std::time::Duration>> {
    let ttl = optional_duration(&tables::Sticky::ttl, field, diagnostics)?;
    let (Some(field), Some(time)) = (field, ttl) else { return Some(None) };
    if time.subsec_nanos() == 0 {
        return Some(ttl);
    }
    let diagnostic = Diagnostic::new(field.span(), "`ttl` is a whole number of seconds");
    diagnostics.push(diagnostic.help("a cookie has no shorter unit: write `ttl = \"1h\"`"));
    None
}

fn secret_of(
    field: &Spanned<String>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Secret> {
    let secret = expand(&tables::Sticky::secret, field, environment, diagnostics)?;
    let (least, _) = tables::Sticky::secret.range().characters();
    if secret.chars().count() >= least {
        return Some(Secret::new(secret));
    }
    let message = format!("`secret` has less than {least} characters");
    let help = "make one with `openssl rand -hex 16`, and best take it from the environment: \
                `secret = \"${STICKY_SECRET}\"`";
    diagnostics.push(Diagnostic::new(field.span(), message).help(help));
    None
}

/// The time of `slow_start`, in microseconds; 0 without it.
pub(super) fn slow_start_us(field: &Field<String>, diagnostics: &mut Diagnostics) -> Option<u64> {
    let time = optional_duration(&tables::Upstream::slow_start, field, diagnostics)?;
    u64::try_from(time.unwrap_or_default().as_micros()).ok()
}
