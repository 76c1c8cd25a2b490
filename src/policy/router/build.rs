//! Builds a router, and finds the routes of which neither takes precedence.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::{Candidate, Expression, HostIndex, LastPaths, Paths, Router, SourceIndex};
use crate::policy::condition::Test;
use crate::policy::matcher::{ConditionsRank, Matcher, PathPattern};
use crate::policy::params::{param_name, segments};
use crate::policy::prefixes::Prefixes;
use crate::policy::tree::Tree;

/// The prefix of the routes for all paths.
const ALL_PATHS: &str = "/";

/// Sort key: the more specific of two candidates for one path is less.
pub(super) type Rank = (MatchKind, ConditionsRank);

/// How a candidate's path relates to the route's path in the file, the most specific first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MatchKind {
    /// The path as the file has it.
    Written,
    /// An exact path with the trailing slash added or removed.
    SlashVariant,
    /// A prefix without its trailing slash.
    BarePrefix,
}

/// The routes of one host while the index is built, by the paths in which parameters have no names.
#[derive(Debug, Default)]
struct PathsBuilder {
    exact: HashMap<String, Vec<Candidate>>,
    prefix: HashMap<String, Vec<Candidate>>,
    expressions: Expressions,
}

/// The different expressions of a host, in the order of the file.
#[derive(Debug, Default)]
struct Expressions {
    each: Vec<(Expression, Vec<Candidate>)>,
    by_text: HashMap<Arc<str>, usize>,
}

impl Router {
    /// Builds the index. `matchers[n]` belongs to the route with index `n`.
    ///
    /// # Errors
    /// The pairs of routes that match the same requests with equal precedence, the earlier one
    /// first.
    pub fn new(matchers: &[Matcher], ignore_case: bool) -> Result<Self, Vec<(u32, u32)>> {
        let mut by_host: HostIndex<PathsBuilder> = HostIndex::default();
        let mut longest = 0;
        let mut params = HashMap::new();
        let mut sources = SourceIndex::default();
        for (route, matcher) in (0..).zip(matchers) {
            if !matcher.params.is_empty() {
                params.insert(route, matcher.params.clone());
            }
            let conditions = &matcher.conditions;
            let numbers = conditions.on_values.iter().map(|one| sources.number(&one.source));
            let numbers: Box<[u32]> = numbers.collect();
            let candidate = |kind| Candidate {
                route,
                rank: (kind, conditions.rank()),
                conditions: conditions.clone(),
                sources: numbers.clone(),
            };
            longest = longest.max(longest_reading(matcher));
            let fold = |path: &str| shape(path, ignore_case);
            let variant = matcher.slash_variant().map(|path| fold(&path));
            by_host.for_each(&matcher.hosts, |builder| {
                let written = candidate(MatchKind::Written);
                let (paths, path, kind) = match &matcher.path {
                    PathPattern::Exact(path) => (&mut builder.exact, path, MatchKind::SlashVariant),
                    PathPattern::Prefix(path) => (&mut builder.prefix, path, MatchKind::BarePrefix),
                    PathPattern::Expression(expression) => {
                        builder.expressions.add(expression, written);
                        return;
                    }
                };
                paths.entry(fold(path)).or_default().push(written);
                if let Some(variant) = &variant {
                    builder.exact.entry(variant.clone()).or_default().push(candidate(kind));
                }
            });
        }
        let mut conflicts = BTreeSet::new();
        let by_host = by_host.map(|builder| Paths::of(builder, &mut conflicts));
        if !conflicts.is_empty() {
            let mut conflicts: Vec<(u32, u32)> = conflicts.into_iter().collect();
            conflicts.sort_by_key(|(first, second)| (*second, *first));
            return Err(conflicts);
        }
        let has_hosts = matchers.iter().any(|matcher| !matcher.hosts.is_any());
        let is_plain = matchers.iter().all(|matcher| {
            matcher.conditions.on_values.is_empty() && matcher.path.text().is_some()
        });
        Ok(Self { by_host, ignore_case, longest, params, has_hosts, is_plain, sources })
    }
}

/// Length of the longest reading of a path that must not be truncated.
fn longest_reading(matcher: &Matcher) -> usize {
    match matcher.path.text() {
        Some(path) if matcher.params.is_empty() => {
            path.len().max(matcher.slash_variant().as_ref().map_or(0, String::len))
        }
        _ => usize::MAX,
    }
}

impl Expressions {
    fn add(&mut self, expression: &Expression, candidate: Candidate) {
        let next = self.each.len();
        let index = *self.by_text.entry(expression.text().into()).or_insert(next);
        match self.each.get_mut(index) {
            Some((_, candidates)) => candidates.push(candidate),
            None => self.each.push((expression.clone(), vec![candidate])),
        }
    }
}

impl Paths {
    /// Adds pairs of routes of which neither takes precedence to `conflicts`.
    fn of(mut builder: PathsBuilder, conflicts: &mut BTreeSet<(u32, u32)>) -> Self {
        let expressions = builder.expressions.each.iter_mut().map(|(_, candidates)| candidates);
        let paths = builder.exact.values_mut().chain(builder.prefix.values_mut());
        for candidates in paths.chain(expressions) {
            add_conflicts(candidates, conflicts);
            candidates.sort_by_key(|candidate| candidate.rank);
        }
        let last = (!builder.expressions.each.is_empty()).then(|| {
            let all = builder.prefix.remove(ALL_PATHS).unwrap_or_default();
            Box::new(LastPaths { expressions: builder.expressions.each, all })
        });
        let has_params =
            |path: &String| segments(path).any(|segment| param_name(segment).is_some());
        let PathsBuilder { exact, prefix, .. } = builder;
        let (with_params, exact): (HashMap<_, _>, HashMap<_, _>) =
            exact.into_iter().partition(|(path, _)| has_params(path));
        let longest_exact = exact.keys().map(String::len).max().unwrap_or_default();
        let (prefixes, tree) = if with_params.is_empty() && !prefix.keys().any(has_params) {
            (Prefixes::new(prefix), None)
        } else {
            let tree = Tree::new(with_params.into_iter(), prefix.into_iter());
            (Prefixes::default(), Some(tree))
        };
        Self { exact, longest_exact, prefixes, tree, last }
    }
}

/// Candidates for one path by the first whole value among their conditions: those with different
/// values of one source match no common request.
#[derive(Debug, Default)]
struct ByValue<'a> {
    by_source: HashMap<u32, HashMap<&'a str, Vec<&'a Candidate>>>,
    without: Vec<&'a Candidate>,
}

/// Adds each candidate with the first before it that conflicts with it, unless another candidate
/// decides between the two. The candidates are in the order of the file.
fn add_conflicts(candidates: &[Candidate], conflicts: &mut BTreeSet<(u32, u32)>) {
    if candidates.len() < 2 {
        return;
    }
    let mut all = ByValue::default();
    for candidate in candidates {
        all.add(candidate);
    }
    for candidate in candidates {
        let before = all.possible(candidate).filter(|other| other.route < candidate.route);
        let conflicting = before.filter(|other| candidate.conflicts_with(other));
        let undecided = conflicting.filter(|other| !all.decides(candidate, other));
        if let Some(first) = undecided.map(|other| other.route).min() {
            conflicts.insert((first, candidate.route));
        }
    }
}

impl<'a> ByValue<'a> {
    fn add(&mut self, candidate: &'a Candidate) {
        match candidate.whole_values().next() {
            None => self.without.push(candidate),
            Some((source, value)) => {
                self.by_source.entry(source).or_default().entry(value).or_default().push(candidate);
            }
        }
    }

    /// The candidates that may match a request that this one matches.
    fn possible(&self, candidate: &Candidate) -> impl Iterator<Item = &'a Candidate> {
        let own = candidate.whole_values().next();
        let others = self.by_source.iter().flat_map(move |(source, by_value)| {
            let same = own.filter(|(own, _)| own == source);
            let only = same.map(|(_, value)| by_value.get(value).into_iter());
            let all = same.is_none().then(|| by_value.values());
            only.into_iter().flatten().chain(all.into_iter().flatten()).flatten()
        });
        others.chain(&self.without).copied()
    }

    /// Whether a candidate decides between two that conflict.
    fn decides(&self, first: &Candidate, second: &Candidate) -> bool {
        let values = first.whole_values().chain(second.whole_values());
        let with_value =
            values.filter_map(|(source, value)| self.by_source.get(&source)?.get(value));
        let mut possible = with_value.flatten().chain(&self.without);
        possible.any(|one| {
            let (kind, specific) = one.rank;
            kind <= first.rank.0
                && specific < first.rank.1
                && specific < second.rank.1
                && one.conditions.cover_both(&first.conditions, &second.conditions)
        })
    }
}

impl Candidate {
    /// The sources of conditions that want a whole value, and these values.
    fn whole_values(&self) -> impl Iterator<Item = (u32, &str)> {
        let each = self.sources.iter().zip(&self.conditions.on_values);
        each.filter_map(|(source, condition)| match &condition.test {
            Test::Is(value) => Some((*source, &**value)),
            Test::Begins(_) | Test::Present | Test::Absent => None,
        })
    }

    /// Whether a request exists that both match with equal precedence.
    fn conflicts_with(&self, other: &Self) -> bool {
        let Self { rank: (kind, (_, specificity, _)), conditions, .. } = self;
        let (other_kind, (_, other_specificity, _)) = other.rank;
        *kind == other_kind
            && *specificity == other_specificity
            && conditions.conflict_with(&other.conditions)
    }
}

/// A path in which parameters have no names, so that all paths that match the same requests are
/// equal.
fn shape(path: &str, ignore_case: bool) -> String {
    let mut shape = String::with_capacity(path.len());
    for segment in segments(path) {
        shape.push('/');
        shape.push_str(if param_name(segment).is_some() { "{}" } else { segment });
    }
    if ignore_case {
        shape.make_ascii_lowercase();
    }
    shape
}
