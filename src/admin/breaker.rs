//! `GET` and `POST /api/breaker`: the state of the circuit breaker, and its override for a
//! rehearsal.

use http::StatusCode;
use serde_json::Value;

use super::answer::Answer;
use super::members::{self, BadBody};
use crate::api::status::{Breaker, Override};
use crate::store::limiter::Limiter;
use crate::store::redis::link::breaker::BreakerStatus;

/// The breaker of the limiter's nodes; of several, all of them as one. `None` without Redis.
pub(super) fn of(limiter: &Limiter) -> Option<Breaker> {
    limiter.redis()?.breaker().map(Breaker::from)
}

impl From<BreakerStatus> for Breaker {
    fn from(status: BreakerStatus) -> Self {
        let BreakerStatus { state, r#override, since_us, admits_percent, retry_after_us } = status;
        Self {
            state,
            r#override,
            since_ms: since_us / 1_000,
            admits_percent,
            retry_after_ms: retry_after_us.div_ceil(1_000),
        }
    }
}

/// Answers with the state of the breaker.
pub(super) fn show(limiter: &Limiter) -> Answer {
    of(limiter).map_or_else(no_breaker, |breaker| Answer::json(&breaker))
}

/// Sets or ends the override as the body says, and answers with the state afterwards.
pub(super) fn set(limiter: &Limiter, body: &[u8]) -> Answer {
    let wanted = match wanted(body) {
        Ok(wanted) => wanted,
        Err(error) => return Answer::problem(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let Some(before) = of(limiter) else { return no_breaker() };
    if let Some(nodes) = limiter.redis() {
        nodes.set_override(wanted);
    }
    let Some(after) = of(limiter) else { return no_breaker() };
    let shown =
        |breaker: &Breaker| format!("{} ({})", breaker.state.name(), breaker.r#override.name());
    let note = format!("{} -> {}", shown(&before), shown(&after));
    Answer::json(&after).noting(note)
}

fn wanted(body: &[u8]) -> Result<Override, BadBody> {
    const EXAMPLE: &str = r#"{"state": "open"}, `closed` or `auto`"#;
    let body = members::read(body, &["state"], EXAMPLE)?;
    match body.get("state").and_then(Value::as_str) {
        Some("open") => Ok(Override::Open),
        Some("closed") => Ok(Override::Closed),
        Some("auto") => Ok(Override::Auto),
        _ => Err(BadBody::new("`state` must be `open`, `closed` or `auto`", EXAMPLE)),
    }
}

/// The response of a gateway without Redis.
fn no_breaker() -> Answer {
    let detail = "there is no circuit breaker: the file has no [redis]";
    Answer::problem(StatusCode::CONFLICT, detail)
}
