//! `[redis]`.

use std::ops::Range;
use std::path::PathBuf;

use super::breaker;
use super::environment::{Environment, expand, expand_part};
use super::redis_url::{self, Url, UrlAddress};
use super::values::{duration, number, switch};
use super::words::meaning;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::tables::Field;
use crate::config::{Config, tables, words};
use crate::net::address::HostPort;
use crate::net::percent;
use crate::net::tls::{CertificateFiles, ClientTls};
use crate::policy::redis::{Address, Colocate, DEFAULT_PREFIX, Login, Redis, Secret, Sentinel};

/// The settings of Redis; none without the table or with an error.
pub(super) fn redis(
    config: &Config,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Redis> {
    let table = config.redis.as_ref()?;
    let redis = table.get_ref();
    let url = url(table, environment, diagnostics);
    let is_assumed = url.as_ref().is_some_and(|(_, is_assumed)| *is_assumed);
    let url = url.map(|(url, _)| url);
    let mut text = |row, field: &Option<Spanned<String>>| {
        expand(row, field.as_ref()?, environment, diagnostics)
    };
    let username = text(&tables::Redis::username, &redis.username);
    let password = text(&tables::Redis::password, &redis.password);
    let sentinel_username = text(&tables::Redis::sentinel_username, &redis.sentinel_username);
    let sentinel_password = text(&tables::Redis::sentinel_password, &redis.sentinel_password);
    let files = [
        text(&tables::Redis::ca, &redis.ca),
        text(&tables::Redis::client_cert, &redis.client_cert),
        text(&tables::Redis::client_key, &redis.client_key),
    ];
    let fields = [redis.username.as_ref(), redis.password.as_ref()];
    check_login("password", fields, password.as_deref(), diagnostics);
    let fields = [redis.sentinel_username.as_ref(), redis.sentinel_password.as_ref()];
    check_login("sentinel_password", fields, sentinel_password.as_deref(), diagnostics);
    let timeout = duration(&tables::Redis::timeout, &redis.timeout, diagnostics);
    let prefix = prefix(redis.prefix.as_ref(), diagnostics);
    let place = url.as_ref().map(|url| &url.address);
    let lanes = lanes(&redis.lanes, place, diagnostics);
    let colocate = colocate(redis.colocate.as_ref(), place, diagnostics);
    let database = number(&tables::Redis::database, &redis.database, diagnostics);
    if let (Some(url), false) = (&url, is_assumed) {
        check_against_url(url, redis, diagnostics);
    }
    let tls = tls(url.as_ref(), redis, files, diagnostics);
    let breaker = breaker::breaker(redis, url.as_ref().map(|url| &url.address), diagnostics);

    let url = url?;
    let fields = Login { username, password: password.map(Secret::new) };
    let address = match url.address {
        UrlAddress::Server(origin) => Address::Server(origin),
        UrlAddress::Socket(path) => Address::Socket(path),
        UrlAddress::Cluster(nodes) => Address::Cluster(nodes),
        UrlAddress::Sentinel(servers, master) => {
            let password = sentinel_password.map(Secret::new);
            let login = Login { username: sentinel_username, password };
            Address::Sentinel(Sentinel { servers, master, login })
        }
    };
    Some(Redis {
        address,
        tls,
        login: if url.login == Login::default() { fields } else { url.login },
        database: url.database.map_or_else(|| u32::try_from(database?).ok(), Some)?,
        timeout: timeout?,
        on_failure: meaning(redis.on_failure.as_ref()),
        prefix: prefix?,
        lanes: lanes?,
        colocate: colocate?,
        repair: switch(&tables::Redis::repair, &redis.repair),
        ready: meaning(redis.ready.as_ref()),
        start_without: meaning(redis.start_without.as_ref()),
        breaker: breaker?,
    })
}

/// Parses the url, with its variables replaced. The second part of the result: whether all of it is
/// assumed, because a reference that has no value may be any part of it.
fn url(
    table: &Spanned<tables::Redis>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<(Url, bool)> {
    let Some(field) = &table.get_ref().url else {
        if !diagnostics.explain_absence(&["redis", "url"]) {
            let help = "write `url = \"redis://127.0.0.1:6379\"`, or leave the table out";
            diagnostics.push(Diagnostic::new(table.span(), "`[redis]` has no `url`").help(help));
        }
        return None;
    };
    let text = field.get_ref();
    // A password from a variable or a file is encoded here, so that it may contain any character.
    let (login, rest) = text.split_at(redis_url::login_end(text).unwrap_or(0));
    let encoded = |value: String| percent::encode_component(&value);
    let login = expand_part(login, field, environment, &encoded, diagnostics);
    let rest = expand_part(rest, field, environment, &|value| value, diagnostics);
    let (login, rest) = (login?, rest?);
    match redis_url::parse(&format!("{}{}", login.text, rest.text)) {
        Ok(url) => Some((url, false)),
        Err(_) if login.is_assumed || rest.is_assumed => Some((assumed(table.get_ref()), true)),
        Err(mistake) => {
            diagnostics.push(mistake.at(field.span()));
            None
        }
    }
}

/// Any url that fits the other settings.
fn assumed(redis: &tables::Redis) -> Url {
    let server = HostPort { host: "assumed.invalid".to_owned(), port: 6379 };
    let tls = [&redis.ca, &redis.client_cert, &redis.client_key].into_iter().any(Option::is_some);
    let (login, database) = (Login::default(), None);
    Url { address: UrlAddress::Server(server), tls, login, database }
}

/// Reports a user without a password, and an empty password.
fn check_login(
    password_name: &str,
    [username, password]: [Option<&Spanned<String>>; 2],
    value: Option<&str>,
    diagnostics: &mut Diagnostics,
) {
    if let (Some(username), None) = (username, password)
        && !diagnostics.explain_absence(&["redis", password_name])
    {
        let message = "a user without a password cannot log in";
        let help = "add the password, best as `\"${NAME}\"` from the environment";
        diagnostics.push(Diagnostic::new(username.span(), message).help(help));
    }
    if let (Some(field), Some("")) = (password, value) {
        let help = "without a password, leave it out";
        diagnostics.push(Diagnostic::new(field.span(), "the password is empty").help(help));
    }
}

/// Reports settings that are also in the url, or that it has no use for.
fn check_against_url(url: &Url, redis: &tables::Redis, diagnostics: &mut Diagnostics) {
    let url_span = redis.url.as_ref().map_or(0..0, Spanned::span);
    let mut refuse = |span: Range<usize>, message: &str, help: &str| {
        let diagnostic = Diagnostic::new(span, message).and(url_span.clone(), "this url");
        diagnostics.push(diagnostic.help(help));
    };
    if url.login != Login::default() {
        for field in [&redis.username, &redis.password].into_iter().flatten() {
            let help = "take them out of `url`, or leave `username` and `password` out";
            refuse(field.span(), "user and password are in `url` already", help);
        }
    }
    if let (Some(_), Some(field)) = (url.database, &redis.database) {
        let help = "take it out of `url`, or leave `database` out";
        refuse(field.span(), "the database is in `url` already", help);
    }
    if !matches!(url.address, UrlAddress::Sentinel(..)) {
        for field in [&redis.sentinel_username, &redis.sentinel_password].into_iter().flatten() {
            let help = "leave it out, or write `redis+sentinel://host:26379/name`";
            refuse(field.span(), "there are no sentinels", help);
        }
    }
    if let (UrlAddress::Cluster(_), Some(field)) = (&url.address, &redis.database) {
        let help = "a cluster has database 0 only: leave it out";
        refuse(field.span(), "a Redis Cluster has no other databases", help);
    }
    if !url.tls {
        for field in [&redis.ca, &redis.client_cert, &redis.client_key].into_iter().flatten() {
            let help =
                "write `rediss://`, `rediss+sentinel://` or `rediss+cluster://`, or leave it out";
            refuse(field.span(), "certificates are for TLS, and the connection has none", help);
        }
    }
}

/// The certificate authorities of the server, and the certificate of the gateway.
fn tls(
    url: Option<&Url>,
    redis: &tables::Redis,
    [ca, certificate, key]: [Option<String>; 3],
    diagnostics: &mut Diagnostics,
) -> Option<ClientTls> {
    let lonely = match (&redis.client_cert, &redis.client_key) {
        (Some(field), None) => Some((field, "`client_cert` needs its `client_key`", "client_key")),
        (None, Some(field)) => Some((field, "`client_key` needs its `client_cert`", "client_cert")),
        _ => None,
    };
    if let Some((field, message, missing)) = lonely
        && !diagnostics.explain_absence(&["redis", missing])
    {
        let help = "both are PEM files";
        diagnostics.push(Diagnostic::new(field.span(), message).help(help));
    }
    if !url?.tls {
        return None;
    }
    let certificate = certificate.zip(key).map(|(chain, key)| CertificateFiles {
        chain: PathBuf::from(chain),
        key: PathBuf::from(key),
    });
    Some(ClientTls { ca: ca.map(PathBuf::from), certificate })
}

/// The number of lanes; `Some(None)` without a cluster, and for 0.
#[allow(clippy::option_option, reason = "the outer one is an error")]
fn lanes(
    field: &Field<u64>,
    place: Option<&UrlAddress>,
    diagnostics: &mut Diagnostics,
) -> Option<Option<u16>> {
    let is_cluster = matches!(place, Some(UrlAddress::Cluster(_)));
    if let (Some(field), Some(_), false) = (field, place, is_cluster) {
        let help = "leave it out, or write `redis+cluster://host1,host2`";
        let message = "lanes are hash tags of a Redis Cluster, and `url` is not one";
        diagnostics.push(Diagnostic::new(field.span(), message).help(help));
        return None;
    }
    let lanes = number(&tables::Redis::lanes, field, diagnostics)?;
    let lanes = u16::try_from(lanes).ok()?;
    Some((is_cluster && lanes > 0).then_some(lanes))
}

/// Which buckets have a common hash tag: without a cluster, none.
fn colocate(
    field: Option<&Spanned<words::Colocate>>,
    place: Option<&UrlAddress>,
    diagnostics: &mut Diagnostics,
) -> Option<Colocate> {
    let is_cluster = matches!(place, Some(UrlAddress::Cluster(_)));
    let colocate = meaning(field);
    if let (Some(field), Some(_), false, Colocate::Key | Colocate::Tenant) =
        (field, place, is_cluster, colocate)
    {
        let help = "leave it out, or write `redis+cluster://host1,host2`";
        let message = "`colocate` chooses slots of a Redis Cluster, and `url` is not one";
        diagnostics.push(Diagnostic::new(field.span(), message).help(help));
        return None;
    }
    Some(colocate)
}

/// The prefix of every key.
fn prefix(field: Option<&Spanned<String>>, diagnostics: &mut Diagnostics) -> Option<String> {
    let Some(field) = field else { return Some(DEFAULT_PREFIX.to_owned()) };
    let text = field.get_ref();
    let (_, most) = tables::Redis::prefix.range().characters();
    let message = if text.is_empty() {
        "`prefix` is empty: nothing would set the gateway's keys apart".to_owned()
    } else if text.chars().count() > most {
        format!("`prefix` is longer than {most} characters")
    } else if text.contains(['{', '}']) {
        "`prefix` cannot hold braces: they choose a key's slot in Redis Cluster".to_owned()
    } else if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        "`prefix` holds a character that is not visible ASCII".to_owned()
    } else {
        return Some(text.clone());
    };
    diagnostics.push(Diagnostic::new(field.span(), message).help("it looks like `\"tollgate:\"`"));
    None
}
