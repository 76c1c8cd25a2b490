//! `health` and `eject` of an upstream.

use http::uri::{Authority, PathAndQuery};

use super::failures::failures;
use super::percentage::{optional_thousandths, thousandths};
use super::values::{duration, number, number_in, optional};
use super::words::meaning;
use crate::base::duration::micros;
use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::health as written;
use crate::config::row::Row;
use crate::config::spanned::Spanned;
use crate::config::words;
use crate::policy::failures::FailureSet;
use crate::policy::health::{CheckKind, Eject, HealthChecks};

/// The health checks of an upstream; none with an error.
pub(super) fn health(
    written: &written::Health,
    diagnostics: &mut Diagnostics,
) -> Option<HealthChecks> {
    let kind = kind(written, diagnostics);
    let mut time = |row, field| duration(row, field, diagnostics);
    let interval = time(&written::Health::interval, &written.interval);
    let timeout = time(&written::Health::timeout, &written.timeout);
    let mut count = |row, field| u32::try_from(number(row, field, diagnostics)?).ok();
    let rise = count(&written::Health::rise, &written.rise);
    let fall = count(&written::Health::fall, &written.fall);
    let port = optional(written.port.as_ref(), |port| {
        let port = number_in(&written::Health::port, port, diagnostics)?;
        u16::try_from(port).ok()
    });
    let timeout = match (&written.timeout, interval, timeout) {
        (Some(field), Some(interval), Some(timeout)) if timeout > interval => {
            let message = "the `timeout` of a check is longer than the `interval` of the checks";
            let row = &written::Health::interval;
            let most = written.interval.as_ref().map(|field| field.get_ref().as_str());
            let most = most.or_else(|| row.text()).unwrap_or_default();
            let help = format!("write `timeout = \"{most}\"` or less, or a longer `interval`");
            diagnostics.push(Diagnostic::new(field.span(), message).help(help));
            None
        }
        (None, Some(interval), Some(timeout)) => Some(timeout.min(interval)),
        (_, _, timeout) => timeout,
    };
    Some(HealthChecks {
        kind: kind?,
        port: port?,
        interval: interval?,
        timeout: timeout?,
        rise: rise?,
        fall: fall?,
    })
}

fn kind(table: &written::Health, diagnostics: &mut Diagnostics) -> Option<CheckKind> {
    let kind: words::CheckKind = meaning(table.kind.as_ref());
    let mut only_for = |row: &Row, span: Option<std::ops::Range<usize>>, other| {
        let Some(span) = span.filter(|_| kind != other) else { return };
        let message = format!(
            "`{}` is for checks of the kind `{}`, and these are `{}`",
            row.name,
            other.name(),
            kind.name()
        );
        let help = format!("take it out, or write `kind = \"{}\"`", other.name());
        diagnostics.push(Diagnostic::new(span, message).help(help));
    };
    let span = |field: &Option<Spanned<String>>| field.as_ref().map(Spanned::span);
    only_for(&written::Health::path, span(&table.path), words::CheckKind::Http);
    only_for(&written::Health::host, span(&table.host), words::CheckKind::Http);
    let status = table.status.as_ref().map(Spanned::span);
    only_for(&written::Health::status, status, words::CheckKind::Http);
    only_for(&written::Health::service, span(&table.service), words::CheckKind::Grpc);
    match kind {
        words::CheckKind::Tcp => Some(CheckKind::Tcp),
        words::CheckKind::Grpc => {
            let service = table.service.as_ref().map_or("", |service| service.get_ref());
            Some(CheckKind::Grpc { service: service.into() })
        }
        words::CheckKind::Http => {
            let path = path(table, diagnostics);
            let host = optional(table.host.as_ref(), |host| self::host(host, diagnostics));
            let status = statuses(table, diagnostics);
            Some(CheckKind::Http { path: path?, host: host?, status: status? })
        }
    }
}

fn path(table: &written::Health, diagnostics: &mut Diagnostics) -> Option<Box<str>> {
    let Some(field) = &table.path else { return written::Health::path.text().map(Into::into) };
    let path = field.get_ref();
    let is_path =
        path.starts_with('/') && path.parse::<PathAndQuery>().is_ok_and(|it| it == **path);
    if is_path {
        return Some(path.as_str().into());
    }
    let message = format!("`{}` is not the path of a request", cut(path, 64));
    let help = "it begins with a slash, without a host, and its special characters are \
                percent-encoded: `path = \"/healthz\"`";
    diagnostics.push(Diagnostic::new(field.span(), message).help(help));
    None
}

fn host(field: &Spanned<String>, diagnostics: &mut Diagnostics) -> Option<Box<str>> {
    let host = field.get_ref();
    if host.parse::<Authority>().is_ok_and(|it| it == **host) && !host.contains('@') {
        return Some(host.as_str().into());
    }
    let message = format!("`{}` is not a host", cut(host, 64));
    let help = "a host is a name or an address, with a port if it needs one: `api.example.com`";
    diagnostics.push(Diagnostic::new(field.span(), message).help(help));
    None
}

/// The statuses, sorted; empty if they are left out. None with an error.
fn statuses(table: &written::Health, diagnostics: &mut Diagnostics) -> Option<Box<[u16]>> {
    let Some(field) = &table.status else { return Some(Box::default()) };
    let row = &written::Health::status;
    let mut statuses = Vec::new();
    for item in field.get_ref() {
        statuses.push(u16::try_from(number_in(row, item, diagnostics)?).ok()?);
    }
    if statuses.is_empty() {
        let message = "without a status, every check fails";
        let help = "write `status = [200]`, or take it out: 200 to 399 then are healthy";
        diagnostics.push(Diagnostic::new(field.span(), message).help(help));
        return None;
    }
    statuses.sort_unstable();
    Some(statuses.into())
}

/// The ejection of an upstream; none with an error.
pub(super) fn eject(
    table: &Spanned<written::Eject>,
    diagnostics: &mut Diagnostics,
) -> Option<Eject> {
    let written = table.get_ref();
    let row = &written::Eject::consecutive_failures;
    let consecutive = number(row, &written.consecutive_failures, diagnostics);
    let on = failures(&written::Eject::on, &written.on, diagnostics);
    if let (Some(list), true) = (&written.on, on == Some(FailureSet::default())) {
        let message = "`on` names no failure";
        let help = "write `on = [\"connect\", \"timeout\", \"reset\", \"5xx\"]`, or take it out";
        diagnostics.push(Diagnostic::new(list.span(), message).help(help));
    }
    let row = &written::Eject::error_rate;
    let error_rate = optional_thousandths(row, &written.error_rate, diagnostics);
    let window = duration(&written::Eject::window, &written.window, diagnostics);
    let time = duration(&written::Eject::r#for, &written.r#for, diagnostics);
    let max = thousandths(&written::Eject::max, &written.max, diagnostics);
    let consecutive = u32::try_from(consecutive?).ok()?;
    if consecutive == 0 && written.error_rate.is_none() {
        let message = "`eject` has neither `consecutive_failures` nor an `error_rate`";
        let help = "write `consecutive_failures = 5`, or `error_rate = \"50%\"`";
        diagnostics.push(Diagnostic::new(table.span(), message).help(help));
        return None;
    }
    Some(Eject {
        consecutive_failures: Some(consecutive).filter(|count| *count > 0),
        on: on?,
        error_rate: error_rate?,
        window_us: micros(window?),
        for_us: micros(time?),
        max: max?,
    })
}
