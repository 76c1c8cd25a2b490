//! A server that records every byte, and accepts requests only in the form that no two servers read
//! differently.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;

/// A running recorder.
pub(super) struct Recorder {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    records: Mutex<Records>,
    connections: Mutex<Vec<TcpStream>>,
}

#[derive(Default)]
struct Records {
    /// Targets of all requests whose heads have arrived.
    targets: Vec<String>,
    /// What was wrong, and the bytes.
    faults: Vec<String>,
}

/// The body that follows a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
}

/// Why a connection ends.
enum Ended {
    /// The client closed it.
    Closed,
    /// The bytes are not in canonical form.
    Fault(String),
}

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Upstream: yes\r\n\r\n";

impl Recorder {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let server = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if Arc::strong_count(&server) == 1 {
                    return;
                }
                server.connections.lock().extend(stream.try_clone());
                let shared = Arc::clone(&server);
                std::thread::spawn(move || Incoming { stream, bytes: Vec::new() }.serve(&shared));
            }
        });
        Self { address, shared }
    }

    /// Targets of all requests so far.
    pub(super) fn targets(&self) -> Vec<String> {
        self.shared.records.lock().targets.clone()
    }

    /// Everything so far that was not in canonical form.
    pub(super) fn faults(&self) -> Vec<String> {
        self.shared.records.lock().faults.clone()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        for connection in self.shared.connections.lock().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
        self.shared = Arc::default();
        // Wakes the thread that accepts connections.
        let _ = TcpStream::connect(self.address);
    }
}

/// A connection, and what has been read of it but belongs to no request yet.
struct Incoming {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Incoming {
    fn serve(mut self, shared: &Shared) {
        let ended = loop {
            if let Err(ended) = self.request(shared) {
                break ended;
            }
        };
        if let Ended::Fault(fault) = ended {
            let rest = self.bytes.escape_ascii().to_string();
            shared.records.lock().faults.push(format!("{fault}; then {rest}"));
        }
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn request(&mut self, shared: &Shared) -> Result<(), Ended> {
        let head = self.until(b"\r\n\r\n")?;
        let text = std::str::from_utf8(&head).unwrap_or("not UTF-8").to_owned();
        let fault = |fault: &str| Ended::Fault(format!("{fault}: {}", head.escape_ascii()));
        let target = text.split(' ').nth(1).unwrap_or_default();
        shared.records.lock().targets.push(target.to_owned());
        match framing(&head).map_err(fault)? {
            Framing::Length(length) => drop(self.take(length)?),
            Framing::Chunked => self.chunks()?,
        }
        self.stream.write_all(ANSWER).map_err(|_| Ended::Closed)
    }

    fn chunks(&mut self) -> Result<(), Ended> {
        loop {
            let line = self.until(b"\r\n")?;
            let digits = &line[..line.len() - 2];
            let fault = || Ended::Fault(format!("chunk size {}", line.escape_ascii()));
            let is_plain = digits.iter().all(u8::is_ascii_hexdigit) && digits.len() <= 8;
            let size = std::str::from_utf8(digits).ok().filter(|_| is_plain).ok_or_else(fault)?;
            let size = usize::from_str_radix(size, 16).map_err(|_| fault())?;
            let chunk = self.take(size + 2)?;
            if !chunk.ends_with(b"\r\n") {
                return Err(Ended::Fault(format!("end of chunk {}", chunk.escape_ascii())));
            }
            if size == 0 {
                return Ok(());
            }
        }
    }

    /// Reads up to the first `end`, with it.
    fn until(&mut self, end: &[u8]) -> Result<Vec<u8>, Ended> {
        loop {
            let found = self.bytes.windows(end.len()).position(|window| window == end);
            if let Some(start) = found {
                return self.take(start + end.len());
            }
            self.read()?;
        }
    }

    fn take(&mut self, count: usize) -> Result<Vec<u8>, Ended> {
        while self.bytes.len() < count {
            self.read()?;
        }
        Ok(self.bytes.drain(..count).collect())
    }

    fn read(&mut self) -> Result<(), Ended> {
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) | Err(_) => Err(Ended::Closed),
            Ok(count) => {
                self.bytes.extend_from_slice(&buffer[..count]);
                Ok(())
            }
        }
    }
}

/// Checks a head with its blank line.
fn framing(head: &[u8]) -> Result<Framing, &'static str> {
    let lines: Vec<&[u8]> = split(&head[..head.len() - 4]);
    let is_clean = |line: &&[u8]| !line.iter().any(|byte| matches!(byte, 0..=8 | 10..=31 | 127));
    if !lines.iter().all(is_clean) {
        return Err("control character");
    }
    let mut words = lines[0].split(|byte| *byte == b' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    if words.next().is_some() || version != Some(b"HTTP/1.1") {
        return Err("request line");
    }
    if !method.is_some_and(is_token) || !target.is_some_and(is_target) {
        return Err("method or target");
    }
    let (mut lengths, mut codings, mut hosts) = (Vec::new(), Vec::new(), 0);
    for line in &lines[1..] {
        let colon = line.iter().position(|byte| *byte == b':').ok_or("line without a colon")?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if !is_token(name) {
            return Err("header name");
        }
        // Some servers read an underscore as a hyphen.
        match name.to_ascii_lowercase().as_slice() {
            b"content-length" => lengths.push(value),
            b"transfer-encoding" => codings.push(value),
            b"host" => hosts += 1,
            _ => {}
        }
    }
    if hosts > 1 {
        return Err("several hosts");
    }
    match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => Ok(Framing::Length(0)),
        ([], [coding]) if coding.eq_ignore_ascii_case(b"chunked") => Ok(Framing::Chunked),
        ([length], []) => {
            let is_plain = !length.is_empty() && length.iter().all(u8::is_ascii_digit);
            let length = std::str::from_utf8(length).ok().filter(|_| is_plain);
            Ok(Framing::Length(length.and_then(|text| text.parse().ok()).ok_or("length")?))
        }
        _ => Err("ambiguous length"),
    }
}

/// The lines between CR LF.
fn split(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    while let Some(end) = bytes.windows(2).position(|window| window == b"\r\n") {
        lines.push(&bytes[..end]);
        bytes = &bytes[end + 2..];
    }
    lines.push(bytes);
    lines
}

fn is_token(name: &[u8]) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !name.is_empty() && name.iter().all(allowed)
}

/// A path, or `*`.
fn is_target(target: &[u8]) -> bool {
    matches!(target, [b'/', ..] | b"*") && target.iter().all(|byte| *byte > b' ')
}
