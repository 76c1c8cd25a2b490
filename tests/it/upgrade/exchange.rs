//! Faults in the exchange between the old process and the new one.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{PROGRAM, Program, upgrade, upgraded};
use crate::support::{
    DEMO, Gateway, eventually, full_config, is_running, sleep_for, timed, tollgate,
};

const RULE: &str = "[rules.r]\nper = [\"ip\"]\nrate = \"5/d\"\nburst = 5\n";

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.try_into().unwrap()), signal).unwrap();
}

/// A new program that waits after the first message of the old process until it may become the
/// gateway. Its standard input keeps what the old process has sent.
struct WaitingProgram(tempfile::TempDir);

impl WaitingProgram {
    /// Replaces `program`, upgrades by SIGQUIT, and returns after the first message.
    fn greeted_by(gateway: &Gateway, program: &Program) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [greeted, go] = ["greeted", "go"].map(|name| folder.path().join(name));
        program.replace(&format!(
            "#!/usr/bin/env python3\nimport os, select, sys, time\n\
             select.select([0], [], [])\nopen('{}', 'w').close()\n\
             while not os.path.exists('{}'):\n    time.sleep(0.01)\n\
             os.execv('{PROGRAM}', ['{PROGRAM}'] + sys.argv[1:])\n",
            greeted.display(),
            go.display()
        ));
        gateway.sigquit();
        eventually("the first message", || greeted.exists().then_some(()));
        Self(folder)
    }

    /// Lets it become the gateway.
    fn go(&self) {
        std::fs::write(self.0.path().join("go"), "").unwrap();
    }
}

#[test]
fn row_67_new_process_serves_if_the_old_one_is_killed_in_the_middle() {
    let program = Program::new();
    let mut gateway =
        Gateway::start_program(&program.path(), &full_config(&format!("{DEMO}{RULE}")));
    for _ in 0..5 {
        assert_eq!(gateway.get("/").status, 200);
    }
    let successor = WaitingProgram::greeted_by(&gateway, &program);
    // The sockets follow at once.
    sleep_for(Duration::from_millis(500));
    signal(gateway.pid(), Signal::SIGKILL);
    assert_eq!(gateway.exit().0, None);
    successor.go();
    // The backlog of the sockets keeps connections.
    assert_eq!(gateway.get("/").status, 429, "no second burst: {}", gateway.log());
    assert_eq!(gateway.admin("/ready").status, 200);
    assert!(gateway.log().contains("did not hand over its buckets"), "{}", gateway.log());
}

#[test]
fn row_67_sigterm_in_the_middle_ends_the_new_process_too() {
    let program = Program::new();
    let mut gateway = Gateway::start_program(&program.path(), &full_config(DEMO));
    let _waiting = WaitingProgram::greeted_by(&gateway, &program);
    let successor = started(&gateway);
    gateway.terminate();
    assert_eq!(gateway.exit().0, Some(0));
    eventually("its end", || (!is_running(successor)).then_some(()));
}

/// The process that an upgrade has started last.
fn started(gateway: &Gateway) -> u32 {
    let log = gateway.log();
    let rest = log.rsplit("a new process starts process=").next().unwrap();
    rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

/// A program that takes part in the exchange by these lines of Python.
fn fake_program(lines: &str) -> String {
    format!(
        "#!/usr/bin/env python3\nimport os, signal, socket, struct, sys, time\n\
         s = socket.socket(fileno=0)\n\
         def send(text): s.sendall(struct.pack('<I', len(text)) + text.encode())\n\
         def read(count):\n    \
             data = b''\n    \
             while len(data) < count: data += s.recv(count - len(data))\n    \
             return data\n\
         def receive(): return read(struct.unpack('<I', read(4))[0])\n\
         greeting = receive().decode()\nassert 'sockets' in greeting\nread(2)\n{lines}\n"
    )
}

/// Python that writes the file `left`, if the old process leaves it without a message.
fn note_if_left(left: &Path) -> String {
    format!("assert not s.recv(1)\nopen('{}', 'w')\ntime.sleep(60)", left.display())
}

#[test]
fn row_67_new_process_that_fails_at_any_step_leaves_the_old_one_serving() {
    let program = Program::new();
    let rule = RULE.replace("burst = 5", "burst = 50");
    let config = full_config(&format!("upgrade_timeout = \"5s\"\n{DEMO}{rule}"));
    let gateway = Gateway::start_program(&program.path(), &config);
    let mut used = 0;
    let prepared = "send('\"Prepared\"')\n";
    let folder = tempfile::tempdir().unwrap();
    let left = folder.path().join("left");
    let waits = note_if_left(&left);
    // (lines, reason)
    let cases = [
        ("sys.exit(0)".to_owned(), "ended before it was ready (exit status: 0)"),
        ("os.kill(os.getpid(), signal.SIGKILL)".to_owned(), "ended before it was ready (signal: 9"),
        (format!("send('\"Serving\"')\n{waits}"), "unexpected answer: Serving"),
        (format!("send('{{\"Failed\":\"no luck\"}}')\n{waits}"), "cannot start: no luck"),
        (format!("{prepared}receive()\nsys.exit(3)"), "ended before it was ready (exit status: 3)"),
        (
            format!("{prepared}receive()\nos.kill(os.getpid(), signal.SIGKILL)"),
            "ended before it was ready (signal: 9",
        ),
        (format!("{prepared}receive()\ntime.sleep(60)"), "was not ready within"),
        (format!("{prepared}time.sleep(60)"), "was not ready within"),
        (format!("{prepared}receive()\n{prepared}{waits}"), "unexpected answer: Prepared"),
        ("s.sendall(b'\\xff' * 100)\ntime.sleep(60)".to_owned(), "cannot take over"),
    ];
    for (lines, reason) in &cases {
        program.replace(&fake_program(lines));
        let (answer, took) = timed(|| upgrade(&gateway));
        assert_eq!(answer.status, 503, "{lines}: {}", answer.text());
        assert!(answer.text().contains(reason), "{lines}: {}", answer.text());
        assert!(took.as_secs() < 15, "{lines}: {took:?}");
        let successor = started(&gateway);
        eventually("its end", || (!is_running(successor)).then_some(()));
        assert!(!left.exists(), "it would have served before it was killed: {lines}");
        // On a new connection.
        used += 1;
        assert_eq!(gateway.get("/").remaining(), 50 - used, "{lines}");
        assert_eq!(gateway.admin("/ready").status, 200);
    }
    program.restore();
    upgraded(&gateway);
    assert_eq!(gateway.get("/").remaining(), 49 - used);
}

#[test]
fn row_67_new_process_that_hangs_in_the_takeover_delays_connections_by_ten_seconds_at_most() {
    let program = Program::new();
    let gateway = Gateway::start_program(&program.path(), &full_config(DEMO));
    program.replace(&fake_program("send('\"Prepared\"')\ntime.sleep(60)"));
    let (answer, took) = timed(|| upgrade(&gateway));
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.text().contains("did not take over within 10s"), "{}", answer.text());
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn row_67_one_of_four_upgrades_at_a_time_is_done() {
    let gateway = Gateway::start(DEMO);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..4).map(|_| scope.spawn(|| upgrade(&gateway).status)).collect();
        asked.into_iter().map(|it| it.join().unwrap()).collect()
    });
    // Another one may be done by the new process.
    assert!(statuses.contains(&200), "{statuses:?}");
    assert!(statuses.iter().all(|status| [200, 409].contains(status)), "{statuses:?}");
    assert_eq!(gateway.get("/").status, 200);
    let is_one = || (gateway.successors().len() == 1).then_some(());
    eventually("one process", is_one);
}

#[test]
fn row_67_sighup_and_sigquit_at_the_same_moment() {
    let gateway = Gateway::start(DEMO);
    let mut serving = gateway.pid();
    for round in 0..5 {
        signal(serving, Signal::SIGHUP);
        signal(serving, Signal::SIGQUIT);
        signal(serving, Signal::SIGHUP);
        assert_eq!(gateway.get("/").status, 200);
        eventually("its end", || (!is_running(serving)).then_some(()));
        let successors = gateway.successors();
        assert_eq!(successors.len(), 1, "round {round}: {}", gateway.log());
        serving = successors[0];
        assert_eq!(gateway.get("/").status, 200);
    }
}

#[test]
fn row_67_sigquit_to_both_processes_is_one_upgrade() {
    let program = Program::new();
    let mut gateway = Gateway::start_program(&program.path(), &full_config(DEMO));
    let waiting = WaitingProgram::greeted_by(&gateway, &program);
    let successor = started(&gateway);
    program.restore();
    // The old process stops before it hands over, so that the new one gets its signals before that.
    signal(gateway.pid(), Signal::SIGSTOP);
    waiting.go();
    let listens = || gateway.log().matches("listening on").count() == 2;
    eventually("the new process", || listens().then_some(()));
    sleep_for(Duration::from_millis(500));
    signal(successor, Signal::SIGQUIT);
    sleep_for(Duration::from_millis(500));
    signal(gateway.pid(), Signal::SIGCONT);
    assert_eq!(gateway.exit().0, Some(0));
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(gateway.successors(), [successor], "{}", gateway.log());
}

#[test]
fn row_67_program_of_another_version_says_so() {
    let program = Program::new();
    let gateway = Gateway::start_program(&program.path(), &full_config(DEMO));
    let script = format!("#!/bin/sh\nTOLLGATE_HANDOVER=2 exec {PROGRAM} \"$@\"\n");
    program.replace(&script);
    let (answer, took) = timed(|| upgrade(&gateway));
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.text().contains("restart the gateway"), "{}", answer.text());
    assert!(took.as_secs() < 10, "{took:?}");
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn upgrade_without_the_admin_token_is_refused() {
    let gateway = Gateway::start(&format!("{DEMO}[admin]\ntoken = \"{}\"\n", "t".repeat(32)));
    let admin = format!("http://{}", gateway.admin);
    let outcome = tollgate(&["upgrade", "--admin", &admin], "");
    assert_eq!(outcome.code, Some(64), "{outcome:?}");
    assert_eq!(upgrade(&gateway).status, 401);
    assert!(!gateway.log().contains("a new process starts"), "{}", gateway.log());
}
