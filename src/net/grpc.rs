//! Which requests are gRPC calls, by their media type.

use http::{HeaderMap, HeaderValue, header};

/// The form of gRPC that a request has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// gRPC itself, which has trailers.
    Native,
    /// gRPC-Web, whose trailers are a part of the body; they can also be headers.
    Web,
    /// gRPC-Web with a body in Base64.
    WebText,
}

impl Form {
    /// The form of a request with these headers; `None`: it is no call.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        Self::of_type(headers.get(header::CONTENT_TYPE)?.as_bytes())
    }

    fn of_type(content_type: &[u8]) -> Option<Self> {
        let rest = content_type.strip_prefix(b"application/grpc")?;
        let end = rest.iter().position(|byte| b"+; ".contains(byte)).unwrap_or(rest.len());
        match rest.get(..end)? {
            b"" => Some(Self::Native),
            b"-web" => Some(Self::Web),
            b"-web-text" => Some(Self::WebText),
            _ => None,
        }
    }

    /// Media type of a request or a response without a message.
    pub const fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Native => "application/grpc",
            Self::Web => "application/grpc-web",
            Self::WebText => "application/grpc-web-text",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_by_content_type() {
        let table: [(&[u8], Option<Form>); 9] = [
            (b"application/grpc", Some(Form::Native)),
            (b"application/grpc+proto", Some(Form::Native)),
            (b"application/grpc; charset=utf-8", Some(Form::Native)),
            (b"application/grpc-web", Some(Form::Web)),
            (b"application/grpc-web+proto", Some(Form::Web)),
            (b"application/grpc-web-text+proto", Some(Form::WebText)),
            (b"application/grpcx", None),
            (b"application/grpc-other", None),
            (b"text/plain", None),
        ];
        for (content_type, expected) in table {
            assert_eq!(Form::of_type(content_type), expected);
        }
    }
}
