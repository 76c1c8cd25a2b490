//! `mirror` of upstreams and routes.

use super::super::render_whole;

/// The diagnostics of a file with three upstreams and a route, with these settings of an upstream
/// and of the route.
fn file(upstream: &str, route: &str) -> String {
    render_whole(&format!(
        "[upstreams.b]\nservers = ['127.0.0.1:1']\n{upstream}\n\
         [routes.r]\nupstream = 'b'\n{route}\n\
         [upstreams.shadow]\nservers = ['127.0.0.1:2']\n[upstreams.trial]\nservers = ['demo']\n"
    ))
}

#[test]
fn settings_of_mirror() {
    for mirror in [
        "{ to = 'shadow' }",
        "{ to = 'shadow', share = '0.1%' }",
        "{ to = 'shadow', share = '100%', max_body_bytes = 0, max_in_flight = 1, timeout = '1ms' }",
        "{ to = 'shadow', max_body_bytes = 65536, max_in_flight = 100000, timeout = '10m' }",
    ] {
        let setting = format!("mirror = {mirror}");
        assert_eq!(file(&setting, "mirror = false"), "no errors\n", "{mirror}");
        assert_eq!(file("", &setting), "no errors\n", "{mirror}");
    }
}

#[test]
fn mistakes_in_mirror() {
    let written = [
        "{ share = '5%' }",
        "{ to = 'shadw' }",
        "{ to = 'b' }",
        "{ to = 'trial' }",
        "{ to = 'shadow', share = '0%' }",
        "{ to = 'shadow', share = '101%' }",
        "{ to = 'shadow', share = 5 }",
        "{ to = 'shadow', share = '0.05' }",
        "{ to = 'shadow', max_body_bytes = 65537, max_in_flight = 0, timeout = '1h' }",
        "{ to = 'shadow', percent = 5 }",
        "'shadow'",
        "true",
    ];
    let own = |shown: String| {
        shown.lines().filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
    };
    let all = written.into_iter().map(|one| {
        let setting = format!("mirror = {one}");
        format!("{}\n{}\n", own(file(&setting, "")), own(file("", &setting)))
    });
    insta::assert_snapshot!(all.collect::<Vec<_>>().join("\n"));
}
