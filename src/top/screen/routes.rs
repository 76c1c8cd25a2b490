//! Requests, errors and latency by route and by upstream.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::widgets::{Block, Borders, Cell, Row, Table};

use super::table::right;
use super::theme::FAINT;
use super::words::{latency, name, rate};
use super::{Theme, waiting};
use crate::api::samples::Latency;
use crate::top::rates::{Named, TrafficRate};
use crate::top::state::State;

/// Width of the columns with numbers, with the spaces between them.
const NUMBER_COLUMNS: u16 = 55;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, state: &State, theme: Theme) {
    if state.samples.is_empty() && state.data.is_none() {
        return waiting(frame, area, state);
    }
    let rates = state.rates();
    let total = state.data.as_ref().and_then(|data| data.recent.total.as_ref());
    let of_route = |name: &str| Some(total?.routes.get(name)?.latency);
    let of_upstream = |name: &str| Some(total?.upstreams.get(name)?.latency);
    let [routes, upstreams] =
        Layout::vertical([Constraint::Percentage(60), Constraint::Percentage(40)]).areas(area);
    let order = match state.sort {
        crate::top::state::Sort::Refused => "errors",
        sort => sort.name(),
    };
    let rows = state.sort.sorted(rates.routes);
    table(frame, routes, &format!("Routes, by {order}"), ("", rows), of_route, theme);
    let rows = state.sort.sorted(rates.upstreams);
    let title = format!("Upstreams, by {order}: attempts");
    table(frame, upstreams, &title, ("failed/s", rows), of_upstream, theme);
}

/// Draws one table. `failed` is the title of the column of failures, empty without it.
fn table(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    (failed, rows): (&str, Named<TrafficRate>),
    latency_of: impl Fn(&str) -> Option<Latency>,
    theme: Theme,
) {
    let fitting = usize::from(area.height.saturating_sub(2));
    let more = rows.len().saturating_sub(fitting);
    let title = if more > 0 { format!(" {title}; {more} more ") } else { format!(" {title} ") };
    let bad = |number: f64| {
        let cell = right(rate(number));
        if number > 0.0 { cell.style(theme.refused()) } else { cell }
    };
    let widest = usize::from(area.width.saturating_sub(NUMBER_COLUMNS)).max(4);
    let each = rows.into_iter().map(|(own, row)| {
        let found = latency_of(&own).unwrap_or_default();
        Row::new([
            Cell::from(name(&own, widest)),
            right(rate(row.requests)),
            bad(row.errors),
            if failed.is_empty() { Cell::from("") } else { bad(row.failures) },
            right(latency(found.p50_ms)),
            right(latency(found.p99_ms)),
        ])
    });
    let mut names = vec![Cell::from("")];
    let titles = ["requests/s", "5xx/s", failed, "p50 ms", "p99 ms"];
    names.extend(titles.map(|title| right(title.to_owned())));
    let widths = [
        Constraint::Min(4),
        Constraint::Length(10),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(11),
        Constraint::Length(11),
    ];
    let table = Table::new(each.collect::<Vec<_>>(), widths)
        .header(Row::new(names).style(FAINT))
        .block(Block::new().borders(Borders::TOP).title(title));
    frame.render_widget(table, area);
}
