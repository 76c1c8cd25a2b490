//! Sliding windows, in memory and in Redis.

use std::time::Duration;

use crate::kinds::{passed, request};
use crate::shared::is_decided_locally;
use crate::support::{
    ClientGroup, CpuWaits, DEMO, Data, Fleet, Gateway, Load, Redis, Report, Request, Stopwatch,
    check, eventually, full_config, inconclusive_if_stalled, key, sleep_for, tollgate,
    wait_retry_after,
};

fn rule(settings: &str) -> String {
    format!("[rules.window]\nper = [\"key\"]\n{settings}\n")
}

/// A configuration with one key and a sliding window with this limit.
fn config(more: &str, limit: &str) -> String {
    let rule = rule(&format!("kind = \"sliding_window\"\nlimit = \"{limit}\""));
    format!("{DEMO}{more}\n{rule}{}", key("acme", "secret", "free"))
}

/// When a request that passed was sent and answered.
type Pass = (Duration, Duration);

/// Sends requests to all gateways without a pause until `is_over`. Returns those that passed, in
/// the order of their answers.
fn load(gateways: &[Gateway], watch: Stopwatch, is_over: impl Fn() -> bool + Sync) -> Vec<Pass> {
    let lane = |gateway: &Gateway| {
        let mut connection = gateway.connect();
        let mut passes = Vec::new();
        while !is_over() {
            let sent = watch.elapsed();
            let response = connection.send(&request());
            match response.status {
                200 => passes.push((sent, watch.elapsed())),
                429 => sleep_for(Duration::from_millis(8)),
                status => panic!("{status}: {}", response.text()),
            }
        }
        passes
    };
    let mut passes: Vec<Pass> = std::thread::scope(|scope| {
        let lanes: Vec<_> =
            gateways.iter().map(|gateway| scope.spawn(move || lane(gateway))).collect();
        lanes.into_iter().flat_map(|lane| lane.join().unwrap()).collect()
    });
    passes.sort_unstable_by_key(|(_, answered)| *answered);
    passes
}

/// The most requests that certainly passed within a window of this length.
fn most_in(passes: &[Pass], window: Duration) -> usize {
    let from = |first: &Pass| {
        let inside = |pass: &&Pass| pass.0 >= first.0 && pass.1 < first.0 + window;
        passes.iter().filter(inside).count()
    };
    passes.iter().map(from).max().unwrap_or(0)
}

#[test]
fn two_gateways_allow_exactly_the_limit_in_any_window() {
    const LIMIT: usize = 40;
    const WINDOW: Duration = Duration::from_secs(2);
    let redis = Redis::start();
    let text = config(&redis.table(), "40/2s");
    let gateways: [Gateway; 2] = std::array::from_fn(|_| Gateway::start(&text));
    gateways.iter().for_each(Gateway::wait_for_redis);
    let (waits, watch) = (CpuWaits::now(), Stopwatch::start());
    let passes = load(&gateways, watch, || watch.elapsed() > 4 * WINDOW);
    if is_decided_locally(&gateways, &waits) {
        return;
    }
    let most = most_in(&passes, WINDOW);
    assert!(most <= LIMIT, "{most} in a window");
    // No machine is so slow that half of the four windows are missing.
    let count = passes.len();
    assert!(count > 2 * LIMIT, "{count} passed");
    // Nor are they refused below the limit: each has its successor in the next window, as soon as
    // it has left. A busy machine is late for it, and then fewer than four windows pass.
    let late = |pair: (&Pass, &Pass)| pair.1.1.saturating_sub(pair.0.1 + WINDOW);
    let latest = passes.iter().zip(&passes[LIMIT..]).map(late).max().unwrap();
    let late = Duration::from_millis(300);
    if latest > late || count < 4 * LIMIT {
        let found = format!("{count} passed, the latest {latest:?} after the token left");
        inconclusive_if_stalled(&found, waits.stall(), late);
    }
    println!(
        "{count} passed, {most} at most in a window, the latest {latest:?} after the token left"
    );
    assert!(count <= 5 * LIMIT, "{count}");
}

#[test]
fn retry_after_is_exact() {
    const WINDOW: Duration = Duration::from_secs(2);
    // Waits of a machine on which stamps may have left the window before the test expects it.
    const LATE: Duration = Duration::from_millis(500);
    let redis = Redis::start();
    for table in [String::new(), redis.table()] {
        let gateway = Gateway::start(&config(&table, "3/2s"));
        if !table.is_empty() {
            gateway.wait_for_redis();
        }
        let (waits, watch) = (CpuWaits::now(), Stopwatch::start());
        assert_eq!(gateway.send(&request()).status, 200);
        sleep_for(Duration::from_millis(700));
        let second = watch.elapsed();
        assert_eq!(passed(&[&gateway], 2), 2);
        let before = watch.elapsed();
        let refused = gateway.send(&request());
        let after = watch.elapsed();
        if !table.is_empty() && is_decided_locally(std::slice::from_ref(&gateway), &waits) {
            return;
        }
        if after >= WINDOW {
            let what = "the first request may have left the window";
            inconclusive_if_stalled(what, waits.stall(), LATE);
            continue;
        }
        assert_eq!(refused.status, 429);
        let detail = refused.text();
        assert!(detail.contains("(3/2s, plan free)"), "{detail}");
        let wait = detail.split("retry in ").nth(1).and_then(|rest| rest.split(' ').next());
        let wait = Duration::from_millis(wait.unwrap().parse().unwrap());
        assert!(wait <= Duration::from_millis(1_301) && !wait.is_zero(), "{wait:?}");
        let retry_after = refused.header("retry-after").unwrap().parse().unwrap();
        assert_eq!(Duration::from_secs(retry_after), Duration::from_secs(wait.as_secs() + 1));
        // Some milliseconds before it is refused, and from then on exactly one passes.
        let early = (before + wait).saturating_sub(Duration::from_millis(30));
        // A process that was idle can be slow to wake up: this request is refused for sure.
        let awake = early.saturating_sub(Duration::from_millis(150));
        let waits = CpuWaits::now();
        sleep_for(awake.saturating_sub(watch.elapsed()));
        let slow = Duration::from_millis(5);
        let status = gateway.send(&request()).status;
        if watch.elapsed() >= before + wait {
            inconclusive_if_stalled("a request took longer than 180 ms", waits.stall(), slow);
            continue;
        }
        assert_eq!(status, 429, "much too early");
        sleep_for(early.saturating_sub(watch.elapsed()));
        let status = gateway.send(&request()).status;
        if watch.elapsed() < before + wait {
            assert_eq!(status, 429, "early");
        } else {
            inconclusive_if_stalled("a request took longer than 30 ms", waits.stall(), slow);
            continue;
        }
        sleep_for((after + wait).saturating_sub(watch.elapsed()) + Duration::from_millis(2));
        let statuses = [0, 1].map(|_| gateway.send(&request()).status);
        if !table.is_empty() && is_decided_locally(std::slice::from_ref(&gateway), &waits) {
            return;
        }
        assert_eq!(statuses[0], 200, "one has left the window");
        if watch.elapsed() >= second + WINDOW {
            let what = "the second request may have left the window";
            inconclusive_if_stalled(what, waits.stall(), LATE);
            continue;
        }
        assert_eq!(statuses[1], 429, "a second one has not");
    }
}

#[test]
fn changed_limit_keeps_the_stamps_and_another_kind_starts_full() {
    let redis = Redis::start();
    for table in [String::new(), redis.table()] {
        let gateway = Gateway::start(&config(&table, "10/h"));
        if !table.is_empty() {
            gateway.wait_for_redis();
        }
        assert_eq!(passed(&[&gateway], 4), 4);
        // (limit, remaining after one more request)
        for (limit, remaining) in
            [("8/h", 3), ("100/2h", 94), ("100/m", 93), ("9/m", 1), ("9/h", 0)]
        {
            gateway.apply(&config(&table, limit));
            assert_eq!(gateway.send(&request()).remaining(), remaining, "{limit}");
        }
        assert_eq!(gateway.send(&request()).status, 429);
        for kind in ["rate = \"1/h\"\nburst = 7", "kind = \"sliding_window\"\nlimit = \"7/h\""] {
            let other = format!("{DEMO}{table}\n{}{}", rule(kind), key("acme", "secret", "free"));
            gateway.apply(&other);
            assert_eq!(gateway.send(&request()).remaining(), 6, "{kind}");
        }
    }
}

#[test]
fn operator_reads_grants_and_resets_a_window() {
    let redis = Redis::start();
    for table in [String::new(), redis.table()] {
        let gateway = Gateway::start(&config(&table, "10/m"));
        if !table.is_empty() {
            gateway.wait_for_redis();
        }
        assert_eq!(passed(&[&gateway], 12), 10);
        let view = || gateway.admin("/api/clients/key/acme/buckets").json()["rules"][0].clone();
        let shown = view();
        assert_eq!((&shown["kind"], &shown["rate"]), (&"sliding_window".into(), &"10/m".into()));
        let (next, full) = (&shown["next_after_ms"], &shown["full_after_ms"]);
        let (next, full) = (next.as_u64().unwrap(), full.as_u64().unwrap());
        assert!((50_000..=60_000).contains(&next) && (next..=60_000).contains(&full), "{shown}");
        let adjust = |action: &str, body: &str| {
            let path = format!("/api/clients/key/acme/{action}");
            let request = Request::new("POST", &path).header("Content-Type", "application/json");
            gateway.send_admin(&request.body(body)).status
        };
        assert_eq!(adjust("grant", "{\"rule\": \"window\", \"tokens\": 3}"), 200);
        assert_eq!(passed(&[&gateway], 10), 3);
        assert_eq!(adjust("reset", "{\"rule\": \"window\"}"), 200);
        assert_eq!(view()["tokens"], 10);
        assert_eq!(passed(&[&gateway], 12), 10);
    }
}

/// `MEMORY USAGE` counts the key, the value and Redis' own bookkeeping.
#[test]
fn full_log_takes_8_bytes_for_each_stamp_in_redis() {
    let redis = Redis::start();
    for limit in [100_u64, 4_096] {
        let text = config(&redis.table_with_timeout("1s"), &format!("{limit}/h"));
        let gateway = Gateway::start(&text);
        gateway.wait_for_redis();
        let count = usize::try_from(limit).unwrap();
        let waits = CpuWaits::now();
        let passed = passed(&[&gateway], count + 50);
        if is_decided_locally(std::slice::from_ref(&gateway), &waits) {
            return;
        }
        assert_eq!(passed, count);
        let keys: Vec<String> = redis.query(&["KEYS", "tollgate:*:window"]);
        let [log] = &keys[..] else { panic!("{keys:?}") };
        let length: u64 = redis.query(&["STRLEN", log]);
        assert_eq!(length, 40 + 8 * limit);
        let left_ms: i64 = redis.query(&["PTTL", log]);
        assert!((3_500_000..=3_601_000).contains(&left_ms), "{left_ms}");
        // The usual alternative: a sorted set with a unique member for each request.
        for number in 0..limit {
            let time = 1_764_000_000_000_000 + 1_000 * number;
            let member = format!("{time}-{number:08x}");
            redis.query::<u64>(&["ZADD", "set", &time.to_string(), &member]);
        }
        let usage = |key: &str| redis.query::<u64>(&["MEMORY", "USAGE", key, "SAMPLES", "0"]);
        let (log_bytes, set_bytes) = (usage(log), usage("set"));
        println!("{limit} stamps: {log_bytes} bytes, a sorted set: {set_bytes} bytes");
        assert!(log_bytes <= 10 * limit + 250, "{log_bytes}");
        assert!(limit < 1_000 || set_bytes > 10 * log_bytes, "{set_bytes}");
        redis.query::<u64>(&["DEL", "set", log]);
    }
}

#[test]
fn gateways_grant_their_share_while_redis_is_away_and_settle_all_of_it() {
    let fleet = Fleet::start(Data::Kept, None, |redis| config(redis, "30/h"));
    let [seen, second, third] = &fleet.gateways;
    assert_eq!(passed(&[seen], 12), 12);
    fleet.kill_redis();
    // 18 of 30 are left where Redis was seen, and 30 of 30 where it was not: a third of each.
    let shares = [seen, second, third].map(|gateway| passed(&[gateway], 20));
    assert_eq!(shares, [6, 10, 10]);
    fleet.restart_redis();
    // The first call of each gateway settles its debt: 18, 29 and 40 of 30 are used.
    assert_eq!([seen, second, third].map(|gateway| passed(&[gateway], 1)), [1, 1, 0]);
    assert_eq!(passed(&[seen, second, third], 30), 0);
    let view = seen.admin("/api/clients/key/acme/buckets").json();
    assert_eq!(view["rules"][0]["tokens"], 0);
}

/// A client sends all it can through several outages, judged by the bounds of docs/outages.md.
#[test]
fn no_window_has_more_than_the_bound_in_an_outage() {
    const LIMIT: usize = 30;
    const WINDOW: Duration = Duration::from_secs(2);
    let fleet = Fleet::start(Data::Kept, None, |redis| config(redis, "30/2s"));
    let watch = Stopwatch::start();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    let mut outages = Vec::new();
    let mut settled = Duration::ZERO;
    let passes = std::thread::scope(|scope| {
        let load = scope.spawn(|| load(&fleet.gateways, watch, || is_over.load(order)));
        for length in [1, 5] {
            sleep_for(Duration::from_secs(2));
            fleet.kill_redis();
            let began = watch.elapsed();
            sleep_for(Duration::from_secs(length));
            outages.push((began, watch.elapsed()));
            fleet.restart_redis();
            // Each gateway has called Redis since, and settled its debt.
            sleep_for(Duration::from_millis(1_200));
            settled = watch.elapsed();
        }
        sleep_for(3 * WINDOW);
        is_over.store(true, order);
        load.join().unwrap()
    });
    let most = most_in(&passes, WINDOW);
    assert!(most <= 2 * LIMIT, "{most} in a window");
    let within = |from: Duration, to: Duration| -> Vec<Pass> {
        passes.iter().filter(|pass| pass.0 >= from && pass.1 < to).copied().collect()
    };
    for (began, ended) in outages {
        // The shares of the three gateways.
        let most = most_in(&within(began, ended), WINDOW);
        assert!(most <= LIMIT, "{most} in a window within an outage");
    }
    let after = within(settled, Duration::MAX);
    let most_after = most_in(&after, WINDOW);
    println!("at most {most} in any window, {most_after} of {} after the outages", after.len());
    assert!(most_after <= LIMIT, "{most_after} after the outages");
    assert!(after.len() >= LIMIT, "the client is served again");
}

/// One of three gateways may grant three tokens in any window, and a request of five needs an empty
/// one.
#[test]
fn costly_request_passes_beside_cheap_ones_while_redis_is_away() {
    const WINDOW: Duration = Duration::from_secs(1);
    let route = "\n[routes.costly]\npath = \"/costly\"\nupstream = \"api\"\ncost = 5\n";
    let text = |redis: &str| config(&format!("{route}{redis}"), "10/s");
    let fleet = Fleet::start(Data::Kept, None, text);
    fleet.kill_redis();
    let gateway = &fleet.gateways[0];
    let cheap = ClientGroup::new(gateway, &request(), 2, Duration::from_millis(100));
    let load = Load::start(vec![cheap]);
    sleep_for(WINDOW);
    let costly = Request::get("/costly").header("X-Api-Key", "secret");
    let waits = [(); 2].map(|()| {
        let asked = load.elapsed();
        eventually("the costly request to pass", || {
            let response = gateway.send(&costly);
            if response.status == 200 {
                return Some(());
            }
            let wait = response.header("retry-after").unwrap().parse().unwrap();
            wait_retry_after(Duration::from_secs(wait));
            None
        });
        load.elapsed().saturating_sub(asked)
    });
    let cpu_waits = CpuWaits::now();
    let left = load.elapsed();
    sleep_for(4 * WINDOW);
    let report = load.stop().remove(0);
    let passed = |report: &Report| report.counts().get(&200).copied().unwrap_or(0);
    // The load may end late.
    let [most, after] =
        [left + 4 * WINDOW, Duration::MAX].map(|end| passed(&report.during(&(left..end))));
    let sum = passed(&report);
    eprintln!("costly ones waited for {waits:?}; {sum} of {} cheap ones passed", report.len());
    let documented = 4 * WINDOW + Duration::from_secs(6);
    assert!(waits.iter().all(|wait| *wait <= documented), "{waits:?}");
    // One window without them, and in the last of four they may still be under way.
    assert!(most <= 12 && after > 0, "{most} and {after} cheap ones after the last costly one");
    if after < 6 {
        let found = format!("{after} cheap ones after the last costly one");
        inconclusive_if_stalled(&found, cpu_waits.stall(), WINDOW);
    }
}

#[test]
fn check_names_the_other_form_for_a_large_limit_and_the_missing_rights() {
    let outcome = check(full_config(&config("", "5000/h")).as_bytes());
    assert_eq!(outcome.code, Some(64), "{}", outcome.stdout);
    let help = "write `kind = \"token_bucket\"`, `limit = \"5000/h\"` and `burst = 500`";
    assert!(outcome.stderr.contains(help), "{}", outcome.stderr);

    let redis = Redis::start();
    let set = |rights: &str| {
        let call = ["ACL", "SETUSER", "gateway"].into_iter().chain(rights.split(' '));
        redis.query::<String>(&call.collect::<Vec<_>>());
    };
    set("on >pw resetkeys ~tollgate:* resetchannels -@all +ping +eval +evalsha +time +get +set \
         +zadd +zremrangebyscore +zcard +pexpire");
    let user = "username = \"gateway\"\npassword = \"pw\"\n";
    let text = full_config(&config(&format!("{}{user}", redis.table()), "10/m"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    std::fs::write(&file, &text).unwrap();
    let path = file.to_str().unwrap();
    let warnings = || tollgate(&["check", "--connect", "-c", path], "").stderr;
    let missing = "its user may not run GETRANGE, SETRANGE";
    assert!(warnings().contains(missing), "{}", warnings());
    set("+getrange +setrange");
    assert!(!warnings().contains("may not run"), "{}", warnings());
    let gateway = Gateway::start_full(&text);
    gateway.wait_for_redis();
    let waits = CpuWaits::now();
    let passed = passed(&[&gateway], 20);
    if is_decided_locally(std::slice::from_ref(&gateway), &waits) {
        return;
    }
    assert_eq!(passed, 10);
}
