//! The range that a row states is the one that is checked: its bounds are accepted, and what is
//! beyond them is refused. The schema accepts and refuses the same numbers.

use super::files::{FILES, whole};
use crate::base::period;
use crate::config::Config;
use crate::config::row::{Range, References, Row, percentage};
use crate::config::schema;
use crate::load::from_text;

/// How a value can be written: alone, as an item of a list, as an entry of a table.
const FORMS: [&str; 4] = ["$", "[$]", "[$, 100]", "{ api = $, b = 1 }"];

/// Values of a setting, as the file has them.
struct Values {
    accepted: Vec<String>,
    refused: Vec<String>,
}

impl Values {
    /// The bounds of a range, and the values next to them that are not in it; none without bounds.
    fn of(range: Range) -> Option<Self> {
        let numbers = |numbers: &[i64]| numbers.iter().map(ToString::to_string).collect();
        Some(match range {
            Range::Any => return None,
            Range::Between(least, most) => {
                Self { accepted: numbers(&[least, most]), refused: numbers(&[least - 1, most + 1]) }
            }
            Range::ZeroOr(least, most) => Self {
                accepted: numbers(&[0, least, most]),
                refused: numbers(&[-1, least - 1, most + 1]),
            },
            Range::Fractions(least, most) => Self {
                accepted: vec![format!("{least:?}"), format!("{most:?}")],
                refused: vec![format!("{:?}", least - 1e-9), format!("{:?}", most + 1e-9)],
            },
            Range::Characters(least, most) => {
                let text = |length: usize| format!("'{}'", "a".repeat(length));
                let longest = Some(most).filter(|most| *most < usize::MAX);
                Self {
                    accepted: [Some(least), longest].into_iter().flatten().map(text).collect(),
                    refused: [Some(least - 1), longest.map(|most| most + 1)]
                        .into_iter()
                        .flatten()
                        .map(text)
                        .collect(),
                }
            }
            Range::Shares(least, most) => {
                let text = |share: u16| format!("'{}'", percentage(share));
                let above = Some(most + 1).filter(|share| *share <= 1_000);
                let refused = [least.checked_sub(1), above].into_iter().flatten();
                Self {
                    accepted: vec![text(least), text(most)],
                    refused: refused.map(text).chain(["'101%'".to_owned()]).collect(),
                }
            }
            Range::Durations(least, most) => {
                let [least_ms, most_ms] =
                    [least, most].map(|text| period::milliseconds(text).unwrap());
                let below =
                    least_ms.checked_sub(1).map_or("'-1ms'".to_owned(), |ms| format!("'{ms}ms'"));
                Self {
                    accepted: vec![format!("'{least}'"), format!("'{most}'")],
                    refused: vec![below, format!("'{}ms'", most_ms + 1)],
                }
            }
        })
    }
}

/// All rows with bounds, each with the path of its table.
fn collect(path: &str, rows: &'static [Row], all: &mut Vec<(String, &'static Row, Values)>) {
    for row in rows {
        all.extend(Values::of(row.range()).map(|values| (path.to_owned(), row, values)));
        let inner = format!("{path}.{}", row.name);
        collect(inner.trim_start_matches('.'), row.rows(), all);
    }
}

/// A file without errors in which the setting has this value, with `$` in place of it.
fn file_with(table: &str, row: &Row, value: &str) -> Option<String> {
    let files = FILES.iter().filter(|(own, _)| *own == table);
    let mut files = files.flat_map(|(_, file)| {
        FORMS.map(|form| whole(&file.replace('@', &format!("{} = {form}", row.name))))
    });
    files.find(|file| from_text("gateway.toml", &file.replace('$', value)).is_ok())
}

#[test]
fn ranges_of_rows_are_those_that_are_checked() {
    let mut all = Vec::new();
    collect("", Config::rows(), &mut all);
    assert!(all.len() > 60, "{}", all.len());
    for (table, row, Values { accepted, refused }) in all {
        for bound in &accepted {
            let file = file_with(&table, row, bound)
                .unwrap_or_else(|| panic!("no file has {table}: {} = {bound}", row.name));
            schema::assert_takes(&file.replace('$', bound));
            let at = file.find('$').unwrap();
            for beyond in &refused {
                let text = file.replace('$', beyond);
                let report = from_text("gateway.toml", &text).expect_err(&text);
                let is_at_value = |label: &crate::config::diagnostic::Label| {
                    label.span.start == at && label.span.end == at + beyond.len()
                };
                let labels = report.errors.list.iter().filter_map(|error| error.labels.first());
                assert!(labels.into_iter().any(is_at_value), "{text}\n{}", report.render(false));
                // The schema does not compare durations, nor texts that may have references.
                let is_compared = match row.range() {
                    Range::Durations(..) | Range::Shares(..) => false,
                    Range::Characters(..) => row.references == References::Literal,
                    _ => true,
                };
                assert!(!is_compared || !schema::takes(&text), "the schema accepts\n{text}");
            }
        }
    }
}

#[test]
fn shortest_duration_that_an_error_names_is_accepted() {
    let sticky = "[upstreams.b]\nservers = ['127.0.0.1:1']\nsticky = { cookie = 'a', ttl = $ }\n";
    let tls = "[acme]\ndomains = ['a.test']\n[[listeners]]\naddress = '127.0.0.1:8443'\n\
               certificates = ['acme']\nhsts = $\n";
    for (file, shortest) in [(sticky, "1s"), (tls, "0s")] {
        let text = whole(&file.replace('$', "'-1s'"));
        let shown = from_text("gateway.toml", &text).unwrap_err().render(false);
        assert!(shown.contains(&format!("the shortest is `{shortest}`")), "{shown}");
        from_text("gateway.toml", &whole(&file.replace('$', &format!("'{shortest}'")))).unwrap();
    }
}

#[test]
fn length_of_a_text_is_counted_in_characters() {
    let file = |length: usize| format!("[tracing]\nservice_name = '{}'\n", "\u{e4}".repeat(length));
    from_text("gateway.toml", &whole(&file(255))).unwrap();
    let shown = from_text("gateway.toml", &whole(&file(256))).unwrap_err().render(false);
    assert!(shown.contains("`service_name` is longer than 255 characters"), "{shown}");
}
