//! Names of plans, keys, tenants, upstreams, routes and rules, and their indexes.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::suggest::{self, key};
use crate::config::{Config, Named, in_order};

/// Maximum length of a name. Names are part of headers, metrics and bucket ids.
const MAX_NAME_BYTES: usize = 64;

/// What a name may have.
pub(super) const ALLOWED: &str = "a name is made of letters A-Z and a-z, digits, `_`, `.` and `-`";

/// The plan of a file without plans.
const IMPLICIT_PLAN: &str = "default";

/// All names of a file.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) plans: NameList,
    pub(super) keys: NameList,
    pub(super) tenants: NameList,
    pub(super) upstreams: NameList,
    pub(super) routes: NameList,
    pub(super) rules: NameList,
    /// Whether the file has plans.
    pub(super) has_plans: bool,
}

/// The names of one kind, in the order of the file, at their indexes.
#[derive(Debug)]
pub(super) struct NameList {
    /// What they name, such as `plan`, for messages.
    kind: &'static str,
    /// The table that has them, such as `plans`.
    table: &'static str,
    names: Vec<Arc<str>>,
    spans: Vec<Range<usize>>,
    index: HashMap<Arc<str>, u32>,
}

impl Names {
    /// The names of `config`, each checked.
    pub(super) fn of(config: &Config, diagnostics: &mut Diagnostics) -> Self {
        let mut plans = NameList::of("plan", "plans", &config.plans, diagnostics);
        let has_plans = !config.plans.is_empty();
        if !has_plans {
            plans.add(IMPLICIT_PLAN, 0..0);
        }
        Self {
            plans,
            keys: NameList::of("key", "keys", &config.keys, diagnostics),
            tenants: NameList::of("tenant", "tenants", &config.tenants, diagnostics),
            upstreams: NameList::of("upstream", "upstreams", &config.upstreams, diagnostics),
            routes: NameList::of("route", "routes", &config.routes, diagnostics),
            rules: NameList::of("rule", "rules", &config.rules, diagnostics),
            has_plans,
        }
    }
}

impl Names {
    /// A tenant that the file refers to. If the file has tenants, it is one of them, so that a
    /// misspelt name is an error.
    pub(super) fn tenant(&self, name: &Spanned<String>, diagnostics: &mut Diagnostics) -> Arc<str> {
        if self.tenants.names().is_empty() {
            check("tenant", name, diagnostics);
        } else {
            self.tenants.find(name, diagnostics);
        }
        Arc::from(name.get_ref().as_str())
    }
}

impl NameList {
    fn of<T>(
        kind: &'static str,
        table: &'static str,
        named: &Named<T>,
        diagnostics: &mut Diagnostics,
    ) -> Self {
        let (index, spans) = (HashMap::new(), Vec::new());
        let mut list = Self { kind, table, names: Vec::new(), spans, index };
        for (name, _) in in_order(named) {
            check(kind, name, diagnostics);
            list.add(name.get_ref(), name.span());
        }
        list
    }

    fn add(&mut self, name: &str, span: Range<usize>) {
        let name: Arc<str> = Arc::from(name);
        let index = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.index.insert(name.clone(), index);
        self.names.push(name);
        self.spans.push(span);
    }

    /// The names at their indexes.
    pub(super) fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// The span of the first name; none without names.
    pub(super) fn first_span(&self) -> Option<Range<usize>> {
        self.spans.first().cloned()
    }

    /// The index of `name`; none if the file does not have it.
    pub(super) fn index_of(&self, name: &str) -> Option<u32> {
        self.index.get(name).copied()
    }

    /// The index of a name that the file refers to, or a diagnostic if there is none.
    pub(super) fn find(
        &self,
        name: &Spanned<String>,
        diagnostics: &mut Diagnostics,
    ) -> Option<u32> {
        let found = self.index_of(name.get_ref());
        if found.is_none()
            && !diagnostics.is_full()
            && !diagnostics.explain_unknown(&[self.table, name.get_ref()])
        {
            let message = format!("there is no {} `{}`", self.kind, cut(name.get_ref(), 64));
            let names: Vec<&str> = self.names.iter().map(|name| &**name).collect();
            let add = format!("add `[{}.{}]`", self.table, key(name.get_ref()));
            let help = if names.is_empty() {
                add
            } else if self.spans.iter().all(Range::is_empty) {
                format!("{add}; the file has no plans, so all clients have one, `{IMPLICIT_PLAN}`")
            } else {
                suggest::help_lines(name.get_ref(), &names)
            };
            diagnostics.push(Diagnostic::new(name.span(), message).help(help));
        }
        found
    }

    /// As [`find_all`](Self::find_all), but the names.
    pub(super) fn find_names(
        &self,
        list: &[Spanned<String>],
        diagnostics: &mut Diagnostics,
    ) -> Vec<Arc<str>> {
        let found = self.find_all(list, diagnostics);
        found.iter().filter_map(|index| self.names.get(*index as usize).cloned()).collect()
    }

    /// The indexes of a list of names, without repetitions, which are errors.
    pub(super) fn find_all(
        &self,
        list: &[Spanned<String>],
        diagnostics: &mut Diagnostics,
    ) -> Vec<u32> {
        let mut found: Vec<u32> = Vec::new();
        let mut seen: HashMap<&str, Range<usize>> = HashMap::new();
        for name in list {
            if let Some(first) = seen.insert(name.get_ref(), name.span()) {
                diagnostics.push(twice(name, first));
            } else if let Some(index) = self.find(name, diagnostics) {
                found.push(index);
            }
        }
        found
    }
}

/// The diagnostic of an item that a list has twice.
pub(super) fn twice(item: &Spanned<String>, first: Range<usize>) -> Diagnostic {
    Diagnostic::new(item.span(), format!("`{}` is written twice", cut(item.get_ref(), 64)))
        .and(first, "here first")
}

/// Checks that a name can be part of a header, a metric and a bucket id without encoding.
pub(super) fn check(kind: &str, name: &Spanned<String>, diagnostics: &mut Diagnostics) {
    let text = name.get_ref();
    let Some(wrong) = wrong(kind, text) else { return };
    let diagnostic = Diagnostic::new(name.span(), wrong);
    diagnostics.push(if text.chars().count() > MAX_NAME_BYTES {
        let help =
            format!("a name has at most {MAX_NAME_BYTES}; this one begins `{}`", cut(text, 24));
        diagnostic.here("too long").help(help)
    } else {
        diagnostic.help(ALLOWED)
    });
}

/// Why a text cannot be a name; `None` if it can.
pub(super) fn wrong(kind: &str, text: &str) -> Option<String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    let length = text.chars().count();
    if length == 0 {
        Some(format!("the name of a {kind} is empty"))
    } else if length > MAX_NAME_BYTES {
        Some(format!("the name of a {kind} has {length} characters"))
    } else {
        let wrong = text.chars().find(|c| !is_allowed(*c))?;
        Some(format!("the name of a {kind} cannot hold {}", cut(&format!("{wrong:?}"), 16)))
    }
}
