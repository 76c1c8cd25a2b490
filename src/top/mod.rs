//! `tollgate top`: what a gateway does, live in a terminal, by its admin API alone.
//!
//! Reading order: `api` (what the admin port tells, as far as it is shown), `stream` (its events, out
//! of bytes), `state` and `rates` (what is shown, pure), `screen` (how), `plain` (the same once, as
//! text); `target`, `client` and `feed` (how it is asked), `terminal` (screen and keys).

pub mod target;

mod api;
mod client;
mod feed;
mod plain;
mod rates;
mod screen;
mod state;
mod stream;
mod terminal;

use std::time::Duration;

use client::Client;
pub use client::GatewayError;
use target::Target;

/// What is asked for on the command line.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Which gateway.
    pub target: Target,
    /// How often it is asked for what it does not tell by itself.
    pub interval: Duration,
    /// Whether colours are wanted.
    pub color: bool,
}

/// Why there is nothing on the screen.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// The gateway has not answered, or not as one does.
    #[error("{0}")]
    Gateway(GatewayError),
    /// The terminal does not do what is asked of it.
    #[error("the terminal cannot be used: {0}")]
    Terminal(#[from] std::io::Error),
}

/// Shows it on the terminal until the user leaves.
///
/// # Errors
/// The terminal cannot be used. A gateway that does not answer is asked again.
pub fn live(asked: &Asked) -> Result<(), TopError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let shown = runtime.block_on(terminal::show(asked));
    // A thread may be waiting for a key that never comes.
    runtime.shutdown_background();
    shown.map_err(TopError::Terminal)
}

/// The same as text, once.
///
/// # Errors
/// The gateway does not answer.
pub fn once(asked: &Asked) -> Result<String, TopError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = Client::new(asked.target.clone());
    let seen = runtime.block_on(feed::once(&client)).map_err(TopError::Gateway)?;
    Ok(plain::page(&asked.target.shown(), &seen))
}
