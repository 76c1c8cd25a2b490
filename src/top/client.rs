//! Requests to the admin port.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::target::Target;
use crate::net::http::{HttpClient, HttpError, Request, Response, StreamingResponse};

/// Deadline of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum time between two events. There is one per second.
const EVENT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of a response. Five minutes of very many names have 3 MB.
const MAX_RESPONSE_BYTES: usize = 16 << 20;

const ACCEPTED: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// Why a request to the admin port has no usable response.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GatewayError {
    /// The connection fails, or the gateway does not answer in time.
    #[error("no gateway answers at {at}: {why}")]
    Unreachable {
        /// Address of the admin port, as `host:port`.
        at: String,
        /// How the connection failed, or how long there was no answer.
        why: String,
    },
    /// The admin port requires a token, and none is given.
    #[error("{at} asks for a token: give it by --token-file or TOLLGATE_ADMIN_TOKEN")]
    NoToken {
        /// Address of the admin port, as `host:port`.
        at: String,
    },
    /// The admin port requires another token.
    #[error("the token is not the one that {at} asks for")]
    WrongToken {
        /// Address of the admin port, as `host:port`.
        at: String,
    },
    /// The port belongs to another program.
    #[error("what answers at {at} is not tollgate's admin port: {why}")]
    NotTollgate {
        /// Address of the port, as `host:port`.
        at: String,
        /// What is wrong with the response.
        why: String,
    },
    /// The admin port answers with a problem document.
    #[error("{at} answers {status}: {why}")]
    Refused {
        /// Address of the admin port, as `host:port`.
        at: String,
        /// Status of the response.
        status: u16,
        /// Member `detail` of the problem document, cut to 160 characters.
        why: String,
    },
}

/// The parts of a problem document (RFC 9457) that are shown.
#[derive(Debug, Deserialize)]
struct Problem {
    detail: String,
}

/// A client of one admin port.
pub struct Client {
    http: HttpClient,
    target: Target,
    timeout: Duration,
}

/// The body of `GET /api/events`, read as it arrives.
pub(super) struct EventStream {
    response: StreamingResponse,
    at: String,
}

impl Client {
    /// Creates a client. Does not connect yet.
    pub fn new(target: Target) -> Self {
        Self {
            http: HttpClient::new(target.server.clone(), None),
            target,
            timeout: RESPONSE_TIMEOUT,
        }
    }

    /// Waits this long for a response.
    pub fn waiting(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Reads the JSON at a path.
    ///
    /// # Errors
    /// See [`GatewayError`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, GatewayError> {
        let request = self.request(path)?;
        let fetch = self.http.fetch(&request, self.timeout, MAX_RESPONSE_BYTES);
        let response = fetch.await.map_err(|error| failed(&self.target, &error))?;
        let body = self.body_of_success(response)?;
        serde_json::from_slice(&body).map_err(|error| self.not_tollgate(&error.to_string()))
    }

    /// Sends `body` to a path, and reads the JSON of a response with status 200, 201 or 422.
    ///
    /// # Errors
    /// See [`GatewayError`].
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        media_type: HeaderValue,
        body: &[u8],
    ) -> Result<T, GatewayError> {
        let mut request = Request { method: Method::POST, body, ..self.request(path)? };
        request.headers.push((CONTENT_TYPE, media_type));
        self.send(&request).await
    }

    /// Removes what a path names, and reads the JSON of the response.
    ///
    /// # Errors
    /// See [`GatewayError`].
    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, GatewayError> {
        self.send(&Request { method: Method::DELETE, ..self.request(path)? }).await
    }

    async fn send<T: DeserializeOwned>(&self, request: &Request<'_>) -> Result<T, GatewayError> {
        let fetch = self.http.fetch(request, self.timeout, MAX_RESPONSE_BYTES);
        let mut response = fetch.await.map_err(|error| failed(&self.target, &error))?;
        if matches!(response.status, StatusCode::CREATED | StatusCode::UNPROCESSABLE_ENTITY) {
            response.status = StatusCode::OK;
        }
        let body = self.body_of_success(response)?;
        serde_json::from_slice(&body).map_err(|error| self.not_tollgate(&error.to_string()))
    }

    /// Opens the stream of events at a path.
    pub(super) async fn stream(&self, path: &str) -> Result<EventStream, GatewayError> {
        let failed = |error| failed(&self.target, &error);
        let request = self.request(path)?;
        let response = self.http.open(&request, RESPONSE_TIMEOUT).await.map_err(failed)?;
        if response.status() != StatusCode::OK {
            let read = response.read(RESPONSE_TIMEOUT, MAX_RESPONSE_BYTES);
            self.body_of_success(read.await.map_err(failed)?)?;
            return Err(self.not_tollgate("it has no events"));
        }
        let media_type = response.header(&CONTENT_TYPE).map(HeaderValue::as_bytes);
        if !media_type.is_some_and(|name| name.starts_with(b"text/event-stream")) {
            return Err(self.not_tollgate("it has no events"));
        }
        Ok(EventStream { response, at: self.target.shown() })
    }

    fn request<'a>(&self, path: &'a str) -> Result<Request<'a>, GatewayError> {
        let mut headers = vec![(ACCEPT, ACCEPTED)];
        if let Some(token) = &self.target.token {
            let value = HeaderValue::from_str(&format!("Bearer {}", token.reveal()));
            headers.push((AUTHORIZATION, value.map_err(|_| self.wrong_token())?));
        }
        Ok(Request { method: Method::GET, path, headers, body: b"" })
    }

    /// Returns the body of a response with status 200.
    fn body_of_success(&self, response: Response) -> Result<Vec<u8>, GatewayError> {
        let body = response.body.map_err(|error| self.not_tollgate(&error.to_string()))?;
        let status = response.status;
        if status == StatusCode::OK {
            return Ok(body);
        }
        let at = self.target.shown();
        let Ok(Problem { detail: why }) = serde_json::from_slice(&body) else {
            return Err(self.not_tollgate(&format!("it answers {}", status.as_u16())));
        };
        Err(match (status, &self.target.token) {
            (StatusCode::UNAUTHORIZED, None) => GatewayError::NoToken { at },
            (StatusCode::UNAUTHORIZED, Some(_)) => self.wrong_token(),
            _ => GatewayError::Refused { at, status: status.as_u16(), why: short(&why) },
        })
    }

    /// The error of a connection that cannot be attempted.
    pub fn unreachable(&self, why: &str) -> GatewayError {
        GatewayError::Unreachable { at: self.target.shown(), why: short(why) }
    }

    /// The error of a port that is not that of a gateway, or not of this version.
    pub fn not_tollgate(&self, why: &str) -> GatewayError {
        GatewayError::NotTollgate { at: self.target.shown(), why: short(why) }
    }

    fn wrong_token(&self) -> GatewayError {
        GatewayError::WrongToken { at: self.target.shown() }
    }
}

impl EventStream {
    /// Returns the next bytes, `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, GatewayError> {
        self.response.next(EVENT_TIMEOUT).await.map_err(|error| {
            let why = match error {
                HttpError::Timeout(_) => "no event for 10 s".to_owned(),
                error => reason(&error),
            };
            GatewayError::Unreachable { at: self.at.clone(), why }
        })
    }
}

fn failed(target: &Target, error: &HttpError) -> GatewayError {
    let (at, why) = (target.shown(), short(&reason(error)));
    match error {
        // It accepts connections, but does not speak HTTP.
        HttpError::Head(_) => GatewayError::NotTollgate { at, why },
        HttpError::Connect(_) | HttpError::Body(_) | HttpError::Timeout(_) => {
            GatewayError::Unreachable { at, why }
        }
    }
}

/// Returns the root cause of an error, without Pingora's context.
fn reason(error: &HttpError) -> String {
    match error {
        HttpError::Connect(error) => error.to_string(),
        HttpError::Head(error) | HttpError::Body(error) => error.root_cause().to_string(),
        HttpError::Timeout(deadline) => format!("no answer within {} s", deadline.as_secs()),
    }
}

/// Shortens text of another program to one line of a screen, without control characters.
fn short(text: &str) -> String {
    crate::base::text::cut(text, 160)
}
