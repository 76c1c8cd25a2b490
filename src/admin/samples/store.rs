//! The samples of the last 24 hours: of the last minutes second by second, of the time before
//! merged to longer spans. Pure: times are numbers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::sample::Sample;

/// A resolution that samples are kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resolution {
    /// Time that one sample covers, in milliseconds. Samples begin at its multiples.
    pub(super) step_ms: u64,
    /// Number of samples kept. Of a merged step one more than its time needs: the last one is not
    /// complete.
    pub(super) len: usize,
}

/// The resolutions, the finest first: 5 minutes, 1 hour, 6 hours and 24 hours.
pub(super) const RESOLUTIONS: [Resolution; 4] = [
    Resolution { step_ms: 1_000, len: 300 },
    Resolution { step_ms: 10_000, len: 361 },
    Resolution { step_ms: 60_000, len: 361 },
    Resolution { step_ms: 300_000, len: 289 },
];

/// A wall clock that is further behind than this has been set back, in milliseconds.
const MAX_SKEW_MS: u64 = 500;

/// Samples in all resolutions. Each resolution has every sample of its time.
#[derive(Clone, Debug, Default)]
pub(super) struct SampleStore {
    pub(super) tiers: [Tier; RESOLUTIONS.len()],
}

/// Samples in one resolution, the oldest first. The last one grows until its step is over.
#[derive(Clone, Debug, Default)]
pub(super) struct Tier {
    pub(super) samples: VecDeque<Arc<Sample>>,
    /// Whether samples were dropped: those kept do not go back to the start of the process, or of
    /// those that it has replaced in upgrades.
    pub(super) has_dropped: bool,
}

/// The samples of a range of time.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) step_ms: u64,
    /// In the order of time.
    pub(super) samples: Vec<Arc<Sample>>,
}

impl SampleStore {
    /// Adds the sample of the span since the previous one.
    ///
    /// Samples stay in order. If the wall clock was set back, the kept samples move back by as
    /// much, so that the spans adjoin. If it was set forward, or the machine was suspended, there
    /// is a gap.
    pub(super) fn push(&mut self, sample: &mut Sample) {
        let last_ms = self.tiers[0].samples.back().map_or(0, |last| last.at_ms);
        let expected_ms = last_ms + if last_ms == 0 { 0 } else { sample.span_ms };
        let behind_ms = expected_ms.saturating_sub(sample.at_ms);
        if behind_ms > MAX_SKEW_MS {
            self.move_back(behind_ms);
        } else {
            sample.at_ms = sample.at_ms.max(last_ms + 1);
        }
        for (tier, resolution) in self.tiers.iter_mut().zip(RESOLUTIONS) {
            tier.push(sample, resolution);
        }
    }

    /// Adds those samples of `later` that end after the last one, the spans of which may overlap
    /// it.
    pub(super) fn continue_with(&mut self, later: &Self) {
        for sample in later.finest() {
            let last_ms = self.finest().last().map_or(0, |last| last.at_ms);
            if sample.at_ms > last_ms {
                let span_ms = sample.span_ms.min(sample.at_ms - last_ms);
                self.push(&mut Sample { span_ms, ..Sample::clone(sample) });
            }
        }
    }

    fn move_back(&mut self, by_ms: u64) {
        for sample in self.tiers.iter_mut().flat_map(|tier| &mut tier.samples) {
            let sample = Arc::make_mut(sample);
            sample.at_ms = sample.at_ms.saturating_sub(by_ms);
        }
    }

    /// The samples in the finest resolution.
    pub(super) fn finest(&self) -> impl Iterator<Item = &Arc<Sample>> {
        self.tiers[0].samples.iter()
    }

    /// The client connections that were closed without a response after `from_ms` (Unix time), by
    /// reason. Goes back for five minutes.
    pub(super) fn rejected_connections(&self, from_ms: u64) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for sample in self.finest().filter(|sample| sample.at_ms > from_ms) {
            for (reason, count) in sample.rejected_connections.iter() {
                *sums.entry(reason.to_owned()).or_default() += count;
            }
        }
        sums
    }

    /// The samples whose span overlaps the time from `from_ms` to `to_ms` (Unix time), in the
    /// finest resolution that goes back to `from_ms`.
    pub(super) fn find(&self, from_ms: u64, to_ms: u64) -> Found {
        let each = self.tiers.iter().zip(RESOLUTIONS);
        let covers = |(tier, _): &(&Tier, Resolution)| tier.covers(from_ms);
        let coarsest = (&self.tiers[RESOLUTIONS.len() - 1], RESOLUTIONS[RESOLUTIONS.len() - 1]);
        let (tier, resolution) = each.into_iter().find(covers).unwrap_or(coarsest);
        let overlaps = |sample: &&Arc<Sample>| {
            sample.at_ms > from_ms && sample.at_ms.saturating_sub(sample.span_ms) < to_ms
        };
        let samples = tier.samples.iter().filter(overlaps).map(Arc::clone).collect();
        Found { step_ms: resolution.step_ms, samples }
    }
}

impl Found {
    /// The sum of the samples.
    pub(super) fn total(&self) -> Option<Sample> {
        let (first, rest) = self.samples.split_first()?;
        let mut total = Sample::clone(first);
        for sample in rest {
            total.add(sample);
        }
        Some(total)
    }
}

impl Tier {
    fn push(&mut self, sample: &Sample, Resolution { step_ms, len }: Resolution) {
        // A span that ends at a multiple belongs to the step before it.
        let step = |at_ms: u64| at_ms.saturating_sub(1) / step_ms;
        let is_finest = step_ms == RESOLUTIONS[0].step_ms;
        let last = self.samples.back_mut();
        if let Some(last) = last.filter(|last| !is_finest && step(last.at_ms) == step(sample.at_ms))
        {
            return Arc::make_mut(last).add(sample);
        }
        if self.samples.len() == len {
            self.samples.pop_front();
            self.has_dropped = true;
        }
        self.samples.push_back(Arc::new(sample.clone()));
    }

    fn covers(&self, from_ms: u64) -> bool {
        let first = self.samples.front();
        let begins = |first: &Arc<Sample>| first.at_ms.saturating_sub(first.span_ms);
        !self.has_dropped || first.is_some_and(|first| begins(first) <= from_ms)
    }
}

#[cfg(test)]
pub(super) mod tests;
