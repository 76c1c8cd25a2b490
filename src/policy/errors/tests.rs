use http::header;
use proptest::prelude::*;

use super::template::{ErrorValues, MAX_VALUE_CHARS, MAX_VARIABLES};
use super::*;
use crate::policy::template::{NamedValues, Values};

fn body(media_type: &str, escape: Escape) -> Arc<ErrorBody> {
    Arc::new(ErrorBody {
        media_type: media_type.into(),
        content_type: HeaderValue::from_str(media_type).unwrap(),
        template: ErrorTemplate::parse("", escape).unwrap(),
    })
}

const BROWSER: &str =
    "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8";
const AXIOS: &str = "application/json, text/plain, */*";

const VALUES: ErrorValues<'_> = ErrorValues {
    status: 429,
    title: "Too Many Requests",
    kind: "about:blank",
    detail: "a \"b\" <c>",
    retry_after: Some(2),
    retry_after_ms: None,
    request: Values {
        client_id: None,
        client_plan: "free",
        client_tenant: "group",
        client_ip: None,
        request_id: "01",
        route: "all",
        host: "api.test",
        method: "GET",
        path: b"/<script>'&\"\\{status}",
        query: b"?api_key=1",
        named: NamedValues::Sample("secret"),
    },
};

fn rendered(text: &str, escape: Escape) -> String {
    ErrorTemplate::parse(text, escape).unwrap().render(&VALUES)
}

#[test]
fn media_type_is_chosen_by_accept() {
    let html = body("text/html", Escape::Markup);
    let plain = body("text/plain", Escape::Text);
    let json = body("application/json", Escape::Json);
    let vendor = body("application/vnd.api+json", Escape::Json);
    let lists: [Bodies; 4] = [
        vec![html.clone()],
        vec![html.clone(), plain.clone()],
        vec![html.clone(), json.clone()],
        vec![vendor.clone(), html, plain],
    ];
    // (Accept, media types with each of the lists); `-` is the problem document.
    let table = [
        (None, ["-", "-", "application/json", "application/vnd.api+json"]),
        (Some("*/*"), ["-", "-", "application/json", "application/vnd.api+json"]),
        (Some(""), ["-", "-", "application/json", "application/vnd.api+json"]),
        (Some(BROWSER), ["text/html"; 4]),
        (Some("TEXT/HTML"), ["text/html"; 4]),
        (Some(AXIOS), ["-", "-", "application/json", "application/vnd.api+json"]),
        (Some("application/json"), ["-", "-", "application/json", "application/vnd.api+json"]),
        (Some("application/problem+json"), ["-"; 4]),
        (Some("application/*"), ["-", "-", "application/json", "application/vnd.api+json"]),
        (Some("text/*"), ["text/html"; 4]),
        (Some("text/*, text/html;q=0.5"), ["text/html", "text/plain", "text/html", "text/plain"]),
        (Some("text/html;q=0.5, application/json;q=0.4"), ["text/html"; 4]),
        (
            Some("text/html;q=0.4, */*;q=0.5"),
            ["-", "-", "application/json", "application/vnd.api+json"],
        ),
        (Some("text/html;q=0, */*"), ["-", "-", "application/json", "application/vnd.api+json"]),
        (Some("*/*;q=0"), ["-", "-", "application/json", "application/vnd.api+json"]),
        (Some("image/png"), ["-", "-", "application/json", "application/vnd.api+json"]),
        (Some("text/html;q=2"), ["-", "-", "application/json", "application/vnd.api+json"]),
        (Some("text/html; level=1 ; Q=0.9, */*;q=0.8"), ["text/html"; 4]),
        (
            Some("application/vnd.api+json, text/html;q=0.9"),
            ["text/html", "text/html", "text/html", "application/vnd.api+json"],
        ),
    ];
    let chosen = |bodies: &Bodies, accept: Option<&str>| {
        let errors = Errors { client: bodies.clone(), ..Errors::default() };
        let mut headers = HeaderMap::new();
        if let Some(accept) = accept {
            headers.append(header::ACCEPT, accept.parse().unwrap());
        }
        assert_eq!(errors.body(StatusCode::BAD_GATEWAY, &headers), None);
        let body = errors.body(StatusCode::NOT_FOUND, &headers);
        body.map_or("-".to_owned(), |body| body.media_type.to_string())
    };
    for (accept, expected) in table {
        for (bodies, expected) in lists.iter().zip(expected) {
            assert_eq!(chosen(bodies, accept), expected, "{accept:?}");
        }
    }
    let several = vec![vendor, json, body(PROBLEM_JSON, Escape::Json)];
    for (accept, expected) in [
        (None, "application/json"),
        (Some("*/*"), "application/json"),
        (Some("application/json"), "application/json"),
        (Some("application/json;q=0.9, application/vnd.api+json"), "application/vnd.api+json"),
        (Some("application/json, application/vnd.api+json;q=0.5"), "application/json"),
        (Some("application/json;q=0, */*"), "application/vnd.api+json"),
        (Some("application/problem+json"), PROBLEM_JSON),
        (Some("application/json;q=0, application/vnd.api+json;q=0, */*"), PROBLEM_JSON),
    ] {
        assert_eq!(chosen(&several, accept), expected, "{accept:?}");
    }
}

#[test]
fn lines_of_accept_are_one_list() {
    let html = vec![body("text/html", Escape::Markup)];
    let errors = Errors { server: html, ..Errors::default() };
    let mut headers = HeaderMap::new();
    headers.append(header::ACCEPT, "*/*;q=0.1".parse().unwrap());
    headers.append(header::ACCEPT, "text/html".parse().unwrap());
    assert!(errors.body(StatusCode::BAD_GATEWAY, &headers).is_some());
    headers.append(header::ACCEPT, HeaderValue::from_bytes(b"\xff/*").unwrap());
    assert!(errors.body(StatusCode::BAD_GATEWAY, &headers).is_some());
}

#[test]
fn braces_without_a_variable_are_text() {
    let style =
        "<style>@media x{a{color:red}}.b{}</style>{ status } {{status}} {Status} {a b}{header:a b}";
    assert_eq!(
        rendered(style, Escape::Markup),
        "<style>@media x{a{color:red}}.b{}</style>{ status } {429} {Status} {a b}{header:a b}"
    );
    assert_eq!(rendered("{\"a\":{\"b\":{status}}}", Escape::Json), "{\"a\":{\"b\":429}}");
    assert_eq!(rendered("}{", Escape::Text), "}{");
    assert_eq!(rendered("{status", Escape::Text), "{status");
}

#[test]
fn variables_that_do_not_exist_and_those_without_escapes_are_errors() {
    let error = |text: &str| match ErrorTemplate::parse(text, Escape::Markup) {
        Ok(_) => "none".to_owned(),
        Err((offset, error)) => {
            assert!(text[offset..].starts_with('{'), "{text}");
            error.to_string()
        }
    };
    let script = "is in a script or a style sheet, where its value cannot be escaped";
    let quotes = "is in a tag without quotes, which its value could end";
    for (text, expected) in [
        ("a{statsu}", "unknown variable `{statsu}`".to_owned()),
        // They may contain an API key.
        ("{query}", "unknown variable `{query}`".to_owned()),
        ("{header.authorization}", "unknown variable `{header.authorization}`".to_owned()),
        ("{header:Authorization}", "unknown variable `{header:Authorization}`".to_owned()),
        ("{query:api_key}", "unknown variable `{query:api_key}`".to_owned()),
        ("{cookie}", "unknown variable `{cookie}`".to_owned()),
        ("<script>let a = '{path}'", format!("`{{path}}` {script}")),
        ("<a title={path}>", format!("`{{path}}` {quotes}")),
        ("<a title='{path}'>path={path}", "none".to_owned()),
        (&"{path}".repeat(MAX_VARIABLES), "none".to_owned()),
        (&"{path}".repeat(MAX_VARIABLES + 1), "the text has more than 64 variables".to_owned()),
    ] {
        assert_eq!(error(text), expected, "{text}");
    }
    assert!(ErrorTemplate::parse("<script>{path}", Escape::Text).is_ok());
}

#[test]
fn values_are_escaped_for_the_media_type() {
    let text = "{detail}|{path}|{client.id}|{retry_after}|{retry_after_ms}";
    assert_eq!(
        rendered(text, Escape::Markup),
        "a &quot;b&quot; &lt;c&gt;|/&lt;script&gt;&#39;&amp;&quot;\\{status}||2|"
    );
    assert_eq!(
        rendered(text, Escape::Json),
        "a \\\"b\\\" \\u003cc>|/\\u003cscript>'&\\\"\\\\{status}||2|null"
    );
    assert_eq!(rendered(text, Escape::Text), "a \"b\" <c>|/<script>'&\"\\{status}||2|");
}

#[test]
fn bodies_are_bounded() {
    let path = vec![b'<'; 60_000];
    let values = ErrorValues { request: Values { path: &path, ..VALUES.request }, ..VALUES };
    let text = "{path}".repeat(MAX_VARIABLES);
    let template = ErrorTemplate::parse(&text, Escape::Markup).unwrap();
    let longest = MAX_VARIABLES * MAX_VALUE_CHARS * "&lt;".len();
    assert_eq!(template.render(&values).len(), longest);
}

proptest! {
    #![proptest_config(crate::base::cases::with_cases(256))]

    #[test]
    fn values_never_leave_their_place(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let values = ErrorValues { request: Values { path: &bytes, ..VALUES.request }, ..VALUES };
        let of = |text: &str, escape| {
            ErrorTemplate::parse(text, escape).unwrap().render(&values)
        };
        let html = of("<p a=\"{path}\" b='{path}'>{path}</p>", Escape::Markup);
        prop_assert_eq!(html.matches(['<', '>']).count(), 4);
        prop_assert_eq!((html.matches('"').count(), html.matches('\'').count()), (2, 2));
        let json: serde_json::Value = serde_json::from_str(&of("{\"a\":\"{path}\"}", Escape::Json)).unwrap();
        prop_assert_eq!(json.as_object().unwrap().len(), 1);
        let plain = of("{path}", Escape::Text);
        prop_assert!(!plain.chars().any(char::is_control));
    }
}
