//! Errors of syntax. `toml` describes them in prose, which each version may word otherwise, so what
//! is wrong at the place of an error is found from the events of its parser. An event without text
//! is one that the parser inserted to recover, such as the end of a list.

use std::collections::HashSet;
use std::ops::Range;

use toml::de::Error;
use toml_parser::decoder::Encoding;
use toml_parser::parser::{EventReceiver, RecursionGuard, parse_document};
use toml_parser::{ErrorSink, Source, Span};

use super::diagnostic::{Diagnostic, Diagnostics};
use super::duplicate::{Duplicate, NameTree};
use super::entries;
use super::foreign;
use super::suggest;
use crate::base::text::cut;

/// How much of a name a message shows, in characters.
const SHOWN: usize = 40;

/// Lists and tables within each other, at most; as in `toml`.
pub(super) const MAX_DEPTH: u32 = 80;

/// How much of a file can be used in spite of its syntax errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Damage {
    /// All lines without an error.
    Lines,
    /// Nothing: the settings after an error may be part of another table.
    Structure,
}

/// Kind of a syntax error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// A name that the table has already.
    DuplicateName {
        in_head: bool,
    },
    /// A name with a character that needs quotes.
    InvalidName,
    /// A `:` in place of `=`, as in YAML and JSON.
    Colon,
    /// A comment of another language, such as `// …`.
    ForeignComment,
    /// A `,` or `;` after the value of a line.
    Terminator,
    /// A space or other text in the head of a table, before its `]`.
    TextInHead,
    /// A name in three quotes, which only values can have.
    NameInThreeQuotes,
    /// No name where one belongs, as in `[a.]` and `[a.{b}]`.
    MissingName,
    NameWithoutValue,
    MissingValue,
    UnclosedHead,
    UnclosedList,
    /// A list or a table in braces without its end or without a `,`. `after`: the end of the item
    /// before.
    MissingComma {
        within: Bracket,
        after: usize,
    },
    UnclosedBraces,
    UnclosedString,
    /// A string over several lines without its end.
    UnclosedText,
    /// A string with a control character.
    ControlCharacter,
    /// A word that is nearly `true` or `false`.
    NearlyBoolean,
    /// A string without quotes.
    Unquoted,
    /// An error of another kind, reported with the parser's message.
    Other,
}

/// What an opening bracket begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bracket {
    List,
    Braces,
}

/// Element of TOML that the parser found at a place in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Site {
    /// A name, quoted or not.
    Name { in_head: bool },
    /// A string, a number, a boolean or a date.
    Scalar,
    /// The end of a name that no `=` follows, or the value in braces that follows it.
    NameWithoutValue,
    /// The place after a `=` that no value follows.
    MissingValue,
    /// The end of a list without its `]`.
    UnclosedList,
    /// The place of a comma between two items, of which the first ends at `after`.
    MissingComma { within: Bracket, after: usize },
    /// The end of a table in braces without its `}`.
    UnclosedBraces,
    /// Text that the parser skips after the value of a line.
    AfterValue,
}

/// All sites of a file.
#[derive(Debug, Default)]
struct Sites {
    /// By where they begin.
    list: Vec<(Range<usize>, Site)>,
    /// Where the heads of tables begin, in order.
    heads: Vec<usize>,
    /// Heads of tables without their `]`, in order.
    unclosed_heads: Vec<Range<usize>>,
    /// Where the head of a table began that has not ended.
    head: Option<usize>,
    /// Lists and tables in braces that are open.
    open: Vec<Bracket>,
    /// The end of the value before, until a comma or a bracket opens.
    value_end: Option<usize>,
    /// Whether a name has begun that has no `=` yet.
    has_name: bool,
    /// The same in braces.
    has_name_in_braces: bool,
}

/// Reports what is not TOML, once a line: the rest of a line mostly follows from its first error,
/// and so does everything after an error that breaks the structure.
pub(super) fn report(text: &str, errors: &[Error], diagnostics: &mut Diagnostics) -> Damage {
    if errors.is_empty() {
        return Damage::Lines;
    }
    let sites = Sites::of(text);
    let mut errors: Vec<(Range<usize>, &Error)> =
        errors.iter().map(|error| (error.span().unwrap_or(0..0), error)).collect();
    errors.sort_by_key(|(span, _)| span.start);
    let mut lost: Vec<Range<usize>> = Vec::new();
    let mut reported_to = 0;
    let mut names = None;
    let mut tables_twice = HashSet::new();
    for (span, error) in errors {
        let fault = sites.fault(&span, text);
        let duplicate = match fault {
            Fault::DuplicateName { .. } => {
                names.get_or_insert_with(|| NameTree::of(text)).at(&span)
            }
            _ => None,
        };
        // A setting that both heads of a table have follows from the second head.
        if duplicate.as_ref().is_some_and(|found| tables_twice.contains(&found.parent)) {
            continue;
        }
        if span.start >= reported_to {
            let mut lines = line_around(text, span.start);
            reported_to = lines.end;
            if sites.is_in_unclosed_head(span.start) {
                // The parser skips the settings of the table, or reads one of them as a head.
                lines.end = sites.next_head(lines.end).unwrap_or(text.len() + 1);
            }
            match lost.last_mut() {
                Some(before) if lines.start < before.end => before.end = before.end.max(lines.end),
                // Of two settings of one name, the first is read.
                _ if fault == (Fault::DuplicateName { in_head: false }) => {}
                _ => lost.push(lines),
            }
            let directive = line_around(text, span.start);
            let directive = text.get(directive.start..directive.end.min(text.len()));
            let directive = directive.and_then(foreign::directive);
            diagnostics.push(match (fault, duplicate, directive) {
                (_, _, Some((length, help))) => directive_of_nginx(text, span.start, length, help),
                (Fault::DuplicateName { in_head }, Some(found), None) => {
                    if in_head {
                        tables_twice.insert(found.node);
                    }
                    written_twice(&found, in_head, text)
                }
                _ => fault.diagnostic(span, error.message(), text),
            });
        }
        if fault.breaks_structure() {
            diagnostics.distrust_all();
            return Damage::Structure;
        }
    }
    diagnostics.suppress_in(lost);
    Damage::Lines
}

/// The error of a line of nginx' configuration, whose directive has `length` bytes.
fn directive_of_nginx(text: &str, at: usize, length: usize, help: String) -> Diagnostic {
    let line = line_around(text, at);
    let indent = text.get(line.start..line.end.min(text.len())).unwrap_or_default();
    let start = line.start + (indent.len() - indent.trim_start().len());
    let message = "this is a line of nginx, not `name = value`";
    Diagnostic::new(start..start + length, message).help(help)
}

/// The error of a name that is written twice, with both places.
fn written_twice(found: &Duplicate, in_head: bool, text: &str) -> Diagnostic {
    let Duplicate { span, first, .. } = found;
    let name = cut(text.get(span.clone()).unwrap_or_default(), SHOWN);
    let head = line_around(text, span.start);
    let head = text.get(head.start..head.end.min(text.len())).unwrap_or_default();
    let head = head.split('#').next().unwrap_or_default().trim();
    let first_line = line_around(text, first.start);
    let first_line = text.get(first_line.start..).unwrap_or_default().trim_start();
    let (message, help) = if in_head && first_line.starts_with('[') {
        // One of the heads has double brackets by mistake, or has single ones by mistake.
        let listed = head.strip_prefix("[[").and_then(|head| head.strip_suffix("]]"));
        let single = listed.map_or_else(|| head.to_owned(), |path| format!("[{}]", path.trim()));
        let is_listed = listed.is_some() || first_line.starts_with("[[");
        let path = single.trim_start_matches('[').trim_end_matches(']').trim();
        let names: Vec<&str> = path.split('.').map(str::trim).collect();
        if let Some(kind) = entries::kind_of_listed(&names) {
            let message = format!("the table `{name}` is written twice");
            return Diagnostic::new(span.clone(), message)
                .and(first.clone(), "here first")
                .help(entries::double_brackets(path, kind));
        }
        let help = match entries::kind_of(&name).filter(|_| is_listed) {
            Some(kind) => {
                format!("write `[{name}.<name>]` for each {kind}, without double brackets")
            }
            None => {
                format!("write the settings of both under one `{}`", cut(&single, 2 * SHOWN))
            }
        };
        (format!("the table `{name}` is written twice"), help)
    } else {
        (format!("`{name}` is written twice"), "keep one of them".to_owned())
    };
    Diagnostic::new(span.clone(), message).and(first.clone(), "here first").help(help)
}

/// The line of byte `at`, with its line break.
fn line_around(text: &str, at: usize) -> Range<usize> {
    let bytes = text.as_bytes();
    let at = at.min(bytes.len());
    let start = bytes[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |found| found + 1);
    let end = bytes[at..].iter().position(|byte| *byte == b'\n');
    start..end.map_or(bytes.len(), |found| at + found) + 1
}

// === impl Fault ===

impl Fault {
    /// The fault of a name at `span`, with an error at `error`.
    fn of_name(span: &Range<usize>, name: &str, error: &Range<usize>, in_head: bool) -> Self {
        if name.is_empty() {
            return Self::MissingName;
        }
        if name.starts_with("\"\"\"") || name.starts_with("'''") {
            return Self::NameInThreeQuotes;
        }
        if name.starts_with(['"', '\'']) {
            if !is_closed(name) {
                return Self::UnclosedString;
            }
        } else if !is_bare(name) {
            let before_colon = name.split_once(':').map(|(before, _)| before);
            return if !in_head && before_colon.is_some_and(|name| !name.is_empty() && is_bare(name))
            {
                Self::Colon
            } else if !in_head && ["//", "/*", ";"].iter().any(|mark| name.starts_with(mark)) {
                Self::ForeignComment
            } else {
                Self::InvalidName
            };
        }
        if span == error { Self::DuplicateName { in_head } } else { Self::Other }
    }

    /// The fault of a value. `found` is the text from the place of the error on.
    fn of_scalar(value: &str, found: &str) -> Self {
        let is_number = |byte: u8| byte.is_ascii_hexdigit() || b"+-._:xobTZ".contains(&byte);
        if !value.starts_with(['"', '\'']) && value.ends_with(';') {
            Self::Terminator
        } else if value.starts_with(['"', '\''])
            && is_closed(value)
            && found.starts_with(|c: char| c.is_control() && c != '\n')
        {
            Self::ControlCharacter
        } else if value.starts_with("\"\"\"") || value.starts_with("'''") {
            if is_closed(value) { Self::Other } else { Self::UnclosedText }
        } else if value.starts_with(['"', '\'']) {
            if is_closed(value) { Self::Other } else { Self::UnclosedString }
        } else if value.ends_with(['"', '\''])
            || (value.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c))
                && value.bytes().all(is_number)
                && value.bytes().any(|byte| byte.is_ascii_digit()))
        {
            Self::Other
        } else if suggest::closest(value, &["true", "false"]).is_some() {
            Self::NearlyBoolean
        } else {
            Self::Unquoted
        }
    }

    /// Whether the settings after the error may be part of another table.
    fn breaks_structure(self) -> bool {
        matches!(
            self,
            Self::UnclosedList
                | Self::MissingComma { .. }
                | Self::UnclosedBraces
                | Self::UnclosedText
        )
    }

    /// The diagnostic of this fault; `prose` is the message of the parser.
    fn diagnostic(self, span: Range<usize>, prose: &str, text: &str) -> Diagnostic {
        let (message, help) = match self {
            Self::DuplicateName { .. } => {
                let name = text.get(span.clone()).unwrap_or_default();
                (format!("`{}` is written twice", cut(name, SHOWN)), Some("keep one of them"))
            }
            Self::MissingComma { within, after } => {
                let (message, help) = match within {
                    Bracket::List => (
                        "a list is not closed, or lacks a comma",
                        "end it with `]`, or put `,` between its items",
                    ),
                    Bracket::Braces => (
                        "a table in braces is not closed, or lacks a comma",
                        "end it with `}`, or put `,` between its settings",
                    ),
                };
                return Diagnostic::new(after..after, message).help(help);
            }
            Self::Colon => {
                let name = line_around(text, span.start).start..span.start;
                let name = text.get(name).unwrap_or_default();
                let name = name.rsplit(['{', ',', ' ', '\t']).next().unwrap_or_default();
                let help = format!("write `{} = …`", cut(name, SHOWN));
                return Diagnostic::new(span, "`=` follows a name, not `:`").help(help);
            }
            Self::Other => (prose.replace("array", "list"), None),
            known => {
                let (message, help) = known.words();
                (message.to_owned(), help)
            }
        };
        let diagnostic = Diagnostic::new(span, message);
        match help {
            Some(help) => diagnostic.help(help),
            None => diagnostic,
        }
    }

    /// The message and the help of a fault that needs nothing from the text.
    fn words(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::InvalidName => (
                "a name holds a character that it cannot hold",
                Some("write it in letters A-Z and a-z, digits, `_` and `-`"),
            ),
            Self::ForeignComment => ("a comment begins with `#`", None),
            Self::Terminator => {
                ("a value ends with its line", Some("remove the `,` or `;` after it"))
            }
            Self::TextInHead => (
                "a table's name holds a character that it cannot hold",
                Some("write it in letters A-Z and a-z, digits, `_` and `-`, without spaces"),
            ),
            Self::NameInThreeQuotes => {
                ("a name is written in three quotes", Some("write it in one pair of quotes"))
            }
            Self::MissingName => {
                ("a name is missing", Some("write it in letters A-Z and a-z, digits, `_` and `-`"))
            }
            Self::NameWithoutValue => {
                ("a name without a value", Some("write it as `name = value`"))
            }
            Self::MissingValue => ("a value is missing after `=`", None),
            Self::UnclosedHead => ("a table's name is not closed", Some("end it with `]`")),
            Self::UnclosedList => ("a list is not closed", Some("end it with `]`")),
            Self::UnclosedBraces => ("a table in braces is not closed", Some("end it with `}`")),
            Self::UnclosedString => {
                ("a string is not closed", Some("end it with the quote that begins it"))
            }
            Self::UnclosedText => (
                "a string over several lines is not closed",
                Some("end it with the three quotes that begin it"),
            ),
            Self::ControlCharacter => (
                "a string holds a control character",
                Some("write it in double quotes, as an escape such as `\\u0007`"),
            ),
            Self::NearlyBoolean => (
                "this is neither a number, nor `true` or `false`",
                Some("a string is written as `\"…\"`"),
            ),
            Self::Unquoted => ("a string needs quotes", Some("write it as `\"…\"`")),
            Self::DuplicateName { .. } | Self::MissingComma { .. } | Self::Colon | Self::Other => {
                ("not TOML", None)
            }
        }
    }
}

/// Whether a name needs no quotes.
fn is_bare(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

/// Whether a text begins with a quote that does not end it.
fn is_unclosed(text: Option<&str>) -> bool {
    text.is_some_and(|text| text.starts_with(['"', '\'']) && !is_closed(text))
}

/// Whether a string ends with the quotes that begin it.
fn is_closed(string: &str) -> bool {
    let quote = &string[..1];
    let quotes =
        if string.starts_with(&quote.repeat(3)) { quote.repeat(3) } else { quote.to_owned() };
    let Some(inner) = string.get(quotes.len()..).and_then(|rest| rest.strip_suffix(&quotes)) else {
        return false;
    };
    let escapes = inner.bytes().rev().take_while(|byte| *byte == b'\\').count();
    quote == "'" || escapes % 2 == 0
}

// === impl Sites ===

impl Sites {
    fn of(text: &str) -> Self {
        let source = Source::new(text);
        let tokens = source.lex().into_vec();
        let mut sites = Self::default();
        let mut guard = RecursionGuard::new(&mut sites, MAX_DEPTH);
        parse_document(&tokens, &mut guard, &mut ());
        sites.end_statement(text.len());
        sites.list.sort_by_key(|(range, _)| range.start);
        sites
    }

    /// Kind of the syntax error at `error`.
    fn fault(&self, error: &Range<usize>, text: &str) -> Fault {
        let after = self.list.partition_point(|(range, _)| range.start <= error.start);
        let mut before = self.list[..after].iter().rev();
        // An inserted event has no text, and neither have the errors that it explains.
        let inserted = before.clone().take_while(|(range, _)| range.start == error.start);
        let inserted = inserted.filter(|(range, _)| range.is_empty() && error.is_empty()).last();
        if error.is_empty() && self.is_in_unclosed_head(error.start) {
            let rest = text.get(error.start..).unwrap_or_default();
            let has_end = rest.lines().next().is_some_and(|rest| rest.contains(']'));
            let has_no_name = inserted.is_some_and(|(_, site)| matches!(site, Site::Name { .. }));
            return match (has_end, has_no_name) {
                (true, true) => Fault::MissingName,
                // `[keys.two words]`, but not `[keys.a # […]`.
                (true, false) if !rest.trim_start().starts_with(['#', '\n', '\r']) => {
                    Fault::TextInHead
                }
                _ => Fault::UnclosedHead,
            };
        }
        let around = before.next().filter(|(range, _)| error.start <= range.end);
        let Some((range, site)) = inserted.or(around) else { return Fault::Other };
        let site_text = text.get(range.clone()).unwrap_or_default();
        match site {
            Site::Name { in_head } => Fault::of_name(range, site_text, error, *in_head),
            Site::Scalar => Fault::of_scalar(site_text, text.get(error.start..).unwrap_or("")),
            Site::NameWithoutValue => match before.next() {
                // The rest of the line belongs to a quoted name without its end.
                Some((name, Site::Name { .. })) if is_unclosed(text.get(name.clone())) => {
                    Fault::UnclosedString
                }
                _ => Fault::NameWithoutValue,
            },
            Site::MissingValue => Fault::MissingValue,
            Site::UnclosedList => Fault::UnclosedList,
            Site::MissingComma { within, after } => {
                Fault::MissingComma { within: *within, after: *after }
            }
            Site::UnclosedBraces => Fault::UnclosedBraces,
            Site::AfterValue if site_text.starts_with([',', ';']) => Fault::Terminator,
            Site::AfterValue => Fault::Other,
        }
    }

    /// Whether byte `at` is in the head of a table without its `]`.
    fn is_in_unclosed_head(&self, at: usize) -> bool {
        let before = self.unclosed_heads.partition_point(|head| head.start <= at);
        self.unclosed_heads[..before].last().is_some_and(|head| at <= head.end)
    }

    /// Where the next head of a table begins, at or after byte `at`.
    fn next_head(&self, at: usize) -> Option<usize> {
        self.heads.get(self.heads.partition_point(|head| *head < at)).copied()
    }

    fn begin_head(&mut self, at: usize) {
        self.heads.push(at);
        self.head = Some(at);
    }

    /// Begins a list or a table in braces at byte `at`.
    fn open(&mut self, bracket: Bracket, at: usize) {
        self.begin_value(at);
        self.open.push(bracket);
        self.value_end = None;
    }

    /// Ends a list or a table in braces at `span`, which is empty if its bracket is missing.
    fn close(&mut self, span: Span, unclosed: Site) {
        self.open.pop();
        self.value_end = Some(span.end());
        self.add_if_inserted(span, unclosed);
    }

    /// Begins the next setting, or text that is none, in braces: a comma must be before it.
    fn begin_in_braces(&mut self, at: usize) {
        if let (Some(after), Some(Bracket::Braces)) = (self.value_end, self.open.last()) {
            self.list.push((at..at, Site::MissingComma { within: Bracket::Braces, after }));
        }
    }

    /// Ends a name in braces at the value that begins at byte `at`.
    fn begin_value(&mut self, at: usize) {
        if std::mem::take(&mut self.has_name_in_braces) {
            self.list.push((at..at, Site::NameWithoutValue));
        }
    }

    fn add(&mut self, span: Span, site: Site) {
        self.list.push((span.start()..span.end(), site));
    }

    fn add_if_inserted(&mut self, span: Span, site: Site) {
        if span.is_empty() {
            self.add(span, site);
        }
    }

    /// Ends the head of a table, or a name and its value, before byte `at`.
    fn end_statement(&mut self, at: usize) {
        if self.open.is_empty() {
            self.value_end = None;
        }
        if let Some(start) = self.head.take() {
            self.unclosed_heads.push(start..at);
        } else if std::mem::take(&mut self.has_name) && self.open.is_empty() {
            self.list.push((at..at, Site::NameWithoutValue));
        }
    }
}

impl EventReceiver for Sites {
    fn std_table_open(&mut self, span: Span, _: &mut dyn ErrorSink) {
        self.begin_head(span.start());
    }

    fn std_table_close(&mut self, _: Span, _: &mut dyn ErrorSink) {
        self.head = None;
    }

    fn array_table_open(&mut self, span: Span, _: &mut dyn ErrorSink) {
        self.begin_head(span.start());
    }

    fn array_table_close(&mut self, _: Span, _: &mut dyn ErrorSink) {
        self.head = None;
    }

    fn inline_table_open(&mut self, span: Span, _: &mut dyn ErrorSink) -> bool {
        self.open(Bracket::Braces, span.start());
        true
    }

    fn inline_table_close(&mut self, span: Span, _: &mut dyn ErrorSink) {
        self.close(span, Site::UnclosedBraces);
    }

    fn array_open(&mut self, span: Span, _: &mut dyn ErrorSink) -> bool {
        self.open(Bracket::List, span.start());
        true
    }

    fn array_close(&mut self, span: Span, _: &mut dyn ErrorSink) {
        self.close(span, Site::UnclosedList);
    }

    fn simple_key(&mut self, span: Span, _: Option<Encoding>, _: &mut dyn ErrorSink) {
        self.begin_in_braces(span.start());
        self.value_end = None;
        self.has_name = self.open.is_empty() && self.head.is_none();
        self.has_name_in_braces = !self.open.is_empty();
        self.add(span, Site::Name { in_head: self.head.is_some() });
    }

    fn key_val_sep(&mut self, span: Span, _: &mut dyn ErrorSink) {
        self.has_name = false;
        self.has_name_in_braces = false;
        self.add_if_inserted(span, Site::NameWithoutValue);
    }

    fn scalar(&mut self, span: Span, _: Option<Encoding>, _: &mut dyn ErrorSink) {
        self.begin_value(span.start());
        self.add(span, if span.is_empty() { Site::MissingValue } else { Site::Scalar });
        self.value_end = Some(span.end());
    }

    fn value_sep(&mut self, span: Span, _: &mut dyn ErrorSink) {
        let after = self.value_end.take().unwrap_or(span.start());
        self.add_if_inserted(span, Site::MissingComma { within: Bracket::List, after });
    }

    fn comment(&mut self, span: Span, _: &mut dyn ErrorSink) {
        self.end_statement(span.start());
    }

    fn newline(&mut self, span: Span, _: &mut dyn ErrorSink) {
        self.end_statement(span.start());
    }

    fn error(&mut self, span: Span, _: &mut dyn ErrorSink) {
        self.begin_in_braces(span.start());
        if self.value_end.is_some() && self.open.is_empty() {
            self.add(span, Site::AfterValue);
        }
        self.end_statement(span.start());
    }
}
