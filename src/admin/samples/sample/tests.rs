//! Rows and merged samples.

use proptest::prelude::*;

use super::*;

/// A sample of one second with requests of the plan and the route `name`.
pub(in crate::admin::samples) fn sample(
    at_ms: u64,
    name: &str,
    allowed: u64,
    refused: u64,
) -> Sample {
    let name = Name::from(name);
    let mut counted = Increases::default();
    let requests = OutcomeCounts { allowed, refused, ..OutcomeCounts::default() };
    counted.plans.insert(Name::clone(&name), requests);
    let decisions = RuleCounts { allowed, refused, shadow_refused: 0 };
    counted.rules.insert(Name::clone(&name), decisions);
    let of_route = RouteCounts { requests: allowed + refused, ..RouteCounts::default() };
    counted.routes.insert(name, of_route);
    counted.statuses[2] = allowed;
    counted.statuses[4] = refused;
    let totals = Totals::default();
    Sample::of(counted, &totals, &totals, at_ms, 1_000)
}

#[test]
fn rows_beyond_the_maximum_are_added_up() {
    let names: Vec<String> = (0..100).map(|name| format!("{name:03}")).collect();
    let row = |allowed| OutcomeCounts { allowed, refused: 1, ..OutcomeCounts::default() };
    let rows = Rows::largest(names.iter().zip(0..).map(|(name, n)| (Name::from(&**name), row(n))));
    let of = |wanted: &str| rows.iter().find(|(name, _)| *name == wanted).map(|(_, row)| *row);
    assert_eq!(rows.iter().count(), MAX_ROWS + 1);
    assert_eq!(of("099"), Some(row(99)));
    assert_eq!(of("001"), None);
    let others = OutcomeCounts { allowed: (0..60).sum(), refused: 60, ..OutcomeCounts::default() };
    assert_eq!(of(OTHERS), Some(others));
    assert!(rows.iter().map(|(name, _)| name).is_sorted());
    // A row of 0 needs no name, and one more name joins the others.
    let mut more = rows.clone();
    more.add(&Rows::largest([(Name::from("000"), row(0)), (Name::from("0"), row(1_000))]));
    assert_eq!(more.iter().count(), MAX_ROWS + 1);
    assert!(more.iter().any(|(name, counts)| name == "0" && *counts == row(1_000)));
}

#[test]
fn rejected_connections_are_the_increase_by_reason() {
    let totals = |shed: u64, preface: u64| {
        let rejected = [("shed".to_owned(), shed), ("preface".to_owned(), preface)];
        Totals { rejected_connections: rejected.into(), ..Totals::default() }
    };
    let of =
        |before: &Totals, now: &Totals| Sample::of(Increases::default(), before, now, 1_000, 1_000);
    let mut sample = of(&Totals::default(), &totals(3, 0));
    sample.add(&of(&totals(3, 0), &totals(7, 1)));
    let rows: Vec<_> = sample.rejected_connections.iter().collect();
    assert_eq!(rows, [("preface", &1), ("shed", &7)]);
}

#[test]
fn merged_sample_has_the_worst_state_and_the_most_in_flight() {
    let with = |breaker, in_flight, config_valid, gateways| {
        let gauges = Gauges { in_flight, breaker, gateways, config_valid, ..Gauges::default() };
        Sample { gauges, ..sample(1_000, "a", 1, 0) }
    };
    let mut merged = with(0, 3, true, 1);
    merged.add(&with(2, 9, false, 2));
    merged.add(&with(1, 0, true, 3));
    let expected =
        Gauges { breaker: 2, in_flight: 9, config_valid: false, gateways: 3, ..Gauges::default() };
    assert_eq!((merged.gauges, merged.span_ms), (expected, 3_000));
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(24))]
    #[test]
    fn sums_of_a_sample_agree_whatever_the_number_of_names(
        rows in prop::collection::vec((0..90_u32, 0..50_u64, 0..50_u64), 1..300),
    ) {
        let mut merged = Sample::default();
        for (name, allowed, refused) in &rows {
            merged.add(&sample(1_000, &format!("n{name}"), *allowed, *refused));
        }
        let allowed: u64 = rows.iter().map(|row| row.1).sum();
        let refused: u64 = rows.iter().map(|row| row.2).sum();
        let requests = merged.requests();
        prop_assert_eq!((requests.allowed, requests.refused), (allowed, refused));
        prop_assert_eq!(merged.rules.iter().map(|(_, row)| row.refused).sum::<u64>(), refused);
        prop_assert_eq!(merged.routes.iter().map(|(_, row)| row.requests).sum::<u64>(), requests.all());
        prop_assert_eq!(merged.statuses.iter().sum::<u64>(), requests.all());
        prop_assert!(merged.plans.iter().count() <= MAX_ROWS + 1);
    }
}
