//! `lease` of a rule: whether gateways borrow tokens of its buckets.

use super::words::meaning;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::{rules as written, words};
use crate::policy::{Kind, Lease};

/// The lease of a rule; off if it is left out, or with an error.
pub(super) fn lease(table: &written::Rule, diagnostics: &mut Diagnostics) -> Lease {
    let Some(setting) = &table.lease else { return Lease::Off };
    let lease = match setting.get_ref() {
        written::Lease::Word(words::LeaseWord::Off) => return Lease::Off,
        written::Lease::Word(words::LeaseWord::Auto) => Lease::Auto,
        written::Lease::Tokens(tokens) => Lease::UpTo(*tokens),
    };
    if lease == Lease::UpTo(0) {
        let message = "a lease of 0 tokens would never save a call";
        let help = "write `lease = \"off\"`, or `lease = \"auto\"`";
        diagnostics.push(Diagnostic::new(setting.span(), message).help(help));
        return Lease::Off;
    }
    let kind: Kind = meaning(table.kind.as_ref());
    if kind == Kind::TokenBucket {
        return lease;
    }
    let message = format!("`lease` is for token buckets, and this rule is a {}", kind.name());
    let mut diagnostic = Diagnostic::new(setting.span(), message);
    if let Some(kind) = &table.kind {
        diagnostic = diagnostic.and(kind.span(), "requests of this kind ask Redis".to_owned());
    }
    diagnostics.push(diagnostic.help("take `lease` out"));
    Lease::Off
}
