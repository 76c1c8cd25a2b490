//! Asks the admin port, over connections that are kept.

use std::time::Duration;

use http::{StatusCode, header};
use pingora::connectors::http::v1::Connector;
use pingora::prelude::{HttpPeer, RequestHeader};
use pingora::protocols::http::v1::client::HttpSession;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::time::timeout;

use super::target::Target;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long the next event may take. One comes every second.
const SILENCE: Duration = Duration::from_secs(10);

/// How long an unused connection is kept.
const IDLE: Duration = Duration::from_secs(60);

/// The longest answer that is read. Five minutes of very many names have 3 MB.
const MOST_BYTES: usize = 16 << 20;

/// Why there is nothing new.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Trouble {
    /// Nobody answers there.
    #[error("no gateway answers at {at}: {why}")]
    Unreachable {
        /// The address.
        at: String,
        /// What the system says.
        why: String,
    },
    /// The port asks for a token, and none was given.
    #[error("{at} asks for a token: give it by --token-file or TOLLGATE_ADMIN_TOKEN")]
    NoToken {
        /// The address.
        at: String,
    },
    /// The token is not the one.
    #[error("the token is not the one that {at} asks for")]
    WrongToken {
        /// The address.
        at: String,
    },
    /// Something else answers.
    #[error("what answers at {at} is not tollgate's admin port: {why}")]
    NotTollgate {
        /// The address.
        at: String,
        /// What it says.
        why: String,
    },
    /// It answers that it does not answer that.
    #[error("{at} answers {status}: {why}")]
    Refused {
        /// The address.
        at: String,
        /// The status.
        status: u16,
        /// What it says.
        why: String,
    },
}

/// A problem document, RFC 9457, as far as it is shown.
#[derive(Debug, Deserialize)]
struct Problem {
    detail: String,
}

/// Who asks.
pub(super) struct Client {
    connector: Connector,
    target: Target,
}

/// An answer whose body goes on for as long as the gateway lives.
pub(super) struct Stream {
    session: HttpSession,
    at: String,
}

impl Client {
    pub(super) fn new(target: Target) -> Self {
        Self { connector: Connector::new(None), target }
    }

    /// The JSON at a path.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Trouble> {
        let asked = async {
            let (mut session, peer) = self.ask(path).await?;
            let body = self.body(&mut session).await?;
            let status = session.get_status().unwrap_or_default();
            session.respect_keepalive();
            self.connector.release_http_session(session, &peer, Some(IDLE)).await;
            self.check(status, &body)?;
            serde_json::from_slice(&body).map_err(|error| self.strange(&error.to_string()))
        };
        self.in_time(asked).await
    }

    /// The stream at a path.
    pub(super) async fn stream(&self, path: &str) -> Result<Stream, Trouble> {
        let asked = async {
            let (mut session, _) = self.ask(path).await?;
            let status = session.get_status().unwrap_or_default();
            if status != StatusCode::OK {
                let body = self.body(&mut session).await?;
                self.check(status, &body)?;
            }
            let kind = session.get_header_bytes(header::CONTENT_TYPE);
            if !kind.starts_with(b"text/event-stream") {
                return Err(self.strange("it has no events"));
            }
            Ok(Stream { session, at: self.target.shown() })
        };
        self.in_time(asked).await
    }

    async fn in_time<T>(
        &self,
        asked: impl Future<Output = Result<T, Trouble>>,
    ) -> Result<T, Trouble> {
        let late = || self.unreachable(&"no answer within 5 s");
        timeout(PATIENCE, asked).await.unwrap_or_else(|_| Err(late()))
    }

    /// Sends a request and reads the head of its answer.
    async fn ask(&self, path: &str) -> Result<(HttpSession, HttpPeer), Trouble> {
        let Target { server, token } = &self.target;
        let found = tokio::net::lookup_host((server.host.as_str(), server.port)).await;
        let addresses: Vec<_> = found.map_err(|error| self.unreachable(&error))?.collect();
        let mut trouble = self.unreachable(&"the name has no address");
        // A name may have addresses on which nobody listens: `localhost` has two.
        for address in addresses {
            let peer = HttpPeer::new(address, false, String::new());
            let mut request = RequestHeader::build("GET", path.as_bytes(), Some(4))
                .and_then(|mut request| {
                    request.insert_header("Host", self.target.shown())?;
                    request.insert_header("Accept", "application/json, text/event-stream")?;
                    Ok(request)
                })
                .map_err(|error| self.unreachable(&error))?;
            if let Some(token) = token {
                let value = format!("Bearer {}", token.reveal());
                let inserted = request.insert_header("Authorization", value);
                inserted.map_err(|_| self.wrong_token())?;
            }
            match self.exchange(&peer, &request).await {
                Ok(session) => return Ok((session, peer)),
                Err(error) => trouble = error,
            }
        }
        Err(trouble)
    }

    /// Once more where a connection that was kept turns out to be dead.
    async fn exchange(
        &self,
        peer: &HttpPeer,
        request: &RequestHeader,
    ) -> Result<HttpSession, Trouble> {
        loop {
            let got = self.connector.get_http_session(peer).await;
            let (mut session, reused) = got.map_err(|error| self.unreachable(&reason(&error)))?;
            let sent = session.write_request_header(Box::new(request.clone())).await;
            let answered = match sent {
                Ok(_) => session.read_response().await,
                Err(error) => Err(error),
            };
            match answered {
                Ok(_) => return Ok(session),
                Err(_) if reused => {}
                Err(error) => return Err(self.strange(&reason(&error))),
            }
        }
    }

    async fn body(&self, session: &mut HttpSession) -> Result<Vec<u8>, Trouble> {
        let mut body = Vec::new();
        loop {
            match session.read_body_bytes().await {
                Ok(Some(_)) if body.len() > MOST_BYTES => {
                    return Err(self.strange("its answer has no end"));
                }
                Ok(Some(bytes)) => body.extend_from_slice(&bytes),
                Ok(None) => return Ok(body),
                Err(error) => return Err(self.unreachable(&reason(&error))),
            }
        }
    }

    /// Whether an answer is the one that was asked for.
    fn check(&self, status: StatusCode, body: &[u8]) -> Result<(), Trouble> {
        if status == StatusCode::OK {
            return Ok(());
        }
        let at = self.target.shown();
        let Ok(Problem { detail: why }) = serde_json::from_slice(body) else {
            return Err(self.strange(&format!("it answers {}", status.as_u16())));
        };
        Err(match (status, &self.target.token) {
            (StatusCode::UNAUTHORIZED, None) => Trouble::NoToken { at },
            (StatusCode::UNAUTHORIZED, Some(_)) => self.wrong_token(),
            _ => Trouble::Refused { at, status: status.as_u16(), why: short(&why) },
        })
    }

    fn unreachable(&self, why: &dyn std::fmt::Display) -> Trouble {
        Trouble::Unreachable { at: self.target.shown(), why: short(&why.to_string()) }
    }

    fn strange(&self, why: &str) -> Trouble {
        Trouble::NotTollgate { at: self.target.shown(), why: short(why) }
    }

    fn wrong_token(&self) -> Trouble {
        Trouble::WrongToken { at: self.target.shown() }
    }
}

impl Stream {
    /// The bytes that come next; none at the stream's end.
    pub(super) async fn next(&mut self) -> Result<Option<bytes::Bytes>, Trouble> {
        let failed = |why: String| Trouble::Unreachable { at: self.at.clone(), why };
        match timeout(SILENCE, self.session.read_body_bytes()).await {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(error)) => Err(failed(reason(&error))),
            Err(_) => Err(failed("no event for 10 s".to_owned())),
        }
    }
}

/// What lies at the bottom of an error of Pingora's.
fn reason(error: &pingora::Error) -> String {
    error.root_cause().to_string()
}

/// What somebody else said, for one line of a screen: no control characters, and not long.
fn short(text: &str) -> String {
    crate::config::suggest::cut(text, 160)
}
