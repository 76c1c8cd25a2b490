//! Delays by the machine of the processes of a test. Unit tests of the library use this file, too.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Waiting extends a limit to at most this multiple: beyond it, no machine is an excuse.
const MOST: u32 = 5;

/// How long each thread of this process and of its descendants (the gateway, Redis, other servers)
/// has waited for a CPU, by the ids of process and thread. Other processes do not count: a machine
/// on which these never wait is no excuse, however busy it is. Empty if the kernel does not say,
/// which excuses nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct CpuWaits {
    threads: HashMap<(u32, u32), Duration>,
    /// What the host of a virtual machine took from all CPUs, see proc_stat(5).
    stolen: Duration,
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
        Self { threads, stolen: stolen() }
    }

    /// What has been added since, summed over the threads that still exist, with what was stolen.
    fn since(&self) -> Duration {
        let now = Self::now();
        let added = |(thread, now): (&(u32, u32), &Duration)| {
            now.saturating_sub(self.threads.get(thread).copied().unwrap_or_default())
        };
        now.stolen.saturating_sub(self.stolen) + now.threads.iter().map(added).sum::<Duration>()
    }

    /// Asserts that `took` is less than `limit`, or that it is longer only because the processes of
    /// the test have waited for a CPU since `self`. Then the measurement is inconclusive: returns
    /// why.
    #[track_caller]
    pub(crate) fn judge(&self, took: Duration, limit: Duration) -> Option<String> {
        self.judge_each(took, limit, 1)
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
        self.judge_each(median, limit, count / 2)
    }

    /// As [`Self::judge`], for a time that this many requests took, none of them at the same time.
    #[track_caller]
    fn judge_each(&self, took: Duration, limit: Duration, requests: u32) -> Option<String> {
        if took < limit {
            return None;
        }
        let waited = self.since() / requests;
        let text = format!("{took:?}, not less than {limit:?}; waits for a CPU: {waited:?}");
        assert!(is_excused(took, limit, waited), "{text}");
        Some(text)
    }
}

/// Whether waiting explains a longer time.
fn is_excused(took: Duration, limit: Duration, waited: Duration) -> bool {
    took < (limit + waited).min(limit * MOST)
}

/// Time that the host has taken from the CPUs of this machine: the eighth number of the first line,
/// in hundredths of a second.
fn stolen() -> Duration {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = stat.split_whitespace().nth(8).and_then(|ticks| ticks.parse().ok());
    Duration::from_millis(10 * ticks.unwrap_or(0))
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
