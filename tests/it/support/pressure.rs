//! Delays by the machine of the processes of a test. Unit tests of the library use this file, too.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::inconclusive::inconclusive;

/// Waiting extends a limit to at most this multiple: beyond it, no machine is an excuse.
const MOST: u32 = 5;

/// Processes that a call waits for: a gateway and a Redis, or a client and a gateway.
const PROCESSES_OF_A_CALL: usize = 2;

/// How long each thread of this process and of its descendants (the gateway, Redis, other servers)
/// has waited for a CPU, by the ids of process and thread. Other processes do not count: a machine
/// on which these never wait is no excuse, however busy it is. Nor does a thread wait for a CPU
/// that sleeps, blocks or is stopped. Empty if the kernel does not say, which excuses nothing.
///
/// Two measures say what has been added since. [`Self::judge`] and [`inconclusive_if_waited`] use
/// the sum over all threads: a bound for a time that the work of many threads takes, and for the
/// throughput of a load. [`Self::stall`] and [`Self::stall_of_servers`] are bounds for one delay,
/// as of a single call that came too late.
#[derive(Clone, Debug, Default)]
pub(crate) struct CpuWaits {
    threads: HashMap<(u32, u32), Duration>,
    /// What the host of a virtual machine took from each CPU, see proc_stat(5).
    stolen: Vec<Duration>,
    /// The longest [`Self::stall_of_servers`] of the phases before this one.
    earlier: Duration,
}

impl CpuWaits {
    /// The waits until now.
    pub(crate) fn now() -> Self {
        let mut threads = HashMap::new();
        for process in family() {
            for thread in numbers(&format!("/proc/{process}/task")) {
                let path = format!("/proc/{process}/task/{thread}/schedstat");
                let text = std::fs::read_to_string(path).unwrap_or_default();
                // Time on a CPU and time in its queue, in nanoseconds.
                let waited = text.split(' ').nth(1).and_then(|field| field.parse().ok());
                if let Some(nanos) = waited {
                    threads.insert((process, thread), Duration::from_nanos(nanos));
                }
            }
        }
        Self { threads, stolen: stolen(), earlier: Duration::ZERO }
    }

    /// What has been added from `self` to `now`. A thread that has appeared in between counts from
    /// 0, one that has ended does not count.
    fn until(&self, now: &Self) -> Self {
        let added = |(thread, waited): (&(u32, u32), &Duration)| {
            let before = self.threads.get(thread).copied().unwrap_or_default();
            (*thread, waited.saturating_sub(before))
        };
        let stolen = now.stolen.iter().zip(&self.stolen);
        Self {
            threads: now.threads.iter().map(added).collect(),
            stolen: stolen.map(|(now, before)| now.saturating_sub(*before)).collect(),
            earlier: self.earlier,
        }
    }

    /// What has been added since, summed over the threads that still exist, with what was stolen.
    fn sum(&self) -> Duration {
        let added = self.until(&Self::now());
        added.threads.values().chain(&added.stolen).sum()
    }

    /// A bound for how long one call can have waited for a CPU since `self`: the wait of the thread
    /// that waited longest, in each of the two processes in which this is most, and what was stolen
    /// from one CPU.
    ///
    /// A call waits for one thread of a client or gateway and for one of a server. The threads
    /// beside them, whose waits are in the sum, do not delay it. All that a thread has waited
    /// counts, in one piece or in many: sample anew right before what is judged.
    pub(crate) fn stall(&self) -> Duration {
        self.until(&Self::now()).longest(|_| true)
    }

    /// As [`Self::stall`], without the process of the test: for calls of a gateway to Redis or to
    /// another server that is a process of its own. The longest of all
    /// [phases](Self::next_phase).
    #[allow(dead_code, reason = "the servers of the library's unit tests have clients in the test")]
    pub(crate) fn stall_of_servers(&self) -> Duration {
        self.until(&Self::now()).longest_of_servers()
    }

    /// Begins another phase: from now on, [`Self::stall_of_servers`] is the longest of any phase.
    /// So it does not add up over a long test, and processes that end later count with what they
    /// have waited until now.
    #[allow(dead_code, reason = "unit tests of the library have one phase")]
    pub(crate) fn next_phase(&mut self) {
        let now = Self::now();
        let earlier = self.until(&now).longest_of_servers();
        *self = Self { earlier, ..now };
    }

    fn longest_of_servers(&self) -> Duration {
        let own = std::process::id();
        self.longest(|process| process != own).max(self.earlier)
    }

    /// The longest of these waits that one call can have had, over the processes that count.
    fn longest(&self, counts: impl Fn(u32) -> bool) -> Duration {
        let mut of_each = HashMap::<u32, Duration>::new();
        for ((process, _), waited) in &self.threads {
            if counts(*process) {
                let longest = of_each.entry(*process).or_default();
                *longest = (*longest).max(*waited);
            }
        }
        let mut of_each: Vec<Duration> = of_each.into_values().collect();
        of_each.sort_unstable();
        let stolen = self.stolen.iter().max().copied().unwrap_or_default();
        stolen + of_each.iter().rev().take(PROCESSES_OF_A_CALL).sum::<Duration>()
    }

    /// Asserts that `took` is less than `limit`, or that it is longer only because the processes of
    /// the test have waited for a CPU since `self`. Then the measurement is inconclusive: returns
    /// why.
    #[track_caller]
    pub(crate) fn judge(&self, took: Duration, limit: Duration) -> Option<String> {
        judge_by(took, limit, || self.sum())
    }

    /// As [`Self::judge`], for the median time of `count` requests, each of which was sent after
    /// the response to the one before. Waiting makes it longer only if it did so to half of them.
    #[allow(dead_code, reason = "unit tests of the library measure no medians")]
    #[track_caller]
    pub(crate) fn judge_median(
        &self,
        median: Duration,
        limit: Duration,
        count: u32,
    ) -> Option<String> {
        judge_by(median, limit, || self.sum() / (count / 2))
    }

    /// As [`Self::judge`], for a request that only [stalled servers](Self::stall_of_servers) delay.
    #[allow(dead_code, reason = "the servers of the library's unit tests have clients in the test")]
    #[track_caller]
    pub(crate) fn judge_served(&self, took: Duration, limit: Duration) -> Option<String> {
        judge_by(took, limit, || self.stall_of_servers())
    }
}

/// Asserts that `took` is less than `limit`, extended by what was waited for a CPU. Returns why the
/// measurement is inconclusive if it is only less than that.
#[track_caller]
fn judge_by(took: Duration, limit: Duration, waited: impl FnOnce() -> Duration) -> Option<String> {
    if took < limit {
        return None;
    }
    let waited = waited();
    let text = format!("{took:?}, not less than {limit:?}; waits for a CPU: {waited:?}");
    assert!(is_excused(took, limit, waited), "{text}");
    Some(text)
}

/// Reports `what` as inconclusive if all threads of the test together have waited for a CPU for
/// longer than `least` since `waits`. Panics otherwise: no machine is to blame. For the throughput
/// of a load, to which all threads contribute.
#[allow(dead_code, reason = "unit tests of the library judge no throughput")]
#[track_caller]
pub(crate) fn inconclusive_if_waited(what: &str, waits: &CpuWaits, least: Duration) {
    inconclusive_if_stalled(what, waits.sum(), least);
}

/// Reports `what` as inconclusive if a wait for a CPU ([`CpuWaits::stall`],
/// [`CpuWaits::stall_of_servers`]) was longer than `least`. Panics otherwise: no machine is to
/// blame.
#[track_caller]
pub(crate) fn inconclusive_if_stalled(what: &str, stall: Duration, least: Duration) {
    let text = format!("{what}; waits for a CPU: {stall:?}, needed to explain it: {least:?}");
    assert!(stall > least, "{text}");
    inconclusive(&text);
}

/// Whether waiting explains a longer time.
fn is_excused(took: Duration, limit: Duration, waited: Duration) -> bool {
    took < (limit + waited).min(limit * MOST)
}

/// Time that the host has taken from each CPU of this machine: the eighth number of its line, in
/// hundredths of a second.
fn stolen() -> Vec<Duration> {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    // The first line is the sum of the others.
    let lines = stat.lines().skip(1).take_while(|line| line.starts_with("cpu"));
    let of_line = |line: &str| {
        let ticks = line.split_whitespace().nth(8).and_then(|ticks| ticks.parse().ok());
        Duration::from_millis(10 * ticks.unwrap_or(0))
    };
    lines.map(of_line).collect()
}

/// Ids of this process and of its descendants.
fn family() -> HashSet<u32> {
    let parents: HashMap<u32, u32> = numbers("/proc")
        .into_iter()
        .filter_map(|process| {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
            // Behind the name, which is in parentheses: the state and the parent.
            let parent = stat.rsplit_once(')')?.1.split(' ').nth(2)?.parse().ok()?;
            Some((process, parent))
        })
        .collect();
    let own = std::process::id();
    let belongs = |process: &u32| {
        let mut ancestors =
            std::iter::successors(Some(*process), |process| parents.get(process).copied());
        ancestors.any(|ancestor| ancestor == own)
    };
    parents.keys().copied().filter(belongs).collect()
}

/// The names in a folder that are numbers.
fn numbers(folder: &str) -> Vec<u32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_excuses_at_most_five_times_the_limit() {
        let ms = Duration::from_millis;
        // (took, waited, excused), with a limit of 100 ms
        for (took, waited, excused) in [
            (100, 0, false),
            (100, 1, true),
            (149, 50, true),
            (150, 50, false),
            (499, 5_000, true),
            (500, 5_000, false),
        ] {
            assert_eq!(is_excused(ms(took), ms(100), ms(waited)), excused, "{took} {waited}");
        }
    }

    #[test]
    fn stall_is_the_longest_wait_of_a_thread_in_each_of_two_processes() {
        let ms = Duration::from_millis;
        let own = std::process::id();
        let waits = |each: &[(u32, u32, u64)], stolen: [u64; 2]| CpuWaits {
            threads: each
                .iter()
                .map(|(process, id, waited)| ((*process, *id), ms(*waited)))
                .collect(),
            stolen: stolen.map(ms).to_vec(),
            earlier: Duration::ZERO,
        };
        let before = waits(&[(own, 1, 10), (own + 1, 2, 500), (own + 2, 3, 0)], [0, 30]);
        let after = [
            // The process of the test, with a thread that has appeared.
            (own, 1, 90),
            (own, 4, 100),
            // A gateway, two threads of which have waited.
            (own + 1, 2, 540),
            (own + 1, 5, 30),
            (own + 2, 3, 20),
            (own + 3, 6, 5),
        ];
        let mut added = before.until(&waits(&after, [2, 33]));
        assert_eq!(added.longest(|_| true), ms(100 + 40 + 3));
        assert_eq!(added.longest_of_servers(), ms(40 + 20 + 3));
        added.earlier = ms(64);
        assert_eq!(added.longest_of_servers(), ms(64), "another phase had a longer one");
    }

    #[test]
    fn processes_that_a_test_starts_count_and_others_do_not() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let family = family();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(family.contains(&std::process::id()) && family.contains(&child.id()));
        assert!(!family.contains(&1));
        assert!(
            !CpuWaits::now().threads.is_empty(),
            "the kernel does not say how long threads waited"
        );
    }
}
