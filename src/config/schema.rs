//! Generates the JSON Schema of `gateway.toml` for editors, from the types of this module, and
//! checks that `docs/gateway.schema.json` is up to date. `tollgate schema` prints that file. This
//! module is not part of the program.
//!
//! The schema is draft 7, the newest that taplo supports well. It has no references, because taplo
//! ignores members beside a reference, such as the description of a setting.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::Config;
use super::row::{DefaultValue, Form, Range, References, Row};
use super::rules::Rule;
use super::tables::{AccessLog, Upstream};
use crate::policy::Dimension;
use crate::policy::access_log::fields::Field;
use crate::policy::servers::Balance;

/// The file with the schema.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/gateway.schema.json");

/// The pattern of durations.
const TIME: &str = "^[0-9]+(ms|s|m|h|d)$";

/// The pattern of rates.
const RATE: &str = "^[0-9]+/[0-9]*(ms|s|m|h|d)$";

/// The pattern of dates and times.
const DATE_TIME: &str = "^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})$";

/// The schema of the types.
fn generated() -> Value {
    let mut settings = SchemaSettings::draft07();
    settings.inline_subschemas = true;
    let schema = settings.into_generator().into_root_schema_for::<Config>();
    let mut schema = schema.to_value();
    simplify(None, Config::rows(), &mut schema);
    if let Some(root) = schema.as_object_mut() {
        root.insert("title".to_owned(), json!("gateway.toml"));
    }
    schema
}

/// Removes null, which TOML does not have, and members that editors do not use, and adds what the
/// rows have: those of `row`, of which this is the value or an item, and those of the settings in
/// it, `rows`.
fn simplify(row: Option<&Row>, rows: &[Row], schema: &mut Value) {
    let Value::Object(schema) = schema else { return };
    for noise in ["default", "format", "title"] {
        schema.remove(noise);
    }
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|one| one != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    // A choice that may be left out is one in another.
    while let Some(Value::Array(mut choices)) = schema.remove("anyOf") {
        choices.retain(|choice| choice["type"] != "null");
        match choices.as_mut_slice() {
            [Value::Object(only)] => {
                for (word, value) in std::mem::take(only) {
                    // The setting's own description goes before that of its type.
                    schema.entry(word).or_insert(value);
                }
            }
            // A short form and a long one: only the setting itself is described.
            [Value::Object(short), Value::Object(long)] => {
                for form in [&mut *short, &mut *long] {
                    form.remove("description");
                }
                if let Some(pattern) = row.and_then(pattern) {
                    short.insert("pattern".to_owned(), json!(pattern));
                }
                if let Some(row) = row {
                    bound(row, short);
                    bound(row, long);
                }
                for choice in &mut choices {
                    simplify(None, rows, choice);
                }
                schema.insert("anyOf".to_owned(), Value::Array(choices));
                break;
            }
            _ => panic!("{row:?}: a choice of types is not expected"),
        }
    }
    words(schema);
    if schema.get("type") == Some(&json!("string"))
        && !schema.contains_key("enum")
        && let Some(pattern) = row.and_then(pattern)
    {
        schema.insert("pattern".to_owned(), json!(pattern));
    }
    if let Some(row) = row {
        bound(row, schema);
        bound_length(row, schema);
    }
    for inner in ["additionalProperties", "items"] {
        if let Some(inner) = schema.get_mut(inner) {
            simplify(row, rows, inner);
        }
    }
    for (name, property) in
        schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten()
    {
        let row = rows.iter().find(|row| row.name == name).unwrap();
        simplify(Some(row), row.rows(), property);
        describe(row, property);
    }
}

/// The pattern of the texts of a setting, or of the items of its list.
fn pattern(row: &Row) -> Option<String> {
    let any_of =
        |words: Vec<String>, header: &str| Some(format!("^({}|{header}.+)$", words.join("|")));
    if row.name == AccessLog::fields.name {
        let words = Field::names().iter().map(ToString::to_string).collect();
        return any_of(words, "header:");
    }
    if row.name == Rule::per.name {
        return any_of(
            Dimension::PLAIN.map(|plain| plain.to_string()).into(),
            "(header|param|claim):",
        );
    }
    if row.name == Upstream::balance.name {
        return any_of(Balance::PLAIN.map(|plain| plain.to_string()).into(), "hash:header:");
    }
    match row.form {
        Form::Duration(_) => Some(TIME.to_owned()),
        Form::Rate => Some(RATE.to_owned()),
        Form::Time => Some(DATE_TIME.to_owned()),
        Form::Matches(pattern) => Some(pattern.to_owned()),
        Form::Any | Form::Bytes | Form::Address | Form::Percentages => None,
    }
}

/// Adds the bounds of a number.
fn bound(row: &Row, schema: &mut Map<String, Value>) {
    if !matches!(schema.get("type").and_then(Value::as_str), Some("integer" | "number")) {
        return;
    }
    let (least, most) = match row.range() {
        Range::Any | Range::Durations(..) | Range::Shares(..) | Range::Characters(..) => return,
        Range::Between(least, most) => (json!(least), json!(most)),
        Range::Fractions(least, most) => (json!(least), json!(most)),
        Range::ZeroOr(least, most) => {
            let choices = json!([{"const": 0}, {"minimum": least}]);
            schema.insert("anyOf".to_owned(), choices);
            (json!(0), json!(most))
        }
    };
    schema.insert("minimum".to_owned(), least);
    schema.insert("maximum".to_owned(), most);
}

/// Adds the bounds of the length of a text that has no references.
fn bound_length(row: &Row, schema: &mut Map<String, Value>) {
    if let (Range::Characters(least, most), References::Literal) = (row.range(), row.references) {
        schema.insert("minLength".to_owned(), json!(least));
        schema.insert("maxLength".to_owned(), json!(most));
    }
}

/// Adds the facts of the row to the description of a setting.
fn describe(row: &Row, property: &mut Value) {
    let mut about = property["description"].as_str().unwrap_or_default().replace('\n', " ");
    if row.range() != Range::Any {
        about = format!("{about} Range: {}.", row.range());
    }
    if row.default != DefaultValue::Unstated {
        about = format!("{about} Default: {}.", row.default);
    }
    match row.references {
        References::Literal => {}
        References::All => about += " May contain `${NAME}` and `${file:PATH}`.",
        References::Variables => about += " May contain `${NAME}`.",
    }
    if row.needs_restart {
        about += " A change needs a restart.";
    }
    property["description"] = json!(about);
    let value = match row.default {
        DefaultValue::Number(number) => json!(number),
        DefaultValue::Fraction(number) => json!(number),
        DefaultValue::Switch(is_on) => json!(is_on),
        DefaultValue::Text(text) => json!(text),
        DefaultValue::Texts(texts) => json!(texts),
        DefaultValue::Numbers(numbers) => json!(numbers),
        DefaultValue::Unstated | DefaultValue::InWords(_) => return,
    };
    property["default"] = value;
}

/// Writes a choice of words as a plain enum, with the meaning of each where taplo looks for it.
fn words(schema: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = schema.remove("oneOf") else { return };
    let each = |member: &str| -> Vec<Value> {
        let whole = |text: &Value| json!(text.as_str().map(|text| text.replace('\n', " ")));
        choices.iter().map(|choice| whole(&choice[member])).collect()
    };
    schema.insert("type".to_owned(), json!("string"));
    schema.insert("enum".to_owned(), Value::Array(each("const")));
    schema.insert("x-taplo".to_owned(), json!({"docs": {"enumValues": each("description")}}));
}

/// The errors of a file by the schema; none for a valid file or one that is not TOML.
fn wrong(text: &str) -> Option<String> {
    static KEPT: LazyLock<(boon::Schemas, boon::SchemaIndex)> = LazyLock::new(|| {
        let schema: Value = serde_json::from_slice(&std::fs::read(FILE).unwrap()).unwrap();
        let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
        compiler.add_resource("http://localhost/schema.json", schema).unwrap();
        let index = compiler.compile("http://localhost/schema.json", &mut schemas).unwrap();
        (schemas, index)
    });
    let file = json_of(toml::from_str(text).ok()?);
    let (schemas, index) = &*KEPT;
    schemas.validate(&file, *index).err().map(|error| format!("{error:#}"))
}

/// A file as editors compare it with the schema: dates are texts.
fn json_of(value: toml::Value) -> Value {
    match value {
        toml::Value::Datetime(time) => json!(time.to_string()),
        toml::Value::Array(items) => items.into_iter().map(json_of).collect(),
        toml::Value::Table(table) => {
            table.into_iter().map(|(name, value)| (name, json_of(value))).collect()
        }
        other => serde_json::to_value(other).unwrap(),
    }
}

/// Asserts that a file conforms to the schema. Called for every file that is valid in a unit test.
pub(crate) fn assert_takes(text: &str) {
    if let Some(wrong) = wrong(text) {
        panic!("a valid file does not conform to the schema:\n{wrong}\n{text}");
    }
}

/// Whether a file conforms to the schema.
pub(crate) fn takes(text: &str) -> bool {
    wrong(text).is_none()
}

#[test]
fn schema_in_docs_is_up_to_date() {
    let generated = serde_json::to_string_pretty(&generated()).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(FILE, &generated).unwrap();
    }
    let kept = std::fs::read_to_string(FILE).unwrap_or_default();
    assert!(kept == generated, "UPDATE_SCHEMA=1 cargo test schema writes docs/gateway.schema.json");
}

#[test]
fn shipped_files_conform() {
    assert_takes(include_str!("../../gateway.toml"));
    assert_takes(include_str!("../policy/build/fixtures/example.toml"));
    assert!(
        include_str!("../../gateway.toml").starts_with("#:schema ./docs/gateway.schema.json\n\n")
    );
}

#[test]
fn every_setting_has_a_description() {
    fn check(path: &str, schema: &Value) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            let description = property["description"].as_str().unwrap_or_default();
            assert!(description.len() > 4, "{path} has no description");
            check(&path, property);
        }
        for inner in ["additionalProperties", "items"] {
            if schema[inner].is_object() {
                check(path, &schema[inner]);
            }
        }
    }
    check("", &generated());
}

#[test]
fn every_setting_of_the_schema_has_one_row() {
    fn of_schema(path: &str, schema: &Value, paths: &mut Vec<String>) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            paths.push(path.clone());
            of_schema(&path, property, paths);
        }
        for inner in ["additionalProperties", "items"] {
            if schema[inner].is_object() {
                of_schema(path, &schema[inner], paths);
            }
        }
        for choice in schema["anyOf"].as_array().into_iter().flatten() {
            of_schema(path, choice, paths);
        }
    }
    fn of_rows(path: &str, rows: &[Row], paths: &mut Vec<String>) {
        for row in rows {
            let path = format!("{path}.{}", row.name);
            paths.push(path.clone());
            of_rows(&path, row.rows(), paths);
        }
    }
    let (mut schema, mut rows) = (Vec::new(), Vec::new());
    of_schema("", &generated(), &mut schema);
    of_rows("", Config::rows(), &mut rows);
    schema.sort();
    // A table that may be a list of tables.
    schema.dedup();
    rows.sort();
    assert!(rows.len() > 200, "{}", rows.len());
    assert_eq!(rows, schema);
}

/// Tables whose entries the user names.
const NAMED: [&str; 8] =
    ["plans", "keys", "tenants", "upstreams", "routes", "rules", "plans", "rules"];

#[test]
fn unknown_names_are_rejected_in_every_table() {
    /// Adds an unknown name to each table in turn. Collects the tables where the schema accepts it.
    fn misspell(file: &Value, pointer: &str, taken: &mut Vec<String>) {
        let Some(table) = file.pointer(pointer).and_then(Value::as_object) else { return };
        let last = pointer.rsplit('/').next().unwrap_or_default();
        let parent = pointer.rsplit('/').nth(1).unwrap_or_default();
        if !NAMED.contains(&last) || NAMED.contains(&parent) && pointer.matches('/').count() == 2 {
            let mut file = file.clone();
            let table = file.pointer_mut(pointer).and_then(Value::as_object_mut).unwrap();
            table.insert("misspelt".to_owned(), json!({}));
            let text = toml::to_string(&file).unwrap();
            taken.extend(wrong(&text).is_none().then(|| pointer.to_owned()));
        }
        for name in table.keys() {
            misspell(file, &format!("{pointer}/{name}"), taken);
        }
    }
    let file: Value =
        toml::from_str(include_str!("../policy/build/fixtures/example.toml")).unwrap();
    let mut taken = Vec::new();
    misspell(&file, "", &mut taken);
    assert_eq!(taken, Vec::<String>::new());
}

#[test]
fn misspelt_names_and_wrong_types_are_rejected() {
    let table = [
        "rulez.r.per = []",
        "[server]\nlisten = '0.0.0.0:80'",
        "[server]\nthreads = '2'",
        "[server]\nthreads = -1",
        "[server]\nread_timeout = 60",
        "[server]\nread_timeout = '60 s'",
        "[server]\npath_case = 'loose'",
        "[clients]\non_unknown_key = 'alow'",
        "[clients]\napi_key = ['x-api-key']",
        "[clients]\nhide_key = 'yes'",
        "[keys.k]\nsha256 = 'secret'",
        "[routes.r]\npath = 'api'",
        "[routes.r]\nmethods = 'GET'",
        "[rules.r]\nper = ['adress']",
        "[rules.r]\nrate = '10/sec'",
        "[rules.r]\nrate = 10",
        "[rules.r]\nburst = 1.5",
        "[rules.r]\nplans.free = '10/s'",
        "[rules.r]\nplans.free = { rtae = '10/s' }",
        "[rules.r]\nmode = 'Shadow'",
        "[rules.r]\non_failure = 'open'",
        "[rules.r]\nexempt = ['10.0.0.0/8']",
        "[redis]\nurl = ['redis://a', 'redis://b']",
        "[redis]\nprefix = '{x}'",
    ];
    for text in table {
        assert!(wrong(text).is_some(), "{text}");
    }
}
