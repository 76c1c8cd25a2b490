//! The bound of docs/outages.md on fixed windows: three gateways whose Redis is killed and
//! restarted. What passes is what the upstream counts.

use std::time::Duration;

use super::{config, seconds_to_next_month};
use crate::kinds::{passed, request};
use crate::support::{
    ClientGroup, DEMO, Data, Fleet, Gateway, Load, Request, Upstream, WallClock, eventually,
    inconclusive, proxy_to, sleep_for,
};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Three gateways and their upstream.
struct Counted {
    fleet: Fleet,
    upstream: Upstream,
}

impl Counted {
    /// Starts gateways with this limit, for requests of this cost.
    fn start(clock: Option<WallClock>, limit: &str, cost: usize) -> Self {
        let upstream = Upstream::responding(OK);
        let routes =
            proxy_to(&[upstream.address]).replace("path = ", &format!("cost = {cost}\npath = "));
        let text =
            |redis: &str| config(redis, &format!("limit = \"{limit}\"")).replace(DEMO, &routes);
        Self { fleet: Fleet::start(Data::Kept, clock, text), upstream }
    }

    /// Requests that have passed, by the upstream.
    fn count(&self) -> usize {
        self.upstream.requests().len()
    }

    /// Tokens that are left in Redis, below zero after a settlement.
    fn left(&self) -> i64 {
        let view = self.fleet.gateways[0].admin("/api/clients/key/acme/buckets").json();
        view["rules"][0]["tokens"].as_i64().unwrap()
    }

    /// Clients of all gateways that send requests at a fixed rate, as long as `scenario` takes.
    fn under_load(&self, scenario: impl FnOnce()) {
        let lane =
            |gateway: &Gateway| ClientGroup::new(gateway, &request(), 4, Duration::from_millis(20));
        let before = self.count();
        let load = Load::start(self.fleet.gateways.iter().map(lane).collect());
        scenario();
        let mut passed = 0;
        for report in load.stop() {
            assert_eq!(report.broken(), 0);
            let counts = report.counts();
            assert!(counts.keys().all(|status| [200, 429].contains(status)), "{counts:?}");
            passed += counts.get(&200).copied().unwrap_or(0);
        }
        assert_eq!(self.count() - before, passed, "what clients got is what the upstream counted");
    }
}

/// The most tokens that docs/outages.md allows in a period.
fn bound(limit: usize, cost: usize) -> usize {
    limit + limit.max(3 * cost)
}

#[test]
fn gateways_grant_their_share_of_what_is_left_while_redis_is_away_and_settle_all_of_it() {
    let counted = Counted::start(None, "12/year", 1);
    let fleet = &counted.fleet;
    let [seen, second, third] = &fleet.gateways;
    assert_eq!(passed(&[seen], 4), 4);
    fleet.kill_redis();
    // 8 of 12 are left where Redis was seen, and 12 of 12 where it was not: a third of each.
    assert_eq!([seen, second, third].map(|gateway| passed(&[gateway], 20)), [2, 4, 4]);
    fleet.restart_redis();
    // Each gateway settles its debt, for which no request is needed: 4 + 2 + 4 + 4 of 12 are used.
    eventually("all debts to be settled", || (counted.left() == -2).then_some(()));
    assert_eq!(counted.count(), 14);
    assert_eq!(passed(&[seen, second, third], 30), 0);
}

/// Clients of all gateways send requests all the time, while Redis is killed and restarted.
struct Run {
    counted: Counted,
    limit: usize,
    cost: usize,
}

impl Run {
    fn start(limit: usize, cost: usize) -> Self {
        let counted = Counted::start(None, &format!("{limit}/year"), cost);
        Self { counted, limit, cost }
    }

    /// Tokens of the requests that have passed.
    fn tokens(&self) -> usize {
        self.counted.count() * self.cost
    }

    /// Asserts the bound on what has passed, that Redis has counted all of it, and that no more
    /// passes. Returns its tokens.
    fn check(&self) -> usize {
        let (counted, fleet) = (&self.counted, &self.counted.fleet);
        let sum = self.tokens();
        let by = |source| [("source", source), ("decision", "allow")];
        let [redis, local] =
            ["redis", "local"].map(|source| fleet.count("tollgate_decisions_total", &by(source)));
        let settled = fleet.count("tollgate_debt_settled_tokens_total", &[]);
        let (most, left) = (bound(self.limit, self.cost), counted.left());
        eprintln!(
            "{sum} tokens of at most {most}: {redis} requests by Redis, {local} locally, of which {settled} tokens are \
             settled; {left} are left"
        );
        assert!(sum <= most, "{sum} tokens, at most {most}");
        assert_eq!((redis + local) * self.cost, sum);
        // A call whose reply is lost may have taken tokens, and is decided again.
        assert!(settled >= local * self.cost, "{settled} tokens of {local} requests");
        let used = usize::try_from(i64::try_from(self.limit).unwrap() - left).unwrap();
        assert!(used >= sum, "Redis has {used} tokens, {sum} have passed");
        if used + self.cost <= self.limit {
            // No machine is so slow that half is left.
            assert!(used > self.limit / 2, "{used} tokens of {}", self.limit);
            inconclusive(&format!("the load took {used} of {} tokens only", self.limit));
            return sum;
        }
        assert_eq!(passed(&fleet.gateways.each_ref(), 30), 0);
        sum
    }
}

#[test]
fn three_gateways_stay_within_the_bound_of_the_period_while_redis_is_killed_twice() {
    let run = Run::start(1_200, 1);
    let fleet = &run.counted.fleet;
    let mut seen = Vec::new();
    run.counted.under_load(|| {
        for _ in 0..2 {
            sleep_for(Duration::from_millis(300));
            fleet.kill_redis();
            seen.push(run.tokens());
            sleep_for(Duration::from_millis(300));
            seen.push(run.tokens());
            fleet.restart_redis();
        }
        sleep_for(Duration::from_secs(1));
    });
    eprintln!("{seen:?} tokens at the beginning and the end of each outage");
    assert!(seen[0] > 0 && seen[0] < seen[1], "{seen:?}");
    run.check();
}

/// The share of a gateway is less than one request, and each grants one.
#[test]
fn costly_requests_stay_within_the_bound_of_the_period() {
    let run = Run::start(7, 3);
    let fleet = &run.counted.fleet;
    fleet.kill_redis();
    run.counted.under_load(|| {
        eventually("the share of each gateway", || (run.tokens() >= 9).then_some(()));
        sleep_for(Duration::from_millis(300));
        assert_eq!(run.tokens(), 9, "in the outage");
        fleet.restart_redis();
        sleep_for(Duration::from_secs(1));
    });
    run.check();
}

#[test]
fn period_that_begins_in_an_outage_has_its_own_bound() {
    const LIMIT: usize = 60;
    let clock = WallClock::new();
    let to_next_month = seconds_to_next_month();
    clock.set(to_next_month - 3_600);
    let counted = Counted::start(Some(clock), "60/month", 1);
    let fleet = &counted.fleet;
    let pass = |gateways: &[&Gateway]| passed(gateways, 2 * LIMIT);
    let [first, second, third] = &fleet.gateways;
    let third_of = LIMIT / 3;
    // The old month: all of it, and the shares of the gateways that have not seen it.
    assert_eq!(pass(&[first]), LIMIT);
    fleet.kill_redis();
    assert_eq!([first, second, third].map(|one| pass(&[one])), [0, third_of, third_of]);
    assert_eq!(counted.count(), LIMIT + 2 * third_of);
    // The new one: its shares.
    fleet.set_clock(to_next_month + 3_600);
    let counted_before = counted.count();
    assert_eq!(pass(&fleet.gateways.each_ref()), LIMIT);
    fleet.restart_redis();
    // Until the others have settled their debts of this month, Redis does not know them. It gets
    // none of the last.
    assert!(pass(&[first]) <= LIMIT - third_of);
    counted.under_load(|| sleep_for(Duration::from_secs(1)));
    let sum = counted.count() - counted_before;
    assert!((LIMIT..=2 * LIMIT - third_of).contains(&sum), "{sum}");
    assert!(sum <= bound(LIMIT, 1));
    let left = i64::try_from(LIMIT).unwrap() - i64::try_from(sum).unwrap();
    eventually("all debts to be settled", || (counted.left() == left).then_some(()));
}

/// What a gateway grants from a top-up while Redis is away is taken from it once Redis responds,
/// also if the period has ended meanwhile.
#[test]
fn row_235_top_up_that_was_used_before_the_end_of_a_period_is_not_used_again() {
    const LIMIT: usize = 60;
    let clock = WallClock::new();
    let to_next_month = seconds_to_next_month();
    clock.set(to_next_month - 3_600);
    let counted = Counted::start(Some(clock), "60/month", 1);
    let fleet = &counted.fleet;
    let [first, second, third] = &fleet.gateways;
    let path = "/api/clients/key/acme";
    let body = r#"{"rule": "quota", "tokens": 60, "expires": "90d"}"#;
    let granted = first.send_admin(&Request::new("POST", &format!("{path}/grant")).body(body));
    assert_eq!(granted.status, 200, "{}", granted.text());
    assert_eq!(passed(&[first], LIMIT + 30), LIMIT + 30);
    fleet.kill_redis();
    // A third of the 30 that are left.
    assert_eq!(passed(&[first], LIMIT), 10);
    fleet.set_clock(to_next_month + 3_600);
    fleet.restart_redis();
    let left = || second.admin(&format!("{path}/top-ups")).json()["top_ups"][0]["left"].as_f64();
    eventually("the debt to be taken", || (left() == Some(20.0)).then_some(()));
    eventually("a refusal", || (passed(&[first, second, third], 30) == 0).then_some(()));
    assert_eq!(counted.count(), LIMIT + 60 + LIMIT);
}
