//! The buckets of one client.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table, Wrap};

use super::Theme;
use super::table::right;
use super::theme::{FAINT, STRONG};
use super::words::{count, cut, name, span};
use crate::api::clients::{ClientBuckets, RuleBucket};
use crate::limit::charge::Mode;
use crate::top::feed::ClientId;
use crate::top::state::State;

/// Width of a bar.
const BAR_COLUMNS: u64 = 20;

pub(super) fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    state: &State,
    open: &ClientId,
    theme: Theme,
) {
    let client = format!(" {} {}", open.kind, cut(&open.id, 64));
    let buckets = state.data.as_ref().and_then(|data| data.buckets.as_ref());
    let (title, found) = match buckets.filter(|(of, _)| of == open) {
        None => (format!("{client} "), None),
        Some((_, Err(why))) => {
            let text = Paragraph::new(format!(" {}", cut(why, 200))).style(theme.bad());
            let block = Block::new().borders(Borders::TOP).title(format!("{client} "));
            return frame.render_widget(text.block(block).wrap(Wrap { trim: false }), area);
        }
        Some((_, Ok(found))) => {
            let (plan, levels) = (name(&found.client.plan, 64), cut(&found.levels, 8));
            (format!("{client}, plan {plan}; levels of {levels} "), Some(found))
        }
    };
    let block = Block::new().borders(Borders::TOP).title(Line::styled(title, STRONG));
    let Some(found) = found else {
        let text = Paragraph::new(" Waiting for the gateway ...").style(FAINT);
        return frame.render_widget(text.block(block), area);
    };
    frame.render_widget(table(found, area.width, theme).block(block), area);
}

fn table(found: &ClientBuckets, width: u16, theme: Theme) -> Table<'_> {
    let room = usize::from(width.saturating_sub(62)).max(12);
    let rows = found.rules.iter().map(|bucket| {
        let rule = Cell::from(cut(&bucket.rule, room));
        match (bucket.tokens, bucket.burst) {
            (Some(tokens), Some(burst)) => {
                let full = bucket.full_after_ms.unwrap_or_default();
                let full = if full == 0 { "full".to_owned() } else { format!("in {}", span(full)) };
                let shadow = if bucket.mode == Mode::Shadow { " shadow" } else { "" };
                let rate = bucket.rate.as_deref().unwrap_or_default();
                Row::new([
                    rule,
                    Cell::from(bar(tokens, burst, theme)),
                    right(format!("{} / {}", signed(tokens), count(burst))),
                    right(full),
                    Cell::from(cut(&format!("{rate}{shadow}"), 20)),
                ])
            }
            _ => Row::new([rule, Cell::from(why(bucket)).style(FAINT)]),
        }
    });
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(20),
        Constraint::Length(17),
        Constraint::Length(9),
        Constraint::Length(15),
    ];
    let names = [
        Cell::from("rule"),
        Cell::from("level"),
        right("tokens / burst".to_owned()),
        right("full".to_owned()),
        Cell::from("rate"),
    ];
    Table::new(rows.collect::<Vec<_>>(), widths).header(Row::new(names).style(FAINT))
}

/// Why a bucket has no level.
fn why(bucket: &RuleBucket) -> String {
    match (&bucket.why_not, bucket.unknown.as_slice()) {
        (Some(not), _) if not.code == "no_rate" => "no rate for its plan".to_owned(),
        (Some(_), _) => "does not apply".to_owned(),
        (None, []) => "unknown".to_owned(),
        (None, unknown) => cut(&format!("one per {}", unknown.join(", ")), 20),
    }
}

/// Draws a level; a bucket in debt is empty.
fn bar<'a>(tokens: i64, burst: u64, theme: Theme) -> Line<'a> {
    let tokens = u64::try_from(tokens).unwrap_or_default().min(burst);
    let full = tokens.saturating_mul(BAR_COLUMNS).checked_div(burst).unwrap_or_default();
    let style = match tokens.saturating_mul(100).checked_div(burst).unwrap_or_default() {
        0..10 => theme.refused(),
        10..40 => theme.warn(),
        _ => theme.good(),
    };
    let of = |mark: &str, columns: u64| mark.repeat(usize::try_from(columns).unwrap_or_default());
    let (full, empty) = (of("#", full), of(".", BAR_COLUMNS - full));
    Line::from(vec![Span::styled(full, style), Span::styled(empty, FAINT)])
}

fn signed(number: i64) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", count(number.unsigned_abs()))
}
