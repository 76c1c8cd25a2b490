//! A limit on requests in flight that follows the delay of an upstream: additive increase,
//! multiplicative decrease on queueing delay.
//!
//! Requests beyond the number that a server works on at once wait in its queue. They add delay and
//! no throughput. The controller compares the delay in a short window with its baseline, the delay
//! without a queue:
//!
//! - Within half as much again, and with at least half of the limit in use, the limit grows by half
//!   of its square root.
//! - Above that, it is cut to 80 % of what the baseline would keep without a queue (`limit ·
//!   baseline / delay`), at most by half.
//! - If more than a tenth of the requests fail (timeouts, no connection, 503, 504), it is cut by 30
//!   %.
//!
//! Every cut ends below the number that the server works on, so its queue empties, and the next
//! windows show the delay without a queue again. So the baseline needs no probes, for which others
//! hold all requests back now and then. It follows lower delays at once and higher ones slowly; and
//! at once if a quarter of the limit has not shortened the delay, since then the server has become
//! slower and there is no queue. Half of the limit would not show that: a server that becomes
//! slower by two thirds while its queue shrinks by half takes nearly as long as before.
//!
//! Only requests that began after the last change count: others saw the queue of the limit before.

/// The first limit. It doubles in each window until the delay grows.
const FIRST: f64 = 16.0;

/// The lowest limit.
const LOWEST: f64 = 2.0;

/// The highest limit.
const HIGHEST: f64 = 100_000.0;

/// Shortest window, in microseconds.
const WINDOW_US: u64 = 100_000;

/// Number of requests that a window needs, but never more than the limit.
const WINDOW_SAMPLES: f64 = 64.0;

/// Age from which a window needs one request only, in microseconds.
const WINDOW_MAX_US: u64 = 1_000_000;

/// Delay, as a multiple of the baseline, from which there is a queue.
const TOLERANCE: f64 = 1.5;

/// Delay above the baseline below which there is no queue, in microseconds: the time that busy
/// machines take to schedule a thread.
const SLACK_US: f64 = 1_000.0;

/// What a cut keeps of the number of requests that have no queue.
const DRAIN: f64 = 0.8;

/// What a cut keeps at least.
const DEEPEST_CUT: f64 = 0.5;

/// What a cut because of failures keeps.
const FAILURE_CUT: f64 = 0.7;

/// Part of a limit whose delay is compared with that of the limit: two of the deepest cuts.
const COMPARED_PART: f64 = 0.25;

/// What remains of a delay, from which on a lower limit has not shortened it.
const UNCHANGED: f64 = 0.8;

/// Longest delay of one request that shows a queue, as a multiple of the baseline; and what it adds
/// to the baseline at least, as a multiple of [`SLACK_US`].
const CAP: f64 = 4.0;

/// Part of a difference that the baseline follows in one window, down and up.
const FOLLOW_DOWN: f64 = 0.25;
const FOLLOW_UP: f64 = 1.0 / 32.0;

/// One request that has ended, or whose response has begun. Times are microseconds of one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When the request was sent.
    pub started: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// Requests in flight at that time, with this one.
    pub in_flight: u32,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The head of a response came after this time, in microseconds.
    Answered(u64),
    /// It timed out, its server could not be connected to, or responded that it is overloaded.
    Failed,
}

/// The controller of one upstream.
#[derive(Clone, Debug)]
pub struct Adaptive {
    limit: f64,
    /// Delay without a queue, in microseconds; `None` until the first window ends.
    baseline_us: Option<f64>,
    /// Whether the limit doubles in each window.
    is_starting: bool,
    /// When the limit was last changed.
    changed: u64,
    window: Window,
    /// Limit and delay at the first of consecutive cuts, or at the last of them that shortened the
    /// delay.
    compared: Option<(f64, f64)>,
}

/// The requests since the last change.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    since: Option<u64>,
    answered: u32,
    failed: u32,
    /// Sum of the delays, in microseconds.
    delays_us: f64,
    /// The same, with at most [`longest_us`] for each, so that single slow requests change little.
    capped_us: f64,
    in_flight_max: u32,
}

impl Default for Adaptive {
    fn default() -> Self {
        Self {
            limit: FIRST,
            baseline_us: None,
            is_starting: true,
            changed: 0,
            window: Window::default(),
            compared: None,
        }
    }
}

impl Adaptive {
    /// The limit: how many requests may be in flight.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "within LOWEST and HIGHEST"
    )]
    pub fn limit(&self) -> u32 {
        self.limit as u32
    }

    /// Takes a sample at `now`, in microseconds. Returns the limit from then on.
    pub fn add(&mut self, sample: Sample, now: u64) -> u32 {
        if sample.started >= self.changed {
            self.window.add(sample, self.baseline_us, now);
            if self.window.is_complete(self.limit, now) {
                let window = std::mem::take(&mut self.window);
                self.adjust(&window, now);
            }
        }
        self.limit()
    }

    /// A request is refused at `now` although all in flight, this many, have the heads of their
    /// responses: there is no queue. Returns the limit from then on. Without this, a limit that
    /// long responses use up would stay as it is until some of them end: only new requests are
    /// samples.
    pub fn refuse(&mut self, in_flight: u32, now: u64) -> u32 {
        let since = self.window.since.unwrap_or(self.changed);
        if now.saturating_sub(since) >= WINDOW_MAX_US {
            let mut window = std::mem::take(&mut self.window);
            window.in_flight_max = window.in_flight_max.max(in_flight);
            if window.since.is_some() {
                self.adjust(&window, now);
            } else {
                self.grow(now);
            }
        }
        self.limit()
    }

    fn adjust(&mut self, window: &Window, now: u64) {
        if window.answered == 0 {
            self.cut(FAILURE_CUT, now);
            return;
        }
        let answered = f64::from(window.answered);
        let (mean, delay) = (window.delays_us / answered, window.capped_us / answered);
        let baseline = *self.baseline_us.get_or_insert(delay);
        if delay > (baseline * TOLERANCE).max(baseline + SLACK_US) {
            self.adjust_to_delay(mean, (baseline / delay * DRAIN).max(DEEPEST_CUT), now);
            return;
        }
        self.compared = None;
        let part = if delay < baseline { FOLLOW_DOWN } else { FOLLOW_UP };
        self.baseline_us = Some(baseline + (delay - baseline) * part);
        if window.fails() {
            self.cut(FAILURE_CUT, now);
        } else if f64::from(window.in_flight_max) * 2.0 >= self.limit {
            self.grow(now);
        }
    }

    fn grow(&mut self, now: u64) {
        let step = if self.is_starting { self.limit } else { (self.limit.sqrt() / 2.0).max(1.0) };
        self.change(self.limit + step, now);
    }

    /// Cuts the limit, unless the cuts before have not shortened the delay: `mean` becomes the
    /// baseline then.
    fn adjust_to_delay(&mut self, mean: f64, keep: f64, now: u64) {
        let (limit, before) = *self.compared.get_or_insert((self.limit, mean));
        let is_far_lower = self.limit <= (limit * COMPARED_PART).max(LOWEST) && self.limit < limit;
        if is_far_lower || limit <= LOWEST {
            if mean >= before * UNCHANGED {
                self.baseline_us = Some(mean);
                self.compared = None;
                self.change(self.limit, now);
                return;
            }
            self.compared = Some((self.limit, mean));
        }
        self.cut(keep, now);
    }

    fn cut(&mut self, keep: f64, now: u64) {
        self.is_starting = false;
        self.change(self.limit * keep, now);
    }

    fn change(&mut self, limit: f64, now: u64) {
        self.limit = limit.clamp(LOWEST, HIGHEST);
        self.changed = now;
    }
}

impl Window {
    fn add(&mut self, sample: Sample, baseline_us: Option<f64>, now: u64) {
        self.since.get_or_insert(now);
        self.in_flight_max = self.in_flight_max.max(sample.in_flight);
        match sample.outcome {
            Outcome::Answered(us) => {
                self.answered = self.answered.saturating_add(1);
                let us = float(us);
                self.delays_us += us;
                self.capped_us += baseline_us.map_or(us, |baseline| us.min(longest_us(baseline)));
            }
            Outcome::Failed => self.failed = self.failed.saturating_add(1),
        }
    }

    fn is_complete(&self, limit: f64, now: u64) -> bool {
        let age = self.since.map_or(0, |since| now.saturating_sub(since));
        let samples = f64::from(self.answered) + f64::from(self.failed);
        age >= WINDOW_MAX_US || (age >= WINDOW_US && samples >= limit.min(WINDOW_SAMPLES))
    }

    fn fails(&self) -> bool {
        u64::from(self.failed) * 9 > u64::from(self.answered)
    }
}

/// Longest delay of one request that shows a queue: what a queue adds must be above [`SLACK_US`].
fn longest_us(baseline_us: f64) -> f64 {
    (baseline_us * CAP).max(baseline_us + SLACK_US * CAP)
}

/// Exact for a duration in microseconds, which is far below 2^53.
#[allow(clippy::cast_precision_loss, reason = "a duration is far below 2^53 microseconds")]
fn float(us: u64) -> f64 {
    us as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full window of requests that each take `delay_us`, `in_flight` at a time.
    fn window(adaptive: &mut Adaptive, now: &mut u64, outcome: Outcome, in_flight: u32) -> u32 {
        let started = *now;
        for _ in 0..1_000 {
            *now += 2_000;
            adaptive.add(Sample { started, outcome, in_flight }, *now);
            if adaptive.changed > started {
                break;
            }
        }
        adaptive.limit()
    }

    #[test]
    fn limit_doubles_until_the_delay_grows() {
        let (mut adaptive, mut now) = (Adaptive::default(), 1);
        let answered = Outcome::Answered(10_000);
        let limits = [16, 32, 64].map(|limit| window(&mut adaptive, &mut now, answered, limit));
        assert_eq!(limits, [32, 64, 128]);
        // 128 in flight take twice as long as 64: at most 64 have no queue, of which it keeps 80 %.
        let limit = window(&mut adaptive, &mut now, Outcome::Answered(20_000), 128);
        assert_eq!(limit, 64);
        assert_eq!(window(&mut adaptive, &mut now, answered, 64), 68);
    }

    #[test]
    fn limit_that_is_not_used_does_not_grow() {
        let (mut adaptive, mut now) = (Adaptive::default(), 1);
        assert_eq!(window(&mut adaptive, &mut now, Outcome::Answered(10_000), 7), 16);
        assert_eq!(window(&mut adaptive, &mut now, Outcome::Answered(10_000), 8), 32);
    }

    #[test]
    fn timeouts_cut_the_limit_to_the_lowest_and_responses_let_it_grow_again() {
        let (mut adaptive, mut now) = (Adaptive::default(), 1);
        let mut limits = Vec::new();
        for _ in 0..8 {
            let limit = adaptive.limit();
            limits.push(window(&mut adaptive, &mut now, Outcome::Failed, limit));
        }
        assert_eq!(limits, [11, 7, 5, 3, 2, 2, 2, 2]);
        let answered = Outcome::Answered(10_000);
        let limits = [2, 3, 4, 5].map(|used| window(&mut adaptive, &mut now, answered, used));
        assert_eq!(limits, [3, 4, 5, 6]);
    }

    #[test]
    fn few_failures_do_not_cut_the_limit() {
        let (mut adaptive, mut now) = (Adaptive::default(), 1);
        for index in 0..60 {
            now += 2_000;
            let outcome = if index % 11 == 0 { Outcome::Failed } else { Outcome::Answered(10_000) };
            adaptive.add(Sample { started: 1, outcome, in_flight: 16 }, now);
        }
        assert_eq!(adaptive.limit(), 32);
    }

    #[test]
    fn requests_that_began_before_the_last_change_do_not_count() {
        let (mut adaptive, mut now) = (Adaptive::default(), 1);
        window(&mut adaptive, &mut now, Outcome::Answered(10_000), 16);
        let before = Sample { started: 1, outcome: Outcome::Answered(900_000), in_flight: 16 };
        for _ in 0..1_000 {
            now += 2_000;
            adaptive.add(before, now);
        }
        assert_eq!(adaptive.limit(), 32);
    }

    #[test]
    fn server_that_became_slower_is_not_held_at_the_lowest_limit() {
        let (mut adaptive, mut now) = (Adaptive::default(), 1);
        for _ in 0..4 {
            let limit = adaptive.limit();
            window(&mut adaptive, &mut now, Outcome::Answered(5_000), limit);
        }
        assert_eq!(adaptive.limit(), 256);
        // 100 times as slow, whatever is in flight: two cuts show that there is no queue.
        let slow = Outcome::Answered(500_000);
        assert_eq!(window(&mut adaptive, &mut now, slow, 256), 128);
        assert_eq!(window(&mut adaptive, &mut now, slow, 128), 64);
        assert_eq!(window(&mut adaptive, &mut now, slow, 64), 64);
        assert!(window(&mut adaptive, &mut now, slow, 64) > 64);
    }

    /// 32 workers with a queue of 224 that become slower by two thirds during the first cut, and
    /// recover.
    #[test]
    fn delay_of_a_queue_that_shrinks_before_a_slower_server_is_no_baseline() {
        let (mut adaptive, mut now) = (Adaptive::default(), 1);
        for _ in 0..4 {
            let limit = adaptive.limit();
            window(&mut adaptive, &mut now, Outcome::Answered(10_000), limit);
        }
        let limits =
            [(256, 80_000), (128, 66_000), (64, 30_000), (32, 15_000)].map(|(used, us)| {
                assert_eq!(adaptive.limit(), used);
                window(&mut adaptive, &mut now, Outcome::Answered(us), used)
            });
        assert_eq!(limits, [128, 64, 32, 34]);
    }

    /// What a cut has shortened is compared with what follows.
    #[test]
    fn server_that_became_slower_is_found_below_its_queue() {
        let (mut adaptive, mut now) = (Adaptive::default(), 1);
        for _ in 0..4 {
            let limit = adaptive.limit();
            window(&mut adaptive, &mut now, Outcome::Answered(5_000), limit);
        }
        // 20 workers that take 500 ms.
        let mut limits = Vec::new();
        for _ in 0..12 {
            let limit = adaptive.limit();
            let us = 500_000 * u64::from(limit.max(20)) / 20;
            limits.push(window(&mut adaptive, &mut now, Outcome::Answered(us), limit));
        }
        assert_eq!(limits, [128, 64, 32, 16, 8, 4, 4, 5, 6, 7, 8, 10]);
    }

    #[test]
    fn limit_stays_within_its_bounds() {
        let (mut adaptive, mut now) = (Adaptive::default(), 1);
        for _ in 0..100 {
            window(&mut adaptive, &mut now, Outcome::Answered(1), u32::MAX);
        }
        assert_eq!(adaptive.limit(), 100_000);
    }
}
