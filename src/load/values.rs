//! The values of `${…}` in one load of a configuration file.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;

use super::secret_files::{SecretFile, SecretFiles};
use crate::config::reference::{FileContent, Reference};
use crate::policy::build::{Lookup, variable};

/// What happens to a `${…}` without a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// It is an error.
    Reject,
    /// Any value that fits is assumed, for a check where variables and files are not at hand.
    Assume,
    /// As `Assume`, and nothing is looked up at all: for a text whose author must not learn
    /// anything about the values.
    AssumeAll,
}

/// Looks up the values of one load, and records what was looked up.
#[derive(Debug)]
pub(super) struct Values {
    files: SecretFiles,
    unknown: Unknown,
    /// What was assumed, as it is written in the file.
    assumed: RefCell<BTreeSet<String>>,
}

impl Values {
    /// The values of the configuration file at `path`.
    pub(super) fn of(path: &Path, unknown: Unknown) -> Self {
        Self { files: SecretFiles::of(path), unknown, assumed: RefCell::default() }
    }

    /// The folder of the configuration file.
    pub(super) fn folder(&self) -> &Path {
        self.files.folder()
    }

    /// What is done about a `${…}` without a value.
    pub(super) fn unknown(&self) -> Unknown {
        self.unknown
    }

    pub(super) fn look_up(&self, reference: Reference<'_>) -> Lookup {
        if self.unknown == Unknown::AssumeAll {
            return self.assume(&reference.to_string());
        }
        let assumes = self.unknown == Unknown::Assume;
        match reference {
            Reference::Variable(name) => match variable(name, std::env::var(name).ok()) {
                Lookup::Missing(_) if assumes => self.assume(&reference.to_string()),
                found => found,
            },
            Reference::File(content, path) => self.file(content, path, reference),
        }
    }

    fn file(&self, content: FileContent, path: &str, reference: Reference<'_>) -> Lookup {
        let assumes = self.unknown == Unknown::Assume;
        self.files.value(content, path, |value| match value {
            Ok(text) => Lookup::Value(text.to_owned()),
            Err(error) if assumes && error.is_absence() => self.assume(&reference.to_string()),
            Err(error) => Lookup::Missing(error.missing(content)),
        })
    }

    /// Records something of the file whose value is assumed.
    pub(super) fn assume(&self, written: &str) -> Lookup {
        self.assumed.borrow_mut().insert(written.to_owned());
        Lookup::Assumed
    }

    /// What was assumed, as it is written in the file, in alphabetical order.
    pub(super) fn assumed(&self) -> Vec<String> {
        self.assumed.borrow().iter().cloned().collect()
    }

    /// The files that were looked up.
    pub(super) fn files(&self) -> Vec<SecretFile> {
        self.files.list()
    }
}
