use std::net::TcpStream;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use socket2::{Domain, Socket, Type};

use super::*;
use crate::store::redis::fixture::Timer;
use crate::upstream::pool::Pool;
use crate::upstream::pool::tests::pool_at;

/// An HTTP/2 server in clear that accepts requests and does not respond.
pub(in crate::upstream) async fn server() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener));
    address
}

async fn serve(listener: tokio::net::TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let Ok(mut connection) = h2::server::handshake(stream).await else { return };
            while connection.accept().await.is_some() {}
        });
    }
}

fn file(server: &str) -> String {
    format!("[upstreams.api]\nservers = [{server:?}]\nprotocol = \"h2c\"\n[routes.all]\n")
}

pub(in crate::upstream) fn dial(address: SocketAddr, host: &str) -> Dial {
    dial_by(&file(&address.to_string()), address, host)
}

fn dial_by(file: &str, address: SocketAddr, host: &str) -> Dial {
    let policy = crate::load::from_text("gateway.toml", file).unwrap();
    Dial {
        server: Endpoint { address, host: Some(host.into()), generation: 0 },
        pool: Arc::new(Pool::new(&policy.upstreams[0])),
        proxy_header: None,
        tries_families: false,
        is_selected: true,
    }
}

pub(in crate::upstream) const NEEDS: Needs = Needs {
    offer: Offer::Http2,
    usable: Usable::Any,
    idle_timeout: Duration::from_secs(60),
    connect_timeout: Duration::from_secs(20),
    max_connections: None,
};

/// The streams of this many requests at a time.
async fn acquire(dial: &Dial, needs: Needs, requests: usize) -> Vec<Stream> {
    let acquired = join_all((0..requests).map(|_| dial.pool.http2.acquire(dial, needs))).await;
    let stream = |acquired| match acquired {
        Ok(Acquired::Http2(stream)) => stream,
        Ok(Acquired::Http1(_)) => panic!("HTTP/1.1"),
        Err(error) => panic!("{error:?}"),
    };
    acquired.into_iter().map(stream).collect()
}

/// Number of open connections.
fn open(dial: &Dial) -> u32 {
    dial.pool.connections().0
}

fn reused(streams: &[Stream]) -> usize {
    streams.iter().filter(|stream| stream.is_reused).count()
}

#[tokio::test]
async fn connection_verified_for_one_name_is_not_used_for_another() {
    let address = server().await;
    let connections = Http2Connections::new();
    for (host, expected) in [("a", false), ("a", true), ("b", false), ("b", true), ("a", true)] {
        let dial = dial(address, host);
        let acquired = connections.acquire(&dial, NEEDS).await.unwrap();
        let Acquired::Http2(stream) = acquired else { panic!("HTTP/1.1") };
        assert_eq!(stream.is_reused, expected, "{host}");
    }
}

#[tokio::test]
async fn burst_opens_as_many_connections_as_have_places() {
    for (requests, expected) in [(100, 1), (250, 3_u32)] {
        let address = server().await;
        let dial = dial(address, "a");
        let streams = acquire(&dial, NEEDS, requests).await;
        let opened = requests - reused(&streams);
        assert_eq!((u32::try_from(opened).unwrap(), open(&dial)), (expected, expected));
    }
}

#[tokio::test]
async fn row_187_requests_at_a_time_share_the_connection_to_the_other_family() {
    for most in [None, Some(5)] {
        let address = server().await;
        let dead = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], address.port()));
        let file = file(&format!("api.test:{}", address.port()));
        let pool = pool_at(&file, vec![dead, address]).await;
        let server = pool.endpoint(dead);
        let dial =
            Dial { server, pool, proxy_header: None, tries_families: true, is_selected: true };
        let max_connections = most.map(|open| MaxConnections { open, waiting: 10 });
        let streams = acquire(&dial, Needs { max_connections, ..NEEDS }, 50).await;
        assert_eq!((reused(&streams), open(&dial)), (49, 1), "{most:?}");
        // Each counts for the address that it is sent to, and one found out that the other failed.
        let raced = |stream: &Stream| {
            let raced = stream.raced.as_ref().unwrap();
            assert_eq!(raced.server.address, address);
            raced.lost.len()
        };
        assert_eq!(streams.iter().map(raced).sum::<usize>(), 1);
        // For the time in which it is remembered, none is connected to the other one first.
        drop(streams);
        let streams = acquire(&dial, Needs { max_connections, ..NEEDS }, 1).await;
        assert_eq!((reused(&streams), raced(&streams[0])), (1, 0));
    }
}

#[tokio::test]
async fn row_187_request_without_a_place_is_sent_to_the_other_family_at_once() {
    let address = server().await;
    let dead = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], address.port()));
    let file = file(&format!("api.test:{}", address.port()));
    let pool = pool_at(&file, vec![dead, address]).await;
    let dial = Dial {
        server: pool.endpoint(dead),
        pool,
        proxy_header: None,
        tries_families: true,
        is_selected: true,
    };
    let first = acquire(&dial, NEEDS, 100).await;
    let second = acquire(&dial, NEEDS, 1).await;
    assert_eq!((reused(&first), reused(&second)), (99, 0));
    let lost = second[0].raced.as_ref().unwrap().lost.len();
    assert_eq!((lost, open(&dial)), (0, 2));
    // Not if that one gets no requests.
    dial.pool.order(&address.to_string(), Some(crate::upstream::health::Order::Drain));
    assert!(dial.pool.http2.in_place_of(&dial).is_none());
}

/// A server that does not answer handshakes, so that all connections are still being opened.
#[tokio::test]
async fn requests_that_wait_connect_at_once_when_the_server_has_selected_http1() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let file = format!("[upstreams.api]\nservers = [\"https://{address}\"]\n[routes.all]\n");
    let dial = dial_by(&file, address, "a");
    dial.pool.tls().unwrap().refresh();
    let needs = Needs { offer: Offer::Both, ..NEEDS };
    let all = join_all((0..50).map(|_| dial.pool.http2.acquire(&dial, needs)));
    let known = async {
        let server = dial.pool.http2.shared(&dial).unwrap();
        while open(&dial) == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(open(&dial), 1);
        server.note_version(Version::Http1, clock::now());
        server.queue.wake();
        while open(&dial) < 50 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        all = all => panic!("{:?}", all.into_iter().find_map(Result::err)),
        () = known => {}
    }
}

/// One connection does not have a place for all, and another one is not allowed.
#[tokio::test]
async fn requests_that_waited_for_a_connection_do_not_wait_for_all_later_ones() {
    let address = server().await;
    let dial = dial(address, "a");
    let max_connections = Some(MaxConnections { open: 1, waiting: 1_000 });
    let needs = Needs { max_connections, ..NEEDS };
    let each = (0..150).map(|number| {
        let dial = &dial;
        async move { (number, dial.pool.http2.acquire(dial, needs).await.unwrap()) }
    });
    let served: Vec<_> = each.collect::<FuturesUnordered<_>>().take(60).collect().await;
    // The others wait until a connection may be opened.
    let waited = served.iter().filter(|(number, _)| *number < 100).count();
    assert!(waited >= 20, "{waited}");
}

/// A port whose queue of connections is full, so that the kernel ignores further ones.
fn silent() -> (Socket, Vec<TcpStream>, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let fill = || TcpStream::connect_timeout(&address, Duration::from_millis(500)).ok();
    let queued = std::iter::from_fn(fill).take(16).collect();
    (socket, queued, address)
}

#[tokio::test]
async fn only_requests_that_opened_a_connection_have_found_the_server_silent() {
    let (_socket, _queued, address) = silent();
    let dial = dial(address, "a");
    let needs = Needs { connect_timeout: Duration::from_millis(400), ..NEEDS };
    let acquired = join_all((0..50).map(|_| dial.pool.http2.acquire(&dial, needs))).await;
    let etypes: Vec<_> = acquired.into_iter().map(|it| it.err().unwrap().etype().clone()).collect();
    let count = |etype| etypes.iter().filter(|it| **it == etype).count();
    let (opened, waited) = (count(ErrorType::ConnectTimedout), count(QUEUED));
    assert_eq!(opened + waited, 50, "{etypes:?}");
    // The second one does not wait for the end of the first, whose packets may be lost.
    assert!((2..=6).contains(&opened), "{opened}");
}

/// The kernel sends another packet after a second, which is ignored as well, and the next one after
/// two seconds at the earliest.
#[tokio::test]
async fn lost_packet_fails_only_the_request_that_opens_the_connection() {
    let timer = Timer::start();
    let (socket, _queued, address) = silent();
    let dial = dial(address, "a");
    let needs = Needs { connect_timeout: Duration::from_secs(3), ..NEEDS };
    let soon = Duration::from_millis(1_900);
    let all = join_all((0..20).map(|_| timeout(soon, dial.pool.http2.acquire(&dial, needs))));
    let accept = async {
        tokio::time::sleep(Duration::from_millis(1_150)).await;
        socket.set_nonblocking(true).unwrap();
        tokio::spawn(serve(tokio::net::TcpListener::from_std(socket.into()).unwrap()));
    };
    let (acquired, ()) = tokio::join!(all, accept);
    let failed = acquired.into_iter().filter(|acquired| !matches!(acquired, Ok(Ok(_)))).count();
    if failed > 1 {
        timer.inconclusive_if_stalled(&format!("{failed} failed"), Duration::from_millis(300));
    }
}

#[tokio::test]
async fn retries_share_the_connections_that_are_opened_for_them() {
    for most in [None, Some(5)] {
        let address = server().await;
        let dial = dial(address, "a");
        let max_connections = most.map(|open| MaxConnections { open, waiting: 100 });
        let needs = Needs { max_connections, ..NEEDS };
        let old = acquire(&dial, needs, 1).await;
        let now = clock::now() + 1;
        let closed = Needs { usable: Usable::OpenedSince(now), ..needs };
        let new = acquire(&dial, closed, 50).await;
        assert_eq!((reused(&new), open(&dial)), (49, 2), "{most:?}");
        // At another server, one that has had a response will do.
        drop(new);
        let now = clock::now() + 1;
        let closed = Needs { usable: Usable::Answered(now), ..needs };
        old[0].note_response();
        assert_eq!((reused(&acquire(&dial, closed, 50).await), open(&dial)), (50, 2));
    }
}

#[tokio::test]
async fn connections_of_retries_at_one_server_replace_idle_ones() {
    let address = server().await;
    let dial = dial(address, "a");
    for _ in 0..10 {
        let usable = Usable::OpenedSince(clock::now() + 1);
        acquire(&dial, Needs { usable, ..NEEDS }, 1).await;
    }
    let server = dial.pool.http2.shared(&dial).unwrap();
    assert_eq!(server.connections.lock().len(), 1);
}
