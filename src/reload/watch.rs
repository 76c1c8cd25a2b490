//! What tells of a changed file: the kernel, for the file and for every folder on the way to it in
//! which a name may be replaced. Elsewhere than on Linux, and where the kernel does not know (some
//! network file systems), nothing does, and the poll of `service` has to find out.

use std::path::{Path, PathBuf};

use super::READ_DEADLINE;
use crate::blocking::BlockingCalls;

/// Watches one path.
pub(super) struct Watch {
    path: PathBuf,
    #[cfg(target_os = "linux")]
    kernel: Option<linux::Kernel>,
}

impl Watch {
    /// Watches `path` from the first [`renew`](Self::renew) on.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub(super) fn new(path: &Path) -> Self {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self {
            path,
            #[cfg(target_os = "linux")]
            kernel: linux::Kernel::new()
                .inspect_err(|error| tracing::warn!("the file is polled only: no inotify: {error}"))
                .ok(),
        }
    }

    /// Follows the path anew: a link may lead elsewhere now. Call it before the file is read, so
    /// that what changes later is noticed. Where the file system does not answer, what was watched
    /// before stays watched.
    pub(super) async fn renew(&mut self, reads: &BlockingCalls) {
        #[cfg(target_os = "linux")]
        if let Some(kernel) = &mut self.kernel {
            let (watches, path) = (kernel.watches(), self.path.clone());
            if let Ok(followed) =
                reads.run(READ_DEADLINE, move || linux::follow(watches, &path)).await
            {
                kernel.adopt(followed);
            }
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (reads, READ_DEADLINE);
    }

    /// Waits until the file may have changed. May be dropped and called again.
    pub(super) async fn changed(&mut self) {
        #[cfg(target_os = "linux")]
        if let Some(kernel) = &mut self.kernel {
            match kernel.changed().await {
                Ok(()) => return,
                Err(error) => tracing::warn!("the file is polled only from now on: {error}"),
            }
            self.kernel = None;
        }
        std::future::pending::<()>().await;
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::{HashMap, HashSet};
    use std::ffi::OsString;
    use std::io;
    use std::path::Path;

    use futures_util::StreamExt as _;
    use inotify::{EventMask, EventStream, Inotify, WatchDescriptor, WatchMask, Watches};

    use crate::reload::links;

    /// What happens to names in a folder. Not every write: who writes a file closes it, too, and a
    /// file that is being written is not read.
    const IN_FOLDERS: WatchMask = WatchMask::CLOSE_WRITE
        .union(WatchMask::CREATE)
        .union(WatchMask::MOVED_TO)
        .union(WatchMask::MOVED_FROM)
        .union(WatchMask::DELETE)
        .union(WatchMask::ATTRIB)
        .union(WatchMask::DELETE_SELF)
        .union(WatchMask::MOVE_SELF)
        .union(WatchMask::ONLYDIR);

    /// What happens to the file itself: one that is mounted into its folder is written under
    /// another name, of which this folder hears nothing.
    const ON_THE_FILE: WatchMask =
        WatchMask::CLOSE_WRITE.union(WatchMask::ATTRIB).union(WatchMask::DELETE_SELF);

    /// Room for a few hundred events; the kernel keeps more.
    const BUFFER_BYTES: usize = 4 * 1024;

    /// The kernel's word on folders and files.
    pub(super) struct Kernel {
        events: EventStream<[u8; BUFFER_BYTES]>,
        watched: Watched,
    }

    /// The names that matter in each folder; none: everything that is said.
    type Watched = HashMap<WatchDescriptor, Option<HashSet<OsString>>>;

    /// Watches every folder on the way to `path`, and the file at its end. What cannot be watched
    /// now is tried again at the next call. May block for as long as the file system does.
    pub(super) fn follow(mut watches: Watches, path: &Path) -> Watched {
        let mut followed = Watched::new();
        for (folder, name) in links::on_the_way(path) {
            if let Ok(descriptor) = watches.add(folder, IN_FOLDERS) {
                let names = followed.entry(descriptor).or_insert_with(|| Some(HashSet::new()));
                if let Some(names) = names {
                    names.insert(name);
                }
            }
        }
        if path.is_file()
            && let Ok(descriptor) = watches.add(path, ON_THE_FILE)
        {
            followed.insert(descriptor, None);
        }
        followed
    }

    impl Kernel {
        pub(super) fn new() -> io::Result<Self> {
            let events = Inotify::init()?.into_event_stream([0; BUFFER_BYTES])?;
            Ok(Self { events, watched: HashMap::new() })
        }

        /// What [`follow`] adds watches to.
        pub(super) fn watches(&self) -> Watches {
            self.events.watches()
        }

        /// Goes by what was followed, and by nothing else any more.
        pub(super) fn adopt(&mut self, followed: Watched) {
            let mut watches = self.events.watches();
            for gone in self.watched.keys().filter(|old| !followed.contains_key(*old)) {
                // The kernel has dropped it already where the folder is gone.
                let _ = watches.remove(gone.clone());
            }
            self.watched = followed;
        }

        /// Waits for an event that matters.
        pub(super) async fn changed(&mut self) -> io::Result<()> {
            while let Some(event) = self.events.next().await {
                let event = event?;
                let matters = match (self.watched.get(&event.wd), event.name) {
                    (Some(Some(names)), Some(name)) => names.contains(&name),
                    (Some(_), _) => true,
                    (None, _) => event.mask.contains(EventMask::Q_OVERFLOW),
                };
                if matters {
                    return Ok(());
                }
            }
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }
}
