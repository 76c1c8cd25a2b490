//! A name server whose answers tests choose, faults included.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use parking_lot::Mutex;

/// Time to live of all records, in seconds.
const TTL_S: u32 = 1;

/// A running name server. At first, there is no name.
pub(crate) struct Names {
    address: SocketAddr,
    entries: Arc<Mutex<HashMap<String, Entry>>>,
    stopped: Arc<AtomicBool>,
    server: Option<JoinHandle<()>>,
}

/// What a name has.
#[derive(Clone)]
enum Entry {
    Records(Vec<RData>),
    /// Queries get no answer.
    Silence,
    Failure(ResponseCode),
}

impl Names {
    pub(crate) fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let address = socket.local_addr().unwrap();
        let (entries, stopped) = (Arc::<Mutex<_>>::default(), Arc::new(AtomicBool::new(false)));
        let server = std::thread::spawn({
            let (entries, stopped) = (Arc::clone(&entries), Arc::clone(&stopped));
            move || {
                while !stopped.load(Ordering::Relaxed) {
                    serve(&socket, &entries);
                }
            }
        });
        Self { address, entries, stopped, server: Some(server) }
    }

    /// The line of `[server]` that makes a gateway use it.
    pub(crate) fn setting(&self) -> String {
        format!("resolvers = [\"{}\"]\n", self.address)
    }

    /// Gives a name this address.
    pub(crate) fn set(&self, name: &str, address: IpAddr) {
        self.set_all(name, &[address]);
    }

    /// Gives a name these addresses.
    pub(crate) fn set_all(&self, name: &str, addresses: &[IpAddr]) {
        self.insert(name, Entry::Records(addresses.iter().copied().map(RData::from).collect()));
    }

    /// Gives a name SRV records: target, port, priority and weight.
    pub(crate) fn set_services(&self, name: &str, records: &[(&str, u16, u16, u16)]) {
        let record = |(target, port, priority, weight): &(&str, u16, u16, u16)| {
            let target = Name::from_ascii(format!("{}.", target.trim_end_matches('.'))).unwrap();
            RData::SRV(SRV::new(*priority, *weight, *port, target))
        };
        self.insert(name, Entry::Records(records.iter().map(record).collect()));
    }

    /// Lets look-ups of a name end without an answer.
    pub(crate) fn silence(&self, name: &str) {
        self.insert(name, Entry::Silence);
    }

    /// Lets look-ups of a name fail with SERVFAIL.
    pub(crate) fn fail(&self, name: &str) {
        self.insert(name, Entry::Failure(ResponseCode::ServFail));
    }

    /// Removes a name: its look-ups end with NXDOMAIN.
    pub(crate) fn remove(&self, name: &str) {
        self.entries.lock().remove(name);
    }

    fn insert(&self, name: &str, entry: Entry) {
        self.entries.lock().insert(name.to_owned(), entry);
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        if let Some(server) = self.server.take() {
            server.join().unwrap();
        }
    }
}

/// Answers the next query.
fn serve(socket: &UdpSocket, entries: &Mutex<HashMap<String, Entry>>) {
    let mut buffer = [0; 4096];
    let Ok((length, client)) = socket.recv_from(&mut buffer) else { return };
    let Ok(query) = Message::from_vec(&buffer[..length]) else { return };
    let Some(question) = query.queries.first().cloned() else { return };
    let name = question.name().to_ascii().to_ascii_lowercase();
    let entry = entries.lock().get(name.trim_end_matches('.')).cloned();
    let kind: RecordType = question.query_type();
    let mut response = Message::response(query.metadata.id, query.metadata.op_code);
    response.add_query(question.clone());
    match entry {
        Some(Entry::Silence) => return,
        Some(Entry::Failure(code)) => response.metadata.response_code = code,
        None => response.metadata.response_code = ResponseCode::NXDomain,
        Some(Entry::Records(records)) => {
            let records = records.into_iter().filter(|data| data.record_type() == kind);
            response.add_answers(
                records.map(|data| Record::from_rdata(question.name().clone(), TTL_S, data)),
            );
        }
    }
    let _ = socket.send_to(&response.to_vec().unwrap(), client);
}
