//! Who asks most, or is refused most.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::text::Text;
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table, TableState};

use super::theme::{CHOSEN, FAINT};
use super::words::{count, cut, span};
use super::{Theme, waiting};
use crate::top::state::State;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, state: &State, theme: Theme) {
    let Some(answers) = &state.answers else { return waiting(frame, area, state) };
    let since = span(answers.top.since_ms);
    let title =
        format!(" Of the last {since}, by {}: of each rule the first 100 ", state.sort.name());
    let block = Block::new().borders(Borders::TOP).title(title);
    let listed = state.listed();
    if listed.is_empty() {
        let text = " Nobody yet: no rule has counted anybody.";
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
        .row_highlight_style(CHOSEN)
        .block(block);
    let mut place = TableState::default().with_selected(Some(state.chosen));
    frame.render_stateful_widget(table, area, &mut place);
}
