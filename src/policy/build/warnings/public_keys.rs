//! Warns of the keys of the gateway.toml that is shipped: everyone can read them in its comments.
//!
//! A key is reported if it has exactly the hash of one of them.

use std::ops::Range;

use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::suggest::list;
use crate::config::{Config, in_order};

/// The public keys and their SHA-256.
const PUBLIC: [(&str, &str); 3] = [
    ("demo-free", "e1f4fdb94683a17c8a5d9e6dc6cca27c4a2f827dbe26ede139c17a61127b1f4f"),
    ("demo-pro", "de4562274bd40421c1e8c1a589f4ec9f96c4c6e529fa843be4ef0d99d9256b7e"),
    ("demo-enterprise", "ae3f7e73ea6034735cf24ff7eccb3e66ea95c2684c859962499f1278f06c3670"),
];

/// Adds one warning for all public keys of the file.
pub(super) fn add(config: &Config, diagnostics: &mut Diagnostics) {
    let mut found: Vec<(&str, Range<usize>, &str)> = Vec::new();
    for (id, key) in in_order(&config.keys) {
        let has =
            |digest: &str| key.get_ref().digests().any(|own| own.eq_ignore_ascii_case(digest));
        let public = PUBLIC.iter().find(|(_, digest)| has(digest));
        if let Some((key, _)) = public {
            found.push((id.get_ref(), id.span(), key));
        }
    }
    let Some((first, span, key)) = found.first().cloned() else { return };
    let ids: Vec<&str> = found.iter().map(|(id, ..)| *id).collect();
    let message = match ids.as_slice() {
        [_] => format!(
            "the key `{}` is public: it is in the gateway.toml that is shipped",
            cut(first, 64)
        ),
        _ => format!(
            "the keys {} are public: they are in the gateway.toml that is shipped",
            list(&ids, "and")
        ),
    };
    let help = "before others can reach the gateway, remove such keys, and make new ones with \
                `tollgate hash-key`";
    let warning = Diagnostic::warning(span, message).here(format!("`{key}`"));
    let others = found.into_iter().skip(1);
    let warning =
        others.fold(warning, |warning, (_, span, key)| warning.and(span, format!("`{key}`")));
    diagnostics.push(warning.help(help));
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn public_keys_are_those_of_the_shipped_files() {
        let shipped = include_str!("../../../../gateway.toml");
        let compose = include_str!("../../../../docker/gateway/gateway.toml");
        for (key, digest) in PUBLIC {
            let hex = Sha256::digest(key).iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            });
            assert_eq!(hex, digest, "{key}");
            for file in [shipped, compose] {
                assert!(file.contains(&format!("sha256 = \"{digest}\"   # {key}\n")), "{key}");
            }
        }
        for file in [shipped, compose] {
            assert_eq!(file.matches("sha256 = ").count(), PUBLIC.len());
        }
    }

    /// The warnings of a file with these keys: id and hash.
    fn warnings(keys: &[(&str, &str)]) -> String {
        let keys = keys.iter().fold(String::new(), |mut text, (id, digest)| {
            let _ = writeln!(text, "[keys.{id}]\nsha256 = '{digest}'");
            text
        });
        let file = format!(
            "[upstreams.api]\nservers = ['demo']\n[routes.all]\n[rules.all]\nper = ['key']\nrate = '1/s'\n{keys}"
        );
        let (_, report) = crate::load::check_text("gateway.toml", &file, &|_| None).unwrap();
        if report.warnings.is_empty() { "no warnings\n".to_owned() } else { report.render(false) }
    }

    #[test]
    fn public_keys_are_reported_in_one_warning() {
        let own = "0123456789abcdef".repeat(4);
        let [(_, free), (_, pro), _] = PUBLIC;
        insta::assert_snapshot!(warnings(&[("own", &own)]), @"no warnings");
        insta::assert_snapshot!(warnings(&[("own", &own), ("acme", &pro.to_uppercase())]), @r"
        warning: the key `acme` is public: it is in the gateway.toml that is shipped
         --> gateway.toml:9:7
          |
        9 | [keys.acme]
          |       ^^^^ `demo-pro`
          |
          = help: before others can reach the gateway, remove such keys, and make new ones with `tollgate hash-key`

        gateway.toml: 1 warning
        ");
        insta::assert_snapshot!(warnings(&[("alice", free), ("own", &own), ("acme", pro)]), @r"
        warning: the keys `alice` and `acme` are public: they are in the gateway.toml that is shipped
          --> gateway.toml:7:7
           |
         7 | [keys.alice]
           |       ^^^^^ `demo-free`
        ...
        11 | [keys.acme]
           |       ---- `demo-pro`
           |
           = help: before others can reach the gateway, remove such keys, and make new ones with `tollgate hash-key`

        gateway.toml: 1 warning
        ");
    }
}
