//! Allowed and refused requests: over the last minutes, by plan, by rule.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Sparkline, Table};

use super::theme::FAINT;
use super::words::{name, rate};
use super::{Theme, waiting};
use crate::top::rates::{Rate, Series};
use crate::top::state::State;

/// Time that the charts show, in seconds.
const CHART_SECONDS: u64 = 300;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, state: &State, theme: Theme) {
    if state.samples.is_empty() && state.data.is_none() {
        return waiting(frame, area, state);
    }
    let charts = area.height.saturating_sub(1) / 4;
    let [line, allowed, refused, tables] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(charts.max(2)),
        Constraint::Length(charts.max(2)),
        Constraint::Min(0),
    ])
    .areas(area);
    let rates = state.rates();
    frame.render_widget(Paragraph::new(now(state, &rates.total, theme)), line);
    let series = Series::of(state.samples.iter(), usize::from(area.width), CHART_SECONDS);
    chart(frame, allowed, "allowed", &series.allowed, theme.good());
    chart(frame, refused, "refused", &series.refused, theme.refused());
    let [plans, rules] =
        Layout::horizontal([Constraint::Percentage(45), Constraint::Percentage(55)])
            .spacing(2)
            .areas(tables);
    let sorted_by = state.sort.name();
    let plan_rows = state.sort.sorted(rates.plans);
    table(frame, plans, &format!("Plans, by {sorted_by}"), plan_rows, false, theme);
    let rule_rows = state.sort.sorted(rates.rules);
    table(frame, rules, &format!("Rules, by {sorted_by}"), rule_rows, true, theme);
}

/// The line with current rates, requests in flight and sources of decisions.
fn now<'a>(state: &State, total: &Rate, theme: Theme) -> Line<'a> {
    let last = state.samples.back();
    let percent = total.refused_percent().map(|percent| format!(" ({percent:.1} %)"));
    let refused = format!("refused {}/s{}", rate(total.refused), percent.unwrap_or_default());
    let mut spans = vec![
        Span::styled(format!(" allowed {}/s", rate(total.allowed)), theme.good()),
        Span::raw("   "),
        Span::styled(refused, if total.refused > 0.0 { theme.refused() } else { FAINT }),
        Span::raw(format!("   in flight {}", last.map_or(0, |sample| sample.in_flight))),
    ];
    let from = |sample: &crate::top::api::Sample| {
        let each = sample.sources.iter().map(|(source, count)| format!("{source} {count}"));
        each.collect::<Vec<_>>().join(", ")
    };
    let sources = last.map(from).filter(|sources| !sources.is_empty());
    if let Some(sources) = sources {
        spans.push(Span::styled(format!("   by {sources}"), FAINT));
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

fn table(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    rows: Vec<(String, Rate)>,
    shadow: bool,
    theme: Theme,
) {
    let fitting = usize::from(area.height.saturating_sub(2));
    let more = rows.len().saturating_sub(fitting);
    let title = if more > 0 { format!(" {title}; {more} more ") } else { format!(" {title} ") };
    let right = |text: String| Cell::from(Text::from(text).alignment(Alignment::Right));
    let widest = usize::from(area.width.saturating_sub(if shadow { 27 } else { 18 }));
    let each = rows.into_iter().map(|(own, rates)| {
        let mut cells = vec![Cell::from(name(&own, widest.max(4)))];
        cells.push(right(rate(rates.allowed)));
        let refused = right(rate(rates.refused));
        cells.push(if rates.refused > 0.0 { refused.style(theme.refused()) } else { refused });
        if shadow {
            cells.push(right(rate(rates.shadow_refused)));
        }
        Row::new(cells)
    });
    let mut names = vec![Cell::from("")];
    names.extend(["allowed/s", "refused/s"].map(|name| right(name.to_owned())));
    let mut widths = vec![Constraint::Min(4), Constraint::Length(9), Constraint::Length(9)];
    if shadow {
        names.push(right("shadow/s".to_owned()));
        widths.push(Constraint::Length(8));
    }
    let table = Table::new(each.collect::<Vec<_>>(), widths)
        .header(Row::new(names).style(FAINT))
        .block(Block::new().borders(Borders::TOP).title(title));
    frame.render_widget(table, area);
}
