//! The screen, out of the state. Fits 80 columns and 24 lines, and whatever is larger; of what is
//! smaller, it shows what fits.
//!
//! Reading order: this file (the frame around everything), `overview`, `clients`, `buckets`, `health`
//! (the body), `words` (numbers and times as people read them), `theme` (how it looks).

mod buckets;
mod clients;
mod health;
mod overview;
mod theme;
pub(super) mod words;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use super::state::{State, Tab};
pub(super) use theme::Theme;
use theme::{CHOSEN, FAINT, STRONG};
use words::{count, span};

/// What keys do.
const HELP: &str = " q, Ctrl-C         leave
 Tab, arrows, 1-3  overview, clients, health
 up, down, j, k    choose a client
 Enter             its buckets, live; Esc goes back
 s                 sort by requests, by refusals, by name
 p                 pause, go on
 ?                 this help; any key closes it

 Rates are the mean of the last five seconds. Figures
 and clients are those of this gateway; buckets are
 shared by all gateways, where there is Redis.";

/// Draws everything as it is at `now`, in ticks.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State, theme: Theme, now: u64) {
    let troubles = troubles(state, now);
    let rows = u16::try_from(troubles.len()).unwrap_or_default() * 2;
    let [header, tabs, trouble, body, footer] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(rows),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(head(state, theme)), header);
    frame.render_widget(Paragraph::new(tab_line(state, theme)), tabs);
    let lines: Vec<Line<'_>> = troubles.into_iter().map(|text| text.style(theme.bad())).collect();
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: true }), trouble);
    match (&state.open, state.tab) {
        (Some(open), _) => buckets::draw(frame, body, state, open, theme),
        (None, Tab::Overview) => overview::draw(frame, body, state, theme),
        (None, Tab::Clients) => clients::draw(frame, body, state, theme),
        (None, Tab::Health) => health::draw(frame, body, state, theme),
    }
    frame.render_widget(Paragraph::new(foot(state, theme)), footer);
    if state.help {
        help(frame);
    }
}

/// Who is looked at, and how it is.
fn head(state: &State, theme: Theme) -> Line<'_> {
    let at = format!("at {}", words::cut(&state.at, 40));
    let mut spans = vec![Span::styled(" tollgate ", STRONG), Span::raw(at)];
    let Some(answers) = &state.answers else { return Line::from(spans) };
    let status = &answers.status;
    if status.draining {
        spans.push(Span::styled(" | draining", theme.bad()));
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
        let style = if tab == state.tab { CHOSEN } else { FAINT };
        spans.push(Span::raw(" "));
        spans.push(Span::styled(format!(" {number} {} ", tab.name()), style));
    }
    if state.paused {
        spans.push(Span::styled("  paused", theme.warn()));
    }
    Line::from(spans)
}

/// What keeps the screen from being true.
fn troubles<'a>(state: &State, now: u64) -> Vec<Line<'a>> {
    let answered = |text: String| match (&state.answers, state.answered_at) {
        (None, _) => Line::from(format!(" {text}. Trying again.")),
        (Some(_), at) => {
            let ago = span(now.saturating_sub(at) / 1_000);
            Line::from(format!(" {text}. Trying again; what is shown is {ago} old."))
        }
    };
    let trouble = state.trouble.iter().map(|trouble| answered(trouble.to_string()));
    let no_events = state.no_events.iter().filter(|_| state.trouble.is_none());
    trouble.chain(no_events.map(|why| Line::from(format!(" No rates: {why}")))).collect()
}

fn foot<'a>(state: &State, theme: Theme) -> Line<'a> {
    if let Some(note) = state.note {
        return Line::styled(format!(" {note}"), theme.warn());
    }
    let keys = match (&state.open, state.tab) {
        (Some(_), _) => "Esc back  p pause  ? help  q quit",
        (None, Tab::Clients) => "Enter buckets  s sort  p pause  Tab next  ? help  q quit",
        (None, Tab::Overview) => "s sort  p pause  Tab next  ? help  q quit",
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

/// Nothing yet.
fn waiting(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let text = if state.trouble.is_some() { "" } else { " Asking the gateway ..." };
    frame.render_widget(Paragraph::new(text).style(FAINT), area);
}

#[cfg(test)]
mod tests;
