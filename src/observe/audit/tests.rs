use proptest::prelude::*;

use super::*;

const SECOND: u64 = MICROS_PER_SECOND;

fn at(tick: u64) -> At {
    // Some day, so that the two clocks are not taken for each other.
    At { tick, unix: tick + 1_795_000_000 * SECOND }
}

fn refused(who: &str, rule: &str) -> Refused {
    let who = match who.parse() {
        Ok(ip) => Who::Address(ip),
        Err(_) => Who::Key(who.into()),
    };
    Refused { who, rule: rule.into(), plan: "free".into(), tokens: Some(0) }
}

impl Book {
    fn add(&mut self, who: &str, rule: &str, tick: u64) {
        let ip = who.parse().unwrap_or(IpAddr::from([192, 0, 2, 9]));
        self.note(refused(who, rule), at(tick), || Some(Shown::Plain(ip)));
    }

    /// What is known, each as `who rule count`, the latest first.
    fn told(&self, query: Query) -> Vec<String> {
        let found = self.choose(&Query { limit: 100, ..query }).found();
        let records = found.records.into_iter();
        let told = |record: Record| {
            let open = if record.is_open { " open" } else { "" };
            let who = record.key.or(record.ip).unwrap_or_default();
            format!("{who} {} {}{open}", record.rule, record.count)
        };
        records.map(told).collect()
    }
}

#[test]
fn refusals_soon_after_each_other_are_one_burst() {
    let mut book = Book::new(Bounds::default());
    for second in [0, 5, 14] {
        book.add("acme", "r", second * SECOND);
    }
    book.add("acme", "other", 14 * SECOND);
    book.add("192.0.2.1", "r", 15 * SECOND);
    book.end_quiet(23 * SECOND);
    assert_eq!(book.told(Query::default())[0], "192.0.2.1 r 1 open");
    assert_eq!(book.take_untold().0.len(), 0);
    book.end_quiet(24 * SECOND);
    let (told, more) = book.take_untold();
    assert_eq!((told.len(), more), (2, 0));
    // The same client again: another burst, whether anybody looked in between or not.
    book.add("acme", "r", 24 * SECOND);
    book.add("192.0.2.1", "r", 26 * SECOND);
    let told = book.told(Query::default());
    assert_eq!(told[..3], ["192.0.2.1 r 1 open", "acme r 1 open", "192.0.2.1 r 1"]);
    assert_eq!(told.len(), 5);
    assert!(told.contains(&"acme r 3".to_owned()), "{told:?}");
}

#[test]
fn a_burst_that_does_not_end_is_told_every_minute() {
    let mut book = Book::new(Bounds::default());
    for second in 0..=150 {
        book.add("acme", "r", second * SECOND);
        book.end_quiet(second * SECOND);
    }
    assert_eq!(book.told(Query::default()), ["acme r 31 open", "acme r 60", "acme r 60"]);
}

#[test]
fn records_are_found_by_key_address_rule_and_time() {
    let mut book = Book::new(Bounds::default());
    book.add("acme", "a", 0);
    book.add("acme", "b", 100 * SECOND);
    book.add("192.0.2.1", "a", 200 * SECOND);
    book.add("192.0.2.1", "a", 205 * SECOND);
    let text = |text: &str| Some(text.to_owned());
    let ip = |text: &str| Some(Shown::Plain(text.parse().unwrap()));
    let unix = |second: u64| Some(at(second * SECOND).unix);
    let table: [(Query, &[&str]); 8] = [
        (Query::default(), &["192.0.2.1 a 2 open", "acme b 1 open", "acme a 1 open"]),
        (Query { key: text("acme"), ..Query::default() }, &["acme b 1 open", "acme a 1 open"]),
        (Query { key: text("other"), ..Query::default() }, &[]),
        (Query { ip: ip("192.0.2.1"), ..Query::default() }, &["192.0.2.1 a 2 open"]),
        // Where a client with a key came from is known, too.
        (Query { ip: ip("192.0.2.9"), rule: text("a"), ..Query::default() }, &["acme a 1 open"]),
        (Query { since: unix(203), ..Query::default() }, &["192.0.2.1 a 2 open"]),
        (Query { until: unix(99), ..Query::default() }, &["acme a 1 open"]),
        (Query { since: unix(50), until: unix(150), ..Query::default() }, &["acme b 1 open"]),
    ];
    for (query, expected) in table {
        assert_eq!(book.told(query.clone()), expected, "{query:?}");
    }
    let latest = |limit| book.choose(&Query { limit, ..Query::default() }).found();
    let two = latest(2);
    assert_eq!((two.records.len(), two.more), (2, 1));
    assert!(two.records[0].last.0 > two.records[1].last.0);
    assert_eq!((latest(3).more, latest(0).more), (0, 3));
    assert_eq!(
        serde_json::to_string(&latest(1).records[0]).unwrap(),
        r#"{"first":"2026-11-18T11:10:00.000000Z","last":"2026-11-18T11:10:05.000000Z","count":2,"key":null,"ip":"192.0.2.1","rule":"a","plan":"free","tokens":0,"open":true}"#
    );
}

proptest! {
    /// Whoever comes when: nothing grows beyond its bound, and every refusal is in one record, or
    /// among those that are known to be forgotten.
    #[test]
    fn memory_is_bounded_and_counts_add_up(
        steps in proptest::collection::vec((0..40_u8, 0..3_u8, 0..8 * SECOND, any::<bool>()), 1..300),
        open in 1..20_usize,
        ended in 0..20_usize,
    ) {
        let bounds = Bounds { open, ended, untold: 5, ..Bounds::default() };
        let mut book = Book::new(bounds);
        let (mut tick, mut noted, mut told) = (0, 0, 0);
        for (who, rule, pause, looks) in steps {
            tick += pause;
            book.add(&format!("key-{who}"), &format!("rule-{rule}"), tick);
            noted += 1;
            if looks {
                book.end_quiet(tick);
                prop_assert!(book.open.values().all(|burst| !burst.is_over(&bounds, tick)));
                let (bursts, more) = book.take_untold();
                told += bursts.len() as u64 + more;
            }
            prop_assert!(book.open.len() <= open && book.ended.len() <= ended);
            prop_assert!(book.untold.len() <= 5);
            let bursts = || book.open.values().chain(&book.ended);
            prop_assert!(bursts().all(|burst| burst.first.tick <= burst.last.tick));
            let counted: u64 = bursts().map(|burst| burst.count).sum();
            prop_assert_eq!(counted + book.forgotten, noted);
        }
        book.end_all();
        let (bursts, more) = book.take_untold();
        prop_assert!(told + bursts.len() as u64 + more >= 1);
        prop_assert!(book.open.is_empty());
    }
}
