//! Resources used by this process.

use stats_alloc::Stats;

/// Allocations so far, including reallocations.
pub(crate) fn allocations() -> usize {
    let Stats { allocations, reallocations, .. } = crate::ALLOCATOR.stats();
    allocations + reallocations
}

/// CPU time of all threads so far, microseconds.
pub(crate) fn cpu_us() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let nanoseconds = tasks.map(|task| {
        // Time on a CPU, time waiting for a CPU, number of time slices.
        let line = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
        line.split(' ').next().unwrap().parse::<f64>().unwrap()
    });
    nanoseconds.sum::<f64>() / 1e3
}
