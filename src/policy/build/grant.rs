//! Builds limits from the grants of rules, plans and keys. The rule's kind reads the settings of a
//! grant.

mod concurrency;
pub(super) mod fixed_window;
mod leaky_bucket;
mod sliding_window;
mod token_bucket;

use std::collections::HashMap;
use std::ops::Range;

use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::rules::{Burst, LimitText};
use crate::config::spanned::Spanned;
use crate::config::tables::Field;
use crate::limit::Limit;
use crate::limit::fixed_window::Overage;
use crate::policy::{Grant, Kind, Quotas, Rule, WrittenLimit};

/// All distinct limits of the file.
#[derive(Debug, Default)]
pub(super) struct Limits {
    list: Vec<Limit>,
    index: HashMap<Limit, u32>,
}

/// A grant, the plan or key that has it, and the place that sets its burst.
#[derive(Debug, Clone)]
pub(super) struct PlacedGrant {
    pub(super) grant: Grant,
    /// Words that follow "the rule allows" in messages: empty, ` the plan …` or ` the key …`.
    pub(super) owner: String,
    /// The burst, or the rate or limit if the burst is left out.
    pub(super) span: Range<usize>,
    /// Whether the burst is left out.
    pub(super) is_default_burst: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Written<'a> {
    /// Kind of the rule.
    pub(super) kind: Kind,
    /// Parts of a token that the costs of the rule's routes take.
    pub(super) parts: u16,
    pub(super) rate: &'a Field<String>,
    pub(super) limit: &'a Field<LimitText>,
    pub(super) burst: &'a Field<Burst>,
    /// `max_delay` of the grant, else of the rule.
    pub(super) max_delay: &'a Field<String>,
    /// `zone` of the rule.
    pub(super) zone: &'a Field<String>,
    /// `anchor` of the rule.
    pub(super) anchor: &'a Field<u64>,
    /// `soft` of the grant, else of the rule.
    pub(super) soft: &'a Field<String>,
    /// `overage` of the grant, else of the rule.
    pub(super) overage: &'a Field<Overage>,
}

/// Help for a limit of 0.
const LEAVE_OUT: &str = "to refuse requests, leave the route out instead";

/// A kind whose grants have a `limit`, and neither a rate nor a burst. Words of its messages.
struct LimitAlone {
    /// The kind, with its article.
    kind: &'static str,
    example: &'static str,
    /// Why it has no burst.
    no_burst: &'static str,
    /// The kind that has one.
    bucket: &'static str,
}

/// A limit that a kind has read from a grant.
#[derive(Debug, Clone)]
struct ReadLimit {
    limit: Limit,
    written: WrittenLimit,
    /// See [`PlacedGrant::span`].
    span: Range<usize>,
    is_default_burst: bool,
}

impl LimitAlone {
    /// The `limit` of a grant; none without one, or if there is another setting.
    fn field<'a>(
        &self,
        written: Written<'a>,
        diagnostics: &mut Diagnostics,
    ) -> Option<&'a Spanned<LimitText>> {
        let Self { kind, example, no_burst, bucket } = self;
        if let Some(rate) = written.rate {
            let message = format!("{kind} has a `limit`, and no `rate`");
            let help = format!(
                "write `limit = {example}` in its place, or take `kind` out for a token bucket"
            );
            diagnostics.push(Diagnostic::new(rate.span(), message).help(help));
            return None;
        }
        if let Some(burst) = written.burst {
            let message = format!("{kind} has no `burst`{no_burst}");
            let help = format!("take `burst` out, or take `kind` out for {bucket}");
            diagnostics.push(Diagnostic::new(burst.span(), message).help(help));
            return None;
        }
        written.limit.as_ref()
    }
}

impl ReadLimit {
    /// A limit without a burst of its own. Reports an error.
    fn without_burst(
        read: Result<(Limit, WrittenLimit), Diagnostic>,
        span: Range<usize>,
        diagnostics: &mut Diagnostics,
    ) -> Option<Self> {
        let (limit, written) = diagnostics.keep_ok(read)?;
        Some(Self { limit, written, span, is_default_burst: false })
    }
}

/// Help for a number that cannot be a limit.
const fn help_for(limit: u64) -> &'static str {
    if limit == 0 { LEAVE_OUT } else { "take a smaller one" }
}

impl Limits {
    /// Which of them are quotas. Clients of a key store have quotas and warnings of their own,
    /// under the `rules` of that kind.
    pub(super) fn quotas(&self, rules: &[Rule], has_key_store: bool) -> Quotas {
        let warns = self.list.iter().any(Limit::has_soft);
        let has_others = has_key_store && rules.iter().any(|rule| rule.kind == Kind::FixedWindow);
        if warns || has_others {
            return Quotas::Warned;
        }
        let has_quotas = self.list.iter().any(|limit| limit.quota_calendar().is_some());
        if has_quotas { Quotas::Counted } else { Quotas::None }
    }

    /// The limits, at the indexes that grants refer to.
    pub(super) fn into_list(self) -> Vec<Limit> {
        self.list
    }

    pub(super) fn index_of(&mut self, limit: Limit) -> u32 {
        *self.index.entry(limit).or_insert_with(|| {
            self.list.push(limit);
            u32::try_from(self.list.len() - 1).unwrap_or(u32::MAX)
        })
    }
}

impl Written<'_> {
    /// Whether the grant has the setting that makes it a limit.
    pub(super) const fn is_limit(&self) -> bool {
        self.rate.is_some() || self.limit.is_some()
    }
}

/// The grant of the table at `path` and `span`, which must have a rate or limit.
pub(super) fn required(
    written: Written<'_>,
    path: &[&str],
    span: Range<usize>,
    limits: &mut Limits,
    diagnostics: &mut Diagnostics,
) -> Option<PlacedGrant> {
    if !written.is_limit() {
        if !is_explained(path, "rate", diagnostics) && !is_explained(path, "limit", diagnostics) {
            let (what, example) = written.kind.grant_example();
            let help = format!("write `{example}`");
            let message = format!("`{}` has no {what}", path.join("."));
            diagnostics.push(Diagnostic::new(span, message).help(help));
        }
        return None;
    }
    optional(written, path, limits, diagnostics)
}

/// The grant in the table at `path`; none without a rate and a limit, or with an error.
pub(super) fn optional(
    written: Written<'_>,
    path: &[&str],
    limits: &mut Limits,
    diagnostics: &mut Diagnostics,
) -> Option<PlacedGrant> {
    if let Some(delay) = written.max_delay.as_ref().filter(|_| written.kind != Kind::LeakyBucket) {
        let message = "`max_delay` is for rules with `kind = \"leaky_bucket\"`";
        diagnostics.push(Diagnostic::new(delay.span(), message).help("take it out"));
        return None;
    }
    let soft = written.soft.as_ref().map(|soft| ("soft", soft.span()));
    let overage = written.overage.as_ref().map(|overage| ("overage", overage.span()));
    if let Some((name, span)) = soft.or(overage).filter(|_| written.kind != Kind::FixedWindow) {
        let message = format!("`{name}` is for rules with `kind = \"fixed_window\"`");
        diagnostics.push(Diagnostic::new(span, message).help("take it out"));
        return None;
    }
    let number = written.limit.as_ref().filter(|limit| limit.get_ref().is_number);
    if let Some(number) = number.filter(|_| written.kind != Kind::Concurrency) {
        let period = if written.kind == Kind::FixedWindow { "d" } else { "s" };
        let help = format!("write `limit = \"{}/{period}\"`", &**number.get_ref());
        let message = "`limit` is a string, not a number";
        diagnostics.push(Diagnostic::new(number.span(), message).help(help));
        return None;
    }
    let ReadLimit { limit, written, span, is_default_burst } = match written.kind {
        Kind::TokenBucket => token_bucket::read(written, path, diagnostics)?,
        Kind::FixedWindow => fixed_window::read(written, path, diagnostics)?,
        Kind::LeakyBucket => leaky_bucket::read(written, path, diagnostics)?,
        Kind::Concurrency => concurrency::read(written, path, diagnostics)?,
        Kind::SlidingWindow => sliding_window::read(written, path, diagnostics)?,
    };
    let grant = Grant { index: limits.index_of(limit), limit, written };
    Some(PlacedGrant { grant, owner: String::new(), span, is_default_burst })
}

/// Whether a setting of the table at `path` is missing because of an error that is already
/// reported.
fn is_explained(path: &[&str], name: &str, diagnostics: &mut Diagnostics) -> bool {
    let path: Vec<&str> = path.iter().copied().chain([name]).collect();
    diagnostics.explain_absence(&path)
}
