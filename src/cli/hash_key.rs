//! `tollgate hash-key`: prints the `[keys.<id>]` table of an API key, which holds only its hash, or
//! the table of a further key of a client.
//!
//! Standard output receives nothing but the table, so that it can be appended to the file. A new
//! key goes to standard error.

mod table;

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Read as _};
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use sha2::{Digest as _, Sha256};

use super::file::ConfigFile;
use super::{EXIT_BAD_FILE, print};
use crate::client::credential::MAX_KEY_BYTES;
use crate::load;
use table::{Table, Wanted};

/// Maximum length of the name of a token.
const MAX_NAME_BYTES: usize = 64;

/// Length of a new key in bytes (192 bits).
const NEW_KEY_BYTES: usize = 24;

/// Length below which a given key is reported as guessable.
const SHORT_KEY_BYTES: usize = 16;

/// The key, and what its table says.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// The key, or `-` to read it from standard input. Default: a new random key.
    key: Option<String>,
    /// Id of the client, which logs and metrics show. Default: `client-` and the beginning of the
    /// hash.
    #[arg(long)]
    id: Option<String>,
    /// Plan of the client. Default: the only plan of the file.
    #[arg(long)]
    plan: Option<String>,
    /// Name of the key among several of the client. With the --id of a client of the file, prints
    /// a further key of that client, for a rotation.
    #[arg(long)]
    name: Option<String>,
    /// Makes a token for the admin port instead, and prints its `[[admin.tokens]]` table. NAME is
    /// what the log shows.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["id", "plan", "name"])]
    admin: Option<String>,
}

/// An API key.
struct Key {
    text: String,
    origin: Origin,
}

/// Where a key comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The user has it.
    Given,
    /// It exists only in this process.
    New,
}

/// Prints the table of a key, and a new key. The file need not exist if the user does not name it.
pub(super) fn hash_key(file: &ConfigFile, flags: Flags) -> ExitCode {
    let shown = match &flags.admin {
        Some(name) => key_of(flags.key).and_then(|key| show_admin_token(&key, name, &file.path)),
        None => prepare(file, flags).map(|(key, table)| show(&key, &table, &file.path)),
    };
    shown.unwrap_or_else(|message| {
        eprintln!("error: {}", message.trim_end());
        ExitCode::from(EXIT_BAD_FILE)
    })
}

/// Writes the table of a token of the admin port as [`show`] does.
fn show_admin_token(token: &Key, name: &str, file: &Path) -> Result<ExitCode, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if !(1..=MAX_NAME_BYTES).contains(&name.len()) || !name.bytes().all(is_plain) {
        return Err("a name has 1 to 64 letters, digits, `_`, `.` or `-`".to_owned());
    }
    if std::io::stdout().is_terminal() {
        eprintln!("Add this to {}:", file.display());
    }
    let digest = hex(&Sha256::digest(&token.text));
    let exit = print(&format!(
        "\n[[admin.tokens]]\nname = \"{name}\"\nsha256 = \"{digest}\"\n\
         roles = [\"read\"]  # also: \"operate\", \"keys\"\n"
    ));
    if exit == ExitCode::SUCCESS && token.origin == Origin::New {
        let text = &token.text;
        eprint!("\nThis is the token {name}. It is not stored, and is shown only now:\n\n{text}\n");
    }
    Ok(exit)
}

fn prepare(file: &ConfigFile, flags: Flags) -> Result<(Key, Table), String> {
    let Flags { key, id, plan, name, admin: _ } = flags;
    let key = key_of(key)?;
    let wanted = Wanted { digest: hex(&Sha256::digest(&key.text)), id, plan, name };
    let table = match load::read(&file.path) {
        Ok(source) => {
            let table =
                Table::in_file(wanted, &file.path.display().to_string(), &source.as_written())?;
            let appended = table.check_appended(&file.path.display().to_string(), source.text());
            // The item that the message has is of use only with the key.
            appended.map_err(|message| format!("{message}\n{}", note(&key, &table)))?;
            table
        }
        Err(error) if !file.is_named && error.is_not_found() => Table::alone(wanted)?,
        Err(error) => return Err(error.to_string()),
    };
    Ok((key, table))
}

/// Writes the table to standard output, and everything else to standard error.
fn show(key: &Key, table: &Table, file: &Path) -> ExitCode {
    if std::io::stdout().is_terminal() {
        eprintln!("Add this to {}:", file.display());
    }
    let exit = print(&format!("\n{table}"));
    // A table that was not written needs no key.
    if exit == ExitCode::SUCCESS {
        eprint!("{}", note(key, table));
    }
    exit
}

/// What the user does with the key.
fn note(key: &Key, table: &Table) -> String {
    match key.origin {
        Origin::New => format!(
            "\nGive this key to the client {}. It is not stored, and is shown only now:\n\n{}\n",
            table.id, key.text
        ),
        Origin::Given if key.text.len() < SHORT_KEY_BYTES => format!(
            "\nwarning: a key of less than {SHORT_KEY_BYTES} characters can be guessed; without KEY, \
             `tollgate hash-key` makes a random one\n"
        ),
        Origin::Given => String::new(),
    }
}

/// The key of the command line, of standard input, or a new one.
fn key_of(argument: Option<String>) -> Result<Key, String> {
    let (text, origin) = match argument {
        None => {
            let key =
                new_key().map_err(|error| format!("cannot generate a random key: {error}"))?;
            (key, Origin::New)
        }
        Some(dash) if dash == "-" => {
            let key = read_key().map_err(|error| format!("cannot read the key: {error}"))?;
            (key, Origin::Given)
        }
        Some(key) => (key, Origin::Given),
    };
    if text.is_empty() {
        return Err("the key is empty".to_owned());
    }
    if text.len() > MAX_KEY_BYTES {
        return Err(format!("the key is longer than {MAX_KEY_BYTES} bytes"));
    }
    if text.chars().any(char::is_control) || text.trim() != text {
        return Err(
            "HTTP cannot transmit the key: it contains control characters, or begins or ends \
                    with space"
                .to_owned(),
        );
    }
    Ok(Key { text, origin })
}

fn new_key() -> Result<String, getrandom::Error> {
    let mut bytes = [0; NEW_KEY_BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(format!("tg_{}", hex(&bytes)))
}

/// The key on standard input, without the line break that `echo` adds.
fn read_key() -> std::io::Result<String> {
    let mut text = String::new();
    let most = u64::try_from(MAX_KEY_BYTES).unwrap_or(u64::MAX) + 3;
    std::io::stdin().lock().take(most).read_to_string(&mut text)?;
    Ok(text.trim_end_matches(['\r', '\n']).to_string())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    #[test]
    fn new_keys_differ() {
        assert_ne!(new_key().unwrap(), new_key().unwrap());
    }

    #[test]
    fn note_has_the_key_only_if_it_is_new() {
        let table = Table::alone(Wanted {
            digest: "ab".repeat(32),
            id: Some("acme".to_owned()),
            plan: Some("pro".to_owned()),
            name: None,
        });
        let table = table.unwrap();
        let note = |text: &str, origin| note(&Key { text: text.to_owned(), origin }, &table);
        assert_snapshot!(note("tg_0123456789abcdef", Origin::New), @r"

        Give this key to the client acme. It is not stored, and is shown only now:

        tg_0123456789abcdef
        ");
        assert_snapshot!(note("test", Origin::Given), @r"

        warning: a key of less than 16 characters can be guessed; without KEY, `tollgate hash-key` makes a random one
        ");
        assert_eq!(note("tg_0123456789abcdef", Origin::Given), "");
    }

    #[test]
    fn new_key_is_shown_if_the_user_has_to_write_its_item() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.toml");
        let digest = "0".repeat(64);
        std::fs::write(&path, format!("keys.acme = {{ sha256 = '{digest}' }}\n")).unwrap();
        let file = ConfigFile { path, is_named: true };
        let (id, name) = (Some("acme".to_owned()), Some("2027".to_owned()));
        let message =
            prepare(&file, Flags { key: None, id, plan: None, name, admin: None }).err().unwrap();
        let key = message.lines().find(|line| line.starts_with("tg_")).expect(&message);
        assert!(message.contains(&hex(&Sha256::digest(key))), "{message}");
    }
}
