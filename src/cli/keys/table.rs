//! Clients as CSV: one API key a row, so that a client with several has several rows, one after the
//! other. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::transfer::line;
use crate::api::keys::{NewClient, StoredClient};
use crate::base::time::UtcTime;
use crate::config::suggest;
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
    /// `true` or `false`.
    #[serde(default)]
    enabled: Option<String>,
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

/// The clients of a file.
#[derive(Debug, Default)]
pub(super) struct Clients {
    /// Each as JSON, with the line of its first row.
    pub(super) valid: Vec<(u64, Vec<u8>)>,
    /// The lines of wrong rows, and what is wrong. Their clients are left out with the other rows
    /// beside these: an import without one of its keys would not be what the file says.
    pub(super) wrong: Vec<(u64, String)>,
}

/// Reads a file.
///
/// # Errors
/// What is wrong with its first line.
pub(super) fn read(content: &[u8]) -> Result<Clients, String> {
    let mut builder = csv::ReaderBuilder::new();
    let mut reader = builder.trim(csv::Trim::All).flexible(true).from_reader(content);
    let headers = reader.headers().map_err(|error| words(&error))?.clone();
    let id_at = column_of_ids(&headers)?;
    let mut all = Clients::default();
    // The id and the line of each client, and the client unless a row of it is wrong.
    let mut clients: Vec<(String, u64, Option<NewClient>)> = Vec::new();
    for record in reader.byte_records() {
        let record = record.map_err(|error| words(&error))?;
        let at = record.position().map_or(0, csv::Position::line);
        let id = String::from_utf8_lossy(record.get(id_at).unwrap_or_default()).into_owned();
        let is_first = clients.last().is_none_or(|(last, ..)| *last != id);
        if is_first {
            clients.push((id, at, Some(NewClient::default())));
        }
        let Some((id, _, client)) = clients.last_mut() else { continue };
        let added = Row::of(record, &headers).and_then(|row| row.add_to(client.as_mut(), is_first));
        if let Err(why) = added {
            *client = None;
            all.wrong.push((at, format!("{why}; the client `{id}` is not imported")));
        }
    }
    let valid = clients.into_iter().filter_map(|(_, at, client)| Some((at, line(&client?))));
    all.valid = valid.collect();
    Ok(all)
}

/// The index of the column `id`.
///
/// # Errors
/// It is missing, or another column is not known.
fn column_of_ids(headers: &csv::StringRecord) -> Result<usize, String> {
    let known = || suggest::list(&COLUMNS, "and");
    if let Some(unknown) = headers.iter().find(|name| !COLUMNS.contains(name)) {
        return Err(format!("line 1: there is no column `{unknown}`; the columns are {}", known()));
    }
    let missing = || format!("line 1: the column `id` is missing; the columns are {}", known());
    headers.iter().position(|name| name == "id").ok_or_else(missing)
}

fn words(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::Utf8 { .. } => "the line is not UTF-8".to_owned(),
        _ => error.to_string(),
    }
}

impl Row {
    fn of(record: csv::ByteRecord, headers: &csv::StringRecord) -> Result<Self, String> {
        let (cells, columns) = (record.len(), headers.len());
        if cells != columns {
            return Err(format!("the row has {cells} cells, and the first line {columns}"));
        }
        let record = csv::StringRecord::from_byte_record(record);
        let record = record.map_err(|_| "the row is not UTF-8".to_owned())?;
        record.deserialize(Some(headers)).map_err(|error| words(&error))
    }

    /// Its API key; `None` if it has none.
    fn secret(&self) -> Result<Option<Secret>, String> {
        let Some(sha256) = &self.sha256 else { return Ok(None) };
        let sha256 = HexDigest::parse(sha256).ok_or("`sha256` has 64 hexadecimal digits")?;
        let time = |text: &Option<String>| match text {
            None => Ok(None),
            Some(text) => UtcTime::parse(text).map(Some).ok_or_else(|| {
                format!("the time `{text}` is not in the form of RFC 3339: 2027-01-31T00:00:00Z")
            }),
        };
        Ok(Some(Secret {
            name: self.name.clone(),
            sha256,
            not_before: time(&self.not_before)?,
            expires: time(&self.expires)?,
        }))
    }

    /// Adds its API key to the client, and if it is the first row of the client, all else that it
    /// says. `client`: none if another row of the client is wrong.
    fn add_to(self, client: Option<&mut NewClient>, is_first: bool) -> Result<(), String> {
        let secret = self.secret()?;
        let new = if is_first { Some(self.client()?) } else { None };
        if let Some(client) = client {
            if let Some(new) = new {
                *client = new;
            }
            client.secrets.get_or_insert_default().extend(secret);
        }
        Ok(())
    }

    fn client(self) -> Result<NewClient, String> {
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
        let enabled = match self.enabled.as_deref() {
            None => None,
            Some("true") => Some(true),
            Some("false") => Some(false),
            Some(other) => return Err(format!("`enabled` is `true` or `false`, not `{other}`")),
        };
        Ok(NewClient {
            id: Some(self.id),
            plan: self.plan,
            tenant: self.tenant,
            enabled,
            metadata,
            overrides,
            secrets: Some(Vec::new()),
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
        let Clients { valid: read, wrong } = read(&content).unwrap();
        assert!(wrong.is_empty(), "{wrong:?}");
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
    fn wrong_rows_are_listed_and_the_other_clients_imported() {
        let [one, two] = ["1", "2"].map(|digit| digit.repeat(64));
        let content = format!(
            "id,enabled,sha256,expires,metadata\na,true,{one},,\nb,,abc,,\nc,maybe,{one},,\n\
             d,,{one},tomorrow,\ne,,{one},,1\nf,,{one}\ng,,{one},,\ng,,xyz,,\ng,,{two},,\nh,,{two},,\n"
        );
        let all = read(content.as_bytes()).unwrap();
        let wrong: Vec<String> =
            all.wrong.iter().map(|(line, why)| format!("{line}: {why}")).collect();
        insta::assert_snapshot!(wrong.join("\n"), @r"
        3: `sha256` has 64 hexadecimal digits; the client `b` is not imported
        4: `enabled` is `true` or `false`, not `maybe`; the client `c` is not imported
        5: the time `tomorrow` is not in the form of RFC 3339: 2027-01-31T00:00:00Z; the client `d` is not imported
        6: `metadata` is a JSON object of texts; the client `e` is not imported
        7: the row has 3 cells, and the first line 5; the client `f` is not imported
        9: `sha256` has 64 hexadecimal digits; the client `g` is not imported
        ");
        let valid: Vec<(u64, NewClient)> = (all.valid.iter())
            .map(|(line, client)| (*line, serde_json::from_slice(client).unwrap()))
            .collect();
        let ids: Vec<_> = valid.iter().map(|(line, client)| (*line, client.id.clone())).collect();
        assert_eq!(ids, [(2, Some("a".to_owned())), (11, Some("h".to_owned()))]);
    }

    /// The lines of such a file have no numbers.
    #[test]
    fn rows_that_end_with_carriage_returns_keep_all_keys() {
        let [one, two] = ["1", "2"].map(|digit| digit.repeat(64));
        let all = read(format!("id,sha256\ra,{one}\ra,{two}\r").as_bytes()).unwrap();
        let [(_, client)] = all.valid.as_slice() else { panic!("{all:?}") };
        let client: NewClient = serde_json::from_slice(client).unwrap();
        assert_eq!(client.secrets.unwrap().len(), 2);
    }

    #[test]
    fn row_that_is_not_utf_8_leaves_its_client_out() {
        let [one, two] = ["1", "2"].map(|digit| digit.repeat(64));
        let rows = [
            format!("id,sha256,name\na,{one},old\na,{two},").as_bytes(),
            b"\xff\n",
            format!("b,{one},\n").as_bytes(),
        ]
        .concat();
        let all = read(&rows).unwrap();
        let expected = "the row is not UTF-8; the client `a` is not imported";
        assert_eq!(all.wrong, [(3, expected.to_owned())]);
        assert_eq!(all.valid.len(), 1);
    }

    #[test]
    fn first_line_names_the_columns() {
        let error = |content: &str| read(content.as_bytes()).unwrap_err();
        assert!(error("id,secret\na,hunter2\n").starts_with("line 1: there is no column `secret`"));
        assert!(error("plan\nfree\n").starts_with("line 1: the column `id` is missing"));
        assert!(error("").starts_with("line 1: the column `id` is missing"));
    }
}
