//! Renders a report as rustc renders its diagnostics: errors, then warnings, each with what is
//! wrong, the line with the place underlined, and what to write instead.

use std::ops::Range;

use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use super::diagnostic::{Diagnostic, Kept, Report, Severity};
use crate::base::text::cut;

/// How many diagnostics of each severity are shown.
const MAX_SHOWN: usize = 50;

/// Columns of a rendered line. Longer lines of the file are cut around the error.
const WIDTH: usize = 120;

/// Maximum number of underlined bytes of a place.
const MAX_UNDERLINED: usize = 80;

/// Distance in bytes beyond which the places of a diagnostic are shown in separate excerpts.
const MAX_APART: usize = 64 * 1024;

/// Whole lines of the file, and the places in them.
struct Excerpt<'a> {
    text: &'a str,
    first_line: usize,
    annotations: Vec<Annotation<'a>>,
}

impl Report {
    /// The report as text that ends with a line break, with terminal colours if `color`.
    pub fn render(&self, color: bool) -> String {
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        let renderer = renderer.term_width(WIDTH);
        let mut text = String::new();
        for kept in [&self.errors, &self.warnings] {
            for diagnostic in kept.list.iter().take(MAX_SHOWN) {
                for line in renderer.render(&[self.group(diagnostic)]).lines() {
                    text.extend([line.trim_end(), "\n"]);
                }
                text.push('\n');
            }
            if kept.count() > MAX_SHOWN {
                text.extend(["and ", &(kept.count() - MAX_SHOWN).to_string(), " more\n"]);
            }
        }
        text.extend([&self.name, ": ", &self.totals(), "\n"]);
        text
    }

    /// How many errors and warnings there are.
    fn totals(&self) -> String {
        let total = |kept: &Kept, noun| match kept.count() {
            0 => None,
            1 => Some(format!("1 {noun}")),
            count => Some(format!("{count} {noun}s")),
        };
        let totals = [total(&self.errors, "error"), total(&self.warnings, "warning")];
        let totals: Vec<String> = totals.into_iter().flatten().collect();
        if totals.is_empty() { "no errors".to_owned() } else { totals.join(", ") }
    }

    fn group<'a>(&'a self, diagnostic: &'a Diagnostic) -> Group<'a> {
        let level = match diagnostic.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mut group = Group::with_title(level.primary_title(cut(&diagnostic.message, 400)));
        let excerpts = self.excerpts(diagnostic);
        if excerpts.is_empty() {
            group = group.element(Origin::path(self.name.as_str()).line(1).char_column(1));
        }
        for excerpt in excerpts {
            let snippet = Snippet::source(excerpt.text)
                .path(self.name.as_str())
                .line_start(excerpt.first_line)
                .annotations(excerpt.annotations);
            group = group.element(snippet);
        }
        match &diagnostic.help {
            Some(help) => group.element(Level::HELP.message(help.as_str())),
            None => group,
        }
    }

    /// The lines to show: all places together, or each in its own excerpt if they are far apart.
    fn excerpts<'a>(&'a self, diagnostic: &'a Diagnostic) -> Vec<Excerpt<'a>> {
        if self.source.trim_end().is_empty() {
            return Vec::new();
        }
        let spans: Vec<_> =
            diagnostic.labels.iter().map(|label| self.visible(&label.span)).collect();
        let first = spans.iter().map(|span| span.start).min().unwrap_or(0);
        let last = spans.iter().map(|span| span.end).max().unwrap_or(0);
        let annotation = |index: usize, from: usize| {
            let kind = if index == 0 { AnnotationKind::Primary } else { AnnotationKind::Context };
            let text = diagnostic.labels.get(index).map_or("", |label| &label.text);
            let span: &Range<usize> = &spans[index];
            let label = (!text.is_empty()).then_some(text);
            kind.span(span.start - from..span.end - from).label(label)
        };
        if last - first <= MAX_APART {
            let lines = self.lines_around(&(first..last));
            let annotations = (0..spans.len()).map(|index| annotation(index, lines.start));
            return vec![self.excerpt(lines.clone(), annotations.collect())];
        }
        let one_by_one = spans.iter().enumerate().map(|(index, span)| {
            let lines = self.lines_around(span);
            let annotations = vec![annotation(index, lines.start)];
            self.excerpt(lines, annotations)
        });
        one_by_one.collect()
    }

    fn excerpt<'a>(&'a self, lines: Range<usize>, annotations: Vec<Annotation<'a>>) -> Excerpt<'a> {
        let first_line = 1 + self.source[..lines.start].matches('\n').count();
        Excerpt { text: &self.source[lines], first_line, annotations }
    }

    /// The part of a place that can be underlined: on one line, of whole characters, and not after
    /// the last line that is not empty.
    fn visible(&self, span: &Range<usize>) -> Range<usize> {
        let source = &self.source;
        let last = source.trim_end().len();
        let start = boundary_before(source, span.start.min(last));
        let most = span.end.min(start + MAX_UNDERLINED).max(start).min(source.len());
        let end = boundary_before(source, most).max(start);
        let line_end = source[start..].find(['\n', '\r']).map_or(source.len(), |at| start + at);
        start..end.min(line_end)
    }

    /// The whole lines that hold `span`.
    fn lines_around(&self, span: &Range<usize>) -> Range<usize> {
        let start = self.source[..span.start].rfind('\n').map_or(0, |at| at + 1);
        let end = self.source[span.end..].find('\n').map_or(self.source.len(), |at| span.end + at);
        start..end
    }
}

/// The last character boundary at or before byte `at`.
fn boundary_before(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}
