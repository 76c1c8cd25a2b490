//! Records for a stream, and servers that do not accept them.

use prometheus::IntCounter;

use super::fixture::{Running, Server, eventually};
use crate::store::redis::append::{Appender, StreamEntry, channel};

fn append(appender: &Appender, values: std::ops::Range<u64>) {
    for value in values {
        let fields = vec![("value", value.to_string())];
        appender.append(StreamEntry { stream: "audit", fields, keep: 100 });
    }
}

fn start(lines: &str) -> (Running, Appender, IntCounter) {
    let dropped = IntCounter::new("a", "b").unwrap();
    let (appender, appending) = channel(dropped.clone());
    (Running::start_appending(lines, appending), appender, dropped)
}

#[tokio::test]
async fn records_are_appended_in_order_and_the_oldest_removed() {
    let server = Server::start(&[]).await;
    let (_running, appender, dropped) = start(&format!("{}\nprefix = 'gw:'", server.url()));
    append(&appender, 0..3);
    eventually("all are there", async || server.ask("XLEN gw:audit") == "3").await;
    let range = server.ask("XRANGE gw:audit - +");
    let fields: Vec<&str> = range.lines().map(str::trim).collect();
    assert_eq!((fields[1], fields[2], fields[3]), ("value", "0", "gateway"));
    assert_eq!((fields[4].len(), fields[7]), (16, "1"));
    append(&appender, 3..1_000);
    eventually("the last is there", async || {
        server.ask("XREVRANGE gw:audit + - COUNT 1").contains("\n999\n")
    })
    .await;
    let length: u64 = server.ask("XLEN gw:audit").parse().unwrap();
    assert!((100..=200).contains(&length), "{length}");
    assert_eq!(dropped.get(), 0);
}

#[tokio::test]
async fn records_wait_for_an_unavailable_server() {
    let mut server = Server::start(&[]).await;
    let (running, appender, dropped) = start(&server.url());
    running.connection().await;
    server.kill();
    running.until_down().await;
    append(&appender, 0..1_030);
    assert_eq!(dropped.get(), 6);
    server.restart().await;
    eventually("all that waited are there", async || {
        server.ask("XREVRANGE tollgate:audit + - COUNT 1").contains("\n1023\n")
    })
    .await;
    assert_eq!(dropped.get(), 6);
}

/// Nor do records for a key that holds another type.
#[tokio::test]
async fn missing_permission_to_append_loses_only_records() {
    let server = Server::start(&[]).await;
    server.ask(&format!("ACL SETUSER gateway on >p/w@1 {}", super::login::RIGHTS));
    // On a busy machine, too, nothing else may open the breaker.
    let login = "username = 'gateway'\npassword = '${PW}'\ntimeout = '1s'";
    let (running, appender, dropped) = start(&format!("{}\n{login}", server.url()));
    running.until_writes().await;
    append(&appender, 0..5);
    eventually("they are counted", async || dropped.get() == 5).await;
    server.ask("ACL SETUSER gateway +xadd");
    append(&appender, 5..6);
    eventually("it is there", async || server.ask("XLEN tollgate:audit") == "1").await;
    server.ask("DEL tollgate:audit");
    server.ask("SET tollgate:audit x");
    append(&appender, 6..8);
    eventually("they are counted", async || dropped.get() == 7).await;
    running.until_writes().await;
    assert_eq!(running.link.connections(), 1);
    eventually("the breaker is closed", async || running.link.breaker().state.name() == "closed")
        .await;
}
