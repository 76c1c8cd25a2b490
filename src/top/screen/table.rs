//! What the tables of the screen share.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::text::Text;
use ratatui::widgets::{Block, Cell, Row, Table, TableState};

use super::theme::{FAINT, SELECTED};

/// A column: its name, and its width.
pub(super) type Column<'a> = (Cell<'a>, Constraint);

/// Draws a table with one row selected: `rows` below the names of `columns`, scrolled to the row at
/// index `selected`.
pub(super) fn draw_selectable<'a, const N: usize>(
    frame: &mut Frame<'_>,
    area: Rect,
    block: Block<'a>,
    columns: [Column<'a>; N],
    rows: impl Iterator<Item = Row<'a>>,
    selected: usize,
) {
    let (names, widths): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    let table = Table::new(rows, widths)
        .header(Row::new(names).style(FAINT))
        .row_highlight_style(SELECTED)
        .block(block);
    let mut place = TableState::default().with_selected(Some(selected));
    frame.render_stateful_widget(table, area, &mut place);
}

/// A cell that is aligned to the right, for numbers.
pub(super) fn right<'a>(text: impl Into<Text<'a>>) -> Cell<'a> {
    Cell::from(text.into().alignment(Alignment::Right))
}
