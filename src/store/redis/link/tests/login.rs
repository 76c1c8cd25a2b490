//! Users, passwords, databases and permissions.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::fixture::{Running, Server, eventually, refusal};
use crate::store::redis::class::ErrorClass;
use crate::store::redis::script;

/// The login fails, and is corrected while the gateway runs.
#[tokio::test]
async fn row_15_corrected_login_is_used_without_a_restart() {
    let server = Server::start(&["--requirepass", "other"]).await;
    let lines = format!("{}\npassword = '${{PW}}'", server.url());
    let refused = refusal(&lines).await;
    assert!(refused.contains("AUTH: ") && refused.contains("WRONGPASS"), "{refused}");
    assert!(!refused.contains("p/w@1"), "{refused}");
    assert!(refusal(&server.url()).await.contains("NOAUTH"));
    let running = Running::start(&lines);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(running.link.current().is_none());
    server.ask("-a other --no-auth-warning CONFIG SET requirepass p/w@1");
    running.until_writes().await;

    // The other way round, while connected.
    server.ask("-a p/w@1 --no-auth-warning CONFIG SET requirepass third");
    server.ask("-a third --no-auth-warning CLIENT KILL TYPE normal");
    running.until_down().await;
    server.ask("-a third --no-auth-warning CONFIG SET requirepass p/w@1");
    running.until_writes().await;
}

/// Documented permissions of a gateway.
pub(super) const RIGHTS: &str = "resetkeys ~tollgate:* +ping +eval +evalsha +time +get +set +zadd \
                      +zremrangebyscore +zcard +pexpire";

#[tokio::test]
async fn documented_permissions_suffice_to_connect() {
    let server = Server::start(&[]).await;
    server.ask(&format!("ACL SETUSER gateway on >p/w@1 {RIGHTS} +select"));
    server.ask("ACL SETUSER default off");
    let running = Running::start(&format!(
        "{}\nusername = 'gateway'\npassword = '${{PW}}'\ndatabase = 3",
        server.url()
    ));
    running.until_writes().await;
    // redis-cli has no permissions, so the connection of the gateway is used.
    let mut connection = running.connection().await;
    let mut refused = redis::cmd("ACL");
    let refused = refused.arg("LOG").query_async::<redis::Value>(&mut connection.redis).await;
    let class = running.link.failed(&connection, &refused.unwrap_err());
    assert_eq!(class, ErrorClass::NoPermission);
    running.connection().await;
    assert_eq!(running.link.connections(), 1, "another connection would not help");
}

#[tokio::test]
async fn row_16_connecting_adds_no_entry_to_the_acl_log() {
    let server = Server::start(&[]).await;
    server.ask(&format!("ACL SETUSER gateway on >p/w@1 {RIGHTS} +select"));
    let running = Running::start(&format!(
        "{}\nusername = 'gateway'\npassword = '${{PW}}'\ndatabase = 3",
        server.url()
    ));
    running.connection().await;
    let clients = server.ask("CLIENT LIST TYPE normal");
    assert!(clients.lines().any(|line| line.contains("db=3") && line.contains("user=gateway")));
    assert_eq!(server.ask("ACL LOG"), "");
    server.ask("ACL SETUSER gateway -set");
    assert_eq!(running.write().await, Err(Some(ErrorClass::NoPermission)));
    server.ask("ACL SETUSER gateway +set");
    running.until_writes().await;
    assert_eq!(running.link.connections(), 1);
}

#[tokio::test]
async fn error_names_a_database_that_does_not_exist() {
    let server = Server::start(&["--databases", "2"]).await;
    let refused = refusal(&format!("{}\ndatabase = 7", server.url())).await;
    assert!(refused.contains("SELECT: ") && refused.contains("out of range"), "{refused}");
}

/// Collects what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn the_log_has_a_line_for_each_change_and_no_secret() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .without_time()
        .with_target(false)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let server = Server::start(&["--requirepass", "other"]).await;
    // The default of up to 15 s is longer than this test waits.
    let soon = "timeout = '1s'\nbreaker = { open = '100ms', open_max = '500ms' }";
    let running = Running::start(&format!("{}\npassword = '${{PW}}'\n{soon}", server.url()));
    let said = |text: &str| String::from_utf8_lossy(&log.0.lock()).contains(text);
    eventually("it is refused", async || said("WRONGPASS")).await;
    server.ask("-a other --no-auth-warning CONFIG SET requirepass p/w@1");
    running.until_writes().await;
    server.ask("-a p/w@1 --no-auth-warning ACL SETUSER default -set");
    assert_eq!(running.write().await, Err(Some(ErrorClass::NoPermission)));
    assert_eq!(running.write().await, Err(None), "no request calls Redis");
    eventually("it has tried again", async || said("@user_script:")).await;
    server.ask("-a p/w@1 --no-auth-warning ACL SETUSER default +set");
    running.until_writes().await;
    server.ask("-a p/w@1 --no-auth-warning CLIENT KILL TYPE normal");
    eventually("it connects anew", async || running.link.connections() > 1).await;
    running.connection().await;
    let shown = String::from_utf8(log.0.lock().clone()).unwrap();
    let shown = shown.replace(&server.socket().display().to_string(), "SOCKET");
    let shown = shown.replace(&*script::SHA, "SHA");
    let (before, after) = shown.split_once("@user_script:").unwrap();
    let shown = format!("{before}@user_script:LINE{}", after.trim_start_matches(char::is_numeric));
    insta::assert_snapshot!(shown, @r"
    WARN breaker open: SOCKET: AUTH: WRONGPASS invalid username-password pair or user is disabled; limits are decided locally until Redis is back
    INFO connected to Redis at SOCKET
    INFO breaker half open: Redis answers; requests return to it step by step
    WARN breaker open: Redis says: NOPERM this user has no permissions to run the 'set' command; checks of all rules need `+eval +evalsha +time +get +set`; limits are decided locally until Redis is back
    WARN cannot reach Redis, retrying: SOCKET: a probe: ERR The user executing the script can't run this command or subcommand script: SHA, on @user_script:LINE; checks of all rules need `+eval +evalsha +time +get +set`
    INFO connected to Redis at SOCKET
    INFO breaker half open: Redis answers; requests return to it step by step
    WARN breaker open: lost Redis at SOCKET: the connection was closed; limits are decided locally until Redis is back
    INFO connected to Redis at SOCKET
    INFO breaker half open: Redis answers; requests return to it step by step
    ");
}
