//! Which route a request gets, whatever its spelling: a route's limit counts all of them.

use crate::support::{Gateway, Request};

/// Two requests a day to the expensive route, and no limit for the others.
fn gateway(routes: &str) -> Gateway {
    Gateway::start(&format!(
        "[upstreams.api]\nservers = [\"demo\"]\n{routes}\n\
         [rules.expensive]\nper = []\nroutes = [\"expensive\"]\nrate = \"2/d\"\n"
    ))
}

fn status(gateway: &Gateway, path: &str) -> u16 {
    gateway.send(&Request::get(path)).status
}

#[test]
fn no_spelling_of_a_parameter_avoids_the_limit_of_a_route() {
    let gateway =
        gateway("[routes.expensive]\npath = \"/v1/{tenant}/chat\"\n[routes.rest]\npath = \"/*\"\n");
    let refused =
        ["/v1/a%2Fb/chat", "/v1/a%5cb/chat", "/v1/a;x/chat", "/v1/a//chat", "//v1/a/chat"];
    for path in refused {
        assert_eq!(status(&gateway, path), 400, "{path}");
    }
    assert_eq!(status(&gateway, "/v1/acme/chat"), 200);
    assert_eq!(status(&gateway, "/v1/%61cme/ch%61t/"), 200);
    for path in ["/v1/acme/chat", "/v1/other/chat", "/v1/%C3%BC/chat/", "/%761/a%20b/chat?x"] {
        assert_eq!(status(&gateway, path), 429, "{path}");
    }
    for path in ["/v1/acme", "/v1/acme/chat/x", "/v1//chat", "/v1/a/b/chat"] {
        assert_eq!(status(&gateway, path), 200, "{path}");
    }
}

/// Some servers take what follows two slashes for the host.
#[test]
fn path_with_a_host_does_not_avoid_the_limit_of_a_route_of_that_host() {
    let gateway =
        gateway("[routes.expensive]\nhost = \"dear.test\"\n[routes.rest]\nhost = \"cheap.test\"\n");
    let send =
        |path: &str| gateway.send(&Request::get(path).without("Host").header("Host", "cheap.test"));
    for path in [
        "//dear.test/x",
        "/\\dear.test/x",
        "///dear.test:80/x",
        "//u@DEAR.test./",
        "//de%61r.test/x",
        "/%2Fdear.test/x",
        "/%5cdear.test%2Fx",
    ] {
        let answer = send(path);
        let reason = answer.json()["detail"].as_str().map(str::to_owned);
        assert!(answer.status == 400 && reason.unwrap().contains("more than one route"), "{path}");
        let explained = gateway.explain(format!(r#"{{"path": {path:?}, "host": "cheap.test"}}"#));
        assert_eq!(explained.json()["verdict"]["status"], 400, "{path}");
        let readings = explained.json()["route"]["readings"].clone();
        let readings = readings.as_array().unwrap().iter();
        assert!(readings.into_iter().any(|reading| reading["host"].is_string()), "{path}");
    }
    assert_eq!(send("/x//dear.test/").status, 200);
}

#[test]
fn no_spelling_of_a_host_avoids_the_limit_of_a_route() {
    let gateway = gateway(
        "[routes.expensive]\nhost = [\"example.com\", \"*.tenants.example.com\"]\n\
         [routes.cheap]\nhost = \"*.example.com\"\n[routes.rest]\n",
    );
    let status =
        |host: &str| gateway.send(&Request::get("/").without("Host").header("Host", host)).status;
    assert_eq!(status("example.com"), 200);
    assert_eq!(status("a.tenants.example.com"), 200);
    for host in ["EXAMPLE.com", "example.com.", "example.com:8080", "a.b.Tenants.example.com.:1"] {
        assert_eq!(status(host), 429, "{host}");
    }
    for host in ["tenants.example.com", "a.example.com", "notexample.com", "127.0.0.1"] {
        assert_eq!(status(host), 200, "{host}");
    }
}
