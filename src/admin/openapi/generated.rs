//! The document as routes and types make it.

use std::collections::BTreeMap;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::DOCUMENT;
use super::operations::{Body, Operation, Reply, operation};
use crate::admin::routes::{ROUTES, Route, Verb};

/// Where the document is kept.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/openapi.json");

const DESCRIPTION: &str = "Status, policy and clients of one gateway, and what an operator may \
                           change. docs/admin-api.md says what each member means.";

fn generated() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for route in ROUTES {
        let told = told(route, &operation(route.call, &mut generator));
        let method = route.method.name().to_ascii_lowercase();
        paths.entry(route.path).or_default().insert(method, told);
    }
    json!({
        "openapi": "3.1.0",
        "info": { "title": "tollgate", "version": "1", "description": DESCRIPTION },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "schemas": schemas(&mut generator),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn schemas(generator: &mut SchemaGenerator) -> Map<String, Value> {
    let mut schemas = generator.take_definitions(true);
    schemas.insert("Problem".to_owned(), problem());
    schemas
}

/// RFC 9457.
fn problem() -> Value {
    json!({
        "type": "object",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": { "type": "string" },
            "title": { "type": "string" },
            "status": { "type": "integer" },
            "detail": { "type": "string", "description": "What is wrong, for people." },
            "done": {
                "type": "string", "enum": ["no", "unknown"],
                "description": "Of a change in an outage: whether it was made all the same.",
            },
        },
    })
}

/// One operation as the document has it.
fn told(route: &Route, operation: &Operation) -> Value {
    let is_api = route.path.starts_with("/api/");
    let mut responses: BTreeMap<String, Value> = BTreeMap::new();
    for Reply { status, about, kind, schema } in &operation.replies {
        let mut content = Map::new();
        content.insert((*kind).to_owned(), json!({ "schema": schema }));
        let reply = json!({ "description": about, "content": content });
        responses.insert(status.to_string(), reply);
    }
    let common = [
        (401, is_api, "No token, or a wrong one."),
        (403, is_api, "A page of another site, or a strange Host."),
        (405, true, "Another method than these."),
        (413, route.method == Verb::Post, "A body over 64 KiB."),
    ];
    let problems = common.into_iter().filter(|(_, is_there, _)| *is_there);
    let problems = problems.map(|(status, _, about)| (status, about));
    for (status, about) in problems.chain(operation.problems.iter().copied()) {
        let schema = json!({ "schema": { "$ref": "#/components/schemas/Problem" } });
        let content = json!({ "application/problem+json": schema });
        responses.insert(status.to_string(), json!({ "description": about, "content": content }));
    }
    let mut told = json!({
        "operationId": format!("{:?}", route.call),
        "summary": operation.summary,
        "parameters": parameters(route, operation),
        "responses": responses,
    });
    if is_api {
        told["security"] = json!([{}, { "token": [] }]);
    }
    if let Some(Body { schema, required }) = &operation.body {
        let content = json!({ "application/json": { "schema": schema } });
        told["requestBody"] = json!({ "required": required, "content": content });
    }
    told
}

fn parameters(route: &Route, operation: &Operation) -> Vec<Value> {
    let parts = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let part = |name: &str| {
        let schema = match name {
            "kind" => json!({ "type": "string", "enum": ["key", "ip"] }),
            _ => json!({ "type": "string", "minLength": 1 }),
        };
        json!({ "name": name, "in": "path", "required": true, "schema": schema })
    };
    let query = operation.query.iter().map(|parameter| {
        json!({
            "name": parameter.name, "in": "query", "description": parameter.about,
            "schema": parameter.schema,
        })
    });
    parts.map(part).chain(query).collect()
}

#[test]
fn the_document_in_docs_is_that_of_the_routes_and_types() {
    let generated = serde_json::to_string_pretty(&generated()).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(FILE, &generated).unwrap();
    }
    let kept = std::fs::read_to_string(FILE).unwrap_or_default();
    assert!(kept == generated, "UPDATE_SCHEMA=1 cargo test --lib openapi writes docs/openapi.json");
    assert!(kept.as_bytes() == DOCUMENT || std::env::var_os("UPDATE_SCHEMA").is_some());
}

#[test]
fn the_page_for_people_names_every_route() {
    let page = include_str!("../../../docs/admin-api.md");
    for route in ROUTES.iter().filter(|route| route.path.starts_with("/api/")) {
        let call = format!("{} {}", route.method.name(), route.path);
        assert!(page.contains(&call), "docs/admin-api.md lacks `{call}`");
    }
}
