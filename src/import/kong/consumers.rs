//! Consumers with keys as clients.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};
use toml::{Table, Value};

use super::{Plugin, items};
use crate::import::settings::{Imported, Settings};
use crate::import::yaml::Node;

/// Takes over consumers with keys.
pub(super) fn import(documents: &[Node], plugins: &[Plugin<'_>], imported: &mut Imported) {
    for node in documents.iter().flat_map(|document| items(document, "consumers")) {
        let name = node.text_at(&["username"]).or(node.text_at(&["custom_id"])).unwrap_or_default();
        let what = format!("consumer {name}");
        let keys: Vec<&str> = items(node, "keyauth_credentials")
            .iter()
            .chain(items(node, "key_auth_credentials"))
            .filter_map(|credential| credential.text_at(&["key"]))
            .collect();
        for (kind, why) in [
            ("jwt_secrets", "tokens are verified by `[clients.jwt]`"),
            ("basicauth_credentials", "passwords are in `[clients.basic]`"),
            (
                "oauth2_credentials",
                "tokens are verified by `[clients.jwt]` or `[clients.introspection]`",
            ),
            ("hmacauth_credentials", "there are no signatures of requests"),
            ("acls", "groups are plans: `plan` of the key"),
            ("groups", "groups are plans: `plan` of the key"),
        ] {
            if let Some(unknown) = node.get(kind) {
                imported.notes.omitted(unknown.place, format!("{what}: {kind}"), why);
            }
        }
        let of_consumer = plugins.iter().filter(|plugin| plugin.owner.consumer() == Some(name));
        for plugin in of_consumer {
            imported.notes.omitted(
                plugin.node.place,
                format!("{what}: plugin {}", plugin.name),
                "limits of one client are `rules.<rule> = { rate = \"250/s\" }` in `[keys.<id>]`",
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
        imported.keys.add(name, node.place, settings);
    }
}

/// SHA-256 of a key as `[keys]` has it.
fn hash(key: &str) -> String {
    Sha256::digest(key).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
