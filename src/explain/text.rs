//! Renders an explanation for a terminal, with or without colours.

use crate::limit::cost::Cost;
use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};

use super::report::{
    Candidate, Charge, ExplainedClient, ExplainedCors, ExplainedRoute, ExplainedRule, Explanation,
    HeaderLine, Level, Param, Verdict,
};
use crate::config::words::Word as _;
use crate::policy::Kind;

/// Width of the labels on the left, in columns.
const LEFT: usize = 9;

const BOLD: Style = Style::new().bold();
const FAINT: Style = Style::new().dimmed();
const GOOD: Style = AnsiColor::Green.on_default();
/// Name of the kind of limits on requests in flight.
const HELD: &str = Kind::Concurrency.name();

const BAD: Style = AnsiColor::Red.on_default();
const OPEN: Style = AnsiColor::Yellow.on_default();

/// The text being rendered.
struct Page {
    text: String,
    color: bool,
}

impl Explanation {
    /// The explanation as text that ends with a line break, with terminal colours or without.
    pub fn render(&self, color: bool) -> String {
        let mut page = Page { text: String::new(), color };
        let request = &self.request;
        let is_assumed = |name| request.assumed.contains(&name);
        let assumed =
            if is_assumed("host") { "  (no host given: this one is assumed)" } else { "" };
        let line = format!("{} {}{}", request.method, request.host, request.path);
        let line = page.painted(BOLD, &line);
        let assumed = page.painted(FAINT, assumed);
        let _ = writeln!(page.text, "{line}{assumed}\n");
        page.client(self.client.as_ref(), is_assumed("ip"));
        page.route(&self.route);
        page.cors(self.cors.as_ref());
        page.rules(&self.rules);
        page.verdict(&self.verdict, self.levels);
        page.top_ups(self);
        page.text
    }
}

impl Page {
    /// Adds a line with a label; an empty label continues the previous one.
    fn line(&mut self, left: &str, text: &str) {
        let left = self.painted(BOLD, &format!("{left:LEFT$}"));
        let line = format!("{left}{text}");
        let _ = writeln!(self.text, "{}", line.trim_end());
    }

    fn painted(&self, style: Style, text: &str) -> String {
        if self.color && !text.trim().is_empty() {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }

    fn client(&mut self, client: Option<&ExplainedClient>, ip_is_assumed: bool) {
        let Some(client) = client else {
            self.line("client", "not identified: the request is refused before");
            return;
        };
        let from = client.key_from.as_deref().unwrap_or_default();
        let who = match (client.key.as_deref(), client.key_state) {
            (Some(id), state @ ("expired" | "not_yet_valid" | "disabled")) => {
                let id = self.painted(BOLD, id);
                format!("{id}, by its key in {from}, which is {}", state.replace('_', " "))
            }
            (Some(id), _) => format!("{}, by its key in {from}", self.painted(BOLD, id)),
            (None, "unknown") => format!("an unknown key in {from}"),
            (None, "unverified") => format!("a key in {from}, which cannot be checked now"),
            (None, "unknown_as_none") => format!("no key: the one in {from} is unknown"),
            (None, "preflight") => "no key: a CORS preflight request needs none".to_owned(),
            (None, "not_read") => "no key: the file has none, so nothing is read as one".to_owned(),
            (None, _) => "no key".to_owned(),
        };
        self.line("client", &who);
        if let Some(tenant) = &client.tenant {
            self.line("", &format!("tenant {tenant}"));
        }
        let plan_from = match client.plan_from {
            "key" => "of the key",
            _ => "of clients without a known key",
        };
        let priority = match client.priority {
            0 => String::new(),
            number => format!(", priority {number}"),
        };
        self.line("", &format!("plan {}{priority}: {plan_from}", client.plan));
        if let Some(subject) = &client.cert {
            self.line("", &format!("certificate {subject}"));
        }
        let address = client.address.map_or("none".to_owned(), |ip| ip.to_string());
        let counted = match &client.counted_as {
            Some(counted) if *counted != address => format!(", counted as {counted}"),
            _ => String::new(),
        };
        let assumed = if ip_is_assumed { " (assumed: no address given)" } else { "" };
        self.line("", &format!("address {address}{counted}: {}{assumed}", client.address_why));
        if let Some(refused) = &client.address_refused {
            self.line("", refused);
        }
    }

    fn route(&mut self, route: &ExplainedRoute) {
        let first = match (&route.name, &route.upstream, route.cost) {
            (Some(name), upstream, Some(cost))
                if upstream.is_some() || route.split_by.is_some() =>
            {
                let tokens = if cost == Cost::ONE { "token" } else { "tokens" };
                let name = self.painted(BOLD, name);
                let upstream = match upstream {
                    Some(upstream) => format!("the upstream {upstream}"),
                    None => "one of its upstreams".to_owned(),
                };
                format!("{name}, to {upstream}, for {cost} {tokens}")
            }
            (Some(name), None, Some(cost)) => {
                let tokens = if cost == Cost::ONE { "token" } else { "tokens" };
                let name = self.painted(BOLD, name);
                format!("{name}, answered by the gateway, for {cost} {tokens}")
            }
            _ => format!("none: {}", route.why),
        };
        self.line("route", &first);
        if let Some(path) = &route.upstream_path {
            self.line("", &format!("as {path}"));
        }
        if let Some(by) = route.split_by {
            let total: u32 = route.split.iter().map(|share| share.weight).sum();
            let each = route.split.iter();
            let each: Vec<String> = each
                .map(|share| format!("{} of {total} to {}", share.weight, share.upstream))
                .collect();
            self.line("", &format!("split by {by}: {}", each.join(", ")));
        }
        for words in &route.handling {
            self.line("", words);
        }
        if let Some(balance) = &route.balance {
            self.line("", &format!("balance {balance}"));
        }
        if let Some(most) = &route.max_in_flight {
            self.line(
                "",
                &format!("max_in_flight {most}: 503 above that, the lowest priority first"),
            );
        }
        for words in route.time_limits.iter().chain(&route.retries) {
            self.line("", words);
        }
        if let Some(codings) = &route.compress {
            self.line("", &format!("compress: {codings}"));
        }
        if let Some(mirror) = &route.mirror {
            self.line("", &format!("mirror: {mirror}"));
        }
        self.candidates(&route.candidates);
        for Param { name, value } in &route.params {
            self.line("", &format!("{{{name}}} is {value}"));
        }
        for reading in &route.readings {
            let name = reading.route.as_deref().unwrap_or("no route");
            let host =
                reading.host.as_ref().map_or(String::new(), |host| format!(" on the host {host}"));
            self.line("", &format!("read as {}{host}: {name}", reading.path));
        }
    }

    /// The routes in a table: which one it is, name, host and path, and why.
    fn candidates(&mut self, candidates: &[Candidate]) {
        let column = |text: &dyn Fn(usize) -> usize| {
            (0..candidates.len()).map(text).max().unwrap_or_default()
        };
        let names = column(&|index| candidates[index].name.len());
        let wheres: Vec<String> = candidates
            .iter()
            .map(|one| format!("{}{}", one.host.as_deref().unwrap_or_default(), one.path))
            .collect();
        let width = column(&|index| wheres[index].chars().count());
        for (one, place) in candidates.iter().zip(&wheres) {
            let mark = if one.wins { self.painted(GOOD, "+") } else { " ".to_owned() };
            let why = self.painted(FAINT, &one.why);
            self.line("", &format!("{mark} {:names$}  {place:width$}  {why}", one.name));
        }
    }

    fn cors(&mut self, cors: Option<&ExplainedCors>) {
        let Some(ExplainedCors { headers, why, .. }) = cors else { return };
        self.line("cors", why);
        for HeaderLine { name, value } in headers {
            self.line("", &format!("{name}: {value}"));
        }
    }

    fn rules(&mut self, rules: &[ExplainedRule]) {
        if rules.is_empty() {
            self.line("rules", "the configuration has none");
        }
        if let Some(ExplainedRule { why_not: Some(not), .. }) = rules.first()
            && matches!(&*not.code, "refused_before" | "own_limits" | "preflight")
        {
            self.line("rules", &format!("none applies: {}", not.why));
            return;
        }
        let names = rules.iter().map(|rule| rule.name.len()).max().unwrap_or_default();
        for (index, rule) in rules.iter().enumerate() {
            let left = if index == 0 { "rules" } else { "" };
            let name = format!("{:names$}", rule.name);
            match (&rule.charge, &rule.why_not) {
                (Some(charge), _) => self.charge(left, &name, rule, charge),
                (None, not) => {
                    let why = not.as_ref().map_or("", |not| &not.why);
                    let line = self.painted(FAINT, &format!("- {name}  does not apply: {why}"));
                    self.line(left, &line);
                }
            }
        }
    }

    fn charge(&mut self, left: &str, name: &str, rule: &ExplainedRule, charge: &Charge) {
        let configured_for = match charge.rate_of {
            "key" => " (of this key)",
            "tenant" => " (of this tenant)",
            "plan" => " (of this plan)",
            _ => "",
        };
        let mode = match (rule.mode, &rule.enforce) {
            ("shadow", Some(share)) => {
                format!("only counted: enforced for {share} of the clients, not for this one")
            }
            ("shadow", None) => "only counted (shadow)".to_owned(),
            (_, Some(share)) => format!("enforced for {share} of the clients, and for this one"),
            (_, None) => "enforced".to_owned(),
        };
        let mark = match &charge.level {
            _ if rule.banned_for_ms.is_some() => self.painted(BAD, "!"),
            Some(level) if !level.enough => self.painted(BAD, "!"),
            _ => self.painted(GOOD, "+"),
        };
        let Charge { rate, rate_is, burst, cost, .. } = charge;
        let limit = if *rate_is == "limit" { "limit " } else { "" };
        let detail = match (&charge.periods, charge.max_delay_ms) {
            (Some(periods), _) => {
                let soft = charge.soft_thousandths.map_or(String::new(), |soft| {
                    format!(", warns from {}%", f64::from(soft) / 10.0)
                });
                let overage = charge.overage.map_or("", |_| ", counts overage");
                format!("{periods}{soft}{overage}")
            }
            (None, Some(max_delay_ms)) => format!("delay up to {max_delay_ms} ms"),
            (None, None) => Kind::of_word(charge.kind).unwrap_or_default().at_once(*burst),
        };
        let takes = match &rule.count {
            Some(count) => format!("reserves {cost}, costs {count}"),
            None => format!("takes {cost}"),
        };
        let numbers = format!("{limit}{rate}, {detail}{configured_for}, {takes}");
        let lease = rule.lease.as_ref().map_or(String::new(), |lease| format!("; lease {lease}"));
        let refund = rule.refund_words().map_or(String::new(), |words| format!("; {words}"));
        let failure = format!("{mode}; on_failure {}{lease}{refund}", rule.on_failure);
        let name_bold = self.painted(BOLD, name);
        self.line(left, &format!("{mark} {name_bold}  {numbers}; {failure}"));
        let indent = " ".repeat(name.chars().count() + 4);
        if let Some(level) = &charge.level {
            let words = match charge.max_delay_ms {
                Some(_) if level.enough => format!("waits for {} ms", level.full_after_ms),
                None if charge.kind == HELD => format!("{} of {burst} free", level.tokens),
                _ => level_words(level, *burst),
            };
            let line = format!("{indent}{words}");
            let style = if level.enough { Style::new() } else { BAD };
            let line = self.painted(style, &line);
            self.line("", &line);
        }
        self.changes(&indent, rule);
        if charge.waived {
            self.line("", &format!("{indent}allows the request, because Redis is unavailable"));
        }
        let shared = match charge.shared_by.as_slice() {
            [] => "all requests".to_owned(),
            shared => shared.join(" + "),
        };
        self.line("", &format!("{indent}one bucket for {shared}"));
        let bucket = self.painted(FAINT, &charge.bucket);
        self.line("", &format!("{indent}{bucket}"));
    }

    /// How the rule changes by itself: by an upstream, or for a client.
    fn changes(&mut self, indent: &str, rule: &ExplainedRule) {
        if let Some(adapt) = &rule.adapt {
            let now =
                rule.rate_percent.map_or(String::new(), |percent| format!("; {percent}% now"));
            self.line("", &format!("{indent}adapts {adapt}{now}"));
        }
        if let Some(ban) = &rule.ban {
            self.line("", &format!("{indent}bans {ban}"));
        }
        if let Some(ms) = rule.banned_for_ms {
            let line = self.painted(BAD, &format!("{indent}the client is banned for {}", span(ms)));
            self.line("", &line);
        }
    }

    fn verdict(&mut self, verdict: &Verdict, levels: &str) {
        let style = match verdict.decision {
            "allow" => GOOD,
            "deny" => BAD,
            _ => OPEN,
        };
        let answer = match (verdict.decision, verdict.status) {
            ("deny", Some(status)) => format!("{status}: {}", verdict.why),
            ("allow", _) => format!("allowed. {}", verdict.why),
            _ => format!("depends on the buckets: {}", verdict.why),
        };
        let answer = self.painted(style, &answer);
        self.line("answer", &answer);
        match (&verdict.body, verdict.decision) {
            (Some(body), "deny") => self.line("", &format!("body {body}, by [errors]")),
            (Some(body), _) => self.line("", &format!("body of a 429: {body}, by [errors]")),
            (None, _) => {}
        }
        if let ("allow", Some(rule), Some(left)) =
            (verdict.decision, &verdict.rule, verdict.remaining)
        {
            self.line("", &format!("the tightest rule is {rule}, with {left} left afterwards"));
        }
        if !verdict.shadow_refusals.is_empty() {
            let rules = verdict.shadow_refusals.join(", ");
            self.line("", &format!("rules in shadow mode that would refuse it: {rules}"));
        }
        let levels = match levels {
            "not_read" => {
                "not read; a running gateway returns them on its admin port (POST /api/explain)"
            }
            "local" => "of buckets in this process",
            "redis" => "of buckets in Redis",
            "unavailable" => "unknown: Redis is unavailable",
            _ => return,
        };
        self.line("levels", levels);
    }

    /// What lists the client's top-ups, if a rule that applies can have some.
    fn top_ups(&mut self, explanation: &Explanation) {
        let charges = explanation.rules.iter().filter_map(|rule| rule.charge.as_ref());
        let has_quota = charges.into_iter().any(|charge| charge.kind == Kind::FixedWindow.name());
        if let Some(flags) =
            explanation.client.as_ref().and_then(client_flags).filter(|_| has_quota)
        {
            let command = format!("`tollgate top-ups list {flags}`");
            self.line("top-ups", &format!("not read; {command} asks a running gateway for them"));
        }
    }
}

/// Arguments that name the client of an explanation to other commands.
fn client_flags(client: &ExplainedClient) -> Option<String> {
    match (&client.key, client.address) {
        (Some(id), _) => Some(format!("--key-id {id}")),
        (None, Some(ip)) => Some(format!("--ip {ip}")),
        (None, None) => None,
    }
}

/// The state of a bucket.
fn level_words(level: &Level, burst: u64) -> String {
    let tokens = level.tokens;
    if level.enough {
        format!("{tokens} of {burst} tokens left")
    } else {
        let wait = span(level.retry_after_ms);
        format!("{tokens} of {burst} tokens left; enough in {wait}")
    }
}

/// A duration for people, rounded up.
fn span(milliseconds: u64) -> String {
    let seconds = milliseconds.div_ceil(1_000);
    let minutes = seconds.div_ceil(60);
    match (milliseconds, minutes) {
        (0..10_000, _) => format!("{milliseconds} ms"),
        (10_000..600_000, _) => format!("{seconds} s"),
        (_, ..600) => format!("{minutes} min"),
        _ => format!("{} h", minutes.div_ceil(60)),
    }
}
