//! What would become of a request that nobody sent, and why. Decided by the very code that decides
//! on those that come ([`precheck`]); nothing is counted, and no token is taken.
//!
//! Reading order: this file, `asked` (a request by hand), `json` (the same, as the admin port gets
//! it), `report` (what is told: the contract), `found` and `rules` (how it is found out), `words`
//! (in sentences), `text` (for a terminal).

pub mod json;
pub mod report;
pub mod request;
pub mod text;

mod resolved;
mod rules;
pub(crate) mod wording;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::clock;
use crate::decide::precheck;
use crate::policy::Policy;
use crate::runtime::CurrentSnapshot;
use crate::store::limiter::{Limiter, Taken};
use report::Explanation;
use request::{RequestSpec, SpecError};

/// What is known of the buckets that a request takes from.
#[derive(Debug, Clone, Copy)]
pub enum Levels<'a> {
    /// Nobody asked.
    NotRead,
    /// It takes from none.
    None,
    /// What taking would be answered now.
    Known {
        /// The answer.
        taken: &'a Taken,
        /// Ticks until Redis is tried again; 0 where it is asked, or where there is none.
        retry_after_us: u64,
    },
}

/// Explains requests by the rules and the buckets of a gateway that serves.
pub struct Explainer {
    current: Arc<CurrentSnapshot>,
    limiter: Arc<Limiter>,
}

impl Explainer {
    /// Explains by the rules in force at the time, and by the buckets of `limiter`.
    pub fn new(current: Arc<CurrentSnapshot>, limiter: Arc<Limiter>) -> Self {
        Self { current, limiter }
    }

    /// Explains a request, with the levels of its buckets as they are.
    ///
    /// # Errors
    /// It is nothing that a client could send.
    pub async fn explain(&self, asked: &RequestSpec) -> Result<Explanation, SpecError> {
        let snapshot = self.current.load_full();
        let request = asked.request(&snapshot.policy)?;
        let precheck = precheck(&snapshot.policy, &request.head());
        if precheck.charges.is_empty() {
            return Ok(resolved::explanation(&snapshot.policy, &request, &precheck, Levels::None));
        }
        let rules = &snapshot.rule_names;
        let taken = self.limiter.peek(&precheck.charges, rules, clock::now()).await;
        let retry_after_us = self.limiter.retry_after_us();
        let levels = Levels::Known { taken: &taken, retry_after_us };
        Ok(resolved::explanation(&snapshot.policy, &request, &precheck, levels))
    }
}

/// Explains a request by the rules alone.
///
/// # Errors
/// It is nothing that a client could send.
pub fn by_rules(policy: &Policy, asked: &RequestSpec) -> Result<Explanation, SpecError> {
    let request = asked.request(policy)?;
    let precheck = precheck(policy, &request.head());
    let levels = if precheck.charges.is_empty() { Levels::None } else { Levels::NotRead };
    Ok(resolved::explanation(policy, &request, &precheck, levels))
}
