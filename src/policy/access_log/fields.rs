//! `access_log.fields`: the members of a line of the access log.

use http::HeaderName;

/// The members of a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Fields {
    /// Those of [`Name::ALL`], in that order.
    #[default]
    All,
    /// These, in this order: at least one, each once.
    Listed(Box<[Field]>),
}

/// One member of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    /// A property of the request or its response.
    Name(Name),
    /// A property that only lines with listed fields have.
    Extra(Extra),
    Header(RequestHeader),
}

/// Name of a member that a line has only if it is listed. `docs/observability.md` says what each
/// contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extra {
    /// Version of HTTP.
    Http,
    TlsVersion,
    /// Cipher suite of TLS.
    TlsCipher,
    /// Server name in the client's TLS handshake.
    Sni,
    /// Subject of the client's certificate.
    CertSubject,
    /// Status of a gRPC call.
    GrpcStatus,
    /// Number of attempts to send the request to a server.
    Attempts,
    /// What it has cost, by rule, as its response says.
    Costs,
}

/// A header of requests that lines have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeader {
    /// Name of the member, `header:<name>`.
    pub member: Box<str>,
    pub name: HeaderName,
}

/// Declares the names of members, in the order of a line that has all of them.
macro_rules! names {
    ($($name:ident $text:literal)*) => {
        /// Name of a member that is not a header. `docs/observability.md` says what each contains.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Name { $($name,)* }

        impl Name {
            /// All names, in the order of a line that has all of them.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$name),*];

            /// The name as in the file and in a line.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

names! {
    Time "time"
    Id "id"
    TraceId "trace_id"
    Generation "generation"
    Key "key"
    KeyName "key_name"
    KeyFrom "key_from"
    Tenant "tenant"
    Ip "ip"
    Plan "plan"
    Method "method"
    Path "path"
    Route "route"
    Decision "decision"
    Rule "rule"
    ShadowRules "shadow_rules"
    Cost "cost"
    Remaining "remaining"
    Source "source"
    Reason "reason"
    Status "status"
    BytesIn "bytes_in"
    BytesOut "bytes_out"
    Upstream "upstream"
    Server "server"
    Total "total_ms"
    Check "check_ms"
    Wait "wait_ms"
    UpstreamTime "upstream_ms"
    Connection "connection"
    Connect "connect_ms"
    RequestBody "request_body_ms"
    FirstByte "first_byte_ms"
    Body "body_ms"
    Send "send_ms"
}

impl Name {
    /// The name with this text; `None` if there is none.
    fn of(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.as_str() == text)
    }
}

impl Extra {
    /// All names.
    pub const ALL: [Self; 8] = [
        Self::Http,
        Self::TlsVersion,
        Self::TlsCipher,
        Self::Sni,
        Self::CertSubject,
        Self::GrpcStatus,
        Self::Attempts,
        Self::Costs,
    ];

    /// The name as in the file and in a line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::TlsVersion => "tls_version",
            Self::TlsCipher => "tls_cipher",
            Self::Sni => "sni",
            Self::CertSubject => "cert_subject",
            Self::GrpcStatus => "grpc_status",
            Self::Attempts => "attempts",
            Self::Costs => "costs",
        }
    }
}

impl Field {
    /// The names of all fields that are not headers.
    pub fn names() -> Vec<&'static str> {
        let extra = Extra::ALL.into_iter().map(Extra::as_str);
        Name::ALL.into_iter().map(Name::as_str).chain(extra).collect()
    }

    /// The field with this name, if it is not a header; `None` if there is none.
    pub fn named(text: &str) -> Option<Self> {
        let extra = || Extra::ALL.into_iter().find(|extra| extra.as_str() == text);
        Name::of(text).map(Self::Name).or_else(|| extra().map(Self::Extra))
    }

    /// Name of the member in a line.
    pub fn member(&self) -> &str {
        match self {
            Self::Name(name) => name.as_str(),
            Self::Extra(extra) => extra.as_str(),
            Self::Header(header) => &header.member,
        }
    }
}

impl RequestHeader {
    /// The member for the header of this name.
    pub fn new(name: HeaderName) -> Self {
        Self { member: format!("header:{name}").into(), name }
    }
}
