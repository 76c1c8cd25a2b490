//! `[plans]`: the priority of each.

use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::{Config, in_order};
use crate::policy::priorities::Priorities;

/// The lowest and the highest priority.
const BOUNDS: (i64, i64) = (-1_000, 1_000);

/// The priorities of all plans, in the order of the file. A file without plans has one with the
/// default.
pub(super) fn priorities(config: &Config, diagnostics: &mut Diagnostics) -> Option<Priorities> {
    let mut numbers = Some(Vec::new());
    for (_, plan) in in_order(&config.plans) {
        let (least, most) = BOUNDS;
        let field = plan.get_ref().priority.as_ref();
        let number = field.map_or(0, |field| *field.get_ref());
        let within = i16::try_from(number).ok().filter(|_| (least..=most).contains(&number));
        if let (None, Some(field)) = (within, field) {
            let message = format!("`priority` is at least {least} and at most {most}");
            diagnostics.push(Diagnostic::new(field.span(), message));
        }
        numbers = numbers.zip(within).map(|(mut numbers, number)| {
            numbers.push(number);
            numbers
        });
    }
    let numbers = numbers?;
    Some(if numbers.is_empty() { Priorities::new(&[0]) } else { Priorities::new(&numbers) })
}
