//! `include`: the directives of other files, where it stands.

use std::collections::BTreeSet;

use super::syntax::{self, Directive};
use crate::import::note::{Notes, Place};
use crate::import::{File, Includes, SyntaxError};

/// Maximum number of files that include each other in a row.
const MAX_DEPTH: usize = 10;

/// Maximum number of directives, each counted as often as its file is included.
const MAX_DIRECTIVES: usize = 500_000;

/// Files of nginx that only have directives which the gateway does not need.
const NOT_NEEDED: [&str; 4] = ["mime.types", "fastcgi_params", "uwsgi_params", "scgi_params"];

/// A file, or the mistake in it.
type Parsed = Result<Vec<Directive>, SyntaxError>;

/// The files of an import, while each is put in the place of its `include`.
struct Reader<'a> {
    parsed: &'a [Parsed],
    includes: &'a Includes,
    /// Number of directives that there is room for.
    left: usize,
}

/// The directives of all files: those of the first, and those of files that no other includes.
///
/// # Errors
/// One of these is not nginx', or there are too many directives. Included files with mistakes are
/// left out, with a note.
pub(super) fn read(
    files: &[File<'_>],
    includes: &Includes,
    notes: &mut Notes,
) -> Result<Vec<Directive>, SyntaxError> {
    let each = files.iter().enumerate();
    let parsed: Vec<Parsed> = each.map(|(number, file)| syntax::parse(file.text, number)).collect();
    let included: BTreeSet<usize> =
        includes.values().flat_map(|included| included.files.iter().copied()).collect();
    let mut reader = Reader { parsed: &parsed, includes, left: MAX_DIRECTIVES };
    let mut top = Vec::new();
    for (number, directives) in parsed.iter().enumerate() {
        if number == 0 || !included.contains(&number) {
            let directives = directives.as_ref().map_err(Clone::clone)?;
            top.extend(reader.expanded(directives, &mut vec![number], notes)?);
        }
    }
    Ok(top)
}

/// The arguments of all `include`s.
pub(super) fn patterns(directives: &[Directive]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for directive in directives {
        match directive.name.as_str() {
            "include" => {
                found.insert(directive.first().to_owned());
            }
            _ => found.extend(patterns(directive.inner())),
        }
    }
    found
}

// === impl Reader ===

impl Reader<'_> {
    /// The directives with those of included files. `open` are the files that they are in.
    fn expanded(
        &mut self,
        directives: &[Directive],
        open: &mut Vec<usize>,
        notes: &mut Notes,
    ) -> Result<Vec<Directive>, SyntaxError> {
        let mut all = Vec::new();
        for directive in directives {
            let Some(left) = self.left.checked_sub(1) else {
                let why =
                    "the files have more than 500,000 directives with those that they include";
                return Err(SyntaxError::new(directive.place, why));
            };
            self.left = left;
            if directive.name == "include" {
                all.extend(self.included(directive, open, notes)?);
                continue;
            }
            let block = directive.block.as_ref();
            let block = block.map(|block| self.expanded(block, open, notes)).transpose()?;
            all.push(Directive { block, ..directive.clone_head() });
        }
        Ok(all)
    }

    /// The directives of the files that an `include` is for.
    fn included(
        &mut self,
        include: &Directive,
        open: &mut Vec<usize>,
        notes: &mut Notes,
    ) -> Result<Vec<Directive>, SyntaxError> {
        let (includes, parsed) = (self.includes, self.parsed);
        let mut all = Vec::new();
        let Some(found) = includes.get(include.first()) else {
            omit(include, "what it includes is not read: import a file of a folder", notes);
            return Ok(all);
        };
        for why in &found.failed {
            omit(include, why, notes);
        }
        for number in &found.files {
            if open.contains(number) || open.len() >= MAX_DEPTH {
                let why = "the file includes itself, or more than 10 files include each other";
                omit(include, why, notes);
                continue;
            }
            match parsed.get(*number) {
                Some(Ok(directives)) => {
                    open.push(*number);
                    all.extend(self.expanded(directives, open, notes)?);
                    open.pop();
                }
                Some(Err(error)) => {
                    let place = Place { file: *number, ..error.place };
                    notes.omitted(
                        place,
                        include.shown(),
                        format!("a mistake in the file: {error}"),
                    );
                }
                None => {}
            }
        }
        Ok(all)
    }
}

/// Notes an `include` of which something is missing.
fn omit(include: &Directive, why: &str, notes: &mut Notes) {
    let name = include.first().rsplit('/').next().unwrap_or_default();
    if !NOT_NEEDED.contains(&name) {
        notes.omitted(include.place, include.shown(), why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::Included;

    /// The names of the directives with their places, and the notes.
    fn shown(texts: &[&str], includes: &[(&str, &[usize])]) -> (Vec<String>, Vec<String>) {
        fn add(directives: &[Directive], lines: &mut Vec<String>) {
            for directive in directives {
                let Place { file, line, .. } = directive.place;
                lines.push(format!("{file}:{line} {}", directive.shown()));
                add(directive.inner(), lines);
            }
        }
        let files: Vec<File<'_>> = texts.iter().map(|text| File { name: "", text }).collect();
        let included = |files: &[usize]| Included { files: files.to_vec(), failed: Vec::new() };
        let each = includes.iter().map(|(name, files)| ((*name).to_owned(), included(files)));
        let mut notes = Notes::default();
        let mut lines = Vec::new();
        add(&read(&files, &each.collect(), &mut notes).unwrap(), &mut lines);
        let note =
            |note: &crate::import::Note| format!("{}:{} {note}", note.place.file, note.place.line);
        (lines, notes.into_sorted().iter().map(note).collect())
    }

    #[test]
    fn files_are_where_they_are_included() {
        let texts = [
            "http {\n include conf.d/*;\n a;\n}",
            "server { include tls; }",
            "server { include tls; include /other; include mime.types; }",
            "ssl on;",
            "b;",
        ];
        let (lines, notes) = shown(&texts, &[("conf.d/*", &[2, 1]), ("tls", &[3])]);
        let expected =
            ["0:1 http", "2:1 server", "3:1 ssl on", "1:1 server", "3:1 ssl on", "0:3 a", "4:1 b"];
        assert_eq!(lines, expected);
        let why = "not taken over: what it includes is not read: import a file of a folder";
        assert_eq!(notes, [format!("2:1 include /other: {why}")]);
    }

    #[test]
    fn included_files_with_mistakes_are_left_out() {
        let (lines, notes) = shown(&["a; include b; c;", "\nd 'x"], &[("b", &[1])]);
        assert_eq!(lines, ["0:1 a", "0:1 c"]);
        let why = "not taken over: a mistake in the file: a string does not end";
        assert_eq!(notes, [format!("1:2 include b: {why}")]);
    }

    #[test]
    fn files_that_include_themselves_or_too_much_end() {
        let (lines, notes) = shown(&["include b;", "c;\ninclude a;"], &[("a", &[0]), ("b", &[1])]);
        assert_eq!(lines, ["1:1 c"]);
        let why = "the file includes itself, or more than 10 files include each other";
        assert_eq!(notes, [format!("1:2 include a: not taken over: {why}")]);
        let texts: Vec<String> =
            (1..10).map(|next| format!("include {next};").repeat(10)).collect();
        let files: Vec<File<'_>> = texts.iter().map(|text| File { name: "", text }).collect();
        let included = |number| Included { files: vec![number], failed: Vec::new() };
        let includes: Includes =
            (1..9).map(|number| (number.to_string(), included(number))).collect();
        let error = read(&files, &includes, &mut Notes::default()).unwrap_err();
        assert!(error.to_string().contains("500,000"), "{error}");
    }
}
