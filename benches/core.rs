//! Benchmarks of the arithmetic of buckets, without a store.
//!
//! ```sh
//! cargo bench --bench core
//! ```

#![allow(clippy::unwrap_used, reason = "a benchmark speaks by its output")]

use divan::{Bencher, black_box};
use tollgate::base::duration::MICROS_PER_SECOND as SECOND;
use tollgate::base::now::Now;
use tollgate::client::{Client, ClientKey};
use tollgate::limit::Limit;
use tollgate::limit::bucket::Bucket;
use tollgate::limit::charge::{Answer, BucketId, Charge, Mode, take};
use tollgate::limit::share::Share;
use tollgate::limit::verdict::Verdict;
use tollgate::load::from_text;
use tollgate::observe::consumption::Consumption;
use tollgate::store::limiter::{Source, Taken};

fn main() {
    divan::main();
}

fn charges(count: usize) -> Vec<Charge> {
    let limit = Limit::token_bucket(10, SECOND, 50).unwrap();
    let charge = |rule: u32| {
        let bucket = BucketId(u128::from(rule));
        Charge { bucket, rule, limit_index: 0, limit, cost: 1, mode: Mode::Enforce }
    };
    (0..).map(charge).take(count).collect()
}

fn buckets(charges: &[Charge], level: i64) -> Vec<Bucket> {
    charges.iter().map(|_| Bucket { level, at: 0 }).collect()
}

fn refill_and_take(charges: &[Charge], buckets: &mut [Bucket], now: u64) -> Answer {
    for (charge, bucket) in charges.iter().zip(buckets.iter_mut()) {
        *bucket = bucket.refilled(&charge.limit, Now::unix(now));
    }
    take(charges, buckets, Share::WHOLE)
}

#[divan::bench(args = [1, 4])]
fn refill_and_take_tokens(bencher: Bencher, count: usize) {
    let charges = charges(count);
    let mut buckets = buckets(&charges, charges[0].limit.full());
    let mut now = 0;
    bencher.bench_local(|| {
        // The time of one token, so that every request is allowed.
        now += 100_000;
        refill_and_take(black_box(&charges), black_box(&mut buckets), black_box(now))
    });
}

/// Records a request in the top-k sketch, as every request does after its decision: for one client,
/// or 100,000 in turn.
#[divan::bench(args = [1, 100_000], consts = [1, 3])]
fn note_who_asked<const RULES: usize>(bencher: Bencher, clients: u32) {
    let rule = |number| format!("[rules.r{number}]\nper = ['ip']\nrate = '1/s'\n");
    let rules: String = (0..RULES).map(rule).collect();
    let file = format!("[plans.free]\n[upstreams.a]\nservers = ['demo']\n[routes.a]\n{rules}");
    let policy = from_text("gateway.toml", &file).unwrap();
    let charges = charges(RULES);
    let answer = take(&charges, &mut buckets(&charges, charges[0].limit.full()), Share::WHOLE);
    let charges = charges.into_iter().collect();
    let taken = Taken::all(charges, answer, Source::Local);
    let consumption = Consumption::default();
    let mut number = 0_u32;
    bencher.bench_local(|| {
        number = (number + 1) % clients;
        let ip = Some(std::net::IpAddr::V4(number.into()));
        let client =
            Client { ip, key: ClientKey::Missing, plan: 0, tenant: None, certificate: None };
        consumption.record(black_box(&policy), &client, black_box(&taken), 0);
    });
}

#[divan::bench(args = [1, 4])]
fn refuse(bencher: Bencher, count: usize) {
    let charges = charges(count);
    let mut buckets = buckets(&charges, 0);
    bencher.bench_local(|| refill_and_take(black_box(&charges), black_box(&mut buckets), 1));
}

#[divan::bench(args = [1, 4])]
fn verdict_on_allowed(bencher: Bencher, count: usize) {
    let charges = charges(count);
    let answer = take(&charges, &mut buckets(&charges, charges[0].limit.full()), Share::WHOLE);
    bencher.bench_local(|| Verdict::of(black_box(&charges), black_box(&answer)));
}

#[divan::bench(args = [1, 4])]
fn verdict_on_refused(bencher: Bencher, count: usize) {
    let charges = charges(count);
    let answer = take(&charges, &mut buckets(&charges, 0), Share::WHOLE);
    bencher.bench_local(|| Verdict::of(black_box(&charges), black_box(&answer)));
}
