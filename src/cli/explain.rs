//! `tollgate explain`: what would become of a request, by the file alone.

use std::io::IsTerminal as _;
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;

use super::EXIT_BAD_FILE;
use super::check::reject;
use super::print;
use crate::explain;
use crate::explain::asked::Asked;
use crate::load;

/// A request by hand.
#[derive(Debug, Args)]
pub(super) struct Request {
    /// Its method.
    #[arg(long, default_value = "GET")]
    method: String,
    /// Its path, with its query if it has one.
    #[arg(long, default_value = "/")]
    path: String,
    /// Its host; `localhost` if none is given.
    #[arg(long)]
    host: Option<String>,
    /// Its API key, put where the file looks first. It is shown nowhere.
    #[arg(long)]
    key: Option<String>,
    /// The address that it comes from; 127.0.0.1 if none is given.
    #[arg(long, value_name = "ADDRESS")]
    ip: Option<IpAddr>,
    /// One of its headers; may be given several times.
    #[arg(long, value_name = "NAME:VALUE", value_parser = header)]
    header: Vec<(String, String)>,
    /// Answer in JSON, for programs.
    #[arg(long)]
    json: bool,
}

/// Prints what would become of a request, and why.
pub(super) fn explain(file: &Path, request: Request) -> ExitCode {
    let policy = match load::load(file) {
        Ok(policy) => policy,
        Err(error) => return reject(&error),
    };
    let Request { method, path, host, key, ip, header: headers, json } = request;
    let asked = Asked { method, path, host, headers, key, ip };
    let explanation = match explain::by_rules(&policy, &asked) {
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

/// `NAME:VALUE`. What is wrong is said without the value.
fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write it as NAME:VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}
