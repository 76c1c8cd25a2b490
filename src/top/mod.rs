//! `tollgate top`: shows a gateway live in a terminal. It uses only the admin API.
//!
//! Reading order: `target`, `client` and `feed` (requests to the admin port), `stream` (events),
//! `state`, `rates` and `zone` (what is shown; pure), `screen` (how it is drawn), `plain` (all of
//! it once, as text), `terminal` (screen and keys).

pub mod target;

mod client;
mod feed;
mod plain;
mod rates;
mod screen;
mod state;
mod stream;
mod terminal;
mod zone;

use std::time::Duration;

pub use client::{Client, GatewayError};
pub(crate) use screen::words::{endpoint as endpoint_in_words, lookup as lookup_in_words};
use target::Target;

/// The options of the command line.
#[derive(Debug, Clone)]
pub struct Options {
    /// The admin port of the gateway to show.
    pub target: Target,
    /// Interval of requests for all data except events.
    pub interval: Duration,
    /// Whether to use colours.
    pub color: bool,
}

/// Why `tollgate top` ends with an error.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// A request to the admin port has no usable response.
    #[error("{0}")]
    Gateway(GatewayError),
    /// The terminal cannot be used.
    #[error("the terminal cannot be used: {0}")]
    Terminal(#[from] std::io::Error),
}

/// Shows the gateway on the terminal until the user quits.
///
/// # Errors
/// The terminal cannot be used. An error of the gateway is shown, and the request is repeated.
pub fn live(options: &Options) -> Result<(), TopError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let shown = runtime.block_on(terminal::show(options));
    // The thread that reads keys may wait for one.
    runtime.shutdown_background();
    shown.map_err(TopError::Terminal)
}

/// Returns all data once, as text.
///
/// # Errors
/// A request to the admin port has no usable response.
pub fn once(options: &Options) -> Result<String, TopError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = Client::new(options.target.clone());
    let summary = runtime.block_on(feed::once(&client)).map_err(TopError::Gateway)?;
    Ok(plain::page(&options.target.shown(), &summary))
}
