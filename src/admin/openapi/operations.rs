//! Parameters and responses of each operation of the admin port. A new route needs an entry here.

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

use crate::admin::certificates::Certificates;
use crate::admin::clients::adjust::Adjusted;
use crate::admin::events::KIND;
use crate::admin::policy::Policy;
use crate::admin::routes::Call;
use crate::api::audit::Refusals;
use crate::api::bans::{Ban, Bans, Lifted, NewBan};
use crate::api::clients::{ClientBuckets, Top};
use crate::api::keys::{
    ClientChange, Imported, IssuedKey, NewClient, RemovedClient, Rotation, StoredClient,
    StoredClients,
};
use crate::api::reloads::{Answer as Reload, DryRun, Reloads};
use crate::api::samples::SampleRange;
use crate::api::status::{Breaker, Status};
use crate::api::top_ups::{RevokedTopUp, TopUps};
use crate::api::upgrade::Upgraded;
use crate::api::upstreams::{UpstreamHealth, Upstreams};
use crate::api::usage::{Usage, UsageByDay};
use crate::explain::report::Explanation;

/// The description of one operation.
pub(super) struct Operation {
    pub(super) summary: &'static str,
    pub(super) query: Vec<Parameter>,
    pub(super) body: Option<Body>,
    /// Responses that are not problem documents.
    pub(super) replies: Vec<Reply>,
    /// Problem documents, besides those of every operation.
    pub(super) problems: Vec<(u16, &'static str)>,
}

/// A parameter of the query.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) schema: Value,
}

/// The body of a request.
pub(super) struct Body {
    pub(super) kind: &'static str,
    pub(super) schema: Value,
    pub(super) required: bool,
}

/// A response of an operation, by its status.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) about: &'static str,
    pub(super) kind: &'static str,
    pub(super) schema: Value,
}

const JSON: &str = "application/json";

const BAD: (u16, &str) = (400, "The body, a parameter or an address is invalid.");

const NO_CLIENT: (u16, &str) = (404, "The file has no such client or route.");

const NO_REDIS: (u16, &str) = (409, "The file has no [redis].");

impl Operation {
    fn text(summary: &'static str) -> Self {
        let reply = Reply {
            status: 200,
            about: "OK",
            kind: "text/plain",
            schema: json!({"type": "string"}),
        };
        Self { summary, query: Vec::new(), body: None, replies: vec![reply], problems: Vec::new() }
    }

    fn json<T: JsonSchema>(generator: &mut SchemaGenerator, summary: &'static str) -> Self {
        let schema = generator.subschema_for::<T>().to_value();
        let reply = Reply { status: 200, about: "OK", kind: JSON, schema };
        Self { replies: vec![reply], ..Self::text(summary) }
    }

    /// Adds a response with the same schema as the first.
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
        Self { body: Some(Body { kind: JSON, schema, required }), ..self }
    }

    fn with_query(self, query: Vec<Parameter>) -> Self {
        Self { query, ..self }
    }
}

/// A stream, whose content is not described by a schema.
fn events() -> Operation {
    let mut operation = Operation::text("Streams one sample per second as server-sent events.");
    for reply in &mut operation.replies {
        (reply.kind, reply.about) = (KIND, "A stream of events, until the client disconnects.");
    }
    operation.failing(&[
        (429, "Too many streams are open from this address."),
        (503, "Too many streams are open."),
    ])
}

/// Usage of quotas, in two forms.
fn usage(generator: &mut SchemaGenerator) -> Operation {
    let summary =
        "What clients used of their quotas, by client, rule and period, or by day and route.";
    let mut operation =
        Operation::json::<Usage>(generator, summary).with_query(usage_query()).failing(&[
            BAD,
            (
                409,
                "The period has ended, and the file has neither [redis] nor usage.file; or usage is not kept by day \
                 or route.",
            ),
            (503, "Redis or the file of usage cannot be read."),
        ]);
    let by_day = generator.subschema_for::<UsageByDay>().to_value();
    for reply in operation.replies.iter_mut().filter(|reply| reply.status == 200) {
        reply.schema = json!({ "anyOf": [reply.schema.take(), by_day.clone()] });
    }
    for kind in ["text/csv", "application/jsonl"] {
        let schema = json!({"type": "string"});
        operation.replies.push(Reply { status: 200, about: "OK", kind, schema });
    }
    operation
}

fn set_breaker(generator: &mut SchemaGenerator) -> Operation {
    let state = json!({ "type": "string", "enum": ["open", "closed", "auto"] });
    Operation::json::<Breaker>(generator, "Sets or ends the override of the circuit breaker.")
        .with_body(true, object(&json!({ "state": state }), &["state"]))
        .failing(&[BAD, NO_REDIS])
}

/// Clients that are refused for longer.
fn bans(call: Call, generator: &mut SchemaGenerator) -> Operation {
    const NO_BAN: (u16, &str) = (404, "There is no such ban, client or route.");
    let client = || {
        vec![
            parameter("rule", "Only bans of this rule."),
            parameter("key", "Only those of the client with the key of this id."),
            parameter("token", "Only those of the client with a token of this id."),
            parameter(
                "tenant",
                "Only those of this tenant, by rules that count its clients together.",
            ),
            parameter("ip", "Only those of this address; for IPv6, of its network."),
        ]
    };
    match call {
        Call::BeginBan => {
            let body = generator.subschema_for::<NewBan>().to_value();
            let summary = "Bans a client, or sets the end of its ban.";
            Operation::json::<Ban>(generator, summary)
                .with_body(true, body)
                .with_query(client_request())
                .failing(&[
                    BAD,
                    NO_BAN,
                    (409, "The rule has no `ban`, does not apply, or counts by a value that was not given."),
                    (503, "There are too many bans."),
                ])
        }
        Call::LiftBans => {
            let mut query = client();
            query.push(parameter("id", "The ban of this id, instead of those of a client."));
            Operation::json::<Lifted>(generator, "Lifts bans: one, or those of a client.")
                .with_query(query)
                .failing(&[BAD, NO_BAN])
        }
        _ => {
            let limit = json!({ "type": "integer", "minimum": 1, "maximum": 1_000 });
            let mut query = client();
            query.push(parameter("cursor", "The member `next` of the previous response."));
            let about = "Maximum number of bans; 100 by default.";
            query.push(Parameter { schema: limit, ..parameter("limit", about) });
            Operation::json::<Bans>(generator, "Bans in force.").with_query(query).failing(&[BAD])
        }
    }
}

/// The clients of the key store.
fn keys(call: Call, generator: &mut SchemaGenerator) -> Operation {
    const NO_STORE: (u16, &str) = (409, "The file has no [key_store].");
    const AWAY: (u16, &str) = (503, "The key store cannot be read or written.");
    let about_one = |summary, generator: &mut SchemaGenerator| {
        Operation::json::<StoredClient>(generator, summary).failing(&[
            BAD,
            (404, "The key store has no such client."),
            (409, "The file has no [key_store], another client has the key, or the record cannot be read."),
            (412, "The version of the client is not that of If-Match."),
            AWAY,
        ])
    };
    match call {
        Call::Keys => Operation::json::<StoredClients>(generator, "Clients of the key store.")
            .with_query(keys_query())
            .failing(&[BAD, NO_STORE, AWAY]),
        Call::CreateKey => {
            let body = generator.subschema_for::<NewClient>().to_value();
            let mut operation =
                Operation::json::<StoredClient>(generator, "Creates a client with an API key.")
                    .with_body(true, body)
                    .failing(&[
                        BAD,
                        (409, "The file has no [key_store], or there is such a client or key."),
                        AWAY,
                    ]);
            let schema = generator.subschema_for::<IssuedKey>().to_value();
            operation.replies.push(Reply { status: 201, about: "Created", kind: JSON, schema });
            operation
        }
        Call::ImportKeys => {
            let summary = "Creates many clients with the hashes of their keys: JSON Lines.";
            Operation::json::<Imported>(generator, summary)
                .with_body(false, json!({ "type": "string" }))
                .failing(&[BAD, NO_STORE, AWAY])
        }
        Call::PatchKey => {
            let body = generator.subschema_for::<ClientChange>().to_value();
            about_one("Changes a client.", generator).with_body(true, body)
        }
        Call::RemoveKey => {
            let problems = about_one("", generator).problems;
            Operation::json::<RemovedClient>(generator, "Removes a client.").failing(&problems)
        }
        Call::RotateKey => {
            let body = generator.subschema_for::<Rotation>().to_value();
            let problems = about_one("", generator).problems;
            Operation::json::<IssuedKey>(generator, "Makes a new API key for a client.")
                .with_body(false, body)
                .failing(&problems)
        }
        Call::DisableKey => about_one("Ends the service for a client.", generator),
        Call::EnableKey => about_one("Serves a client again.", generator),
        _ => about_one("A client of the key store.", generator),
    }
}

fn keys_query() -> Vec<Parameter> {
    let text = || json!({ "type": "string" });
    let parameter = |name, about, schema| Parameter { name, about, schema };
    vec![
        parameter("cursor", "The member `next` of the previous response.", text()),
        parameter("plan", "Only clients of this plan.", text()),
        parameter("tenant", "Only clients of this tenant.", text()),
        parameter(
            "metadata",
            "Only clients with this text, `owner=anna`, or with any text of this name, `owner`. Can \
             be repeated.",
            text(),
        ),
        parameter(
            "limit",
            "Maximum number of clients; 100 by default.",
            json!({ "type": "integer", "minimum": 1, "maximum": 1_000 }),
        ),
    ]
}

pub(super) fn operation(call: Call, generator: &mut SchemaGenerator) -> Operation {
    match call {
        Call::Live => Operation::text("Liveness of the process."),
        Call::Ready => Operation::text("Readiness for requests.").or(503, "Not ready."),
        Call::Metrics => Operation::text("Metrics in the Prometheus exposition format 0.0.4."),
        Call::Events => events(),
        Call::Samples => Operation::json::<SampleRange>(
            generator,
            "Samples of a range of the last 24 hours.",
        )
        .with_query(range_query())
        .failing(&[BAD]),
        Call::OpenApi => {
            Operation::json::<serde_json::Map<String, Value>>(generator, "This document.")
        }
        Call::Status => Operation::json::<Status>(generator, "State of the gateway."),
        Call::Policy => {
            Operation::json::<Policy>(generator, "The configuration in force, without secrets.")
        }
        Call::Reloads => Operation::json::<Reloads>(generator, "The last reloads."),
        Call::Upstreams => Operation::json::<Upstreams>(generator, "Upstreams and their health."),
        Call::Drain | Call::Disable | Call::Enable => order(call, generator),
        Call::Certificates => Operation::json::<Certificates>(
            generator,
            "Certificates of the listeners, and failures.",
        ),
        Call::Audit => Operation::json::<Refusals>(generator, "Searches the audit of refusals.")
            .with_query(audit_query())
            .failing(&[BAD, (409, "The file has no stream, and `all` is `true`.")]),
        Call::Usage => usage(generator),
        Call::Top => {
            Operation::json::<Top>(generator, "The clients with the most requests or refusals.")
                .with_query(top_query())
                .failing(&[BAD])
        }
        Call::Bans | Call::BeginBan | Call::LiftBans => bans(call, generator),
        Call::Buckets => Operation::json::<ClientBuckets>(generator, "The buckets of one client.")
            .with_query(client_request())
            .failing(&[BAD, NO_CLIENT]),
        Call::Reset => adjust(generator, "Fills the buckets of a client.")
            .with_body(false, object(&json!({ "rule": name() }), &[])),
        Call::Grant => adjust(generator, "Adds tokens to the buckets of a client.")
            .with_body(true, object(&granted(), &["tokens"])),
        Call::TopUps | Call::RevokeTopUp => top_ups(call, generator),
        Call::ShowBreaker => Operation::json::<Breaker>(generator, "State of the circuit breaker.")
            .failing(&[NO_REDIS]),
        Call::SetBreaker => set_breaker(generator),
        Call::Explain => {
            Operation::json::<Explanation>(generator, "Explains the response to a request.")
                .with_body(true, request())
                .failing(&[BAD])
        }
        Call::Keys
        | Call::CreateKey
        | Call::ImportKeys
        | Call::Key
        | Call::PatchKey
        | Call::RemoveKey
        | Call::RotateKey
        | Call::DisableKey
        | Call::EnableKey => keys(call, generator),
        Call::Reload => reload(generator),
        Call::Upgrade => Operation::json::<Upgraded>(
            generator,
            "Starts the program on disk, which takes over the listening sockets; this process drains.",
        )
        .failing(&[
            (409, "Another upgrade runs, this process stops, or an endpoint got an order meanwhile."),
            (503, "The new process did not get ready. This one serves as before."),
        ]),
    }
}

/// A reload, or a dry run of one.
fn reload(generator: &mut SchemaGenerator) -> Operation {
    let mut operation = Operation::json::<Reload>(
        generator,
        "Reloads gateway.toml, or says what a reload would do.",
    );
    let dry_run = generator.subschema_for::<DryRun>().to_value();
    for reply in &mut operation.replies {
        reply.schema = json!({ "anyOf": [reply.schema.take(), dry_run.clone()] });
    }
    let schema =
        json!({ "type": "string", "description": "A gateway.toml to check, of up to 4 MiB." });
    let wanted = json!({ "type": "string", "enum": ["true", "false"] });
    let about = "`true`: nothing is applied. Of the body, or of the gateway's file without one.";
    let body = Body { kind: "application/toml", schema, required: false };
    Operation { body: Some(body), ..operation }
        .with_query(vec![Parameter { schema: wanted, ..parameter("dry_run", about) }])
        .or(422, "The file is rejected.")
        .failing(&[
            (400, "The query is invalid, or there is a body without `dry_run=true`."),
            (503, "The file system does not respond. The configuration does not change."),
        ])
}

fn order(call: Call, generator: &mut SchemaGenerator) -> Operation {
    let summary = match call {
        Call::Drain => "Sends an endpoint no more requests, but those whose cookie selects it.",
        Call::Disable => "Sends an endpoint no more requests.",
        _ => "Takes the order to drain or disable an endpoint back.",
    };
    let scopes = json!({ "type": "string", "enum": ["gateway", "all"] });
    let about = "`all`: all gateways with the same Redis get the order. Otherwise only this one.";
    Operation::json::<UpstreamHealth>(generator, summary)
        .with_query(vec![Parameter { schema: scopes, ..parameter("scope", about) }])
        .failing(&[
            BAD,
            (404, "The file has no such upstream, or that has no such server or address."),
            (409, "The order is for all gateways, and there is no `[redis]`."),
            (503, "Another process has taken over in an upgrade. Repeat it."),
        ])
}

fn adjust(generator: &mut SchemaGenerator, summary: &'static str) -> Operation {
    Operation::json::<Adjusted>(generator, summary).with_query(client_request()).failing(&[
        BAD,
        NO_CLIENT,
        (409, "The rule does not apply, or counts by a value that was not given."),
        (503, "Redis is unavailable (`done` is `no`) or did not respond (`unknown`)."),
    ])
}

/// What clients have beyond their quotas until a time.
fn top_ups(call: Call, generator: &mut SchemaGenerator) -> Operation {
    const AWAY: (u16, &str) =
        (503, "Redis is unavailable (`done` is `no`) or did not respond (`unknown`).");
    if call == Call::RevokeTopUp {
        let summary = "Takes away what is left of a top-up.";
        let no_top_up =
            (404, "The client has no such top-up, or there is no such client or route.");
        let several = (409, "The client has top-ups with this id under several rules.");
        let mut query = client_request();
        query.push(parameter("rule", "Only a top-up under this rule."));
        let operation = Operation::json::<RevokedTopUp>(generator, summary);
        operation.failing(&[BAD, no_top_up, several, AWAY]).with_query(query)
    } else {
        let summary = "Top-ups of a client that can be used.";
        let operation = Operation::json::<TopUps>(generator, summary);
        operation.failing(&[BAD, NO_CLIENT, AWAY]).with_query(client_request())
    }
}

fn parameter(name: &'static str, about: &'static str) -> Parameter {
    Parameter { name, about, schema: json!({ "type": "string" }) }
}

fn audit_query() -> Vec<Parameter> {
    let limit = json!({ "type": "integer", "minimum": 1, "maximum": 1_000 });
    vec![
        parameter(
            "kind",
            "Only runs of these kinds, separated by commas: `limit` (429), `unavailable` (503), \
             `unauthorized` (401), `shadow` (allowed, but refused by a rule if it were enforced); \
             `change`: changes by callers of the admin API.",
        ),
        parameter(
            "key",
            "Only refusals of the key with this id, and changes of it. Also called `key_id`.",
        ),
        parameter(
            "tenant",
            "Only refusals of clients of this tenant, and changes of it or its clients.",
        ),
        parameter(
            "by",
            "Only changes by this caller: the name of a token, or `client` for clients that replace \
             their own keys.",
        ),
        parameter(
            "ip",
            "Only refusals of this address, or of its hash as the access log shows it.",
        ),
        parameter("rule", "Only refusals by this rule."),
        parameter(
            "since",
            "Only runs that ended at this time or later: a time of day such as `10:03`, a date and a \
             time (RFC 3339), or an age such as `15m`. Also called `from`.",
        ),
        parameter("until", "Only runs that began at this time or earlier. Also called `to`."),
        parameter(
            "at",
            "Only runs in the minute that begins at this time, instead of `since` and `until`.",
        ),
        parameter("zone", "Zone of times without an offset; default: that of the gateway."),
        Parameter { schema: limit, ..parameter("limit", "Maximum number of runs; default 100.") },
        Parameter {
            schema: json!({ "type": "boolean" }),
            ..parameter("all", "Also runs of all other gateways, from the streams in Redis.")
        },
    ]
}

fn range_query() -> Vec<Parameter> {
    vec![
        parameter(
            "from",
            "Beginning of the range: RFC 3339, or an age such as `6h`; default 5 minutes before `to`. Also called \
             `since`.",
        ),
        parameter("to", "End of the range; default now. Also called `until`."),
    ]
}

fn usage_query() -> Vec<Parameter> {
    let formats = json!({ "type": "string", "enum": ["json", "csv", "jsonl"] });
    let lists = json!({ "type": "string", "enum": ["period", "day", "route"] });
    let limit = json!({ "type": "integer", "minimum": 1, "maximum": 10_000 });
    vec![
        Parameter {
            schema: lists,
            ..parameter(
                "by",
                "What usage is listed by; default `period`. Others need `usage.detail`.",
            )
        },
        parameter("client", "Only clients with this id, as the list shows it, of any kind."),
        parameter("tenant", "Only the tenant with this id."),
        parameter("plan", "Only clients that had this plan."),
        parameter("route", "Only this route, with `by=route`."),
        parameter(
            "month",
            "Only periods that begin in this month, such as `2026-11`, or the days of it; in the zone of each rule.",
        ),
        parameter("day", "The same for a day, such as `2026-11-28`."),
        parameter("rule", "Only this rule."),
        parameter("key", "Only the client with the key of this id. Also called `key_id`."),
        parameter(
            "ip",
            "Only the client with this address; for IPv6, with any address of its network.",
        ),
        parameter(
            "period",
            "`current` (default), `all`, or a time (RFC 3339) in the wanted periods. Other periods than the \
             current ones need `[redis]` or `usage.file`.",
        ),
        parameter(
            "since",
            "Instead of `period`: only periods that end after this time, as in `GET /api/audit`. Also called `from`.",
        ),
        parameter("until", "Only periods that begin at this time or earlier. Also called `to`."),
        parameter("zone", "Zone of times without an offset; default: that of the gateway."),
        Parameter { schema: formats, ..parameter("format", "Default `json`.") },
        Parameter { schema: limit, ..parameter("limit", "Maximum number; default 1000.") },
        parameter("cursor", "`next` of the previous response."),
    ]
}

fn top_query() -> Vec<Parameter> {
    let orders = json!({ "type": "string", "enum": ["requests", "refused"] });
    let limit = json!({ "type": "integer", "minimum": 1, "maximum": 100 });
    vec![
        parameter("rule", "Only this rule."),
        Parameter { schema: orders, ..parameter("by", "Sort order; default `requests`.") },
        Parameter { schema: limit, ..parameter("limit", "Maximum per rule; default 20.") },
    ]
}

/// Parameters that describe a request of the client.
fn client_request() -> Vec<Parameter> {
    let list = json!({ "type": "array", "items": { "type": "string" } });
    vec![
        parameter("path", "Path of the request."),
        parameter("method", "Method of the request."),
        parameter("host", "Host of the request."),
        parameter("route", "Name of the route, instead of `path`."),
        Parameter {
            schema: list,
            ..parameter("header", "A header, `name:value`; or `name` if it is not sent.")
        },
        parameter("ip", "Address of the client, if the path names a key."),
        parameter(
            "key",
            "Id of the client's key, if the path names an address. Also called `key_id`.",
        ),
    ]
}

fn name() -> Value {
    json!({ "type": ["string", "null"], "description": "Only this rule." })
}

fn reason() -> Value {
    json!({ "type": ["string", "null"], "maxLength": 200, "description": "Why, for the log." })
}

fn granted() -> Value {
    let above = "Also above the limit of the current period; the rule has to be a fixed window.";
    let above = json!({ "type": ["boolean", "null"], "description": above });
    let expires = "Beyond the limit until this time (RFC 3339), or for this duration such as `90d`, over the ends of \
                   periods; the rule has to be a fixed window.";
    let expires = json!({ "type": ["string", "null"], "description": expires });
    let id = "With `expires`: what identifies the top-up among those of the client under this rule. A call with an id \
              that was given before adds nothing; with other values, it is refused.";
    let pattern = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$";
    let id = json!({ "type": ["string", "null"], "pattern": pattern, "description": id });
    json!({
        "rule": name(), "tokens": tokens(), "above_limit": above, "expires": expires, "id": id,
        "reason": reason(),
    })
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

/// Body of `POST /api/explain`.
fn request() -> Value {
    let text = || json!({ "type": ["string", "null"] });
    let values = json!({ "anyOf": [
        { "type": "string" }, { "type": "array", "items": { "type": "string" } },
    ] });
    let headers = json!({ "type": ["object", "null"], "additionalProperties": values });
    let properties = json!({
        "method": text(), "path": text(), "host": text(), "headers": headers, "key": text(),
        "key_id": text(), "ip": text(),
    });
    object(&properties, &[])
}
