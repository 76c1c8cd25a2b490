//! Benchmarks of checks and of buckets in memory.
//!
//! ```sh
//! cargo bench --bench memory_store
//! ```
//!
//! First the bytes of a bucket, by resident memory, each size in a separate process. Then the times
//! of one thread, with any number of concurrent threads, including the creation of the charge. With
//! `lto = "off"` they double: use the program's link settings.
//!
//! More threads than cores show how locks behave if their holder is not running.

#![allow(clippy::unwrap_used, reason = "a benchmark speaks by its output")]

use std::cell::Cell;
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use divan::{Bencher, black_box};
use parking_lot::Mutex;
use tollgate::base::duration::MICROS_PER_SECOND as SECOND;
use tollgate::limit::Limit;
use tollgate::limit::calendar::{Calendar, Period};
use tollgate::limit::charge::{BucketId, Charge, Mode};
use tollgate::limit::concurrency::Concurrency;
use tollgate::limit::fixed_window::FixedWindow;
use tollgate::limit::share::Share;
use tollgate::limit::sliding_window::SlidingWindow;
use tollgate::policy::{Lease, OnFailure};
use tollgate::store::memory::MemoryStore;
use tollgate::store::rule::StoredRule;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MILLION: u64 = 1_000_000;
const SOON: &str = "full_again_soon";
const LATE: &str = "full_again_late";

/// Environment variable of a process that only fills a store: its maximum and its clients.
const SIZES: &str = "TOLLGATE_BENCH_SIZES";
const HOUR: u64 = 3_600 * SECOND;

/// Never exhausted in the benchmark.
const WIDE: u32 = 0;
/// Exhausted by one request, for an hour.
const NARROW: u32 = 1;
/// Full again 100 ms after one request.
const QUICK: u32 = 2;
/// Takes an hour to refill after one request, with the maximum burst.
const SLOW: u32 = 3;

static LIMITS: LazyLock<[Limit; 4]> = LazyLock::new(|| {
    [(1_000, SECOND, MILLION), (1, HOUR, 1), (10, SECOND, 5), (1, HOUR, MILLION)]
        .map(|(tokens, period, burst)| Limit::token_bucket(tokens, period, burst).unwrap())
});

/// A million clients in a store with space for 10 % more.
static CROWD: LazyLock<MemoryStore> = LazyLock::new(|| crowd(WIDE));
/// A million clients, each without tokens.
static DRAINED_CROWD: LazyLock<MemoryStore> = LazyLock::new(|| crowd(NARROW));

fn main() {
    if let Ok(sizes) = std::env::var(SIZES) {
        let (max_buckets, clients) = sizes.split_once(' ').unwrap();
        fill_and_report(max_buckets.parse().unwrap(), clients.parse().unwrap());
    } else {
        bytes_per_bucket();
        divan::main();
    }
}

fn crowd(limit: u32) -> MemoryStore {
    let store = MemoryStore::new(1_100_000, &*LIMITS);
    (0..MILLION).for_each(|client| {
        assert!(store.take(&[charge(client, limit)], 0, Share::WHOLE).allowed());
    });
    assert_eq!((store.len(), store.evictions()), (1_000_000, 0));
    store
}

fn charge(client: u64, limit_index: u32) -> Charge {
    let bucket = BucketId(u128::from(mixed(client)) << 64 | u128::from(mixed(!client)));
    let limit = LIMITS[limit_index as usize];
    Charge { bucket, rule: 0, limit_index, limit, cost: 1, mode: Mode::Enforce }
}

/// A pseudo-random permutation (splitmix64).
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// A counter, with a separate range for each thread.
fn turn() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(1);
    thread_local!(static TURN: Cell<u64> = Cell::new(THREADS.fetch_add(1, Relaxed) << 32));
    TURN.replace(TURN.get() + 1)
}

/// One of a million clients, and a time.
fn client_and_now() -> (u64, u64) {
    let turn = turn();
    (mixed(turn) % MILLION, turn & 0xffff_ffff)
}

#[divan::bench(threads = [1, 2, 4], sample_size = 20_000, sample_count = 100)]
fn nothing_but_making_the_charge(bencher: Bencher) {
    bencher.bench(|| {
        let (client, now) = client_and_now();
        black_box((charge(client, WIDE), now))
    });
}

/// The limit of the machine's memory: reads and writes one random entry of an array as large as the
/// store, guarded by one of as many locks. No search, no arithmetic, no result.
#[divan::bench(threads = [1, 2, 4], sample_size = 20_000, sample_count = 100)]
fn touch_one_of_a_million_in_bare_arrays(bencher: Bencher) {
    const SHARDS: usize = 128;
    let arrays: Vec<Mutex<Vec<[u64; 4]>>> =
        (0..SHARDS).map(|_| Mutex::new(vec![[1; 4]; 1_400_000 / SHARDS])).collect();
    bencher.bench(|| {
        let (client, now) = client_and_now();
        let Charge { bucket: BucketId(id), .. } = charge(client, WIDE);
        let number = usize::try_from(id >> 100).unwrap();
        let mut array = arrays[number % SHARDS].lock();
        let place = number / SHARDS % array.len();
        array[place][3] = array[place][2].min(now);
        array[place][3] == 0
    });
}

#[divan::bench(threads = [1, 2, 4], sample_size = 20_000, sample_count = 100)]
fn check_one_of_a_million(bencher: Bencher) {
    let store = &*CROWD;
    bencher.bench(|| {
        let (client, now) = client_and_now();
        store.take(&[charge(client, WIDE)], now, Share::WHOLE).allowed()
    });
}

#[divan::bench(threads = [1, 2, 4], sample_size = 20_000, sample_count = 100)]
fn refuse_one_of_a_million(bencher: Bencher) {
    let store = &*DRAINED_CROWD;
    bencher.bench(|| {
        let (client, _) = client_and_now();
        assert!(!store.take(&[charge(client, NARROW)], 0, Share::WHOLE).allowed());
    });
}

#[divan::bench(threads = [1, 2, 4], sample_size = 20_000, sample_count = 100)]
fn check_one_hot_key(bencher: Bencher) {
    let store = &*CROWD;
    let hot = charge(7, WIDE);
    bencher.bench(|| store.take(&[hot], turn() & 0xffff_ffff, Share::WHOLE).allowed());
}

/// One limit of each kind, none of which a request reaches; each request of one of 1,000 clients.
#[divan::bench(args = ["token_bucket", "fixed_window", "sliding_window", "concurrency"], sample_size = 20_000, sample_count = 50)]
fn check_kind(bencher: Bencher, kind: &str) {
    let limit = match kind {
        "token_bucket" => Limit::token_bucket(1_000, SECOND, MILLION).unwrap(),
        "fixed_window" => {
            let calendar = Calendar::new(Period::Day, "UTC", 1).unwrap();
            Limit::FixedWindow(FixedWindow::new(1 << 40, calendar).unwrap())
        }
        // Full after 4,096 requests of a client: the oldest stamps have left by then.
        "sliding_window" => Limit::SlidingWindow(SlidingWindow::new(4_096, SECOND).unwrap()),
        _ => Limit::Concurrency(Concurrency::new(1_000).unwrap()),
    };
    // Room for a million stamps, four of which count as a bucket.
    let store = MemoryStore::new(1_000_000, &[limit]);
    let name = "rule".into();
    let rules = [StoredRule {
        name,
        salt: 0,
        on_failure: OnFailure::Local,
        lease: Lease::Off,
        is_leaky: false,
        ban: None,
    }];
    bencher.bench(|| {
        // A client sends a request each millisecond.
        let turn = turn() & 0xffff_ffff;
        let charge = Charge { limit, limit_index: 0, ..charge(turn % 1_000, WIDE) };
        let charge = Charge { cost: limit.parts(), ..charge };
        // What it holds is released at once.
        let (answer, _held) = store.hold(&[charge], &rules, turn, Share::WHOLE);
        assert!(answer.allowed(), "{kind} at {turn}");
    });
}

/// Rules by address (of a million), by key (of 10,000), by route (of 20), and a global one.
#[divan::bench(threads = [1, 2, 4], sample_size = 20_000, sample_count = 100)]
fn check_four_rules(bencher: Bencher) {
    let store = &*CROWD;
    bencher.bench(|| {
        let (client, now) = client_and_now();
        let charges = [client, client % 10_000, 20_000 + client % 20, 20_020];
        let charges = charges.map(|client| charge(client, WIDE));
        store.take(&charges, now, Share::WHOLE).allowed()
    });
}

/// A new client for each request, 1 µs after the last one. If buckets are soon full again, the
/// store needs space only for the others; otherwise each new bucket evicts another from a full
/// store of a million.
#[divan::bench(threads = [1, 2, 4], args = [SOON, LATE], sample_size = 20_000, sample_count = 100)]
fn flood_of_newcomers(bencher: Bencher, full_again: &str) {
    let limit = if full_again == SOON { QUICK } else { SLOW };
    let store = MemoryStore::new(1_000_000, &*LIMITS);
    (0..2 * MILLION)
        .for_each(|client| drop(store.take(&[charge(client, limit)], client, Share::WHOLE)));
    assert_eq!(store.evictions() > 0, full_again == LATE);
    bencher.bench(|| {
        let turn = turn();
        store
            .take(&[charge(turn, limit)], 2 * MILLION + (turn & 0xffff_ffff), Share::WHOLE)
            .allowed()
    });
}

/// One process per size, so that none reuses the memory of another.
fn bytes_per_bucket() {
    for (max_buckets, clients) in [
        (1_000_000, 1_000_000),
        (1_000_000, 5_000_000),
        (100_000, 100_000),
        (100_000, 5_000_000),
        (1_100_000, 1_000_000),
        (10_000_000, 1_000_000),
        (10_000_000, 1_250_000),
        (10_000_000, 1_500_000),
        (10_000_000, 1_750_000),
    ] {
        let program = std::env::current_exe().unwrap();
        let sizes = format!("{max_buckets} {clients}");
        assert!(Command::new(program).env(SIZES, sizes).status().unwrap().success());
    }
}

fn fill_and_report(max_buckets: usize, clients: u64) {
    // Memory of the empty program.
    MemoryStore::new(1_000, &*LIMITS).take(&[charge(0, SLOW)], 0, Share::WHOLE);
    let before = resident_bytes();
    let store = MemoryStore::new(max_buckets, &*LIMITS);
    let empty = resident_bytes() - before;
    (0..clients).for_each(|client| drop(store.take(&[charge(client, SLOW)], 0, Share::WHOLE)));
    let (len, grown) = (store.len(), resident_bytes() - before);
    println!(
        "room for {max_buckets}, {clients} clients: {len} kept, {} bytes each; {empty} while empty",
        grown / len,
    );
}

/// Resident memory of this process. Assumes pages of 4 KiB.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4_096
}
