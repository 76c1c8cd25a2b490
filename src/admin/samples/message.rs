//! The kept samples as a message to the process that replaces this one.
//!
//! JSON lines: a [`Head`], then a [`Line`] for each sample. A program of another version leaves out
//! members, and ignores those and lines that it does not know. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::sample::Sample;
use super::store::{RESOLUTIONS, Resolution, SampleStore, Tier};

/// Maximum size of a message, in bytes. Each resolution has an equal part of it, and leaves out its
/// oldest samples beyond that. One route and one rule need some 700 KB in 24 hours.
const MAX_BYTES: usize = 16 << 20;

/// Version of the form: other members than before need no other version.
const VERSION: u32 = 1;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Head {
    version: u32,
    /// The resolutions, by their step, whose samples do not go back to the start.
    incomplete_ms: Vec<u64>,
}

/// One sample, after those before it in the same resolution. `S` is a [`Sample`], or a reference to
/// one, to be written.
#[derive(Debug, Serialize, Deserialize)]
struct Line<S> {
    step_ms: u64,
    sample: S,
}

impl SampleStore {
    /// The message, with the newest samples if not all have room.
    pub(super) fn message(&self) -> Vec<u8> {
        self.message_of(MAX_BYTES)
    }

    fn message_of(&self, max_bytes: usize) -> Vec<u8> {
        let mut head = Head { version: VERSION, ..Head::default() };
        let mut lines = Vec::new();
        for (tier, Resolution { step_ms, .. }) in self.tiers.iter().zip(RESOLUTIONS) {
            let (newest, is_whole) = tier.lines(step_ms, max_bytes / RESOLUTIONS.len());
            lines.extend(newest);
            if !is_whole {
                head.incomplete_ms.push(step_ms);
            }
        }
        let mut message = serde_json::to_vec(&head).unwrap_or_default();
        for line in lines {
            message.push(b'\n');
            message.extend_from_slice(&line);
        }
        message
    }

    /// The samples of a message; `None` if it has none, or is not of this form.
    pub(super) fn of_message(message: &[u8]) -> Option<Self> {
        let mut lines = message.split(|byte| *byte == b'\n');
        let head: Head = serde_json::from_slice(lines.next()?).ok()?;
        if head.version != VERSION {
            return None;
        }
        let mut store = Self::default();
        for (tier, Resolution { step_ms, .. }) in store.tiers.iter_mut().zip(RESOLUTIONS) {
            tier.has_dropped = head.incomplete_ms.contains(&step_ms);
        }
        let mut transitions = Arc::default();
        for line in lines {
            let Ok(line) = serde_json::from_slice(line) else { continue };
            let Line::<Sample> { step_ms, mut sample } = line;
            share(&mut sample.transitions, &mut transitions);
            let mut each = store.tiers.iter_mut().zip(RESOLUTIONS);
            if let Some((tier, resolution)) = each.find(|(_, known)| known.step_ms == step_ms) {
                tier.append(sample, resolution);
            }
        }
        (store.len() > 0).then_some(store)
    }

    /// Number of samples, in all resolutions.
    pub(super) fn len(&self) -> usize {
        self.tiers.iter().map(|tier| tier.samples.len()).sum()
    }
}

impl Tier {
    /// The lines of the newest samples of at most this many bytes, the oldest first, and whether
    /// these are all samples since the start.
    fn lines(&self, step_ms: u64, max_bytes: usize) -> (VecDeque<Vec<u8>>, bool) {
        let (mut lines, mut bytes) = (VecDeque::new(), 0);
        for sample in self.samples.iter().rev() {
            let Ok(line) = serde_json::to_vec(&Line { step_ms, sample: &**sample }) else {
                continue;
            };
            bytes += line.len() + 1;
            if bytes > max_bytes {
                return (lines, false);
            }
            lines.push_front(line);
        }
        (lines, !self.has_dropped)
    }

    /// Appends a sample, unless it is not after the last one.
    fn append(&mut self, sample: Sample, Resolution { len, .. }: Resolution) {
        if self.samples.back().is_some_and(|last| last.at_ms >= sample.at_ms) {
            return;
        }
        if self.samples.len() == len {
            self.samples.pop_front();
            self.has_dropped = true;
        }
        self.samples.push_back(Arc::new(sample));
    }
}

/// Consecutive samples share their transitions, which seldom change.
fn share(own: &mut Arc<BTreeMap<String, u64>>, last: &mut Arc<BTreeMap<String, u64>>) {
    if own == last {
        *own = Arc::clone(last);
    } else {
        *last = Arc::clone(own);
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::tests::sample;
    use super::super::store::tests::{START_MS, filled};
    use super::*;

    fn tiers(store: &SampleStore) -> Vec<(&VecDeque<Arc<Sample>>, bool)> {
        store.tiers.iter().map(|tier| (&tier.samples, tier.has_dropped)).collect()
    }

    #[test]
    fn message_has_all_samples() {
        for seconds in [1, 10, 4_000, 90_000] {
            let store = filled(seconds);
            let message = store.message();
            println!("{seconds} s: {} bytes", message.len());
            let read = SampleStore::of_message(&message).unwrap();
            assert_eq!(tiers(&read), tiers(&store), "{seconds}");
        }
    }

    #[test]
    fn message_without_samples_or_of_another_form_has_none() {
        let version = String::from_utf8(filled(3).message()).unwrap().replacen(":1", ":2", 1);
        for message in ["", "{}", "[]", "\n", "{\"version\":1}", "{\"version\":1}\nx", &version] {
            assert!(SampleStore::of_message(message.as_bytes()).is_none(), "{message}");
        }
        assert!(SampleStore::of_message(&SampleStore::default().message()).is_none());
    }

    #[test]
    fn unknown_parts_are_ignored_and_missing_ones_are_empty() {
        let message = r#"{"version":1,"zone":"UTC"}
{"step_ms":1000,"sample":{"at_ms":2000,"span_ms":1000,"plans":{"free":{"allowed":3,"queued":9}},"weather":"fair"}}
{"step_ms":7000,"sample":{"at_ms":3000,"span_ms":1000}}
{"histogram":[1,2]}
not JSON
{"step_ms":1000,"sample":{"at_ms":1000,"span_ms":1000}}
{"step_ms":1000,"sample":{"at_ms":3000,"span_ms":1000,"retries":4}}"#;
        let read = SampleStore::of_message(message.as_bytes()).unwrap();
        let found = read.find(0, u64::MAX);
        let times: Vec<u64> = found.samples.iter().map(|sample| sample.at_ms).collect();
        assert_eq!(times, [2_000, 3_000]);
        let total = found.total().unwrap();
        assert_eq!((total.requests().allowed, total.retries), (3, 4));
    }

    #[test]
    fn message_without_room_has_the_newest_samples() {
        let store = filled(1_000);
        let most = store.message().len() / 2;
        let message = store.message_of(most);
        assert!(message.len() <= most + 100, "{} of {most}", message.len());
        let read = SampleStore::of_message(&message).unwrap();
        let last =
            |store: &SampleStore| store.tiers.each_ref().map(|tier| tier.samples.back().cloned());
        assert_eq!(last(&read), last(&store));
        // The seconds of the last five minutes do not fit any more: a minute ago is shown in longer
        // steps.
        let of = |store: &SampleStore, age_ms: u64| {
            let end_ms = START_MS + 1_000_000;
            store.find(end_ms - age_ms, end_ms).step_ms
        };
        assert_eq!([of(&store, 20_000), of(&read, 20_000)], [1_000; 2]);
        assert_eq!([of(&store, 290_000), of(&read, 290_000)], [1_000, 10_000]);
    }

    #[test]
    fn own_samples_follow_those_of_the_message() {
        let mut store = SampleStore::of_message(&filled(10).message()).unwrap();
        let mut own = SampleStore::default();
        for second in 8..=12 {
            own.push(&mut sample(START_MS + second * 1_000 + 400, "free", 0, 1));
        }
        store.continue_with(&own);
        let found = store.find(0, u64::MAX);
        let spans: Vec<(u64, u64)> =
            found.samples.iter().map(|sample| (sample.at_ms - START_MS, sample.span_ms)).collect();
        assert_eq!(spans[9..], [(10_000, 1_000), (10_400, 400), (11_400, 1_000), (12_400, 1_000)]);
        let total = found.total().unwrap().requests();
        assert_eq!((total.allowed, total.refused), (10, 3));
    }
}
