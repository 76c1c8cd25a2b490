//! A memory cgroup of the kernel, for one process of a test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A cgroup below that of the tests, with a limit that the kernel enforces. It is removed when
/// dropped; its processes must have ended.
pub(crate) struct MemoryCgroup {
    folder: PathBuf,
}

impl MemoryCgroup {
    /// Creates a cgroup with this limit; `None`: this user or this system does not allow it.
    pub(crate) fn create(max_bytes: u64) -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let places = own.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let path = path.trim_start_matches('/');
            let top = Path::new("/sys/fs/cgroup");
            if controllers.split(',').any(|controller| controller == "memory") {
                Some((top.join("memory").join(path), "memory.limit_in_bytes"))
            } else {
                (number == "0").then(|| (top.join(path), "memory.max"))
            }
        });
        places.into_iter().find_map(|(parent, file)| {
            let cgroup = Self { folder: parent.join(format!("tollgate-{}", std::process::id())) };
            fs::create_dir(&cgroup.folder).ok()?;
            // Without the controller, there is no such file.
            let limit = fs::OpenOptions::new().write(true).open(cgroup.folder.join(file));
            std::io::Write::write_all(&mut limit.ok()?, max_bytes.to_string().as_bytes()).ok()?;
            Some(cgroup)
        })
    }

    /// The command that runs `command` in the cgroup.
    pub(crate) fn run(&self, command: &Command) -> Command {
        let mut inside = Command::new("sh");
        inside.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]);
        inside.arg(self.folder.join("cgroup.procs"));
        inside.arg(command.get_program()).args(command.get_args());
        inside
    }

    /// Processes of the cgroup that the kernel has killed because of the limit.
    pub(crate) fn killed(&self) -> u64 {
        let read = |file| fs::read_to_string(self.folder.join(file)).ok();
        let events = read("memory.events").or_else(|| read("memory.oom_control")).unwrap();
        let line = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.expect(&events).trim().parse().unwrap()
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        fs::remove_dir(&self.folder).ok();
    }
}
