//! The new process: takes over from the one that started it.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::stdio::dup2_stdin;
use tracing::{info, warn};

use super::{
    Answer, Greeting, Handover, History, VARIABLE, VERSION, receive, receive_json, receive_socket,
    send_json,
};
use crate::base::clock;
use crate::limit::Limit;
use crate::limit::share::Share;
use crate::net::inherit::{FileOwner, Inherited, NamedSocket};
use crate::net::unix_socket::LeftFile;
use crate::runtime::orders::BoardState;
use crate::store::memory::{Layout, MemoryStore};
use crate::upstream::known::Known;

/// Longest wait for the first message of the old process and the sockets.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// The process that started this one to be replaced by it.
#[derive(Debug)]
pub struct Predecessor {
    stream: UnixStream,
    layout: Layout,
    known: Known,
    shared_orders: BoardState,
    left: Vec<LeftFile>,
}

/// The last steps of an upgrade, from the first connection on.
pub struct Takeover {
    predecessor: Predecessor,
    handover: Handover,
    /// Whether the buckets of the predecessor fit the store.
    takes_levels: bool,
}

/// The history of the predecessor, not read yet.
#[must_use = "the process shows nothing of the time before"]
pub struct Received {
    message: Vec<u8>,
    history: Arc<dyn History>,
}

impl Predecessor {
    /// Returns the process that started this one for an upgrade, with its sockets; `None` after
    /// another start. Replaces the standard input.
    ///
    /// # Errors
    /// The process does not send its sockets, or sends other messages than those of this version.
    pub fn find() -> io::Result<Option<(Self, Inherited)>> {
        let Some(version) = std::env::var_os(VARIABLE) else { return Ok(None) };
        let stdin = io::stdin();
        // The variable may be left over in a shell.
        if stdin.is_terminal() {
            return Ok(None);
        }
        let stream = UnixStream::from(stdin.as_fd().try_clone_to_owned()?);
        dup2_stdin(OwnedFd::from(std::fs::File::open("/dev/null")?))?;
        stream.set_read_timeout(Some(MESSAGE_TIMEOUT))?;
        if version != VERSION {
            return Err(reject(&stream, &version));
        }
        let greeting = receive_json(&stream)?;
        let Greeting { sockets, borrowed, layout, addresses, orders, shared_orders } = greeting;
        let mut named = Vec::new();
        for name in sockets {
            let is_borrowed = borrowed.contains(&name);
            let owner = if is_borrowed { FileOwner::Systemd } else { FileOwner::Gateway };
            named.push(NamedSocket { socket: receive_socket(&stream)?, name, owner });
        }
        // The predecessor ends this process if it has not taken over in time. If this one served
        // after a timeout, the predecessor could end it then.
        stream.set_read_timeout(None)?;
        let left = Vec::new();
        let known = Known { addresses, orders };
        let predecessor = Self { stream, layout, known, shared_orders, left };
        Ok(Some((predecessor, Inherited::from_predecessor(named))))
    }

    /// Removes the files of the sockets that have not been taken, once this process serves.
    pub fn keep_files_until_takeover(&mut self, inherited: &Inherited) {
        self.left = inherited.left_files();
    }

    /// Reports why this process ends.
    pub fn fail(&self, why: &str) {
        // The predecessor notices the end of this process, too.
        let _ = send_json(&self.stream, &Answer::Failed(why.to_owned()));
    }

    /// Orders that apply to all gateways, as far as it knows them.
    pub fn shared_orders(&self) -> &BoardState {
        &self.shared_orders
    }

    /// What it knows of the servers of upstreams.
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// Creates the store that takes the levels of the predecessor's buckets.
    pub fn store(&self, max_buckets: usize, limits: &[Limit]) -> MemoryStore {
        MemoryStore::with_layout(max_buckets, limits, self.layout)
    }

    /// Continues when this process can accept connections. Its store has room for `max_buckets`.
    pub fn continue_with(self, handover: Handover, max_buckets: usize) -> Takeover {
        let takes_levels = MemoryStore::fits(max_buckets, self.layout);
        Takeover { predecessor: self, handover, takes_levels }
    }
}

impl Takeover {
    /// Takes the levels of the buckets, and lets the predecessor drain. Blocks. If the predecessor
    /// has ended, this process serves all the same. Clients need not wait for the history to be
    /// read.
    pub fn complete(&self) -> Received {
        let stream = &self.predecessor.stream;
        let levels = send_json(stream, &Answer::Prepared).and_then(|()| receive(stream));
        let imported = self.import(levels);
        let confirmed = send_json(stream, &Answer::Serving).and_then(|()| receive(stream));
        match &imported {
            Ok(buckets) => info!(buckets, "the buckets of the previous process are taken over"),
            Err(error) => warn!(%error, "the previous process did not hand over its buckets"),
        }
        let message = match confirmed {
            Ok(history) => {
                info!("the previous process drains");
                history
            }
            Err(error) => {
                warn!(%error, "the previous process has ended");
                Vec::new()
            }
        };
        if let Some(usage) = &self.handover.usage {
            usage.resume();
        }
        self.predecessor.left.iter().for_each(LeftFile::remove);
        Received { message, history: Arc::clone(&self.handover.history) }
    }

    /// Takes the levels. Without them, buckets start empty: no client gets a second burst.
    fn import(&self, levels: io::Result<Vec<u8>>) -> io::Result<usize> {
        let now = clock::now();
        let imported = match levels {
            Ok(levels) if self.takes_levels => {
                self.handover.store.import(&levels, now).map_err(io::Error::other)
            }
            Ok(_) => Err(io::Error::other("`memory.max_buckets` has changed")),
            Err(error) => Err(error),
        };
        if imported.is_err() {
            self.handover.store.start_empty(Share::one_of(1), Arc::default(), now);
        }
        imported
    }
}

impl Received {
    /// Continues the history. Blocks.
    pub fn read(&self) {
        match self.history.continue_from(&self.message) {
            0 => info!("the previous process has handed over no samples"),
            samples => info!(samples, "the samples of the previous process are taken over"),
        }
    }
}

/// Reports that the predecessor sends messages of another version, and returns the error.
fn reject(stream: &UnixStream, version: &OsStr) -> io::Error {
    let why = format!(
        "the running gateway sends messages of version {}, and the new program reads those of version {VERSION}: restart \
         the gateway instead",
        version.display()
    );
    // The predecessor notices the end of this process, too.
    let _ = send_json(stream, &Answer::Failed(why.clone()));
    io::Error::other(why)
}
