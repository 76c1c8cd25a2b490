use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;
use crate::base::cases::with_cases;
use crate::base::time::UtcTime;
use crate::keys::changes::Advance;
use crate::keys::record::tests::{record, secret};
use crate::store::redis::fixture::RedisServer;

/// Both places, and what they need.
struct Places {
    both: [Kept; 2],
    server: RedisServer,
    folder: tempfile::TempDir,
}

fn places() -> Places {
    let server = RedisServer::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let file = Kept::File(Arc::new(KeyFile::new(folder.path().join("keys.redb"))));
    let both = [Kept::Redis(Box::new(SharedRecords::new(&server.settings()))), file];
    Places { both, server, folder }
}

fn created(record: &Record) -> Replacement {
    Replacement { id: record.id.clone(), before: None, after: Some(record.clone()) }
}

async fn stored(kept: &Kept, id: &str) -> Option<Stored> {
    kept.get(&[id]).await.unwrap().pop().unwrap()
}

async fn find(kept: &Kept, digests: &[Digest]) -> Result<Vec<Option<Record>>, KeptError> {
    Ok(kept.look_up(digests, Position::Empty).await?.records)
}

async fn list(kept: &Kept, tenant: Option<&str>) -> Vec<Record> {
    let stored = kept.list(tenant, "", 9).await.unwrap();
    stored.into_iter().map(|stored| stored.record.unwrap()).collect()
}

async fn replace(kept: &Kept, one: Replacement) -> Replaced {
    kept.replace(&[one]).await.unwrap().pop().unwrap()
}

#[tokio::test]
async fn record_is_found_by_each_of_its_keys_and_by_no_other() {
    let Places { both, .. } = &places();
    for kept in both {
        let two = Record { secrets: vec![secret(1), secret(2)], ..record("two", 0) };
        let replacements = [created(&two), created(&record("one", 3))];
        assert_eq!(kept.replace(&replacements).await.unwrap(), [Replaced::Done; 2]);
        let digests = [1, 9, 2, 3].map(|byte| [byte; 32]);
        let found = find(kept, &digests).await.unwrap();
        let ids: Vec<Option<&str>> =
            found.iter().map(|it| it.as_ref().map(|it| it.id.as_str())).collect();
        assert_eq!(ids, [Some("two"), None, Some("two"), Some("one")], "{}", kept.place());
        assert_eq!(found[0].as_ref(), Some(&two));
        assert_eq!(kept.count().await.unwrap(), 2);
    }
}

#[tokio::test]
async fn change_of_a_record_that_was_changed_meanwhile_does_nothing() {
    let Places { both, .. } = &places();
    for kept in both {
        let first = record("a", 1);
        assert_eq!(replace(kept, created(&first)).await, Replaced::Done);
        assert_eq!(replace(kept, created(&record("a", 2))).await, Replaced::Changed);
        assert_eq!(replace(kept, created(&record("b", 1))).await, Replaced::KeyOfAnother);
        let before = stored(kept, "a").await;
        let second = Record { version: 2, secrets: vec![secret(2)], ..first };
        let change = Replacement { id: "a".into(), before: before.clone(), after: Some(second) };
        assert_eq!(replace(kept, change.clone()).await, Replaced::Done);
        assert_eq!(replace(kept, change).await, Replaced::Changed);
        let removal = Replacement { id: "a".into(), before, after: None };
        assert_eq!(replace(kept, removal).await, Replaced::Changed);
        // The first key is free again.
        assert_eq!(replace(kept, created(&record("b", 1))).await, Replaced::Done);
        let before = stored(kept, "a").await;
        let removal = Replacement { id: "a".into(), before, after: None };
        assert_eq!(replace(kept, removal).await, Replaced::Done);
        assert_eq!(find(kept, &[[2; 32], [1; 32]]).await.unwrap(), [None, Some(record("b", 1))]);
    }
}

#[tokio::test]
async fn list_has_each_client_once_in_order() {
    let Places { both, .. } = &places();
    for kept in both {
        let ids: Vec<String> = (0..200_u8).map(|at| format!("c{at:03}")).collect();
        let records = ids.iter().zip(0..).map(|(id, byte)| record(id, byte));
        let all: Vec<Replacement> = records.map(|record| created(&record)).collect();
        assert_eq!(kept.replace(&all).await.unwrap(), vec![Replaced::Done; 200]);
        let (mut listed, mut after) = (Vec::new(), String::new());
        loop {
            let page = kept.list(None, &after, 70).await.unwrap();
            assert!(page.len() <= 70);
            let Some(last) = page.last() else { break };
            after.clone_from(&last.id);
            listed.extend(page.into_iter().map(|stored| stored.id));
        }
        assert_eq!(listed, ids, "{}", kept.place());
    }
}

#[tokio::test]
async fn changes_have_the_keys_before_and_after() {
    let Places { both, .. } = &places();
    for kept in both {
        let mut position = Position::Unknown;
        let read = async |position: &mut Position| {
            let (changes, _) = kept.changes(*position).await.unwrap();
            position.advance(changes)
        };
        assert_eq!(read(&mut position).await, Advance::Lost);
        assert_eq!(position, Position::Empty);
        assert_eq!(read(&mut position).await, Advance::Changed(vec![]));
        replace(kept, created(&record("a", 1))).await;
        assert_eq!(read(&mut position).await, Advance::Changed(vec![[1; 32]]));
        let before = stored(kept, "a").await;
        let after = Some(Record { secrets: vec![secret(2)], ..record("a", 0) });
        replace(kept, Replacement { id: "a".into(), before, after }).await;
        assert_eq!(read(&mut position).await, Advance::Changed(vec![[1; 32], [2; 32]]));
        assert_eq!(read(&mut position).await, Advance::Changed(vec![]));
        let mut late = Position::Unknown;
        assert_eq!(read(&mut late).await, Advance::Lost);
        assert_eq!(late, position, "{}", kept.place());
    }
}

#[tokio::test]
async fn lost_data_and_trimmed_changes_are_noticed() {
    let Places { both, server, .. } = &places();
    let [kept, _] = both;
    let mut connection = server.client().get_connection().unwrap();
    let mut run = |command: &[&str]| {
        let mut with_name = redis::cmd(command[0]);
        with_name.arg(&command[1..]).exec(&mut connection).unwrap();
    };
    let mut position = Position::Unknown;
    let read = async |position: &mut Position| {
        let (changes, _) = kept.changes(*position).await.unwrap();
        position.advance(changes)
    };
    replace(kept, created(&record("a", 1))).await;
    read(&mut position).await;
    // As many changes as before, but others.
    run(&["FLUSHALL"]);
    replace(kept, created(&record("b", 2))).await;
    assert_eq!(read(&mut position).await, Advance::Lost);
    assert_eq!(read(&mut position).await, Advance::Changed(vec![]));
    run(&["FLUSHALL"]);
    assert_eq!(read(&mut position).await, Advance::Lost);
    replace(kept, created(&record("c", 3))).await;
    assert_eq!(read(&mut position).await, Advance::Changed(vec![[3; 32]]));
    for byte in 4..7 {
        replace(kept, created(&record(&format!("d{byte}"), byte))).await;
    }
    run(&["XTRIM", "t:{keys}:changes", "MAXLEN", "2"]);
    assert_eq!(read(&mut position).await, Advance::Lost);
    assert_eq!(read(&mut position).await, Advance::Changed(vec![]));
}

#[tokio::test]
async fn record_that_cannot_be_read_is_listed_and_can_be_removed() {
    let Places { both, server, .. } = &places();
    let [kept, _] = both;
    let north = Record { tenant: Some("north".to_owned()), ..record("b", 2) };
    for one in [record("a", 1), north, record("c", 3)] {
        replace(kept, created(&one)).await;
    }
    let mut connection = server.client().get_connection().unwrap();
    let digest = format!("{:?}", secret(2).sha256);
    let text = format!(r#"{{"id":"b","tenant":"north","secrets":[{{"sha256":"{digest}"}}]}}"#);
    for broken in [text.as_str(), "no JSON"] {
        let command = ["t:{keys}:records", "b", broken];
        redis::cmd("HSET").arg(&command).exec(&mut connection).unwrap();
        let listed = kept.list(None, "", 9).await.unwrap();
        let listed: Vec<_> = listed.iter().map(|it| (it.id.as_str(), it.record.is_ok())).collect();
        assert_eq!(listed, [("a", true), ("b", false), ("c", true)]);
        assert_eq!(find(kept, &[[2; 32]]).await.unwrap(), [None]);
        let before = stored(kept, "b").await;
        assert!(before.as_ref().unwrap().record.is_err());
        let removal = Replacement { id: "b".into(), before, after: None };
        assert_eq!(replace(kept, removal).await, Replaced::Done);
        assert!(stored(kept, "b").await.is_none());
        // Its key is free, whether its digest could be read or not.
        assert_eq!(replace(kept, created(&record("b", 2))).await, Replaced::Done);
        assert_eq!(find(kept, &[[2; 32]]).await.unwrap(), [Some(record("b", 2))]);
    }
}

#[tokio::test]
async fn replica_is_not_read() {
    let Places { both, server, .. } = &places();
    let [kept, _] = both;
    replace(kept, created(&record("a", 1))).await;
    let mut connection = server.client().get_connection().unwrap();
    // Port 9 discards: the server stays a replica with the data that it had.
    redis::cmd("REPLICAOF").arg("127.0.0.1").arg(9).exec(&mut connection).unwrap();
    let error = find(kept, &[[1; 32]]).await.unwrap_err().to_string();
    assert!(error.contains("READONLY") || error.contains("read only"), "{error}");
    assert!(kept.changes(Position::Empty).await.is_err());
    redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec(&mut connection).unwrap();
    assert_eq!(find(kept, &[[1; 32]]).await.unwrap(), [Some(record("a", 1))]);
}

#[tokio::test]
async fn file_is_that_of_one_process_at_a_time() {
    let Places { both, folder, .. } = &places();
    let [_, kept] = both;
    replace(kept, created(&record("a", 1))).await;
    let other = Kept::File(Arc::new(KeyFile::new(folder.path().join("keys.redb"))));
    let error = find(&other, &[[1; 32]]).await.unwrap_err().to_string();
    assert!(error.contains("another process uses it"), "{error}");
    assert!(kept.release(Duration::from_secs(60)));
    assert!(find(kept, &[[1; 32]]).await.is_err());
    assert_eq!(find(&other, &[[1; 32]]).await.unwrap(), [Some(record("a", 1))]);
    assert!(other.release(Duration::from_secs(60)));
    kept.resume();
    assert_eq!(find(kept, &[[1; 32]]).await.unwrap(), [Some(record("a", 1))]);
}

/// A change that an operator makes to one of few clients, with some of few keys.
fn any_change() -> impl Strategy<Value = (u8, Option<Vec<u8>>, bool)> {
    let keys = prop::collection::btree_set(0_u8..6, 0..3);
    let keys = keys.prop_map(|keys| keys.into_iter().collect::<Vec<u8>>());
    (0_u8..3, prop::option::of(keys), prop::bool::weighted(0.8))
}

#[test]
fn both_places_agree_after_any_changes() {
    let Places { both, server, .. } = &places();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut runner = TestRunner::new(with_cases(64));
    let changes = prop::collection::vec(any_change(), 1..20);
    let run = runner.run(&changes, |changes| {
        runtime.block_on(async {
            let mut connection = server.client().get_connection().unwrap();
            redis::cmd("FLUSHALL").exec(&mut connection).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let file = Kept::File(Arc::new(KeyFile::new(folder.path().join("keys.redb"))));
            let places = [&both[0], &file];
            for (version, (client, keys, is_current)) in (1..).zip(changes) {
                let id = format!("c{client}");
                let after = keys.map(|keys| Record {
                    version,
                    tenant: (version % 3 > 0).then(|| format!("t{}", version % 2)),
                    updated: UtcTime(version),
                    secrets: keys.into_iter().map(secret).collect(),
                    ..record(&id, 0)
                });
                let mut results = Vec::new();
                for kept in places {
                    let before = stored(kept, &id).await.filter(|_| is_current);
                    let one = Replacement { id: id.clone(), before, after: after.clone() };
                    results.push(replace(kept, one).await);
                }
                prop_assert_eq!(results[0], results[1]);
            }
            let digests: Vec<Digest> = (0..6).map(|byte| [byte; 32]).collect();
            prop_assert_eq!(
                find(places[0], &digests).await.unwrap(),
                find(places[1], &digests).await.unwrap()
            );
            let lists = (list(places[0], None).await, list(places[1], None).await);
            prop_assert_eq!(&lists.0, &lists.1);
            // So are the lists of tenants.
            for tenant in ["t0", "t1"] {
                let all = lists.0.iter().filter(|record| record.tenant.as_deref() == Some(tenant));
                let all: Vec<Record> = all.cloned().collect();
                for place in places {
                    prop_assert_eq!(&list(place, Some(tenant)).await, &all);
                }
            }
            // The index is that of the records.
            for (digest, found) in digests.iter().zip(find(places[1], &digests).await.unwrap()) {
                let owner = lists.0.iter().find(|record| record.secret(digest).is_some());
                prop_assert_eq!(owner, found.as_ref());
            }
            Ok(())
        })
    });
    run.unwrap();
}
