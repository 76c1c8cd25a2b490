//! What each call takes and answers. Whoever adds a call has to say it here.

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

use crate::admin::audit::Refusals;
use crate::admin::breaker::Breaker;
use crate::admin::clients::adjust::Adjusted;
use crate::admin::clients::buckets::Buckets;
use crate::admin::clients::top::Top;
use crate::admin::events::KIND;
use crate::admin::policy::Policy;
use crate::admin::reload::{Answer as Reload, Reloads};
use crate::admin::routes::Call;
use crate::admin::status::Status;
use crate::admin::upstreams::Upstreams;
use crate::explain::report::Explanation;

/// A call.
pub(super) struct Operation {
    pub(super) summary: &'static str,
    pub(super) query: Vec<Parameter>,
    pub(super) body: Option<Body>,
    /// Answers that are no problems.
    pub(super) replies: Vec<Reply>,
    /// Those that are, beside those of every call.
    pub(super) problems: Vec<(u16, &'static str)>,
}

/// A parameter of the query.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) schema: Value,
}

/// What is sent along.
pub(super) struct Body {
    pub(super) schema: Value,
    pub(super) required: bool,
}

/// An answer.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) about: &'static str,
    pub(super) kind: &'static str,
    pub(super) schema: Value,
}

const JSON: &str = "application/json";

const BAD: (u16, &str) = (400, "A body, a parameter or an address that is none.");

const NO_CLIENT: (u16, &str) = (404, "No such client or route.");

const NO_REDIS: (u16, &str) = (409, "The file has no [redis].");

impl Operation {
    fn text(summary: &'static str) -> Self {
        let reply = Reply {
            status: 200,
            about: "Yes.",
            kind: "text/plain",
            schema: json!({"type": "string"}),
        };
        Self { summary, query: Vec::new(), body: None, replies: vec![reply], problems: Vec::new() }
    }

    fn json<T: JsonSchema>(generator: &mut SchemaGenerator, summary: &'static str) -> Self {
        let schema = generator.subschema_for::<T>().to_value();
        let reply = Reply { status: 200, about: "The answer.", kind: JSON, schema };
        Self { replies: vec![reply], ..Self::text(summary) }
    }

    /// Another answer that looks like the first.
    fn or(mut self, status: u16, about: &'static str) -> Self {
        if let Some(Reply { kind, schema, .. }) = self.replies.first() {
            let reply = Reply { status, about, kind, schema: schema.clone() };
            self.replies.push(reply);
        }
        self
    }

    fn failing(self, problems: &[(u16, &'static str)]) -> Self {
        Self { problems: problems.to_vec(), ..self }
    }

    fn with_body(self, required: bool, schema: Value) -> Self {
        Self { body: Some(Body { schema, required }), ..self }
    }

    fn asking(self, query: Vec<Parameter>) -> Self {
        Self { query, ..self }
    }
}

/// An answer that goes on, and that a schema does not reach into.
fn events() -> Operation {
    let mut operation = Operation::text("What each second brought, as server-sent events.");
    for reply in &mut operation.replies {
        (reply.kind, reply.about) = (KIND, "Events, until one leaves.");
    }
    operation.failing(&[
        (429, "Too many listen from this address already."),
        (503, "Too many listen already."),
    ])
}

pub(super) fn operation(call: Call, generator: &mut SchemaGenerator) -> Operation {
    match call {
        Call::Live => Operation::text("Whether the process runs."),
        Call::Ready => Operation::text("Whether it should get requests.").or(503, "No."),
        Call::Metrics => Operation::text("Prometheus series, exposition format 0.0.4."),
        Call::Events => events(),
        Call::OpenApi => {
            Operation::json::<serde_json::Map<String, Value>>(generator, "This document.")
        }
        Call::Status => Operation::json::<Status>(generator, "What runs, and how it is."),
        Call::Policy => {
            Operation::json::<Policy>(generator, "The rules in force, without secrets.")
        }
        Call::Reloads => {
            Operation::json::<Reloads<'_>>(generator, "The last files taken or rejected.")
        }
        Call::Upstreams => Operation::json::<Upstreams>(generator, "Who serves."),
        Call::Audit => Operation::json::<Refusals>(generator, "Who was refused by what, and when.")
            .asking(audit_query())
            .failing(&[BAD]),
        Call::Top => Operation::json::<Top>(generator, "Who asks most, or is refused most.")
            .asking(top_query())
            .failing(&[BAD]),
        Call::Buckets => Operation::json::<Buckets>(generator, "What one client has left.")
            .asking(who())
            .failing(&[BAD, NO_CLIENT]),
        Call::Reset => adjust(generator, "Fills a client's buckets.")
            .with_body(false, object(&json!({ "rule": name() }), &[])),
        Call::Grant => adjust(generator, "Gives a client tokens.")
            .with_body(true, object(&json!({ "rule": name(), "tokens": tokens() }), &["tokens"])),
        Call::ShowBreaker => {
            Operation::json::<Breaker>(generator, "Whether Redis is asked.").failing(&[NO_REDIS])
        }
        Call::SetBreaker => {
            let state = json!({ "type": "string", "enum": ["open", "closed", "auto"] });
            Operation::json::<Breaker>(
                generator,
                "Sets or ends the override of the circuit breaker.",
            )
            .with_body(true, object(&json!({ "state": state }), &["state"]))
            .failing(&[BAD, NO_REDIS])
        }
        Call::Explain => {
            Operation::json::<Explanation>(generator, "What would become of a request, and why.")
                .with_body(true, asked())
                .failing(&[BAD])
        }
        Call::Reload => Operation::json::<Reload<'_>>(generator, "Reads gateway.toml again.")
            .or(422, "The file was not taken.")
            .failing(&[(503, "The file system does not answer. The file before stays in force.")]),
    }
}

fn adjust(generator: &mut SchemaGenerator, summary: &'static str) -> Operation {
    Operation::json::<Adjusted>(generator, summary).asking(who()).failing(&[
        BAD,
        NO_CLIENT,
        (409, "The rule does not apply, or counts by what was not said."),
        (503, "Redis cannot be asked, or did not answer; `done` says which."),
    ])
}

fn parameter(name: &'static str, about: &'static str) -> Parameter {
    Parameter { name, about, schema: json!({ "type": "string" }) }
}

fn audit_query() -> Vec<Parameter> {
    let limit = json!({ "type": "integer", "minimum": 1, "maximum": 1_000 });
    vec![
        parameter("key", "Of this key alone, by its id."),
        parameter("ip", "Of this address alone, or of what is shown of one."),
        parameter("rule", "By this rule alone."),
        parameter(
            "since",
            "That went on at this moment or later: RFC 3339, or `15m`: so long ago.",
        ),
        parameter("until", "That had begun by this moment."),
        Parameter { schema: limit, ..parameter("limit", "How many; 100.") },
    ]
}

fn top_query() -> Vec<Parameter> {
    let words = json!({ "type": "string", "enum": ["requests", "refused"] });
    let limit = json!({ "type": "integer", "minimum": 1, "maximum": 100 });
    vec![
        parameter("rule", "One rule alone."),
        Parameter { schema: words, ..parameter("by", "What they are sorted by.") },
        Parameter { schema: limit, ..parameter("limit", "How many of each rule; 20.") },
    ]
}

/// What may be said of a client's request.
fn who() -> Vec<Parameter> {
    let list = json!({ "type": "array", "items": { "type": "string" } });
    vec![
        parameter("path", "The path of a request that it might make."),
        parameter("method", "Its method."),
        parameter("host", "Its host."),
        parameter("route", "The route, in place of `path`."),
        Parameter { schema: list, ..parameter("header", "`name:value`, or `name`: not sent.") },
        parameter("ip", "Of a key: the address that it comes from."),
        parameter("key", "Of an address: the id of the key that it sends."),
    ]
}

fn name() -> Value {
    json!({ "type": ["string", "null"], "description": "One rule alone." })
}

fn tokens() -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": 9_007_199_254_740_992_u64 })
}

fn object(properties: &Value, required: &[&str]) -> Value {
    json!({
        "type": "object", "properties": properties, "required": required,
        "additionalProperties": false,
    })
}

/// A request by hand.
fn asked() -> Value {
    let text = || json!({ "type": ["string", "null"] });
    let values = json!({ "anyOf": [
        { "type": "string" }, { "type": "array", "items": { "type": "string" } },
    ] });
    let headers = json!({ "type": ["object", "null"], "additionalProperties": values });
    let properties = json!({
        "method": text(), "path": text(), "host": text(), "headers": headers, "key": text(),
        "ip": text(),
    });
    object(&properties, &[])
}
