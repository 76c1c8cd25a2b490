//! Settings that a reload cannot change: ports, threads, and where buckets are stored. A file that
//! changes one of them is rejected as a whole, so that a gateway never runs with half of a file.

use std::net::SocketAddr;

use super::listener::ListenAddress;
use super::redis::{Address, Login, Redis};
use super::settings::{Log, Server};
use super::{OnFailure, Policy};
use crate::config::listeners::Listener;
use crate::config::row::Row;
use crate::config::{Config, listener, tables};
use crate::net::tls::ClientTls;

/// Table and name of a setting in the file.
pub type SettingPath = [&'static str; 2];

/// Settings that differ between `old` and `new` and take effect only after a restart.
pub fn needed(old: &Policy, new: &Policy) -> Vec<SettingPath> {
    let Log { format, level } = old.log;
    let mut changed = of_server(&old.server, &new.server);
    changed.extend(of_listeners(old, new));
    changed.extend(differing(
        &Config::log,
        [
            (&tables::Log::format, format == new.log.format),
            (&tables::Log::level, level == new.log.level),
        ],
    ));
    let is_same = old.memory.max_buckets == new.memory.max_buckets;
    changed.extend(differing(&Config::memory, [(&tables::Memory::max_buckets, is_same)]));
    let is_same = old.usage.file == new.usage.file;
    changed.extend(differing(&Config::usage, [(&tables::Usage::file, is_same)]));
    let place = |policy: &Policy| policy.key_store.as_ref().map(|store| store.place.clone());
    let is_same = match (&old.key_store, &new.key_store) {
        (Some(old), Some(new)) => old.cache == new.cache,
        _ => true,
    };
    changed.extend(differing(
        &Config::key_store,
        [(&tables::KeyStore::url, place(old) == place(new)), (&tables::KeyStore::cache, is_same)],
    ));
    match (&old.redis, &new.redis) {
        (None, None) => {}
        (Some(old), Some(new)) => changed.extend(of_redis(old, new)),
        (Some(_), None) | (None, Some(_)) => {
            changed.extend(differing(&Config::redis, [(&tables::Redis::url, false)]));
        }
    }
    changed
}

/// Whether an upgrade can put `new` into force: it changes any setting, but opens no address that
/// overlaps with one that is open, as `127.0.0.1:80` with `0.0.0.0:80`, and leaves the families of
/// connections of an open one as they are.
pub fn can_upgrade(old: &Policy, new: &Policy) -> bool {
    let [was, is] = [old, new].map(sockets);
    let is_blocked = |new: &Socket| match was.iter().find(|old| old.address == new.address) {
        Some(old) => old.is_ipv6_only != new.is_ipv6_only,
        None => was.iter().any(|old| old.includes(new.address) || new.includes(old.address)),
    };
    !is.iter().any(is_blocked)
}

/// A port that is open.
struct Socket {
    address: SocketAddr,
    /// Whether `[::]` has no connections of IPv4.
    is_ipv6_only: bool,
}

impl Socket {
    fn includes(&self, address: SocketAddr) -> bool {
        let is_apart = self.is_ipv6_only && address.is_ipv4();
        listener::includes(self.address, address) && !is_apart
    }
}

fn sockets(policy: &Policy) -> Vec<Socket> {
    let clients = || policy.listeners.iter().filter_map(|listener| listener.address.tcp());
    let socket =
        |address| Socket { address, is_ipv6_only: listener::is_ipv6_only(address, clients()) };
    let admin = Socket { address: policy.server.admin, is_ipv6_only: false };
    clients().map(socket).chain([admin]).collect()
}

/// Lists every field, so that a new setting must be classified here.
fn of_server(old: &Server, new: &Server) -> Vec<SettingPath> {
    let Server {
        listen,
        admin,
        threads,
        drain_delay,
        drain_timeout,
        instances,
        // Requests read these from their snapshot.
        trusted_proxies: _,
        upgrade_timeout: _,
        keepalive_timeout: _,
        read_timeout: _,
        write_timeout: _,
        max_header_bytes: _,
        max_uri_bytes: _,
        ignore_path_case: _,
        limits: _,
        http2: _,
    } = old;
    differing(
        &Config::server,
        [
            (&tables::Server::listen, *listen == new.listen),
            (&tables::Server::admin, *admin == new.admin),
            (&tables::Server::threads, *threads == new.threads),
            (&tables::Server::drain_delay, *drain_delay == new.drain_delay),
            (&tables::Server::drain_timeout, *drain_timeout == new.drain_timeout),
            (&tables::Server::instances, *instances == new.instances),
        ],
    )
}

/// Sockets are bound at the start: the addresses of `[[listeners]]`. What a listener does with
/// a connection can change, and the order of the listeners.
fn of_listeners(old: &Policy, new: &Policy) -> Vec<SettingPath> {
    fn addresses(policy: &Policy) -> Vec<&ListenAddress> {
        let own = policy.listeners.iter().skip(policy.server.listen.len());
        let mut addresses: Vec<_> = own.map(|listener| &listener.address).collect();
        addresses.sort();
        addresses
    }
    let is_same = addresses(old) == addresses(new);
    differing(&Config::listeners, [(&Listener::address, is_same)])
}

fn of_redis(old: &Redis, new: &Redis) -> Vec<SettingPath> {
    let Redis {
        address,
        tls,
        login,
        database,
        timeout,
        // Only the default of `Rule::on_failure`.
        on_failure: OnFailure::Local | OnFailure::Allow | OnFailure::Deny,
        prefix,
        lanes,
        colocate,
        repair,
        ready,
        start_without,
        breaker,
    } = old;
    let sentinel = |address: &Address| match address {
        Address::Sentinel(sentinel) => sentinel.login.clone(),
        Address::Server(_) | Address::Socket(_) | Address::Cluster(_) => Login::default(),
    };
    let file = |tls: &Option<ClientTls>| tls.clone().unwrap_or_default();
    let (was, is) = (file(tls), file(&new.tls));
    let is_same_address = match (address, &new.address) {
        (Address::Sentinel(a), Address::Sentinel(b)) => {
            a.servers == b.servers && a.master == b.master
        }
        (old, new) => old == new,
    };
    let chain = |tls: &ClientTls| tls.certificate.as_ref().map(|files| files.chain.clone());
    let key = |tls: &ClientTls| tls.certificate.as_ref().map(|files| files.key.clone());
    let (was_login, is_login) = (sentinel(address), sentinel(&new.address));
    differing(
        &Config::redis,
        [
            (&tables::Redis::url, is_same_address && tls.is_some() == new.tls.is_some()),
            (&tables::Redis::username, login.username == new.login.username),
            (&tables::Redis::password, login.password == new.login.password),
            (&tables::Redis::sentinel_username, was_login.username == is_login.username),
            (&tables::Redis::sentinel_password, was_login.password == is_login.password),
            (&tables::Redis::ca, was.ca == is.ca),
            (&tables::Redis::client_cert, chain(&was) == chain(&is)),
            (&tables::Redis::client_key, key(&was) == key(&is)),
            (&tables::Redis::database, *database == new.database),
            (&tables::Redis::timeout, *timeout == new.timeout),
            (&tables::Redis::prefix, *prefix == new.prefix),
            (&tables::Redis::lanes, *lanes == new.lanes),
            (&tables::Redis::colocate, *colocate == new.colocate),
            (&tables::Redis::repair, *repair == new.repair),
            (&tables::Redis::ready, *ready == new.ready),
            (&tables::Redis::start_without, *start_without == new.start_without),
            (&tables::Redis::breaker, *breaker == new.breaker),
        ],
    )
}

/// The settings of `table` that are not the same, of those that need a restart.
fn differing<const N: usize>(table: &Row, settings: [(&Row, bool); N]) -> Vec<SettingPath> {
    let differing = settings.into_iter().filter(|(row, is_same)| row.needs_restart && !is_same);
    differing.map(|(row, _)| [table.name, row.name]).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::load::from_text;

    const FILE: &str = "[server]\nthreads = 2\n[upstreams.api]\nservers = ['demo']\n[routes.all]\n\
        [redis]\nurl = 'redis://h'\nusername = 'u'\npassword = 'p'\nca = '/a'\n\
        [rules.r]\nper = []\nrate = '1/s'\n";

    #[test]
    fn only_settings_fixed_at_the_start_need_a_restart() {
        // (text to replace, replacement, settings that need a restart)
        let listener = "[[listeners]]\naddress = '127.0.0.1:8443'\n";
        let file = format!("{FILE}{listener}");
        let table: [(&str, &str, &[SettingPath]); 30] = [
            ("", "", &[]),
            ("'u'", "'u'\nstart_without = 'full'", &[["redis", "start_without"]]),
            ("threads = 2", "threads = 3", &[["server", "threads"]]),
            ("threads = 2", "threads = 2\nlisten = ['[::]:1']", &[["server", "listen"]]),
            ("threads = 2", "threads = 2\nadmin = '127.0.0.1:1'", &[["server", "admin"]]),
            ("threads = 2", "threads = 2\ndrain_delay = '1s'", &[["server", "drain_delay"]]),
            ("threads = 2", "threads = 2\ndrain_timeout = '1s'", &[["server", "drain_timeout"]]),
            ("threads = 2", "threads = 2\nread_timeout = '1s'\npath_case = 'insensitive'", &[]),
            ("[redis]", "[memory]\nmax_buckets = 5\n[redis]", &[["memory", "max_buckets"]]),
            ("redis://h", "redis://h:6379/0", &[]),
            ("redis://h", "redis://i", &[["redis", "url"]]),
            ("redis://h", "redis://h/2", &[["redis", "database"]]),
            ("'p'", "'q'", &[["redis", "password"]]),
            ("'u'", "'v'", &[["redis", "username"]]),
            (
                "ca = '/a'",
                "prefix = 'x:'\ntimeout = '5ms'\nca = '/a'",
                &[["redis", "timeout"], ["redis", "prefix"]],
            ),
            ("ca = '/a'", "on_failure = 'deny'\nca = '/a'", &[]),
            ("[redis]", "[access_log]\noutput = '/a'\n[redis]", &[]),
            ("[redis]", "[tracing]\nendpoint = 'http://a'\n[redis]", &[]),
            ("[redis]", "[errors.4xx]\n'text/html' = 'a'\n[redis]", &[]),
            ("[redis]", "[log]\nformat = 'json'\n[redis]", &[["log", "format"]]),
            ("[redis]", "[log]\nlevel = 'warn'\n[redis]", &[["log", "level"]]),
            ("[redis]", "[audit]\nstream = true\n[redis]", &[]),
            ("1/s", "2/s", &[]),
            ("127.0.0.1:8443", "127.0.0.1:2", &[["listeners", "address"]]),
            ("127.0.0.1:8443", "unix:/run/a", &[["listeners", "address"]]),
            (listener, "", &[["server", "listen"], ["listeners", "address"]]),
            (
                "127.0.0.1:8443'",
                "127.0.0.1:8443'\nhttp2 = true\ncertificates = ['acme']\n[acme]\ndomains = ['a.b']",
                &[],
            ),
            (
                "[redis]",
                "[server.limits]\nhead_timeout = '1s'\n[server.http2]\nmax_pending_resets = 5\n[redis]",
                &[],
            ),
            ("'demo'", "'https://h'", &[]),
            ("'demo'", "'127.0.0.1:3000'", &[]),
        ];
        let file = file.replace("redis://h", "rediss://h");
        let old = from_text("old", &file).unwrap();
        for (from, to, expected) in table {
            let (from, to) = (from.replace("redis:", "rediss:"), to.replace("redis:", "rediss:"));
            let new = from_text("new", &file.replacen(&from, &to, 1)).unwrap();
            assert_eq!(needed(&old, &new), expected, "{from} -> {to}");
            assert_eq!(needed(&new, &old), expected, "{to} -> {from}");
        }
        let local = &file[..file.find("[redis]").unwrap()];
        let local = from_text("local", &format!("{local}{listener}")).unwrap();
        assert_eq!(needed(&old, &local), [["redis", "url"]]);
        assert_eq!(needed(&local, &old), [["redis", "url"]]);
    }

    #[test]
    fn each_setting_that_needs_a_restart_is_compared() {
        let file = |n: usize, redis: &str| {
            let word = |words: [&'static str; 2]| words[n - 1];
            let text = format!(
                "[upstreams.api]\nservers = ['demo']\n[routes.all]\n\
                 [server]\nlisten = ['127.0.0.1:{n}']\nadmin = '127.0.0.1:8{n}'\nthreads = {n}\n\
                 drain_delay = '{n}s'\ndrain_timeout = '{n}s'\ninstances = {n}\n\
                 [[listeners]]\naddress = '127.0.0.1:9{n}'\n[memory]\nmax_buckets = {n}\n\
                 [log]\nformat = '{}'\nlevel = '{}'\n{redis}",
                word(["text", "json"]),
                word(["info", "warn"]),
            );
            let text = text
                .replace('#', &n.to_string())
                .replace("REPAIR", word(["true", "false"]))
                .replace("READY", word(["always", "connected"]))
                .replace("START", word(["empty", "full"]))
                .replace("COLOCATE", word(["key", "off"]));
            from_text("file", &text).unwrap_or_else(|report| panic!("{report}"))
        };
        let sentinels = "[redis]\nurl = 'rediss+sentinel://h#/m'\nusername = 'u#'\npassword = 'p#'\n\
            sentinel_username = 'u#'\nsentinel_password = 'p#'\nca = '/ca#'\nclient_cert = '/c#'\n\
            client_key = '/k#'\ndatabase = #\ntimeout = '#ms'\nprefix = 'p#:'\nrepair = REPAIR\n\
            ready = 'READY'\nstart_without = 'START'\nbreaker.probes = #\n";
        let cluster = "[redis]\nurl = 'redis+cluster://h'\nlanes = #\ncolocate = 'COLOCATE'\n";
        let files = "[usage]\nfile = '/u#'\n[key_store]\nurl = 'file:/k#'\ncache = #000\n";
        let compared: BTreeSet<SettingPath> = [sentinels, cluster, files]
            .into_iter()
            .flat_map(|redis| needed(&file(1, redis), &file(2, redis)))
            .collect();
        let of_table = |table: &'static Row| {
            let rows = table.rows().iter().filter(|row| row.needs_restart);
            rows.map(|row| [table.name, row.name])
        };
        let mut declared: BTreeSet<SettingPath> =
            Config::rows().iter().flat_map(of_table).collect();
        // The permissions of a Unix socket are part of its address.
        declared.remove(&[Config::listeners.name, Listener::mode.name]);
        assert_eq!(compared, declared);
    }

    #[test]
    fn order_of_listeners_can_change() {
        let policy = |addresses: [&str; 2]| {
            let listeners =
                addresses.map(|address| format!("[[listeners]]\naddress = '{address}'\n"));
            from_text(
                "file",
                &format!("{}{}", FILE.replace("redis:", "rediss:"), listeners.concat()),
            )
            .unwrap()
        };
        let [a, b] = ["127.0.0.1:8443", "unix:/run/a"];
        assert_eq!(needed(&policy([a, b]), &policy([b, a])), [["redis", "url"]; 0]);
        assert_eq!(
            needed(&policy([a, b]), &policy(["127.0.0.1:1", b])),
            [["listeners", "address"]]
        );
    }

    #[test]
    fn names_of_keys_in_a_cluster_are_fixed_at_the_start() {
        let policy = |lines: &str| {
            let url = "url = 'redis+cluster://h'\n";
            from_text(
                "file",
                &FILE
                    .replace("url = 'redis://h'\n", &format!("{url}{lines}"))
                    .replace("ca = '/a'\n", ""),
            )
            .unwrap()
        };
        let plain = policy("");
        for (lines, expected) in [
            ("lanes = 6\ncolocate = 'off'\n", [].as_slice()),
            ("lanes = 3\n", &[["redis", "lanes"]]),
            ("colocate = 'key'\n", &[["redis", "colocate"]]),
        ] {
            assert_eq!(needed(&plain, &policy(lines)), expected, "{lines}");
            assert_eq!(needed(&policy(lines), &plain), expected, "{lines}");
        }
    }

    #[test]
    fn upgrade_opens_no_address_that_overlaps_with_an_open_one() {
        let file = |listen: &str| {
            let text = FILE.replace("threads = 2", &format!("threads = 2\nlisten = [{listen}]"));
            from_text("file", &text.replace("redis:", "rediss:")).unwrap()
        };
        let can = |from: &str, to: &str| can_upgrade(&file(from), &file(to));
        assert!(can("'127.0.0.1:80'", "'127.0.0.1:81'"));
        assert!(can("'127.0.0.1:80'", "'127.0.0.2:80'"));
        assert!(can("'0.0.0.0:80'", "'0.0.0.0:80', '[::]:80'"));
        assert!(can("'0.0.0.0:80', '[::]:80'", "'0.0.0.0:80'"));
        assert!(!can("'0.0.0.0:80', '[::]:80'", "'[::]:80'"));
        assert!(!can("'[::]:80'", "'0.0.0.0:80', '[::]:80'"));
        assert!(!can("'[::]:80'", "'127.0.0.1:80'"));
        assert!(!can("'0.0.0.0:80'", "'[::]:80'"));
        assert!(can("'0.0.0.0:80', '127.0.0.1:81'", "'0.0.0.0:80'"));
        assert!(!can("'127.0.0.1:80'", "'0.0.0.0:80'"));
        assert!(!can("'[::]:80'", "'[::1]:80'"));
    }
}
