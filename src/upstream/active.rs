//! The endpoints of an upstream that requests are sent to, until a look-up, an ejection or an
//! operator changes them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::balance::least_request::{Load, better_of_two, inverse, least};
use super::balance::maglev::{Maglev, has_room};
use super::balance::plan;
use super::balance::plan::{Availability, Candidate, Level, other};
use super::balance::round_robin::SmoothWeights;
use super::endpoint::EndpointState;
use super::sticky;
use crate::base::hash;
use crate::policy::servers::Balance;

/// An endpoint, with what the configuration says of its server.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) state: Arc<EndpointState>,
    /// The host of the server.
    pub(crate) host: Arc<str>,
    /// The name that has the address: the host, or the target of a SRV record.
    pub(super) target: Arc<str>,
    pub(crate) weight: u16,
    pub(crate) priority: u8,
    /// Value of the cookie that selects it, if the upstream has one.
    pub(super) cookie: Option<Box<str>>,
}

/// All endpoints, and those that requests are sent to.
#[derive(Debug, Default)]
pub(super) struct Active {
    /// All endpoints, in the order of the file. Each address is there once.
    pub(super) all: Arc<[Listed]>,
    chosen: Box<[Chosen]>,
    /// When it must be replaced, in microseconds.
    pub(super) until: u64,
    choice: Choice,
}

/// An endpoint that requests are sent to.
#[derive(Debug)]
struct Chosen {
    /// Index in all endpoints.
    index: usize,
    state: Arc<EndpointState>,
    weight: u32,
    inverse: u64,
}

/// How one of the chosen endpoints is selected.
#[derive(Debug, Default)]
enum Choice {
    /// In turn: their weights are the same.
    #[default]
    Turn,
    Weighted,
    LeastRequest,
    RandomTwo {
        /// The sum of the weights up to each endpoint and with it.
        ends: Box<[u64]>,
    },
    Hash {
        table: Arc<Maglev>,
        /// The position of each of all endpoints among the chosen ones.
        positions: Box<[Option<u32>]>,
        /// Sum of the weights.
        weights: u64,
    },
}

/// What outlives the replacements of [`Active`].
#[derive(Debug)]
pub(super) struct Rounds {
    turn: AtomicUsize,
    weighted: Mutex<SmoothWeights>,
    random: AtomicU64,
    /// The tables of the endpoints on each level, until the endpoints change.
    tables: Mutex<Vec<(Level, Arc<Maglev>)>>,
}

/// What a request wants of its endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted<'a> {
    /// The endpoints that it was sent to without success, or could not be sent to.
    pub(crate) not: &'a [SocketAddr],
    /// Value of its cookie.
    pub(crate) cookie: Option<&'a str>,
    /// Hash of its client.
    pub(crate) hash: u64,
}

impl Listed {
    /// Whether it is the same endpoint with the same settings.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let (address, host) = (self.state.address, &self.host);
        (address, host) == (other.state.address, &other.host)
            && self.target == other.target
            && (self.weight, self.priority) == (other.weight, other.priority)
    }
}

impl Rounds {
    pub(super) fn new() -> Self {
        let seed = getrandom::u64().unwrap_or_default();
        Self {
            turn: AtomicUsize::new(0),
            weighted: Mutex::default(),
            random: AtomicU64::new(seed),
            tables: Mutex::default(),
        }
    }

    /// Random bits: a Weyl sequence, mixed.
    pub(super) fn random(&self) -> u64 {
        hash::mix(self.random.fetch_add(hash::GOLDEN, Ordering::Relaxed))
    }

    /// Forgets the tables of endpoints that have changed.
    pub(super) fn forget_tables(&self) {
        self.tables.lock().clear();
    }

    fn table(&self, all: &[Listed], level: Level) -> Arc<Maglev> {
        let mut tables = self.tables.lock();
        if let Some((_, table)) = tables.iter().find(|(of, _)| *of == level) {
            return Arc::clone(table);
        }
        let is_on_level = |listed: &Listed| match level {
            Level::Healthy(priority) => listed.priority == priority,
            Level::All => true,
            Level::Off => false,
        };
        let names: Vec<String> =
            all.iter().map(|listed| listed.state.address.to_string()).collect();
        let each = all.iter().zip(&names).enumerate().filter_map(|(index, (listed, name))| {
            is_on_level(listed).then_some((
                u16::try_from(index).ok()?,
                name.as_bytes(),
                listed.weight,
            ))
        });
        let table = Arc::new(Maglev::new(each));
        tables.push((level, Arc::clone(&table)));
        table
    }
}

impl Active {
    /// Chooses among all endpoints at `now` (microseconds).
    pub(super) fn of(
        all: Arc<[Listed]>,
        balance: &Balance,
        slow_start_us: u64,
        rounds: &Rounds,
        now: u64,
    ) -> Self {
        // The endpoint of a client does not change with time.
        let slow_start_us = if matches!(balance, Balance::Hash(_)) { 0 } else { slow_start_us };
        let plan = plan::plan(&candidates(&all, now), slow_start_us, now);
        let chosen = plan.chosen.iter().filter_map(|(index, weight)| {
            let state = Arc::clone(&all.get(*index)?.state);
            Some(Chosen { index: *index, state, weight: *weight, inverse: inverse(*weight) })
        });
        let chosen: Box<[Chosen]> = chosen.collect();
        let choice = match balance {
            Balance::RoundRobin if chosen.windows(2).all(is_equal) => Choice::Turn,
            Balance::RoundRobin => {
                let indexes: Vec<usize> = chosen.iter().map(|chosen| chosen.index).collect();
                rounds.weighted.lock().keep(all.len(), &indexes);
                Choice::Weighted
            }
            Balance::LeastRequest => Choice::LeastRequest,
            Balance::RandomTwo => {
                let add = |sum: &mut u64, chosen: &Chosen| {
                    *sum += u64::from(chosen.weight);
                    Some(*sum)
                };
                Choice::RandomTwo { ends: chosen.iter().scan(0, add).collect() }
            }
            Balance::Hash(_) => {
                let mut positions = vec![None; all.len()];
                for (position, chosen) in chosen.iter().enumerate() {
                    if let Some(place) = positions.get_mut(chosen.index) {
                        *place = u32::try_from(position).ok();
                    }
                }
                let weights = chosen.iter().map(|chosen| u64::from(chosen.weight)).sum();
                let table = rounds.table(&all, plan.level);
                Choice::Hash { table, positions: positions.into(), weights }
            }
        };
        Self { all, chosen, until: plan.until, choice }
    }

    /// Selects an endpoint at `now` (microseconds). It is one of `wanted.not` only if there is no
    /// other; `None`: there is no endpoint at all, or operators have drained or disabled all.
    pub(super) fn select(&self, wanted: Wanted<'_>, rounds: &Rounds, now: u64) -> Option<&Listed> {
        let position_of =
            |not: &SocketAddr| self.chosen.iter().position(|one| one.state.address == *not);
        let (listed, not) = match wanted.not {
            [] => (wanted.cookie.and_then(|cookie| self.with_cookie(cookie, now)), None),
            // The others are balanced.
            [not] if self.chosen.len() > 1 => (None, position_of(not)),
            [.., last] => (self.another(wanted.not, rounds, now), position_of(last)),
        };
        if listed.is_some() {
            return listed;
        }
        if let [only] = &*self.chosen {
            return self.all.get(only.index);
        }
        let position = self.position(not, wanted.hash, rounds)?;
        self.all.get(self.chosen.get(position)?.index)
    }

    /// The endpoint that `cookie` selects, if it is one of the chosen, or one that is drained.
    fn with_cookie(&self, cookie: &str, now: u64) -> Option<&Listed> {
        let is_wanted = |listed: &Listed| {
            let own = listed.cookie.as_deref();
            own.is_some_and(|own| sticky::values(cookie).any(|value| value == own))
        };
        let chosen = self.chosen.iter().filter_map(|chosen| self.all.get(chosen.index));
        let drained = || {
            self.all
                .iter()
                .find(|listed| is_wanted(listed) && listed.state.health().keeps_clients(now))
        };
        chosen.clone().find(|listed| is_wanted(listed)).or_else(drained)
    }

    /// The position of the endpoint of a request among the chosen ones, which are none or several.
    fn position(&self, not: Option<usize>, hash: u64, rounds: &Rounds) -> Option<usize> {
        let load =
            |chosen: &Chosen| Load { in_flight: chosen.state.in_flight(), inverse: chosen.inverse };
        // The one after `not` takes the place of `not`.
        let after = |position: usize| {
            if Some(position) == not { (position + 1) % self.chosen.len() } else { position }
        };
        match &self.choice {
            Choice::Turn => {
                let turn = rounds.turn.fetch_add(1, Ordering::Relaxed);
                turn.checked_rem(self.chosen.len()).map(after)
            }
            Choice::Weighted => {
                let weights = self.chosen.iter().map(|chosen| (chosen.index, chosen.weight));
                let not = not.and_then(|not| Some(self.chosen.get(not)?.index));
                let index = rounds.weighted.lock().next(weights, not)?;
                self.chosen.binary_search_by_key(&index, |chosen| chosen.index).ok()
            }
            Choice::LeastRequest => {
                let Some(not) = not else {
                    return least(self.chosen.iter().map(load), rounds.random());
                };
                let others = self.chosen.iter().enumerate().filter(|(at, _)| *at != not);
                let position = least(others.map(|(_, chosen)| load(chosen)), rounds.random())?;
                Some(if position >= not { position + 1 } else { position })
            }
            Choice::RandomTwo { ends } => {
                let load = |at: usize| {
                    let idle = Load { in_flight: 0, inverse: 0 };
                    self.chosen.get(at).map_or(idle, load)
                };
                better_of_two(ends, load, rounds.random()).map(after)
            }
            Choice::Hash { table, positions, weights } => {
                let in_flight = |chosen: &Chosen| u64::from(chosen.state.in_flight());
                let total = self.chosen.iter().map(in_flight).sum::<u64>() + 1;
                let at = |index: usize| {
                    let position =
                        usize::try_from(positions.get(index).copied().flatten()?).ok()?;
                    Some((position, self.chosen.get(position)?))
                };
                let accepts = |index: usize| {
                    at(index).is_some_and(|(position, chosen)| {
                        Some(position) != not
                            && has_room(chosen.state.in_flight(), chosen.weight, total, *weights)
                    })
                };
                let found = table.pick(hash, accepts);
                let found = found.and_then(at).map(|(position, _)| position);
                let is_other = |index: usize| at(index).is_some_and(|(at, _)| Some(at) != not);
                found.or_else(|| at(table.pick(hash, is_other)?).map(|(position, _)| position))
            }
        }
    }

    /// An endpoint that is none of `not`, for a request that must not go to the only one that is
    /// chosen, or to several. None that is not healthy, if one of `not` is: the request failed
    /// there in another way than by connecting.
    #[cold]
    fn another(&self, not: &[SocketAddr], rounds: &Rounds, now: u64) -> Option<&Listed> {
        let turn = rounds.turn.fetch_add(1, Ordering::Relaxed);
        let is_out = |index: usize| {
            self.all.get(index).is_none_or(|listed| not.contains(&listed.state.address))
        };
        let candidates = candidates(&self.all, now);
        let at = other(&candidates, is_out, turn)?;
        let is_up = |index: usize| {
            let candidate = candidates.get(index);
            candidate.is_some_and(|one| matches!(one.availability, Availability::Up { .. }))
        };
        if !is_up(at) && (0..candidates.len()).any(|index| is_out(index) && is_up(index)) {
            return None;
        }
        self.all.get(at)
    }
}

fn is_equal(pair: &[Chosen]) -> bool {
    matches!(pair, [a, b] if a.weight == b.weight)
}

fn candidates(all: &[Listed], now: u64) -> Vec<Candidate> {
    let candidate = |listed: &Listed| Candidate {
        weight: listed.weight,
        priority: listed.priority,
        availability: listed.state.availability(now),
    };
    all.iter().map(candidate).collect()
}
