//! The new process: takes over from the one that started it.

use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::stdio::dup2_stdin;
use tracing::{info, warn};

use super::{
    Answer, Greeting, VARIABLE, VERSION, receive, receive_json, receive_socket, send_json,
};
use crate::clock;
use crate::limit::Limit;
use crate::limit::share::Share;
use crate::net::inherit::Inherited;
use crate::store::memory::{Layout, MemoryStore};

/// Longest wait for a message of the old process.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// The process that started this one to be replaced by it.
#[derive(Debug)]
pub struct Predecessor {
    stream: UnixStream,
    layout: Layout,
}

/// The last steps of an upgrade, from the first connection on.
pub struct Takeover {
    predecessor: Predecessor,
    store: Arc<MemoryStore>,
    /// Whether the buckets of the predecessor fit the store.
    takes_levels: bool,
}

impl Predecessor {
    /// Returns the process that started this one for an upgrade, with its sockets; `None` after another
    /// start. Replaces the standard input.
    ///
    /// # Errors
    /// The process does not send its sockets.
    pub fn find() -> io::Result<Option<(Self, Inherited)>> {
        if std::env::var_os(VARIABLE).is_none_or(|version| version != VERSION) {
            return Ok(None);
        }
        let stdin = io::stdin();
        // The variable may be left over in a shell.
        if stdin.is_terminal() {
            return Ok(None);
        }
        let stream = UnixStream::from(stdin.as_fd().try_clone_to_owned()?);
        dup2_stdin(OwnedFd::from(std::fs::File::open("/dev/null")?))?;
        stream.set_read_timeout(Some(MESSAGE_TIMEOUT))?;
        let Greeting { sockets, layout } = receive_json(&stream)?;
        let mut named = Vec::new();
        for name in sockets {
            named.push((name, receive_socket(&stream)?));
        }
        Ok(Some((Self { stream, layout }, Inherited::from_predecessor(named))))
    }

    /// Reports why this process ends.
    pub fn fail(&self, why: &str) {
        // The predecessor notices the end of this process, too.
        let _ = send_json(&self.stream, &Answer::Failed(why.to_owned()));
    }

    /// Creates the store that takes the levels of the predecessor's buckets.
    pub fn store(&self, max_buckets: usize, limits: &[Limit]) -> MemoryStore {
        MemoryStore::with_layout(max_buckets, limits, self.layout)
    }

    /// Continues when this process can accept connections.
    pub fn continue_with(self, store: Arc<MemoryStore>, max_buckets: usize) -> Takeover {
        let takes_levels = MemoryStore::fits(max_buckets, self.layout);
        Takeover { predecessor: self, store, takes_levels }
    }
}

impl Takeover {
    /// Takes the levels of the buckets, and lets the predecessor drain. Blocks. If the predecessor has
    /// ended, this process serves all the same.
    pub fn complete(&self) {
        match self.exchange() {
            Ok(imported) => info!(buckets = imported, "the previous process drains"),
            Err(error) => warn!(%error, "the previous process did not hand over its buckets"),
        }
    }

    fn exchange(&self) -> io::Result<usize> {
        let stream = &self.predecessor.stream;
        send_json(stream, &Answer::Prepared)?;
        let levels = receive(stream);
        let now = clock::now();
        let imported = match levels {
            Ok(levels) if self.takes_levels => {
                self.store.import(&levels, now).map_err(io::Error::other)
            }
            Ok(_) => Err(io::Error::other("`memory.max_buckets` has changed")),
            Err(error) => Err(error),
        };
        if imported.is_err() {
            // No client gets a second burst.
            self.store.start_empty(Share::one_of(1), Arc::default(), now);
        }
        send_json(stream, &Answer::Serving)?;
        receive(stream)?;
        imported
    }
}
