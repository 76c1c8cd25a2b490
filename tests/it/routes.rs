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

#[test]
fn variables_of_a_request_are_escaped_where_they_go() {
    let gateway = gateway(
        "[routes.expensive]\npath = \"/v1/{tenant}/chat\"\n\
         respond = { status = 200, headers = { X-Tenant = \"{param:tenant}\", X-Page = \"{query:page}\", X-From = \"{header:x-from}\" } }\n\
         [routes.moved]\npath = \"/old/{tenant}\"\n\
         redirect = { to = \"/{query:next}?tenant={param:tenant}&from={header:x-from}\" }\n",
    );
    let answer =
        gateway.send(&Request::get("/v1/a%20b/chat?page=%0d%0aX:+1").header("X-From", "a/b, c"));
    let header =
        |answer: &crate::support::Response, name: &str| answer.header(name).map(str::to_owned);
    assert_eq!(header(&answer, "X-Tenant").as_deref(), Some("a%20b"));
    assert_eq!(header(&answer, "X-Page").as_deref(), Some("%0d%0aX:+1"));
    assert_eq!(header(&answer, "X-From").as_deref(), Some("a/b, c"));
    let twice =
        Request::get("/v1/a/chat?page=1&page=2").header("X-From", "a").header("X-From", "b");
    let answer = gateway.send(&twice);
    assert_eq!((header(&answer, "X-Page"), header(&answer, "X-From")), (None, None));
    let location = |path: &str| {
        let answer = gateway.send(&Request::get(path).header("X-From", "a&b=c"));
        (answer.status, header(&answer, "Location"))
    };
    let expected = "/new%2Fx%3Fy?tenant=a%2526%3D&from=a%26b%3Dc";
    assert_eq!(location("/old/a%2526=?next=new/x%3Fy"), (308, Some(expected.to_owned())));
    // Another host, in any spelling; and without a value.
    for next in ["/evil.test", "%2Fevil.test", "%5Cevil.test", ""] {
        assert_eq!(location(&format!("/old/a?next={next}")).0, 400, "{next}");
    }
}

/// Requests are refused if servers may read values with different routes.
#[test]
fn no_spelling_of_a_condition_avoids_the_limit_of_a_route() {
    let gateway = gateway(
        "[routes.expensive]\nheaders = { x-version = \"2*\" }\nquery = { q = \"a b\" }\n\
         cookies = { beta = true }\n[routes.rest]\n",
    );
    let send = |target: &str, headers: &[(&str, &str)]| {
        let request = Request::get(target);
        gateway.send(
            &headers.iter().fold(request, |request, (name, value)| request.header(name, value)),
        )
    };
    let refused: [(&str, &[(&str, &str)]); 7] = [
        ("/?q=a+b", &[("X-Version", "2"), ("X-Version", "1"), ("Cookie", "beta=1")]),
        ("/?q=a+b", &[("X-Version", "2"), ("Cookie", "beta=1"), ("Connection", "x-version")]),
        ("/?q=a+b", &[("X_Version", "2"), ("Cookie", "beta=1")]),
        ("/?q=a+b&q=b", &[("X-Version", "2"), ("Cookie", "beta=1")]),
        ("/?q=b;q=a+b", &[("X-Version", "2"), ("Cookie", "beta=1")]),
        ("/?q=a%20b", &[("X-Version", "2"), ("Cookie", "be%74a=1")]),
        ("/?q=a%20b", &[("X-Version", "2"), ("Cookie", "a=1; beta")]),
    ];
    for (target, headers) in refused {
        let answer = send(target, headers);
        assert_eq!(answer.status, 400, "{target} {headers:?}");
        let detail = answer.json()["detail"].as_str().map(str::to_owned);
        assert!(detail.unwrap().contains("several values"), "{target}");
    }
    let rest: [(&str, &[(&str, &str)]); 4] = [
        ("/?q=a+b", &[("X-Version", "2")]),
        ("/?q=b", &[("X-Version", "2"), ("Cookie", "beta=1")]),
        ("/?q=a+b", &[("X-Version", "1"), ("X-Version", "0"), ("Cookie", "beta=1")]),
        ("/?q=a%2Bb", &[("X-Version", "2"), ("Cookie", "beta=1")]),
    ];
    for (target, headers) in rest {
        assert_eq!(send(target, headers).status, 200, "{target} {headers:?}");
    }
    let expensive: [(&str, &[(&str, &str)]); 4] = [
        ("/x?q=a+b", &[("x-version", "2.1"), ("Cookie", "beta=1")]),
        ("/?%71=a%20b&r", &[("X-Version", "2"), ("Cookie", "a=1; beta=2; beta=3")]),
        ("/?q=a+b", &[("X-Version", "2"), ("Cookie", "a=1"), ("Cookie", "beta=1")]),
        ("/?q=a+b&q=%61%20b", &[("X-Version", "2"), ("X-Version", "2"), ("Cookie", "beta=\"\"")]),
    ];
    for ((target, headers), expected) in expensive.into_iter().zip([200, 200, 429, 429]) {
        assert_eq!(send(target, headers).status, expected, "{target} {headers:?}");
    }
}

#[test]
fn explanation_says_which_condition_is_not_met() {
    let gateway = gateway(
        "[routes.expensive]\npath_regex = \"^/v[0-9]+/search$\"\nheaders = { x-version = \"2\" }\n\
         [routes.rest]\n",
    );
    let explain = |headers: &str| {
        let body = format!(r#"{{"path": "/v1/search", "headers": {{{headers}}}}}"#);
        gateway.explain(body).json()["route"].clone()
    };
    let route = explain(r#""X-Version": "1""#);
    assert_eq!(route["name"], "rest");
    let missed = &route["candidates"][0];
    assert_eq!(missed["name"], "expensive");
    assert_eq!(missed["path"], "~ ^/v[0-9]+/search$");
    assert_eq!(missed["conditions"], serde_json::json!(["header x-version = 2"]));
    assert_eq!(missed["why"], "the header x-version is 1, not 2");
    let route = explain(r#""X-Version": "2""#);
    assert_eq!(route["name"], "expensive");
    assert_eq!(route["why"], "a regular expression takes precedence over `/*`");
}
