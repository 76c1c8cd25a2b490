//! Delays by the machine. Unit tests of the library use this file, too.

use std::time::Duration;

/// Asserts that `took` is less than `limit`, or that it is longer only because processes have waited for a CPU or a
/// disk since [`pressure`] was `before`. Then the measurement is inconclusive: returns why.
#[track_caller]
pub(crate) fn judge(took: Duration, limit: Duration, before: Option<Duration>) -> Option<String> {
    if took < limit {
        return None;
    }
    let waited = pressure().zip(before).map(|(now, before)| now.saturating_sub(before));
    let text = format!("{took:?}, not less than {limit:?}; waits: {waited:?}");
    let is_excused = waited.is_none_or(|waited| took < limit + waited);
    assert!(is_excused, "{text}");
    Some(text)
}

/// Time in which some process of this machine has waited for a CPU or a disk; `None` if the kernel does not say.
pub(crate) fn pressure() -> Option<Duration> {
    let total = |resource: &str| -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/pressure/{resource}")).ok()?;
        text.lines().next()?.rsplit_once("total=")?.1.parse().ok()
    };
    Some(Duration::from_micros(total("cpu")? + total("io")?))
}
