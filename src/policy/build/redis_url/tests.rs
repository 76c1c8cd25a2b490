//! Valid and invalid urls.

use super::*;

fn origin(host: &str, port: u16) -> HostPort {
    HostPort { host: host.to_owned(), port }
}

fn login_of(username: &str, password: &str) -> Login {
    let username = (!username.is_empty()).then(|| username.to_owned());
    let password = (!password.is_empty()).then(|| Secret::new(password.to_owned()));
    Login { username, password }
}

#[test]
fn servers() {
    let table = [
        ("redis://h", "h", 6379, "", "", None, false),
        ("redis://127.0.0.1:7000", "127.0.0.1", 7000, "", "", None, false),
        ("REDIS://H.example.com/", "h.example.com", 6379, "", "", None, false),
        ("redis://[::1]", "::1", 6379, "", "", None, false),
        ("redis://[::1]:7/3", "::1", 7, "", "", Some(3), false),
        ("rediss://u:p@h:1/0", "h", 1, "u", "p", Some(0), true),
        ("redis://:p@h", "h", 6379, "", "p", None, false),
        ("redis://u%40x:p%2Fq%25@h", "h", 6379, "u@x", "p/q%", None, false),
        ("redis://u:p:q@r?@h", "h", 6379, "u", "p:q@r?", None, false),
    ];
    for (text, host, port, user, password, database, tls) in table {
        let address = UrlAddress::Server(origin(host, port));
        let login = login_of(user, password);
        assert_eq!(parse(text), Ok(Url { address, tls, login, database }), "{text}");
    }
}

#[test]
fn sentinels_and_sockets() {
    let url = parse("rediss+sentinel://u:p@a,[::1]:7,c:26380/my-master/4").unwrap();
    let servers = vec![origin("a", 26379), origin("::1", 7), origin("c", 26380)];
    assert_eq!(url.address, UrlAddress::Sentinel(servers, "my-master".to_owned()));
    assert_eq!((url.tls, url.login, url.database), (true, login_of("u", "p"), Some(4)));
    for text in ["unix:///run/r.sock", "redis+unix:///run/r.sock"] {
        assert_eq!(parse(text).unwrap().address, UrlAddress::Socket("/run/r.sock".into()));
    }
}

#[test]
fn messages_do_not_quote_the_url() {
    for text in [
        "hunter2",
        "hunter2://h",
        "http://hunter2",
        "redis://hunter2@h",
        "redis://u:hun/ter2@h",
        "redis://u:%hunter2@h",
        "redis://h:hunter2",
        "redis://h/hunter2",
        "redis://h/-1",
        "redis://h/2147483648",
        "redis://h/1/hunter2",
        "redis://h?password=hunter2",
        "redis://u:hunter2@h?db=1",
        "redis://u:hunter2@",
        "redis://u:hunter2@h:0",
        "redis://u:hunter2@h:65536",
        "redis://u:hunter2@h:+1",
        "redis://u:@h",
        "redis://",
        "redis:///0",
        "redis://a,b",
        "redis://::1",
        "redis://[hunter2]",
        "redis://[::1",
        "redis://[::1]6379",
        "redis+sentinel://a,b",
        "redis+sentinel://a,/name",
        "redis+sentinel://a/na me",
        "redis+sentinel://a/name/hunter2",
        "unix://hunter2",
        "unix:///",
        &format!("unix:///{}", "x".repeat(107)),
    ] {
        let Mistake { message, help } = parse(text).expect_err(text);
        assert!(!format!("{message}{help}").contains("hunter2"), "{text}: {message}: {help}");
    }
}

#[test]
fn login_survives_encoding_and_decoding() {
    for text in ["", "a", "a:/@%?#é{} ", "100%"] {
        assert_eq!(percent_decoded(&percent::encode_component(text)).unwrap(), text);
    }
    assert_eq!(login_end("redis://${A}:${B}@h/0@"), Some(17));
    assert_eq!(login_end("${URL}"), None);
}
