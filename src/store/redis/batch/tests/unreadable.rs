//! The key of one of a request's buckets holds another type. That bucket is decided locally, and
//! Redis decides on the others; tokens are taken from all buckets or from none.

use super::*;
use crate::limit::verdict::Verdict;
use crate::store::deny_cache::MAX_AGE_US;
use crate::store::limiter::{Owed, Taken};

/// Two rules with one bucket each. The first bucket is unreadable.
struct Scene {
    server: RedisServer,
    limiter: Limiter,
    charges: Charges,
    rules: Arc<[StoredRule]>,
    series: CallSeries,
}

impl Scene {
    async fn start(bursts: [u64; 2], on_failure: [OnFailure; 2]) -> Self {
        let server = RedisServer::start(&[]);
        let charge = |rule: usize| {
            let bucket = if rule == 0 { 1 } else { 2 };
            Charge { rule: u32::try_from(rule).unwrap(), ..charges(bucket, bursts[rule])[0] }
        };
        let charges: Charges = (0..2).map(charge).collect();
        let rules: Arc<[StoredRule]> = ["bad", "good"]
            .into_iter()
            .zip(on_failure)
            .map(|(name, on_failure)| StoredRule {
                name: Arc::from(name),
                salt: 0,
                on_failure,
                lease: crate::policy::Lease::Off,
                is_leaky: false,
                ban: None,
            })
            .collect();
        let key = script::key("t:", charges[0].bucket, &rules[0]);
        let mut connection = server.client().get_connection().unwrap();
        redis::cmd("LPUSH").arg(key).arg("x").query::<()>(&mut connection).unwrap();
        let series = series();
        let batcher = batcher(connected(&server).await, 5_000, series.clone());
        let limits: Vec<Limit> = charges.iter().map(|charge| charge.limit).collect();
        let memory = Arc::new(MemoryStore::new(1_000, &limits));
        let limiter = Limiter::shared(memory, one_node(&batcher), Some(1));
        Self { server, limiter, charges, rules, series }
    }

    async fn take(&self) -> Taken {
        self.limiter.take(self.charges.clone(), &self.rules, clock::now()).await.0
    }

    /// Number of allowed requests, and the rule that the last verdict reports.
    async fn passed(&self, requests: usize) -> (usize, Option<u32>) {
        let (mut passed, mut rule) = (0, None);
        for _ in 0..requests {
            let taken = self.take().await;
            passed += usize::from(taken.answer.allowed());
            let verdict = Verdict::of(&taken.charges, &taken.answer);
            rule = verdict.reported_charge().map(|index| taken.charges[index].rule);
        }
        (passed, rule)
    }

    /// Tokens that Redis keeps of the second rule's bucket; `None` if none were taken.
    fn left(&self) -> Option<i64> {
        let key = script::key("t:", self.charges[1].bucket, &self.rules[1]);
        let mut connection = self.server.client().get_connection().unwrap();
        let kept: Option<Vec<u8>> = redis::cmd("GET").arg(key).query(&mut connection).unwrap();
        #[allow(clippy::cast_possible_truncation, reason = "a level is an integer")]
        let level = |kept: Vec<u8>| f64::from_le_bytes(kept[..8].try_into().unwrap()) as i64;
        kept.map(|kept| level(kept) / self.charges[1].limit.units(1))
    }
}

#[tokio::test]
async fn readable_buckets_are_decided_in_redis() {
    let scene = Scene::start([100, 9], [OnFailure::Local, OnFailure::Deny]).await;
    assert_eq!(scene.passed(4).await.0, 4);
    assert_eq!(scene.left(), Some(5));
}

#[tokio::test]
async fn denial_by_redis_takes_nothing_from_the_unreadable_bucket() {
    let scene = Scene::start([5, 2], [OnFailure::Local; 2]).await;
    assert_eq!(scene.passed(20).await, (2, Some(1)));
    assert_eq!(scene.left(), Some(0));
    // Only the first rule: three of its five tokens are left.
    let mut first_only = 0;
    for _ in 0..20 {
        let taken = scene.limiter.take(vec![scene.charges[0]], &scene.rules, clock::now()).await.0;
        first_only += usize::from(taken.answer.allowed());
    }
    assert_eq!(first_only, 3);
}

#[tokio::test]
async fn denial_by_the_unreadable_bucket_takes_nothing_in_redis() {
    let scene = Scene::start([3, 50], [OnFailure::Local; 2]).await;
    assert_eq!(scene.passed(20).await, (3, Some(0)));
    assert_eq!(scene.left(), Some(47));
}

#[tokio::test]
async fn on_failure_of_the_rule_applies_to_its_unreadable_bucket() {
    let scene = Scene::start([3, 50], [OnFailure::Deny, OnFailure::Local]).await;
    assert_eq!((scene.take().await.source, scene.left()), (Source::Policy, None));
    let scene = Scene::start([3, 9], [OnFailure::Allow, OnFailure::Local]).await;
    assert_eq!(scene.passed(20).await, (9, Some(1)));
    assert_eq!(scene.take().await.waived, [scene.charges[0]]);
}

#[tokio::test]
async fn request_with_only_an_unreadable_bucket_costs_one_call() {
    let scene = Scene::start([3, 9], [OnFailure::Local; 2]).await;
    let mut passed = 0;
    for _ in 0..10 {
        let taken = scene.limiter.take(vec![scene.charges[0]], &scene.rules, clock::now()).await.0;
        assert_eq!((taken.source_of(0), taken.charges.len()), (Source::Local, 1));
        passed += usize::from(taken.answer.allowed());
    }
    let calls = scene.series.checks.get_sample_count();
    assert_eq!((passed, calls, scene.limiter.debts()), (3, 10, 1));
}

/// Number of allowed requests, of five of another client, among many of a client that Redis has
/// denied; `None` if it took so long that the deny cache entry has expired.
async fn passed_beside_an_exhausted_client() -> Option<usize> {
    let scene = Arc::new(Scene::start([8, 2], [OnFailure::Local; 2]).await);
    let started = clock::now();
    assert_eq!(scene.passed(3).await, (2, Some(1)), "exhausted, and in the deny cache");
    let other = vec![scene.charges[0], Charge { rule: 1, ..charges(3, 9)[0] }];
    let mut tasks = Vec::new();
    for number in 0..60 {
        let (scene, other) = (Arc::clone(&scene), other.clone());
        tasks.push(tokio::spawn(async move {
            if number % 12 == 11 {
                let taken = scene.limiter.take(other, &scene.rules, clock::now()).await.0;
                return (taken.answer.allowed(), true);
            }
            let taken = scene.take().await;
            let verdict = Verdict::of(&taken.charges, &taken.answer);
            (taken.answer.allowed(), verdict == Verdict::Refused { binding: 1 })
        }));
    }
    let (mut passed, mut all_named) = (0, true);
    for task in tasks {
        let (is_allowed, is_named) = task.await.unwrap();
        passed += usize::from(is_allowed);
        all_named &= is_named;
    }
    let in_time = clock::now().saturating_sub(started) < MAX_AGE_US;
    assert!(all_named || !in_time, "a refusal reports the rule that is short");
    in_time.then_some(passed)
}

#[tokio::test]
async fn exhausted_client_takes_no_tokens_from_the_unreadable_bucket() {
    for _ in 0..20 {
        if let Some(passed) = passed_beside_an_exhausted_client().await {
            assert_eq!(passed, 5, "six tokens are left");
            return;
        }
    }
    panic!("no attempt ended within a second");
}

#[tokio::test]
async fn peek_predicts_take_for_unreadable_buckets() {
    for on_failure in [[OnFailure::Local; 2], [OnFailure::Allow, OnFailure::Deny]] {
        for bursts in [[3, 9], [9, 3]] {
            let scene = Scene::start(bursts, on_failure).await;
            for number in 0..12 {
                let now = clock::now();
                let peeked = scene.limiter.peek(&scene.charges, &scene.rules, now).await;
                let taken = scene.take().await;
                assert_eq!(peeked.answer.denied_by(), taken.answer.denied_by(), "{number}");
                assert_eq!((peeked.charges, peeked.waived), (taken.charges, taken.waived));
            }
        }
    }
}

/// What a request has cost is sent by itself, without a check that would find the bucket
/// unreadable.
#[tokio::test]
async fn debt_of_an_unreadable_bucket_is_kept() {
    let scene = Scene::start([100, 9], [OnFailure::Local, OnFailure::Deny]).await;
    for (index, debts) in [(1, 0), (0, 1)] {
        let answered = || scene.series.calls.with_label_values(&["ok"]).get();
        let before = answered();
        let owed = Owed { charge: scene.charges[index], share: Share::WHOLE };
        scene.limiter.debit(&[owed], &scene.rules, clock::now());
        let settled = async {
            while answered() == before {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), settled).await.unwrap();
        assert_eq!(scene.limiter.debts(), debts, "of the rule {index}");
    }
    assert_eq!(scene.left(), Some(8));
}
