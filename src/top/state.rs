//! What is shown, and what a key does to it. Pure: news and keys go in, the screen is drawn from it.

use std::cmp::Reverse;
use std::collections::VecDeque;

use super::api::{Tick, TopClient};
use super::client::GatewayError;
use super::feed::{Answers, ClientId, News, Wanted};
use super::rates::{Rate, Rates};

/// How many ticks are kept, as many as a gateway keeps.
const KEPT: usize = 300;

/// The whole of it.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Whose figures these are.
    pub(super) at: String,
    pub(super) tab: Tab,
    pub(super) sort: Sort,
    pub(super) paused: bool,
    pub(super) help: bool,
    /// The client whose buckets are shown.
    pub(super) open: Option<ClientId>,
    /// The client in the list that is chosen, by its place.
    pub(super) chosen: usize,
    pub(super) ticks: VecDeque<Tick>,
    pub(super) answers: Option<Answers>,
    /// Why nothing new comes.
    pub(super) trouble: Option<GatewayError>,
    /// Why no seconds come, though answers do.
    pub(super) no_events: Option<GatewayError>,
    /// When the gateway answered last, in ticks.
    pub(super) answered_at: u64,
    /// A word to the user, until the next key.
    pub(super) note: Option<&'static str>,
}

/// What is shown of the gateway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Tab {
    #[default]
    Overview,
    Clients,
    Health,
}

/// What lists are sorted by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Requests,
    Refused,
    Name,
}

/// A key that means something.
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

/// One line of the list of clients.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listed<'a> {
    pub(super) rule: &'a str,
    pub(super) client: &'a TopClient,
}

/// Lines that a page of the list has.
const PAGE: usize = 10;

impl Tab {
    pub(super) const ALL: [Self; 3] = [Self::Overview, Self::Clients, Self::Health];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Clients => "Clients",
            Self::Health => "Health",
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

    /// Rates in this order.
    pub(super) fn sorted(self, mut rates: Vec<(String, Rate)>) -> Vec<(String, Rate)> {
        // They come in the order of names, and equals stay in it.
        match self {
            Self::Requests => rates.sort_by(|(_, a), (_, b)| all(b).total_cmp(&all(a))),
            Self::Refused => rates.sort_by(|(_, a), (_, b)| lost(b).total_cmp(&lost(a))),
            Self::Name => {}
        }
        rates
    }
}

fn all(rate: &Rate) -> f64 {
    rate.allowed + rate.refused
}

fn lost(rate: &Rate) -> f64 {
    rate.refused + rate.shadow_refused
}

impl State {
    pub(super) fn new(at: String) -> Self {
        Self { at, ..Self::default() }
    }

    /// What is to be asked for.
    pub(super) fn wanted(&self) -> Wanted {
        Wanted { by_refused: self.sort == Sort::Refused, open: self.open.clone() }
    }

    /// Takes what has come at `now`. While paused, only what keeps anything from coming.
    pub(super) fn take(&mut self, news: News, now: u64) {
        match news {
            News::Trouble(trouble) => self.trouble = Some(trouble),
            News::NoEvents(trouble) => self.no_events = Some(trouble),
            News::Answers(_) if self.paused => (self.trouble, self.answered_at) = (None, now),
            News::History(_) | News::Tick(_) if self.paused => {}
            News::Answers(answers) => {
                (self.trouble, self.answered_at) = (None, now);
                self.answers = Some(*answers);
                self.choose(self.chosen);
            }
            News::History(ticks) => {
                self.no_events = None;
                self.ticks = ticks.into();
                self.forget();
            }
            News::Tick(tick) => {
                self.ticks.push_back(*tick);
                self.forget();
            }
        }
    }

    fn forget(&mut self) {
        let many = self.ticks.len().saturating_sub(KEPT);
        self.ticks.drain(..many);
    }

    /// Does what a key means. False: the user leaves.
    pub(super) fn press(&mut self, key: Key) -> bool {
        self.note = None;
        if self.help {
            // Any key closes it; the one that leaves leaves.
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
            Key::Up => self.choose(self.chosen.saturating_sub(1)),
            Key::Down => self.choose(self.chosen + 1),
            Key::PageUp => self.choose(self.chosen.saturating_sub(PAGE)),
            Key::PageDown => self.choose(self.chosen + PAGE),
            Key::Open => self.open_chosen(),
            Key::Back => self.open = None,
        }
        true
    }

    fn show(&mut self, tab: Tab) {
        self.open = None;
        self.tab = tab;
    }

    fn choose(&mut self, place: usize) {
        self.chosen = place.min(self.listed().len().saturating_sub(1));
    }

    fn open_chosen(&mut self) {
        if self.tab != Tab::Clients || self.open.is_some() {
            return;
        }
        let Some(Listed { client, .. }) = self.listed().get(self.chosen).copied() else { return };
        // A network is counted as one client; any address of it leads to its buckets.
        let id = client.id.split('/').next().unwrap_or_default().to_owned();
        let open = ClientId { kind: client.kind.clone(), id };
        if open.kind == "unknown_key" {
            self.note = Some("a key that the file does not know has no name to ask by");
            return;
        }
        if self.paused {
            self.note = Some("paused: nothing is asked for; p goes on");
            return;
        }
        self.open = Some(open);
    }

    /// The rates of now.
    pub(super) fn rates(&self) -> Rates {
        Rates::of(self.ticks.iter())
    }

    /// The clients in the order that is wanted.
    pub(super) fn listed(&self) -> Vec<Listed<'_>> {
        let rules = self.answers.iter().flat_map(|answers| &answers.top.rules);
        listed(rules, self.sort)
    }
}

/// Clients of all rules in one list.
pub(super) fn listed<'a>(
    rules: impl Iterator<Item = &'a super::api::TopOfRule>,
    sort: Sort,
) -> Vec<Listed<'a>> {
    let of_rule = |rule: &'a super::api::TopOfRule| {
        rule.clients.iter().map(|client| Listed { rule: &rule.rule, client })
    };
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
