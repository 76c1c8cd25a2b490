//! The client of an API call, and the request that the call describes.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use crate::admin::answer::Answer;
use crate::admin::keys::unread;
use crate::admin::query::{BadQuery, Query};
use crate::api::clients::Client as ClientView;
use crate::base::text::cut;
use crate::client::address::{counted_address, counted_as, parse_address};
use crate::client::{Client, ClientKey};
use crate::decide::applicability::{Absent, SelectedBy, Subject};
use crate::keys::store::KeyStore;
use crate::observe::address::AddressQueryError;
use crate::policy::Policy;
use crate::policy::matcher::RequestParts;

/// Parameters of the query.
const NAMES: [&str; 7] = ["path", "method", "host", "route", "header", "ip", "key"];

/// Error of a header with two different values.
const CONFLICTING_HEADER: &str = "a `header` is given twice with different values";

/// Host that is used to find the route if none is given.
const DEFAULT_HOST: &str = "localhost";

/// A client, and what is known about its request.
#[derive(Debug)]
pub(super) struct RequestedClient {
    /// What the path identifies the client by.
    selected_by: SelectedBy,
    /// The client as rules see it; its address is `None` if unknown.
    pub(super) client: Client,
    /// Index of the route.
    pub(super) route: Option<u32>,
    pub(super) method: Option<Method>,
    pub(super) host: Option<String>,
    pub(super) headers: HeaderMap,
    /// Headers that the request does not have.
    pub(super) absent: Vec<HeaderName>,
    id: String,
}

impl RequestedClient {
    /// Finds the client by the segments of the path, and reads its request from the query.
    pub(super) async fn read(
        policy: &Policy,
        keys: Option<&KeyStore>,
        parts: &[String],
        query: Option<&str>,
    ) -> Result<Self, Box<Answer>> {
        Self::read_with(policy, keys, parts, query, &[]).await.map(|(requested, _)| requested)
    }

    /// The same, from a query that may also contain the parameters `more`. Returns the query, too.
    pub(super) async fn read_with(
        policy: &Policy,
        keys: Option<&KeyStore>,
        parts: &[String],
        query: Option<&str>,
        more: &[&str],
    ) -> Result<(Self, Query), Box<Answer>> {
        let names = [&NAMES, more].concat();
        let query = Query::read_with(query, &names, &["header"], &[("key_id", "key")])?;
        let [kind, id] = parts else { return Err(not_found("the path names no client")) };
        let mut requested = match kind.as_str() {
            "key" => Self::by_key(policy, keys, id, &query).await?,
            "tenant" => Self::by_tenant(policy, keys, id, &query)?,
            "ip" => Self::by_ip(policy, keys, id, &query).await?,
            _ => return Err(not_found("the kind of a client must be `key`, `tenant` or `ip`")),
        };
        let method = query.get("method").map(|name| Method::from_bytes(name.as_bytes()));
        requested.method = method.transpose().map_err(|_| bad("`method` is not a method"))?;
        requested.host = query.get("host").map(str::to_ascii_lowercase);
        for header in query.all("header") {
            requested.add_header(header)?;
        }
        requested.route = requested.find_route(policy, &query)?;
        Ok((requested, query))
    }

    async fn by_key(
        policy: &Policy,
        keys: Option<&KeyStore>,
        id: &str,
        query: &Query,
    ) -> Result<Self, Box<Answer>> {
        if query.get("key").is_some() {
            return Err(bad("`key` is not allowed: the path already names the key"));
        }
        let known = known_key(policy, keys, id).await?;
        let ip = query.get("ip").map(|ip| address(ip, policy)).transpose()?;
        Ok(Self::new(SelectedBy::Key, id.to_owned(), Client { ip, ..known }))
    }

    /// Any client of a tenant: one of the file, or of a client in it. With a key store, clients
    /// may have any tenant.
    fn by_tenant(
        policy: &Policy,
        keys: Option<&KeyStore>,
        id: &str,
        query: &Query,
    ) -> Result<Self, Box<Answer>> {
        if let Some(name) = ["ip", "key"].into_iter().find(|name| query.get(name).is_some()) {
            let detail = format!("`{name}` is not allowed: the path names a tenant");
            return Err(bad(&detail));
        }
        let of_clients = policy.keys.all().iter().filter_map(|known| known.tenant.as_ref());
        let mut known = policy.tenants.all().chain(of_clients);
        let unknown = || not_found(&format!("the file has no tenant `{}`", cut(id, 64)));
        let known = known.find(|tenant| *tenant.id == *id).cloned();
        let tenant = known.or_else(|| keys.map(|_| policy.tenants.named(id)));
        let client = Client::of_tenant(&policy.clients, tenant.ok_or_else(unknown)?);
        Ok(Self::new(SelectedBy::Tenant, id.to_owned(), client))
    }

    async fn by_ip(
        policy: &Policy,
        keys: Option<&KeyStore>,
        id: &str,
        query: &Query,
    ) -> Result<Self, Box<Answer>> {
        if query.get("ip").is_some() {
            return Err(bad("`ip` is not allowed: the path already names the address"));
        }
        let ip = address(id, policy)?;
        let client = match query.get("key") {
            Some(key) => known_key(policy, keys, key).await?,
            None => Client::new(&policy.clients, ClientKey::Missing),
        };
        Ok(Self::new(SelectedBy::Address, ip.to_string(), Client { ip: Some(ip), ..client }))
    }

    fn new(selected_by: SelectedBy, id: String, client: Client) -> Self {
        Self {
            selected_by,
            client,
            route: None,
            method: None,
            host: None,
            headers: HeaderMap::new(),
            absent: Vec::new(),
            id,
        }
    }

    /// Adds a header: `name:value`, or only the name of a header that the request does not have.
    fn add_header(&mut self, header: &str) -> Result<(), Box<Answer>> {
        let (name, value) = match header.split_once(':') {
            Some((name, value)) => (name, Some(value)),
            None => (header, None),
        };
        let wrong =
            || bad("`header` must be `name:value`, or `name` for a header that is not sent");
        let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| wrong())?;
        match value {
            None if self.headers.contains_key(&name) => return Err(bad(CONFLICTING_HEADER)),
            None => self.absent.push(name),
            Some(value) => {
                let value = HeaderValue::from_str(value.trim()).map_err(|_| wrong())?;
                // A request with two values is refused if a rule counts by the header.
                if self.headers.get(&name).is_some_and(|first| *first != value) {
                    return Err(bad(CONFLICTING_HEADER));
                }
                self.headers.insert(name, value);
            }
        }
        Ok(())
    }

    fn find_route(&self, policy: &Policy, query: &Query) -> Result<Option<u32>, Box<Answer>> {
        match (query.get("route"), query.get("path")) {
            (Some(_), Some(_)) => Err(bad("`route` and `path` both select the route; give one")),
            (None, None) => Ok(None),
            (Some(name), None) => {
                let routes = (0..).zip(&policy.routes);
                let mut found = routes.filter(|(_, route)| &*route.name == name);
                let unknown = || not_found(&format!("there is no route `{}`", cut(name, 64)));
                found.next().map(|(index, _)| Some(index)).ok_or_else(unknown)
            }
            (None, Some(path)) => {
                let (path, query) = match path.split_once('?') {
                    Some((path, query)) => (path, Some(query)),
                    None => (path, None),
                };
                let host = self.host.as_deref().unwrap_or(DEFAULT_HOST);
                let method = self.method.as_ref().unwrap_or(&Method::GET);
                let request = RequestParts { method, headers: &self.headers, query };
                match policy.router.find(host, path, request) {
                    Ok(Some(route)) => Ok(Some(route)),
                    Ok(None) => Err(not_found("no route has this host, path and method")),
                    Err(error) => Err(bad(&error.to_string())),
                }
            }
        }
    }

    /// The request, for matching rules.
    pub(super) fn subject(&self) -> Subject<'_> {
        Subject {
            client: &self.client,
            selected_by: self.selected_by,
            route: self.route,
            method: self.method.as_ref(),
            host: self.host.as_deref(),
            headers: &self.headers,
            absent: Absent::Only(&self.absent),
        }
    }

    /// The client as responses show it.
    pub(super) fn view(&self, policy: &Policy) -> ClientView {
        let prefix = policy.clients.ipv6_prefix;
        let counted = self.client.ip.map(|ip| counted_address(ip, prefix));
        ClientView {
            kind: match self.selected_by {
                SelectedBy::Key => "key",
                SelectedBy::Tenant => "tenant",
                SelectedBy::Address => "ip",
            }
            .into(),
            id: self.id.clone(),
            plan: policy.plan_name(self.client.plan).to_owned(),
            counted_as: counted.map(|ip| counted_as(ip, prefix)),
        }
    }
}

/// A client with the key of this id, of the file or of the key store.
async fn known_key(
    policy: &Policy,
    keys: Option<&KeyStore>,
    id: &str,
) -> Result<Client, Box<Answer>> {
    let mut known = policy.keys.named(id).cloned();
    if let (None, Some(keys)) = (&known, keys) {
        known = keys.client(policy, id).await.map_err(|error| unread(&error))?;
    }
    let places = if keys.is_some() { "the file and the key store have" } else { "the file has" };
    let unknown = || not_found(&format!("{places} no key `{}`", cut(id, 64)));
    Ok(Client::new(&policy.clients, ClientKey::Known(known.ok_or_else(unknown)?)))
}

fn address(text: &str, policy: &Policy) -> Result<IpAddr, Box<Answer>> {
    let wrong = || bad(&AddressQueryError::NotAnAddress.to_string());
    parse_address(text, policy.clients.ipv6_prefix).ok_or_else(wrong)
}

/// An address as rules count it.
pub(super) fn counted(text: &str, policy: &Policy) -> Result<String, Box<Answer>> {
    let prefix = policy.clients.ipv6_prefix;
    Ok(counted_as(counted_address(address(text, policy)?, prefix), prefix))
}

fn bad(detail: &str) -> Box<Answer> {
    BadQuery(detail.to_owned()).into()
}

fn not_found(detail: &str) -> Box<Answer> {
    Answer::refusal(StatusCode::NOT_FOUND, detail)
}
