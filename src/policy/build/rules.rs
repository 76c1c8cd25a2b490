//! `[rules]`: what buckets are counted by, and their limits.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use http::HeaderName;
use sha2::{Digest as _, Sha256};

use super::adapt::{adapt, make_adaptable};
use super::address;
use super::ban::ban;
use super::count::{self, count};
use super::grant::fixed_window::unknown_zone;
use super::grant::{self, Limits, PlacedGrant, Written};
use super::lease::lease;
use super::names::{Names, twice};
use super::path;
use super::refund::refund_on;
use super::rollout;
use super::routes::cost;
use super::values::switch;
use super::words::meaning;
use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::foreign;
use crate::config::spanned::Spanned;
use crate::config::suggest;
use crate::config::tables::{self, Field, List};
use crate::config::{Config, Named, in_order, rules as written};
use crate::limit::calendar::{Calendar, Period};
use crate::limit::cost::common_parts;
use crate::limit::fixed_window::Overage;
use crate::policy::redis::Colocate;
use crate::policy::{Colocated, Dimension, Exempt, Grant, GrantTerms, Kind, OnFailure, Rule};

/// All rules in the order of the file, and the grants of each.
#[derive(Debug, Default)]
pub(super) struct Rules {
    pub(super) list: Vec<Rule>,
    grants: Vec<Vec<PlacedGrant>>,
    /// See [`parts`].
    parts: Vec<u16>,
}

impl Rules {
    pub(super) fn with_grants(&self) -> impl Iterator<Item = (&Rule, &[PlacedGrant])> {
        self.list.iter().zip(self.grants.iter().map(Vec::as_slice))
    }
}

/// The claims that enabled rules count by, each once.
pub(super) fn counted_claims(rules: &[Rule]) -> Vec<Box<str>> {
    let mut claims: Vec<Box<str>> = Vec::new();
    for dimension in rules.iter().filter(|rule| rule.enabled).flat_map(|rule| &rule.per) {
        if let Dimension::Claim(name) = dimension
            && !claims.iter().any(|known| **known == **name)
        {
            claims.push((**name).into());
        }
    }
    claims
}

/// The headers that enabled rules count by, each once.
pub(super) fn counted_headers(rules: &[Rule]) -> Vec<HeaderName> {
    let enabled = rules.iter().filter(|rule| rule.enabled);
    let headers = enabled.flat_map(|rule| &rule.per).filter_map(|one| match one {
        Dimension::Header(name) => Some(name.clone()),
        _ => None,
    });
    let mut headers: Vec<HeaderName> = headers.collect();
    headers.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
    headers.dedup();
    headers
}

/// Indexes of the rules that change what a request took after its response.
pub(super) fn settled(rules: &[Rule]) -> Vec<u32> {
    (0..).zip(rules).filter(|(_, rule)| rule.settles()).map(|(index, _)| index).collect()
}

/// Whether an enabled rule counts by client certificate.
pub(super) fn counts_certificates(rules: &[Rule]) -> bool {
    rules.iter().any(|rule| rule.enabled && rule.per.contains(&Dimension::Certificate))
}

/// All rules, with the grants of single keys.
pub(super) fn rules(
    config: &Config,
    names: &Names,
    limits: &mut Limits,
    diagnostics: &mut Diagnostics,
) -> Rules {
    let mut rules = Rules::default();
    for ((name, table), shared) in in_order(&config.rules).into_iter().zip(names.rules.names()) {
        let mut rule = rule(shared, name.span(), table.get_ref(), names, diagnostics);
        rule.on_failure = on_failure(config, table.get_ref());
        rule.colocated = colocated(config, &rule.per);
        if rule.kind == Kind::SlidingWindow {
            require_whole_costs(config, &rule, table.get_ref(), diagnostics);
        }
        let parts = parts(config, &rule);
        rule.terms.parts = parts;
        let grants =
            plan_grants(name, table.get_ref(), parts, names, &mut rule, limits, diagnostics);
        rules.list.push(rule);
        rules.parts.push(parts);
        rules.grants.push(grants);
    }
    for ((id, key), key_id) in in_order(&config.keys).into_iter().zip(names.keys.names()) {
        let plan = plan_of(config, key.get_ref(), names);
        let owner = Owner { table: "keys", kind: "key", id, name: key_id, plan };
        let grants = &key.get_ref().rules;
        owner_grants(config, names, owner, grants, &mut rules, limits, diagnostics);
    }
    for ((id, tenant), name) in in_order(&config.tenants).into_iter().zip(names.tenants.names()) {
        let plan = tenant.get_ref().plan.as_ref();
        let plan = plan.and_then(|plan| names.plans.index_of(plan.get_ref()));
        let owner = Owner { table: "tenants", kind: "tenant", id, name, plan };
        let grants = &tenant.get_ref().rules;
        owner_grants(config, names, owner, grants, &mut rules, limits, diagnostics);
    }
    add_candidates(config, &mut rules, limits, diagnostics);
    let tables = in_order(&config.rules);
    for (index, rule) in rules.list.iter_mut().enumerate().filter(|(_, it)| it.adapt.is_some()) {
        let table = rule.candidate_of.map_or(index, |of| of as usize);
        let span =
            tables.get(table).and_then(|(_, table)| Some(table.get_ref().adapt.as_ref()?.span()));
        if let (Some(span), Some(grants)) = (span, rules.grants.get_mut(index)) {
            make_adaptable(rule, grants, span, limits, diagnostics);
        }
    }
    rules
}

/// Adds the rules of `candidate`, after those of the file.
fn add_candidates(
    config: &Config,
    rules: &mut Rules,
    limits: &mut Limits,
    diagnostics: &mut Diagnostics,
) {
    for ((name, table), index) in in_order(&config.rules).into_iter().zip(0..) {
        let table = table.get_ref();
        let Some(candidate) = &table.candidate else { continue };
        let own = usize::try_from(index).ok();
        let known = own.and_then(|own| Some((rules.list.get(own)?, *rules.parts.get(own)?)));
        let Some((rule, parts)) = known else { continue };
        let path = ["rules", name.get_ref(), "candidate"];
        if diagnostics.is_rejected(&["rules", name.get_ref(), "kind"]) {
            continue;
        }
        if rules.list.iter().any(|other| *other.name == *rollout::candidate_name(&rule.name)) {
            let message = "there is a rule with the name of this candidate";
            let help = format!("rename the rule `{}`", rollout::candidate_name(&rule.name));
            diagnostics.push(Diagnostic::new(candidate.span(), message).help(help));
        }
        if rule
            .grant_by_plan
            .iter()
            .zip(&rule.has_plan_table)
            .all(|(own, has)| own.is_none() || *has)
        {
            let message =
                "no client has a limit of the rule itself, which the candidate may replace";
            let diagnostic = Diagnostic::new(candidate.span(), message);
            diagnostics
                .push(diagnostic.help("write it in a rule of its own, with `mode = \"shadow\"`"));
        }
        let written = written(rule.kind, parts, candidate.get_ref(), Some(table));
        let placed = grant::required(written, &path, candidate.span(), limits, diagnostics);
        let Some(placed) = placed else { continue };
        let rule = rollout::candidate(rule, index, placed.grant);
        rules.list.push(rule);
        rules.parts.push(parts);
        rules.grants.push(vec![placed]);
    }
}

/// `on_failure` of the rule, else of `[redis]`.
fn on_failure(config: &Config, table: &written::Rule) -> OnFailure {
    let general = config.redis.as_ref().and_then(|redis| redis.get_ref().on_failure.as_ref());
    meaning(table.on_failure.as_ref().or(general))
}

/// With which others the buckets of a rule have a common hash tag.
fn colocated(config: &Config, per: &[Dimension]) -> Option<Colocated> {
    let redis = config.redis.as_ref().map(Spanned::get_ref);
    let by_key = per.contains(&Dimension::Key);
    match meaning(redis.and_then(|redis| redis.colocate.as_ref())) {
        Colocate::Key => by_key.then_some(Colocated::Key),
        Colocate::Tenant => {
            (by_key || per.contains(&Dimension::Tenant)).then_some(Colocated::Tenant)
        }
        Colocate::Off => None,
    }
}

/// A rule without its grants, its `on_failure` and whether it is colocated.
fn rule(
    name: &Arc<str>,
    name_span: Range<usize>,
    table: &written::Rule,
    names: &Names,
    diagnostics: &mut Diagnostics,
) -> Rule {
    if table.per.is_none() && !diagnostics.explain_absence(&["rules", name, "per"]) {
        let message = format!("the rule `{name}` has no `per`");
        let help = "write `per = [\"key\"]` or `per = [\"ip\"]`; `per = []` is one bucket for all";
        diagnostics.push(Diagnostic::new(name_span, cut(&message, 120)).help(help));
    }
    let per = dimensions(name, &table.per, diagnostics);
    if let Some(on_missing) = &table.on_missing
        && !per.contains(&Dimension::Key)
        && !diagnostics.explain_absence(&["rules", name, "per"])
    {
        let message = "`on_missing` is for rules per key, and this rule's `per` has no `key`";
        let diagnostic = Diagnostic::new(on_missing.span(), message);
        diagnostics.push(diagnostic.help("take `on_missing` out, or add `\"key\"` to `per`"));
    }
    let exempt = table.exempt.as_ref().map_or_else(Exempt::default, |exempt| {
        let keys = exempt.get_ref().keys.as_ref().map_or(&[][..], |keys| keys.get_ref());
        Exempt {
            ips: address::networks(&exempt.get_ref().ips, diagnostics),
            keys: names.keys.find_names(keys, diagnostics),
        }
    });
    let routes = table.routes.as_ref().map(|routes| {
        if routes.get_ref().is_empty() && !diagnostics.explain_absence(&["rules", name, "routes"]) {
            let help = "leave `routes` out for all of them, or write `enabled = false`";
            diagnostics.push(Diagnostic::new(routes.span(), "`routes` is empty").help(help));
        }
        names.routes.find_all(routes.get_ref(), diagnostics)
    });
    let ban = ban(name, table, &per, diagnostics);
    let lease = lease(table, diagnostics);
    let adapt = adapt(name, table, lease, names, diagnostics);
    Rule {
        name: name.clone(),
        description: table.description.as_ref().map(|text| text.get_ref().clone()),
        kind: meaning(table.kind.as_ref()),
        per,
        enabled: switch(&written::Rule::enabled, &table.enabled),
        routes,
        mode: meaning(table.mode.as_ref()),
        enforced_thousandths: rollout::enforced_thousandths(table, diagnostics),
        ban,
        adapt,
        candidate_of: None,
        on_missing: meaning(table.on_missing.as_ref()),
        on_failure: OnFailure::default(),
        lease,
        cost: count::own_cost(table),
        count: count(table, diagnostics).map(Arc::new),
        refund_on: refund_on(table, diagnostics),
        colocated: None,
        grant_by_plan: vec![None; names.plans.names().len()],
        has_plan_table: vec![false; names.plans.names().len()],
        grant_by_key: HashMap::new(),
        grant_by_tenant: HashMap::new(),
        exempt,
        terms: terms(table),
        salt: salt(name),
    }
}

/// What grants of clients outside of the file have in common with those of the rule.
fn terms(table: &written::Rule) -> GrantTerms {
    GrantTerms {
        parts: 1,
        zone: other_than(&table.zone, written::Rule::zone.text()),
        anchor: table
            .anchor
            .as_ref()
            .map(|anchor| *anchor.get_ref())
            .filter(|anchor| Some(*anchor) != written::Rule::anchor.number()),
        max_delay: other_than(&table.max_delay, written::Rule::max_delay.text()),
        soft: other_than(&table.soft, None),
        overage: table
            .overage
            .as_ref()
            .map(|overage| *overage.get_ref())
            .filter(|overage| *overage != Overage::default()),
    }
}

/// The text of a setting, unless it is the default.
fn other_than(field: &Field<String>, default: Option<&str>) -> Option<String> {
    let text = field.as_ref().map(|text| text.get_ref().clone());
    text.filter(|text| default != Some(text.as_str()))
}

/// Parts of a token of which the rule's own cost, or else the costs of all routes that it counts,
/// are whole numbers, 1 to 1000.
fn parts(config: &Config, rule: &Rule) -> u16 {
    let routes = in_order(&config.routes).into_iter().zip(0..);
    let counted = routes
        .filter(|(_, index)| rule.routes.as_ref().is_none_or(|routes| routes.contains(index)));
    let costs = counted.map(|((_, table), _)| cost(table.get_ref()));
    let parts = match rule.cost {
        Some(own) => own.denominator(),
        None => costs.fold(1, |parts, cost| common_parts(parts, cost.denominator())),
    };
    u16::try_from(parts).unwrap_or(u16::MAX)
}

/// Reports the rule's own cost, or else those of the routes that it counts, that have decimals: a
/// sliding window counts whole tokens.
fn require_whole_costs(
    config: &Config,
    rule: &Rule,
    table: &written::Rule,
    diagnostics: &mut Diagnostics,
) {
    if let Some(cost) = count::written_cost(table) {
        if cost.get_ref().whole().is_none() {
            let message = format!("the rule `{}` counts whole tokens", rule.name);
            let diagnostic = Diagnostic::new(cost.span(), message).here("the cost of a request");
            diagnostics.push(diagnostic.help("write a whole number, or use another kind"));
        }
        return;
    }
    for ((name, route), index) in in_order(&config.routes).into_iter().zip(0..) {
        let is_counted = rule.routes.as_ref().is_none_or(|routes| routes.contains(&index));
        let Some(written) = route.get_ref().cost.as_ref().filter(|_| is_counted) else { continue };
        if written.get_ref().whole().is_some() {
            continue;
        }
        let message = format!(
            "a request to `{}` costs {}, and the rule `{}` counts whole tokens",
            cut(name.get_ref(), 64),
            written.get_ref(),
            rule.name
        );
        let mut diagnostic = Diagnostic::new(written.span(), message).here("the cost");
        if let Some(kind) = &table.kind {
            diagnostic = diagnostic.and(kind.span(), "a stamp for each token".to_owned());
        }
        let help = "write a whole number, or count the route by a rule of another kind";
        diagnostics.push(diagnostic.help(help));
    }
}

/// Adds the grant for all plans and those of single plans to a rule, and returns them.
fn plan_grants(
    name: &Spanned<String>,
    table: &written::Rule,
    parts: u16,
    names: &Names,
    rule: &mut Rule,
    limits: &mut Limits,
    diagnostics: &mut Diagnostics,
) -> Vec<PlacedGrant> {
    let rule_name = name.get_ref().as_str();
    let own = Written {
        kind: rule.kind,
        parts,
        rate: &table.rate,
        limit: &table.limit,
        burst: &table.burst,
        max_delay: &table.max_delay,
        zone: &table.zone,
        anchor: &table.anchor,
        soft: &table.soft,
        overage: &table.overage,
    };
    if !own.is_limit() {
        explain_no_limit(name, table, rule.kind, diagnostics);
    }
    let is_rejected = |setting| diagnostics.is_rejected(&["rules", rule_name, setting]);
    if is_rejected("kind") {
        return Vec::new();
    }
    let is_placed = !is_rejected("zone") && !is_rejected("anchor");
    if !has_fitting_settings(rule.kind, table, diagnostics) || !is_placed {
        // Nor are the grants of keys, whose errors would follow from these.
        diagnostics.mark_missing(["rules", rule_name, "kind"].into_iter());
        return Vec::new();
    }
    let mut grants = Vec::new();
    if let Some(placed) = grant::optional(own, &["rules", rule_name], limits, diagnostics) {
        rule.grant_by_plan.fill(Some(placed.grant));
        grants.push(placed);
    }
    for (plan, granted) in in_order(&table.plans) {
        let index = names.plans.find(plan, diagnostics);
        let path = ["rules", rule_name, "plans", plan.get_ref()];
        let written = written(rule.kind, parts, granted.get_ref(), Some(table));
        let placed = grant::required(written, &path, plan.span(), limits, diagnostics);
        let (Some(index), Some(placed)) = (index, placed) else { continue };
        set(&mut rule.grant_by_plan, index, Some(placed.grant));
        set(&mut rule.has_plan_table, index, true);
        let owner = format!(" the plan `{}`", cut(plan.get_ref(), 64));
        grants.push(PlacedGrant { owner, ..placed });
    }
    grants
}

/// Reports a rule without a limit of its own, unless its plans have theirs, or an error explains
/// it.
fn explain_no_limit(
    name: &Spanned<String>,
    table: &written::Rule,
    kind: Kind,
    diagnostics: &mut Diagnostics,
) {
    let rule_name = name.get_ref().as_str();
    let mut settings = ["kind", "rate", "limit", "plans"].iter();
    if settings.any(|setting| diagnostics.explain_absence(&["rules", rule_name, setting])) {
        return;
    }
    let has_plans = !table.plans.is_empty();
    let diagnostic = match (kind.limit_example(), &table.burst) {
        (None, Some(burst)) => Diagnostic::new(burst.span(), "`burst` without a `rate` or `limit`")
            .help("add `rate = \"10/s\"`"),
        _ if has_plans => return,
        (Some(example), _) => {
            let message = format!("the rule `{}` has no limit", cut(rule_name, 64));
            Diagnostic::new(name.span(), message).help(format!(
                "add `limit = {example}`, or `plans.<plan> = {{ limit = {example} }}` for each plan"
            ))
        }
        (None, None) => {
            let message = format!("the rule `{}` has no rate", cut(rule_name, 64));
            Diagnostic::new(name.span(), message).help(
                "add `rate = \"10/s\"`, or `plans.<plan> = { rate = \"10/s\" }` for each plan",
            )
        }
    };
    diagnostics.push(diagnostic);
}

/// The key or tenant that overrides rules.
#[derive(Clone, Copy)]
struct Owner<'a> {
    /// The table that has it, such as `keys`.
    table: &'static str,
    /// What it is, such as `key`.
    kind: &'static str,
    id: &'a Spanned<String>,
    name: &'a Arc<str>,
    /// Index of its plan, whose `soft` and `overage` its limits have; `None` without one.
    plan: Option<u32>,
}

/// Index of the plan of a client of the file: its own, else that of its tenant, else the only one.
fn plan_of(config: &Config, key: &tables::Key, names: &Names) -> Option<u32> {
    let of_tenant = || {
        let tenant = key.tenant.as_ref()?;
        let mut tenants = config.tenants.iter();
        let (_, table) = tenants.find(|(name, _)| name.get_ref() == tenant.get_ref())?;
        table.get_ref().plan.as_ref()
    };
    match key.plan.as_ref().or_else(of_tenant) {
        Some(plan) => names.plans.index_of(plan.get_ref()),
        None => (!names.has_plans).then_some(0),
    }
}

/// Adds the grants of a single key or tenant to their rules.
fn owner_grants(
    config: &Config,
    names: &Names,
    owner: Owner<'_>,
    grants: &Named<written::Grant>,
    rules: &mut Rules,
    limits: &mut Limits,
    diagnostics: &mut Diagnostics,
) {
    for (name, granted) in in_order(grants) {
        let rule = names.rules.find(name, diagnostics);
        let path = [owner.table, owner.id.get_ref(), "rules", name.get_ref()];
        let index = rule.and_then(|index| usize::try_from(index).ok());
        let known = index.and_then(|index| Some((rules.list.get(index)?, rules.parts.get(index)?)));
        let (kind, parts) = known.map_or((Kind::default(), 1), |(rule, parts)| (rule.kind, *parts));
        if diagnostics.is_rejected(&["rules", name.get_ref(), "kind"]) {
            continue;
        }
        let of_rule = config.rules.iter().find(|(other, _)| other.get_ref() == name.get_ref());
        let of_rule = of_rule.map(|(_, table)| table.get_ref());
        let of_plan = owner.plan.zip(index).and_then(|(plan, index)| {
            rules.list.get(index)?.grant_by_plan.get(plan as usize).copied().flatten()
        });
        let table = granted.get_ref();
        let mut written = written(kind, parts, table, of_rule);
        if of_plan.is_some() {
            (written.soft, written.overage) = (&table.soft, &table.overage);
        }
        let mut placed = grant::required(written, &path, name.span(), limits, diagnostics);
        if let (Some(placed), Some(of_plan)) = (&mut placed, of_plan) {
            let is_own = (table.soft.is_some(), table.overage.is_some());
            let grant = placed.grant.with_quota_terms_of(&of_plan, is_own);
            placed.grant = Grant { index: limits.index_of(grant.limit), ..grant };
        }
        let (Some(index), Some(placed)) = (index, placed) else { continue };
        let (Some(rule), Some(grants)) = (rules.list.get_mut(index), rules.grants.get_mut(index))
        else {
            continue;
        };
        let by_owner = match owner.table {
            "tenants" => &mut rule.grant_by_tenant,
            _ => &mut rule.grant_by_key,
        };
        by_owner.insert(Arc::clone(owner.name), placed.grant);
        let owner = format!(" the {} `{}`", owner.kind, cut(owner.id.get_ref(), 64));
        grants.push(PlacedGrant { owner, ..placed });
    }
}

/// A grant of a plan or key, of the kind of its rule, and with the rule's periods.
fn written<'a>(
    kind: Kind,
    parts: u16,
    table: &'a written::Grant,
    rule: Option<&'a written::Rule>,
) -> Written<'a> {
    Written {
        kind,
        parts,
        rate: &table.rate,
        limit: &table.limit,
        burst: &table.burst,
        max_delay: if table.max_delay.is_some() {
            &table.max_delay
        } else {
            rule.map_or(&None, |rule| &rule.max_delay)
        },
        zone: rule.map_or(&None, |rule| &rule.zone),
        anchor: rule.map_or(&None, |rule| &rule.anchor),
        soft: if table.soft.is_some() {
            &table.soft
        } else {
            rule.map_or(&None, |rule| &rule.soft)
        },
        overage: if table.overage.is_some() {
            &table.overage
        } else {
            rule.map_or(&None, |rule| &rule.overage)
        },
    }
}

/// Checks the settings that are for rules of one kind. Returns whether its grants can be read.
fn has_fitting_settings(kind: Kind, table: &written::Rule, diagnostics: &mut Diagnostics) -> bool {
    let zone = table.zone.as_ref();
    let mut wrong = Vec::new();
    if kind == Kind::FixedWindow {
        let unknown = zone.filter(|zone| Calendar::new(Period::Day, zone.get_ref(), 1).is_err());
        wrong.extend(unknown.map(unknown_zone));
    } else {
        let spans = [
            ("zone", zone.map(Spanned::span)),
            ("anchor", table.anchor.as_ref().map(Spanned::span)),
            ("soft", table.soft.as_ref().map(Spanned::span)),
            ("overage", table.overage.as_ref().map(Spanned::span)),
        ];
        for (setting, span) in spans {
            let Some(span) = span else { continue };
            let message = format!("`{setting}` is for rules with `kind = \"fixed_window\"`");
            wrong.push(Diagnostic::new(span, message).help("take it out, or add the kind"));
        }
    }
    if let Some(delay) = table.max_delay.as_ref().filter(|_| kind != Kind::LeakyBucket) {
        let message = "`max_delay` is for rules with `kind = \"leaky_bucket\"`";
        wrong.push(Diagnostic::new(delay.span(), message).help("take it out, or add the kind"));
    }
    let fits = wrong.is_empty();
    for diagnostic in wrong {
        diagnostics.push(diagnostic);
    }
    fits
}

fn set<T>(list: &mut [T], index: u32, value: T) {
    let slot = usize::try_from(index).ok().and_then(|index| list.get_mut(index));
    if let Some(slot) = slot {
        *slot = value;
    }
}

/// The dimensions of a rule, in canonical order.
fn dimensions(rule: &str, list: &List, diagnostics: &mut Diagnostics) -> Vec<Dimension> {
    let items = list.as_ref().map_or(&[][..], |list| list.get_ref());
    let mut seen = HashMap::new();
    let mut dimensions = Vec::new();
    for item in items {
        let Some(dimension) = dimension(item, diagnostics) else {
            // Errors that follow from its absence are not reported.
            diagnostics.mark_missing(["rules", rule, "per"].into_iter());
            continue;
        };
        if let Some(first) = seen.insert(dimension.clone(), item.span()) {
            diagnostics.push(twice(item, first));
        }
        dimensions.push(dimension);
    }
    // Bucket ids are hashed in this order, so the order in the file does not change them.
    dimensions.sort_by(|a, b| a.canonical_position().cmp(&b.canonical_position()));
    dimensions
}

fn dimension(item: &Spanned<String>, diagnostics: &mut Diagnostics) -> Option<Dimension> {
    let text = item.get_ref().as_str();
    if let Some(plain) = Dimension::PLAIN.into_iter().find(|plain| plain.to_string() == text) {
        return Some(plain);
    }
    let header = text.strip_prefix("header:");
    if let Some(Ok(name)) = header.map(|name| HeaderName::from_bytes(name.as_bytes())) {
        return Some(Dimension::Header(name));
    }
    let param = text.strip_prefix("param:");
    if let Some(name) = param.filter(|name| path::is_name(name)) {
        return Some(Dimension::Param(name.into()));
    }
    let claim = text.strip_prefix("claim:");
    if let Some(name) = claim.filter(|name| is_claim(name)) {
        return Some(Dimension::Claim(name.into()));
    }
    let diagnostic = if claim.is_some() {
        let message = format!("`{}` does not end with the name of a claim", cut(text, 64));
        Diagnostic::new(item.span(), message).help("such as `claim:org`")
    } else if let Some(name) = header {
        let message = format!("`{}` is not the name of a header", cut(name, 64));
        Diagnostic::new(item.span(), message).help("such as `header:x-tenant`")
    } else if param.is_some() {
        let message = format!("`{}` does not end with the name of a parameter", cut(text, 64));
        let help = "such as `param:tenant`, with `path = \"/v1/{tenant}/*\"` of a route";
        Diagnostic::new(item.span(), message).help(help)
    } else {
        let message = format!("`per` does not take `{}`", cut(text, 64));
        Diagnostic::new(item.span(), message).help(dimension_instead(text))
    };
    diagnostics.push(diagnostic);
    None
}

/// Whether a text is the name of a claim, or the path of one.
fn is_claim(name: &str) -> bool {
    (1..=256).contains(&name.len()) && name.chars().all(|c| !c.is_whitespace() && !c.is_control())
}

/// What to write instead of an item that `per` does not take.
fn dimension_instead(text: &str) -> String {
    match foreign::dimension(text) {
        Some(meant) if meant.is_empty() => {
            "for one bucket of all requests, write `per = []`".to_owned()
        }
        Some(meant) => format!("write `per = [\"{meant}\"]`"),
        None => {
            let mut words: Vec<String> = Dimension::PLAIN.map(|plain| plain.to_string()).into();
            let named = ["header:<name>", "param:<name>"].map(str::to_owned);
            words.splice(words.len() - 1..words.len() - 1, named);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            suggest::help_lines(text, &words)
        }
    }
}

/// A hash of the name, the same in every gateway.
pub(super) fn salt(name: &str) -> u128 {
    let digest = Sha256::digest(name.as_bytes());
    digest.iter().take(16).fold(0, |salt, byte| salt << 8 | u128::from(*byte))
}
