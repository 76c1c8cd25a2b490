//! Orders of operators for endpoints that apply to all gateways that share a Redis. Each gateway
//! knows all of them, and merges what the others know: the newest order for an endpoint applies.
//! Pure: times are microseconds since the Unix epoch.

use serde::{Deserialize, Serialize};

use super::health::Order;
use crate::base::duration::MICROS_PER_SECOND;

/// How long it is known that an order was taken back. A gateway that has not reached Redis for
/// longer would give it again.
const KEEP_ENABLED_US: u64 = 7 * 86_400 * MICROS_PER_SECOND;

/// Maximum number of orders. Beyond it, the oldest are forgotten.
const MAX_ORDERS: usize = 1_000;

/// The newest order for each endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedOrders(Vec<SharedOrder>);

/// An order for an endpoint, or for a server and so for its endpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedOrder {
    pub upstream: String,
    /// The address, or the server as the file writes it, without its scheme, in lower case.
    pub server: String,
    /// `None`: an earlier order was taken back.
    pub order: Option<Order>,
    /// When it was given.
    at_us: u64,
}

impl SharedOrder {
    /// What decides which of two orders is newer; of two at the same time, the stricter one.
    const fn age(&self) -> (u64, u8) {
        let strictness = match self.order {
            None => 0,
            Some(Order::Drain) => 1,
            Some(Order::Disable) => 2,
        };
        (self.at_us, strictness)
    }

    fn is_for(&self, other: &Self) -> bool {
        (&self.upstream, &self.server) == (&other.upstream, &other.server)
    }
}

impl SharedOrders {
    /// Gives an order at `now`, or takes one back. It is newer than all that are known, also if
    /// another gateway's clock is ahead.
    pub fn give(&mut self, upstream: &str, server: &str, order: Option<Order>, now_us: u64) {
        let server = server.rsplit_once("://").map_or(server, |(_, rest)| rest);
        let mut own = SharedOrder {
            upstream: upstream.to_owned(),
            server: server.to_ascii_lowercase(),
            order,
            at_us: now_us,
        };
        if let Some(before) = self.0.iter().find(|before| before.is_for(&own)) {
            own.at_us = now_us.max(before.at_us.saturating_add(1));
        }
        self.add(own);
        self.tidy(now_us);
    }

    /// Adds what another gateway knows at `now`.
    pub fn merge(&mut self, other: &Self, now_us: u64) {
        for order in &other.0 {
            self.add(order.clone());
        }
        self.tidy(now_us);
    }

    /// All orders, those that were taken back included.
    pub fn iter(&self) -> impl Iterator<Item = &SharedOrder> {
        self.0.iter()
    }

    fn add(&mut self, order: SharedOrder) {
        match self.0.binary_search_by_key(&key(&order), key) {
            Ok(at) => {
                if let Some(own) = self.0.get_mut(at).filter(|own| own.age() < order.age()) {
                    *own = order;
                }
            }
            Err(at) => self.0.insert(at, order),
        }
    }

    fn tidy(&mut self, now_us: u64) {
        let is_known = |one: &SharedOrder| {
            one.order.is_some() || one.at_us.saturating_add(KEEP_ENABLED_US) > now_us
        };
        self.0.retain(is_known);
        while self.0.len() > MAX_ORDERS {
            let oldest = self.0.iter().enumerate().min_by_key(|(_, one)| one.age());
            let Some((at, _)) = oldest else { return };
            self.0.remove(at);
        }
    }
}

fn key(order: &SharedOrder) -> (&str, &str) {
    (&order.upstream, &order.server)
}

/// Which orders this process has applied to its endpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied(SharedOrders);

impl Applied {
    /// Whether an order still has to be applied.
    pub fn lacks(&self, order: &SharedOrder) -> bool {
        let applied = self.0.0.binary_search_by_key(&key(order), key);
        let applied = applied.ok().and_then(|at| self.0.0.get(at));
        applied.is_none_or(|applied| applied.age() < order.age())
    }

    /// Notes that an order is applied.
    pub fn note(&mut self, order: &SharedOrder) {
        self.0.add(order.clone());
    }

    /// Forgets orders that are not known any more.
    pub fn keep(&mut self, known: &SharedOrders) {
        self.0.0.retain(|one| known.0.binary_search_by_key(&key(one), key).is_ok());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY_US: u64 = 86_400 * MICROS_PER_SECOND;

    #[test]
    fn newest_order_applies_whatever_the_clocks_say() {
        let (mut ahead, mut behind) = (SharedOrders::default(), SharedOrders::default());
        ahead.give("api", "https://A.test:80", Some(Order::Drain), 100);
        behind.merge(&ahead, 50);
        behind.give("api", "a.test:80", None, 50);
        ahead.merge(&behind, 101);
        assert_eq!(ahead, behind);
        let orders: Vec<_> = ahead.iter().map(|one| (&*one.server, one.order)).collect();
        assert_eq!(orders, [("a.test:80", None)]);
    }

    #[test]
    fn orders_that_were_taken_back_are_forgotten_after_a_week() {
        let mut orders = SharedOrders::default();
        orders.give("api", "a:80", Some(Order::Drain), 0);
        orders.give("api", "b:80", None, 0);
        orders.merge(&SharedOrders::default(), 6 * DAY_US);
        assert_eq!(orders.iter().count(), 2);
        orders.merge(&SharedOrders::default(), 7 * DAY_US);
        assert_eq!(orders.iter().count(), 1);
    }

    #[test]
    fn number_of_orders_is_bounded() {
        let mut orders = SharedOrders::default();
        for number in 0..1_100 {
            orders.give("api", &format!("{number}:80"), Some(Order::Drain), number);
        }
        assert_eq!(orders.iter().count(), MAX_ORDERS);
        assert!(orders.iter().all(|one| one.at_us >= 100));
    }

    #[test]
    fn order_is_applied_once_and_again_only_if_it_is_newer() {
        let (mut orders, mut applied) = (SharedOrders::default(), Applied::default());
        orders.give("api", "a:80", Some(Order::Drain), 1);
        let first = orders.iter().next().unwrap().clone();
        assert!(applied.lacks(&first));
        applied.note(&first);
        assert!(!applied.lacks(&first));
        orders.give("api", "a:80", None, 1);
        assert!(applied.lacks(orders.iter().next().unwrap()));
        applied.keep(&SharedOrders::default());
        assert!(applied.lacks(&first));
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn gateways_agree_in_whatever_order_they_learn_of_orders(
            given in prop::collection::vec((0_usize..3, 0_u8..3, 0_u8..3, 0_u64..50), 1..20),
            merges in prop::collection::vec((0_usize..3, 0_usize..3), 0..20),
        ) {
            let mut gateways: [SharedOrders; 3] = Default::default();
            for (at, server, order, now) in given {
                let order = [None, Some(Order::Drain), Some(Order::Disable)][usize::from(order)];
                gateways[at].give("api", &format!("{server}:80"), order, now);
            }
            for (to, from) in merges {
                let other = gateways[from].clone();
                gateways[to].merge(&other, 50);
            }
            let mut all = [SharedOrders::default(), SharedOrders::default()];
            for gateway in &gateways {
                all[0].merge(gateway, 50);
            }
            for gateway in gateways.iter().rev() {
                all[1].merge(gateway, 50);
            }
            prop_assert_eq!(&all[0], &all[1]);
            let json = serde_json::to_string(&all[0]).unwrap();
            prop_assert_eq!(&serde_json::from_str::<SharedOrders>(&json).unwrap(), &all[0]);
        }
    }
}
