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
use crate::policy::access_log::fields::Field;

/// The file with the schema.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/gateway.schema.json");

const TIME: &str = "^[0-9]+(ms|s|m|h|d)$";

/// Patterns of texts by the setting's name. For a list, the pattern is that of its items.
const PATTERNS: [(&str, &str); 28] = [
    ("rate", "^[0-9]+/[0-9]*(ms|s|m|h|d)$"),
    ("sha256", "^[0-9A-Fa-f]{64}$"),
    ("per", "^(ip|key|plan|route|method|host|cert|header:.+)$"),
    ("api_key", "^(bearer|header:.+|query:.+)$"),
    ("path", "^/"),
    ("timeout", TIME),
    ("keepalive_timeout", TIME),
    ("read_timeout", TIME),
    ("write_timeout", TIME),
    ("connect_timeout", TIME),
    ("idle_timeout", TIME),
    ("drain_timeout", TIME),
    ("drain_delay", TIME),
    ("upgrade_timeout", TIME),
    ("handshake_timeout", TIME),
    ("head_timeout", TIME),
    ("websocket_idle_timeout", TIME),
    ("max_connection_age", TIME),
    ("max_age", TIME),
    ("mode", "^0?[0-7]{3}$"),
    ("balance", "^(round_robin|least_request|random_two|hash:(ip|key|header:.+))$"),
    ("slow_start", TIME),
    ("ttl", TIME),
    ("window", TIME),
    ("open", TIME),
    ("open_max", TIME),
    ("ramp_step", TIME),
    ("prefix", "^[!-z|~]{1,64}$"),
];

/// Patterns of the short form of settings that also have a long one, by the setting's name.
const SHORT_FORMS: [(&str, &str); 3] =
    [("certificates", "^acme$"), ("hsts", TIME), ("burst", TIME)];

/// The schema of the types.
fn generated() -> Value {
    let mut settings = SchemaSettings::draft07();
    settings.inline_subschemas = true;
    let schema = settings.into_generator().into_root_schema_for::<Config>();
    let mut schema = schema.to_value();
    simplify("", &mut schema);
    if let Some(root) = schema.as_object_mut() {
        root.insert("title".to_owned(), json!("gateway.toml"));
    }
    schema
}

/// Removes null, which TOML does not have, and members that editors do not use, and adds patterns.
/// `name` is the setting's.
fn simplify(name: &str, schema: &mut Value) {
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
    if let Some(Value::Array(mut choices)) = schema.remove("anyOf") {
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
                if let Some((_, pattern)) = SHORT_FORMS.iter().find(|(own, _)| *own == name) {
                    short.insert("pattern".to_owned(), json!(pattern));
                }
                for choice in &mut choices {
                    simplify("", choice);
                }
                schema.insert("anyOf".to_owned(), Value::Array(choices));
            }
            _ => panic!("{name}: a choice of types is not expected"),
        }
    }
    words(schema);
    if schema.get("type") == Some(&json!("string"))
        && !schema.contains_key("enum")
        && let Some((_, pattern)) = PATTERNS.iter().find(|(own, _)| *own == name)
    {
        schema.insert("pattern".to_owned(), json!(pattern));
    }
    if schema.get("type") == Some(&json!("string")) && name == "fields" {
        let names = Field::names();
        schema.insert("pattern".to_owned(), json!(format!("^({}|header:.+)$", names.join("|"))));
    }
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.iter_mut().for_each(|(name, property)| simplify(name, property));
    }
    for inner in ["additionalProperties", "items"] {
        if let Some(inner) = schema.get_mut(inner) {
            simplify(name, inner);
        }
    }
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
    let file: Value = toml::from_str(text).ok()?;
    let (schemas, index) = &*KEPT;
    schemas.validate(&file, *index).err().map(|error| format!("{error:#}"))
}

/// Asserts that a file conforms to the schema. Called for every file that is valid in a unit test.
pub(crate) fn assert_takes(text: &str) {
    if let Some(wrong) = wrong(text) {
        panic!("a valid file does not conform to the schema:\n{wrong}\n{text}");
    }
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

/// Tables whose entries the user names.
const NAMED: [&str; 7] = ["plans", "keys", "upstreams", "routes", "rules", "plans", "rules"];

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
