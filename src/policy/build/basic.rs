//! `[clients.basic]`: users with passwords, of the file itself or of one that it names. Messages
//! never contain a hash.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use http::HeaderValue;

use super::environment::{Environment, Lookup, Missing};
use super::names::{self, Names};
use super::values::{duration, optional, switch};
use crate::base::duration::micros;
use crate::base::text::cut;
use crate::client::password::{HashError, PasswordHash, Passwords, User};
use crate::client::principal::{Keys, Principal};
use crate::config::Config;
use crate::config::basic::Basic;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::reference::{FileContent, Reference, plain_file};
use crate::config::spanned::Spanned;
use crate::config::tables::TextOrList;

/// Maximum number of users.
const MAX_USERS: usize = 10_000;

/// How many wrong lines of a file are reported.
const MAX_REPORTED: usize = 5;

/// How a line is made.
const LINE_HELP: &str = "`htpasswd -nB alice` prints a line, such as `alice:$2y$05$…`";

/// The users as written.
#[derive(Debug, Default)]
pub(super) struct Users {
    by_name: HashMap<Arc<str>, PasswordHash>,
    /// In the order of the file.
    names: Vec<Arc<str>>,
    /// Whether the file is not at hand, so that it may have any user.
    is_assumed: bool,
}

/// A line with a user.
struct Line<'a> {
    text: &'a str,
    /// The file and the number of the line; `None`: an item of a list.
    place: Option<(&'a str, usize)>,
    span: Range<usize>,
}

/// The table of the file.
pub(super) fn table(config: &Config) -> Option<&Spanned<Basic>> {
    config.clients.as_ref()?.get_ref().basic.as_ref()
}

impl Users {
    /// The users of `[clients.basic]`; none without it.
    pub(super) fn of(
        config: &Config,
        environment: Environment<'_>,
        diagnostics: &mut Diagnostics,
    ) -> Self {
        let mut users = Self::default();
        let Some(table) = table(config) else { return users };
        let Some(field) = &table.get_ref().users else {
            if !diagnostics.explain_absence(&["clients", "basic", "users"]) {
                let help = "write `users = \"file:users.htpasswd\"`; `htpasswd -B` makes the file";
                let message = "`[clients.basic]` has no `users`";
                diagnostics.push(Diagnostic::new(table.span(), message).help(help));
            }
            return users;
        };
        match field.get_ref() {
            TextOrList::List(items) => {
                for item in items {
                    let line = Line { text: item.get_ref(), place: None, span: item.span() };
                    users.add(&line, diagnostics);
                }
            }
            TextOrList::Text(text) => {
                users.read(text, field.span(), environment, diagnostics);
            }
        }
        if users.names.is_empty() && !users.is_assumed && !diagnostics.has_errors() {
            let message = "`users` has no user: every password would be wrong";
            diagnostics.push(Diagnostic::new(field.span(), message).help(LINE_HELP));
        }
        users
    }

    /// Whether a client may have a password.
    pub(super) fn may_have(&self, name: &str) -> bool {
        self.is_assumed || self.by_name.contains_key(name)
    }

    fn read(
        &mut self,
        written: &str,
        span: Range<usize>,
        environment: Environment<'_>,
        diagnostics: &mut Diagnostics,
    ) {
        let Some(path) = plain_file(written).filter(|path| !path.is_empty()) else {
            let message = "`users` is a list of lines, or names a file";
            let help = "write `\"file:users.htpasswd\"`; a relative path begins at the folder of the configuration file";
            diagnostics.push(Diagnostic::new(span, message).here("not shown").help(help));
            return;
        };
        let text = match environment(Reference::File(FileContent::Users, path)) {
            Lookup::Value(text) => text,
            Lookup::Assumed => {
                self.is_assumed = true;
                return;
            }
            Lookup::Missing(Missing { message, help }) => {
                diagnostics.push(Diagnostic::new(span, message).help(help));
                return;
            }
        };
        let shown = cut(path, 64);
        let mut wrong = 0;
        let mut more = Diagnostics::default();
        for (line, number) in text.trim_start_matches('\u{feff}').lines().zip(1..) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let line = Line { text: line, place: Some((&shown, number)), span: span.clone() };
            let to = if wrong < MAX_REPORTED { &mut *diagnostics } else { &mut more };
            if !self.add(&line, to) {
                wrong += 1;
            }
        }
        if wrong > MAX_REPORTED {
            let message = format!("{shown} has {} more wrong lines", wrong - MAX_REPORTED);
            diagnostics.push(Diagnostic::new(span, message));
        }
    }

    /// Adds the user of a line. Returns whether there is nothing wrong with it.
    fn add(&mut self, line: &Line<'_>, diagnostics: &mut Diagnostics) -> bool {
        let place = line.place.map(|(file, number)| format!("{file}:{number}: "));
        let place = place.unwrap_or_default();
        let mut refuse = |message: &str, help: &str| {
            let diagnostic = Diagnostic::new(line.span.clone(), format!("{place}{message}"));
            let diagnostic = diagnostic.help(help);
            let is_item = line.place.is_none();
            diagnostics.push(if is_item { diagnostic.here("not shown") } else { diagnostic });
            false
        };
        let Some((name, hash)) = line.text.split_once(':') else {
            return refuse("a line with a user has its name, a colon and a hash", LINE_HELP);
        };
        if let Some(wrong) = names::wrong("user", name) {
            return refuse(&wrong, names::ALLOWED);
        }
        let hash = match PasswordHash::parse(hash) {
            Ok(hash) => hash,
            Err(error) => {
                let help = match error {
                    HashError::Method | HashError::Malformed => {
                        "`htpasswd -B` and `openssl passwd -6` make such hashes"
                    }
                    HashError::Cost(_) | HashError::Rounds => {
                        "the gateway verifies a password for each new login: `htpasswd -B -C 10`"
                    }
                };
                return refuse(&format!("user `{}`: {error}", cut(name, 64)), help);
            }
        };
        if self.names.len() >= MAX_USERS {
            let help = "this is for small set-ups; others use tokens, or the key store";
            return refuse(&format!("there are more than {MAX_USERS} users"), help);
        }
        let name: Arc<str> = Arc::from(name);
        if self.by_name.insert(Arc::clone(&name), hash).is_some() {
            return refuse(&format!("user `{name}` is written twice"), "take one of them out");
        }
        self.names.push(name);
        true
    }
}

/// The users with their clients: those of `[keys]` with the same names, and others, which are added
/// to `keys`. `anonymous_plan` is the plan of clients without a key.
pub(super) fn passwords(
    config: &Config,
    names: &Names,
    mut users: Users,
    keys: &mut Keys,
    anonymous_plan: Option<u32>,
    diagnostics: &mut Diagnostics,
) -> Option<Passwords> {
    let table = table(config)?.get_ref();
    let plan = optional(table.plan.as_ref(), |plan| names.plans.find(plan, diagnostics));
    let kept = duration(&Basic::cache, &table.cache, diagnostics);
    let realm = realm(table, diagnostics);
    let plan = plan?.or(anonymous_plan)?;
    let mut with_clients = HashMap::new();
    for name in &users.names {
        let Some(hash) = users.by_name.remove(name) else { continue };
        let principal = keys.named(name).map(Arc::clone);
        let principal =
            principal.unwrap_or_else(|| keys.add(Principal::new(Arc::clone(name), plan, true)));
        with_clients.insert(Arc::clone(name), User { principal, hash });
    }
    let challenge = format!("Basic realm=\"{}\", charset=\"UTF-8\"", realm?);
    let challenge = HeaderValue::try_from(challenge).ok()?;
    let is_hidden = switch(&Basic::hide_password, &table.hide_password);
    Passwords::new(with_clients, challenge, is_hidden, micros(kept?))
}

/// The realm: visible ASCII and spaces, without quotation marks and backslashes.
fn realm(table: &Basic, diagnostics: &mut Diagnostics) -> Option<String> {
    let Some(field) = &table.realm else { return Basic::realm.text().map(str::to_owned) };
    let text = field.get_ref();
    let (least, most) = Basic::realm.range().characters();
    let is_plain = |c: char| matches!(c, ' '..='~') && !matches!(c, '"' | '\\');
    if (least..=most).contains(&text.chars().count()) && text.chars().all(is_plain) {
        return Some(text.clone());
    }
    let message =
        format!("`realm` has {least} to {most} characters of ASCII, without `\"` and `\\`");
    let help = "browsers show it when they ask for a password";
    diagnostics.push(Diagnostic::new(field.span(), message).help(help));
    None
}
