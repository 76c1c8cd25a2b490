//! Orders of operators for the endpoints of an upstream. They are kept over look-ups, reloads and
//! upgrades, until they are taken back or the process ends.

use std::collections::HashMap;
use std::net::SocketAddr;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::health::Order;
use crate::net::address::Origin;

/// Orders by endpoint, as `address:port`, or by server, as the file writes it without the scheme.
/// Those of an endpoint go before those of its server; `None`: it is enabled although its server is
/// not.
#[derive(Debug, Default)]
pub(super) struct Orders(Mutex<HashMap<String, Option<Order>>>);

/// The orders of all upstreams, by their names, for the process of an upgrade.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownOrders(HashMap<String, HashMap<String, Option<Order>>>);

impl Orders {
    /// The order for an endpoint of a server.
    pub(super) fn of(&self, server: &Origin, endpoint: SocketAddr) -> Option<Order> {
        let orders = self.0.lock();
        let own = orders.get(&endpoint.to_string());
        own.or_else(|| orders.get(&server.to_string())).copied().flatten()
    }

    /// Gives an order for a server and so for its endpoints, or takes it back.
    pub(super) fn set_server(
        &self,
        server: &Origin,
        endpoints: &[SocketAddr],
        order: Option<Order>,
    ) {
        let mut orders = self.0.lock();
        for endpoint in endpoints {
            orders.remove(&endpoint.to_string());
        }
        match order {
            Some(_) => orders.insert(server.to_string(), order),
            None => orders.remove(&server.to_string()),
        };
    }

    /// Gives an order for an endpoint, or takes it back.
    pub(super) fn set_endpoint(&self, server: &Origin, endpoint: SocketAddr, order: Option<Order>) {
        let mut orders = self.0.lock();
        let has_server = orders.contains_key(&server.to_string());
        if order.is_some() || has_server {
            orders.insert(endpoint.to_string(), order);
        } else {
            orders.remove(&endpoint.to_string());
        }
    }
}

impl KnownOrders {
    /// Adds the orders of an upstream.
    pub(super) fn add(&mut self, upstream: &str, orders: &Orders) {
        let orders = orders.0.lock();
        if !orders.is_empty() {
            self.0.insert(upstream.to_owned(), orders.clone());
        }
    }

    /// The orders of an upstream.
    pub(super) fn of(&self, upstream: &str) -> Orders {
        Orders(Mutex::new(self.0.get(upstream).cloned().unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::address::HostPort;

    #[test]
    fn order_of_an_endpoint_goes_before_that_of_its_server() {
        let server = Origin::Host(HostPort { host: "api.test".to_owned(), port: 80 });
        let [a, b] = ["10.0.0.1:80", "10.0.0.2:80"].map(|text| text.parse().unwrap());
        let orders = Orders::default();
        let both = |orders: &Orders| [orders.of(&server, a), orders.of(&server, b)];
        orders.set_server(&server, &[a, b], Some(Order::Disable));
        assert_eq!(both(&orders), [Some(Order::Disable); 2]);
        orders.set_endpoint(&server, a, None);
        assert_eq!(both(&orders), [None, Some(Order::Disable)]);
        let mut known = KnownOrders::default();
        known.add("api", &orders);
        assert_eq!(both(&known.of("api")), both(&orders));
        assert_eq!(both(&known.of("other")), [None, None]);
        orders.set_server(&server, &[a, b], Some(Order::Drain));
        assert_eq!(both(&orders), [Some(Order::Drain); 2]);
        orders.set_server(&server, &[a, b], None);
        orders.set_endpoint(&server, b, Some(Order::Drain));
        orders.set_endpoint(&server, b, None);
        assert!(orders.0.lock().is_empty());
    }
}
