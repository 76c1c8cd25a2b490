//! The default that a row states is the one in force: a file with it, written out, has the policy
//! of a file without it.

use super::files::{FILES, whole};
use crate::config::Config;
use crate::config::findings::Findings;
use crate::config::row::{DefaultValue, Row};
use crate::config::tables::Limits;
use crate::load::from_text;

fn collect(path: &str, rows: &'static [Row], all: &mut Vec<(String, &'static Row)>) {
    for row in rows {
        if !matches!(row.default, DefaultValue::Unstated | DefaultValue::InWords(_)) {
            all.push((path.to_owned(), row));
        }
        let inner = format!("{path}.{}", row.name);
        collect(inner.trim_start_matches('.'), row.rows(), all);
    }
}

/// The policy of a file without its warnings, in text.
fn policy(text: &str) -> Option<String> {
    let mut policy = from_text("gateway.toml", &whole(text)).ok()?;
    policy.warnings = Findings::default();
    Some(format!("{policy:?}"))
}

#[test]
fn written_default_is_the_default_in_force() {
    let mut all = Vec::new();
    collect("", Config::rows(), &mut all);
    assert!(all.len() > 90, "{}", all.len());
    // The policy keeps whether the file has it: a limit that does not fit is then reported.
    all.retain(|(_, row)| row.name != Limits::max_connections.name);
    for (table, row) in all {
        let value = row.default.to_string();
        let line = format!("{} = {}", row.name, value.trim_matches('`'));
        let fitting = FILES.iter().filter(|(own, _)| *own == table).find_map(|(_, file)| {
            let with = policy(&file.replace('@', &line))?;
            Some((with, policy(&file.replace('@', "")).unwrap()))
        });
        let (with, without) = fitting.unwrap_or_else(|| panic!("no file has {table}: {line}"));
        assert_eq!(with, without, "{table}: {line}");
    }
}
