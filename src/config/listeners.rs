//! `[[listeners]]` as written: where clients connect, and how.

use super::spanned::Spanned;
use super::tables::{Field, TextOr};
use super::walk::table;
use super::words::{ClientAuthMode, Redirect, TlsVersion};

table! {
    /// `[[listeners]]`: where clients connect, beside `server.listen`.
    pub struct Listener {
        /// Address with port, or a Unix socket: `"0.0.0.0:443"`, `"unix:/run/tollgate.sock"`.
        pub address: Field<String>,
        /// Permissions of a Unix socket, in octal digits. Default: `"0660"`.
        pub mode: Field<String>,
        /// Certificates, which make the listener serve HTTPS: PEM files as `{ cert, key }`, or
        /// `"acme"` for those of `[acme]`. The first is used for clients that send no server name.
        /// Default: none.
        pub certificates: Option<Spanned<Vec<Spanned<TextOr<CertificateFiles>>>>>,
        /// Whether HTTP/2 is served beside HTTP/1.1. Default: `true` with certificates, else
        /// `false`.
        pub http2: Field<bool>,
        /// PEM file with the authorities of client certificates, which are then asked for. Default:
        /// none.
        pub client_ca: Field<String>,
        /// Whether clients need a certificate; needs `client_ca`. Default: `"required"`.
        pub client_auth: Field<ClientAuthMode>,
        /// The oldest version of TLS that is accepted. Default: `"1.2"`.
        pub min_tls: Field<TlsVersion>,
        /// Whether each connection begins with a header of the PROXY protocol, version 1 or 2. Only
        /// `server.trusted_proxies` may then connect. Default: `false`.
        pub proxy_protocol: Field<bool>,
        /// Answer every request with a redirect to the same URL with `https://`. Default: none.
        pub redirect: Field<Redirect>,
        /// `Strict-Transport-Security` of responses: how long browsers use only HTTPS, such as
        /// `"365d"`, or `{ max_age, include_subdomains, preload }`. Default: none.
        pub hsts: Option<Spanned<TextOr<Hsts>>>,
    }
}

table! {
    /// An item of `certificates`.
    pub struct CertificateFiles {
        /// PEM file with the certificate, followed by the intermediate certificates.
        pub cert: Field<String>,
        /// PEM file with the private key of the certificate.
        pub key: Field<String>,
        /// DER file with an OCSP response to staple. Default: none.
        pub ocsp: Field<String>,
    }
}

table! {
    /// `hsts` of a listener.
    pub struct Hsts {
        /// How long browsers use only HTTPS, up to `3650d`; `"0s"` makes them forget it.
        pub max_age: Field<String>,
        /// Whether this includes all subdomains. Default: `false`.
        pub include_subdomains: Field<bool>,
        /// Whether the domain may be added to the lists that browsers contain. Default: `false`.
        pub preload: Field<bool>,
    }
}
