//! The questions of `tollgate init` on a terminal.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;

use nix::pty::{OpenptyResult, openpty};
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::support::{eventually, tollgate};

const CTRL_C: &str = "\u{3}";
const CTRL_D: &str = "\u{4}";

/// The program on a pseudo-terminal, in a folder of its own.
struct Dialogue {
    child: Child,
    terminal: File,
    /// Our side of the pseudo-terminal, which keeps it open after the program has exited.
    _inside: std::os::fd::OwnedFd,
    seen: Arc<Mutex<Vec<u8>>>,
    folder: TempDir,
}

impl Dialogue {
    fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap())
    }

    fn start_in(folder: TempDir) -> Self {
        let OpenptyResult { master, slave } = openpty(None, None).unwrap();
        let inside = || Stdio::from(slave.try_clone().unwrap());
        // In a session whose terminal it is, so that Ctrl-C is a signal.
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(env!("CARGO_BIN_EXE_tollgate")).arg("init");
        command.stdin(inside()).stdout(inside()).stderr(inside()).current_dir(folder.path());
        let child = command.spawn().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut reader = File::from(master.try_clone().unwrap());
        let written = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count) = reader.read(&mut buffer) {
                written.lock().extend_from_slice(&buffer[..count]);
            }
        });
        Self { child, terminal: master.into(), _inside: slave, seen, folder }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock()).into_owned()
    }

    /// Waits until these words are on the screen so often.
    #[track_caller]
    fn wait_for(&self, words: &str, times: usize) {
        eventually(words, || (self.text().matches(words).count() >= times).then_some(()));
    }

    /// Waits for a question, and answers it.
    #[track_caller]
    fn answer(&mut self, question: &str, times: usize, keys: &str) {
        self.wait_for(question, times);
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    fn end(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// The file, if it is written.
    fn file(&self) -> Option<String> {
        fs::read_to_string(self.folder.path().join("gateway.toml")).ok()
    }
}

impl Drop for Dialogue {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn answers_are_written_empty_ones_are_defaults_and_wrong_ones_are_asked_for_again() {
    let mut dialogue = Dialogue::start();
    dialogue.answer("Where is your API?", 1, "api.internal\n");
    dialogue.wait_for("  the server `api.internal` has no port", 1);
    dialogue.answer("Where is your API?", 2, "api.internal:3000\n");
    dialogue.answer("HTTPS with a certificate", 1, "\n");
    dialogue.answer("Where do clients connect?", 1, "\n");
    dialogue.answer("Limit each what?", 1, "key\n");
    dialogue.answer("How many requests?", 1, "ten\n");
    dialogue.answer("How many requests?", 2, "7/m\n");
    dialogue.answer("Several gateways?", 1, "\n");
    assert_eq!(dialogue.end().code(), Some(0), "{}", dialogue.text());
    dialogue.wait_for("gateway.toml is written", 1);
    let text = dialogue.file().unwrap();
    for part in
        ["servers = [\"api.internal:3000\"]", "per = [\"key\"]", "rate = \"7/m\"", "127.0.0.1:8080"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let path = dialogue.folder.path().join("gateway.toml");
    let checked = tollgate(&["check", "--strict", path.to_str().unwrap()], "");
    assert_eq!(checked.code, Some(0), "{checked:?}");
}

#[test]
fn ctrl_c_and_ctrl_d_end_the_questions_without_a_file() {
    let mut dialogue = Dialogue::start();
    dialogue.answer("Where is your API?", 1, "a:1\n");
    dialogue.answer("HTTPS with a certificate", 1, CTRL_C);
    assert_eq!(dialogue.end().signal(), Some(2), "{}", dialogue.text());
    assert_eq!(dialogue.file(), None);
    let mut dialogue = Dialogue::start();
    dialogue.answer("Where is your API?", 1, "a:1\n");
    dialogue.answer("HTTPS with a certificate", 1, CTRL_D);
    assert_eq!(dialogue.end().code(), Some(1), "{}", dialogue.text());
    dialogue.wait_for("gateway.toml is not written: the input ended", 1);
    assert_eq!(dialogue.file(), None);
}

#[test]
fn existing_file_is_reported_before_the_first_question() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("gateway.toml"), "mine").unwrap();
    let mut dialogue = Dialogue::start_in(folder);
    assert_eq!(dialogue.end().code(), Some(64), "{}", dialogue.text());
    dialogue.wait_for("exists, and is not overwritten", 1);
    assert!(!dialogue.text().contains("Where is your API?"), "{}", dialogue.text());
    assert_eq!(dialogue.file().as_deref(), Some("mine"));
}
