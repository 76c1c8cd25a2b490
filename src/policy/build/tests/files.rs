//! Valid files, each with room for a setting of one table.

/// Files by the table whose settings they can have in place of `@`. Not all settings of a table fit
/// together, so a table may have several.
pub(super) const FILES: [(&str, &str); 85] = [
    ("server", "[server]\n@"),
    ("admin", "[admin]\n@"),
    ("admin.tokens", "[[admin.tokens]]\nname = 't'\nsha256 = '#'\n@"),
    ("acme", "[redis]\nurl = 'redis://h'\n[acme]\ndomains = ['a.test']\nstorage = 'redis'\n@"),
    ("server.limits", "[server.limits]\n@"),
    ("server.http2", "[server.http2]\n@"),
    ("server.maintenance", "[server.maintenance]\n@"),
    ("listeners", "[[listeners]]\naddress = 'unix:/run/a.sock'\n@"),
    (
        "listeners",
        "[acme]\ndomains = ['a.test']\n[[listeners]]\naddress = '127.0.0.1:8443'\n\
         certificates = ['acme']\nclient_ca = '/ca.pem'\n@",
    ),
    (
        "listeners.hsts",
        "[acme]\ndomains = ['a.test']\n[[listeners]]\naddress = '127.0.0.1:8443'\n\
         certificates = ['acme']\n[listeners.hsts]\nmax_age = '1d'\n@",
    ),
    ("acme", "[acme]\ndomains = ['a.test']\n@"),
    ("redis", "[redis]\nurl = 'redis://h'\n@"),
    ("redis", "[redis]\nurl = 'redis+cluster://h'\n@"),
    ("redis.breaker", "[redis]\nurl = 'redis://h'\n[redis.breaker]\n@"),
    ("redis.breaker", "[redis]\nurl = 'redis://h'\n[redis.breaker]\nopen_max = '1h'\n@"),
    ("redis.breaker", "[redis]\nurl = 'redis://h'\n[redis.breaker]\nopen = '1ms'\n@"),
    ("clients", "[keys.k]\nsha256 = '#'\n[clients]\n@"),
    ("key_store", "[redis]\nurl = 'redis://h'\n[key_store]\nurl = 'redis'\n@"),
    ("key_store", "[key_store]\n@"),
    ("clients.jwt", "[clients.jwt]\nissuer = 'https://a.test'\naudience = 'a'\n@"),
    ("clients.jwt", "[clients.jwt]\nissuer = 'a'\naudience = 'a'\n@"),
    (
        "clients.introspection",
        "[clients.introspection]\nurl = 'https://a.test'\nclient_id = 'a'\nclient_secret = 'b'\n@",
    ),
    (
        "clients.introspection",
        "[clients.introspection]\nurl = 'https://a.test'\nclient_id = 'a'\n@",
    ),
    (
        "clients.introspection",
        "[clients.introspection]\nurl = 'https://a.test'\nclient_secret = 'b'\n@",
    ),
    (
        "clients.basic",
        "[clients.basic]\nusers = [\"alice:\\u00242y\\u002404\\u00244KVlRPKQZEt1b2RBMpYQeOOoEI1ZPjm/zyo.2grGrZ8ntdITzzflm\"]\n@",
    ),
    (
        "clients.jwt",
        "[clients.jwt]\naudience = 'a'\nsecret = '0123456789abcdef0123456789abcdef'\n@",
    ),
    ("cors", "[cors]\norigins = ['https://a.test']\n@"),
    (
        "routes.cors",
        "[routes.b]\nhost = 'b.test'\nupstream = 'api'\n[routes.b.cors]\norigins = ['*']\n@",
    ),
    ("forward_auth", "[forward_auth]\nurl = 'http://a.test'\n@"),
    (
        "routes.forward_auth",
        "[routes.b]\nhost = 'b.test'\nupstream = 'api'\n[routes.b.forward_auth]\nurl = 'http://a.test'\n@",
    ),
    ("headers", "[headers]\n@"),
    ("memory", "[memory]\n@"),
    ("usage", "[usage]\n@"),
    ("access_log", "[access_log]\n@"),
    ("log", "[log]\n@"),
    ("tracing", "[tracing]\n@"),
    ("audit", "[redis]\nurl = 'redis://h'\n[audit]\nstream = true\n@"),
    ("audit", "[audit]\n@"),
    ("plans", "[plans.free]\n@"),
    ("upstreams", "[upstreams.b]\nservers = ['127.0.0.1:1']\n@"),
    ("upstreams", "[upstreams.b]\nservers = ['127.0.0.1:1']\nmax_connections = 1\n@"),
    ("upstreams.servers", "[[upstreams.b.servers]]\naddress = '127.0.0.1:1'\n@"),
    (
        "upstreams.sticky",
        "[upstreams.b]\nservers = ['127.0.0.1:1']\n[upstreams.b.sticky]\ncookie = 'a'\n@",
    ),
    ("upstreams.retries", "[upstreams.b]\nservers = ['127.0.0.1:1']\n[upstreams.b.retries]\n@"),
    ("routes.retries", "[routes.b]\nhost = 'b.test'\nupstream = 'api'\n[routes.b.retries]\n@"),
    (
        "upstreams.mirror",
        "[upstreams.c]\nservers = ['127.0.0.1:2']\n[upstreams.b]\nservers = ['127.0.0.1:1']\n\
         [upstreams.b.mirror]\nto = 'c'\n@",
    ),
    (
        "routes.mirror",
        "[upstreams.c]\nservers = ['127.0.0.1:2']\n[routes.b]\nhost = 'b.test'\nupstream = 'api'\n\
         [routes.b.mirror]\nto = 'c'\n@",
    ),
    ("upstreams.health", "[upstreams.b]\nservers = ['127.0.0.1:1']\n[upstreams.b.health]\n@"),
    (
        "upstreams.health",
        "[upstreams.b]\nservers = ['127.0.0.1:1']\n[upstreams.b.health]\ninterval = '1h'\n@",
    ),
    (
        "upstreams.eject",
        "[upstreams.b]\nservers = ['127.0.0.1:1']\n[upstreams.b.eject]\nerror_rate = '50%'\n@",
    ),
    ("upstreams.eject", "[upstreams.b]\nservers = ['127.0.0.1:1']\n[upstreams.b.eject]\n@"),
    ("routes", "[routes.b]\nhost = 'b.test'\nupstream = 'api'\n@"),
    ("routes", "[upstreams.b]\nservers = ['127.0.0.1:1']\n[routes.b]\nhost = 'b.test'\n@"),
    ("routes", "[routes.b]\nhost = 'b.test'\nsplit = { api = 1 }\n@"),
    ("routes.respond", "[routes.b]\nhost = 'b.test'\n[routes.b.respond]\nbody = 'a'\n@"),
    ("routes.redirect", "[routes.b]\nhost = 'b.test'\n[routes.b.redirect]\nto = '/a'\n@"),
    ("rules", "[rules.r]\nper = ['key']\nrate = '1/s'\n@"),
    ("rules", "[rules.r]\nper = []\nkind = 'fixed_window'\nlimit = '5/month'\n@"),
    ("rules", "[rules.r]\nper = []\nkind = 'leaky_bucket'\nrate = '1/s'\n@"),
    ("rules", "[rules.r]\nper = []\nrate = '1/s'\ncount = 'response_bytes'\n@"),
    (
        "rules.plans",
        "[plans.free]\n[rules.r]\nper = []\nkind = 'leaky_bucket'\n[rules.r.plans.free]\nrate = '1/s'\n@",
    ),
    ("webhooks", "[webhooks.w]\nurl = 'https://a.test'\n@"),
    ("webhooks", "[webhooks.w]\nsecret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'\n@"),
    (
        "webhooks",
        "[webhooks.w]\nurl = 'https://a.test'\nsecret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'\n@",
    ),
    ("rules.plans", "[plans.free]\n[rules.r]\nper = []\n[rules.r.plans.free]\nrate = '1/s'\n@"),
    (
        "rules.plans",
        "[plans.free]\n[rules.r]\nper = []\nkind = 'fixed_window'\n[rules.r.plans.free]\nlimit = '5/month'\n@",
    ),
    (
        "rules.adapt",
        "[rules.r]\nper = ['ip']\nrate = '9/s'\n[rules.r.adapt]\nupstream = 'api'\nerrors = '5%'\n@",
    ),
    (
        "rules.adapt",
        "[rules.r]\nper = ['ip']\nrate = '9/s'\n[rules.r.adapt]\nupstream = 'api'\np99 = '1s'\n@",
    ),
    ("rules.ban", "[rules.r]\nper = ['ip']\nrate = '9/s'\n[rules.r.ban]\n@"),
    ("rules.ban", "[rules.r]\nper = ['ip']\nrate = '9/s'\n[rules.r.ban]\nfor = '1s'\n@"),
    ("rules.candidate", "[rules.r]\nper = []\nrate = '9/s'\n[rules.r.candidate]\nrate = '1/s'\n@"),
    (
        "rules.candidate",
        "[rules.r]\nper = []\nrate = '9/s'\nkind = 'leaky_bucket'\n[rules.r.candidate]\nrate = '1/s'\n@",
    ),
    (
        "rules.candidate",
        "[rules.r]\nper = []\nlimit = '9/d'\nkind = 'fixed_window'\n[rules.r.candidate]\nlimit = '5/d'\n@",
    ),
    (
        "keys.rules",
        "[keys.k]\nsha256 = '#'\n[rules.r]\nper = ['key']\nkind = 'fixed_window'\nlimit = '9/d'\n\
         [keys.k.rules.r]\nlimit = '5/d'\n@",
    ),
    (
        "tenants.rules",
        "[tenants.t]\n[rules.r]\nper = ['tenant']\nkind = 'fixed_window'\nlimit = '9/d'\n\
         [tenants.t.rules.r]\nlimit = '5/d'\n@",
    ),
    (
        "keys.rules",
        "[keys.k]\nsha256 = '#'\n[rules.r]\nper = ['key']\nkind = 'leaky_bucket'\nrate = '1/s'\n\
         [keys.k.rules.r]\nrate = '1/s'\n@",
    ),
    (
        "keys.rules",
        "[keys.k]\nsha256 = '#'\n[rules.r]\nper = ['key']\nrate = '1/s'\n\
         [keys.k.rules.r]\nrate = '1/s'\n@",
    ),
    ("keys", "[keys.k]\nsha256 = '#'\n@"),
    ("tenants", "[tenants.t]\n@"),
    (
        "tenants.rules",
        "[tenants.t]\n[rules.r]\nper = ['tenant']\nkind = 'leaky_bucket'\nrate = '1/s'\n\
         [tenants.t.rules.r]\nrate = '1/s'\n@",
    ),
    (
        "tenants.rules",
        "[tenants.t]\n[rules.r]\nper = ['tenant']\nrate = '1/s'\n\
         [tenants.t.rules.r]\nrate = '1/s'\n@",
    ),
    ("keys.secrets", "[[keys.k.secrets]]\nsha256 = '#'\n@"),
    (
        "routes.maintenance",
        "[routes.b]\nhost = 'b.test'\nupstream = 'api'\n[routes.b.maintenance]\n@",
    ),
    (
        "listeners",
        "[acme]\ndomains = ['a.test']\n[[listeners]]\naddress = '127.0.0.1:8443'\n\
         certificates = ['acme']\n@",
    ),
    (
        "listeners.hsts",
        "[acme]\ndomains = ['a.test']\n[[listeners]]\naddress = '127.0.0.1:8443'\n\
         certificates = ['acme']\n[listeners.hsts]\n@",
    ),
];

/// What the files have beside. Some have a second upstream, so the route names its own.
const REST: &str = "[upstreams.api]\nservers = ['demo']\n[routes.all]\nupstream = 'api'\n";

/// A whole file: one of [`FILES`] with its setting.
pub(super) fn whole(text: &str) -> String {
    format!("{}\n{REST}", text.replace('#', &"0".repeat(64)))
}
