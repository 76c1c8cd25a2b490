//! The clients with the most requests or refusals.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row};

use super::table::{draw_selectable, right};
use super::theme::FAINT;
use super::words::{count, cut, span};
use super::{Theme, waiting};
use crate::top::state::State;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, state: &State, theme: Theme) {
    let Some(data) = &state.data else { return waiting(frame, area, state) };
    let since = span(data.top.since_ms);
    let title = format!(" The last {since}, by {}: the first 100 of each rule ", state.sort.name());
    let block = Block::new().borders(Borders::TOP).title(title);
    let listed = state.listed();
    if listed.is_empty() {
        let text = " No clients yet: no rule has counted a request.";
        frame.render_widget(Paragraph::new(text).style(FAINT).block(block), area);
        return;
    }
    let room = usize::from(area.width.saturating_sub(30));
    let rows = listed.iter().map(|one| {
        let client = one.client;
        let refused = right(count(client.refused));
        Row::new([
            Cell::from(cut(&format!("{} {}", client.kind, client.id), room * 3 / 5)),
            Cell::from(cut(one.rule, room * 2 / 5)),
            right(count(client.requests)),
            if client.refused > 0 { refused.style(theme.refused()) } else { refused },
        ])
    });
    let columns = [
        (Cell::from("client"), Constraint::Fill(3)),
        (Cell::from("rule"), Constraint::Fill(2)),
        (right("requests"), Constraint::Length(13)),
        (right("refused"), Constraint::Length(13)),
    ];
    draw_selectable(frame, area, block, columns, rows, state.selected);
}
