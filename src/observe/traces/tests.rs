use std::collections::HashSet;

use super::*;
use crate::policy::Policy;

fn tracing(more: &str) -> Tracing {
    let file = format!("[tracing]\n{more}\n[upstreams.api]\nservers = ['demo']\n[routes.all]\n");
    let policy: Policy = crate::load::from_text("gateway.toml", &file).unwrap();
    policy.tracing.unwrap()
}

fn parent(is_sampled: bool) -> Parent {
    Parent { trace: TraceId::of(7).unwrap(), span: SpanId::of(8).unwrap(), is_sampled }
}

/// Who decides whether a request is recorded, and whose ids are taken.
#[test]
fn only_a_trusted_proxy_decides_for_others() {
    // (follow, sample, the parent and whether it says so, trusted?, taken?, recorded?)
    let table = [
        ("trusted", 0, None, false, false, false),
        ("trusted", 1, None, false, false, true),
        ("trusted", 0, Some(true), true, true, true),
        ("trusted", 1, Some(false), true, true, false),
        ("trusted", 0, Some(true), false, false, false),
        ("trusted", 1, Some(false), false, false, true),
        ("all", 0, Some(true), true, true, true),
        ("all", 1, Some(false), true, true, false),
        ("all", 0, Some(true), false, true, false),
        ("all", 1, Some(false), false, true, true),
        ("all", 1, None, true, false, true),
        ("none", 0, Some(true), true, false, false),
        ("none", 1, Some(false), true, false, true),
    ];
    for (follow, sample, said, is_trusted, is_taken, is_recorded) in table {
        let row = format!("{follow} {sample} {said:?} {is_trusted}");
        let tracing = tracing(&format!("follow = '{follow}'\nsample = {sample}"));
        let random = random().unwrap();
        let trace = Trace::of(&tracing, said.map(parent), is_trusted, random).unwrap();
        assert_eq!(trace.parent, is_taken.then(|| parent(true).span), "{row}");
        assert_eq!(trace.id == parent(true).trace, is_taken, "{row}");
        assert_eq!(trace.is_sampled, is_recorded, "{row}");
        let told = trace.for_upstream();
        assert_eq!((told.trace, told.is_sampled), (trace.id, is_recorded), "{row}");
        assert!(told.span != trace.span && Some(told.span) != trace.parent, "{row}");
    }
}

/// Whoever chooses a trace's id must not choose by it what is recorded.
#[test]
fn an_id_of_a_stranger_decides_nothing() {
    let tracing = tracing("follow = 'all'\nsample = 0.5");
    let all_ones = Parent { trace: TraceId::of(u128::MAX).unwrap(), ..parent(true) };
    let recorded =
        |draw| Trace::of(&tracing, Some(all_ones), false, [1, 2, 3, 4, draw]).unwrap().is_sampled;
    assert_eq!([recorded(0), recorded(u64::MAX)], [false, true]);
}

#[test]
fn of_new_traces_the_id_decides() {
    let tracing = tracing("sample = 0.5");
    let recorded = |low| Trace::of(&tracing, None, false, [1, low, 3, 4, 5]).unwrap().is_sampled;
    assert_eq!([recorded(0), recorded((1 << 55) - 1), recorded(1 << 55)], [false, false, true]);
    let some = (0..10_000).filter(|_| {
        let random = random().unwrap();
        Trace::of(&tracing, None, false, random).unwrap().is_sampled
    });
    assert!((4_500..5_500).contains(&some.count()));
}

#[test]
fn no_number_comes_twice() {
    let from_threads: Vec<_> = (0..4)
        .map(|_| std::thread::spawn(|| (0..1_000).map(|_| random::<5>().unwrap()).collect()))
        .collect();
    let mut seen = HashSet::new();
    for thread in from_threads {
        let numbers: Vec<[u64; 5]> = thread.join().unwrap();
        assert!(numbers.into_iter().flatten().all(|number| number != 0 && seen.insert(number)));
    }
    assert_eq!(seen.len(), 20_000);
}
