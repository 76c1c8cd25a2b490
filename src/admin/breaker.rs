//! `GET` and `POST /api/breaker`: whether Redis is asked; by hand, for a rehearsal.

use http::StatusCode;
use serde::Serialize;
use serde_json::Value;

use super::answer::Answer;
use super::members::{self, BadBody};
use crate::store::limiter::Limiter;
use crate::store::redis::link::Link;
use crate::store::redis::link::gate::{Hand, Standing};

/// The answer.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Breaker {
    /// `closed`, `half_open` or `open`.
    state: &'static str,
    /// `auto`, or what it is held at by hand: `open` or `closed`.
    hand: &'static str,
    /// Milliseconds since it came to that state.
    since_ms: u64,
    /// Percent of the requests that ask Redis.
    admits_percent: u32,
    /// Milliseconds until Redis is tried again; 0 where nothing waits for that.
    tried_again_in_ms: u64,
}

impl Breaker {
    pub(super) fn of(link: &Link) -> Self {
        let Standing { state, hand, since, admits_percent, tried_again_in } = link.breaker();
        Self {
            state,
            hand: name(hand),
            since_ms: since / 1_000,
            admits_percent,
            tried_again_in_ms: tried_again_in.div_ceil(1_000),
        }
    }
}

fn name(hand: Hand) -> &'static str {
    match hand {
        Hand::Auto => "auto",
        Hand::Open => "open",
        Hand::Closed => "closed",
    }
}

/// What it does.
pub(super) fn show(limiter: &Limiter) -> Answer {
    limiter.link().map_or_else(none, |link| Answer::json(&Breaker::of(link)))
}

/// Takes it in hand as the body says.
pub(super) fn set(limiter: &Limiter, body: &[u8]) -> Answer {
    let hand = match wanted(body) {
        Ok(hand) => hand,
        Err(error) => return Answer::problem(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let Some(link) = limiter.link() else { return none() };
    let before = Breaker::of(link);
    link.take_in_hand(hand);
    let after = Breaker::of(link);
    let told = |breaker: &Breaker| format!("{} ({})", breaker.state, breaker.hand);
    let note = format!("{} -> {}", told(&before), told(&after));
    Answer::json(&after).noting(note)
}

fn wanted(body: &[u8]) -> Result<Hand, BadBody> {
    const EXAMPLE: &str = r#"{"state": "open"}, `closed` or `auto`"#;
    let body = members::read(body, &["state"], EXAMPLE)?;
    match body.get("state").and_then(Value::as_str) {
        Some("open") => Ok(Hand::Open),
        Some("closed") => Ok(Hand::Closed),
        Some("auto") => Ok(Hand::Auto),
        _ => Err(BadBody::new("`state` is none of `open`, `closed` and `auto`", EXAMPLE)),
    }
}

fn none() -> Answer {
    let detail = "there is no breaker: the file has no [redis]";
    Answer::problem(StatusCode::CONFLICT, detail)
}
