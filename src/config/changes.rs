//! The differences between two files, setting by setting. Defaults are not filled in: a setting
//! that was left out before and is written now has changed from nothing.

use std::collections::BTreeSet;
use std::fmt;

use super::outline::{Outline, Setting, Value};
use super::reference::FileContent;
use crate::base::text::cut;

/// How much of a value is shown, in characters.
const SHOWN: usize = 200;

/// How many changes one line lists.
const LISTED: usize = 20;

/// How many changes are kept. Further ones are only counted.
const MAX_KEPT: usize = 1_000;

/// Tables whose entries have a name, and the kind of their entries.
const NAMED: [(&str, &str); 7] = [
    ("listeners", "listener"),
    ("plans", "plan"),
    ("keys", "key"),
    ("tenants", "tenant"),
    ("upstreams", "upstream"),
    ("routes", "route"),
    ("rules", "rule"),
];

/// All changes from one file to another.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Changes {
    /// Sorted by table and name.
    pub list: Vec<Change>,
    /// How many further changes there are.
    pub not_kept: usize,
}

/// An entry that was added or removed, or a setting that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// `listener`, `plan`, `key`, `tenant`, `upstream`, `route`, `rule`, or `setting` for a table
    /// without names.
    pub kind: &'static str,
    /// Its name; for a setting, its whole path.
    pub name: String,
    /// Whether it was added, removed or changed, with both values unless they are secret.
    pub what: What,
}

/// How an entry or a setting changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Only the new file has it.
    Added,
    /// Only the old file has it.
    Removed,
    /// One of its settings changed.
    Changed {
        /// The setting within it; empty if it is the setting itself.
        setting: String,
        /// The old value as TOML; none if there was none.
        from: Option<String>,
        /// The new value as TOML; none if there is none.
        to: Option<String>,
    },
    /// One of its settings names a file of networks, and the file changed.
    Networks {
        /// The setting within it; empty if it is the setting itself.
        setting: String,
    },
    /// One of its settings names a file with the body of an error, and the file changed.
    ErrorBody {
        /// The setting within it; empty if it is the setting itself.
        setting: String,
    },
    /// One of its settings changed, and is secret.
    Secret {
        /// The setting within it; empty if it is the setting itself.
        setting: String,
    },
}

impl Changes {
    /// The changes from `old` to `new`.
    pub fn between(old: &Outline, new: &Outline) -> Self {
        let mut changes = Self::default();
        let paths: BTreeSet<&Vec<String>> = old.entries.keys().chain(new.entries.keys()).collect();
        // An entry that is new or gone is one change. Its settings follow it in the order of paths.
        let mut whole: Option<(&str, &str)> = None;
        for path in paths {
            let [was, is] = [old, new].map(|file| file.entries.get(path));
            let (Some(kind), Some(table), Some(name)) = (kind(path), path.first(), path.get(1))
            else {
                changes.compare("setting", &path.join("."), String::new(), was, is);
                continue;
            };
            if whole == Some((table, name)) {
                continue;
            }
            match (path.len(), was, is) {
                (2, None, _) | (2, _, None) => {
                    whole = Some((table, name));
                    let what = if was.is_none() { What::Added } else { What::Removed };
                    changes.push(kind, name, what);
                }
                _ => changes.compare(kind, name, path[2..].join("."), was, is),
            }
        }
        changes
    }

    /// The changes from `old` to `new` without those of secrets that both have: whether they are
    /// equal would confirm a guess. Their paths are the second part of the result. Hashes of keys
    /// are compared.
    pub fn without_secrets(mut old: Outline, mut new: Outline) -> (Self, Vec<String>) {
        let is_hash = |path: &[String]| match path {
            [table, .., name] => table == "keys" && name == "sha256",
            _ => false,
        };
        let is_hidden = |path: &Vec<String>| {
            let both = [&old, &new].map(|file| file.entries.get(path));
            let [Some(was), Some(is)] = both else { return false };
            (was.is_secret() || is.is_secret()) && !is_hash(path)
        };
        let hidden: Vec<Vec<String>> =
            old.entries.keys().filter(|path| is_hidden(path)).cloned().collect();
        for path in &hidden {
            old.entries.remove(path);
            new.entries.remove(path);
        }
        let names = hidden.iter().map(|path| path.join(".")).collect();
        (Self::between(&old, &new), names)
    }

    /// The number of changes.
    pub fn count(&self) -> usize {
        self.list.len() + self.not_kept
    }

    fn compare(
        &mut self,
        kind: &'static str,
        name: &str,
        setting: String,
        was: Option<&Setting>,
        is: Option<&Setting>,
    ) {
        let content = is.map(|is| is.content);
        let revisions = was.and_then(|was| was.revision).zip(is.and_then(|is| is.revision));
        let [was, is] = [was, is].map(|setting| setting.map(|setting| &setting.value));
        if was == is && revisions.is_some_and(|(was, is)| was != is) {
            return self.push(
                kind,
                name,
                match content {
                    Some(FileContent::Networks) => What::Networks { setting },
                    Some(FileContent::ErrorBody) => What::ErrorBody { setting },
                    Some(FileContent::Secret | FileContent::Users) | None => {
                        What::Secret { setting }
                    }
                },
            );
        }
        let is_table = |value: Option<&Value>| matches!(value, None | Some(Value::Table));
        if was == is || (is_table(was) && is_table(is)) {
            return;
        }
        let is_secret = |value: Option<&Value>| matches!(value, Some(Value::Secret(_)));
        if is_secret(was) || is_secret(is) {
            return self.push(kind, name, What::Secret { setting });
        }
        let text = |value: Option<&Value>| match value {
            Some(Value::Plain(text)) => Some(cut(text, SHOWN)),
            _ => None,
        };
        self.push(kind, name, What::Changed { setting, from: text(was), to: text(is) });
    }

    fn push(&mut self, kind: &'static str, name: &str, what: What) {
        if self.list.len() < MAX_KEPT {
            self.list.push(Change { kind, name: cut(name, SHOWN), what });
        } else {
            self.not_kept += 1;
        }
    }
}

/// Kind of the entry or setting at a path, as in [`Change::kind`].
fn kind(path: &[String]) -> Option<&'static str> {
    let table = path.first()?;
    NAMED.iter().find(|(name, _)| name == table).map(|(_, kind)| *kind)
}

impl fmt::Display for Changes {
    /// In one line: the number of changes, then each.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count() {
            0 => return formatter.write_str("no setting changed"),
            1 => formatter.write_str("1 change")?,
            count => write!(formatter, "{count} changes")?,
        }
        for (index, change) in self.list.iter().take(LISTED).enumerate() {
            write!(formatter, "{} {change}", if index == 0 { ":" } else { ";" })?;
        }
        match self.count().saturating_sub(LISTED) {
            0 => Ok(()),
            more => write!(formatter, "; and {more} more"),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, what } = self;
        if *kind == "setting" {
            formatter.write_str(name)?;
        } else {
            write!(formatter, "{kind} {name}")?;
        }
        let written = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".into());
        match what {
            What::Added => formatter.write_str(" added"),
            What::Removed => formatter.write_str(" removed"),
            What::Networks { setting } => {
                let space = if setting.is_empty() { "" } else { " " };
                write!(formatter, "{space}{setting}: the file of networks changed")
            }
            What::ErrorBody { .. } => formatter.write_str(": the file changed"),
            What::Secret { .. } => formatter.write_str(": the secret changed"),
            What::Changed { setting, from, to } => {
                let space = if setting.is_empty() { "" } else { " " };
                write!(formatter, "{space}{setting}: {} -> {}", written(from), written(to))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(old: &str, new: &str) -> String {
        Changes::between(&Outline::of(old), &Outline::of(new)).to_string()
    }

    #[test]
    fn changes_are_listed_in_one_line() {
        let table = [
            ("", "", "no setting changed"),
            ("[plans.a]", "plans = { a = {} }  # the same", "no setting changed"),
            ("[plans.a]", "[plans.a]\n[plans.b]", "1 change: plan b added"),
            ("[rules.a]\nrate = '1/s'\nper = []", "", "1 change: rule a removed"),
            (
                "[rules.a]\nrate = '1/s'\nplans.b = { burst = 1 }",
                "[rules.a]\nrate = \"2/s\"\nplans = { b = { rate = '1/s' } }",
                "3 changes: rule a plans.b.burst: 1 -> nothing; rule a plans.b.rate: nothing -> \
                 \"1/s\"; rule a rate: \"1/s\" -> \"2/s\"",
            ),
            (
                "[server]\nlisten = ['a', 'b']",
                "[server]\nlisten = ['a']\nread_timeout = '5s'",
                "2 changes: server.listen: [\"a\", \"b\"] -> [\"a\"]; server.read_timeout: nothing \
                 -> \"5s\"",
            ),
            (
                "[[listeners]]\naddress = 'a'\n[[listeners]]\naddress = 'b'\nhttp2 = true",
                "[[listeners]]\naddress = 'b'\nmin_tls = '1.3'\n[[listeners]]\naddress = 'c'",
                "4 changes: listener a removed; listener b http2: true -> nothing; listener b \
                 min_tls: nothing -> \"1.3\"; listener c added",
            ),
            (
                "[[listeners]]\naddress = 'a:0'\n[[listeners]]\naddress = 'a:0'",
                "[[listeners]]\naddress = 'a:0'\ncertificates = [{ cert = 'a', key = 'b' }]",
                "2 changes: listener a:0 certificates: nothing -> [{ cert = \"a\", key = \"b\" }]; \
                 listener a:0#2 removed",
            ),
            ("[headers]\nstyle = 'x'", "", "1 change: headers.style: \"x\" -> nothing"),
            (
                "[routes.a]\nmethods = ['GET']",
                "[routes.a]\nmethods = [\n  'GET',  # all\n]",
                "no setting changed",
            ),
            (
                "[routes.a]\n[routes.b]",
                "[routes.b]\n[routes.c]",
                "2 changes: route a removed; route c added",
            ),
        ];
        for (old, new, expected) in table {
            assert_eq!(changes(old, new), expected);
        }
    }

    #[test]
    fn changed_file_of_networks_is_a_change_of_its_settings() {
        let text = "[server]\ndeny_ips = ['file:a']\n[routes.r]\nallow_ips = ['::1', 'file:b', 'file:a']\n\
            deny_ips = ['file:b']";
        let of = |a: u8, b: u8| Outline::of(text).with_files([("a", &[a; 32]), ("b", &[b; 32])]);
        let changes = |old: &Outline, new: &Outline| Changes::between(old, new).to_string();
        assert_eq!(changes(&of(1, 2), &of(1, 2)), "no setting changed");
        assert_eq!(
            changes(&of(1, 2), &of(3, 2)),
            "2 changes: route r allow_ips: the file of networks changed; server.deny_ips: the file of \
             networks changed"
        );
    }

    #[test]
    fn changed_file_of_an_error_is_a_change_of_its_setting() {
        let text = "[errors.429]\n'text/html' = 'file:a'\n'text/plain' = 'a'\n[errors.5xx]\n\
            'text/html' = 'file:b'";
        let of = |a: u8| Outline::of(text).with_files([("a", &[a; 32]), ("b", &[0; 32])]);
        let changes = Changes::between(&of(1), &of(2)).to_string();
        assert_eq!(changes, "1 change: errors.429.text/html: the file changed");
    }

    #[test]
    fn secrets_and_hashes_are_not_shown() {
        let (old, new) = ("1a".repeat(32), "2b".repeat(32));
        let table = [
            (format!("[keys.a]\nsha256 = '{old}'"), format!("[keys.a]\nsha256 = '{new}'"), "key a"),
            (
                "[redis]\npassword = '1a1a'".to_owned(),
                "[redis]\npassword = '2b2b'".to_owned(),
                "redis.password",
            ),
            (
                "[redis]\nurl = 'redis://:1a1a@h'".to_owned(),
                "[redis]\nurl = 'redis://:2b2b@h'".to_owned(),
                "redis.url",
            ),
        ];
        for (old, new, name) in table {
            let expected = format!("1 change: {name}: the secret changed");
            assert_eq!(changes(&old, &new), expected);
        }
    }

    #[test]
    fn changed_file_of_a_setting_is_a_changed_secret() {
        let text = "[redis]\nurl = 'redis://:${file:a}@h'\npassword = '${file:b}'\nca = '/c'";
        let of = |a, b| Outline::of(text).with_files([("a", &[a; 32]), ("b", &[b; 32])]);
        let changes = |old: &Outline, new: &Outline| Changes::between(old, new).to_string();
        assert_eq!(changes(&of(1, 2), &of(1, 2)), "no setting changed");
        let expected = "1 change: redis.password: the secret changed";
        assert_eq!(changes(&of(1, 2), &of(1, 3)), expected);
        let expected =
            "2 changes: redis.password: the secret changed; redis.url: the secret changed";
        assert_eq!(changes(&of(1, 2), &of(3, 4)), expected);
    }

    #[test]
    fn long_list_is_cut_and_counted() {
        let many: Vec<String> = (0..1_500).map(|number| format!("[plans.p{number}]")).collect();
        let all = Changes::between(&Outline::default(), &Outline::of(&many.join("\n")));
        assert_eq!((all.list.len(), all.count()), (1_000, 1_500));
        assert!(all.to_string().ends_with("; and 1480 more"));
    }
}
