use super::*;

#[track_caller]
fn assert_hidden(text: &str) {
    let shown = mask(text);
    assert!(!shown.contains("hunter2"), "{shown}");
    assert_eq!(shown.len(), text.len());
    assert_eq!(shown.lines().count(), text.lines().count());
}

#[test]
fn possible_keys_are_masked() {
    let table = [
        "[keys.a]\nsha256 = \"hunter2\"",
        "[keys.a]\nsha256 = hunter2",
        "[keys.a]\nsha256 = \"hunter2",
        "[keys.a]\nsha256 hunter2",
        "[keys.a]\nsha265 = \"hunter2\"",
        "[keys.a]\nsha256 = [\"hunter2\"]",
        "[keys.a]\nsecret.is = \"hunter2\"",
        "[keys.a]\nsha256 = \"\"\"\nhunter2\n\"\"\"",
        "keys.a.sha256 = 'hunter2'",
        "keys = { a = { sha256 = 'hunter2', plan = 'free' } }",
        "keys = { a = { sha256 = 'hunter2' plan = 'free' ",
        "keys.a = 'hunter2'",
        "[keys]\na = { key = 'hunter2' }",
        "[key.a]\nsha256 = 'hunter2'",
        "[access_log]\nsalt = 'hunter2'",
        "[access_log]\nsalt = hunter2",
        "[access_log]\nslat = 'hunter2'",
        "access_log = 'hunter2'",
        "access_log = { salt = 'hunter2' client_ip = 'off'",
        "[redis]\nurl = \"redis://u:hunter2@h:1\"",
        "[redis]\nurl = \"redis://u:a/hunter2@h:1\"",
        "[redis]\nurl = \"redis+sentinel://u:hunter2@h,i/x\"",
        "[redis]\nurl = \"redis://h?password=hunter2\"",
        "[redis]\nurl = 'redis://:hunter2@h",
        "[redis]\nurl = redis://:hunter2,x@h",
        "[redis]\nurl = \"tcp://u:hunter2@h:1\"",
        "[redis]\nurl = \"u:hunter2@h:1\"",
        "[redis]\npassword = \"hunter2\"",
        "[redis]\nsentinel_password = '''hunter2'''",
        "[redis]\npasword = 'hunter2'",
        "[redis]\npassword = hunter2",
        "[redis]\npassword = 'hunter2",
        "[redis]\npasswort 'hunter2'",
        "[redis]\npassword = ['hunter2']",
        "[redis]\npassword = '${A}hunter2'",
        "[redis]\nauth.password = 'hunter2'",
        "redis = { url = 'redis://h', password = 'hunter2' }",
        "redis = { url = 'redis://h' password = 'hunter2' ",
        "redis.password = 'hunter2'",
        "redis = 'redis://:hunter2@h'",
        "redis = ['hunter2']",
        "[redis\npassword = 'hunter2'",
        "[redis.breaker]\npassword = 'hunter2'",
        "[redis.breaker]\npassword 'hunter2'",
        "[redis]\nbreaker = { x = ['hunter2'] }",
        "[redis]\nbreaker = 'hunter2'",
        "[admin]\ntoken = 'hunter2'",
        "[admin]\ntoken = '${A}hunter2'",
        "[admin]\ntokn = hunter2",
        "[admin]\ntoken 'hunter2'",
        "[[admin]]\ntoken = 'hunter2'",
        "[admin]\ntoken = ['hunter2']",
        "admin.token = 'hunter2'",
        "admin.token = hunter2",
        "admin = 'hunter2'",
        "admin = { token = 'hunter2' ",
        "[server]\nadmin.token = 'hunter2' 1",
        "[upstreams.a]\nsticky = { cookie = 'a', secret = 'hunter2' }",
        "[upstreams.a]\nsticky = { cookie = 'a', secrt = 'hunter2' }",
    ];
    table.into_iter().for_each(assert_hidden);
}

#[test]
fn possible_keys_in_clients_are_masked() {
    let table = [
        "[clients]\nmy-secret = 'hunter2'",
        "[clients]\nmy-secret = hunter2",
        "[clients]\nmy-secret 'hunter2'",
        "[clients]\nmy.secret = 'hunter2'",
        "[clients.acme]\nkey = 'hunter2'",
        "[clients]\napi_key = 'hunter2'",
        "[clients]\napi_key = ['bearer', 'hunter2']",
        "[clients]\napi_key = ['bearer hunter2']",
        "[clients]\napi_key = ['header:x-api-key: hunter2']",
        "[clients]\napi_key = ['header:Authorization: Bearer hunter2']",
        "[clients]\napi_key = ['query:api_key=hunter2']",
        "[clients]\napi_key = [['hunter2']]",
        "[clients]\napi_key = [{ is = 'hunter2' }]",
        "[clients]\napi_key = { acme = 'hunter2' }",
        "[clients]\napi_key = [\n'hunter2'\n'bearer']",
        "[clients]\napi_key = [\n'hunter2=='\n'bearer']",
        "[clients]\napi_key = ['hunter2'",
        "[clients]\napi_key = ['hunter2",
        "[clients]\napi_keys = ['hunter2']",
        "[clients]\nplan = 'free\napi_key = ['hunter2']",
        "clients = { api_key = ['hunter2'] }",
        "clients = { api_key = ['hunter2' }",
        "clients.api_key = ['hunter2']",
        "clients = 'hunter2'",
        "clients = ['hunter2']",
        "[[clients]]\nsecret = 'hunter2'",
        "[clients\nsecret = 'hunter2'",
    ];
    table.into_iter().for_each(assert_hidden);
}

#[test]
fn headers_and_login_of_a_collector_are_masked() {
    let table = [
        "[tracing]\nheaders = { a = 'hunter2' }",
        "[tracing]\nheaders = { a = 'Bearer ${A}hunter2' }",
        "[tracing]\nheaders.a = 'hunter2'",
        "[tracing]\nheaders.a.b = 'hunter2'",
        "[tracing]\nheaders = 'hunter2'",
        "[tracing]\nheaders = ['hunter2']",
        "[tracing]\nheaders = { a = 'hunter2' sample = 1",
        "[tracing.headers]\nsample = 'hunter2'",
        "[tracing.headers]\nsample = hunter2",
        "[tracing.headers]\na 'hunter2'",
        "[tracing]\nheader.a = 'hunter2'",
        "[tracing]\nkey = hunter2",
        "[tracing]\nendpoint = 'http://u:hunter2@h'",
        "[tracing]\nendpoint = 'http://h/?key=hunter2'",
        "[tracing]\nendpoint = http://h/?key=hunter2",
        "[[tracing]]\nheaders = { a = 'hunter2' }",
        "tracing = 'hunter2'",
        "tracing.headers.a = 'hunter2'",
        "tracing.headers.a = hunter2",
    ];
    table.into_iter().for_each(assert_hidden);
}

#[test]
fn secrets_of_automatic_certificates_are_masked() {
    let table = [
        "[acme]\nstorage_key = 'hunter2'",
        "[acme]\nstorage_key = hunter2",
        "[acme]\nstorage_key 'hunter2'",
        "[acme]\nstorage_key = ['hunter2']",
        "[acme]\nstorage_key = '${A}hunter2'",
        "[acme]\nstorgae_key = 'hunter2'",
        "[acme]\neab = { key_id = 'a', hmac_key = 'hunter2' }",
        "[acme]\neab = { key_id = 'a', hmac_key = 'hunter2' ",
        "[acme]\neab = 'hunter2'",
        "[acme]\neab = ['hunter2']",
        "[acme]\neab.hmac = 'hunter2'",
        "[acme.eab]\nkey_id = 'a'\nhmac_key = 'hunter2'",
        "[acme.eab]\nkey_id = 'a'\nhmac 'hunter2'",
        "[acme]\ndirectory = 'https://u:hunter2@h/d'",
        "[acme]\ndirectory = 'https://h/d?key=hunter2'",
        "[acme]\ndirectory = https://h/d?key=hunter2",
        "acme.storage_key = 'hunter2'",
        "acme = { storage_key = 'hunter2' ",
        "acme = 'hunter2'",
        "[[acme]]\nstorage_key = 'hunter2'",
        "[server]\nstorage_key = 'hunter2'",
        "[[listeners]]\nhmac_key = 'hunter2'",
    ];
    table.into_iter().for_each(assert_hidden);
    let shown = "[acme]\ndirectory = 'https://h/d'\nstorage = 'redis'\nstorage_key = '${KEY}'\n\
                 eab = { key_id = 'a', hmac_key = '${file:/run/hmac}' }\n";
    assert_eq!(mask(shown), shown);
}

#[test]
fn other_values_are_shown() {
    let digest = "9F".repeat(32);
    let text = format!("[keys.a]\nsha256 = \"{digest}\"\nplan = \"prö\"\n[rules.x]\nrate='1/s'");
    assert_eq!(mask(&text), text);
    for text in [
        "url = \"http://h/a@b\"",
        "[redis]\nurl = 'redis://h:6379/2'\nusername = 'u'\npassword = '${REDIS_PASSWORD}'",
        "[tracing]\nendpoint = 'https://h:4318/x'\nsample = 0.5\nheaders = { a = '${A}' }",
        "[redis]\nlanes = 4\ncolocate = 'key'\nrepair = 'off'\nready = 'always'\n[redis.breaker]\nopen = '1s'\nramp = [1, 100]",
        "[server]\nadmin = '127.0.0.1:9090';",
        "[clients]\napi_key = ['header:X-Api-Key', 'bearer', 'query:key']\nhide_key = true",
    ] {
        assert_eq!(mask(text), text);
    }
}

#[test]
fn secrets_in_a_wrong_table_are_masked() {
    for text in [
        "token = 'hunter2'",
        "[server]\ntoken = 'hunter2'",
        "[audit]\npassword = \"hunter2\"",
        "[memory]\nsentinel_password = [\"hunter2\"]",
        "[plans.free]\nsalt = 'hunter2'",
        "[plans.free]\nsalt = 'hunter2'\nbroken",
        "[server]\nheaders = { authorization = 'Bearer hunter2' }",
        "[server]\nheaders = { authorization = 'Bearer hunter2' }\nbroken",
        "[server]\nlisten = [{ token = 'hunter2' }]",
        "[[memory]]\ntoken = 'hunter2'",
    ] {
        assert_hidden(text);
    }
    let reference = "[server]\ntoken = '${TOKEN}'\n";
    assert_eq!(mask(reference), reference);
}

#[test]
fn secrets_below_a_malformed_head_are_masked() {
    for text in [
        "[clients]\n[a=\napi_key = ['hunter2'",
        "[{redis}]\nurl = 'redis://h?password=hunter2",
        "[{access_log}]\nslat = 'hunter2",
        "[\nkey = 'hunter2",
    ] {
        assert_hidden(text);
    }
}

#[test]
fn headers_for_upstreams_are_masked() {
    assert_hidden("[routes.a]\nrequest_headers = { set = { Authorization = \"Bearer hunter2\" } }");
    assert_hidden("[routes.a.request_headers.add]\nX-Api-Key = \"hunter2\"");
    assert_hidden("[routes.a]\nrequest_headers.set.Cookie = \"hunter2\"");
    // Not TOML.
    assert_hidden("[routes.a]\nrequest_headers = { set = { X-A = \"hunter2\" ");
    assert_hidden("[routes.a.request_headers.set]\nX-Api-Key = \"hunter2\nx = [");
}
