//! `[plans]`: the priority of each.

use super::values::number_in;
use crate::config::diagnostic::Diagnostics;
use crate::config::{Config, in_order, tables};
use crate::policy::priorities::Priorities;

/// The priorities of all plans, in the order of the file. A file without plans has one with the
/// default.
pub(super) fn priorities(config: &Config, diagnostics: &mut Diagnostics) -> Option<Priorities> {
    let mut numbers = Some(Vec::new());
    for (_, plan) in in_order(&config.plans) {
        let number = match &plan.get_ref().priority {
            Some(field) => number_in(&tables::Plan::priority, field, diagnostics),
            None => tables::Plan::priority.number().and_then(|number| i64::try_from(number).ok()),
        };
        let number = number.and_then(|number| i16::try_from(number).ok());
        numbers = numbers.zip(number).map(|(mut numbers, number)| {
            numbers.push(number);
            numbers
        });
    }
    let numbers = numbers?;
    Some(if numbers.is_empty() { Priorities::new(&[0]) } else { Priorities::new(&numbers) })
}
