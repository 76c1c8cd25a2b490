//! Requests by outcome and status: over the last minutes, by plan, by rule.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Sparkline, Table};

use super::table::right;
use super::theme::FAINT;
use super::words::{latency, name, rate};
use super::{Theme, waiting};
use crate::api::samples::Sample;
use crate::top::rates::{DecisionRate, Named, Rates, RequestRate, Series};
use crate::top::state::State;

/// Time that the charts show, in seconds.
const CHART_SECONDS: u64 = 300;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, state: &State, theme: Theme) {
    if state.samples.is_empty() && state.data.is_none() {
        return waiting(frame, area, state);
    }
    let rates = state.rates();
    let lines = [
        outcomes(state, &rates.total, theme),
        others(state, &rates.total),
        statuses(state, &rates, theme),
    ];
    let charts = area.height.saturating_sub(3) / 4;
    let [top, allowed, refused, tables] = Layout::vertical([
        Constraint::Length(3),
        Constraint::Length(charts.max(2)),
        Constraint::Length(charts.max(2)),
        Constraint::Min(0),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(lines.to_vec()), top);
    let series = Series::of(state.samples.iter(), usize::from(area.width), CHART_SECONDS);
    chart(frame, allowed, "allowed", &series.allowed, theme.good());
    chart(frame, refused, "refused", &series.refused, theme.refused());
    let [plans, rules] =
        Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)])
            .spacing(1)
            .areas(tables);
    let sorted_by = state.sort.name();
    let of_plan = |row: RequestRate| [row.allowed, row.refused, row.other()];
    let rows = cells(state.sort.sorted(rates.plans), of_plan);
    table(frame, plans, &format!("Plans, by {sorted_by}"), ("other/s", rows), theme);
    let of_rule = |row: DecisionRate| [row.allowed, row.refused, row.shadow_refused];
    let rows = cells(state.sort.sorted(rates.rules), of_rule);
    table(frame, rules, &format!("Rules, by {sorted_by}"), ("shadow/s", rows), theme);
}

fn cells<R>(rows: Named<R>, of: impl Fn(R) -> [f64; 3]) -> Named<[f64; 3]> {
    rows.into_iter().map(|(name, row)| (name, of(row))).collect()
}

/// The line with all requests, allowed and refused ones.
fn outcomes<'a>(state: &State, total: &RequestRate, theme: Theme) -> Line<'a> {
    let percent = total.refused_percent().map(|percent| format!(" ({percent:.1} %)"));
    let refused = format!("refused {}/s{}", rate(total.refused), percent.unwrap_or_default());
    let in_flight = state.samples.back().map_or(0, |sample| sample.in_flight);
    Line::from(vec![
        Span::raw(format!(" requests {}/s   ", rate(total.all()))),
        Span::styled(format!("allowed {}/s", rate(total.allowed)), theme.good()),
        Span::raw("   "),
        Span::styled(refused, if total.refused > 0.0 { theme.refused() } else { FAINT }),
        Span::raw(format!("   in flight {in_flight}")),
    ])
}

/// The line with the other outcomes, and the sources of decisions.
fn others<'a>(state: &State, total: &RequestRate) -> Line<'a> {
    let each = [
        ("unauthorized", total.unauthorized),
        ("unavailable", total.unavailable),
        ("rejected", total.rejected),
    ];
    let mut spans: Vec<Span<'_>> = Vec::new();
    for (name, other) in each {
        let style = if other > 0.0 { Style::new() } else { FAINT };
        let lead = if spans.is_empty() { " " } else { "   " };
        spans.push(Span::styled(format!("{lead}{name} {}/s", rate(other)), style));
    }
    let from = |sample: &Sample| {
        let each = sample.sources.iter().map(|(source, count)| format!("{source} {count}"));
        each.collect::<Vec<_>>().join(", ")
    };
    let sources = state.samples.back().map(from).filter(|sources| !sources.is_empty());
    if let Some(sources) = sources {
        spans.push(Span::styled(format!("   by {sources}"), FAINT));
    }
    Line::from(spans)
}

/// The line with classes of statuses, and the latency of the last ten seconds.
fn statuses<'a>(state: &State, rates: &Rates, theme: Theme) -> Line<'a> {
    let mut spans: Vec<Span<'_>> = Vec::new();
    if !rates.statuses.is_empty() {
        spans.push(Span::styled(" status/s", FAINT));
    }
    for (class, per_second) in &rates.statuses {
        let style = if class == "5xx" { theme.refused() } else { Style::new() };
        let text = format!("   {} {}", super::words::cut(class, 8), rate(*per_second));
        spans.push(Span::styled(text, style));
    }
    let total = state.data.as_ref().and_then(|data| data.recent.total.as_ref());
    let found = total.map(|total| total.latency).unwrap_or_default();
    if found.p50_ms.is_some() {
        let text = format!("   p50 {}, p99 {} ms", latency(found.p50_ms), latency(found.p99_ms));
        spans.push(Span::raw(text));
    }
    Line::from(spans)
}

fn chart(frame: &mut Frame<'_>, area: Rect, title: &str, values: &[u64], style: Style) {
    let most = values.iter().copied().max().unwrap_or_default();
    let title = format!(" {title}/s, the last 5 min, at most {} ", super::count(most));
    let block = Block::new().borders(Borders::TOP).title(title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    // The newest column is at the right, also if there are fewer columns than fit.
    let width = u16::try_from(values.len()).unwrap_or(u16::MAX).min(inner.width);
    let right = Rect { x: inner.x + inner.width - width, width, ..inner };
    frame.render_widget(Sparkline::default().data(values).max(most.max(1)).style(style), right);
}

/// Draws a table of allowed and refused requests, and a third rate.
fn table(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    (third, rows): (&str, Named<[f64; 3]>),
    theme: Theme,
) {
    let fitting = usize::from(area.height.saturating_sub(2));
    let more = rows.len().saturating_sub(fitting);
    let title = if more > 0 { format!(" {title}; {more} more ") } else { format!(" {title} ") };
    let widest = usize::from(area.width.saturating_sub(29));
    let each = rows.into_iter().map(|(own, [allowed, refused, last])| {
        let shown = right(rate(refused));
        Row::new([
            Cell::from(name(&own, widest.max(4))),
            right(rate(allowed)),
            if refused > 0.0 { shown.style(theme.refused()) } else { shown },
            right(rate(last)),
        ])
    });
    let mut names = vec![Cell::from("")];
    names.extend(["allowed/s", "refused/s", third].map(|name| right(name.to_owned())));
    let widths =
        [Constraint::Min(4), Constraint::Length(9), Constraint::Length(9), Constraint::Length(8)];
    let table = Table::new(each.collect::<Vec<_>>(), widths)
        .header(Row::new(names).style(FAINT))
        .block(Block::new().borders(Borders::TOP).title(title));
    frame.render_widget(table, area);
}
