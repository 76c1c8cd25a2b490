//! The rows of `names.txt`, which describes their form.

use std::sync::LazyLock;

use super::{Entry, Place, place};

const TEXT: &str = include_str!("names.txt");

/// All entries. The first that fits is used.
pub(super) static ENTRIES: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let mut table = None;
    let lines = TEXT.lines().filter(|line| !line.starts_with('#'));
    let rows = lines.filter_map(|line| match line.strip_prefix('[') {
        Some(head) => {
            table = of_head(head.trim_end_matches(']'));
            None
        }
        None => row(line, table?),
    });
    rows.collect()
});

/// The place of the table with this head: `*` is any.
fn of_head(head: &str) -> Option<Place> {
    match head {
        "*" => Some(Place::Any),
        "" => Some(Place::Root),
        _ => place(&head.split('.').map(str::to_owned).collect::<Vec<_>>()),
    }
}

fn row(line: &'static str, place: Place) -> Option<Entry> {
    let mut cells = line.split('|').map(str::trim);
    let (names, instead, why) = (cells.next()?, cells.next()?, cells.next()?);
    let (meant, line) = match instead.split_once(" = ") {
        Some((meant, _)) => (meant, instead),
        None => (instead, ""),
    };
    let names = meaning(names).split(' ').collect();
    Some(Entry { place, names, meant, line, why: meaning(why) })
}

/// The text of a cell, or the text that its `$NAME` stands for.
fn meaning(cell: &'static str) -> &'static str {
    let text = |name| TEXT.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    cell.strip_prefix('$').and_then(text).unwrap_or(cell)
}
