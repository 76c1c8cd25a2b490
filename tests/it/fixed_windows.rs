//! Fixed windows: calendar quotas, in memory and in Redis. Most tests use a limit per year, whose
//! period does not end during a test, except in the first seconds of a year in UTC.

mod outages;

use std::time::Duration;

use crate::kinds::{passed, request};
use crate::shared::is_decided_locally;
use crate::support::{
    CpuWaits, DEMO, Gateway, Redis, Stopwatch, WallClock, check, eventually, full_config,
    inconclusive, key, sleep_for,
};

fn rule(settings: &str) -> String {
    format!("[rules.quota]\nper = [\"key\"]\nkind = \"fixed_window\"\n{settings}\n")
}

/// A configuration with one key and this rule.
fn config(more: &str, settings: &str) -> String {
    format!("{DEMO}{more}\n{}{}", rule(settings), key("acme", "secret", "free"))
}

fn number(response: &crate::support::Response, header: &str) -> u64 {
    response.header(header).unwrap().parse().unwrap()
}

#[test]
fn exactly_the_limit_passes_and_the_rest_waits_for_the_next_period() {
    let gateway = Gateway::start(&config("", "limit = \"10/year\""));
    let first = gateway.send(&request());
    assert_eq!((first.status, first.remaining()), (200, 9));
    let now = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
    let end = now.last_of_year().unwrap().tomorrow().unwrap().start_of_day().unwrap();
    let end = u64::try_from(end.timestamp().as_second()).unwrap();
    // Whole seconds, rounded up.
    let reset = number(&first, "x-ratelimit-reset");
    assert!((end..=end + 2).contains(&reset), "{reset} instead of {end}");
    let policy = first.header("ratelimit-policy").unwrap().to_owned();
    assert!(
        policy == "\"quota\";q=10;w=31536000" || policy == "\"quota\";q=10;w=31622400",
        "{policy}"
    );
    assert_eq!(passed(&[&gateway], 50), 9);
    let refused = gateway.send(&request());
    assert_eq!(refused.status, 429);
    let until_end = end - u64::try_from(now.timestamp().as_second()).unwrap();
    let retry = number(&refused, "retry-after");
    assert!(retry <= until_end + 2 && until_end <= retry + 30, "{retry} of {until_end}");
    assert!(refused.text().contains("(10/year, plan free)"), "{}", refused.text());
}

#[test]
fn next_period_has_the_whole_limit_again() {
    let gateway = Gateway::start(&config("", "limit = \"3/s\""));
    // Exhausted, and reset by the clock alone, twice.
    for _ in 0..2 {
        eventually("a refusal", || (gateway.send(&request()).status == 429).then_some(()));
        eventually("the next second", || {
            let response = gateway.send(&request());
            (response.status == 200 && response.remaining() == 2).then_some(())
        });
    }
}

#[test]
fn three_gateways_allow_exactly_the_limit_in_redis() {
    let redis = Redis::start();
    let text = config(&redis.table(), "limit = \"100/year\"\nzone = \"Asia/Tokyo\"");
    let gateways: [Gateway; 3] = std::array::from_fn(|_| Gateway::start(&text));
    for gateway in &gateways {
        gateway.wait_for_redis();
    }
    let waits = CpuWaits::now();
    let allowed = passed(&gateways.each_ref(), 300);
    if is_decided_locally(&gateways, &waits) {
        return;
    }
    assert_eq!(allowed, 100);
    let keys: Vec<String> = redis.query(&["KEYS", "tollgate:*:quota"]);
    assert_eq!(keys.len(), 1);
    let (bytes, left_ms): (usize, i64) =
        (redis.query(&["STRLEN", &keys[0]]), redis.query(&["PTTL", &keys[0]]));
    assert_eq!(bytes, 24);
    assert!(0 < left_ms && left_ms <= 366 * 86_400_000 + 1_000, "{left_ms}");
}

#[test]
fn changed_limit_zone_and_anchor_keep_what_was_used() {
    for redis in [None, Some(Redis::start())] {
        let table = redis.as_ref().map(Redis::table).unwrap_or_default();
        let text = |settings: &str| config(&table, settings);
        let gateway = Gateway::start(&config(&table, "limit = \"10/year\""));
        if redis.is_some() {
            gateway.wait_for_redis();
        }
        assert_eq!(passed(&[&gateway], 4), 4);
        // (settings, remaining after one more request)
        let changes = [
            ("limit = \"8/year\"", 3),
            ("limit = \"100/year\"\nzone = \"Pacific/Auckland\"", 94),
            ("limit = \"100/month\"\nanchor = 31", 93),
        ];
        for (settings, remaining) in changes {
            gateway.apply(&text(settings));
            assert_eq!(gateway.send(&request()).remaining(), remaining, "{settings}");
        }
    }
}

/// Seconds until the next month begins in UTC.
fn seconds_to_next_month() -> i64 {
    let now = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
    let next_month = now.last_of_month().unwrap().tomorrow().unwrap().start_of_day().unwrap();
    next_month.timestamp().as_second() - now.timestamp().as_second()
}

/// Redis and two gateways agree on the time; the third gateway is two hours ahead.
#[test]
fn month_begins_once_on_three_gateways_one_of_which_has_a_wrong_clock() {
    let to_boundary = seconds_to_next_month();
    let (right, ahead) = (WallClock::new(), WallClock::new());
    let set = |from_boundary: i64| {
        right.set(to_boundary + from_boundary);
        ahead.set(to_boundary + from_boundary + 7_200);
    };
    let began = Stopwatch::start();
    set(-60);
    let mut redis = Redis::stopped();
    redis.launch_with(|command| right.apply_to(command));
    let text = full_config(&config(&redis.table(), "limit = \"20/month\""));
    let gateways = [&right, &right, &ahead]
        .map(|clock| Gateway::start_with(&text, |command| clock.apply_to(command)));
    gateways.iter().for_each(Gateway::wait_for_redis);
    let waits = CpuWaits::now();
    // A gateway that decides without Redis grants tokens of its own, in any of these rounds.
    let first = passed(&gateways.each_ref(), 60);
    if is_decided_locally(&gateways, &waits) {
        return;
    }
    assert_eq!(first, 20);
    let refused = gateways[2].send(&request());
    let wait = number(&refused, "retry-after");
    if began.elapsed().as_secs() > 50 {
        return inconclusive("the month ended before the requests were counted");
    }
    assert!((1..=60).contains(&wait), "by the clock of Redis: {wait} s");
    let waits = CpuWaits::now();
    // An hour later it is the next month.
    set(3_600);
    let counted = eventually("the next month", || {
        let passed = passed(&gateways.each_ref(), 30);
        (passed > 0).then_some(passed)
    });
    // The first round may have ended in the deny cache, which lasts a second.
    sleep_for(Duration::from_millis(1_100));
    let second = counted + passed(&gateways.each_ref(), 60);
    if is_decided_locally(&gateways, &waits) {
        return;
    }
    assert_eq!(second, 20);
    // Back into the old month, and forward again.
    for from_boundary in [-30, 3_700] {
        set(from_boundary);
        sleep_for(Duration::from_millis(1_100));
        let waits = CpuWaits::now();
        let more = passed(&gateways.each_ref(), 30);
        if is_decided_locally(&gateways, &waits) {
            return;
        }
        assert_eq!(more, 0, "{from_boundary}");
    }
}

#[test]
fn check_notes_what_passes_at_a_boundary() {
    let outcome = check(full_config(&config("", "limit = \"10/d\"")).as_bytes());
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let note = "note: the rule `quota` (10/d) lets up to 20 pass in a short time around the start of a period";
    assert!(outcome.stdout.contains(note), "{}", outcome.stdout);
    // A rate for the same clients bounds it.
    let rate = "[rules.rate]\nper = [\"key\"]\nrate = \"1/s\"\nburst = 5\n";
    let bounded = format!("{}\n{rate}", config("", "limit = \"10/d\""));
    let outcome = check(full_config(&bounded).as_bytes());
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(!outcome.stdout.contains("note:"), "{}", outcome.stdout);
}
