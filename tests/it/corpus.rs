//! Requests that servers read differently, through the gateway to several kinds of servers: no
//! server gets a request that the limits did not count, nor two where the client sent one.
//!
//! `corpus/requests.txt` has the requests, and what the gateway does with each.

mod case;
mod mutations;
mod recorder;

use std::net::SocketAddr;

use self::case::{Case, Ending, cases};
use self::recorder::Recorder;
use crate::support::{Connection, Gateway, Nginx, PeerServer, Response, eventually, proxy_to};

/// Tokens of the limit, which no test exhausts.
const BURST: u64 = 100_000;

/// A gateway in front of this server, whose limit counts every request.
fn gateway(upstream: SocketAddr) -> Gateway {
    let limit = format!("[rules.all]\nper = []\nrate = \"1/d\"\nburst = {BURST}\n");
    Gateway::start(&format!("{}{limit}", proxy_to(&[upstream])))
}

/// Tokens that a gateway has taken so far, with the one that the look-up takes.
fn tokens_taken(gateway: &Gateway) -> u64 {
    BURST - gateway.get("/last").remaining()
}

/// What the gateway did with one request of the corpus, in the words of its file.
fn outcome(gateway: &Gateway, case: &Case) -> String {
    let mut client = gateway.connect();
    client.write(&case.bytes);
    let mut words = Vec::new();
    let mut methods = case.methods();
    for counted in &case.responses {
        let Some(response) = final_response(&mut client, methods.next().unwrap_or("GET")) else {
            break;
        };
        let is_of_upstream = response.header("x-upstream").is_some();
        assert_eq!(is_of_upstream, response.status == 200, "{}: {response:?}", case.name);
        let status = response.status;
        words.push(if counted.is_after_check { format!("({status})") } else { status.to_string() });
    }
    match case.ending {
        Ending::Keep => client.write(b"GET /probe HTTP/1.1\r\nHost: a\r\n\r\n"),
        Ending::Close => {}
        Ending::Wait => client.finish_writing(),
    }
    let next = final_response(&mut client, "GET");
    words.push(match (case.ending, next.map(|response| response.status)) {
        (Ending::Keep, Some(200)) => "keep".to_owned(),
        // A server may respond before it has the whole body.
        (Ending::Wait, None | Some(200)) => "wait".to_owned(),
        (_, None) => "close".to_owned(),
        (_, Some(status)) => format!("and {status}"),
    });
    words.join(" ")
}

fn final_response(client: &mut Connection, method: &str) -> Option<Response> {
    loop {
        let response = client.try_read_response(method)?;
        if response.status >= 200 {
            return Some(response);
        }
    }
}

/// Sends the cases. Returns how many requests a server should have got: at least, and at most.
fn send_corpus(gateway: &Gateway, cases: &[Case]) -> (u64, u64) {
    let (mut least, mut aborted) = (0, 0);
    let mut wrong = Vec::new();
    for case in cases {
        let outcome = outcome(gateway, case);
        if outcome != case.expected {
            wrong.push(format!("{}: {outcome}, expected {}", case.name, case.expected));
        }
        let answered = case.responses.iter().filter(|response| response.status == 200).count();
        least += answered as u64 + u64::from(case.ending == Ending::Keep);
        let unfinished = case.responses.iter().filter(|response| response.is_after_check).count();
        aborted += unfinished as u64 + u64::from(case.ending == Ending::Wait);
    }
    assert!(wrong.is_empty(), "{} cases differ:\n{}", wrong.len(), wrong.join("\n"));
    (least, least + aborted)
}

/// Asserts what a server saw after the corpus: `seen` are the targets of its requests.
#[track_caller]
fn assert_counted(gateway: &Gateway, (least, most): (u64, u64), seen: impl Fn() -> Vec<String>) {
    let taken = tokens_taken(gateway);
    let all = eventually("the server to have noted all requests", || {
        let all = seen();
        (all.iter().any(|target| target == "/last")).then_some(all)
    });
    let smuggled: Vec<_> = all.iter().filter(|target| target.starts_with("/smuggled")).collect();
    assert!(smuggled.is_empty(), "{smuggled:?}");
    // Without the last request, which is not of the corpus.
    let count = all.len() as u64 - 1;
    assert!((least..=most).contains(&count), "{count} of {least} to {most} arrived: {all:#?}");
    assert!(count < taken, "{count} requests arrived, {taken} tokens were taken");
    assert!(taken <= most + 1, "{taken} tokens were taken for {most} requests");
    assert!(!gateway.log().contains("panicked"), "{}", gateway.log());
}

#[test]
fn row_58_corpus_has_enough_cases_with_unique_names() {
    let mut names: Vec<_> = cases().into_iter().map(|case| case.name).collect();
    let count = names.len();
    assert!(count >= 150, "{count}");
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

/// The recorder compares every byte that arrives.
#[test]
fn row_58_corpus_reaches_a_strict_recorder_only_in_canonical_form() {
    let recorder = Recorder::start();
    let gateway = gateway(recorder.address);
    let expected = send_corpus(&gateway, &cases());
    assert_counted(&gateway, expected, || recorder.targets());
    assert_eq!(recorder.faults(), Vec::<String>::new());
}

#[test]
fn row_58_corpus_reaches_nginx_as_counted() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let path = log.path().to_str().unwrap().to_owned();
    let nginx = Nginx::listening("", |_| {
        format!(
            "access_log {path}; large_client_header_buffers 8 64k; ignore_invalid_headers off;
             location / {{ add_header X-Upstream yes always; return 200; }}"
        )
    });
    let gateway = gateway(nginx.address);
    // nginx refuses an empty host.
    let has_host = |case: &Case| !["version-1.0-no-host", "host-empty"].contains(&&*case.name);
    let cases: Vec<Case> = cases().into_iter().filter(has_host).collect();
    let expected = send_corpus(&gateway, &cases);
    // Lines such as `127.0.0.1 - - [date] "GET /target HTTP/1.1" 200 0 "-" "-"`.
    let log = || std::fs::read_to_string(&path).unwrap();
    let target = |line: &str| line.split('"').nth(1)?.split(' ').nth(1).map(str::to_owned);
    assert_counted(&gateway, expected, || log().lines().filter_map(target).collect());
    let log = log();
    let refused: Vec<&str> = log.lines().filter(|line| !line.contains("\" 200 ")).collect();
    assert_eq!(refused, Vec::<&str>::new());
}

#[test]
fn row_58_corpus_reaches_node_as_counted() {
    reaches_as_counted(&PeerServer::node_http1());
}

#[test]
fn row_58_corpus_reaches_gunicorn_as_counted() {
    reaches_as_counted(&PeerServer::python_http1("gunicorn"));
}

#[test]
fn row_58_corpus_reaches_h11_as_counted() {
    reaches_as_counted(&PeerServer::python_http1("h11"));
}

#[track_caller]
fn reaches_as_counted(server: &PeerServer) {
    let gateway = gateway(server.address);
    let expected = send_corpus(&gateway, &cases());
    assert_counted(&gateway, expected, || targets(&server.log()));
    assert_eq!(server.count("fault"), 0, "{}", server.log());
}

/// The targets of the lines `seen METHOD TARGET …` of a server's log.
fn targets(log: &str) -> Vec<String> {
    let target = |line: &str| line.strip_prefix("seen ")?.split(' ').nth(1).map(str::to_owned);
    log.lines().filter_map(target).collect()
}
