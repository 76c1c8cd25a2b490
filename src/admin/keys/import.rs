//! `POST /api/keys/import`: many clients, one a line.

use std::collections::BTreeSet;

use super::{Keys, is_object, unread, unwritten, without_texts};
use crate::admin::answer::Answer;
use crate::api::keys::{FailedLine, Imported, NewClient};
use crate::base::clock;
use crate::keys::kept::{Replaced, Replacement, Stored};
use crate::keys::record::Record;

/// Tenants of one import that the audit names, at most.
const MOST_TENANTS: usize = 100;

/// A line to import.
struct Line {
    number: u64,
    record: Record,
}

impl Keys<'_> {
    /// Imports JSON Lines. Lines that are in the store already change nothing, so that an import
    /// can be repeated.
    pub(in crate::admin) async fn import(self, body: &[u8]) -> Result<Answer, Box<Answer>> {
        let mut imported = Imported::default();
        let lines = self.lines(body, &mut imported);
        let ids: Vec<&str> = lines.iter().map(|line| line.record.id.as_str()).collect();
        let stored = self.store.kept.get(&ids).await.map_err(|error| unread(&error))?;
        let mut new = Vec::new();
        for (line, stored) in lines.into_iter().zip(stored) {
            match stored {
                None => new.push(line),
                Some(Stored { record: Ok(stored), .. }) if stored.is_same_client(&line.record) => {
                    imported.unchanged += 1;
                }
                Some(_) => {
                    imported.fail(line.number, "the key store has another client of this id");
                }
            }
        }
        let replacements: Vec<Replacement> = new.iter().map(replacement).collect();
        let replaced = self.store.kept.replace(&replacements).await;
        self.store.note_change();
        let ids = |new: &[Line]| new.iter().map(|line| line.record.id.clone()).collect();
        let replaced = replaced.map_err(|error| {
            let tenants = shared_by(new.iter().map(|line| line.record.tenant.as_deref()));
            Box::new(unwritten(&error).about(ids(&new)).of_tenants(tenants))
        })?;
        let (mut created, mut tenants) = (Vec::new(), Vec::new());
        for (line, replaced) in new.iter().zip(replaced) {
            match replaced {
                Replaced::Done => {
                    imported.created += 1;
                    created.push(line.record.id.clone());
                    tenants.push(line.record.tenant.as_deref());
                }
                Replaced::Changed => {
                    imported.fail(
                        line.number,
                        "the import or the key store has another client of this id",
                    );
                }
                Replaced::KeyOfAnother => {
                    imported.fail(line.number, "another client has one of these keys");
                }
            }
        }
        imported.failed.sort_by_key(|failed| failed.line);
        let note = format!(
            "{} clients imported, {} unchanged, {} failed",
            imported.created,
            imported.unchanged,
            imported.failed.len()
        );
        Ok(Answer::json(&imported).noting(note).about(created).of_tenants(shared_by(tenants)))
    }

    /// The lines that are valid.
    fn lines(self, body: &[u8], imported: &mut Imported) -> Vec<Line> {
        let mut lines = Vec::new();
        let now_us = clock::unix_us();
        for (number, text) in (1..).zip(body.split(|byte| *byte == b'\n')) {
            if text.trim_ascii().is_empty() {
                continue;
            }
            if !is_object(text) {
                imported.fail(number, "a line is a JSON object");
                continue;
            }
            let new: NewClient = match serde_json::from_slice(text) {
                Ok(new) => new,
                Err(error) => {
                    imported.fail(number, &without_texts(&error));
                    continue;
                }
            };
            if new.secrets.is_none() || new.id.is_none() {
                imported.fail(number, "a line has an `id` and `secrets`, which may be empty");
                continue;
            }
            match self.new_record(new, now_us) {
                Ok((record, _)) => lines.push(Line { number, record }),
                Err(refused) => imported.fail(number, refused.detail()),
            }
        }
        lines
    }
}

impl Imported {
    fn fail(&mut self, line: u64, why: &str) {
        self.failed.push(FailedLine { line, why: why.to_owned() });
    }
}

/// The tenants of imported clients, each once, for the audit. None if a client has none: the change
/// would be shown to the tenant of the others. None of more than [`MOST_TENANTS`] either.
fn shared_by<'a>(tenants: impl IntoIterator<Item = Option<&'a str>>) -> BTreeSet<&'a str> {
    let all: Option<BTreeSet<&str>> = tenants.into_iter().collect();
    all.filter(|all| all.len() <= MOST_TENANTS).unwrap_or_default()
}

fn replacement(line: &Line) -> Replacement {
    let record = line.record.clone();
    Replacement { id: record.id.clone(), before: None, after: Some(record) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn import_names_its_tenants_unless_a_client_has_none_or_they_are_too_many() {
        let names: Vec<String> = (0..=MOST_TENANTS).map(|number| number.to_string()).collect();
        let of = |count: usize| shared_by(names[..count].iter().map(|name| Some(name.as_str())));
        assert_eq!(of(MOST_TENANTS).len(), MOST_TENANTS);
        assert!(of(MOST_TENANTS + 1).is_empty());
        assert_eq!(shared_by([Some("acme"), Some("acme")]), BTreeSet::from(["acme"]));
        assert!(shared_by([Some("acme"), None]).is_empty());
    }
}
