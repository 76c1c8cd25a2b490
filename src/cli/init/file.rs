//! The text of the file that `tollgate init` writes. Pure.

use std::fmt::{self, Write as _};

use toml::Value;

/// Address on which clients connect without TLS.
pub(super) const LISTEN: &str = "127.0.0.1:8080";

/// Address on which clients connect with TLS.
pub(super) const LISTEN_TLS: &str = "0.0.0.0:443";

/// Address of the admin port.
pub(super) const ADMIN: &str = "127.0.0.1:9090";

/// The same if clients connect to the port of [`ADMIN`].
const ADMIN_BESIDE: &str = "127.0.0.1:9091";

/// The server that requests are forwarded to.
pub(super) const UPSTREAM: &str = "127.0.0.1:3000";

/// The rate of the rule.
pub(super) const RATE: &str = "10/s";

/// The burst that goes with [`RATE`].
const BURST: &str = "50";

/// What a file is written for.
#[derive(Debug, Clone)]
pub(super) struct Choices {
    /// Servers of the upstream, at least one.
    pub(super) servers: Vec<String>,
    /// Where clients connect; [`LISTEN`] or [`LISTEN_TLS`] by default.
    pub(super) listen: Option<String>,
    /// Address of the admin port, on loopback; [`ADMIN`] by default, or the next port if clients
    /// connect to that one.
    pub(super) admin: Option<String>,
    pub(super) tls: Tls,
    /// What a bucket is counted by.
    pub(super) per: Per,
    /// Such as `10/s`.
    pub(super) rate: String,
    /// Tokens, or a duration; by the rate if there is none.
    pub(super) burst: Option<String>,
    /// URL of Redis.
    pub(super) redis: Option<String>,
}

/// The certificates of the listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Tls {
    /// Plain HTTP.
    None,
    /// Paths of PEM files.
    Files { cert: String, key: String },
    /// Domains whose certificates are ordered by ACME.
    Acme { domains: Vec<String>, email: Option<String> },
}

/// What a bucket is counted by: names of `per`; none for one bucket for all clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Per(Vec<String>);

// === impl Choices ===

impl Default for Choices {
    fn default() -> Self {
        Self {
            servers: vec![UPSTREAM.to_owned()],
            listen: None,
            admin: None,
            tls: Tls::None,
            per: Per(vec!["ip".to_owned()]),
            rate: RATE.to_owned(),
            burst: None,
            redis: None,
        }
    }
}

impl Choices {
    /// Address on which clients connect.
    fn listen(&self) -> &str {
        let default = if self.tls == Tls::None { LISTEN } else { LISTEN_TLS };
        self.listen.as_deref().unwrap_or(default)
    }

    /// Address of the admin port.
    fn admin(&self) -> &str {
        let port = |address: &str| address.rsplit_once(':').map(|(_, port)| port.to_owned());
        let is_taken = port(self.listen()) == port(ADMIN);
        self.admin.as_deref().unwrap_or(if is_taken { ADMIN_BESIDE } else { ADMIN })
    }

    /// The whole file.
    pub(super) fn text(&self) -> String {
        [self.head(), self.forwarding(), self.rule(), self.plans(), self.redis()].join("\n")
    }

    fn head(&self) -> String {
        let mut text = "# tollgate: docs/configuration.md describes every setting. `tollgate check` reports mistakes, \
                        and the file is applied\n# when it is saved.\n\n[server]\n"
            .to_owned();
        if self.tls == Tls::None {
            let listen = format!("listen = [{}]", quoted(self.listen()));
            let is_default = self.listen() == LISTEN;
            let hint = if is_default { "; \"0.0.0.0:8080\" for all addresses" } else { "" };
            text += &commented(&listen, &format!("where clients connect{hint}"));
        }
        text += &commented(
            &format!("admin = {}", quoted(self.admin())),
            &format!("metrics, health, the dashboard: http://{}/", self.admin()),
        );
        text + &self.listeners()
    }

    /// The listeners with TLS, and the one that redirects to them.
    fn listeners(&self) -> String {
        let address = quoted(self.listen());
        let (certificates, acme) = match &self.tls {
            Tls::None => return String::new(),
            Tls::Files { cert, key } => {
                (format!("[{{ cert = {}, key = {} }}]", quoted(cert), quoted(key)), None)
            }
            Tls::Acme { domains, email } => ("[\"acme\"]".to_owned(), Some((domains, email))),
        };
        let mut text =
            format!("\n[[listeners]]\naddress = {address}\ncertificates = {certificates}\n");
        if let Some((host, "443")) = self.listen().rsplit_once(':') {
            let plain = quoted(&format!("{host}:80"));
            let why = if acme.is_some() {
                "Clients without TLS get the URL with https://; the challenges of the authority are answered."
            } else {
                "Clients without TLS get the URL with https://."
            };
            let _ =
                write!(text, "\n# {why}\n[[listeners]]\naddress = {plain}\nredirect = \"https\"\n");
        }
        if let Some((domains, email)) = acme {
            let domains: Vec<String> = domains.iter().map(|domain| quoted(domain)).collect();
            text += "\n# Certificates of Let's Encrypt, whose terms of service you agree to by this table.\n[acme]\n";
            let _ = writeln!(text, "domains = [{}]", domains.join(", "));
            match email {
                Some(email) => {
                    let _ = writeln!(text, "email = {}", quoted(email));
                }
                None => text += "# email = \"ops@example.com\"\n",
            }
            text += &commented(
                "storage = \"acme\"",
                "a folder; with systemd: \"/var/lib/tollgate/acme\"",
            );
        }
        text
    }

    fn forwarding(&self) -> String {
        let servers: Vec<String> = self.servers.iter().map(|server| quoted(server)).collect();
        let servers = format!("servers = [{}]", servers.join(", "));
        format!(
            "[upstreams.api]\n{}\n[routes.all]\n{}upstream = \"api\"\n",
            commented(&servers, "where requests are forwarded to"),
            commented(
                "path = \"/*\"",
                "\"/api\" is this path; \"/api/*\" is this path and all below it"
            ),
        )
    }

    fn rule(&self) -> String {
        let per: Vec<String> = self.per.0.iter().map(|name| quoted(name)).collect();
        let burst = self.burst.clone().unwrap_or_else(|| burst_of(&self.rate));
        let burst =
            if burst.bytes().all(|byte| byte.is_ascii_digit()) { burst } else { quoted(&burst) };
        let mut text = match (self.rate.as_str(), burst.as_str()) {
            (RATE, BURST) => {
                format!(
                    "# {} may send 10 requests a second, and 50 at once after a pause.\n",
                    self.per
                )
            }
            _ => format!("# The limit of {}.\n", self.per.to_string().to_lowercase()),
        };
        if self.per.has_key() {
            text += "# A client without a key is counted by its address. This adds a client:\n\
                     # `tollgate hash-key --id acme >> gateway.toml`\n";
        }
        let _ = write!(
            text,
            "[rules.{}]\nper = [{}]\nrate = {}\nburst = {burst}\n",
            self.per.rule(),
            per.join(", "),
            quoted(&self.rate)
        );
        text
    }

    fn plans(&self) -> String {
        if self.per.has_key() {
            return "# Plans, whose clients have other limits: `plans.pro = { rate = \"100/s\", burst = 500 }` in the rule, and\n\
                    # `--plan pro` of `tollgate hash-key`. `free` is the plan of clients without a key.\n\
                    #\n# [plans.free]\n# [plans.pro]\n"
                .to_owned();
        }
        "# Clients with an API key, and plans. `tollgate hash-key --id acme --plan pro >> gateway.toml` adds a client.\n\
         #\n# [plans.free]\n# [plans.pro]\n#\n# [rules.per-key]\n# per = [\"key\"]\n\
         # plans.free = { rate = \"10/s\", burst = 50 }\n# plans.pro = { rate = \"100/s\", burst = 500 }\n"
            .to_owned()
    }

    fn redis(&self) -> String {
        let why = "# Several gateways with the same limits share them through Redis.\n";
        match &self.redis {
            Some(url) => format!("{why}[redis]\nurl = {}\n", quoted(url)),
            None => format!("{why}#\n# [redis]\n# url = \"redis://127.0.0.1:6379\"\n"),
        }
    }
}

// === impl Per ===

impl Per {
    /// Parses names that are separated by commas; `all` stands for none.
    ///
    /// # Errors
    /// What is wrong, and which names there are.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_lowercase()).collect();
        if names == ["all"] {
            return Ok(Self(Vec::new()));
        }
        let is_known = |name: &String| {
            matches!(name.as_str(), "ip" | "key" | "host" | "method" | "route")
                || name.strip_prefix("header:").is_some_and(|header| !header.is_empty())
        };
        match names.iter().find(|name| !is_known(name)) {
            Some(unknown) => Err(format!(
                "`{unknown}` is none of ip, key, host, method, route, header:NAME and all"
            )),
            None => Ok(Self(names)),
        }
    }

    fn has_key(&self) -> bool {
        self.0.iter().any(|name| name == "key")
    }

    /// Name of the rule.
    fn rule(&self) -> String {
        if self.0.is_empty() {
            return "everyone".to_owned();
        }
        let name = self.0.join("-").replace("header:", "");
        let allowed = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        format!("per-{}", name.chars().map(allowed).take(60).collect::<String>())
    }
}

/// What has a bucket, as the beginning of a sentence.
impl fmt::Display for Per {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |name: &String| match name.as_str() {
            "ip" => "address".to_owned(),
            "key" => "API key".to_owned(),
            _ => {
                name.strip_prefix("header:").map_or(name.clone(), |name| format!("value of {name}"))
            }
        };
        if self.0.is_empty() {
            return f.write_str("All clients together");
        }
        write!(f, "Each {}", self.0.iter().map(part).collect::<Vec<_>>().join(" and "))
    }
}

/// The burst for a rate without one: so small that the first day does not pass twice the rate.
fn burst_of(rate: &str) -> String {
    if rate == RATE {
        return BURST.to_owned();
    }
    let (count, period) = rate.split_once('/').unwrap_or((rate, ""));
    let count: u64 = count.trim().parse().unwrap_or(1);
    let is_long = period.ends_with(['h', 'd']);
    (if is_long { count / 10 } else { count }).max(1).to_string()
}

/// A setting with a comment after it.
fn commented(setting: &str, comment: &str) -> String {
    format!("{setting:<33} # {comment}\n")
}

/// A string as TOML writes it.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::load::Source;

    /// Checks a file as `tollgate check` does, without the files that it names.
    fn problems(text: &str) -> Option<String> {
        let source = Source::unresolved(Path::new("gateway.toml"), text.into()).unwrap();
        match source.check() {
            Err(error) => Some(error.to_string()),
            Ok((_, report)) => (!report.warnings.list.is_empty()).then(|| report.render(false)),
        }
    }

    #[test]
    fn every_combination_of_choices_passes_check_without_warnings() {
        let tls = [
            Tls::None,
            Tls::Files { cert: "api.pem".into(), key: "api.key".into() },
            Tls::Acme { domains: vec!["api.example.com".into()], email: None },
            Tls::Acme {
                domains: vec!["a.example.com".into(), "b.example.com".into()],
                email: Some("ops@example.com".into()),
            },
        ];
        let listens = [None, Some("0.0.0.0:443"), Some("[::]:443")];
        let pers = ["ip", "key", "all", "host", "method", "route", "header:X-Tenant", "key,route"];
        let rates = ["10/s", "100/m", "1000/h", "1000/d", "1/d", "5000/30d", "100/10s", "1/h"];
        let mut count = 0;
        for tls in &tls {
            for listen in listens {
                for per in pers {
                    for rate in rates {
                        for redis in [None, Some("redis://127.0.0.1:6379"), Some("${REDIS_URL}")] {
                            let choices = Choices {
                                servers: vec![UPSTREAM.into(), "b.internal:3000".into()],
                                listen: listen.map(str::to_owned),
                                admin: None,
                                tls: tls.clone(),
                                per: Per::parse(per).unwrap(),
                                rate: rate.into(),
                                burst: (count % 7 == 0).then(|| "1".into()),
                                redis: redis.map(str::to_owned),
                            };
                            let text = choices.text();
                            assert_eq!(problems(&text), None, "{text}");
                            count += 1;
                        }
                    }
                }
            }
        }
        assert_eq!(count, 4 * 3 * 8 * 8 * 3);
    }

    #[test]
    fn shipped_file_is_that_of_the_defaults() {
        assert_eq!(Choices::default().text(), include_str!("gateway.toml"));
    }

    #[test]
    fn admin_port_makes_way_for_clients_unless_it_is_named() {
        for (listen, admin, expected) in [
            ("0.0.0.0:9090", None, "127.0.0.1:9091"),
            ("[::]:9090", None, "127.0.0.1:9091"),
            ("0.0.0.0:9091", None, "127.0.0.1:9090"),
            ("0.0.0.0:9090", Some("127.0.0.1:9000"), "127.0.0.1:9000"),
        ] {
            let (listen, admin) = (Some(listen.to_owned()), admin.map(str::to_owned));
            let text = Choices { listen, admin, ..Choices::default() }.text();
            assert!(text.contains(&format!("admin = \"{expected}\"")), "{text}");
            assert_eq!(problems(&text), None, "{text}");
        }
        let listen = Some("0.0.0.0:9090".to_owned());
        let choices = Choices { listen, admin: Some(ADMIN.to_owned()), ..Choices::default() };
        assert!(problems(&choices.text()).unwrap().contains("another port"));
    }

    #[test]
    fn texts_are_quoted() {
        let choices = Choices { servers: vec!["a\"]\n[x".into()], ..Choices::default() };
        assert!(problems(&choices.text()).unwrap().contains("the server"));
    }

    #[test]
    fn unknown_names_of_per_are_listed() {
        assert_eq!(
            Per::parse("ip,cookie").unwrap_err(),
            "`cookie` is none of ip, key, host, method, route, header:NAME and all"
        );
        assert_eq!(Per::parse("All").unwrap(), Per(Vec::new()));
        assert_eq!(Per::parse("ip, route").unwrap().rule(), "per-ip-route");
        assert_eq!(Per::parse("header:x-tenant").unwrap().rule(), "per-x-tenant");
    }
}
