//! The wording of explanations: codes for programs, and sentences for people.

use std::fmt::Write as _;

use super::report;
use crate::client::Client;
use crate::client::address::AddressSource;
use crate::client::settings::KeySource;
use crate::limit::calendar::{Calendar, Period};
use crate::limit::charge::Mode;
use crate::policy::charges::WhyNot;
use crate::policy::hosts::HostFit;
use crate::policy::matcher::{MatchedParts, Matcher, PathPattern, RequestParts};
use crate::policy::servers::{Balance, Server};
use crate::policy::settings::{Target, Upstream};
use crate::policy::{Policy, Rule, params};

/// How the servers of an upstream are used; `None` if all is as by default.
pub(super) fn balance(upstream: &Upstream) -> Option<String> {
    let Target::Servers(servers) = &upstream.target else { return None };
    let is_plain = |server: &Server| (server.weight, server.priority) == (1, 0);
    let has_defaults = upstream.balance == Balance::RoundRobin
        && upstream.sticky.is_none()
        && upstream.slow_start_us == 0;
    if has_defaults && servers.iter().all(is_plain) {
        return None;
    }
    let each = servers.iter().map(|server| match (server.weight, server.priority) {
        (1, 0) => server.to_string(),
        (weight, 0) => format!("{server} (weight {weight})"),
        (1, priority) => format!("{server} (priority {priority})"),
        (weight, priority) => format!("{server} (weight {weight}, priority {priority})"),
    });
    let mut text = format!("{} over {}", upstream.balance, each.collect::<Vec<_>>().join(", "));
    if let Some(sticky) = &upstream.sticky {
        text += "; sticky by the cookie ";
        text += &sticky.cookie;
    }
    if upstream.slow_start_us > 0 {
        let _ = write!(text, "; slow start in {} ms", upstream.slow_start_us / 1_000);
    }
    Some(text)
}

/// How the client's address was determined: a code, the hop, and a sentence. `forwarded`: whether
/// the request has an `X-Forwarded-For`.
pub(super) fn address_from(
    from: AddressSource,
    forwarded: bool,
) -> (&'static str, Option<usize>, String) {
    let header = "of X-Forwarded-For, from the right";
    match from {
        AddressSource::Peer if forwarded => {
            let why = "the connection's own: it is not in `trusted_proxies`, so its \
                       X-Forwarded-For is not believed";
            ("peer", None, why.to_owned())
        }
        AddressSource::Peer => ("peer", None, "the connection's own".to_owned()),
        AddressSource::NoForwardedFor => {
            let why = "the connection's own: the trusted proxy sent no X-Forwarded-For";
            ("nothing_forwarded", None, why.to_owned())
        }
        AddressSource::Malformed(hop) => {
            let why = format!("the connection's own: hop {hop} {header}, is not an address");
            ("malformed", Some(hop), why)
        }
        AddressSource::Hop(hop) => {
            let why = format!("hop {hop} {header}: the first that is not a trusted proxy");
            ("hop", Some(hop), why)
        }
        AddressSource::AllTrusted(hop) => {
            let why = format!("hop {hop} {header}: all up to it are trusted proxies");
            ("all_trusted", Some(hop), why)
        }
    }
}

/// A source of API keys as in the configuration file.
pub(crate) fn key_source(source: &KeySource) -> String {
    source.to_string()
}

/// Why the first of two routes that match the host takes precedence over the other.
pub(super) fn precedence_reason(first: &Matcher, other: &Matcher, host: &str) -> &'static str {
    use PathPattern::{Exact, Expression, Prefix};
    let segments = |path: &str| path.matches('/').count();
    match (&first.path, &other.path) {
        _ if first.hosts.fit(host) != other.hosts.fit(host) => {
            match (first.hosts.fit(host), other.hosts.fit(host)) {
                (_, Some(HostFit::Any)) => {
                    "a route for the request's host takes precedence over one for all hosts"
                }
                (Some(HostFit::Exact), _) => "an exact host takes precedence over a wildcard",
                _ => "the longer wildcard of a host takes precedence",
            }
        }
        (Expression(a), Expression(b)) if a != b => {
            "the first regular expression in the file takes precedence"
        }
        (Exact(_) | Prefix(_), Expression(_)) => {
            "a path takes precedence over a regular expression"
        }
        (Expression(_), Prefix(_)) => "a regular expression takes precedence over `/*`",
        (Exact(a) | Prefix(a), Exact(b) | Prefix(b)) if params::has_text_first(a, b) => {
            "text takes precedence over a parameter"
        }
        (Exact(_), Prefix(_)) => "an exact path takes precedence over a prefix",
        (Prefix(a), Prefix(b)) if segments(a) != segments(b) => {
            "the longest prefix takes precedence"
        }
        (Exact(a), Exact(b)) if segments(a) != segments(b) => {
            "the configured path takes precedence over one with another trailing slash"
        }
        _ => first.conditions.precedence_over(&other.conditions),
    }
}

/// The criterion in which a route differs from the request; `None` if it differs in several.
pub(super) fn difference(
    fit: MatchedParts,
    matcher: &Matcher,
    host: &str,
    request: RequestParts<'_>,
) -> Option<String> {
    match fit {
        MatchedParts { host: true, path: true, conditions: false } => {
            Some(matcher.conditions.why_not(request))
        }
        MatchedParts { host: false, path: true, conditions: true } => {
            let own = matcher.hosts.text().unwrap_or_default();
            Some(format!("only for the host {own}, not for {host}"))
        }
        _ => None,
    }
}

/// Why a route with one path does not match a path below it.
pub(super) fn only_this_path(matcher: &Matcher) -> String {
    let path = matcher.path.to_string();
    let bare = path.trim_end_matches('/');
    format!("only for this path: the prefix is `{bare}/*`")
}

/// Why a rule does not apply to a request of the client with the route `route`.
pub(crate) fn why_not(
    policy: &Policy,
    rule: &Rule,
    why: WhyNot,
    route: &str,
    client: &Client,
) -> report::WhyNot {
    let (code, why) = match why {
        WhyNot::Disabled => ("disabled", "`enabled = false`".to_owned()),
        WhyNot::OtherRoutes => ("other_routes", format!("its `routes` do not list `{route}`")),
        WhyNot::ExemptAddress(net) if net.prefix_len() == net.max_prefix_len() => {
            ("exempt_ip", format!("the address {} is exempt", net.addr()))
        }
        WhyNot::ExemptAddress(net) => {
            ("exempt_ip", format!("the address is exempt, as part of {net}"))
        }
        WhyNot::ExemptKey => ("exempt_key", "the key is exempt".to_owned()),
        WhyNot::NoTenant => ("no_tenant", "the client has no tenant".to_owned()),
        WhyNot::NoCertificate => ("no_cert", "the client has no certificate".to_owned()),
        WhyNot::NoKeySkipped => {
            let why = "the client has no key, and `on_missing = \"skip\"`";
            ("on_missing_skip", why.to_owned())
        }
        WhyNot::NoKeyDenied => {
            let so = match policy.mode_for(rule, client) {
                Mode::Enforce => "it refuses the request",
                Mode::Shadow => "it would refuse the request if it were enforced",
            };
            let why = format!("the client has no key, and `on_missing = \"deny\"`: {so}");
            ("on_missing_deny", why)
        }
        WhyNot::NoRate if rule.candidate_of.is_some() => {
            let why = "the client has another limit than that of the rule, which the candidate does not replace";
            ("no_rate", why.to_owned())
        }
        WhyNot::NoRate => {
            ("no_rate", format!("it has no rate for the plan `{}`", policy.plan_name(client.plan)))
        }
        WhyNot::NotByAddress => {
            let why = "the request is refused for its key: only rules per address apply";
            ("not_by_address", why.to_owned())
        }
    };
    report::WhyNot { code: code.into(), why }
}

/// The reason for every rule if the request is refused before any rule is checked.
pub(super) fn refused_before(status: u16) -> report::WhyNot {
    let why = format!("the request is refused with {status} before any rule is checked");
    report::WhyNot { code: "refused_before".into(), why }
}

/// The reason for every rule if a client asks for its own limits.
pub(super) fn own_limits() -> report::WhyNot {
    let why = "the gateway itself responds and takes no tokens".to_owned();
    report::WhyNot { code: "own_limits".into(), why }
}

/// Why no rule applies to a CORS preflight request.
pub(super) fn preflight() -> report::WhyNot {
    let why = "the gateway itself answers a CORS preflight request, which takes no tokens";
    report::WhyNot { code: "preflight".into(), why: why.to_owned() }
}

/// Where the periods of a fixed window begin: `days of UTC`, `months from day 15 in Europe/Berlin`.
pub(crate) fn periods(calendar: Calendar) -> String {
    const DAYS: [&str; 7] =
        ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
    let (zone, anchor) = (calendar.zone(), calendar.anchor());
    match calendar.period() {
        Period::Second => "seconds of the clock".to_owned(),
        Period::Minute => "minutes of the clock".to_owned(),
        Period::Hour => "hours of UTC".to_owned(),
        Period::Day => format!("days in {zone}"),
        Period::Week => {
            let day = DAYS.get(usize::from(anchor.saturating_sub(1))).unwrap_or(&DAYS[0]);
            format!("weeks from {day} in {zone}")
        }
        Period::Month if calendar.is_clamped() => {
            format!("months from day {anchor}, or the last day, in {zone}")
        }
        Period::Month => format!("months from day {anchor} in {zone}"),
        Period::Year => format!("years in {zone}"),
    }
}
