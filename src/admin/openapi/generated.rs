//! Generates the OpenAPI document from the routes and response types.

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::DOCUMENT;
use super::operations::{Body, Operation, Reply, operation};
use crate::admin::body::MAX_BYTES;
use crate::admin::routes::{ApiRoute, ROUTES, Verb};
use crate::policy::errors::PROBLEM_JSON;

/// Path of the stored document.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/openapi.json");

const DESCRIPTION: &str = "Status, policy and clients of one gateway, and the operations of an \
                           operator. docs/admin-api.md describes each member.";

fn generated() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    // Defaults are for members that an older gateway does not send: this one sends all.
    let without_default = |schema: &mut Schema| drop(schema.remove("default"));
    let settings = settings.with_transform(RecursiveTransform(without_default));
    let mut generator = settings.into_generator();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for route in ROUTES {
        let object = operation_object(route, &operation(route.call, &mut generator));
        let method = route.method.name().to_ascii_lowercase();
        paths.entry(route.path).or_default().insert(method, object);
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

/// Schema of a problem document (RFC 9457) of the admin port.
fn problem() -> Value {
    json!({
        "type": "object",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": { "type": "string" },
            "title": { "type": "string" },
            "status": { "type": "integer" },
            "detail": { "type": "string", "description": "What is wrong, in plain text." },
            "done": {
                "type": "string", "enum": ["no", "unknown"],
                "description": "For a change that failed: whether it may have been made.",
            },
        },
    })
}

fn operation_object(route: &ApiRoute, operation: &Operation) -> Value {
    let is_api = route.path.starts_with("/api/");
    let mut responses: BTreeMap<String, Value> = BTreeMap::new();
    for Reply { status, about, kind, schema } in &operation.replies {
        let reply = responses.entry(status.to_string());
        let reply = reply.or_insert_with(|| json!({ "description": about, "content": {} }));
        // One status can have several types.
        reply["content"][*kind] = json!({ "schema": schema });
    }
    let common = [
        (401, is_api, "The token is missing or wrong."),
        (403, is_api, "The request comes from a page of another site, or has a foreign Host."),
        (405, true, "The path does not allow the method."),
        (413, matches!(route.method, Verb::Post | Verb::Patch), too_large(route)),
    ];
    let problems = common.into_iter().filter(|(_, is_there, _)| *is_there);
    let problems = problems.map(|(status, _, about)| (status, about));
    for (status, about) in problems.chain(operation.problems.iter().copied()) {
        let schema = json!({ "schema": { "$ref": "#/components/schemas/Problem" } });
        let content = json!({ PROBLEM_JSON: schema });
        responses.insert(status.to_string(), json!({ "description": about, "content": content }));
    }
    let mut object = json!({
        "operationId": format!("{:?}", route.call),
        "summary": operation.summary,
        "parameters": parameters(route, operation),
        "responses": responses,
    });
    if is_api {
        object["security"] = json!([{}, { "token": [] }]);
    }
    if let Some(Body { kind, schema, required }) = &operation.body {
        let mut content = Map::new();
        content.insert((*kind).to_owned(), json!({ "schema": schema }));
        object["requestBody"] = json!({ "required": required, "content": content });
    }
    object
}

fn too_large(route: &ApiRoute) -> &'static str {
    if route.max_body_bytes() > MAX_BYTES {
        "The body is larger than 4 MiB."
    } else {
        "The body is larger than 64 KiB."
    }
}

fn parameters(route: &ApiRoute, operation: &Operation) -> Vec<Value> {
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
fn stored_document_is_up_to_date() {
    let generated = serde_json::to_string_pretty(&generated()).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(FILE, &generated).unwrap();
    }
    let kept = std::fs::read_to_string(FILE).unwrap_or_default();
    assert!(
        kept == generated,
        "run UPDATE_SCHEMA=1 cargo test --lib openapi to update docs/openapi.json"
    );
    assert!(kept.as_bytes() == DOCUMENT || std::env::var_os("UPDATE_SCHEMA").is_some());
}

#[test]
fn docs_describe_every_route() {
    let page = include_str!("../../../docs/admin-api.md");
    for route in ROUTES.iter().filter(|route| route.path.starts_with("/api/")) {
        let call = format!("{} {}", route.method.name(), route.path);
        assert!(page.contains(&call), "docs/admin-api.md lacks `{call}`");
    }
}

/// Generated clients are named after schemas. The generator numbers types that share a name.
#[test]
fn no_two_schemas_share_a_name() {
    let generated = generated();
    let schemas = generated["components"]["schemas"].as_object().unwrap();
    let numbered: Vec<_> =
        schemas.keys().filter(|name| name.ends_with(|c: char| c.is_ascii_digit())).collect();
    assert_eq!(numbered, Vec::<&String>::new(), "two response types share a name");
}
