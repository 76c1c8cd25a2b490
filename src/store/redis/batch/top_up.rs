//! Top-ups of quotas in Redis, by an operator. Each call is of its own, and settles the debt to the
//! bucket, as in [`adjust`](super::adjust).

use std::sync::Arc;

use super::Batcher;
use super::adjust::NotAdjusted;
use crate::base::clock;
use crate::limit::charge::Charge;
use crate::limit::top_up::{ChangedTopUps, TopUpChange, TopUpError};
use crate::store::redis::script;
use crate::store::rule::StoredRule;

impl Batcher {
    /// Changes the top-ups of a charge's bucket, or reads them, and settles the debt to it. Its
    /// limit is a fixed window. `rules` are those of the policy that the charges come from, by
    /// index.
    ///
    /// # Errors
    /// Of the call, see [`NotAdjusted`]; of the change, [`TopUpError`].
    pub async fn top_up(
        self: &Arc<Self>,
        charge: &Charge,
        rules: &[StoredRule],
        wanted: &TopUpChange,
    ) -> Result<Result<ChangedTopUps, TopUpError>, NotAdjusted> {
        let encode = || script::encode_top_up(charge, wanted, clock::now());
        let of = *charge;
        let read = move |reply: &[i64]| {
            let changed = script::read_top_up(&of, reply).map_err(|_| NotAdjusted::Unknown)?;
            changed.ok_or(NotAdjusted::Unreadable(0))
        };
        self.call_settling(std::slice::from_ref(charge), rules, encode, read).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limit;
    use crate::limit::calendar::{Calendar, Period};
    use crate::limit::charge::{BucketId, Mode};
    use crate::limit::fixed_window::FixedWindow;
    use crate::limit::share::Share;
    use crate::limit::top_up::TopUp;
    use crate::store::redis::batch::tests::{batcher, connected, rules, series};
    use crate::store::redis::fixture::RedisServer;

    /// What this gateway granted while Redis did not respond is not shown as left.
    #[tokio::test]
    async fn debt_of_this_gateway_is_taken_before_a_top_up_is_added_or_listed() {
        let server = RedisServer::start(&[]);
        let batcher = batcher(connected(&server).await, 5_000, series());
        let calendar = Calendar::new(Period::Year, "UTC", 1).unwrap();
        let limit = Limit::FixedWindow(FixedWindow::new(10, calendar).unwrap());
        let (bucket, mode) = (BucketId(7), Mode::Enforce);
        let charge = Charge { bucket, rule: 0, limit_index: 0, limit, cost: 1_000, mode };
        let owe = |tokens| {
            let units = limit.token_units(tokens);
            batcher.debts().add(&charge, &rules()[0], units, Share::WHOLE, clock::now());
        };
        owe(4);
        let units = limit.token_units(5);
        let one = TopUp { id: 7, units, expires_us: clock::unix_us() + 60_000_000 };
        let wanted = TopUpChange::Add(one, "why".to_owned());
        let added = batcher.top_up(&charge, &rules(), &wanted).await.unwrap().unwrap();
        assert_eq!(added.before, limit.token_units(6));
        owe(8);
        let listed = batcher.top_up(&charge, &rules(), &TopUpChange::List).await.unwrap().unwrap();
        assert_eq!((listed.after, listed.all[0].left), (limit.token_units(3), 3_000));
        assert!(batcher.debts().is_empty(), "settled once");
        let listed = batcher.top_up(&charge, &rules(), &TopUpChange::List).await.unwrap().unwrap();
        assert_eq!(listed.after, limit.token_units(3));
    }
}
