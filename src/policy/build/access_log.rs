//! `[access_log]`.

mod fields;

use std::path::PathBuf;

use super::environment::{Environment, expand};
use super::values::fraction_in;
use super::words::meaning;
use crate::base::text::cut;
use crate::client::settings::Clients;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::spanned::Spanned;
use crate::config::{Config, tables};
use crate::policy::access_log::{AccessLog, Output};
use crate::policy::redis::Secret;
use crate::policy::sample::SampleRate;

/// The access log; off without the table. `clients` has the places of API keys.
pub(super) fn access_log(
    config: &Config,
    environment: Environment<'_>,
    clients: Option<&Clients>,
    diagnostics: &mut Diagnostics,
) -> Option<AccessLog> {
    let Some(table) = &config.access_log else {
        return Some(AccessLog::default());
    };
    let tables::AccessLog { output, client_ip, salt, sample, fields } = table.get_ref();
    let output = match output {
        None => Some(Output::Stdout),
        Some(field) => self::output(field, environment, diagnostics),
    };
    let salt = match salt {
        None => Some(None),
        Some(field) => self::salt(field, environment, diagnostics).map(Some),
    };
    let sample = match sample {
        None => tables::AccessLog::sample.fraction().and_then(SampleRate::of),
        Some(field) => {
            let help = "`0.1` writes one in ten of the requests that pass";
            fraction_in(&tables::AccessLog::sample, field, help, diagnostics)
                .and_then(SampleRate::of)
        }
    };
    let key_sources = clients.map_or(&[][..], |clients| &clients.key_sources);
    let fields = fields::fields(fields, key_sources, diagnostics);
    let client_ip = meaning(client_ip.as_ref());
    Some(AccessLog { output: output?, client_ip, salt: salt?, sample: sample?, fields: fields? })
}

fn output(
    field: &Spanned<String>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Output> {
    match expand(&tables::AccessLog::output, field, environment, diagnostics)?.as_str() {
        "stdout" => Some(Output::Stdout),
        "off" => Some(Output::Off),
        // A relative path would depend on the working directory of the process.
        path if path.starts_with('/') && !path.ends_with('/') => {
            Some(Output::File(PathBuf::from(path)))
        }
        _ => {
            let shown = cut(field.get_ref(), 64);
            let message =
                format!("`output` is `stdout`, `off` or the path of a file, not `{shown}`");
            let help = "a path begins with `/`: `output = \"/var/log/tollgate/access.log\"`";
            diagnostics.push(Diagnostic::new(field.span(), message).help(help));
            None
        }
    }
}

fn salt(
    field: &Spanned<String>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Secret> {
    let salt = expand(&tables::AccessLog::salt, field, environment, diagnostics)?;
    let (least, _) = tables::AccessLog::salt.range().characters();
    if salt.chars().count() >= least {
        return Some(Secret::new(salt));
    }
    let message = format!("`salt` has less than {least} characters");
    let help = "make one with `openssl rand -hex 16`, and best take it from the environment: \
                `salt = \"${LOG_SALT}\"`";
    diagnostics.push(Diagnostic::new(field.span(), message).help(help));
    None
}
