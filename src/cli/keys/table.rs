//! Clients as CSV: one API key a row, so that a client with several has several rows, one after the
//! other. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::transfer::line;
use crate::api::keys::{NewClient, StoredClient};
use crate::base::time::UtcTime;
use crate::keys::record::{HexDigest, Override, Secret};

const COLUMNS: [&str; 10] = [
    "id",
    "plan",
    "tenant",
    "enabled",
    "sha256",
    "name",
    "not_before",
    "expires",
    "metadata",
    "overrides",
];

/// A row to import. All columns but `id` may be missing.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: String,
    #[serde(default)]
    plan: Option<String>,
    #[serde(default)]
    tenant: Option<String>,
    #[serde(default)]
    enabled: Option<bool>,
    #[serde(default)]
    sha256: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    not_before: Option<String>,
    #[serde(default)]
    expires: Option<String>,
    /// JSON.
    #[serde(default)]
    metadata: Option<String>,
    /// JSON.
    #[serde(default)]
    overrides: Option<String>,
}

/// The first line of an export.
pub(super) fn head() -> Vec<u8> {
    written(&COLUMNS.map(str::to_owned))
}

/// The rows of a client. Without keys it has one row.
pub(super) fn rows(client: &StoredClient) -> Vec<u8> {
    let (metadata, overrides) = (json(&client.metadata), json(&client.overrides));
    let row = |secret: Option<&Secret>| {
        let time = |time: Option<UtcTime>| time.map_or(String::new(), |time| time.to_string());
        let text = |text: Option<&String>| text.cloned().unwrap_or_default();
        written(&[
            client.id.clone(),
            client.plan.clone(),
            text(client.tenant.as_ref()),
            client.enabled.to_string(),
            secret.map_or(String::new(), |secret| secret.sha256.to_string()),
            text(secret.and_then(|secret| secret.name.as_ref())),
            time(secret.and_then(|secret| secret.not_before)),
            time(secret.and_then(|secret| secret.expires)),
            metadata.clone(),
            overrides.clone(),
        ])
    };
    if client.secrets.is_empty() {
        return row(None);
    }
    client.secrets.iter().flat_map(|secret| row(Some(secret))).collect()
}

/// A cell with JSON; empty if there is nothing in it.
fn json<T: Serialize>(all: &BTreeMap<String, T>) -> String {
    if all.is_empty() { String::new() } else { serde_json::to_string(all).unwrap_or_default() }
}

fn written(cells: &[String; COLUMNS.len()]) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing to a `Vec` does not fail.
    let _ = writer.write_record(cells);
    writer.into_inner().unwrap_or_default()
}

/// The clients of a file, as JSON, with the line of the first row of each.
///
/// # Errors
/// What is wrong, and where.
pub(super) fn read(content: &[u8]) -> Result<Vec<(u64, Vec<u8>)>, String> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(content);
    let headers = reader.headers().map_err(|error| error.to_string())?.clone();
    let mut clients: Vec<(u64, NewClient)> = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| error.to_string())?;
        let at = record.position().map_or(0, csv::Position::line);
        let row: Row =
            record.deserialize(Some(&headers)).map_err(|error| format!("line {at}: {error}"))?;
        let secret = row.secret().map_err(|error| format!("line {at}: {error}"))?;
        match clients.last_mut() {
            Some((_, last)) if last.id.as_ref() == Some(&row.id) => {
                last.secrets.get_or_insert_default().extend(secret);
            }
            _ => {
                let client = row.client(secret).map_err(|error| format!("line {at}: {error}"))?;
                clients.push((at, client));
            }
        }
    }
    Ok(clients.iter().map(|(at, client)| (*at, line(client))).collect())
}

impl Row {
    /// Its API key; `None` if it has none.
    fn secret(&self) -> Result<Option<Secret>, String> {
        let Some(sha256) = &self.sha256 else { return Ok(None) };
        let sha256 = HexDigest::parse(sha256).ok_or("`sha256` has 64 hexadecimal digits")?;
        let time = |text: &Option<String>| match text {
            None => Ok(None),
            Some(text) => UtcTime::parse(text)
                .map(Some)
                .ok_or("a time is not in the form of RFC 3339: 2027-01-31T00:00:00Z"),
        };
        Ok(Some(Secret {
            name: self.name.clone(),
            sha256,
            not_before: time(&self.not_before)?,
            expires: time(&self.expires)?,
        }))
    }

    fn client(self, secret: Option<Secret>) -> Result<NewClient, String> {
        let metadata: BTreeMap<String, String> = match &self.metadata {
            None => BTreeMap::new(),
            Some(json) => serde_json::from_str(json)
                .map_err(|_| "`metadata` is a JSON object of texts".to_owned())?,
        };
        let overrides: BTreeMap<String, Override> = match &self.overrides {
            None => BTreeMap::new(),
            Some(json) => serde_json::from_str(json)
                .map_err(|_| "`overrides` is a JSON object of limits by rule".to_owned())?,
        };
        Ok(NewClient {
            id: Some(self.id),
            plan: self.plan,
            tenant: self.tenant,
            enabled: self.enabled,
            metadata,
            overrides,
            secrets: Some(secret.into_iter().collect()),
            ..NewClient::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::record::Record;
    use crate::keys::record::tests::{record, secret};

    #[test]
    fn export_can_be_imported() {
        let named = Secret {
            name: Some("2027".to_owned()),
            not_before: Some(UtcTime(1_000_001)),
            expires: Some(UtcTime(2_000_000)),
            ..secret(2)
        };
        let own = Override { rate: Some("5/s".to_owned()), ..Override::default() };
        let several = Record {
            tenant: Some("north".to_owned()),
            enabled: false,
            secrets: vec![secret(1), named],
            metadata: [("a".to_owned(), "x, \"y\"\nz".to_owned())].into(),
            overrides: [("per-key".to_owned(), own)].into(),
            ..record("several", 0)
        };
        let none = Record { secrets: Vec::new(), ..record("none", 0) };
        let all = [several, none, record("one", 3)].map(|record| StoredClient::of(&record));
        let mut content = head();
        content.extend(all.iter().flat_map(rows));
        let read = read(&content).unwrap();
        assert_eq!(read.len(), 3);
        for ((_, line), client) in read.iter().zip(&all) {
            let new: NewClient = serde_json::from_slice(line).unwrap();
            assert_eq!(new.id.as_deref(), Some(&*client.id));
            assert_eq!(new.secrets.as_ref(), Some(&client.secrets));
            assert_eq!((new.tenant, new.enabled), (client.tenant.clone(), Some(client.enabled)));
            assert_eq!(
                (new.metadata, new.overrides),
                (client.metadata.clone(), client.overrides.clone())
            );
        }
    }

    #[test]
    fn mistakes_have_their_line() {
        let digest = "0".repeat(64);
        let table = [
            (
                format!("id,sha256\na,{digest}\nb,abc\n"),
                "line 3: `sha256` has 64 hexadecimal digits",
            ),
            (format!("id,sha256,expires\na,{digest},soon\n"), "line 2: a time is not"),
            ("id,metadata\na,1\n".to_owned(), "line 2: `metadata` is a JSON object"),
        ];
        for (content, expected) in table {
            let error = read(content.as_bytes()).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
        assert!(read(b"id,secret\na,hunter2\n").unwrap_err().contains("unknown field"));
    }
}
