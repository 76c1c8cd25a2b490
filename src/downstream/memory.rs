//! The memory of the process, and the limit of its cgroup.
//!
//! What is compared with the limit is the resident memory of the process, not the usage of its
//! cgroup: closing connections does not free the memory of other processes in the cgroup, which
//! could otherwise keep the gateway from accepting connections. The tenth of the limit that is left
//! by default is for memory of the kernel: socket buffers, which count in the cgroup only.

use std::fs;
use std::path::{Path, PathBuf};

/// Limits from here on are no limits: cgroup v1 has no word for that.
const UNLIMITED: u64 = 1 << 60;

/// Resident memory of the process, in bytes; `None` if the system does not say. `root` is `/`,
/// except in tests.
pub(super) fn resident_bytes(root: &Path) -> Option<u64> {
    let status = fs::read_to_string(root.join("proc/self/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// The smallest memory limit of the process' cgroup and those around it, in bytes; `None`: there is
/// none. `root` is `/`, except in tests.
pub(super) fn cgroup_limit(root: &Path) -> Option<u64> {
    let own = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let cgroups = root.join("sys/fs/cgroup");
    // `hierarchy:controllers:path`. In version 2, the number is 0 and there are no controllers.
    let limits = own.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (hierarchy, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        if hierarchy == "0" && controllers.is_empty() {
            smallest(&cgroups, path, "memory.max")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            smallest(&cgroups.join("memory"), path, "memory.limit_in_bytes")
        } else {
            None
        }
    });
    limits.min()
}

/// The smallest number in the files `name` of the folders from `top` down to `path`. In a
/// container, `path` may be that of the host, and only `top` exists.
fn smallest(top: &Path, path: &str, name: &str) -> Option<u64> {
    let folders = Path::new(path.trim_start_matches('/')).ancestors();
    let files = folders.map(|folder| -> PathBuf { top.join(folder).join(name) });
    let limits = files.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok());
    limits.filter(|limit| *limit < UNLIMITED).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let file = root.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        root
    }

    /// Path and text of each file.
    type Files<'a> = &'a [(&'a str, &'a str)];

    #[test]
    fn cgroup_limit_is_the_smallest_of_its_ancestors() {
        let v2 = ("proc/self/cgroup", "0::/system.slice/gateway.service\n");
        let v1 =
            ("proc/self/cgroup", "9:pids:/x\n4:cpu,memory:/docker/0a1b\n1:name=systemd:/x\n0::/\n");
        let slice = "sys/fs/cgroup/system.slice/memory.max";
        let own = "sys/fs/cgroup/system.slice/gateway.service/memory.max";
        let table: [(Files, Option<u64>); 9] = [
            (&[], None),
            (&[v2], None),
            (&[v2, (own, "max\n")], None),
            (&[v2, (own, "104857600\n")], Some(104_857_600)),
            (&[v2, (own, "104857600\n"), (slice, "52428800\n")], Some(52_428_800)),
            (&[v2, (own, "max\n"), (slice, "52428800\n")], Some(52_428_800)),
            // In a container, the files are at the top.
            (&[v1, ("sys/fs/cgroup/memory/memory.limit_in_bytes", "33554432\n")], Some(33_554_432)),
            (&[v1, ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")], None),
            (
                &[v1, ("sys/fs/cgroup/memory/docker/0a1b/memory.limit_in_bytes", "33554433\n")],
                Some(33_554_433),
            ),
        ];
        for (files, expected) in table {
            assert_eq!(cgroup_limit(system(files).path()), expected, "{files:?}");
        }
    }

    #[test]
    fn resident_memory_is_that_of_the_process() {
        let root =
            system(&[("proc/self/status", "Name:\ttollgate\nVmRSS:\t    2048 kB\nThreads:\t1\n")]);
        assert_eq!(resident_bytes(root.path()), Some(2 * 1024 * 1024));
        assert_eq!(resident_bytes(system(&[]).path()), None);
        if cfg!(target_os = "linux") {
            assert!(resident_bytes(Path::new("/")).unwrap() > 1024 * 1024);
        }
    }
}
