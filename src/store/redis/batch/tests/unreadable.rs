//! A key of another type stands in the place of one of a request's buckets. That bucket is decided
//! in this process; Redis decides the others, and all of them pay or none.

use super::*;
use crate::limit::verdict::Verdict;
use crate::store::limiter::Taken;

/// Two rules, one bucket each, of which Redis cannot read the first.
struct Scene {
    server: RedisServer,
    limiter: Limiter,
    charges: Charges,
    rules: Arc<[RuleName]>,
}

impl Scene {
    async fn start(bursts: [u64; 2], on_failure: [OnFailure; 2]) -> Self {
        let server = RedisServer::start(&[]);
        let charge = |rule: usize| {
            let bucket = if rule == 0 { 1 } else { 2 };
            Charge { rule: u32::try_from(rule).unwrap(), ..charges(bucket, bursts[rule])[0] }
        };
        let charges: Charges = (0..2).map(charge).collect();
        let rules: Arc<[RuleName]> = ["bad", "good"]
            .into_iter()
            .zip(on_failure)
            .map(|(name, on_failure)| RuleName { name: Arc::from(name), salt: 0, on_failure })
            .collect();
        let key = script::key("t:", charges[0].bucket, &rules[0]);
        let mut connection = server.client().get_connection().unwrap();
        redis::cmd("LPUSH").arg(key).arg("x").query::<()>(&mut connection).unwrap();
        let batcher = batcher(connected(&server).await, 5_000, series());
        let quotas: Vec<Quota> = charges.iter().map(|charge| charge.quota).collect();
        let memory = Arc::new(MemoryStore::new(1_000, &quotas));
        let limiter = Limiter::shared(memory, batcher, Arc::new(Debts::new(1_000)), Some(1));
        Self { server, limiter, charges, rules }
    }

    async fn take(&self) -> Taken {
        self.limiter.take(self.charges.clone(), &self.rules, clock::now()).await
    }

    /// How many of so many requests pass, and the rule that the last verdict speaks of.
    async fn passed(&self, requests: usize) -> (usize, Option<u32>) {
        let (mut passed, mut rule) = (0, None);
        for _ in 0..requests {
            let taken = self.take().await;
            passed += usize::from(taken.answer.allowed());
            let verdict = Verdict::of(&taken.charges, &taken.answer);
            rule = verdict.speaks_of().map(|index| taken.charges[index].rule);
        }
        (passed, rule)
    }

    /// Tokens that Redis keeps of the second rule's bucket; none where nobody took from it.
    fn left(&self) -> Option<i64> {
        let key = script::key("t:", self.charges[1].bucket, &self.rules[1]);
        let mut connection = self.server.client().get_connection().unwrap();
        let kept: Option<Vec<u8>> = redis::cmd("GET").arg(key).query(&mut connection).unwrap();
        #[allow(clippy::cast_possible_truncation, reason = "a level is an integer")]
        let level = |kept: Vec<u8>| f64::from_le_bytes(kept[..8].try_into().unwrap()) as i64;
        kept.map(|kept| level(kept) / self.charges[1].quota.units_per_token())
    }
}

#[tokio::test]
async fn rules_whose_buckets_can_be_read_are_decided_in_redis() {
    let scene = Scene::start([100, 9], [OnFailure::Local, OnFailure::Deny]).await;
    assert_eq!(scene.passed(4).await.0, 4);
    assert_eq!(scene.left(), Some(5));
}

#[tokio::test]
async fn a_refusal_by_redis_takes_nothing_from_the_unreadable_bucket() {
    let scene = Scene::start([5, 2], [OnFailure::Local; 2]).await;
    assert_eq!(scene.passed(20).await, (2, Some(1)));
    assert_eq!(scene.left(), Some(0));
    // The first rule alone: three of its five tokens are left.
    let mut alone = 0;
    for _ in 0..20 {
        let taken = scene.limiter.take(vec![scene.charges[0]], &scene.rules, clock::now()).await;
        alone += usize::from(taken.answer.allowed());
    }
    assert_eq!(alone, 3);
}

#[tokio::test]
async fn a_refusal_by_the_unreadable_bucket_takes_nothing_in_redis() {
    let scene = Scene::start([3, 50], [OnFailure::Local; 2]).await;
    assert_eq!(scene.passed(20).await, (3, Some(0)));
    assert_eq!(scene.left(), Some(47));
}

#[tokio::test]
async fn the_rule_of_the_unreadable_bucket_decides_what_becomes_of_it() {
    let scene = Scene::start([3, 50], [OnFailure::Deny, OnFailure::Local]).await;
    assert_eq!((scene.take().await.source, scene.left()), (Source::Policy, None));
    let scene = Scene::start([3, 9], [OnFailure::Allow, OnFailure::Local]).await;
    assert_eq!(scene.passed(20).await, (9, Some(1)));
    assert_eq!(scene.take().await.waived, [scene.charges[0]]);
}

/// What would be answered is what is answered.
#[tokio::test]
async fn peek_answers_what_take_answers() {
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
