//! Tests of the table, against a map.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

fn entry(id: u128, level: i64) -> Entry {
    Entry::new(Name::of(BucketId(id)), 3, Bucket { level, at: 9 })
}

fn level(table: &Table, id: u128) -> Option<i64> {
    match table.find(Name::of(BucketId(id))) {
        Place::At(slot) => table.slot(slot).map(|entry| entry.bucket().level),
        Place::Absent => None,
    }
}

#[test]
fn slot_is_32_bytes() {
    assert_eq!(size_of::<Entry>(), 32);
}

#[test]
fn entry_returns_its_bucket() {
    for limit_index in [0, 1, 77, u32::MAX] {
        let bucket = Bucket { level: 1 << 53, at: u64::MAX };
        let entry = Entry::new(Name::of(BucketId(5)), limit_index, bucket);
        assert_eq!((entry.limit_index, entry.bucket()), (limit_index, bucket));
    }
}

#[test]
fn table_without_slots_is_empty() {
    let mut table = Table::new(1);
    table.insert(entry(1, 1));
    assert_eq!((level(&table, 1), table.remove(0), table.len()), (None, None, 0));
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u128, i64),
    RemoveSlot(usize),
    Rebuild(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Few home slots, and IDs that differ in each third of the name: long runs, also across the
    // end.
    let id = (0..4_u128, 0..3_u128, 0..3_u128)
        .prop_map(|(home, middle, high)| home << 62 | middle | high << 64);
    let step = prop_oneof![
        4 => (id, any::<i64>()).prop_map(|(id, level)| Step::Insert(id, level)),
        2 => (0..20_usize).prop_map(Step::RemoveSlot),
        1 => (0..20_usize).prop_map(Step::Rebuild),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    #[test]
    fn table_equals_a_map_after_any_steps(steps in steps(), seed: u64) {
        let mut table = Table::new(seed);
        table.rebuild(20, |_| true);
        let mut map = HashMap::new();
        for step in steps {
            match step {
                Step::Insert(id, level) => match table.find(Name::of(BucketId(id))) {
                    Place::At(slot) => {
                        table.replace(slot, entry(id, level));
                        map.insert(id, level);
                    }
                    Place::Absent if table.len() + 1 < table.slots() => {
                        table.insert(entry(id, level));
                        map.insert(id, level);
                    }
                    Place::Absent => {}
                },
                Step::RemoveSlot(slot) => {
                    if let Some(removed) = table.remove(slot) {
                        map.retain(|id, _| Name::of(BucketId(*id)) != removed.name);
                    }
                }
                Step::Rebuild(more) => table.rebuild(table.len() + 2 + more, |_| true),
            }
            prop_assert_eq!(table.len(), map.len());
            prop_assert_eq!(table.entries().count(), map.len());
            for (id, kept) in &map {
                prop_assert_eq!(level(&table, *id), Some(*kept));
            }
        }
    }
}
