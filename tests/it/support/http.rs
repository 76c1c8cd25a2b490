//! A raw HTTP client that can send malformed requests and shows every byte of the response.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};

use socket2::{Domain, Socket, Type};

use super::wait::TIMEOUT;

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    method: String,
    target: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

/// Default host of a request.
const HOST: &str = "api.test";

/// A received response.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Header lines in order, with names as received.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Whether the body has the length that its head announced.
    pub(crate) complete: bool,
}

/// A client connection.
pub(crate) struct Connection {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Request {
    pub(crate) fn get(target: &str) -> Self {
        Self::new("GET", target)
    }

    /// A request with a `Host` and no other header.
    pub(crate) fn new(method: &str, target: &str) -> Self {
        let request = Self {
            method: method.to_string(),
            target: target.to_string(),
            headers: Vec::new(),
            body: Vec::new(),
        };
        request.header("Host", HOST)
    }

    /// Adds a header line.
    pub(crate) fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_string(), value.as_ref().to_vec()));
        self
    }

    /// The request with this host, unless it has a host other than the default.
    pub(crate) fn at(&self, address: SocketAddr) -> Self {
        let is_own = |(name, value): &(String, Vec<u8>)| name == "Host" && value == HOST.as_bytes();
        if self.headers.iter().any(is_own) {
            self.clone().without("Host").header("Host", address.to_string())
        } else {
            self.clone()
        }
    }

    /// Removes a header.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(own, _)| !own.eq_ignore_ascii_case(name));
        self
    }

    /// Adds a body and its `Content-Length`.
    pub(crate) fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = body.as_ref().to_vec();
        let length = self.body.len().to_string();
        self.header("Content-Length", length)
    }

    pub(super) fn method(&self) -> &str {
        &self.method
    }

    pub(super) fn target(&self) -> &str {
        &self.target
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\n", self.method, self.target).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

impl Connection {
    #[track_caller]
    pub(crate) fn open(address: SocketAddr) -> Self {
        Self::on(TcpStream::connect(address).unwrap())
    }

    /// Opens a connection from a local address.
    #[track_caller]
    pub(crate) fn open_from(source: Ipv4Addr, address: SocketAddr) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((source, 0)).into()).unwrap();
        socket.connect(&address.into()).unwrap();
        Self::on(socket.into())
    }

    fn on(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, unread: Vec::new() }
    }

    /// Sends a request and reads the response.
    #[track_caller]
    pub(crate) fn send(&mut self, request: &Request) -> Response {
        self.write(&request.bytes());
        self.read_response(&request.method)
    }

    /// Sends raw bytes. Ignores errors, because the server may have closed after its response.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Reads the response to a request with this method.
    #[track_caller]
    pub(crate) fn read_response(&mut self, method: &str) -> Response {
        self.try_read_response(method).expect("the server should respond, not close")
    }

    /// Reads a response; `None` if the connection ends before a complete head.
    pub(crate) fn try_read_response(&mut self, method: &str) -> Option<Response> {
        let head = self.read_head()?;
        let mut response = Response::of_head(&head);
        let has_body = method != "HEAD" && !matches!(response.status, 100..=199 | 204 | 304);
        if !has_body {
            return Some(response);
        }
        if response.header("transfer-encoding").is_some_and(|value| value == "chunked") {
            response.complete = self.read_chunks(&mut response.body).is_some();
        } else if let Some(length) = response.header("content-length") {
            let length = length.parse().unwrap();
            while self.unread.len() < length && self.fill() {}
            response.complete = self.unread.len() >= length;
            response.body = self.unread.drain(..length.min(self.unread.len())).collect();
        } else {
            while self.fill() {}
            response.body = std::mem::take(&mut self.unread);
        }
        Some(response)
    }

    /// Reads `count` bytes, or fewer at the end of the connection.
    pub(crate) fn read_bytes(&mut self, count: usize) -> Vec<u8> {
        while self.unread.len() < count && self.fill() {}
        self.unread.drain(..count.min(self.unread.len())).collect()
    }

    /// Reads a head and the first chunk of its body.
    pub(crate) fn read_first_chunk(&mut self) -> (String, Vec<u8>) {
        let head = self.read_head().unwrap();
        let mut chunk = Vec::new();
        self.read_chunk(&mut chunk).unwrap();
        (head, chunk)
    }

    /// Reads a head and then chunks of its body, of at least `length` bytes.
    pub(crate) fn read_chunks_of(&mut self, length: usize) -> (String, Vec<u8>) {
        let (head, mut body) = (self.read_head().unwrap(), Vec::new());
        while body.len() < length && self.read_chunk(&mut body).unwrap() > 0 {}
        (head, body)
    }

    /// Reads the rest of a chunked body.
    pub(crate) fn read_chunked(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        self.read_chunks(&mut body).unwrap();
        body
    }

    /// Waits for the end of the connection. False if more bytes arrive.
    pub(crate) fn is_closed_by_server(&mut self) -> bool {
        self.unread.is_empty() && !self.fill()
    }

    /// Closes the writing side of the connection.
    pub(crate) fn finish_writing(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    fn read_head(&mut self) -> Option<String> {
        loop {
            if let Some(end) = find(&self.unread, b"\r\n\r\n") {
                let head: Vec<u8> = self.unread.drain(..end + 4).collect();
                return Some(String::from_utf8_lossy(&head).into_owned());
            }
            if !self.fill() {
                return None;
            }
        }
    }

    /// Reads a chunked body; `None` if it ends too early.
    fn read_chunks(&mut self, body: &mut Vec<u8>) -> Option<()> {
        while self.read_chunk(body)? > 0 {}
        Some(())
    }

    /// Reads a chunk, and returns its size: 0 for the last one. `None` if it ends too early.
    fn read_chunk(&mut self, body: &mut Vec<u8>) -> Option<usize> {
        let end = loop {
            if let Some(end) = find(&self.unread, b"\r\n") {
                break end;
            }
            if !self.fill() {
                return None;
            }
        };
        let line: Vec<u8> = self.unread.drain(..end + 2).collect();
        let size = std::str::from_utf8(&line).ok()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        let chunk = self.read_bytes(size + 2);
        body.extend_from_slice(chunk.get(..size).unwrap_or(&chunk));
        (chunk.len() == size + 2).then_some(size)
    }

    /// Reads more bytes. False at the end of the connection, by close or reset.
    fn fill(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(read) => {
                self.unread.extend_from_slice(&buffer[..read]);
                read > 0
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("waited {TIMEOUT:?} for the server; it is neither done nor closed")
            }
            Err(_) => false,
        }
    }
}

impl Response {
    fn of_head(head: &str) -> Self {
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap();
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_string(), value.trim().to_string()))
            .collect();
        Self { status: status.parse().unwrap(), headers, body: Vec::new(), complete: true }
    }

    /// The value of a header. Panics if there are two: the gateway never sends duplicate lines.
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let own = self.headers.iter().filter(|(own, _)| own.eq_ignore_ascii_case(name));
        let values: Vec<&str> = own.map(|(_, value)| value.as_str()).collect();
        assert!(values.len() < 2, "two headers {name}: {values:?}");
        values.first().copied()
    }

    /// The value of `X-RateLimit-Remaining`.
    #[track_caller]
    pub(crate) fn remaining(&self) -> u64 {
        let remaining = self.header("x-ratelimit-remaining");
        remaining.unwrap_or_else(|| panic!("no X-RateLimit-Remaining: {self:?}")).parse().unwrap()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.text()))
    }

    /// Status, headers and body for a snapshot, with placeholders for values that differ between
    /// runs: ids, times, and the remaining time of a limit per day.
    pub(crate) fn snapshot(&self) -> String {
        let mut text = format!("{}\n", self.status);
        for (name, value) in &self.headers {
            let _ = writeln!(text, "{name}: {}", if name == "Date" { "<date>" } else { value });
        }
        let _ = write!(text, "\n{}", self.text());
        redact(&text)
    }
}

/// Replaces values that differ between runs by placeholders.
fn redact(text: &str) -> String {
    let mut redacted = String::new();
    let mut word = String::new();
    for letter in text.chars().chain(['\0']) {
        if letter.is_ascii_alphanumeric() {
            word.push(letter);
            continue;
        }
        let number = word.parse::<u64>().unwrap_or(0);
        redacted.push_str(match number {
            86_300..=86_400 => "<day>",
            86_300_000..=86_400_000 => "<day in ms>",
            1_700_000_000..=9_999_999_999 => "<unix time>",
            _ if word.len() == 32 => "<id>",
            _ => &word,
        });
        redacted.push(letter);
        word.clear();
    }
    redacted.trim_end_matches('\0').to_string()
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
