use proptest::prelude::*;

use super::*;
use crate::base::duration::MICROS_PER_SECOND;

const SECOND: u64 = MICROS_PER_SECOND;

fn at(monotonic_us: u64) -> Times {
    // Any offset, so that confusing the two clocks fails a test.
    Times { monotonic_us, unix_us: monotonic_us + 1_795_000_000 * SECOND }
}

fn refused(client: &str, rule: &str, now: u64) -> Refused {
    let client = match client.parse() {
        Ok(ip) => ClientId::Address(ip),
        Err(_) => ClientId::Key(client.into()),
    };
    Refused {
        id: RunId {
            client,
            tenant: None,
            rule: Some(rule.into()),
            reason: Some(Reason::Limited),
            key_from: None,
            credential: CredentialState::Unknown,
            key_name: None,
            generation: 1,
        },
        first: at(now),
        last: at(now),
        count: 1,
        route: Some("search".into()),
        other_routes: false,
        cost: crate::limit::cost::Cost::parse("5"),
        tokens: Some(0),
    }
}

fn start(client: &str) -> Start {
    let ip = client.parse().unwrap_or(IpAddr::from([192, 0, 2, 9]));
    let rate = WrittenLimit::Rate(crate::policy::Rate { tokens: 100, period_us: SECOND });
    Start {
        key_from: None,
        reads_keys: true,
        ip: Some(ShownAddress::Plain(ip)),
        plan: Some("free".into()),
        limit: Some((rate, Some(500))),
    }
}

impl RunsOfKind {
    fn refuse(&mut self, client: &str, rule: &str, now: u64) {
        self.add(refused(client, rule, now), || start(client));
    }
}

impl RefusalRuns {
    fn refuse(&mut self, client: &str, rule: &str, now: u64) {
        self.add(Kind::Limit, refused(client, rule, now), || start(client));
    }

    fn take_pending_limits(&mut self) -> (usize, u64) {
        let [Pending { runs, more, .. }, ..] = self.take_pending();
        (runs.len(), more)
    }

    /// The matching runs, the latest first, each as `client rule count`.
    fn find(&self, query: Query) -> Vec<String> {
        let matches = self.select(&Query { limit: 100, ..query }).into_matches(0);
        let shown = |run: RefusalRunView| {
            let open = if run.is_open { " open" } else { "" };
            let client = run.key.or(run.ip).unwrap_or_default();
            format!("{client} {} {}{open}", run.rule.unwrap_or_default(), run.count)
        };
        matches.runs.into_iter().map(shown).collect()
    }
}

#[test]
fn refusals_within_ten_seconds_of_each_other_are_one_run() {
    let mut runs = RefusalRuns::default();
    for second in [0, 5, 14] {
        runs.refuse("acme", "r", second * SECOND);
    }
    runs.refuse("acme", "other", 14 * SECOND);
    runs.refuse("192.0.2.1", "r", 15 * SECOND);
    runs.end_expired(23 * SECOND);
    assert_eq!(runs.find(Query::default())[0], "192.0.2.1 r 1 open");
    assert_eq!(runs.take_pending_limits(), (0, 0));
    runs.end_expired(24 * SECOND);
    assert_eq!(runs.take_pending_limits(), (2, 0));
    // The same client again starts another run, whether `end_expired` ran in between or not.
    runs.refuse("acme", "r", 24 * SECOND);
    runs.refuse("192.0.2.1", "r", 26 * SECOND);
    let found = runs.find(Query::default());
    assert_eq!(found[..3], ["192.0.2.1 r 1 open", "acme r 1 open", "192.0.2.1 r 1"]);
    assert_eq!(found.len(), 5);
    assert!(found.contains(&"acme r 3".to_owned()), "{found:?}");
}

#[test]
fn endless_run_is_split_every_minute() {
    let mut runs = RefusalRuns::default();
    for second in 0..=150 {
        runs.refuse("acme", "r", second * SECOND);
        runs.end_expired(second * SECOND);
    }
    assert_eq!(runs.find(Query::default()), ["acme r 31 open", "acme r 60", "acme r 60"]);
}

#[test]
fn runs_are_found_by_key_address_rule_and_time() {
    let mut runs = RefusalRuns::default();
    runs.refuse("acme", "a", 0);
    runs.refuse("acme", "b", 100 * SECOND);
    runs.refuse("192.0.2.1", "a", 200 * SECOND);
    runs.refuse("192.0.2.1", "a", 205 * SECOND);
    let text = |text: &str| Some(text.to_owned());
    let ip = |text: &str| Some(ShownAddress::Plain(text.parse().unwrap()));
    let unix = |second: u64| Some(at(second * SECOND).unix_us);
    let table: [(Query, &[&str]); 8] = [
        (Query::default(), &["192.0.2.1 a 2 open", "acme b 1 open", "acme a 1 open"]),
        (Query { key: text("acme"), ..Query::default() }, &["acme b 1 open", "acme a 1 open"]),
        (Query { key: text("other"), ..Query::default() }, &[]),
        (Query { ip: ip("192.0.2.1"), ..Query::default() }, &["192.0.2.1 a 2 open"]),
        // Runs of a client with a key are found by its address, too.
        (Query { ip: ip("192.0.2.9"), rule: text("a"), ..Query::default() }, &["acme a 1 open"]),
        (Query { since: unix(203), ..Query::default() }, &["192.0.2.1 a 2 open"]),
        (Query { until: unix(99), ..Query::default() }, &["acme a 1 open"]),
        (Query { since: unix(50), until: unix(150), ..Query::default() }, &["acme b 1 open"]),
    ];
    for (query, expected) in table {
        assert_eq!(runs.find(query.clone()), expected, "{query:?}");
    }
    let latest = |limit| runs.select(&Query { limit, ..Query::default() }).into_matches(0);
    let two = latest(2);
    assert_eq!((two.runs.len(), two.more), (2, 1));
    assert!(two.runs[0].last.0 > two.runs[1].last.0);
    assert_eq!((latest(3).more, latest(0).more), (0, 3));
    insta::assert_snapshot!(serde_json::to_string_pretty(&latest(1).runs[0]).unwrap());
    insta::assert_debug_snapshot!(latest(1).runs[0].fields());
}

#[test]
fn refusals_of_several_threads_and_routes_are_one_run() {
    let mut runs = RefusalRuns::default();
    let mut add = |route: &str, first: u64, last: u64, count| {
        let (first, last) = (at(first * SECOND), at(last * SECOND));
        let route = Some(route.into());
        let refused = Refused { first, last, count, route, ..refused("acme", "r", 0) };
        runs.add(Kind::Limit, refused, || start("acme"));
    };
    add("search", 5, 9, 3);
    add("search", 4, 8, 2);
    add("chat", 10, 12, 1);
    let matches = runs.select(&Query { limit: 9, ..Query::default() }).into_matches(0);
    let [run] = &matches.runs[..] else { panic!("{matches:?}") };
    assert_eq!((run.count, run.route.as_deref(), run.other_routes), (6, Some("chat"), true));
    assert_eq!((run.first.0, run.last.0), (at(4 * SECOND).unix_us, at(12 * SECOND).unix_us));
}

#[test]
fn another_configuration_starts_another_run() {
    let mut runs = RefusalRuns::default();
    for generation in [1, 1, 2] {
        let id = RunId { generation, ..refused("acme", "r", 0).id };
        runs.add(Kind::Limit, Refused { id, ..refused("acme", "r", 0) }, || start("acme"));
    }
    let matches = runs.select(&Query { limit: 9, ..Query::default() }).into_matches(0);
    let mut counts: Vec<_> = matches.runs.iter().map(|run| (run.generation, run.count)).collect();
    counts.sort_unstable();
    assert_eq!(counts, [(1, 2), (2, 1)]);
}

/// A client by a token can be of several tenants, each of which sees its own refusals.
#[test]
fn another_tenant_starts_another_run() {
    let mut runs = RefusalRuns::default();
    for tenant in ["acme", "globex", "acme"] {
        let id = RunId { tenant: Some(tenant.into()), ..refused("ann", "r", 0).id };
        runs.add(Kind::Limit, Refused { id, ..refused("ann", "r", 0) }, || start("ann"));
    }
    for (tenant, count) in [("acme", 2), ("globex", 1)] {
        let query = Query { tenant: Some(tenant.to_owned()), limit: 9, ..Query::default() };
        let matches = runs.select(&query).into_matches(0);
        let counts: Vec<u64> = matches.runs.iter().map(|run| run.count).collect();
        assert_eq!(counts, [count], "{tenant}");
    }
}

/// A flood of one kind drops runs of that kind only.
#[test]
fn kinds_do_not_share_their_room() {
    let mut runs = RefusalRuns::default();
    runs.refuse("acme", "r", 0);
    let flood = |kind, runs: &mut RefusalRuns| {
        for client in 0..20_000 {
            let id = RunId { rule: None, ..refused(&format!("key-{client}"), "", 0).id };
            runs.add(kind, Refused { id, ..refused("", "", SECOND) }, || start(""));
        }
        runs.lose(kind, 3, at(2 * SECOND));
    };
    flood(Kind::Unauthorized, &mut runs);
    flood(Kind::Shadow, &mut runs);
    runs.end_all();
    let pending = runs.take_pending().map(|pending| (pending.runs.len(), pending.more));
    assert_eq!(pending, [(1, 0), (0, 0), (10, 19_990), (10, 19_990)]);
    let of = |kinds: &[Kind]| {
        let query = Query { kinds: Some(kinds.to_vec()), limit: 1, ..Query::default() };
        let Matches { runs, more, dropped, kept_since } = runs.select(&query).into_matches(7);
        (runs.len() + more, dropped, kept_since.0)
    };
    assert_eq!(of(&[Kind::Limit]), (1, 0, 7));
    let since = at(2 * SECOND).unix_us;
    assert_eq!(of(&[Kind::Shadow]), (2_500, 17_503, since));
    assert_eq!(of(&[Kind::Limit, Kind::Unauthorized]), (2_501, 17_503, since));
    assert_eq!(of(&Kind::ALL), (5_001, 35_006, since));
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    /// For any schedule of refusals, no collection exceeds its bound, and every refusal is in
    /// exactly one kept run or counted as dropped.
    #[test]
    fn memory_is_bounded_and_counts_add_up(
        steps in proptest::collection::vec((0..40_u8, 0..3_u8, 0..8 * SECOND, any::<bool>()), 1..300),
        open in 1..20_usize,
        ended in 0..20_usize,
    ) {
        let bounds = Bounds { open, ended, pending: 5 };
        let mut runs = RunsOfKind::new(Kind::Limit, bounds);
        let (mut now, mut refusals, mut reported) = (0, 0, 0);
        for (client, rule, pause, reports) in steps {
            now += pause;
            runs.refuse(&format!("key-{client}"), &format!("rule-{rule}"), now);
            refusals += 1;
            if reports {
                runs.end_expired(now);
                prop_assert!(runs.open.values().all(|run| !run.is_over(now)));
                let (pending, more) = runs.take_pending();
                reported += pending.len() as u64 + more;
            }
            prop_assert!(runs.open.len() <= open && runs.ended.len() <= ended);
            prop_assert!(runs.pending.len() <= 5);
            let kept = || runs.open.values().chain(&runs.ended);
            prop_assert!(kept().all(|run| run.refused.first.monotonic_us <= run.refused.last.monotonic_us));
            let counted: u64 = kept().map(|run| run.refused.count).sum();
            prop_assert_eq!(counted + runs.dropped, refusals);
        }
        runs.end_all();
        let (pending, more) = runs.take_pending();
        prop_assert!(reported + pending.len() as u64 + more >= 1);
        prop_assert!(runs.open.is_empty());
    }
}
