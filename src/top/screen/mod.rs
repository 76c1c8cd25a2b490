//! Draws the state. The screen needs 80 columns and 24 lines; a smaller one shows what fits.
//!
//! Reading order: this file (header, tabs, footer), `overview`, `clients`, `buckets`, `health`,
//! `routes`, `refusals` (the body), `overload` (in words), `words` (formats of numbers and times),
//! `theme` (styles).

mod buckets;
mod clients;
mod health;
pub(super) mod overload;
mod overview;
pub(super) mod refusals;
mod routes;
mod table;
mod theme;
pub(super) mod words;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use super::state::{State, Tab};
pub(super) use theme::Theme;
use theme::{FAINT, SELECTED, STRONG};
use words::{count, span};

/// Text of the help.
const HELP: &str = " q, Ctrl-C         quit
 Tab, arrows, 1-5  the views in the second line
 up, down, j, k    select a client or a refusal
 Enter             the client's buckets, live; Esc goes back
 s                 sort by requests, by refusals, by name
 p                 pause, continue
 ?                 this help; any key closes it

 Rates are the mean of the last five seconds, latencies
 those of the last ten. All but buckets are those of this
 gateway. With Redis, buckets are shared by all gateways.";

/// Draws the screen at `now` (microseconds).
pub(super) fn draw(frame: &mut Frame<'_>, state: &State, theme: Theme, now: u64) {
    let errors = errors(state, now);
    let rows = u16::try_from(errors.len()).unwrap_or_default() * 2;
    let [header, tabs, error, body, footer] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(rows),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(header_line(state, theme)), header);
    frame.render_widget(Paragraph::new(tab_line(state, theme)), tabs);
    let lines: Vec<Line<'_>> = errors.into_iter().map(|text| text.style(theme.bad())).collect();
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: true }), error);
    match (&state.open, state.tab) {
        (Some(open), _) => buckets::draw(frame, body, state, open, theme),
        (None, Tab::Overview) => overview::draw(frame, body, state, theme),
        (None, Tab::Clients) => clients::draw(frame, body, state, theme),
        (None, Tab::Health) => health::draw(frame, body, state, theme),
        (None, Tab::Routes) => routes::draw(frame, body, state, theme),
        (None, Tab::Refusals) => refusals::draw(frame, body, state, theme),
    }
    frame.render_widget(Paragraph::new(footer_line(state, theme)), footer);
    if state.help {
        help(frame);
    }
}

/// The line with the gateway's address and status.
fn header_line(state: &State, theme: Theme) -> Line<'_> {
    let at = format!("at {}", words::cut(&state.at, 40));
    let mut spans = vec![Span::styled(" tollgate ", STRONG), Span::raw(at)];
    let Some(data) = &state.data else { return Line::from(spans) };
    let status = &data.status;
    if status.draining {
        spans.push(Span::styled(" | draining", theme.bad()));
    }
    if overload::overload(status).is_some() {
        spans.push(Span::styled(" | overloaded", theme.bad()));
    }
    let mut add = |text: String| spans.push(Span::raw(format!(" | {text}")));
    add(words::cut(&status.version, 12));
    add(format!("up {}", span(status.uptime_s.saturating_mul(1_000))));
    if status.redis.configured {
        add(format!("{} {}", status.gateways, plural(status.gateways, "gateway", "gateways")));
    }
    add(format!("generation {}", count(status.generation)));
    Line::from(spans)
}

fn tab_line<'a>(state: &State, theme: Theme) -> Line<'a> {
    let mut spans = Vec::new();
    for (number, tab) in (1..).zip(Tab::ALL) {
        let style = if tab == state.tab { SELECTED } else { FAINT };
        spans.push(Span::raw(" "));
        spans.push(Span::styled(format!(" {number} {} ", tab.name()), style));
    }
    if state.paused {
        spans.push(Span::styled("  paused", theme.warn()));
    }
    Line::from(spans)
}

/// The lines with the errors that keep the screen from being up to date.
fn errors<'a>(state: &State, now: u64) -> Vec<Line<'a>> {
    let with_age = |text: String| match (&state.data, state.data_at) {
        (None, _) => Line::from(format!(" {text}. Retrying.")),
        (Some(_), at) => {
            let ago = span(now.saturating_sub(at) / 1_000);
            Line::from(format!(" {text}. Retrying; the data is {ago} old."))
        }
    };
    let error = state.error.iter().map(|error| with_age(error.to_string()));
    let no_events = state.no_events.iter().filter(|_| state.error.is_none());
    error.chain(no_events.map(|why| Line::from(format!(" No rates: {why}")))).collect()
}

fn footer_line<'a>(state: &State, theme: Theme) -> Line<'a> {
    if let Some(note) = state.note {
        return Line::styled(format!(" {note}"), theme.warn());
    }
    let keys = match (&state.open, state.tab) {
        (Some(_), _) => "Esc back  p pause  ? help  q quit",
        (None, Tab::Clients) => "Enter buckets  s sort  p pause  Tab next  ? help  q quit",
        (None, Tab::Refusals) => "Enter buckets  p pause  Tab next  ? help  q quit",
        (None, Tab::Overview | Tab::Routes) => "s sort  p pause  Tab next  ? help  q quit",
        (None, Tab::Health) => "p pause  Tab next  ? help  q quit",
    };
    Line::styled(format!(" {keys}"), FAINT)
}

fn help(frame: &mut Frame<'_>) {
    let lines = u16::try_from(HELP.lines().count()).unwrap_or_default();
    let area = middle(frame.area(), 62, lines + 2);
    frame.render_widget(Clear, area);
    let block = Block::bordered().title(" Keys ").title_style(STRONG);
    frame.render_widget(Paragraph::new(HELP).block(block), area);
}

fn middle(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    let x = area.x + (area.width - width) / 2;
    let y = area.y + (area.height - height) / 2;
    Rect { x, y, width, height }
}

fn plural(count: u32, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}

/// Draws the screen until the first data arrives.
fn waiting(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let text = if state.error.is_some() { "" } else { " Waiting for the gateway ..." };
    frame.render_widget(Paragraph::new(text).style(FAINT), area);
}

#[cfg(test)]
mod tests;
