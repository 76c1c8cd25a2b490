//! Consumers with keys as clients.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};
use toml::{Table, Value};

use super::{Owner, Plugin, consumer_limits, items};
use crate::import::settings::{Imported, Settings};
use crate::import::yaml::Node;

/// Tables of a consumer with keys.
const CREDENTIALS: [&str; 3] =
    ["keyauth_credentials", "key_auth_credentials", "keyauth_enc_credentials"];

/// Takes over consumers with keys. Returns them with the names of their tables.
pub(super) fn import<'a>(
    documents: &'a [Node],
    plugins: &[Plugin<'_>],
    imported: &mut Imported,
) -> Vec<(&'a Node, String)> {
    let mut with_keys = Vec::new();
    for node in documents.iter().flat_map(|document| items(document, "consumers")) {
        let name = name(node);
        let what = format!("consumer {name}");
        let mut keys: Vec<&str> = Vec::new();
        for credential in CREDENTIALS.iter().flat_map(|table| items(node, table)) {
            keys.extend(credential.text_at(&["key"]));
            if let Some(ttl) = credential.get("ttl").filter(|ttl| ttl.number() != Some(0)) {
                let why = "a key does not expire so many seconds after its creation: write `expires` of the secret";
                imported.notes.omitted(ttl.place, format!("{what}: ttl"), why);
            }
        }
        for (kind, why) in [
            ("jwt_secrets", "tokens are verified by `[clients.jwt]`"),
            ("basicauth_credentials", "passwords are in `[clients.basic]`"),
            (
                "oauth2_credentials",
                "tokens are verified by `[clients.jwt]` or `[clients.introspection]`",
            ),
            ("hmacauth_credentials", "there are no signatures of requests"),
            ("acls", "groups are plans: `plan` of the key"),
        ] {
            if let Some(unknown) = node.get(kind) {
                imported.notes.omitted(unknown.place, format!("{what}: {kind}"), why);
            }
        }
        let is_own = |plugin: &&Plugin<'_>| match plugin.owner {
            Owner::Consumer(owner) => {
                std::ptr::eq(owner, node) && !consumer_limits::is_limit(plugin.name)
            }
            _ => false,
        };
        for plugin in plugins.iter().filter(is_own) {
            imported.notes.omitted(
                plugin.node.place,
                format!("{what}: plugin {}", plugin.name),
                instead(plugin.name),
            );
        }
        let mut settings = Settings::default();
        // `${vault://…}` and environment variables of other tools are no keys.
        let is_plain = |key: &&str| !key.is_empty() && !key.contains(['$', '{']);
        let (plain, other): (Vec<&str>, Vec<&str>) = keys.into_iter().partition(is_plain);
        if !other.is_empty() {
            let why = "its key is a reference: `tollgate hash-key --id` prints the table of a key";
            imported.notes.omitted(node.place, &what, why);
        }
        match plain.as_slice() {
            [] => continue,
            [key] => settings.set("sha256", hash(key)),
            keys => {
                let secrets = keys.iter().enumerate().map(|(number, key)| {
                    let mut secret = Table::new();
                    secret.insert("name".into(), (number + 1).to_string().into());
                    secret.insert("sha256".into(), hash(key).into());
                    Value::from(secret)
                });
                settings.set("secrets", secrets.collect::<Vec<_>>());
            }
        }
        with_keys.push((node, imported.keys.add(name, node.place, settings)));
    }
    with_keys
}

/// The name of a consumer.
pub(super) fn name(node: &Node) -> &str {
    node.text_at(&["username"]).or(node.text_at(&["custom_id"])).unwrap_or_default()
}

/// Whether a reference is to this consumer.
pub(super) fn is_named(node: &Node, reference: &str) -> bool {
    ["username", "custom_id", "id"].iter().any(|key| node.text_at(&[key]) == Some(reference))
}

/// What to do about a plugin of a consumer.
pub(super) fn instead(plugin: &str) -> &'static str {
    match plugin {
        "rate-limiting" | "rate-limiting-advanced" => {
            "limits of one client are `rules.<rule> = { rate = \"250/s\" }` in `[keys.<id>]`"
        }
        "request-termination" => {
            "its requests are allowed: if the consumer is that of `anonymous`, routes are open that it kept closed, write `on_missing_key = \"deny\"` in `[clients]`; else set `enabled = false` in `[keys.<id>]`"
        }
        "ip-restriction" => {
            "its key is valid from all addresses: write `allow_ips` and `deny_ips` of routes"
        }
        _ => "plugins are for all clients of a route",
    }
}

/// SHA-256 of a key as `[keys]` has it.
fn hash(key: &str) -> String {
    Sha256::digest(key).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
