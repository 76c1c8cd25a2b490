//! `tollgate explain`: explains the response to a request, from the file only.

use std::io::IsTerminal as _;
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;

use super::EXIT_BAD_FILE;
use super::check::reject_or_start;
use super::print;
use crate::explain;
use crate::explain::request::RequestSpec;
use crate::load;

/// The request to explain.
#[derive(Debug, Args)]
pub(super) struct Request {
    /// Method of the request.
    #[arg(long, default_value = "GET")]
    method: String,
    /// Path of the request, with its query if any.
    #[arg(long, default_value = "/")]
    path: String,
    /// Host of the request; by default that of a URL as path, else `localhost`.
    #[arg(long)]
    host: Option<String>,
    /// API key, sent at the first place that `clients.api_key` lists. The output does not contain
    /// it.
    #[arg(long)]
    key: Option<String>,
    /// Id of a key of the file, instead of the key: explains a request that has this key.
    #[arg(long, value_name = "ID", conflicts_with = "key")]
    key_id: Option<String>,
    /// Address of the client; 127.0.0.1 by default.
    #[arg(long, value_name = "ADDRESS")]
    ip: Option<IpAddr>,
    /// Subject of the client's certificate, as in RFC 4514: `CN=app,O=Example`. Without it, the
    /// client has no certificate.
    #[arg(long, value_name = "SUBJECT")]
    cert: Option<String>,
    /// A header of the request; can be repeated.
    #[arg(long, value_name = "NAME:VALUE", value_parser = header)]
    header: Vec<(String, String)>,
    /// Print the explanation as JSON, as `POST /api/explain` answers.
    #[arg(long)]
    json: bool,
}

/// Prints the response to a request, and why.
pub(super) fn explain(file: &Path, request: Request) -> ExitCode {
    let policy = match load::load_settings(file) {
        Ok(policy) => policy,
        Err(error) => return reject_or_start(&error),
    };
    let Request { method, path, host, key, key_id, ip, cert, header: headers, json } = request;
    let request = RequestSpec { method, path, host, headers, key, key_id, ip, cert };
    let explanation = match explain::by_rules(&policy, &request) {
        Ok(explanation) => explanation,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(EXIT_BAD_FILE);
        }
    };
    let text = if json {
        serde_json::to_string_pretty(&explanation).map(|json| json + "\n")
    } else {
        Ok(explanation.render(std::io::stdout().is_terminal()))
    };
    match text {
        Ok(text) => print(&text),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Parses `NAME:VALUE`. The error does not contain the value.
fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write it as NAME:VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}
