//! Detects changes of files with inotify: on each file, and on every folder of its path in which a
//! name can be replaced. On other systems than Linux, and on file systems without notifications
//! (some network file systems), only the poll of `service` detects changes.

use std::path::PathBuf;

use super::READ_DEADLINE;
use crate::base::blocking::BlockingCalls;

/// Watches paths for changes.
pub(super) struct Watch {
    #[cfg(target_os = "linux")]
    kernel: Option<linux::Kernel>,
}

impl Watch {
    /// Creates a watch without paths: [`renew`](Self::renew) sets them.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub(super) fn new() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            kernel: linux::Kernel::new()
                .inspect_err(|error| {
                    tracing::warn!("inotify is not available, polling the configuration: {error}");
                })
                .ok(),
        }
    }

    /// Watches `paths` from now on, and resolves them again, because a link may have changed. Call
    /// it before the files are read, so that later changes are detected. If the file system does
    /// not respond, the previous watches stay.
    pub(super) async fn renew(&mut self, paths: Vec<PathBuf>, reads: &BlockingCalls) {
        #[cfg(target_os = "linux")]
        if let Some(kernel) = &mut self.kernel {
            let watches = kernel.watches();
            if let Ok(followed) =
                reads.run(READ_DEADLINE, move || linux::follow(watches, &paths)).await
            {
                kernel.adopt(followed);
            }
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (paths, reads, READ_DEADLINE);
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
    use std::path::{Path, PathBuf};

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

    /// The relevant names of each watched folder; `None` for a file, of which every event is
    /// relevant.
    type Watched = HashMap<WatchDescriptor, Option<HashSet<OsString>>>;

    /// Watches every folder of each path and the files themselves. Folders that cannot be watched
    /// now are retried at the next call. Blocks as long as the file system does.
    pub(super) fn follow(mut watches: Watches, paths: &[PathBuf]) -> Watched {
        let mut followed = Watched::new();
        for path in paths {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            add(&mut watches, &path, &mut followed);
        }
        followed
    }

    fn add(watches: &mut Watches, path: &Path, followed: &mut Watched) {
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
