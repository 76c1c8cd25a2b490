//! The complete examples of documentation pages: files are written and commands run as a reader
//! would, and what the commands print is compared with the page.
//!
//! Blocks of a page take part by what follows the three backticks, in the order of the page:
//!
//! - `toml gateway.toml`, `json pebble.json`, `python server.py`: a complete file with this name,
//!   in a temporary folder.
//! - `console`: each line with `$ ` is a command for bash in this folder, and the lines after it
//!   are its output, standard error included. `…` matches any text within a line. A command that
//!   ends in `&` runs to the end of the page; the command after it is repeated until its output is
//!   right, as a reader would wait.
//!
//! Files that a command writes with `--redis` get a longer `redis.timeout`: on a busy machine, a
//! check may take longer than 10 ms, and the gateway then decides it by itself.
//!
//! Ports that follow a host name or an address are replaced by free ones throughout the page, and
//! 0.0.0.0 by 127.0.0.1.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use crate::support::{BackgroundShell, TIMEOUT, bash, free_port, within};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// One block of a page that takes part.
#[derive(Debug, PartialEq, Eq)]
enum Block {
    File { name: String, text: String },
    Session(Vec<Step>),
}

/// A command and its expected output.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    command: String,
    output: String,
}

/// Runs the examples of a page.
fn run(page: &str) {
    let text = std::fs::read_to_string(Path::new(ROOT).join("docs").join(page)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let blocks = blocks(&with_free_ports(&text));
    assert!(!blocks.is_empty(), "{page} has no example");
    let mut background = Vec::new();
    let mut may_wait = false;
    for block in blocks {
        match block {
            Block::File { name, text } => {
                std::fs::write(folder.path().join(name), text).unwrap();
                // The gateway may have to notice it.
                may_wait = true;
            }
            Block::Session(steps) => {
                for Step { command, output } in steps {
                    if let Some(command) = command.strip_suffix('&') {
                        background.push(BackgroundShell::start(command.trim_end(), folder.path()));
                        may_wait = true;
                        continue;
                    }
                    check(page, &command, &output, folder.path(), may_wait);
                    may_wait = false;
                    if command.contains("--redis") {
                        give_redis_time(folder.path());
                    }
                }
            }
        }
    }
}

/// Sets a longer `timeout` in the table `[redis]` of all files that have one without it.
fn give_redis_time(folder: &Path) {
    for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if file.extension() == Some("toml".as_ref()) {
            let text = std::fs::read_to_string(&file).unwrap();
            let Some((before, table)) = text.split_once("[redis]\n") else { continue };
            let mut settings = table.lines().take_while(|line| !line.starts_with('['));
            if !settings.any(|line| line.starts_with("timeout =")) {
                let text = format!("{before}[redis]\ntimeout = \"1s\"\n{table}");
                std::fs::write(&file, text).unwrap();
            }
        }
    }
}

/// Runs a command and compares its output.
#[track_caller]
fn check(page: &str, command: &str, expected: &str, folder: &Path, may_wait: bool) {
    let mut printed = String::new();
    let mut attempt = || {
        printed = shell(command, folder);
        matches(expected, &printed).then_some(())
    };
    let is_right = if may_wait { within(TIMEOUT, attempt) } else { attempt() };
    if is_right.is_none() {
        let mut logs = String::new();
        for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if file.extension() == Some("log".as_ref()) {
                let _ = writeln!(
                    logs,
                    "{}: {}",
                    file.display(),
                    std::fs::read_to_string(&file).unwrap()
                );
            }
        }
        panic!("{page}: $ {command}\n--- expected ---\n{expected}--- printed ---\n{printed}{logs}");
    }
}

/// Output of a command, both streams.
fn shell(command: &str, folder: &Path) -> String {
    let output = bash(&format!("exec 2>&1; {command}"), folder).output().unwrap();
    String::from_utf8_lossy(&output.stdout).replace('\r', "")
}

/// Whether the output is as expected, where `…` matches any text within a line.
fn matches(expected: &str, printed: &str) -> bool {
    let (mut wanted, mut lines) = (expected.trim_end().lines(), printed.trim_end().lines());
    loop {
        match (wanted.next(), lines.next()) {
            (None, None) => return true,
            (Some(pattern), Some(line)) if line_matches(pattern.trim_end(), line.trim_end()) => {}
            _ => return false,
        }
    }
}

fn line_matches(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let mut last = None;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        last = Some(part);
    }
    match last {
        None => rest.is_empty(),
        // The last part must end the line; an empty one matches to the end.
        Some(part) => part.is_empty() || rest.is_empty() || line.ends_with(part),
    }
}

/// The blocks of a page that take part.
fn blocks(page: &str) -> Vec<Block> {
    let mut found = Vec::new();
    for (number, fenced) in page.split("\n```").enumerate() {
        if number % 2 == 0 {
            continue;
        }
        let (info, text) = fenced.split_once('\n').unwrap_or((fenced, ""));
        let text = format!("{text}\n");
        match info.split_once(' ').unwrap_or((info, "")) {
            ("toml" | "json" | "python", name) if !name.is_empty() => {
                found.push(Block::File { name: name.to_owned(), text });
            }
            ("console", _) => found.push(Block::Session(steps(&text))),
            _ => {}
        }
    }
    found
}

fn steps(session: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in session.lines() {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => {
                steps.push(Step { command: command.to_owned(), output: String::new() });
            }
            (None, Some(step)) if step.command.ends_with('\\') => {
                step.command.pop();
                step.command.push_str(line.trim_start());
            }
            (None, Some(step)) => {
                step.output.push_str(line);
                step.output.push('\n');
            }
            (None, None) => panic!("a session begins with a command: {line}"),
        }
    }
    steps
}

/// Replaces each port by a free one.
fn with_free_ports(page: &str) -> String {
    let mut ports: BTreeMap<&str, String> = BTreeMap::new();
    for host in ["127.0.0.1:", "0.0.0.0:", "localhost:", ".example.com:"] {
        for (at, _) in page.match_indices(host) {
            let rest = &page[at + host.len()..];
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            if end > 0 {
                ports.entry(&rest[..end]).or_insert_with(|| free_port().to_string());
            }
        }
    }
    let mut replaced = String::new();
    let mut rest = page;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, number) = rest.split_at(start);
        let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
        let (number, after) = number.split_at(end);
        let is_port = !before.ends_with('.') && !after.starts_with('.');
        replaced.push_str(before);
        replaced.push_str(ports.get(number).filter(|_| is_port).map_or(number, |port| port));
        rest = after;
    }
    replaced.push_str(rest);
    replaced.replace("0.0.0.0", "127.0.0.1")
}

#[test]
fn listeners_page_works_as_written() {
    run("listeners.md");
}

#[test]
fn tls_page_works_as_written() {
    run("tls.md");
}

#[test]
fn acme_page_works_as_written() {
    run("acme.md");
}

#[test]
fn tutorial_works_as_written() {
    run("tutorial.md");
}

#[test]
fn cors_page_works_as_written() {
    run("cors.md");
}

#[test]
fn http2_and_grpc_page_works_as_written() {
    run("http2-grpc.md");
}

#[test]
fn outputs_are_compared_line_by_line() {
    assert!(matches("a\nb … d\n…\n", "a\r\nb c d\nanything\n".replace('\r', "").as_str()));
    for (expected, printed) in
        [("a\n", "a\nb\n"), ("a\nb\n", "a\n"), ("a … c\n", "a b d\n"), ("a\n", "ab\n"), ("", "a")]
    {
        assert!(!matches(expected, printed), "{expected:?} {printed:?}");
    }
}

#[test]
fn blocks_of_a_page_are_files_and_sessions() {
    let page = "Text\n\n```toml gateway.toml\na = 1\n```\n\n```\nignored\n```\n```console\n$ one \\\n    two\nout\n$ three &\n```\n";
    let found = blocks(page);
    let file = Block::File { name: "gateway.toml".to_owned(), text: "a = 1\n".to_owned() };
    let step = |command: &str, output: &str| Step {
        command: command.to_owned(),
        output: output.to_owned(),
    };
    let session = Block::Session(vec![step("one two", "out\n"), step("three &", "")]);
    assert_eq!(found, [file, session]);
}

#[test]
fn ports_are_replaced_throughout() {
    let page = with_free_ports(
        "listen 0.0.0.0:8443 127.0.0.1:80, curl https://localhost:8443/ 8443 10.80.0.1",
    );
    assert!(!page.contains("8443") && page.contains("10.80.0.1"), "{page}");
    assert!(page.starts_with("listen 127.0.0.1:"), "{page}");
}
