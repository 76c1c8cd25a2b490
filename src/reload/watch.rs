//! Detects changes of the file with inotify: on the file, and on every folder of its path in which a
//! name can be replaced. On other systems than Linux, and on file systems without notifications (some
//! network file systems), only the poll of `service` detects changes.

use std::path::{Path, PathBuf};

use super::READ_DEADLINE;
use crate::blocking::BlockingCalls;

/// Watches one path for changes.
pub(super) struct Watch {
    path: PathBuf,
    #[cfg(target_os = "linux")]
    kernel: Option<linux::Kernel>,
}

impl Watch {
    /// Creates a watch on `path`, which begins with the first [`renew`](Self::renew).
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub(super) fn new(path: &Path) -> Self {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self {
            path,
            #[cfg(target_os = "linux")]
            kernel: linux::Kernel::new()
                .inspect_err(|error| {
                    tracing::warn!("inotify is not available, polling the configuration: {error}");
                })
                .ok(),
        }
    }

    /// Resolves the path again, because a link may have changed. Call it before the file is read, so
    /// that later changes are detected. If the file system does not respond, the previous watches stay.
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

    /// Waits until the file may have changed. Cancel-safe.
    pub(super) async fn changed(&mut self) {
        #[cfg(target_os = "linux")]
        if let Some(kernel) = &mut self.kernel {
            match kernel.changed().await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!("inotify failed, polling the configuration: {error}");
                }
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

    /// Events of a folder. Not `MODIFY`: a file is read after the writer has closed it.
    const FOLDER_EVENTS: WatchMask = WatchMask::CLOSE_WRITE
        .union(WatchMask::CREATE)
        .union(WatchMask::MOVED_TO)
        .union(WatchMask::MOVED_FROM)
        .union(WatchMask::DELETE)
        .union(WatchMask::ATTRIB)
        .union(WatchMask::DELETE_SELF)
        .union(WatchMask::MOVE_SELF)
        .union(WatchMask::ONLYDIR);

    /// Events of the file itself. A file that is mounted into its folder is written under another
    /// name, which causes no event of this folder.
    const FILE_EVENTS: WatchMask =
        WatchMask::CLOSE_WRITE.union(WatchMask::ATTRIB).union(WatchMask::DELETE_SELF);

    /// Buffer for a few hundred events; the kernel queues more.
    const BUFFER_BYTES: usize = 4 * 1024;

    /// An inotify instance and its watches.
    pub(super) struct Kernel {
        events: EventStream<[u8; BUFFER_BYTES]>,
        watched: Watched,
    }

    /// The relevant names of each watched folder; `None` for a file, of which every event is relevant.
    type Watched = HashMap<WatchDescriptor, Option<HashSet<OsString>>>;

    /// Watches every folder of `path` and the file itself. Folders that cannot be watched now are
    /// retried at the next call. Blocks as long as the file system does.
    pub(super) fn follow(mut watches: Watches, path: &Path) -> Watched {
        let mut followed = Watched::new();
        for (folder, name) in links::entries(path) {
            if let Ok(descriptor) = watches.add(folder, FOLDER_EVENTS) {
                let names = followed.entry(descriptor).or_insert_with(|| Some(HashSet::new()));
                if let Some(names) = names {
                    names.insert(name);
                }
            }
        }
        if path.is_file()
            && let Ok(descriptor) = watches.add(path, FILE_EVENTS)
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

        /// Handle that [`follow`] adds watches to.
        pub(super) fn watches(&self) -> Watches {
            self.events.watches()
        }

        /// Replaces the current watches with `followed`.
        pub(super) fn adopt(&mut self, followed: Watched) {
            let mut watches = self.events.watches();
            for gone in self.watched.keys().filter(|old| !followed.contains_key(*old)) {
                // Fails if the folder was deleted: the kernel has already removed its watch.
                let _ = watches.remove(gone.clone());
            }
            self.watched = followed;
        }

        /// Waits for a relevant event.
        pub(super) async fn changed(&mut self) -> io::Result<()> {
            while let Some(event) = self.events.next().await {
                let event = event?;
                let is_relevant = match (self.watched.get(&event.wd), event.name) {
                    (Some(Some(names)), Some(name)) => names.contains(&name),
                    (Some(_), _) => true,
                    (None, _) => event.mask.contains(EventMask::Q_OVERFLOW),
                };
                if is_relevant {
                    return Ok(());
                }
            }
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }
}
