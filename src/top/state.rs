//! The state of the screen. Pure: updates and keys change it, and the screen is drawn from it.

use std::cmp::Reverse;
use std::collections::VecDeque;

use super::client::GatewayError;
use super::feed::{ClientId, Data, Selection, Update};
use super::rates::{DecisionRate, Named, Rates, RequestRate, TrafficRate};
use super::zone::Zone;
use crate::api::audit::RefusalRunView;
use crate::api::clients::{TopClient, TopOfRule};
use crate::api::samples::Sample;

/// Maximum number of samples, as in the gateway.
const MAX_SAMPLES: usize = 300;

#[derive(Debug, Default)]
pub(super) struct State {
    /// Address of the gateway.
    pub(super) at: String,
    pub(super) tab: Tab,
    pub(super) sort: Sort,
    pub(super) paused: bool,
    pub(super) help: bool,
    /// The client whose buckets are shown.
    pub(super) open: Option<ClientId>,
    /// Index of the selected client in the list.
    pub(super) selected: usize,
    pub(super) samples: VecDeque<Sample>,
    pub(super) data: Option<Data>,
    /// Why the last poll failed.
    pub(super) error: Option<GatewayError>,
    /// Why the stream of events cannot be read.
    pub(super) no_events: Option<GatewayError>,
    /// Time of the last data, in microseconds.
    pub(super) data_at: u64,
    /// A message to the user, shown until the next key.
    pub(super) note: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Tab {
    #[default]
    Overview,
    Clients,
    Health,
    Routes,
    Refusals,
}

/// The order of lists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Requests,
    Refused,
    Name,
}

/// What a key does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Help,
    Next,
    Previous,
    Tab(Tab),
    Up,
    Down,
    PageUp,
    PageDown,
    Sort,
    Pause,
    Open,
    Back,
}

/// A line of the list of clients.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listed<'a> {
    pub(super) rule: &'a str,
    pub(super) client: &'a TopClient,
}

/// Number of lines that page up and page down move.
const PAGE_LINES: usize = 10;

impl Tab {
    pub(super) const ALL: [Self; 5] =
        [Self::Overview, Self::Clients, Self::Health, Self::Routes, Self::Refusals];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Clients => "Clients",
            Self::Health => "Health",
            Self::Routes => "Routes",
            Self::Refusals => "Refusals",
        }
    }

    fn moved(self, by: usize) -> Self {
        let place = Self::ALL.iter().position(|tab| *tab == self).unwrap_or_default();
        Self::ALL[(place + by) % Self::ALL.len()]
    }
}

impl Sort {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Refused => "refused",
            Self::Name => "name",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::Requests => Self::Refused,
            Self::Refused => Self::Name,
            Self::Name => Self::Requests,
        }
    }

    /// Sorts rates, which are in the order of names; equal rates stay in it.
    pub(super) fn sorted<R: Weighted>(self, mut rates: Named<R>) -> Named<R> {
        match self {
            Self::Requests => rates.sort_by(|(_, a), (_, b)| b.all().total_cmp(&a.all())),
            Self::Refused => rates.sort_by(|(_, a), (_, b)| b.bad().total_cmp(&a.bad())),
            Self::Name => {}
        }
        rates
    }
}

/// A rate that a list can be sorted by.
pub(super) trait Weighted {
    /// All requests.
    fn all(&self) -> f64;
    /// Requests that were refused or failed.
    fn bad(&self) -> f64;
}

impl Weighted for RequestRate {
    fn all(&self) -> f64 {
        self.all()
    }

    fn bad(&self) -> f64 {
        self.refused
    }
}

impl Weighted for DecisionRate {
    fn all(&self) -> f64 {
        self.allowed + self.refused
    }

    fn bad(&self) -> f64 {
        self.refused + self.shadow_refused
    }
}

impl Weighted for TrafficRate {
    fn all(&self) -> f64 {
        self.requests
    }

    fn bad(&self) -> f64 {
        self.errors + self.failures
    }
}

impl State {
    pub(super) fn new(at: String) -> Self {
        Self { at, ..Self::default() }
    }

    /// Returns the choices that decide which data is read.
    pub(super) fn selection(&self) -> Selection {
        Selection { by_refused: self.sort == Sort::Refused, open: self.open.clone() }
    }

    /// Applies an update at `now` (microseconds). While paused, only errors change.
    pub(super) fn take(&mut self, update: Update, now: u64) {
        match update {
            Update::Failed(error) => self.error = Some(error),
            Update::NoEvents(error) => self.no_events = Some(error),
            Update::Data(_) if self.paused => (self.error, self.data_at) = (None, now),
            Update::History(_) | Update::Sample(_) if self.paused => {}
            Update::Data(data) => {
                (self.error, self.data_at) = (None, now);
                self.data = Some(*data);
                self.select(self.selected);
            }
            Update::History(samples) => {
                self.no_events = None;
                self.samples = samples.into();
                self.drop_oldest();
            }
            Update::Sample(sample) => {
                self.samples.push_back(*sample);
                self.drop_oldest();
            }
        }
    }

    fn drop_oldest(&mut self) {
        let surplus = self.samples.len().saturating_sub(MAX_SAMPLES);
        self.samples.drain(..surplus);
    }

    /// Applies a key. Returns whether the program continues.
    pub(super) fn press(&mut self, key: Key) -> bool {
        self.note = None;
        if self.help {
            self.help = false;
            return key != Key::Quit;
        }
        match key {
            Key::Quit => return false,
            Key::Help => self.help = true,
            Key::Next => self.show(self.tab.moved(1)),
            Key::Previous => self.show(self.tab.moved(Tab::ALL.len() - 1)),
            Key::Tab(tab) => self.show(tab),
            Key::Sort => self.sort = self.sort.next(),
            Key::Pause => self.paused = !self.paused,
            Key::Up => self.select(self.selected.saturating_sub(1)),
            Key::Down => self.select(self.selected + 1),
            Key::PageUp => self.select(self.selected.saturating_sub(PAGE_LINES)),
            Key::PageDown => self.select(self.selected + PAGE_LINES),
            Key::Open => self.open_selected(),
            Key::Back => self.open = None,
        }
        true
    }

    fn show(&mut self, tab: Tab) {
        self.open = None;
        if self.tab != tab {
            (self.tab, self.selected) = (tab, 0);
        }
    }

    fn select(&mut self, place: usize) {
        let lines = match self.tab {
            Tab::Refusals => self.refusal_runs().len(),
            _ => self.listed().len(),
        };
        self.selected = place.min(lines.saturating_sub(1));
    }

    fn open_selected(&mut self) {
        if self.open.is_some() {
            return;
        }
        let selected = match self.tab {
            Tab::Clients => self.listed().get(self.selected).map(|listed| of_client(listed.client)),
            Tab::Refusals => self.refusal_runs().get(self.selected).map(of_run),
            Tab::Overview | Tab::Health | Tab::Routes => None,
        };
        match selected {
            None => {}
            Some(Err(why)) => self.note = Some(why),
            Some(Ok(_)) if self.paused => self.note = Some("paused; p continues"),
            Some(Ok(open)) => self.open = Some(open),
        }
    }

    /// Returns the current rates.
    pub(super) fn rates(&self) -> Rates {
        Rates::of(self.samples.iter())
    }

    /// Returns the clients in the selected order.
    pub(super) fn listed(&self) -> Vec<Listed<'_>> {
        let rules = self.data.iter().flat_map(|data| &data.top.rules);
        listed(rules, self.sort)
    }

    /// Returns the refusal runs, the latest first.
    pub(super) fn refusal_runs(&self) -> &[RefusalRunView] {
        self.data.as_ref().map_or(&[], |data| &data.audit.refusal_runs)
    }

    /// Returns the time zone of the gateway.
    pub(super) fn zone(&self) -> Zone {
        Zone::of(self.data.as_ref().map(|data| &data.recent))
    }
}

/// The client of a line of the list of clients, or why its buckets cannot be read.
fn of_client(client: &TopClient) -> Result<ClientId, &'static str> {
    if client.kind == "unknown_key" {
        return Err("an unknown key has no id by which its buckets could be read");
    }
    if client.kind == "token" {
        return Err("the buckets of a client with a token cannot be read");
    }
    // An IPv6 network is one client, and each of its addresses has the same buckets.
    let id = client.id.split('/').next().unwrap_or_default().to_owned();
    Ok(ClientId { kind: client.kind.to_string(), id })
}

/// The client of a refusal run, or why its buckets cannot be read.
fn of_run(run: &RefusalRunView) -> Result<ClientId, &'static str> {
    match (&run.key, &run.ip) {
        // Of a client with a token, it is the id and the issuer.
        (Some(key), _) if key.contains(' ') => {
            Err("the buckets of a client with a token cannot be read")
        }
        (Some(key), _) => Ok(ClientId { kind: "key".to_owned(), id: key.clone() }),
        (None, Some(ip)) if ip.starts_with("h:") => {
            Err("the address is hashed (`access_log.client_ip`), so its buckets cannot be read")
        }
        (None, Some(ip)) => Ok(ClientId { kind: "ip".to_owned(), id: ip.clone() }),
        (None, None) => Err(
            "the address is not recorded (`access_log.client_ip`), so its buckets cannot be read",
        ),
    }
}

/// Returns the clients of all rules in one list.
pub(super) fn listed<'a>(
    rules: impl Iterator<Item = &'a TopOfRule>,
    sort: Sort,
) -> Vec<Listed<'a>> {
    let of_rule =
        |rule: &'a TopOfRule| rule.clients.iter().map(|client| Listed { rule: &rule.rule, client });
    let mut listed: Vec<Listed<'a>> = rules.flat_map(of_rule).collect();
    let name = |one: &Listed<'a>| (&one.client.kind, &one.client.id, one.rule);
    match sort {
        Sort::Requests => listed.sort_by_key(|one| (Reverse(one.client.requests), name(one))),
        Sort::Refused => listed.sort_by_key(|one| (Reverse(one.client.refused), name(one))),
        Sort::Name => listed.sort_by_key(name),
    }
    listed
}

#[cfg(test)]
pub(super) mod tests;
