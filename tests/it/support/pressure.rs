//! Delays by the machine. Unit tests of the library use this file, too.

use std::time::Duration;

/// Time in which some process of this machine has waited for a CPU or a disk; `None` if the kernel does not say.
pub(crate) fn pressure() -> Option<Duration> {
    let total = |resource: &str| -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/pressure/{resource}")).ok()?;
        text.lines().next()?.rsplit_once("total=")?.1.parse().ok()
    };
    Some(Duration::from_micros(total("cpu")? + total("io")?))
}
