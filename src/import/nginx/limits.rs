//! `limit_req` and `limit_conn` with their zones.

use std::collections::HashMap;

use super::scope::{Scope, variables};
use super::servers::Server;
use super::{Directive, Importer, Place};
use crate::config::foreign;
use crate::import::note::Notes;
use crate::import::settings::{Imported, Settings};
use crate::import::values;

/// The zones by name.
#[derive(Debug, Default)]
pub(super) struct Zones(HashMap<String, Zone>);

#[derive(Debug)]
struct Zone {
    place: Place,
    shown: String,
    /// What its buckets are counted by, as nginx writes it.
    key: String,
    rate: Option<Rate>,
}

#[derive(Debug, Clone, Copy)]
struct Rate {
    count: u64,
    period_ms: u64,
}

/// The zones of the level `http`.
pub(super) fn zones(http: &[Directive], notes: &mut Notes) -> Zones {
    let mut zones = HashMap::new();
    for directive in http {
        let is_rate = directive.name == "limit_req_zone";
        if !is_rate && directive.name != "limit_conn_zone" {
            continue;
        }
        let name = directive.value("zone").and_then(|zone| zone.split(':').next());
        let rate = directive.value("rate").and_then(rate);
        let (Some(name), true) = (name, !is_rate || rate.is_some()) else {
            notes.omitted(directive.place, directive.shown(), "it has no name or no rate");
            continue;
        };
        let zone = Zone {
            place: directive.place,
            shown: directive.shown(),
            key: directive.first().to_owned(),
            rate,
        };
        zones.insert(name.to_owned(), zone);
    }
    Zones(zones)
}

/// A rate such as `10r/s`.
fn rate(text: &str) -> Option<Rate> {
    let (count, unit) = text.split_once("r/")?;
    let period_ms = match unit {
        "s" => 1_000,
        "m" => 60_000,
        _ => return None,
    };
    count.parse().ok().filter(|count| *count > 0).map(|count| Rate { count, period_ms })
}

/// Adds the limits that apply in a scope to the rules, for a route.
pub(super) fn add(
    importer: &Importer<'_>,
    zones: &Zones,
    scope: &Scope<'_>,
    server: &Server,
    route: &str,
    imported: &mut Imported,
) {
    for name in ["limit_req", "limit_conn"] {
        let is_shadow = scope.is_on(&format!("{name}_dry_run"));
        for directive in scope.all(name) {
            let Some((zone_name, zone)) = zone(directive, zones) else {
                imported.notes.omitted(
                    directive.place,
                    directive.shown(),
                    "its zone is in none of the files",
                );
                continue;
            };
            let settings = if name == "limit_req" {
                requests(directive, zone, &mut imported.notes)
            } else {
                connections(directive, &mut imported.notes)
            };
            let Some(mut settings) = settings else { continue };
            if is_shadow {
                settings.set("mode", "shadow");
            }
            let key = key(importer, zone, &mut imported.notes);
            let zone = (zone_name, zone.place);
            apply(zone, &key, &settings, server, route, imported);
        }
    }
}

/// The zone that a limit names.
fn zone<'a>(directive: &Directive, zones: &'a Zones) -> Option<(&'a str, &'a Zone)> {
    let name = directive.value("zone").unwrap_or(directive.first());
    zones.0.get_key_value(name).map(|(name, zone)| (name.as_str(), zone))
}

/// The rule of a `limit_req`.
fn requests(directive: &Directive, zone: &Zone, notes: &mut Notes) -> Option<Settings> {
    let rate = zone.rate?;
    let text = values::rate(rate.count, rate.period_ms)?;
    let burst: u64 = directive.value("burst").and_then(|it| it.parse().ok()).unwrap_or(0);
    let bucket = Settings::default().with("rate", text.as_str());
    let capacity = i64::try_from(burst.saturating_add(1)).unwrap_or(i64::MAX);
    // The shortest delay is 1 ms.
    let is_short = burst.saturating_mul(rate.period_ms) < rate.count;
    if burst == 0 || directive.has("nodelay") || is_short {
        return Some(bucket.with("burst", capacity));
    }
    if directive.value("delay").is_some() {
        notes.approximate(
            directive.place,
            directive.shown(),
            "requests of the burst pass at once: that some of them wait is not supported",
        );
        return Some(bucket.with("burst", capacity));
    }
    let delay_ms = burst.saturating_mul(rate.period_ms) / rate.count;
    if delay_ms > 600_000 {
        notes.approximate(
            directive.place,
            directive.shown(),
            "a request waits for 10 minutes at most",
        );
    }
    Some(
        Settings::default()
            .with("kind", "leaky_bucket")
            .with("rate", text)
            .with("max_delay", values::time(delay_ms.clamp(1, 600_000))),
    )
}

/// The rule of a `limit_conn`.
fn connections(directive: &Directive, notes: &mut Notes) -> Option<Settings> {
    let limit = directive.arguments.last().and_then(|it| it.parse::<i64>().ok());
    let Some(limit) = limit.filter(|limit| *limit > 0) else {
        notes.omitted(directive.place, directive.shown(), "it has no number");
        return None;
    };
    Some(Settings::default().with("kind", "concurrency").with("limit", limit.min(1_000_000)))
}

/// What a zone counts by.
struct Key {
    per: Vec<String>,
    /// Whether each server has a bucket of its own.
    is_by_server: bool,
}

/// What the key of a zone is here.
fn key(importer: &Importer<'_>, zone: &Zone, notes: &mut Notes) -> Key {
    let mut key = Key { per: Vec::new(), is_by_server: false };
    // A text without variables is one bucket for all.
    for variable in variables(&zone.key) {
        let (place, shown) = (zone.place, &zone.shown);
        let name = match (variable, dimension(variable)) {
            (
                "http_x_forwarded_for"
                | "proxy_add_x_forwarded_for"
                | "http_x_real_ip"
                | "http_cf_connecting_ip",
                _,
            ) => {
                let why = "it counts by the address, which is that of `X-Forwarded-For` behind `server.trusted_proxies`";
                notes.approximate(place, shown, why);
                "ip".to_owned()
            }
            // Not by host: a server may have many.
            ("server_name", _) => {
                key.is_by_server = servers(importer) > 1;
                continue;
            }
            (_, Some(name)) if name == "route" => {
                notes.approximate(
                    place,
                    shown,
                    "it counts by route, not by URL, whose spelling could avoid the limit",
                );
                name
            }
            (_, Some(name)) => name,
            _ => of_map(importer, variable, zone, notes),
        };
        if !name.is_empty() && !key.per.contains(&name) {
            key.per.push(name);
        }
    }
    key
}

/// What a variable of nginx itself is here: others, which the file sets, may have any name.
fn dimension(variable: &str) -> Option<String> {
    let known = [
        "binary_remote_addr",
        "remote_addr",
        "request_method",
        "host",
        "uri",
        "request_uri",
        "document_uri",
        "ssl_client_s_dn",
        "ssl_client_fingerprint",
    ];
    let is_known = known.contains(&variable) || variable.starts_with("http_");
    foreign::dimension(variable).filter(|_| is_known)
}

fn servers(importer: &Importer<'_>) -> usize {
    importer.http.iter().filter(|it| it.name == "server").count()
}

/// What a variable of `map` or `geo` counts by: a variable among its values.
fn of_map(importer: &Importer<'_>, variable: &str, zone: &Zone, notes: &mut Notes) -> String {
    let map = importer.map(&format!("${variable}"));
    let values = map.map(Directive::inner).unwrap_or_default().iter();
    let counted = values.filter_map(|it| it.arguments.last()).find_map(|value| {
        foreign::dimension(value.strip_prefix('$')?).filter(|name| !name.is_empty())
    });
    match counted {
        Some(name) => {
            notes.approximate(
                zone.place,
                &zone.shown,
                "clients for which the map has an empty value are limited: write `exempt = { ips = [\"10.0.0.0/8\"] }` in the rule",
            );
            name
        }
        None => {
            let why =
                format!("`${variable}` is not known here: it counts by the address of the client");
            notes.approximate(zone.place, &zone.shown, why);
            "ip".to_owned()
        }
    }
}

/// Adds a route to the rule of these settings, which is made if it is not there.
fn apply(
    (name, place): (&str, Place),
    key: &Key,
    settings: &Settings,
    server: &Server,
    route: &str,
    imported: &mut Imported,
) {
    let per: Vec<toml::Value> = key.per.iter().map(|name| name.as_str().into()).collect();
    let mut wanted = Settings::default().with("per", per);
    for (name, value) in settings.iter() {
        wanted.set(name, value.clone());
    }
    let is_same = |known: &Settings| {
        let mut known = known.clone();
        known.remove("routes");
        known == wanted
    };
    let Imported { rules, routes, notes, .. } = imported;
    let is_of_server = |known: &Settings| {
        let list = known.get("routes").and_then(toml::Value::as_array);
        let first = list.and_then(|list| routes.index(list.first()?.as_str()?));
        !key.is_by_server || first.is_some_and(|first| first >= server.first_route)
    };
    let mut others = false;
    for rule in rules.iter_mut().filter(|rule| rule.place == place && is_of_server(rule.settings)) {
        if is_same(rule.settings) {
            rule.settings.extend("routes", [route.to_owned()]);
            return;
        }
        others = true;
    }
    if others {
        let why = "locations with different bursts have a rule each: its buckets are not shared";
        notes.approximate(place, format!("zone {name}"), why);
    }
    wanted.extend("routes", [route.to_owned()]);
    rules.add(name, place, wanted);
}
