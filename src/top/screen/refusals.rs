//! Refusal runs: which clients were refused by which rules, when and how often.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row};

use super::table::{draw_selectable, right};
use super::theme::FAINT;
use super::words::{count, cut, name, run_span};
use super::{Theme, waiting};
use crate::api::audit::{RefusalKind, RefusalRunView};
use crate::top::state::State;

/// Width of the columns other than client and rule, with the spaces between them.
const FIXED_COLUMNS: u16 = 44;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, state: &State, theme: Theme) {
    let Some(data) = &state.data else { return waiting(frame, area, state) };
    let zone = state.zone();
    let more = match data.audit.more {
        0 => String::new(),
        more => format!("; {} earlier ones", count(more)),
    };
    let title = format!(" Refusals, the latest first{more}; times in {} ", zone.label());
    let block = Block::new().borders(Borders::TOP).title(title);
    let runs = state.refusal_runs();
    if runs.is_empty() {
        let text = " None since the start of the gateway.";
        frame.render_widget(Paragraph::new(text).style(FAINT).block(block), area);
        return;
    }
    let room = usize::from(area.width.saturating_sub(FIXED_COLUMNS));
    let rows = runs.iter().map(|run| {
        let span = run_span(run);
        let status = right(status(run));
        Row::new([
            Cell::from(zone.short_time(run.first)),
            Cell::from(span),
            Cell::from(cut(&client(run), (room * 3 / 5).max(4))),
            Cell::from(name(&rule(run), (room * 2 / 5).max(4))),
            status,
            right(count(run.count)).style(theme.refused()),
        ])
    });
    let columns = [
        (Cell::from("first"), Constraint::Length(14)),
        (Cell::from("for"), Constraint::Length(8)),
        (Cell::from("client"), Constraint::Fill(3)),
        (Cell::from("rule"), Constraint::Fill(2)),
        (right("status"), Constraint::Length(6)),
        (right("refused"), Constraint::Length(9)),
    ];
    draw_selectable(frame, area, block, columns, rows, state.selected);
}

/// The client of a run: the id of its key, else its address.
pub(in crate::top) fn client(run: &RefusalRunView) -> String {
    match (&run.key, &run.ip) {
        (Some(key), _) => format!("key {key}"),
        (None, Some(ip)) => format!("ip {ip}"),
        (None, None) => "(not recorded)".to_owned(),
    }
}

/// The rule of a run; for a refusal without one its reason, such as `unknown key`.
pub(in crate::top) fn rule(run: &RefusalRunView) -> String {
    let rule = run.rule.clone().filter(|rule| !rule.is_empty());
    match (rule, run.kind) {
        (Some(rule), RefusalKind::Shadow) => format!("{rule} (shadow)"),
        (Some(rule), _) => rule,
        (None, kind) => run.reason.as_deref().unwrap_or(kind.name()).replace('_', " "),
    }
}

/// The status of the responses of a run. A gateway that does not send it counts only 429.
pub(in crate::top) fn status(run: &RefusalRunView) -> String {
    match (run.kind, run.status) {
        (RefusalKind::Shadow, None) => "-".to_owned(),
        (_, Some(status)) => status.to_string(),
        (_, None) => "429".to_owned(),
    }
}
