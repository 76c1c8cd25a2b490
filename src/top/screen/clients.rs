//! The clients with the most requests or refusals.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::text::Text;
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table, TableState};

use super::theme::{FAINT, SELECTED};
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
    let right = |text: String| Cell::from(Text::from(text).alignment(Alignment::Right));
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
    let widths =
        [Constraint::Fill(3), Constraint::Fill(2), Constraint::Length(13), Constraint::Length(13)];
    let names = [
        Cell::from("client"),
        Cell::from("rule"),
        right("requests".to_owned()),
        right("refused".to_owned()),
    ];
    let table = Table::new(rows.collect::<Vec<_>>(), widths)
        .header(Row::new(names).style(FAINT))
        .row_highlight_style(SELECTED)
        .block(block);
    let mut place = TableState::default().with_selected(Some(state.selected));
    frame.render_stateful_widget(table, area, &mut place);
}
