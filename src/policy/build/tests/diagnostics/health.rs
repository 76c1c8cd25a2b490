//! `health` and `eject` of upstreams.

use super::super::render;

#[test]
fn health_checks_are_invalid() {
    let file = "[upstreams.a]\nservers = ['127.0.0.1:1']\n\
        health = { path = 'healthz', status = [200, 99], interval = '10ms', rise = 0 }\n\
        [upstreams.b]\nservers = ['127.0.0.1:1']\n\
        health = { kind = 'tcp', path = '/x', timeout = '10s' }\n\
        [upstreams.c]\nservers = ['127.0.0.1:1']\n\
        health = { kind = 'grcp' }\n\
        [upstreams.d]\nservers = ['127.0.0.1:1']\n\
        health = { host = 'http://a', service = 'x', status = [] }\n\
        [upstreams.e]\nservers = ['127.0.0.1:1']\nhealth_check = '/healthz'\n";
    insta::assert_snapshot!(render(file));
}

#[test]
fn ejections_are_invalid() {
    let file = "[upstreams.a]\nservers = ['127.0.0.1:1']\n\
        eject = { consecutive_failures = 0 }\n\
        [upstreams.b]\nservers = ['127.0.0.1:1']\n\
        eject = { on = ['5xx', 'errors'], error_rate = 0.5, max = '150%' }\n\
        [upstreams.c]\nservers = ['127.0.0.1:1']\n\
        eject = { on = [], error_rate = '50', for = '1ms' }\n\
        [upstreams.d]\nservers = ['127.0.0.1:1']\nmax_fails = 3\n";
    insta::assert_snapshot!(render(file));
}
