//! An upgrade: a new process of the program on disk takes over the listening sockets, then this one
//! drains.
//!
//! The old process starts the new one with a Unix socket as its standard input. On it:
//!
//! 1. The old process sends a [`Greeting`], with the addresses of upstream servers, and the
//!    listening sockets.
//! 2. The new one reads the configuration and prepares everything, then answers
//!    [`Answer::Prepared`].
//! 3. The old one accepts no more connections, and sends the levels of the buckets in memory.
//! 4. The new one takes them, and answers [`Answer::Serving`].
//! 5. The old one sends its [`History`], and drains. The new one accepts connections. Programs that
//!    know no history send an empty message, and read none of this one.
//!
//! If the new one fails before step 5, it is killed, and the old one accepts connections again. If
//! the old one ends after step 1, the new one serves.
//!
//! Reading order: this file (messages), `give` (the old process), `take` (the new one).

mod give;
mod take;

use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::keys::store::KeyStore;
use crate::runtime::orders::{BoardState, OrderBoard};
use crate::store::memory::{Layout, MemoryStore};
use crate::upstream::known::KnownAddresses;
use crate::upstream::orders::KnownOrders;
use crate::usage::keeper::Keeper;

pub use give::{Sockets, UpgradeError, Upgrader};
pub use take::{Predecessor, Received, Takeover};

/// Environment variable that is set in the new process.
const VARIABLE: &str = "TOLLGATE_HANDOVER";

/// Its value: the version of the messages.
const VERSION: &str = "1";

/// Maximum length of a message in bytes: levels of 40 million buckets.
const MAX_MESSAGE_BYTES: usize = 1 << 30;

/// What the new process gets first. The sockets follow, in this order.
#[derive(Debug, Serialize, Deserialize)]
struct Greeting {
    /// The address of each socket, as in the configuration.
    sockets: Vec<String>,
    /// Those of them whose files belong to systemd.
    #[serde(default)]
    borrowed: Vec<String>,
    layout: Layout,
    /// Addresses of servers. The new process uses them until it has looked up their names.
    #[serde(default)]
    addresses: KnownAddresses,
    /// Orders of operators for endpoints of upstreams.
    #[serde(default)]
    orders: KnownOrders,
    /// Those of them that apply to all gateways.
    #[serde(default)]
    shared_orders: BoardState,
}

/// What the process shows of the time before, which is no part of its state: the new process serves
/// without it, too.
pub trait History: Send + Sync {
    /// The message to a new process, perhaps of another version.
    fn message(&self) -> Vec<u8>;

    /// Puts the history of the previous process before the own one. Returns the number of its
    /// samples; 0 if the message is none of this form.
    fn continue_from(&self, message: &[u8]) -> usize;
}

/// What a process has from its predecessor, and hands over to its successor, beside sockets.
#[derive(Clone)]
pub struct Handover {
    /// The buckets in memory.
    pub store: Arc<MemoryStore>,
    /// Writes the file of usage, if there is one: one process at a time.
    pub usage: Option<Arc<Keeper>>,
    /// The key store, whose file is that of one process at a time.
    pub keys: Option<Arc<KeyStore>>,
    /// Orders that apply to all gateways.
    pub orders: OrderBoard,
    pub history: Arc<dyn History>,
}

/// What the new process answers.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// It can accept connections once it has the levels of the buckets.
    Prepared,
    /// It accepts connections once the old process has confirmed that.
    Serving,
    /// It ends. Why.
    Failed(String),
}

fn send(mut stream: &UnixStream, message: &[u8]) -> io::Result<()> {
    let length = u32::try_from(message.len()).map_err(io::Error::other)?;
    stream.write_all(&length.to_le_bytes())?;
    stream.write_all(message)
}

fn receive(mut stream: &UnixStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_MESSAGE_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = vec![0; length];
    stream.read_exact(&mut message)?;
    Ok(message)
}

fn send_json(stream: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    send(stream, &serde_json::to_vec(message)?)
}

fn receive_json<T: DeserializeOwned>(stream: &UnixStream) -> io::Result<T> {
    Ok(serde_json::from_slice(&receive(stream)?)?)
}

/// Sends a descriptor with one byte.
fn send_socket(stream: &UnixStream, socket: &impl AsFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [socket.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(stream, &[IoSlice::new(b"s")], &mut control, SendFlags::empty())?;
    Ok(())
}

/// Receives a descriptor with one byte.
fn receive_socket(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut received = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    received.next().ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}
