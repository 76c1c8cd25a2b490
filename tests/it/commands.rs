//! The command line.

use std::fs;
use std::process::Command;

use insta::assert_snapshot;
use tempfile::TempDir;

use crate::support::{DEMO, Gateway, Outcome, Request, check, eventually, tollgate};

/// The SHA-256 of "test", as `printf test | sha256sum` prints it.
const TEST_DIGEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

#[test]
fn check_prints_a_summary_of_a_valid_file() {
    let outcome = check(DEMO.as_bytes());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let summary = outcome.stdout.split_once(": ").unwrap().1;
    assert_eq!(summary, "1 route, 0 rules, 1 plan, 0 keys, 1 upstream\n");
}

/// A full disk, and a reader that has gone.
#[test]
fn check_ends_without_a_panic_if_it_cannot_print() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    std::fs::write(&file, DEMO).unwrap();
    let run = |output: &str| {
        let command = format!("tollgate check gateway.toml {output}");
        let output = crate::support::bash(&command, folder.path()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let full = run("> /dev/full");
    assert_eq!(full.0, Some(1), "{full:?}");
    assert!(full.1.starts_with("error: cannot write"), "{full:?}");
    assert_eq!(run("| true; exit ${PIPESTATUS[0]}"), (Some(0), String::new()));
}

#[test]
fn check_and_run_print_the_same_errors() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    std::fs::write(&file, format!("{DEMO}[rules.all]\nper = [\"ip\"]\nrate = \"ten/s\"\n"))
        .unwrap();
    let file = file.to_str().unwrap();
    let [check, run, plain] = [&["check", "-c", file][..], &["run", "-c", file], &["-c", file]]
        .map(|call| tollgate(call, ""));
    assert_eq!([check.code, run.code, plain.code], [Some(64); 3]);
    assert!(check.stderr.contains("ten/s"), "{}", check.stderr);
    assert_eq!(check.stderr, run.stderr);
    assert_eq!(check.stderr, plain.stderr);
}

#[test]
fn init_writes_a_file_without_warnings_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    let file = file.to_str().unwrap();
    let written = tollgate(&["init", file, "--upstream", "127.0.0.1:4000"], "");
    assert_eq!(written.code, Some(0), "{written:?}");
    assert!(written.stdout.contains(&format!("tollgate run {file}")), "{written:?}");
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains("servers = [\"127.0.0.1:4000\"]"), "{text}");
    let checked = tollgate(&["check", "--strict", file], "");
    assert_eq!((checked.code, checked.stderr.as_str()), (Some(0), ""), "{checked:?}");
    assert!(!checked.stdout.contains("note:"), "{checked:?}");
    let again = tollgate(&["init", file], "");
    assert_eq!(again.code, Some(64), "{again:?}");
    assert!(again.stderr.contains("exists, and is not overwritten"), "{again:?}");
    assert_eq!(std::fs::read_to_string(file).unwrap(), text);
    let forced =
        tollgate(&["init", "--output", file, "--force", "--upstream", "127.0.0.1:4000"], "");
    assert_eq!(forced.code, Some(0), "{forced:?}");
    assert_eq!(std::fs::read_to_string(file).unwrap(), text);
    // What the comments suggest is valid, too.
    let suggested: String = text
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(line) if line.starts_with('[') || line.contains(" = ") => format!("{line}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let checked = check(suggested.as_bytes());
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(checked.stdout.contains("2 rules, 2 plans"), "{checked:?}");
    for wrong in ["", "a\"b", "127.0.0.1:0x"] {
        let other = folder.path().join("other.toml");
        let refused = tollgate(&["init", other.to_str().unwrap(), "--upstream", wrong], "");
        assert_eq!(refused.code, Some(64), "{refused:?}");
        assert!(refused.stderr.contains("error: the server") && !other.exists(), "{refused:?}");
    }
    let nowhere = tollgate(&["init", "/nonexistent/gateway.toml"], "");
    assert_eq!(nowhere.code, Some(1), "{nowhere:?}");
}

#[test]
fn init_writes_what_its_flags_say_if_that_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    let file = path.to_str().unwrap();
    let written = tollgate(
        &[
            "init",
            file,
            "--per",
            "key,route",
            "--rate",
            "100/m",
            "--redis",
            "redis://r",
            "--listen",
            "[::]:80",
        ],
        "",
    );
    assert_eq!((written.code, written.stderr.as_str()), (Some(0), ""), "{written:?}");
    let text = std::fs::read_to_string(&path).unwrap();
    for line in [
        "listen = [\"[::]:80\"]",
        "[rules.per-key-route]",
        "per = [\"key\", \"route\"]",
        "rate = \"100/m\"",
        "burst = 100",
        "url = \"redis://r\"",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let checked = tollgate(&["check", "--strict", file], "");
    assert_eq!(checked.code, Some(0), "{checked:?}");
    for (wrong, message) in [
        (["--rate", "5"], "the rate has no period"),
        (["--per", "cookie"], "is none of ip, key"),
        (["--cert", "api.pem"], "--key"),
        (["--email", "a@b.c"], "--acme"),
    ] {
        let refused = tollgate(&["init", file, "--force", wrong[0], wrong[1]], "");
        assert_eq!(refused.code, Some(64), "{refused:?}");
        assert!(refused.stderr.contains(message), "{refused:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    let missing = tollgate(&["init", file, "--force", "--cert", "api.pem", "--key", "api.key"], "");
    assert_eq!(missing.code, Some(64), "{missing:?}");
    assert!(missing.stderr.contains("cannot read api.pem"), "{missing:?}");
    let two = tollgate(&["init", file, "--output", "other.toml"], "");
    assert_eq!(two.code, Some(64), "{two:?}");
    assert!(two.stderr.contains("two files are given"), "{two:?}");
}

#[test]
fn import_writes_a_file_and_a_list() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (nginx, output) = (path("nginx.conf"), path("gateway.toml"));
    let text =
        "server { listen 8081; location / { proxy_pass http://127.0.0.1:3000; } proxy_cache x; }\n";
    std::fs::write(&nginx, text).unwrap();
    let printed = tollgate(&["import", &nginx], "");
    assert_eq!(printed.code, Some(0), "{printed:?}");
    assert!(printed.stdout.contains("servers = [\"127.0.0.1:3000\"]"), "{printed:?}");
    let line =
        format!("{nginx}:1: proxy_cache x: not taken over: the gateway does not cache responses\n");
    assert!(printed.stderr.starts_with(&line), "{printed:?}");
    assert!(printed.stderr.ends_with("1 not taken over, 0 approximately\n"), "{printed:?}");
    let piped = tollgate(&["import", "--from", "nginx", "-"], text);
    assert_eq!(
        (piped.code, piped.stderr.contains("standard input:1: ")),
        (Some(0), true),
        "{piped:?}"
    );
    let written = tollgate(&["import", &nginx, "--output", &output], "");
    assert_eq!(written.code, Some(0), "{written:?}");
    assert_eq!(std::fs::read_to_string(&output).unwrap(), printed.stdout);
    let checked = tollgate(&["check", "--strict", &output], "");
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let again = tollgate(&["import", &nginx, "--output", &output], "");
    assert_eq!(again.code, Some(64), "{again:?}");
    assert!(again.stderr.contains("exists, and is not overwritten"), "{again:?}");
    std::fs::write(&nginx, "http {\n server {\n").unwrap();
    let broken = tollgate(&["import", &nginx], "");
    assert_eq!(broken.code, Some(64), "{broken:?}");
    assert_eq!(broken.stderr, format!("error: {nginx}:2: the block `server` does not end\n"));
    std::fs::write(&nginx, "hello\n").unwrap();
    let unknown = tollgate(&["import", &path("missing.conf")], "");
    assert_eq!(unknown.code, Some(64), "{unknown:?}");
    assert!(unknown.stderr.contains("cannot read "), "{unknown:?}");
    std::fs::write(path("x.conf"), "hello\n").unwrap();
    let unknown = tollgate(&["import", &path("x.conf")], "");
    assert!(unknown.stderr.contains("--from nginx|traefik|kong|envoy"), "{unknown:?}");
}

/// As they are in the folder of a package, or in a copy of it.
#[test]
fn import_reads_the_files_that_nginx_includes() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for (name, text) in [
        (
            "nginx.conf",
            "http {\n  include /etc/nginx/tollgate-test/*.conf;\n  include gone.conf;\n}\n",
        ),
        ("tollgate-test/b.conf", "server { server_name b.test; include snippets/proxy; }\n"),
        ("tollgate-test/a.conf", "server { server_name a.test;\n include snippets/proxy; }\n"),
        ("tollgate-test/notes.txt", "no directives {"),
        ("snippets/proxy", "location / {\n  proxy_pass http://127.0.0.1:3000; proxy_cache x; }\n"),
        ("unrelated.conf", "server { location / { proxy_pass http://127.0.0.1:4000; } }\n"),
    ] {
        std::fs::create_dir_all(path(name).parent().unwrap()).unwrap();
        std::fs::write(path(name), text).unwrap();
    }
    let nginx = path("nginx.conf");
    let printed = tollgate(&["import", nginx.to_str().unwrap()], "");
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let [first, second] = ["a.test", "b.test"].map(|host| printed.stdout.find(host).unwrap());
    assert!(first < second, "{printed:?}");
    let from = format!("{}:1", path("snippets/proxy").display());
    assert_eq!(printed.stdout.matches(&from).count(), 2, "{printed:?}");
    assert!(!printed.stdout.contains("4000"), "{printed:?}");
    let shown = folder.path().display();
    let gone = format!(
        "{shown}/nginx.conf:3: include gone.conf: not taken over: there is no file {shown}/gone.conf"
    );
    assert!(printed.stderr.starts_with(&gone), "{printed:?}");
    let once = format!("{shown}/snippets/proxy:2: proxy_cache x: not taken over: ");
    assert_eq!(printed.stderr.matches(&once).count(), 1, "{printed:?}");
}

/// Files whose paths have the same end, symbolic links, and files that are also named.
#[test]
fn import_keeps_restrictions_of_included_files_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["sub", "other/sub"] {
        std::fs::create_dir_all(path(name)).unwrap();
    }
    std::fs::write(path("sub/acl"), "allow all;").unwrap();
    std::fs::write(path("other/sub/acl"), "deny all;").unwrap();
    std::os::unix::fs::symlink(path("other/sub/acl"), path("link")).unwrap();
    std::fs::write(path("broken"), "deny 'all;").unwrap();
    let proxy = "proxy_pass http://127.0.0.1:3000;";
    let text = format!(
        "server {{ location /a {{ include {}; {proxy} }}\n location /b {{ include sub/[^b]cl; {proxy} }}\n\
         location /c {{ include link; {proxy} }}\n location /d {{ include broken; {proxy} }} }}",
        path("other/sub/acl").display()
    );
    std::fs::write(path("nginx.conf"), text).unwrap();
    let [nginx, named] =
        ["nginx.conf", "other/../sub/acl"].map(|name| path(name).display().to_string());
    let printed = tollgate(&["import", &nginx, &named], "");
    let route = |name: &str| {
        let (_, table) = printed.stdout.split_once(&format!("[routes.{name}]")).unwrap();
        table.split("\n\n").next().unwrap()
    };
    assert!(route("a").contains("status = 403"), "{printed:?}");
    assert!(!route("b").contains("status = 403"), "{printed:?}");
    assert!(route("c").contains("status = 403"), "{printed:?}");
    let broken = format!(
        "{}:1: include broken: not taken over: a mistake in the file: a string does not end\n",
        path("broken").display()
    );
    assert!(printed.stderr.contains(&broken), "{printed:?}");
}

/// A file with a warning: its burst doubles what a day allows.
const DOUBLED: &str = "[rules.day]\nper = [\"ip\"]\nrate = \"1000/d\"\n";

#[test]
fn check_prints_warnings_and_accepts_the_file_unless_strict() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    std::fs::write(&file, format!("{DEMO}{DOUBLED}")).unwrap();
    let path = file.to_str().unwrap();
    let lax = tollgate(&["check", "-c", path], "");
    assert_eq!(lax.code, Some(0), "{lax:?}");
    assert!(lax.stderr.starts_with("warning: the rule `day` lets 2000 requests pass"), "{lax:?}");
    assert!(lax.stderr.ends_with("gateway.toml: 1 warning\n"), "{lax:?}");
    assert!(lax.stdout.ends_with("1 route, 1 rule, 1 plan, 0 keys, 1 upstream\n"), "{lax:?}");

    let strict = tollgate(&["check", "--strict", "-c", path], "");
    let as_errors = lax.stderr.replacen("warning: ", "error: ", 1).replace("1 warning", "1 error");
    assert_eq!((strict.code, strict.stderr), (Some(64), as_errors));
    assert_eq!(strict.stdout, "");
    std::fs::write(&file, DEMO).unwrap();
    assert_eq!(tollgate(&["check", "--strict", "-c", path], "").code, Some(0));

    std::fs::write(&file, format!("{DEMO}{DOUBLED}brust = 5\n")).unwrap();
    let both = tollgate(&["check", "-c", path], "");
    assert_eq!(both.code, Some(64));
    assert!(both.stderr.starts_with("error: unknown name `brust`"), "{both:?}");
    assert!(both.stderr.ends_with("gateway.toml: 1 error\n"), "{both:?}");
    std::fs::write(&file, format!("{DEMO}{DOUBLED}mode = \"shadwo\"\n")).unwrap();
    let both = tollgate(&["check", "-c", path], "");
    assert!(both.stderr.ends_with("gateway.toml: 1 error, 1 warning\n"), "{both:?}");
}

#[test]
fn warnings_are_logged_and_returned_at_the_start_and_by_reloads() {
    let gateway = Gateway::start(&format!("{DEMO}{DOUBLED}"));
    let logged = "the rule `day` lets 2000 requests pass in the first day path=";
    assert_eq!(gateway.log().matches(logged).count(), 1, "{}", gateway.log());
    let policy = gateway.admin("/api/policy").json();
    let warning = &policy["warnings"][0];
    assert_eq!(warning["message"], "the rule `day` lets 2000 requests pass in the first day");
    assert!(warning["line"].as_u64() > Some(3) && warning["column"] == 8, "{warning}");
    assert!(warning["help"].as_str().unwrap().contains("burst = 250"), "{warning}");
    assert_eq!(policy["more_warnings"], 0);

    let unchanged = gateway.reload().json();
    assert_eq!((&unchanged["result"], &unchanged["warnings"][0]), (&"unchanged".into(), warning));
    gateway.save(&format!("{DEMO}{DOUBLED}burst = 2000\n"));
    let message = |answer: &serde_json::Value| answer["warnings"][0]["message"].clone();
    // Applied, or unchanged because the save was noticed first.
    let applied = gateway.reload().json();
    assert_eq!(message(&applied), "the rule `day` lets 3000 requests pass in the first day");
    let is_logged = || gateway.log().contains("lets 3000 requests pass").then_some(());
    eventually("the warning in the log", is_logged);
    gateway.save(&format!("{DEMO}{DOUBLED}mode = \"shadwo\"\n"));
    let rejected = gateway.reload();
    assert_eq!(rejected.status, 422);
    let rejected = rejected.json();
    assert_eq!(message(&rejected), warning["message"]);
    assert_eq!(rejected["errors"].as_array().map(Vec::len), Some(1), "{rejected}");
    let reloads = gateway.admin("/api/reloads").json();
    let past = &reloads["reloads"];
    assert_eq!((&past[0]["result"], &message(&past[0])), (&"rejected".into(), &warning["message"]));
}

#[test]
fn file_is_an_argument_or_follows_the_flag() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("own.toml");
    std::fs::write(&file, DEMO).unwrap();
    let file = file.to_str().unwrap();
    for call in [
        &["check", file][..],
        &["check", "-c", file],
        &["-c", file, "check"],
        &["check", file, "-c", file],
        &["explain", file],
        &["explain", "--path", "/x", file],
    ] {
        assert_eq!(tollgate(call, "").code, Some(0), "{call:?}");
    }
    let missing = folder.path().join("missing.toml");
    let missing = missing.to_str().unwrap();
    for subcommand in ["run", "check", "explain", "top"] {
        let outcome = tollgate(&[subcommand, missing], "");
        assert_eq!(outcome.code, Some(64), "{outcome:?}");
        assert!(outcome.stderr.starts_with(&format!("error: cannot read {missing}: ")));
        let has_smallest = outcome.stderr.contains("[routes.all]\n    path = \"/*\"");
        assert_eq!(has_smallest, subcommand != "top", "{}", outcome.stderr);
        let outcome = tollgate(&[subcommand, file, "-c", missing], "");
        let expected = format!(
            "error: two files are given: `{file}`, and `{missing}` by a flag; leave one out\n"
        );
        assert_eq!((outcome.code, outcome.stderr), (Some(64), expected.clone()));
        let outcome = tollgate(&["-c", missing, subcommand, "-c", file], "");
        assert_eq!((outcome.code, outcome.stderr), (Some(64), expected));
    }
    // No default for a file that is named, not even one that is valid.
    assert_eq!(tollgate(&["check", ""], "").code, Some(64));
}

#[test]
fn path_without_a_subcommand_is_an_error_with_a_suggestion() {
    let outcome = tollgate(&["etc/gateway.toml"], "");
    assert_eq!(outcome.code, Some(64));
    assert_snapshot!(outcome.stderr, @r"
    error: `etc/gateway.toml` is not a command

      to serve this file:  tollgate run etc/gateway.toml
      to check this file:  tollgate check etc/gateway.toml
    ");
    let misspelt = tollgate(&["chekc"], "").stderr;
    assert!(misspelt.contains("similar subcommands exist: 'schema', 'check'"), "{misspelt}");
}

#[test]
fn schema_prints_the_schema_in_docs() {
    let outcome = tollgate(&["schema"], "");
    let kept = include_str!("../../docs/gateway.schema.json");
    assert_eq!((outcome.code, &*outcome.stdout), (Some(0), kept), "{}", outcome.stderr);
}

#[test]
fn completions_are_accepted_by_the_shell_and_name_every_command() {
    let help = tollgate(&["--help"], "").stdout;
    let commands = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let commands: Vec<&str> = commands
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    assert!(commands.len() > 10, "{help}");
    for shell in ["bash", "zsh", "fish"] {
        let outcome = tollgate(&["completions", shell], "");
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let missing: Vec<_> =
            commands.iter().filter(|name| !outcome.stdout.contains(**name)).collect();
        assert!(missing.is_empty(), "{shell}: {missing:?}");
    }
    let bash = TempDir::new().unwrap();
    let file = bash.path().join("completions");
    fs::write(&file, tollgate(&["completions", "bash"], "").stdout).unwrap();
    let complete = format!(
        "set -e; . {}; COMP_WORDS=(tollgate che); COMP_CWORD=1; _tollgate tollgate che tollgate; echo ${{COMPREPLY[@]}}",
        file.display()
    );
    let completed = Command::new("bash").args(["-c", &complete]).output().unwrap();
    let stderr = String::from_utf8_lossy(&completed.stderr);
    assert_eq!(String::from_utf8_lossy(&completed.stdout).trim(), "check", "{stderr}");
}

#[test]
fn manual_pages_of_all_commands_are_written() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("man/man1");
    let outcome = tollgate(&["man", "--folder", path.to_str().unwrap()], "");
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    for name in ["tollgate", "tollgate-run", "tollgate-hash-key", "tollgate-keys-create"] {
        let page = fs::read_to_string(path.join(format!("{name}.1"))).unwrap();
        assert!(page.contains(&format!(".TH {name} 1")), "{name}: {page}");
        assert!(page.contains(".SH OPTIONS"), "{name}: {page}");
    }
    let printed = tollgate(&["man"], "").stdout;
    assert_eq!(printed, fs::read_to_string(path.join("tollgate.1")).unwrap());
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let refused = tollgate(&["man", "--folder", file.to_str().unwrap()], "");
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("cannot write the manual pages"), "{}", refused.stderr);
}

#[test]
fn hash_key_prints_the_digest_of_a_given_key() {
    let given = tollgate(&["hash-key", "--plan", "pro", "test"], "");
    assert_eq!(given.code, Some(0));
    assert!(given.stdout.contains(&format!("sha256 = \"{TEST_DIGEST}\"")), "{}", given.stdout);
    assert!(given.stderr.contains("can be guessed"), "{}", given.stderr);
    for stdin in ["test", "test\n", "test\r\n"] {
        assert_eq!(tollgate(&["hash-key", "--plan", "pro", "-"], stdin).stdout, given.stdout);
    }
}

/// As `tollgate hash-key >> gateway.toml` twice, on a file without a line break at its end.
#[test]
fn appended_keys_are_accepted_and_the_file_does_not_contain_them() {
    let gateway = Gateway::start(DEMO.trim_end());
    let file = gateway.file().to_str().unwrap();
    let mut secrets = Vec::new();
    for id in [&["--id", "acme"][..], &[]] {
        let outcome = tollgate(&[&["hash-key", "-c", file], id].concat(), "");
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        let secret = outcome.stderr.lines().last().unwrap().to_owned();
        assert!(secret.starts_with("tg_") && secret.len() >= 40, "{secret}");
        assert!(!outcome.stdout.contains(&secret), "{outcome:?}");
        let content = std::fs::read_to_string(file).unwrap();
        std::fs::write(file, content + &outcome.stdout).unwrap();
        secrets.push(secret);
    }
    let checked = tollgate(&["check", file], "");
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(checked.stdout.contains("2 keys"), "{checked:?}");
    assert_eq!(gateway.reload().status, 200);
    let client = |secret: &str| {
        gateway.send(&Request::get("/").header("X-Api-Key", secret)).json()["client"].clone()
    };
    assert_eq!(client(&secrets[0]), "acme");
    assert!(client(&secrets[1]).as_str().unwrap().starts_with("client-"));
    assert_ne!(secrets[0], secrets[1]);
}

#[test]
fn hash_key_refuses_what_the_file_would_not_accept() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    let plans = "[plans.pro]\n[keys.acme]\nplan = \"pro\"\n";
    std::fs::write(&file, format!("{DEMO}{plans}sha256 = \"{TEST_DIGEST}\"\n")).unwrap();
    let file = file.to_str().unwrap();
    let table = [
        (&[][..], "has several plans; choose one: --plan `free` or `pro`"),
        (&["--plan", "por"], "has no plan `por`: did you mean `pro`?"),
        (&["--plan", "pro", "--id", "acme"], "has a key `acme` already"),
        (&["--plan", "pro", "test"], "has this key already, as `acme`"),
        (&["--plan", "pro", "--id", "a b"], "cannot hold ' '"),
    ];
    for (arguments, message) in table {
        let outcome = tollgate(&[&["hash-key", "-c", file], arguments].concat(), "");
        let Outcome { code, stdout, stderr } = &outcome;
        assert_eq!((*code, stdout.as_str()), (Some(64), ""), "{outcome:?}");
        assert!(stderr.contains(message), "{outcome:?}");
    }
    let missing = tollgate(&["hash-key", "-c", "/nonexistent/gateway.toml"], "");
    assert_eq!((missing.code, missing.stdout.as_str()), (Some(64), ""), "{missing:?}");
}

#[test]
fn hash_key_refuses_keys_that_http_cannot_transmit() {
    let long = "x".repeat(1_025);
    let table = [
        (&["hash-key", ""][..], ""),
        (&["hash-key", "-"], "\n"),
        (&["hash-key", &long], ""),
        (&["hash-key", " a"], ""),
        (&["hash-key", "a\nb"], ""),
        (&["hash-key", "-"], "a \n"),
    ];
    for (arguments, stdin) in table {
        let Outcome { code, stdout, stderr } = tollgate(arguments, stdin);
        assert_eq!((code, stdout.as_str()), (Some(64), ""), "{arguments:?}");
        assert!(stderr.starts_with("error: "), "{stderr}");
    }
}

#[test]
fn help_and_version_exit_with_0() {
    let help = tollgate(&["--help"], "");
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    assert_snapshot!(help.stdout);
    let version = tollgate(&["-V"], "");
    let number = concat!("tollgate ", env!("CARGO_PKG_VERSION"));
    assert_eq!((version.code, version.stdout.trim_end()), (Some(0), number));
    let long = tollgate(&["--version"], "");
    let names: Vec<&str> =
        long.stdout.lines().map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!(long.code, Some(0));
    assert_eq!(names, [number, "commit", "build", "target", "TLS", "memory"]);
}

#[test]
fn invalid_arguments_exit_with_64() {
    for arguments in [&["chekc"][..], &["--confgi", "x"], &["check", "-c"]] {
        let outcome = tollgate(arguments, "");
        assert_eq!(outcome.code, Some(64), "{outcome:?}");
        assert!(!outcome.stderr.is_empty());
    }
}
