//! Headers that a limit counts by: the upstream must receive the value that was counted, and no
//! other.

use http::{HeaderMap, HeaderName};

use crate::client::Client;
use crate::limit::charge::Mode;
use crate::net::framing::connection_options;
use crate::policy::charges::{RequestAttributes, Scope};
use crate::policy::{Dimension, Policy};

/// A header that an enforced rule cannot count the request by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UncountableHeader {
    /// Index of the rule.
    pub rule: u32,
    /// Index of the header in the rule's `per`.
    pub dimension: usize,
    /// Why the header cannot be counted by.
    pub fault: HeaderFault,
}

/// Why a request cannot be counted by one of its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFault {
    /// Several lines with different values: some servers use the first, some the last, some all of
    /// them.
    DifferentValues,
    /// `Connection` names it, so it is not forwarded to the upstream (RFC 9110, section 7.6.1).
    HopByHop,
}

/// The first header that the request cannot be counted by; `None` if there is none. Shadow rules
/// deny no request: they count by the first value.
pub(super) fn uncountable(
    policy: &Policy,
    client: &Client,
    attributes: &RequestAttributes<'_>,
    scope: Scope,
) -> Option<UncountableHeader> {
    if policy.counted_headers.is_empty() {
        return None;
    }
    let route = policy.routes.get(attributes.route as usize)?;
    let rules =
        route.rules.iter().filter_map(|rule| Some((*rule, policy.rules.get(*rule as usize)?)));
    let dimensions =
        rules.flat_map(|(rule, table)| (0..).zip(&table.per).map(move |one| (rule, one)));
    let mut faults = dimensions.filter_map(|(rule, (dimension, one))| match one {
        Dimension::Header(name) => {
            let fault = fault(attributes.headers, name)?;
            Some(UncountableHeader { rule, dimension, fault })
        }
        _ => None,
    });
    faults.find(|found| {
        let charge = policy.charge(found.rule, client, attributes, scope);
        charge.is_ok_and(|charge| charge.mode == Mode::Enforce)
    })
}

fn fault(headers: &HeaderMap, name: &HeaderName) -> Option<HeaderFault> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    if values.any(|value| value != first) {
        return Some(HeaderFault::DifferentValues);
    }
    let is_named = |option: &[u8]| option.eq_ignore_ascii_case(name.as_str().as_bytes());
    connection_options(headers).any(is_named).then_some(HeaderFault::HopByHop)
}
