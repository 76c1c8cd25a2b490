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

#[test]
fn only_the_sampling_decision_of_a_trusted_proxy_is_followed() {
    // (follow, sample, decision of the caller, trusted?, trace continued?, recorded?)
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
    for (follow, sample, decision, is_trusted, is_continued, is_recorded) in table {
        let row = format!("{follow} {sample} {decision:?} {is_trusted}");
        let tracing = tracing(&format!("follow = '{follow}'\nsample = {sample}"));
        let random = random().unwrap();
        let trace = Trace::of(&tracing, decision.map(parent), is_trusted, random).unwrap();
        assert_eq!(trace.parent, is_continued.then(|| parent(true).span), "{row}");
        assert_eq!(trace.id == parent(true).trace, is_continued, "{row}");
        assert_eq!(trace.is_sampled, is_recorded, "{row}");
        let sent = trace.for_upstream();
        assert_eq!((sent.trace, sent.is_sampled), (trace.id, is_recorded), "{row}");
        assert!(sent.span != trace.span && Some(sent.span) != trace.parent, "{row}");
    }
}

#[test]
fn trace_id_of_an_untrusted_caller_does_not_decide_sampling() {
    let tracing = tracing("follow = 'all'\nsample = 0.5");
    let all_ones = Parent { trace: TraceId::of(u128::MAX).unwrap(), ..parent(true) };
    let recorded =
        |draw| Trace::of(&tracing, Some(all_ones), false, [1, 2, 3, 4, draw]).unwrap().is_sampled;
    assert_eq!([recorded(0), recorded(u64::MAX)], [false, true]);
}

#[test]
fn trace_id_decides_sampling_of_a_new_trace() {
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
fn random_numbers_are_unique_across_threads() {
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
