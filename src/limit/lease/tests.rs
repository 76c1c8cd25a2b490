use super::*;

const SECOND: u64 = MICROS_PER_SECOND;
const NOW: u64 = 100 * SECOND;
const MANY: Means = Means::Borrow(i64::MAX);

fn loan(units: i64, epoch: u64, valid_us: u64) -> Loan {
    Loan { level: 1_000, units, epoch, valid_us }
}

/// A lease after 100 requests of one unit each in a tenth of a second, which ended at [`NOW`].
fn used() -> Lease {
    let mut lease = Lease::default();
    for number in 1..=100 {
        lease.note(1, 1_000, NOW - 100_000 + number * 1_000);
    }
    lease.demand.since = NOW - 100_000;
    lease
}

/// The same, with units that were lent at [`NOW`] in epoch 7, and can be spent for 2 s.
fn borrowed(units: i64) -> Lease {
    let mut lease = used();
    call(lease.step(MANY, NOW));
    lease.lent(loan(units, 7, 2 * SECOND + MARGIN_US), NOW, NOW);
    lease
}

fn call(step: Step) -> Request {
    match step {
        Step::Call(request) => request,
        Step::Wait | Step::End => panic!("{step:?}"),
    }
}

fn account(epoch: u64, spent: i64, returned: i64) -> Account {
    Account { epoch, spent, returned }
}

/// Keeps the demand of [`used`] until `now`.
fn use_until(lease: &mut Lease, now: u64) {
    let us = now - lease.demand.since;
    for _ in 0..us / 1_000 {
        lease.note(1, 1_000, now);
    }
}

#[test]
fn lease_is_wanted_from_eight_requests_in_a_tenth_of_a_second() {
    for (gap_us, expected) in [(1_000, true), (14_000, true), (15_000, false), (200_000, false)] {
        let mut lease = Lease::default();
        for number in 0..8 {
            lease.note(1, 0, NOW + number * gap_us);
        }
        assert_eq!(lease.is_wanted(), expected, "{gap_us}");
    }
}

#[test]
fn lease_is_the_demand_of_the_time_ahead_up_to_its_cap() {
    let request = call(used().step(MANY, NOW));
    assert_eq!(request, Request { wanted: 800, least: 4, ..Request::default() });
    assert_eq!(call(used().step(Means::Borrow(70), NOW)).wanted, 70);
    assert_eq!(used().step(Means::Borrow(0), NOW), Step::Wait);
    assert_eq!(used().step(Means::Return, NOW), Step::Wait);
    assert_eq!(used().step(Means::Nothing, NOW), Step::Wait);
}

#[test]
fn time_ahead_is_that_of_two_thousand_requests_within_bounds() {
    // Requests in a second -> the lease, for two units each.
    let table =
        [(19, 0), (20, 32), (1_000, 1_600), (2_500, 4_000), (5_000, 4_000), (50_000, 30_000)];
    for (requests, expected) in table {
        let mut lease = Lease::default();
        (0..requests).for_each(|_| lease.note(2, 1_000, NOW));
        lease.demand.since = NOW - SECOND;
        let wanted = match lease.step(MANY, NOW) {
            Step::Call(request) => request.wanted,
            Step::Wait | Step::End => 0,
        };
        assert_eq!(wanted, expected, "{requests}");
    }
}

#[test]
fn more_is_borrowed_when_little_is_left() {
    for (left, expected) in [(150, None), (149, Some(800 - 149))] {
        let mut lease = borrowed(800);
        assert!(lease.take(800 - left, NOW));
        lease.demand.units = 0;
        use_until(&mut lease, NOW + 50_000);
        let step = lease.step(MANY, NOW + 50_000);
        assert_eq!(expected, (step != Step::Wait).then(|| call(step).wanted), "{left}");
        if let Step::Call(request) = step {
            assert_eq!(request.accounts, [account(0, 0, 0), account(7, 651, 0)], "what was spent");
        }
    }
}

#[test]
fn each_spent_unit_is_reported_once() {
    let mut lease = borrowed(40);
    lease.take(30, NOW);
    use_until(&mut lease, NOW + 50_000);
    assert_eq!(call(lease.step(MANY, NOW + 50_000)).accounts[1], account(7, 30, 0));
    lease.failed(NOW + 50_000);
    lease.take(10, NOW + 50_000);
    use_until(&mut lease, NOW + 300_000);
    assert_eq!(call(lease.step(MANY, NOW + 300_000)).accounts[1], account(7, 10, 0));
}

#[test]
fn units_are_spent_until_a_margin_before_redis_counts_them_as_free() {
    for (after_us, expected) in [(0, true), (1_999_999, true), (2_000_000, false)] {
        let mut lease = borrowed(500);
        assert_eq!(lease.take(1, NOW + after_us), expected, "{after_us}");
    }
    let mut lease = borrowed(500);
    assert_eq!(lease.unspent_at(NOW + 1_999_999), 500);
    assert_eq!(lease.unspent_at(NOW + 2_000_000), 0);
}

/// A gateway that got no CPU while it should have returned them, or waited for a reply.
#[test]
fn units_that_can_no_longer_be_spent_are_returned_until_redis_counts_them_as_free() {
    for means in [MANY, Means::Return] {
        let mut lease = borrowed(500);
        lease.take(20, NOW);
        let late = NOW + 2 * SECOND + MARGIN_US - 1;
        let request = call(lease.step(means, late));
        assert_eq!((request.wanted, request.accounts[1]), (0, account(7, 20, 480)));
        assert_eq!((lease.step(means, late), lease.take_expired()), (Step::End, 0));
    }
    let mut lease = borrowed(500);
    assert_eq!(lease.step(MANY, NOW + 2 * SECOND + MARGIN_US), Step::End);
    assert_eq!((lease.take_expired(), lease.take_expired()), (500, 0));
}

#[test]
fn units_put_back_after_their_time_are_returned() {
    let mut lease = borrowed(40);
    lease.take(40, NOW);
    lease.put_back(10, NOW + 2 * SECOND);
    assert_eq!((lease.unspent(), lease.take_expired()), (0, 0));
    let request = call(lease.step(MANY, NOW + 2 * SECOND));
    assert_eq!(request.accounts[1], account(7, 30, 10));
}

#[test]
fn time_counts_from_when_the_call_was_sent() {
    let mut lease = used();
    lease.lent(loan(500, 7, 2 * SECOND + MARGIN_US), NOW, NOW + 300_000);
    assert!(lease.take(1, NOW + 1_999_999));
    assert!(!lease.take(1, NOW + 2_000_000));
    let mut lease = used();
    lease.lent(loan(500, 7, SECOND), NOW, NOW);
    assert!(!lease.take(1, NOW), "less than the margin");
    assert_eq!(call(lease.step(Means::Return, NOW)).accounts[1], account(7, 0, 500));
}

#[test]
fn request_takes_all_its_units_or_none() {
    let mut lease = borrowed(5);
    assert!(!lease.take(6, NOW));
    lease.lent(loan(4, 8, 4 * SECOND), NOW, NOW);
    assert!(lease.take(6, NOW), "from two epochs");
    assert_eq!((lease.parts[0].unspent, lease.parts[1].unspent), (0, 3));
    assert!(!lease.take(4, NOW) && lease.take(3, NOW));
}

#[test]
fn units_put_back_can_be_taken_unless_they_were_reported_as_spent() {
    let mut lease = borrowed(40);
    lease.take(40, NOW);
    lease.put_back(10, NOW);
    assert_eq!(lease.unspent(), 10);
    use_until(&mut lease, NOW + 50_000);
    assert_eq!(call(lease.step(MANY, NOW + 50_000)).accounts[1], account(7, 30, 0));
    lease.put_back(10, NOW + 50_000);
    assert_eq!(lease.unspent(), 10, "Redis counts no more than these as lent");
    assert_eq!(lease.take_expired(), 10);
}

#[test]
fn idle_lease_is_returned_and_ends() {
    let mut lease = borrowed(500);
    lease.take(20, NOW);
    assert_eq!(lease.step(MANY, NOW + IDLE_US - 1), Step::Wait);
    let request = call(lease.step(MANY, NOW + IDLE_US));
    assert_eq!((request.wanted, request.accounts[1]), (0, account(7, 20, 480)));
    lease.lent(loan(0, 7, 2 * SECOND), NOW + IDLE_US, NOW + IDLE_US);
    assert_eq!(lease.step(MANY, NOW + END_US - 1), Step::Wait);
    assert_eq!(lease.step(MANY, NOW + END_US), Step::End);
}

#[test]
fn closed_lease_is_returned_at_once() {
    let mut lease = borrowed(500);
    lease.close();
    assert!(!lease.take(1, NOW));
    assert_eq!(lease.unspent_at(NOW), 0);
    let request = call(lease.step(Means::Return, NOW));
    assert_eq!((request.wanted, request.accounts[1]), (0, account(7, 0, 500)));
    lease.lent(loan(30, 7, 4 * SECOND), NOW, NOW);
    assert_eq!(call(lease.step(MANY, NOW)).accounts[1], account(7, 0, 30), "a late reply");
    assert_eq!(lease.step(MANY, NOW), Step::End);
}

#[test]
fn units_beyond_twice_the_demand_and_those_that_would_be_lost_are_returned() {
    let mut lease = borrowed(1_601);
    use_until(&mut lease, NOW + 50_000);
    let request = call(lease.step(MANY, NOW + 50_000));
    assert_eq!((request.wanted, request.accounts[1]), (0, account(7, 0, 801)));
    let mut lease = borrowed(400);
    let late = NOW + 2 * SECOND - SOON_US;
    (0..40).for_each(|at| use_until(&mut lease, late - 1_000 - at));
    lease.demand.measure(late - 50_000);
    use_until(&mut lease, late);
    let request = call(lease.step(MANY, late));
    assert_eq!(request.accounts[1], account(7, 0, 400));
    assert!(request.wanted > 0, "as many others");
}

#[test]
fn nothing_is_lost_or_returned_while_redis_cannot_be_called() {
    let mut lease = borrowed(500);
    assert_eq!(lease.step(Means::Nothing, NOW + SECOND), Step::Wait);
    assert_eq!(lease.unspent(), 500);
    assert_eq!(lease.step(Means::Nothing, NOW + 2 * SECOND), Step::Wait);
    assert_eq!(lease.take_expired(), 0);
    assert_eq!(lease.step(Means::Nothing, NOW + 2 * SECOND + MARGIN_US), Step::End);
    assert_eq!(lease.take_expired(), 500);
}

#[test]
fn bucket_that_lends_nothing_is_asked_again_after_a_while() {
    let mut lease = used();
    call(lease.step(MANY, NOW));
    lease.lent(loan(0, 7, 4 * SECOND), NOW, NOW);
    use_until(&mut lease, NOW + RETRY_US - 1);
    assert_eq!(lease.step(MANY, NOW + RETRY_US - 1), Step::Wait);
    use_until(&mut lease, NOW + RETRY_US);
    call(lease.step(MANY, NOW + RETRY_US));
}

#[test]
fn units_of_an_epoch_expire_together_and_older_ones_are_lost() {
    let mut lease = borrowed(5);
    lease.lent(loan(5, 7, SECOND + MARGIN_US), NOW, NOW);
    assert_eq!(lease.unspent_at(NOW + SECOND - 1), 10);
    assert_eq!(lease.unspent_at(NOW + SECOND), 0, "the earlier of both times");
    let mut lease = borrowed(5);
    lease.lent(loan(6, 8, 4 * SECOND), NOW, NOW);
    lease.lent(loan(7, 9, 4 * SECOND), NOW, NOW);
    assert_eq!((lease.unspent(), lease.take_expired()), (13, 5));
    lease.lent(loan(1, 8, 4 * SECOND), NOW, NOW);
    assert_eq!(lease.parts[0].unspent, 7);
    lease.lent(loan(2, 3, 4 * SECOND), NOW, NOW);
    assert_eq!((lease.unspent(), lease.take_expired()), (2, 14), "Redis' clock went back");
}

#[test]
fn available_units_are_those_of_the_bucket_and_the_lease() {
    let mut lease = borrowed(40);
    assert_eq!(lease.available(), 1_040);
    lease.take(10, NOW);
    assert_eq!(lease.available(), 1_030);
    lease.note(1, 900, NOW);
    lease.note(1, 1_200, NOW);
    assert_eq!(lease.available(), 930, "the second reply is older than the loan");
}
