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
