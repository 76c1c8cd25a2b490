//! `[[listeners]]` as written: where clients connect, and how.

use super::row::DefaultValue::{InWords, Switch, Text};
use super::row::Form::{Address, Duration, Matches};
use super::row::Range::Durations;
use super::row::References::Variables;
use super::row::Unit;
use super::spanned::Spanned;
use super::tables::{Field, TextOr};
use super::walk::table;
use super::words::{ClientAuthMode, Redirect, TlsVersion};

table! {
    /// `[[listeners]]`: where clients connect, beside `server.listen`.
    pub struct Listener {
        /// Address with port, or a Unix socket: `"0.0.0.0:443"`, `"unix:/run/tollgate.sock"`.
        pub address: Field<String> { form: Address, needs_restart: true },
        /// Permissions of a Unix socket, in octal digits.
        pub mode: Field<String> {
            default: Text("0660"),
            form: Matches("^0?[0-7]{3}$"),
            needs_restart: true,
        },
        /// Certificates, which make the listener serve HTTPS: PEM files as `{ cert, key }`, or
        /// `"acme"` for those of `[acme]`. The first is used for clients that send no server name.
        pub certificates: Option<Spanned<Vec<Spanned<TextOr<CertificateFiles>>>>> {
            default: InWords("none"),
            form: Matches("^acme$"),
            example: Some(r#"[{ cert = "api.pem", key = "api.key" }]"#),
        },
        /// Whether HTTP/2 is served beside HTTP/1.1.
        pub http2: Field<bool> { default: InWords("`true` with certificates, else `false`") },
        /// PEM file with the authorities of client certificates, which are then asked for.
        pub client_ca: Field<String> { default: InWords("none"), references: Variables },
        /// Whether clients need a certificate; needs `client_ca`.
        pub client_auth: Field<ClientAuthMode>,
        /// The oldest version of TLS that is accepted.
        pub min_tls: Field<TlsVersion>,
        /// Whether each connection begins with a header of the PROXY protocol, version 1 or 2. Only
        /// `server.trusted_proxies` may then connect.
        pub proxy_protocol: Field<bool> { default: Switch(false) },
        /// Answer every request with a redirect to the same URL with `https://`.
        pub redirect: Field<Redirect> { default: InWords("none") },
        /// `Strict-Transport-Security` of responses: how long browsers use only HTTPS, such as
        /// `"365d"`, or `{ max_age, include_subdomains, preload }`.
        pub hsts: Option<Spanned<TextOr<Hsts>>> {
            default: InWords("none"),
            form: Duration(Unit::Unclear),
            range: Durations("0s", "3650d"),
            example: Some("\"365d\""),
        },
    }
}

table! {
    /// An item of `certificates`.
    pub struct CertificateFiles {
        /// PEM file with the certificate, followed by the intermediate certificates.
        pub cert: Field<String> { references: Variables },
        /// PEM file with the private key of the certificate.
        pub key: Field<String> { references: Variables },
        /// DER file with an OCSP response to staple.
        pub ocsp: Field<String> { default: InWords("none"), references: Variables },
    }
}

table! {
    /// `hsts` of a listener.
    pub struct Hsts {
        /// How long browsers use only HTTPS; `"0s"` makes them forget it.
        pub max_age: Field<String> {
            form: Duration(Unit::Unclear),
            range: Durations("0s", "3650d"),
        },
        /// Whether this includes all subdomains.
        pub include_subdomains: Field<bool> { default: Switch(false) },
        /// Whether the domain may be added to the lists that browsers contain.
        pub preload: Field<bool> { default: Switch(false) },
    }
}
