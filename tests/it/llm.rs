//! A language model behind the gateway: streams of events that say their cost at the end, or break
//! off. Judged by what the upstream has streamed.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::shared::is_decided_locally;
use crate::support::{
    Connection, CpuWaits, Gateway, Latch, Redis, Request, Stopwatch, Upstream, eventually,
    inconclusive, inconclusive_if_waited, key, proxy_to, sleep_for,
};

const RATE_PER_MINUTE: u64 = 100_000;
const BURST: u64 = 2_000;
const RESERVE: u64 = 40;
/// Tokens of a stream are between these.
const CHEAPEST: u64 = 10;
const DEAREST: u64 = 70;
const CLIENTS: usize = 64;
const TEST: Duration = Duration::from_secs(10);
/// A stream takes 20 of these.
const EVENT: Duration = Duration::from_millis(40);

/// What the upstream knows of a stream.
#[derive(Clone, Copy)]
struct Streamed {
    began: Duration,
    client: usize,
    /// What it costs by docs/llm.md.
    cost: u64,
    is_whole: bool,
}

/// A fake language model with its log.
struct Model {
    upstream: Upstream,
    log: Arc<Mutex<Vec<Streamed>>>,
}

impl Model {
    /// Every eighth stream breaks off in its middle. Every second one says its cost so far with
    /// each event, as Anthropic's API does; the others at their end, as OpenAI's does.
    fn start(watch: Stopwatch) -> Self {
        let (log, count) = (Arc::new(Mutex::new(Vec::new())), AtomicUsize::new(0));
        let upstream = Upstream::start({
            let log = log.clone();
            move |request, stream| {
                let number = count.fetch_add(1, Ordering::Relaxed);
                let tokens = CHEAPEST + number as u64 * 7_919 % (DEAREST - CHEAPEST + 1);
                let (is_whole, is_running) = (number % 8 != 3, number % 2 == 1);
                let said = if is_running { tokens / 2 } else { 0 };
                let cost = if is_whole { tokens } else { said.max(RESERVE) };
                let client = request.header("x-client").unwrap().parse().unwrap();
                log.lock().push(Streamed { began: watch.elapsed(), client, cost, is_whole });
                stream_tokens(stream, tokens, is_whole, is_running).is_ok() && is_whole
            }
        });
        Self { upstream, log }
    }
}

/// Streams the events of a response: 20, or 10 if it breaks off.
fn stream_tokens(
    stream: &mut TcpStream,
    tokens: u64,
    is_whole: bool,
    is_running: bool,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    begin_events(stream)?;
    for part in 1..=if is_whole { 20 } else { 10 } {
        let usage = match part {
            20 => tokens.to_string(),
            _ if is_running => (tokens * part / 20).to_string(),
            _ => "null".to_owned(),
        };
        let delta = "{\"content\": \"Lorem ipsum \\\"total_tokens\\\": 1000000 dolor\"}";
        let usage = format!("{{\"total_tokens\": {usage}}}");
        let event = format!("{{\"choices\": [{{\"delta\": {delta}}}], \"usage\": {usage}}}");
        send_event(stream, &event)?;
        sleep_for(EVENT);
    }
    if is_whole {
        send_event(stream, "[DONE]")?;
        stream.write_all(b"0\r\n\r\n")?;
    }
    Ok(())
}

fn begin_events(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
    )
}

fn send_event(stream: &mut TcpStream, data: &str) -> std::io::Result<()> {
    let event = format!("data: {data}\n\n");
    stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes())
}

fn request(client: usize) -> Request {
    let body = "{\"stream\": true, \"stream_options\": {\"include_usage\": true}}";
    Request::new("POST", "/v1/chat/completions")
        .header("X-Api-Key", "secret")
        .header("X-Client", client.to_string())
        .header("Content-Type", "application/json")
        .body(body)
}

fn config(upstream: &Upstream, redis: &Redis, rate: &str) -> String {
    let acme = key("acme", "secret", "free");
    format!(
        "{}{}[rules.tokens]\nper = [\"key\"]\n{rate}count = \"json:usage.total_tokens\"\n\
         reserve = {RESERVE}\n{acme}",
        proxy_to(&[upstream.address]),
        redis.table()
    )
}

/// Sends requests until the test is over, each after the response to the one before. Returns how
/// many were refused.
fn stream_until_end(gateway: &Gateway, client: usize, watch: Stopwatch) -> usize {
    let mut refused = 0;
    let mut connection = gateway.connect();
    while watch.elapsed() < TEST {
        let response = connection.send(&request(client));
        match response.status {
            200 => {}
            429 => {
                refused += 1;
                sleep_for(Duration::from_millis(20));
            }
            status => panic!("{status}: {}", response.text()),
        }
        if !response.complete || response.header("connection") == Some("close") {
            connection = gateway.connect();
        }
    }
    refused
}

/// Tokens that the streams in flight may cost beyond their reserve, when `now` is the last of them:
/// the last one of each client, and the one before it if that broke off, since a client learns of
/// that before its cost is settled.
fn beyond_reserve(streams: &[Streamed]) -> u64 {
    let of_client = |client: usize| {
        let mut own = streams.iter().rev().filter(move |stream| stream.client == client);
        let last = own.next();
        let before = own.next().filter(|stream| !stream.is_whole);
        last.into_iter().chain(before)
    };
    let streams = (0..CLIENTS).flat_map(of_client);
    streams.map(|stream| stream.cost.saturating_sub(RESERVE)).sum()
}

/// The bound of docs/llm.md, at the begin of each stream.
#[test]
fn streaming_clients_of_two_gateways_stay_within_the_tokens_of_a_minute() {
    let (redis, watch) = (Redis::start(), Stopwatch::start());
    let model = Model::start(watch);
    let rate = format!("rate = \"{RATE_PER_MINUTE}/m\"\nburst = {BURST}\n");
    let text = config(&model.upstream, &redis, &rate);
    let gateways: [Gateway; 2] = std::array::from_fn(|_| Gateway::start(&text));
    gateways.iter().for_each(Gateway::wait_for_redis);
    let (waits, begun) = (CpuWaits::now(), watch.elapsed());
    let refused: usize = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let gateway = &gateways[client % 2];
                scope.spawn(move || stream_until_end(gateway, client, watch))
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    // A gateway without Redis grants its share, which is not a part of this bound.
    if is_decided_locally(&gateways, &waits) {
        return;
    }
    let streams = model.log.lock().clone();
    let (mut admitted, mut nearest) = (0, u64::MAX);
    let refilled = |at: Duration| {
        RATE_PER_MINUTE * u64::try_from(at.saturating_sub(begun).as_millis()).unwrap() / 60_000
    };
    for (number, stream) in streams.iter().enumerate() {
        admitted += stream.cost;
        let bound = BURST + refilled(stream.began) + 1 + beyond_reserve(&streams[..=number]);
        assert!(admitted <= bound, "{admitted} of {bound} tokens at {:?}", stream.began);
        nearest = nearest.min(bound - admitted);
    }
    let allowed = BURST + refilled(streams.last().unwrap().began);
    let broken = streams.iter().filter(|stream| !stream.is_whole).count();
    eprintln!(
        "{} streams, {broken} broken off, {refused} refused; {admitted} of {allowed} tokens; \
         {nearest} below the bound",
        streams.len()
    );
    // A bucket that has refilled since gets nothing back from a stream that costs less than its
    // reserve.
    let charged: u64 = streams.iter().map(|stream| stream.cost.max(RESERVE)).sum();
    // Clients of a slow machine ask for less, but then few are refused.
    assert!(
        charged > allowed / 3 || refused < streams.len(),
        "{charged} of {allowed} tokens, {refused} refused"
    );
    // Fewer only if the machine was too slow for this load.
    if broken <= 20 || refused == 0 {
        inconclusive_if_waited("too few streams to judge", &waits, TEST / 10);
    }
    // No less either, unless the clients were too slow to ask for it.
    if charged < allowed * 9 / 10 {
        inconclusive_if_waited("fewer tokens than allowed", &waits, TEST / 10);
    }
}

/// Bytes of the first event of each open stream, of which the gateway must keep nothing.
const LONG_EVENT: usize = 3 << 20;
/// What a gateway holds of a stream between a fast server and its client, at most.
const PER_STREAM: u64 = 1 << 20;
/// How much later the first event may arrive with `count`.
const LATER: Duration = Duration::from_millis(1);
/// How much later it may arrive through a gateway with a limit than without a gateway.
const LIMITED_LATER: Duration = Duration::from_millis(15);
/// Rounds of the measured client.
const ROUNDS: u32 = 100;

/// A server whose streams begin with a long event, and then send short ones until the latch opens.
/// A request to `/now` gets a short event at once.
fn long_streams(latch: &Latch) -> Upstream {
    let held = latch.clone();
    Upstream::start(move |request, stream| {
        let is_short = request.line().contains("/now");
        let length = if is_short { 10 } else { LONG_EVENT };
        let text = "x".repeat(length);
        stream.set_nodelay(true).unwrap();
        let sent = begin_events(stream)
            .and_then(|()| send_event(stream, &format!("{{\"content\": \"{text}\"}}")));
        if is_short {
            let end = sent.and_then(|()| stream.write_all(b"0\r\n\r\n"));
            return end.is_ok();
        }
        held.wait();
        send_event(stream, "{\"usage\": {\"total_tokens\": 50}}")
            .and_then(|()| stream.write_all(b"0\r\n\r\n"))
            .is_ok()
    })
}

/// The median time from the request to its first event at these addresses, in turn.
fn first_events<const N: usize>(addresses: [SocketAddr; N]) -> [Duration; N] {
    let mut connections = addresses.map(Connection::open);
    let mut times = [const { Vec::new() }; N];
    for _ in 0..ROUNDS {
        for (connection, times) in connections.iter_mut().zip(&mut times) {
            let request = Request::get("/now").header("X-Api-Key", "secret");
            let watch = Stopwatch::start();
            connection.write(&request.bytes());
            let (head, chunk) = connection.read_first_chunk();
            times.push(watch.elapsed());
            assert!(head.starts_with("HTTP/1.1 200") && chunk.starts_with(b"data: "), "{head}");
            connection.read_chunked();
        }
    }
    times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    })
}

/// The same limit, which takes the reserve and settles nothing.
fn without_count(config: &str) -> String {
    config.replace("count = ", "# ").replace("reserve = ", "cost = ")
}

/// Opens 64 streams and reads the first event of each. Returns them, and the memory per stream that
/// the gateway has used at its peak, in bytes.
fn open_streams(gateway: &Gateway) -> (Vec<Connection>, u64) {
    let before = gateway.memory_bytes().0;
    let mut clients: Vec<Connection> = (0..CLIENTS).map(|_| gateway.connect()).collect();
    std::thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(|| {
                client.write(&Request::get("/").header("X-Api-Key", "secret").bytes());
                let (_, body) = client.read_chunks_of(LONG_EVENT);
                assert!(body.len() >= LONG_EVENT, "{} bytes", body.len());
            });
        }
    });
    let grown = gateway.memory_bytes().1.saturating_sub(before);
    (clients, grown / CLIENTS as u64)
}

#[test]
fn memory_of_a_stream_does_not_depend_on_its_length() {
    let (redis, latch) = (Redis::start(), Latch::default());
    let upstream = long_streams(&latch);
    let text = config(&upstream, &redis, "rate = \"1000000/365d\"\n");
    let [read, passed] = [&text, &without_count(&text)].map(|text| {
        let gateway = Gateway::start(text);
        gateway.wait_for_redis();
        open_streams(&gateway).1
    });
    eprintln!("{} KiB per stream, {} KiB without `count`", read >> 10, passed >> 10);
    assert!(read < PER_STREAM, "{read} bytes");
    assert!(read < 2 * passed, "{read} bytes, {passed} without `count`");
    latch.open();
}

/// Later than through a gateway with the same limit that reads no cost, beside 64 open streams;
/// that one is judged by a request without a gateway.
#[test]
fn first_event_is_passed_on_within_a_millisecond() {
    let (redis, latch) = (Redis::start(), Latch::default());
    let upstream = long_streams(&latch);
    let text = config(&upstream, &redis, "rate = \"1000000/365d\"\n");
    let gateway = Gateway::start(&text);
    gateway.wait_for_redis();
    let (clients, _) = open_streams(&gateway);
    let control = Gateway::start(&without_count(&text));
    control.wait_for_redis();
    let waits = CpuWaits::now();
    let addresses = [upstream.address, control.address, gateway.address];
    let [direct, control, counted] = first_events(addresses);
    eprintln!("first event: {direct:?} directly, {control:?} limited, {counted:?} with `count`");
    for (later, limit) in
        [(control.saturating_sub(direct), LIMITED_LATER), (counted.saturating_sub(control), LATER)]
    {
        if let Some(why) = waits.judge_median(later, limit, ROUNDS) {
            inconclusive(&why);
        }
    }
    latch.open();
    eventually("the settlement of all streams", || {
        let labels = [("rule", "tokens"), ("result", "known")];
        let settled = gateway.existing("tollgate_settlements_total", &labels);
        (settled == Some(CLIENTS as u64)).then_some(())
    });
    drop(clients);
}
