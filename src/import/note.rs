//! What the list of an import says: one note for each setting that was not taken over as it is.

use std::collections::HashSet;
use std::fmt;

/// Maximum length of what a note repeats of the file, in characters.
const SHOWN: usize = 80;

/// Columns from which on the line alone does not say where a setting is, as in JSON in one line.
const LONG_LINE: usize = 100;

/// Where a setting begins in one of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Place {
    /// Index of the file.
    pub file: usize,
    /// Line, counted from 1; 0 for the file as a whole.
    pub line: usize,
    /// Column in characters, counted from 1; 0 if it is not known. Settings of one line differ in
    /// it.
    pub column: usize,
}

/// What happened to a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// The result has nothing for it.
    Omitted,
    /// The result has something that behaves differently in some cases.
    Approximate,
}

/// A setting that was not taken over as it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Note {
    /// Where it is.
    pub place: Place,
    /// The setting, as the file has it.
    pub what: String,
    /// What happened to it.
    pub effect: Effect,
    /// Why, and what to do. Without a final period.
    pub why: String,
}

/// The notes of an import.
#[derive(Debug, Default)]
pub(super) struct Notes {
    all: Vec<Note>,
    known: HashSet<Note>,
    places: HashSet<Place>,
}

// === impl Place ===

impl Place {
    /// `file:line`, with the column if the line is long, of a file of this name.
    pub fn shown(self, file: &str) -> String {
        match self {
            Self { line: 0, .. } => file.to_owned(),
            Self { line, column: 0..=LONG_LINE, .. } => format!("{file}:{line}"),
            Self { line, column, .. } => format!("{file}:{line}:{column}"),
        }
    }
}

// === impl Notes ===

impl Notes {
    /// Notes that a setting is not in the result.
    pub(super) fn omitted(&mut self, place: Place, what: impl AsRef<str>, why: impl Into<String>) {
        self.push(place, what.as_ref(), Effect::Omitted, why.into());
    }

    /// Notes that a setting may behave differently.
    pub(super) fn approximate(
        &mut self,
        place: Place,
        what: impl AsRef<str>,
        why: impl Into<String>,
    ) {
        self.push(place, what.as_ref(), Effect::Approximate, why.into());
    }

    fn push(&mut self, place: Place, what: &str, effect: Effect, why: String) {
        let note = Note { place, what: one_line(what), effect, why };
        // Settings that apply to several routes are visited for each.
        if self.known.insert(note.clone()) {
            self.places.insert(place);
            self.all.push(note);
        }
    }

    /// Whether there is a note about the setting at `place`.
    pub(super) fn has(&self, place: Place) -> bool {
        self.places.contains(&place)
    }

    /// Whether there is a note at `place` that names a setting.
    pub(super) fn has_named(&self, place: Place, name: &str) -> bool {
        self.has(place) && self.all.iter().any(|it| it.place == place && it.what.contains(name))
    }

    /// The notes in the order of the files.
    pub(super) fn into_sorted(mut self) -> Vec<Note> {
        self.all.sort_by_key(|note| note.place);
        self.all
    }
}

// === impl Note ===

/// Without the name of the file and the line.
impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effect = match self.effect {
            Effect::Omitted => "not taken over",
            Effect::Approximate => "approximately",
        };
        write!(f, "{}: {effect}: {}", self.what, self.why)
    }
}

/// The text without line breaks and other control characters, shortened.
fn one_line(text: &str) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let words: Vec<&str> = clean.split_whitespace().collect();
    let line = words.join(" ");
    if line.chars().count() <= SHOWN {
        return line;
    }
    line.chars().take(SHOWN - 1).chain(['…']).collect()
}
