//! Who was refused by what, and when: the answer to "why was I blocked?" for a while afterwards.
//! A client that is refused once is refused often, so refusals by one rule within seconds of each
//! other are one burst, and one record. Pure: time is a number, and nothing grows without end.
//!
//! Reading order: this file (how bursts begin, end and are found), `record` (what is asked and
//! shown of them), `keeper` (who keeps the book).

pub mod keeper;
mod record;

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use super::address::Shown;
use super::time::Moment;
use crate::limit::MICROS_PER_SECOND;
use record::Chosen;
pub use record::{Found, Query, Record};

/// How much is kept, and when a burst is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The most bursts that go on at once; beyond, the quietest are ended early. At least 1.
    pub(super) open: usize,
    /// The most bursts that are remembered after their end.
    pub(super) ended: usize,
    /// The most that wait to be told.
    pub(super) untold: usize,
    /// Ticks without a refusal after which a burst is over.
    pub(super) quiet: u64,
    /// Ticks after which it is over in any case, so that it is told of while it goes on.
    pub(super) longest: u64,
}

/// Who was refused, as limits tell clients apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    /// The id of a known key.
    Key(Arc<str>),
    /// An address; IPv6 cut to the prefix that tells clients apart.
    Address(IpAddr),
    /// A client on a Unix socket.
    Unknown,
}

/// One refusal.
#[derive(Clone, Debug)]
pub struct Refused {
    /// Whose request it was.
    pub who: Who,
    /// The rule that refused it, by its name.
    pub rule: Arc<str>,
    /// The client's plan, by its name.
    pub plan: Arc<str>,
    /// What the rule had left, in whole tokens, where a bucket was asked.
    pub tokens: Option<u64>,
}

/// When something happened, by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// Ticks of this process: what bursts are measured by.
    pub tick: u64,
    /// Ticks since 1970: what is shown.
    pub unix: u64,
}

/// Refusals of one client by one rule, one soon after the other.
#[derive(Clone, Debug)]
pub(super) struct Burst {
    first: At,
    last: At,
    count: u64,
    who: Who,
    ip: Option<Shown>,
    rule: Arc<str>,
    plan: Arc<str>,
    tokens: Option<u64>,
}

/// Every burst that is known of.
pub(super) struct Book {
    bounds: Bounds,
    open: HashMap<(Who, Arc<str>), Burst>,
    /// The latest at the back.
    ended: VecDeque<Burst>,
    untold: Vec<Burst>,
    /// How many more ended than could wait to be told.
    not_told: u64,
    /// Refusals of bursts that there was no more room to remember.
    forgotten: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            open: 4_096,
            ended: 10_000,
            untold: 50,
            quiet: 10 * MICROS_PER_SECOND,
            longest: 60 * MICROS_PER_SECOND,
        }
    }
}

impl Burst {
    /// The burst as it is shown.
    pub(super) fn record(&self, is_open: bool) -> Record {
        let key = match &self.who {
            Who::Key(key) => Some(key.to_string()),
            Who::Address(_) | Who::Unknown => None,
        };
        Record {
            first: Moment(self.first.unix),
            last: Moment(self.last.unix),
            count: self.count,
            key,
            ip: self.ip.map(|ip| ip.to_string()),
            rule: self.rule.to_string(),
            plan: self.plan.to_string(),
            tokens: self.tokens,
            is_open,
        }
    }

    fn is_over(&self, bounds: &Bounds, tick: u64) -> bool {
        tick.saturating_sub(self.last.tick) >= bounds.quiet
            || tick.saturating_sub(self.first.tick) >= bounds.longest
    }

    fn answers(&self, query: &Query) -> bool {
        let is_key = |key: &String| matches!(&self.who, Who::Key(own) if **own == **key);
        query.key.as_ref().is_none_or(is_key)
            && query.ip.is_none_or(|ip| self.ip == Some(ip))
            && query.rule.as_ref().is_none_or(|rule| *self.rule == **rule)
            && query.since.is_none_or(|since| self.last.unix >= since)
            && query.until.is_none_or(|until| self.first.unix <= until)
    }
}

impl Book {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            open: HashMap::new(),
            ended: VecDeque::new(),
            untold: Vec::new(),
            not_told: 0,
            forgotten: 0,
        }
    }

    /// Notes a refusal. `shown` is asked for the client's address where a burst begins.
    pub(super) fn note(&mut self, refused: Refused, at: At, shown: impl FnOnce() -> Option<Shown>) {
        let Refused { who, rule, plan, tokens } = refused;
        let name = (who, rule);
        if let Some(burst) = self.open.get_mut(&name) {
            if !burst.is_over(&self.bounds, at.tick) {
                burst.count += 1;
                (burst.last, burst.tokens) = (at, tokens);
                return;
            }
            self.end(&name);
        }
        if self.open.len() >= self.bounds.open {
            self.make_room();
        }
        let (who, rule) = name.clone();
        let burst = Burst { first: at, last: at, count: 1, who, ip: shown(), rule, plan, tokens };
        self.open.insert(name, burst);
    }

    /// Ends every burst that is over at `tick`.
    pub(super) fn end_quiet(&mut self, tick: u64) {
        let bounds = self.bounds;
        self.end_those(|burst| burst.is_over(&bounds, tick));
    }

    /// Ends every burst.
    pub(super) fn end_all(&mut self) {
        self.end_those(|_| true);
    }

    /// Bursts that ended since this was last asked, and how many more did.
    pub(super) fn take_untold(&mut self) -> (Vec<Burst>, u64) {
        (std::mem::take(&mut self.untold), std::mem::take(&mut self.not_told))
    }

    /// The latest bursts that are asked for, in no order. Refusals wait meanwhile: only what is
    /// wanted is copied, and sorting is left for later.
    fn choose(&self, query: &Query) -> Chosen {
        let open = self.open.values().map(|burst| (burst, true));
        let ended = self.ended.iter().map(|burst| (burst, false));
        let mut all: Vec<_> = open.chain(ended).filter(|(burst, _)| burst.answers(query)).collect();
        let more = all.len().saturating_sub(query.limit);
        if more > 0 {
            all.select_nth_unstable_by_key(query.limit, |(burst, _)| Reverse(burst.last.unix));
            all.truncate(query.limit);
        }
        let bursts = all.into_iter().map(|(burst, is_open)| (burst.clone(), is_open)).collect();
        Chosen { bursts, more, forgotten: self.forgotten }
    }

    /// Ends the quietest quarter at once: ending one at a time would look through all of them for
    /// each new client.
    fn make_room(&mut self) {
        let mut last: Vec<u64> = self.open.values().map(|burst| burst.last.tick).collect();
        let quarter = last.len() / 4;
        let (_, &mut quietest, _) = last.select_nth_unstable(quarter);
        self.end_those(|burst| burst.last.tick <= quietest);
    }

    fn end_those(&mut self, is_over: impl Fn(&Burst) -> bool) {
        let over = self.open.iter().filter(|(_, burst)| is_over(burst));
        let mut names: Vec<_> = over.map(|(name, burst)| (burst.last.tick, name.clone())).collect();
        names.sort_by_key(|(last, _)| *last);
        for (_, name) in &names {
            self.end(name);
        }
    }

    fn end(&mut self, name: &(Who, Arc<str>)) {
        let Some(burst) = self.open.remove(name) else { return };
        if self.untold.len() < self.bounds.untold {
            self.untold.push(burst.clone());
        } else {
            self.not_told += 1;
        }
        self.ended.push_back(burst);
        while self.ended.len() > self.bounds.ended {
            self.forgotten += self.ended.pop_front().map_or(0, |burst| burst.count);
        }
    }
}
