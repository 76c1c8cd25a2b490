//! `[errors.<status>]`.

use std::path::Path;

use super::super::render;
use crate::load::{LoadError, Unknown, check, load};
use crate::policy::Policy;

/// The diagnostics of `[errors.429]` with this text for `text/html`.
fn html(text: &str) -> String {
    render(&format!("[errors.429]\n'text/html' = '''{text}'''\n"))
}

#[test]
fn bodies_of_errors() {
    for file in [
        "[errors]\n",
        "[errors.429]\n",
        "[errors.429]\n'text/html' = ''\n",
        "[errors.4xx]\n'text/html' = '<p>{detail}'\n[errors.5xx]\n'text/html' = '{status}'\n",
        "errors = { 429 = { 'text/plain' = '{title}, id {request.id}' } }\n",
        "[errors.599]\n'application/xhtml+xml' = '<p/>'\n'application/problem+json' = '{}'\n",
        "[errors.400]\n'application/json' = '{\"a\": \"{path} {client.ip}\", \"b\": [{retry_after_ms}]}'\n",
        "[errors.400]\n'text/html' = '<style>p{color:red}</style>{ status } {{host}} {}{A}'\n",
    ] {
        assert_eq!(render(file), "no errors\n", "{file}");
    }
    assert_eq!(html(&"a".repeat(65_536)), "no errors\n");
}

#[test]
fn statuses_and_media_types_are_invalid() {
    insta::assert_snapshot!(
        [
            render(
                "[errors.200]\n'text/html' = 'a'\n[errors.50x]\n[errors.5XX]\n[errors.default]\n"
            ),
            render("[errors.429]\n'text/html; charset=utf-8' = 'a'\n'text/*' = 'a'\nhtml = 'a'\n"),
            render("[errors.429]\n'Text/HTML' = 'a'\n'text/css' = 'a'\n'image/png' = 'a'\n"),
            render("[errors]\n429 = 'file:429.html'\n503 = '/etc/503.html'\n502 = 'a b'\n"),
            render("[errors]\n'text/html' = 'file:429.html'\n"),
            render("errors = 'file:429.html'\n"),
            render("[errors.429]\n'text/html' = ['a']\n"),
            render("[errors.429]\n'text/html' = 'file:'\n'text/plain' = '/etc/429.txt'\n"),
        ]
        .join("\n")
    );
}

#[test]
fn texts_are_invalid() {
    let json = |text: &str| render(&format!("[errors.429]\n'application/json' = '''{text}'''\n"));
    insta::assert_snapshot!(
        [
            html("<p>{detial}"),
            html("<p>{query}"),
            html("<p>{header:Authorization}"),
            html("<p>{requestid}{request-id}"),
            html("<script>let path = '{path}'</script>"),
            html("<a title={path}>"),
            html(&"{path}".repeat(65)).replace("{path}{path}", ""),
            json("{\"error\": {detail}}"),
            json("{\"error\": \"{detail}\",}"),
            json("{\"error\": \"\\{client.ip}n\"}"),
            json("{\n\"error\": \"{detail}\"\n"),
        ]
        .join("\n")
    );
    let long = html(&"a".repeat(65_537)).replace(&"a".repeat(1000), "");
    assert!(long.contains("error: the text of a body is longer than 64 KiB"), "{long}");
}

/// The result for a file in a folder with these files.
fn loaded(folder: &Path, file: &str) -> Result<Policy, LoadError> {
    let path = folder.join("gateway.toml");
    std::fs::write(&path, format!("{file}{}", super::super::SMALLEST)).unwrap();
    load(&path)
}

#[test]
fn files_are_read_on_load_and_their_errors_have_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| std::fs::write(folder.path().join(name), content);
    let error = |file: &str| {
        let error = loaded(folder.path(), file).unwrap_err().to_string();
        error.replace(&folder.path().display().to_string(), ".")
    };
    write("a.html", b"\xef\xbb\xbf<p>{detail}\n").unwrap();
    write("a.json", b"\xef\xbb\xbf{\"a\": \"{detail}\"}\n").unwrap();
    let files = "[errors.429]\n'text/html' = 'file:a.html'\n'application/json' = 'file:a.json'\n";
    assert!(loaded(folder.path(), files).is_ok());
    write("long.html", &vec![b'a'; 65_537]).unwrap();
    write("empty.html", b"").unwrap();
    write("nul.html", b"a\nb\0").unwrap();
    write("latin.html", b"<p>\n\n\xfc").unwrap();
    write("typo.html", b"<p>\n{detial}").unwrap();
    write("wrong.json", b"{\n\"a\": {detail}}").unwrap();
    insta::assert_snapshot!(error(
        "[errors.400]\n'text/html' = 'file:none.html'\n[errors.401]\n'text/html' = 'file:long.html'\n\
         [errors.402]\n'text/html' = 'file:empty.html'\n[errors.403]\n'text/html' = 'file:nul.html'\n\
         [errors.404]\n'text/html' = 'file:latin.html'\n[errors.405]\n'text/html' = 'file:typo.html'\n\
         [errors.406]\n'application/json' = 'file:wrong.json'\n[errors.407]\n'text/html' = 'file:.'\n"
    ));
}

#[test]
fn file_that_is_not_at_hand_is_assumed_to_be_valid() {
    let folder = tempfile::tempdir().unwrap();
    let file = "[errors.429]\n'application/json' = 'file:none.json'\n";
    assert!(loaded(folder.path(), file).is_err());
    let assumed = check(&folder.path().join("gateway.toml"), Unknown::Assume).unwrap();
    assert_eq!(assumed.source.assumed(), ["file:none.json"]);
}

#[test]
fn bodies_of_a_status_precede_those_of_its_class() {
    let folder = tempfile::tempdir().unwrap();
    let file = "[errors.4xx]\n'text/html' = 'class'\n'text/plain' = 'class'\n[errors.429]\n'text/html' = 'own'\n\
        [errors.500]\n'text/html' = 'own'\n";
    let errors = loaded(folder.path(), file).unwrap().errors.unwrap();
    let types = |status: u16| {
        let bodies = errors.of(http::StatusCode::from_u16(status).unwrap());
        bodies.iter().map(|body| body.media_type.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(types(429), ["text/html", "text/plain"]);
    assert_eq!(
        (types(404), types(500), types(503)),
        (types(429), vec!["text/html".to_owned()], vec![])
    );
    assert_ne!(errors.by_status[&429][0], errors.client[0]);
    assert_eq!(errors.by_status[&429][1], errors.client[1]);
    assert!(loaded(folder.path(), "[errors]\n").unwrap().errors.is_none());
}
