use std::time::Duration;

use super::*;
use crate::store::redis::fixture::RedisServer;
use crate::usage::days::row::tests::row;
use crate::usage::days::row::{Rows, owner_hash};

const BOUNDS: DayBounds =
    DayBounds { keep: Duration::from_secs(100_000 * 86_400), max_rows: 100_000 };

const START: Position = Position { day: Day::FIRST, owner: 0 };

fn rows(day: u32, clients: std::ops::Range<u32>) -> Rows {
    let counts = Counts { requests: 1, units: 1_000, overage: 10 };
    clients.map(|client| (row(day, client), counts)).collect()
}

async fn read_all(store: &Store, owners: Option<&[u128]>) -> Vec<(u32, String, i64, i64)> {
    let index = store.days(BOUNDS).await.unwrap();
    let mut found = Vec::new();
    let rest = store
        .read_days(index, START, owners, u64::MAX, |_, rows| {
            let each = rows.into_iter();
            found.extend(each.map(|(row, Counts { requests, overage, .. })| {
                (row.day.number(), row.owner.id, requests, overage)
            }));
            true
        })
        .await
        .unwrap();
    assert_eq!(rest, None);
    found.sort();
    found
}

#[tokio::test]
async fn batch_that_is_sent_again_is_added_once() {
    let server = RedisServer::start(&[]);
    let stores = [Store::new(server.settings()), Store::new(server.settings())];
    let mut index = stores[0].days(BOUNDS).await.unwrap();
    for store in &stores {
        let mut batches = Batches::default();
        batches.add(rows(20_261_128, 0..300));
        // All replies are lost.
        let mut sent = Vec::new();
        while !batches.is_empty() {
            sent.extend(batches.next(16));
        }
        for _ in 0..2 {
            let commands: Vec<Cmd> =
                sent.iter().map(|batch| store.day_script(batch, &index, BOUNDS)).collect();
            for reply in store.0.call_all(&commands).await.unwrap() {
                reply.unwrap();
            }
        }
        batches.not_answered(sent);
        batches.add(rows(20_261_128, 0..300));
        assert_eq!(store.add_days(&mut batches, &mut index, BOUNDS).await.unwrap(), 0);
        assert!(batches.is_empty());
    }
    let all = read_all(&stores[0], None).await;
    assert_eq!(all.len(), 300);
    assert!(
        all.iter().all(|(_, _, requests, overage)| (*requests, *overage) == (4, 40)),
        "{all:?}"
    );
}

#[tokio::test]
async fn rows_are_read_by_client_and_day_and_in_parts() {
    let server = RedisServer::start(&[]);
    let store = Store::new(server.settings());
    let mut index = DayIndex::new();
    let mut batches = Batches::default();
    for day in [20_261_127, 20_261_128] {
        batches.add(rows(day, 0..200));
    }
    store.add_days(&mut batches, &mut index, BOUNDS).await.unwrap();
    assert_eq!(index.values().sum::<u64>(), 400);
    let mut owners = [7_u32, 900].map(|client| owner_hash("key", &client.to_string()));
    owners.sort_unstable();
    let found = read_all(&store, Some(&owners)).await;
    let seven = |day| (day, "7".to_owned(), 1, 10);
    assert_eq!(found, [seven(20_261_127), seven(20_261_128)]);

    // A page for each client.
    let (mut from, mut count) = (START, 0);
    loop {
        let (mut next, mut is_first) = (None, true);
        let index = store.days(BOUNDS).await.unwrap();
        store
            .read_days(index, from, None, u64::MAX, |position, _| {
                if !std::mem::take(&mut is_first) {
                    next = Some(position);
                    return false;
                }
                count += 1;
                true
            })
            .await
            .unwrap();
        match next {
            Some(position) => from = position,
            None => break,
        }
    }
    assert_eq!(count, 400);
}

#[tokio::test]
async fn number_of_rows_is_bounded_and_old_days_are_forgotten() {
    let server = RedisServer::start(&[]);
    let store = Store::new(server.settings());
    let bounds = DayBounds { max_rows: 100, ..BOUNDS };
    let mut index = DayIndex::new();
    let mut batches = Batches::default();
    batches.add(rows(20_261_128, 0..100));
    assert_eq!(store.add_days(&mut batches, &mut index, bounds).await.unwrap(), 0);
    batches.add(rows(20_261_128, 50..130));
    assert_eq!(store.add_days(&mut batches, &mut index, bounds).await.unwrap(), 30);
    assert_eq!(read_all(&store, None).await.len(), 100);
    let short = DayBounds { keep: Duration::from_secs(86_400), ..BOUNDS };
    let later = Day::of_number(20_261_202).unwrap().start_us() + 1;
    let fields = store.scan(INDEX, 0).await.unwrap().0;
    assert!(store.kept_days(fields, short.first(later)).await.unwrap().is_empty());
    assert!(read_all(&store, None).await.is_empty());
}

/// The clock of Redis counts. Its index may have fields of a later version.
#[tokio::test]
async fn days_that_are_over_by_the_clock_of_redis_leave_the_index() {
    let server = RedisServer::start(&[]);
    let store = Store::new(server.settings());
    let mut connection = server.client().get_connection().unwrap();
    let days = ["19990101", "2099-W01", "20990101"];
    for day in days {
        redis::cmd("HSET").arg("t:usage-days").arg(day).arg(7).exec(&mut connection).unwrap();
    }
    let short = DayBounds { keep: Duration::from_secs(86_400), ..BOUNDS };
    let index = store.days(short).await.unwrap();
    assert_eq!(index, [(Day::of_number(20_990_101).unwrap(), 7)].into());
    let mut left: Vec<String> =
        redis::cmd("HKEYS").arg("t:usage-days").query(&mut connection).unwrap();
    left.sort();
    assert_eq!(left, days[1..]);
}
