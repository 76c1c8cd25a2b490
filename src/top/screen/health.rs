//! The health of the gateway: Redis and the breaker, reloads, upstreams.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph};

use super::theme::FAINT;
use super::words::{count, cut, endpoint, lookup, other_limits, rules, span};
use super::{Theme, overload, waiting};
use crate::api::reloads::{Answer, Reload};
use crate::api::status::{BreakerState, Master, Override, Status};
use crate::api::upstreams::{EndpointHealth, Health, UpstreamHealth};
use crate::top::feed::Data;
use crate::top::state::State;
use crate::top::zone::Zone;

/// Width of the names on the left.
const NAME_COLUMNS: usize = 12;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, state: &State, theme: Theme) {
    let Some(data) = &state.data else { return waiting(frame, area, state) };
    let is_good = state.samples.back().is_none_or(|sample| sample.config_valid);
    let facts = facts(&data.status, is_good, theme);
    let rows = u16::try_from(facts.len()).unwrap_or_default() + 1;
    let reloads = u16::try_from(data.reloads.reloads.len()).unwrap_or(u16::MAX).clamp(1, 5) + 1;
    let [top, middle, bottom] = Layout::vertical([
        Constraint::Length(rows),
        Constraint::Length(reloads),
        Constraint::Min(0),
    ])
    .areas(area);
    let titled = |title: String| Block::new().borders(Borders::TOP).title(title);
    frame.render_widget(Paragraph::new(facts).block(titled(" Gateway ".to_owned())), top);
    let zone = state.zone();
    let list = reloaded(data, &zone, theme);
    let title = format!(" Reloads, applied or rejected; times in {} ", zone.label());
    frame.render_widget(Paragraph::new(list).block(titled(title)), middle);
    let list: Vec<Line<'_>> =
        data.upstreams.upstreams.iter().flat_map(|one| upstream(one, theme)).collect();
    frame.render_widget(Paragraph::new(list).block(titled(" Upstreams ".to_owned())), bottom);
}

fn fact<'a>(name: &str, text: String, style: Style) -> Line<'a> {
    Line::from(vec![Span::raw(format!(" {name:NAME_COLUMNS$}")), Span::styled(text, style)])
}

fn facts<'a>(status: &Status, config_valid: bool, theme: Theme) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    let ready = if status.ready { ("yes", theme.good()) } else { ("no", theme.bad()) };
    lines.push(fact("ready", ready.0.to_owned(), ready.1));
    match (&status.breaker, status.redis.configured) {
        (Some(breaker), true) => {
            let style =
                if breaker.state == BreakerState::Closed { theme.good() } else { theme.bad() };
            let connected = if status.redis.connected { "connected" } else { "no connection" };
            let state = breaker.state.name().replace('_', " ");
            let mut parts =
                vec![format!("{connected}; breaker {state} for {}", span(breaker.since_ms))];
            match breaker.state {
                BreakerState::HalfOpen => {
                    parts.push(format!("{} % of requests use it", breaker.admits_percent));
                }
                BreakerState::Open if breaker.retry_after_ms > 0 => {
                    parts.push(format!("next probe in {}", span(breaker.retry_after_ms)));
                }
                _ => {}
            }
            if breaker.r#override != Override::Auto {
                parts.push(format!("overridden: {}", breaker.r#override.name()));
            }
            let text = parts.join(", ");
            lines.push(fact("Redis", text, style));
            lines.extend(status.redis.away.iter().map(|away| {
                let text = cut(away, 160);
                fact("", text, theme.bad())
            }));
            lines.extend(masters(&status.redis.masters, theme));
            let others = other_limits(status);
            let style = if others.is_some() { theme.bad() } else { Style::new() };
            let others = others.map(|text| format!(", {text}")).unwrap_or_default();
            let text = format!("{} on this Redis{others}", status.gateways);
            lines.push(fact("gateways", text, style));
        }
        _ => lines.push(fact("Redis", "none: buckets in this process".to_owned(), Style::new())),
    }
    let counts = &status.buckets;
    let mut parts = vec![format!("{} of {} here", count(counts.local), count(counts.max))];
    parts.extend((counts.evictions > 0).then(|| format!("{} evicted", count(counts.evictions))));
    parts.extend((counts.debts > 0).then(|| format!("{} with debt", count(counts.debts))));
    let text = parts.join(", ");
    lines.push(fact("buckets", text, Style::new()));
    lines.extend(load(status, theme));
    lines.extend(rules(status).into_iter().map(|(name, text, is_notable)| {
        fact(name, cut(&text, 160), if is_notable { theme.refused() } else { Style::new() })
    }));
    if !config_valid {
        let text = "the file on disk has errors; the last valid one is in force".to_owned();
        lines.push(fact("file", text, theme.bad()));
    }
    lines
}

/// The masters of a cluster.
fn masters<'a>(masters: &[Master], theme: Theme) -> impl Iterator<Item = Line<'a>> {
    masters.iter().map(move |master| {
        let style = if master.connected { theme.good() } else { theme.bad() };
        let connected = if master.connected { "connected" } else { "away" };
        let state = master.breaker.state.name().replace('_', " ");
        let since = span(master.breaker.since_ms);
        let address = cut(&master.address, 40);
        fact("", format!("{address} {connected}; breaker {state} for {since}"), style)
    })
}

/// Connections and memory; nothing if the gateway is older than these members.
fn load<'a>(status: &Status, theme: Theme) -> Vec<Line<'a>> {
    let (Some(usage), Some(connections)) = (overload::usage(status), &status.connections) else {
        return Vec::new();
    };
    let (state, style) = match overload::overload(status) {
        Some(cause) => (cause, theme.bad()),
        None => ("no".to_owned(), theme.good()),
    };
    let rejected = format!("last minute: {}", overload::rejected(connections));
    vec![
        fact("connections", usage, Style::new()),
        fact("closed", rejected, Style::new()),
        fact("overload", state, style),
    ]
}

fn reloaded<'a>(data: &Data, zone: &Zone, theme: Theme) -> Vec<Line<'a>> {
    let reloads = &data.reloads.reloads;
    if reloads.is_empty() {
        return vec![Line::styled(" none since the start", FAINT)];
    }
    reloads.iter().take(5).map(|one| reload(one, zone, theme)).collect()
}

fn reload<'a>(one: &Reload, zone: &Zone, theme: Theme) -> Line<'a> {
    let (what, style) = match &one.answer {
        Answer::Rejected { errors, more_errors, .. } => {
            let first = errors.first().map(|error| {
                let line = error.line.map(|line| format!("line {line}: ")).unwrap_or_default();
                format!(": {line}{}", error.message)
            });
            let (first, errors) = (first.unwrap_or_default(), errors.len() + more_errors);
            let s = if errors == 1 { "" } else { "s" };
            (format!("rejected, {errors} error{s}{first}"), theme.bad())
        }
        Answer::Applied { changes, more_changes, .. } => {
            let changes = changes.len() + more_changes;
            let s = if changes == 1 { "" } else { "s" };
            (format!("applied, {changes} change{s}"), Style::new())
        }
        Answer::Unchanged { .. } => (one.answer.name().to_owned(), Style::new()),
    };
    let cause = one.cause.name().replace('_', " ");
    let line = format!(" {}  {cause:12} {}", zone.time(one.at), cut(&what, 160));
    Line::styled(line, style)
}

fn upstream<'a>(one: &UpstreamHealth, theme: Theme) -> Vec<Line<'a>> {
    let load = one.limit.map(|limit| {
        let style = if one.in_flight >= limit { theme.bad() } else { Style::new() };
        Line::styled(format!(" {:24} {} of {limit} requests in flight", "", one.in_flight), style)
    });
    let lookups = one.lookups.iter().filter_map(lookup);
    let lookups = lookups.map(|text| Line::styled(format!(" {:24} {text}", ""), theme.bad()));
    servers(one, theme).into_iter().chain(lookups).chain(load).collect()
}

fn servers<'a>(one: &UpstreamHealth, theme: Theme) -> Vec<Line<'a>> {
    let name = cut(&one.name, 24);
    if one.addresses.is_empty() {
        let servers = cut(&one.servers.join(", "), 120);
        let is_demo = one.servers.iter().all(|server| server == "demo");
        let (text, style) =
            if is_demo { ("built in", Style::new()) } else { ("no address", theme.bad()) };
        return vec![Line::styled(format!(" {name:24} {servers:40} {text}"), style)];
    }
    let server = |(place, server): (usize, &EndpointHealth)| {
        let is_down = server.health == Health::Down;
        let state = endpoint(server);
        let name = if place == 0 { name.as_str() } else { "" };
        let style = if is_down { theme.bad() } else { Style::new() };
        Line::styled(format!(" {name:24} {:40} {state}", cut(&server.address, 40)), style)
    };
    one.addresses.iter().enumerate().map(server).collect()
}
