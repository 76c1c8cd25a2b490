//! Random changes of the corpus: whatever bytes a client sends, an upstream never gets more
//! requests than the limits counted, nor bytes that two servers read differently.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use super::case::cases;
use super::recorder::Recorder;
use super::{gateway, tokens_taken};
use crate::support::{TIMEOUT, with_cases};

/// Runs of the property, each with this many connections at once.
const RUNS: u32 = 25;
const CONNECTIONS: usize = 16;

/// Longer inputs only take time.
const MAX_BYTES: usize = 2_000;

/// Sent after the changed bytes: it ends most bodies that a change has left open, and the
/// connection.
const END: &[u8] = b"\r\n0\r\n\r\nGET /end HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// How long a client waits for a response before it closes its side of the connection.
const PATIENCE: Duration = Duration::from_millis(250);

/// Bytes that parsers treat in a special way.
const SPECIAL: &[u8] = b"\r\n\t\0 :;,=+-_0159afxX/*?#%\"\\\x0b\x7f\x80\xff";

/// A change of the bytes of a request.
#[derive(Clone, Debug)]
enum Change {
    Insert(Index, u8),
    Replace(Index, u8),
    Remove(Index),
    /// Repeats the line with this byte.
    RepeatLine(Index),
    /// Exchanges this line and the next.
    SwapLines(Index),
    /// Inserts a line of another case.
    InsertLine(Index, Index, Index),
    /// Ends the bytes here, and continues with another case.
    Splice(Index, Index),
}

fn change() -> impl Strategy<Value = Change> {
    let byte = || {
        prop_oneof![
            3 => proptest::sample::select(SPECIAL),
            1 => any::<u8>(),
        ]
    };
    let at = any::<Index>;
    prop_oneof![
        (at(), byte()).prop_map(|(at, byte)| Change::Insert(at, byte)),
        (at(), byte()).prop_map(|(at, byte)| Change::Replace(at, byte)),
        at().prop_map(Change::Remove),
        at().prop_map(Change::RepeatLine),
        at().prop_map(Change::SwapLines),
        (at(), at(), at()).prop_map(|(at, case, line)| Change::InsertLine(at, case, line)),
        (at(), at()).prop_map(|(at, case)| Change::Splice(at, case)),
    ]
}

/// Applies a change. `corpus` are the bytes of all cases.
fn apply(bytes: &mut Vec<u8>, change: &Change, corpus: &[Vec<u8>]) {
    if bytes.is_empty() {
        return;
    }
    let length = bytes.len();
    match change {
        Change::Insert(at, byte) => bytes.insert(at.index(length), *byte),
        Change::Replace(at, byte) => bytes[at.index(length)] = *byte,
        Change::Remove(at) => drop(bytes.remove(at.index(length))),
        Change::RepeatLine(at) => {
            let mut lines = lines(bytes);
            let at = at.index(lines.len());
            lines.insert(at, lines[at].clone());
            *bytes = lines.concat();
        }
        Change::SwapLines(at) => {
            let mut lines = lines(bytes);
            let at = at.index(lines.len());
            let next = (at + 1).min(lines.len() - 1);
            lines.swap(at, next);
            *bytes = lines.concat();
        }
        Change::InsertLine(at, case, line) => {
            let mut lines = lines(bytes);
            let others = self::lines(case.get::<Vec<u8>>(corpus));
            let at = at.index(lines.len() + 1);
            lines.insert(at, line.get(&others).clone());
            *bytes = lines.concat();
        }
        Change::Splice(at, case) => {
            bytes.truncate(at.index(length));
            bytes.extend_from_slice(case.get::<Vec<u8>>(corpus));
        }
    }
}

/// The lines of some bytes, with their ends.
fn lines(bytes: &[u8]) -> Vec<Vec<u8>> {
    bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

/// Sends bytes, and reads until the gateway closes the connection.
fn send(address: SocketAddr, bytes: &[u8]) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(bytes)?;
    stream.write_all(END)?;
    let mut sink = Vec::new();
    match stream.read_to_end(&mut sink) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            stream.shutdown(Shutdown::Write)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.read_to_end(&mut sink).map(drop)
        }
        other => other.map(drop),
    }
}

#[test]
fn row_58_changed_requests_never_reach_an_upstream_uncounted() {
    let corpus: Vec<Vec<u8>> = cases()
        .into_iter()
        .map(|case| case.bytes)
        .filter(|bytes| bytes.len() < MAX_BYTES)
        .collect();
    let recorder = Recorder::start();
    let gateway = gateway(recorder.address);
    let changed = (any::<Index>(), proptest::collection::vec(change(), 1..4));
    let connections = proptest::collection::vec(changed, CONNECTIONS);
    let config = Config { max_shrink_iters: 100, failure_persistence: None, ..with_cases(RUNS) };
    let outcome = TestRunner::new(config).run(&connections, |connections| {
        let inputs: Vec<Vec<u8>> = connections
            .iter()
            .map(|(case, changes)| {
                let mut bytes = case.get(&corpus).clone();
                for change in changes {
                    apply(&mut bytes, change, &corpus);
                }
                bytes
            })
            .collect();
        let before = recorder.faults().len();
        std::thread::scope(|scope| {
            for bytes in &inputs {
                // The gateway may close the connection before it has read everything.
                scope.spawn(|| send(gateway.address, bytes));
            }
        });
        // In this order: tokens are taken before a request is forwarded.
        let arrived = recorder.targets().len() as u64;
        let taken = tokens_taken(&gateway);
        let shown: Vec<String> =
            inputs.iter().map(|bytes| bytes.escape_ascii().to_string()).collect();
        let fail = |what: String| Err(TestCaseError::fail(format!("{what}: {shown:#?}")));
        if arrived >= taken {
            return fail(format!("{arrived} requests arrived, {taken} tokens were taken"));
        }
        match recorder.faults().get(before..) {
            Some([]) | None => Ok(()),
            Some(faults) => fail(faults.join("\n")),
        }
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    assert!(!gateway.log().contains("panicked"), "{}", gateway.log());
    // Most changes leave a request that can be served, so that the test compares something.
    assert!(recorder.targets().len() > CONNECTIONS, "{:?}", recorder.targets());
}
