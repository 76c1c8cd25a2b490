//! The log of the process, on standard error: one event a line, as text or as JSON. Characters that
//! would end a line or control a terminal are escaped, whatever their source.
//!
//! Reading order: this file (the form of an event), `fields` (its fields), `library` (events of
//! libraries), `output` (standard error).

mod fields;
mod library;
mod output;

use std::fmt;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::base::clock;
use crate::base::time::UtcTime;
use crate::policy::settings::LogFormat;
use fields::Fields;
pub use library::LibraryLog;
#[cfg(test)]
pub(crate) use library::tests::ERRORS;
pub use output::{ErrorOutput, dropped};

/// Writes one event as one line.
#[derive(Clone, Copy, Debug)]
pub struct EventLine {
    /// Text or JSON.
    pub format: LogFormat,
    /// Whether text has the colours of a terminal.
    pub color: bool,
}

impl<S, N> FormatEvent<S, N> for EventLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::new(self.format);
        event.record(&mut fields);
        let time = UtcTime(clock::unix_us());
        writer.write_str(&self.line(time, *event.metadata().level(), &fields))
    }
}

impl EventLine {
    fn line(self, time: UtcTime, level: Level, fields: &Fields) -> String {
        let Fields { event, list, .. } = fields;
        match self.format {
            LogFormat::Text => {
                let level = if self.color { colored(level) } else { name(level) };
                format!("{time} {level} {event}{list}\n")
            }
            LogFormat::Json => {
                let level = name(level).trim_start().to_ascii_lowercase();
                format!(
                    "{{\"time\":\"{time}\",\"level\":\"{level}\",\"event\":{event},\"fields\":{{{list}}}}}\n"
                )
            }
        }
    }
}

/// Name of a level, in five columns.
const fn name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "ERROR",
        Level::WARN => " WARN",
        Level::INFO => " INFO",
        Level::DEBUG => "DEBUG",
        Level::TRACE => "TRACE",
    }
}

const fn colored(level: Level) -> &'static str {
    match level {
        Level::ERROR => "\u{1b}[31mERROR\u{1b}[0m",
        Level::WARN => "\u{1b}[33m WARN\u{1b}[0m",
        Level::INFO => "\u{1b}[32m INFO\u{1b}[0m",
        Level::DEBUG => "\u{1b}[34mDEBUG\u{1b}[0m",
        Level::TRACE => "\u{1b}[35mTRACE\u{1b}[0m",
    }
}

#[cfg(test)]
mod tests {
    use tracing::field::Visit as _;

    use super::*;

    /// Lines with an event and fields that contain text of a hostile client.
    fn lines() -> [String; 2] {
        use tracing::Callsite as _;
        use tracing::callsite::DefaultCallsite;
        use tracing::metadata::Kind;

        static CALLSITE: DefaultCallsite = DefaultCallsite::new(&METADATA);
        static METADATA: tracing::Metadata<'static> = tracing::metadata! {
            name: "test",
            target: "test",
            level: Level::WARN,
            fields: &["message", "path", "server", "count", "wait", "is_new"],
            callsite: &CALLSITE,
            kind: Kind::EVENT,
        };
        [LogFormat::Text, LogFormat::Json].map(|format| {
            let mut fields = Fields::new(format);
            let set = CALLSITE.metadata().fields();
            let field = |name| set.field(name).unwrap();
            fields.record_debug(&field("message"), &format_args!("not \"ok\"\r\nERROR \u{1b}[31m"));
            fields.record_str(&field("path"), "/a\n\u{2028}\u{7f}\"ü\\");
            fields.record_debug(&field("server"), &format_args!("127.0.0.1:1\n2"));
            fields.record_u64(&field("count"), 3);
            fields.record_f64(&field("wait"), 0.5);
            fields.record_bool(&field("is_new"), true);
            EventLine { format, color: false }.line(UtcTime(0), Level::WARN, &fields)
        })
    }

    #[test]
    fn event_is_one_line_whatever_its_texts_contain() {
        insta::assert_snapshot!(lines().concat(), @r#"
    1970-01-01T00:00:00.000000Z  WARN not "ok"\r\nERROR \u{1b}[31m path="/a\n\u{2028}\u{7f}\"ü\\" server=127.0.0.1:1\n2 count=3 wait=0.5 is_new=true
    {"time":"1970-01-01T00:00:00.000000Z","level":"warn","event":"not \"ok\"\r\nERROR \u001b[31m","fields":{"path":"/a\n\u2028\u007f\"ü\\","server":"127.0.0.1:1\n2","count":3,"wait":0.5,"is_new":true}}
    "#);
        for line in lines() {
            assert_eq!(line.matches(|c: char| c.is_control()).count(), 1, "{line:?}");
        }
        let json: serde_json::Value = serde_json::from_str(&lines()[1]).unwrap();
        assert_eq!(json["fields"]["path"], "/a\n\u{2028}\u{7f}\"ü\\");
        assert_eq!((&json["level"], &json["fields"]["count"]), (&"warn".into(), &3.into()));
    }

    #[test]
    fn only_a_terminal_gets_colours() {
        let fields = Fields::new(LogFormat::Text);
        let line = |color| {
            EventLine { format: LogFormat::Text, color }.line(UtcTime(0), Level::ERROR, &fields)
        };
        assert!(line(true).contains("\u{1b}[31mERROR"));
        assert!(!line(false).contains('\u{1b}'));
    }
}
