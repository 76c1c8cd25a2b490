//! Checks every response of the admin port against the OpenAPI document.

use std::cell::RefCell;
use std::sync::LazyLock;

use serde_json::Value;

use super::http::Response;

const DOCUMENT: &str = include_str!("../../../docs/openapi.json");

const NAME: &str = "http://localhost/openapi.json";

static READ: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(DOCUMENT).unwrap());

/// Asserts that the OpenAPI document describes this response to this request.
#[track_caller]
pub(super) fn assert_documented(method: &str, target: &str, answer: &Response) {
    let path = target.split('?').next().unwrap();
    let Some((template, operations)) = operations(path) else { return };
    let verb = if method == "HEAD" { "get".to_owned() } else { method.to_ascii_lowercase() };
    let Some(operation) = operations.get(&verb) else { return };
    let status = answer.status.to_string();
    let context = || format!("{method} {target}: {} {}", answer.status, answer.text());
    assert!(operation["responses"].get(&status).is_some(), "not documented: {}", context());
    let kind = answer.header("content-type").unwrap_or_default().split(';').next().unwrap();
    let place = ["paths", template, &verb, "responses", &status, "content", kind, "schema"];
    let escaped = place.map(|part| part.replace('~', "~0").replace('/', "~1"));
    let pointer = format!("/{}", escaped.join("/"));
    assert!(READ.pointer(&pointer).is_some(), "not documented as {kind}: {}", context());
    if method == "HEAD" || !kind.ends_with("json") {
        return;
    }
    let place = format!("{NAME}#{}", pointer.replace('{', "%7B").replace('}', "%7D"));
    COMPILED.with_borrow_mut(|(schemas, compiler)| {
        // The compiler caches schemas.
        let schema = compiler.compile(&place, schemas).unwrap();
        if let Err(error) = schemas.validate(&answer.json(), schema) {
            panic!("not as documented: {error:#}\n{}", context());
        }
    });
}

thread_local! {
    static COMPILED: RefCell<(boon::Schemas, boon::Compiler)> = {
        let mut compiler = boon::Compiler::new();
        compiler.set_default_draft(boon::Draft::V2020_12);
        compiler.add_resource(NAME, READ.clone()).unwrap();
        RefCell::new((boon::Schemas::new(), compiler))
    };
}

/// The operations of a path, and its template.
fn operations(path: &str) -> Option<(&'static str, &'static Value)> {
    let paths = READ["paths"].as_object().unwrap();
    let fits = |template: &str| {
        let (wanted, given) = (template.split('/'), path.split('/'));
        wanted.clone().count() == given.clone().count()
            && wanted.zip(given).all(|(wanted, given)| wanted.starts_with('{') || wanted == given)
    };
    paths.iter().find(|(template, _)| fits(template)).map(|(path, value)| (path.as_str(), value))
}
