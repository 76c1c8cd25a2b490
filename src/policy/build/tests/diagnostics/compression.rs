//! `compress` of upstreams and routes.

use super::super::render_whole;

/// The diagnostics of a file whose upstream and whose route have these settings.
fn file(upstream: &str, route: &str) -> String {
    render_whole(&format!(
        "[upstreams.b]\nservers = ['127.0.0.1:1']\n{upstream}\n[routes.r]\nupstream = 'b'\npath = '/r'\n{route}\n"
    ))
}

#[test]
fn settings_of_compress() {
    for compress in ["false", "true", "[]", "['gzip']", "['zstd', 'br']", "['br', 'zstd', 'gzip']"]
    {
        let setting = format!("compress = {compress}");
        assert_eq!(file(&setting, "compress = false"), "no errors\n", "{compress}");
        assert_eq!(file("", &setting), "no errors\n", "{compress}");
    }
}

#[test]
fn mistakes_in_compress() {
    let written = [
        "['brotli']",
        "['deflate', 'gzip']",
        "['x-gzip']",
        "['gzi']",
        "['identity']",
        "['']",
        "['lz4', 5]",
        "['gzip', 'br', 'gzip']",
        "'gzip'",
        "5",
        "{ types = ['text/html'] }",
    ];
    let all: Vec<String> = written
        .into_iter()
        .map(|one| format!("{one}\n{}", file(&format!("compress = {one}"), "")))
        .collect();
    insta::assert_snapshot!(all.join("\n"));
}
