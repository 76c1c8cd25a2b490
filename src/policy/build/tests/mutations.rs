//! Property tests on a file with every setting: each error is reported, at its place, and hides no
//! other.

use std::ops::Range;

use proptest::prelude::*;
use toml::de::{DeTable, DeValue};

use crate::config::diagnostic::Report;
use crate::load::from_text;

/// A valid file with every setting, except those that exclude others.
const EVERY_SETTING: &str = include_str!("../fixtures/every_setting.toml");

/// Values that no setting takes, neither directly nor in a list.
const WRONG_VALUES: [&str; 3] = ["1979-05-27", "{ zz = 1 }", "[[1]]"];

/// A setting of the file.
#[derive(Debug, Clone)]
struct Setting {
    name: Range<usize>,
    value: Range<usize>,
}

/// What is done to a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutation {
    Drop,
    Duplicate,
    /// To a name that is not close to any setting.
    Rename,
    /// To a name with one more letter.
    Misspell,
    WrongType(&'static str),
}

/// All settings of a file, in order, without those whose names are the user's.
fn settings(text: &str) -> Vec<Setting> {
    fn collect(table: &DeTable<'_>, settings: &mut Vec<Setting>) {
        for (name, value) in table {
            match value.get_ref() {
                DeValue::Table(_)
                    if matches!(
                        name.get_ref().as_ref(),
                        "errors" | "headers" | "set" | "add" | "split"
                    ) => {}
                DeValue::Table(inner) => collect(inner, settings),
                DeValue::Array(tables) if name.get_ref() == "listeners" => {
                    let tables = tables.iter().filter_map(|one| one.get_ref().as_table());
                    tables.for_each(|inner| collect(inner, settings));
                }
                _ => settings.push(Setting { name: name.span(), value: value.span() }),
            }
        }
    }
    let (table, errors) = DeTable::parse_recoverable(text);
    assert_eq!(errors, []);
    let mut settings = Vec::new();
    collect(table.get_ref(), &mut settings);
    // `[headers]` has fixed names.
    if let Some(DeValue::Table(headers)) =
        table.get_ref().get("headers").map(toml::Spanned::get_ref)
    {
        collect(headers, &mut settings);
    }
    settings.sort_by_key(|setting| setting.name.start);
    settings
}

impl Mutation {
    fn apply(self, text: &mut String, setting: &Setting) {
        let Setting { name, value } = setting.clone();
        let statement = text[name.start..value.end].to_owned();
        let is_in_braces = text[..name.start].trim_end_matches(' ').ends_with(['{', ',']);
        match self {
            Self::Drop if is_in_braces => {
                let end = value.end + usize::from(text[value.end..].starts_with(','));
                text.replace_range(name.start..end, "");
            }
            Self::Drop => text.replace_range(name.start..value.end, ""),
            Self::Duplicate => {
                let separator = if is_in_braces { ", " } else { "\n" };
                text.insert_str(value.end, &format!("{separator}{statement}"));
            }
            Self::Rename => text.replace_range(name, "zzzzzzzzz"),
            Self::Misspell => text.insert(name.end, 'z'),
            Self::WrongType(wrong) => text.replace_range(value, wrong),
        }
    }
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![Just(Mutation::Drop), Just(Mutation::Duplicate), Just(Mutation::Rename), error(),]
}

/// Exactly one error each.
fn error() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        Just(Mutation::Misspell),
        prop::sample::select(&WRONG_VALUES).prop_map(Mutation::WrongType),
    ]
}

fn report(text: &str) -> Option<Report> {
    from_text("gateway.toml", text).err()
}

#[test]
fn file_with_every_setting_is_valid() {
    assert_eq!(report(EVERY_SETTING).map(|report| report.render(false)), None);
}

#[test]
fn duplicated_setting_is_one_error_with_both_places() {
    for setting in settings(EVERY_SETTING) {
        let mut text = EVERY_SETTING.to_owned();
        Mutation::Duplicate.apply(&mut text, &setting);
        let report = report(&text).unwrap();
        let shown = report.render(false);
        assert_eq!(report.errors.count(), 1, "{shown}");
        let [second, first] = &report.errors.list[0].labels[..] else { panic!("{shown}") };
        assert_eq!(
            (first.span.clone(), first.text.as_str()),
            (setting.name, "here first"),
            "{shown}"
        );
        assert_eq!(text[first.span.clone()], text[second.span.clone()], "{shown}");
    }
}

/// Each pair of sizes is tried a few times: a busy machine slows single runs.
#[test]
#[allow(clippy::disallowed_methods, reason = "compares how long reading takes")]
fn reading_takes_time_in_proportion_to_the_file() {
    /// Rules and keys, a fifth of them with an error.
    fn file(entries: usize) -> String {
        let entry = |n: usize| {
            let burst = if n.is_multiple_of(5) { "'x'" } else { "9" };
            format!(
                "[rules.r{n}]\nper = ['ip']\nrate = '1/s'\nburst = {burst}\nroutes = ['search']\n\
                 enabled = false\n[keys.k{n}]\nsha256 = '{n:064x}'\nplan = 'pro'\n"
            )
        };
        EVERY_SETTING.to_owned() + &(0..entries).map(entry).collect::<Vec<_>>().concat()
    }
    let seconds = |text: &str| {
        let start = std::time::Instant::now();
        let report = report(text);
        let elapsed = start.elapsed().as_secs_f64();
        assert_eq!(report.map(|report| report.errors.count()), Some(text.matches("'x'").count()));
        elapsed
    };
    let [small, large] = [1_000, 4_000].map(file);
    let is_linear = (0..5).any(|_| seconds(&large) < 10.0 * seconds(&small));
    assert!(is_linear, "a file 4 times as large takes more than 10 times as long");
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    #[test]
    fn mutated_setting_is_reported_within_the_file(
        at in any::<prop::sample::Index>(),
        mutation in mutation(),
    ) {
        let mut text = EVERY_SETTING.to_owned();
        mutation.apply(&mut text, at.get(&settings(EVERY_SETTING)));
        let report = report(&text);
        // Most settings may be left out.
        prop_assert!(report.is_some() || mutation == Mutation::Drop, "{text}");
        for diagnostic in report.iter().flat_map(|report| &report.errors.list) {
            let label = diagnostic.labels.first();
            let is_within = label.is_some_and(|label| {
                label.span.start <= label.span.end && label.span.end <= text.len()
            });
            prop_assert!(is_within, "{diagnostic:?}");
        }
    }

    #[test]
    fn each_of_many_errors_is_one_diagnostic(
        chosen in prop::collection::vec((any::<prop::sample::Index>(), error()), 1..12),
    ) {
        let settings = settings(EVERY_SETTING);
        let mut chosen: Vec<_> =
            chosen.into_iter().map(|(at, error)| (at.index(settings.len()), error)).collect();
        chosen.sort_by_key(|(index, _)| *index);
        chosen.dedup_by_key(|(index, _)| *index);
        let mut text = EVERY_SETTING.to_owned();
        for (index, error) in chosen.iter().rev() {
            error.apply(&mut text, &settings[*index]);
        }
        let report = report(&text);
        let shown = report.as_ref().map(|report| report.render(false)).unwrap_or_default();
        prop_assert_eq!(report.map_or(0, |report| report.errors.count()), chosen.len(), "{}", shown);
    }
}
