//! What the importer has not read: settings of tables in which it has looked for others.

use super::{snake, text};
use crate::import::note::Notes;
use crate::import::settings::Imported;
use crate::import::yaml::{Node, Pair};

/// Settings that say what the gateway does anyway, or name parts of Envoy.
const WITHOUT_EFFECT: [&str; 17] = [
    "@type",
    "name",
    "stat_prefix",
    "alt_stat_name",
    "cluster_name",
    "decorator",
    "metadata",
    "bind_to_port",
    "codec_type",
    "dns_lookup_family",
    "enable_reuse_port",
    "generate_request_id",
    "protocol",
    "respect_dns_ttl",
    "reuse_port",
    "traffic_direction",
    "use_remote_address",
];

/// Settings, and what to do about them.
const INSTEAD: [(&str, &str); 22] = [
    (
        "alpn_protocols",
        "a listener with certificates speaks HTTP/2 and HTTP/1.1, unless it has `http2 = false`",
    ),
    ("append_x_forwarded_host", "`X-Forwarded-Host` is always sent: docs/headers.md"),
    ("cipher_suites", "docs/tls.md has the cipher suites, which are always the same"),
    ("dns_refresh_rate", "names are looked up again when their answers expire: docs/names.md"),
    ("dns_resolvers", "write `resolvers` of `[server]`"),
    ("dns_resolution_config", "write `resolvers` of `[server]`"),
    ("drain_timeout", "write `drain_timeout` of `[server]`"),
    ("early_data_policy", "0-RTT is not accepted: docs/tls.md"),
    ("hedge_policy", "a request is sent to one server at a time"),
    ("host_rewrite_header", "write `upstream_host` of the route"),
    ("host_rewrite_path_regex", "write `upstream_host` of the route"),
    ("internal_redirect_policy", "redirects of servers are passed on to the client"),
    ("lb_subset_config", "write an upstream for each subset, and a route with `headers` for each"),
    ("max_retries", "write `budget` in `retries`"),
    ("max_stream_duration", "write `timeout` of the route"),
    (
        "merge_slashes",
        "such paths are matched in every way in which servers may read them: docs/routes.md",
    ),
    ("metadata_match", "write an upstream for these servers"),
    (
        "normalize_path",
        "such paths are matched in every way in which servers may read them: docs/routes.md",
    ),
    (
        "path_with_escaped_slashes_action",
        "such paths are matched in every way in which servers may read them: docs/routes.md",
    ),
    ("session_ticket_keys", "each gateway makes its own, which change every 6 hours: docs/tls.md"),
    ("stream_idle_timeout", "write `read_timeout` and `write_timeout` of `[server]`"),
    (
        "tls_maximum_protocol_version",
        "a listener speaks TLS 1.2 and 1.3, or with `min_tls = \"1.3\"` the latter",
    ),
];

/// Notes clusters that no route has, and settings of listeners and other clusters that nothing has
/// read.
pub(super) fn note(resources: &Node, imported: &mut Imported) {
    for pair in resources.pairs() {
        if pair.key == "listeners" {
            note_in(&pair.value, &mut imported.notes);
        }
        if pair.key == "clusters" {
            for cluster in pair.value.items() {
                if imported.upstreams.iter().any(|it| it.place == cluster.place) {
                    note_in(cluster, &mut imported.notes);
                } else {
                    let name = text(cluster, "name").unwrap_or_default();
                    let why = "no route forwards to it";
                    imported.notes.omitted(cluster.place, format!("cluster {name}"), why);
                }
            }
        }
    }
}

fn note_in(node: &Node, notes: &mut Notes) {
    for item in node.items() {
        note_in(item, notes);
    }
    for pair in node.pairs() {
        if pair.value.is_read() || !node.is_opened() {
            note_in(&pair.value, notes);
        } else {
            note_pair(node, pair, notes);
        }
    }
}

fn note_pair(node: &Node, pair: &Pair, notes: &mut Notes) {
    let key = snake(&pair.key);
    let is_noted_here = if pair.place == node.place {
        // The first setting of an item of a list: there may be a note about the item.
        notes.has_named(pair.place, &pair.key) || notes.has_named(pair.place, &key)
    } else {
        notes.has(pair.place)
    };
    let is_noted = is_noted_here || notes.has(pair.value.place);
    let is_only_type = pair.value.pairs().iter().all(|pair| pair.key == "@type");
    let is_empty = pair.value.is_empty() || !pair.value.pairs().is_empty() && is_only_type;
    if is_noted || is_empty || WITHOUT_EFFECT.contains(&&*key) {
        return;
    }
    let instead = INSTEAD.iter().find(|(known, _)| *known == key);
    let why = instead.map_or(
        "the importer does not know it: docs/configuration.md lists all settings",
        |(_, why)| why,
    );
    notes.omitted(pair.place, &key, why);
}
