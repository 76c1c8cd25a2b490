//! The `[keys.<id>]` table of a key, such that the file that it is appended to remains valid.

use std::fmt;

use crate::config::spanned::Spanned;
use crate::config::suggest;
use crate::config::{Config, in_order, tables};
use crate::load;

/// How many digits of the hash are part of an id that the user did not choose.
const ID_DIGITS: usize = 8;

/// What the user asks for.
pub(super) struct Wanted {
    /// SHA-256 of the key, in hexadecimal.
    pub(super) digest: String,
    pub(super) id: Option<String>,
    pub(super) plan: Option<String>,
    /// Name of the key among those of its client.
    pub(super) name: Option<String>,
}

/// A `[keys.<id>]` table. It displays as TOML.
#[derive(Debug)]
pub(super) struct Table {
    /// Id of the client.
    pub(super) id: String,
    digest: String,
    name: Option<String>,
    plan: Plan,
}

/// Plan of the key.
#[derive(Debug)]
enum Plan {
    Named(String),
    /// The file has no plans.
    Implicit,
    /// The file is not there.
    Unknown,
    /// The file has the client, which gets a further key.
    OfClient,
}

impl Table {
    /// The table for a file that is not known.
    ///
    /// # Errors
    /// The id or the plan is not a valid name.
    pub(super) fn alone(wanted: Wanted) -> Result<Self, String> {
        let Wanted { digest, id, plan, name } = wanted;
        let id = id.unwrap_or_else(|| format!("client-{}", &digest[..ID_DIGITS]));
        let plan = plan.map_or(Plan::Unknown, Plan::Named);
        let table = Self { id, digest, name, plan };
        table.check_names()?;
        Ok(table)
    }

    /// The table for the file `name` with this content. Only its plans and keys are used, so its
    /// other tables may have errors.
    ///
    /// # Errors
    /// The file would not be valid with the table, or has several plans and none is chosen.
    pub(super) fn in_file(wanted: Wanted, name: &str, file: &Config) -> Result<Self, String> {
        let mut table = Self::alone(wanted)?;
        let mut is_further = false;
        let digest = table.digest.clone();
        let same = |key: &str| key.eq_ignore_ascii_case(&digest);
        for (id, key) in in_order(&file.keys) {
            if key.get_ref().digests().any(same) {
                return Err(format!("{name} has this key already, as `{}`", id.get_ref()));
            }
            if id.get_ref() == &table.id {
                is_further = true;
                table.check_further(name, key.get_ref())?;
            }
        }
        if is_further {
            table.plan = Plan::OfClient;
            return Ok(table);
        }
        let plans: Vec<&str> =
            in_order(&file.plans).into_iter().map(|(plan, _)| plan.get_ref().as_str()).collect();
        table.plan = match (table.plan, plans.as_slice()) {
            (Plan::Named(plan), []) if file.routes.is_empty() => Plan::Named(plan),
            (Plan::Named(plan), []) => {
                return Err(format!(
                    "{name} has no plans; leave --plan out, or add `[plans.{plan}]` to it first"
                ));
            }
            (Plan::Named(plan), _) if plans.contains(&plan.as_str()) => Plan::Named(plan),
            (Plan::Named(plan), _) => {
                let help = suggest::help(&plan, &plans);
                return Err(format!("{name} has no plan `{plan}`: {help}"));
            }
            (_, []) if file.routes.is_empty() => Plan::Unknown,
            (_, []) => Plan::Implicit,
            (_, [only]) => Plan::Named((*only).to_owned()),
            _ => {
                let plans = suggest::list(&plans, "or");
                return Err(format!("{name} has several plans; choose one: --plan {plans}"));
            }
        };
        Ok(table)
    }

    /// Checks that the client with this id can get a further key.
    fn check_further(&self, file: &str, client: &tables::Key) -> Result<(), String> {
        let id = &self.id;
        let Some(own) = &self.name else {
            return Err(format!(
                "{file} has a key `{id}` already; choose another --id, or give the key a --name, such as \
                 --name 2027, to add it to the client `{id}`"
            ));
        };
        if matches!(self.plan, Plan::Named(_)) {
            return Err(format!("the client `{id}` has a plan already; leave --plan out"));
        }
        let secrets = client.secrets.iter().flat_map(Spanned::get_ref);
        let mut names = secrets.filter_map(|secret| secret.get_ref().name.as_ref());
        if names.any(|name| name.get_ref() == own) {
            return Err(format!(
                "the client `{id}` has a key `{own}` already; choose another --name"
            ));
        }
        Ok(())
    }

    /// Checks that the table can be appended to the file `name`, whose content is `text`: that of
    /// a further key cannot if the file has the client, or its keys, in one line.
    ///
    /// # Errors
    /// What to write instead.
    pub(super) fn check_appended(&self, name: &str, text: &str) -> Result<(), String> {
        let is_toml = |text: &str| toml::de::DeTable::parse(text).is_ok();
        if !matches!(self.plan, Plan::OfClient)
            || !is_toml(text)
            || is_toml(&format!("{text}\n{self}"))
        {
            return Ok(());
        }
        let (id, digest) = (&self.id, &self.digest);
        let own = self.name.as_deref().unwrap_or_default();
        Err(format!(
            "{name} has the keys of `{id}` in one line; add this item to its `secrets`: \
             {{ name = \"{own}\", sha256 = \"{digest}\" }}"
        ))
    }

    /// Checks the names by the code that reads files.
    fn check_names(&self) -> Result<(), String> {
        let plan = match &self.plan {
            Plan::Named(plan) => {
                format!("[plans.{plan:?}]\n[clients]\nanonymous_plan = {plan:?}\n")
            }
            Plan::Implicit | Plan::Unknown | Plan::OfClient => String::new(),
        };
        let file = "[upstreams.api]\nservers = [\"demo\"]\n[routes.all]\n";
        let key = format!("[keys.{:?}]\nsha256 = {:?}\n", self.id, self.digest);
        let named = self.name.as_ref().map_or_else(String::new, |name| {
            format!("secrets = [{{ name = {name:?}, sha256 = {:?} }}]\n", "0".repeat(64))
        });
        let plan_of_key = match &self.plan {
            Plan::Named(plan) => format!("plan = {plan:?}\n"),
            Plan::Implicit | Plan::Unknown | Plan::OfClient => String::new(),
        };
        let text = format!("{file}{plan}{key}{named}{plan_of_key}");
        load::from_text("", &text).map(|_| ()).map_err(|report| {
            let first = report.errors.list.first();
            first.map_or_else(String::new, |first| match &first.help {
                Some(help) => format!("{}: {help}", first.message),
                None => first.message.clone(),
            })
        })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, digest, name, plan } = self;
        let id = suggest::key(id);
        match (name, plan) {
            (Some(name), Plan::OfClient) => {
                return writeln!(
                    formatter,
                    "[[keys.{id}.secrets]]\nname = \"{name}\"\nsha256 = \"{digest}\""
                );
            }
            (Some(name), _) => {
                let item = format!("{{ name = \"{name}\", sha256 = \"{digest}\" }}");
                writeln!(formatter, "[keys.{id}]\nsecrets = [{item}]")?;
            }
            (None, _) => writeln!(formatter, "[keys.{id}]\nsha256 = \"{digest}\"")?,
        }
        match plan {
            Plan::Named(plan) => writeln!(formatter, "plan = \"{plan}\""),
            Plan::Implicit | Plan::OfClient => Ok(()),
            Plan::Unknown => writeln!(formatter, "# plan = \"…\"  # if the file has plans"),
        }
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::config::diagnostic::Diagnostics;
    use crate::config::read::read;

    const PLANS: &str = "[plans.free]\n[plans.pro]\n[keys.acme]\nplan = 'pro'\n";

    fn wanted(id: Option<&str>, plan: Option<&str>) -> Wanted {
        let digest = "0123456789abcdef".repeat(4);
        Wanted { digest, id: id.map(str::to_owned), plan: plan.map(str::to_owned), name: None }
    }

    fn in_file(file: &str, id: Option<&str>, plan: Option<&str>) -> String {
        let config = read(file, &mut Diagnostics::default());
        match Table::in_file(wanted(id, plan), "gateway.toml", &config) {
            Ok(table) => table.to_string(),
            Err(message) => format!("error: {message}"),
        }
    }

    #[test]
    fn table_has_the_plan_of_the_file() {
        assert_snapshot!(in_file(PLANS, Some("globex"), Some("pro")), @r#"
        [keys.globex]
        sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
        plan = "pro"
        "#);
        assert_snapshot!(in_file("[plans.only]", None, None), @r#"
        [keys.client-01234567]
        sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
        plan = "only"
        "#);
        assert_snapshot!(in_file("[routes.all]", Some("a.b"), None), @r#"
        [keys."a.b"]
        sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
        "#);
        assert_snapshot!(in_file("", None, None), @r#"
        [keys.client-01234567]
        sha256 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
        # plan = "…"  # if the file has plans
        "#);
    }

    #[test]
    fn further_key_of_a_client_is_an_item_of_its_secrets() {
        let named = |file: &str, name: &str, plan: Option<&str>| {
            let config = read(file, &mut Diagnostics::default());
            let wanted = Wanted { name: Some(name.to_owned()), ..wanted(Some("acme"), plan) };
            let table = Table::in_file(wanted, "gateway.toml", &config);
            let appended = table.and_then(|table| {
                table.check_appended("gateway.toml", file)?;
                Ok(table.to_string())
            });
            appended.unwrap_or_else(|message| format!("error: {message}\n"))
        };
        let secrets = "secrets = [{ name = '2026', sha256 = '00' }]";
        let listed = "[[keys.acme.secrets]]\nname = '2026'\nsha256 = '00'";
        assert_snapshot!(
            [
                named("[plans.pro]", "2027", None),
                named(PLANS, "2027", None),
                named(&format!("{PLANS}{listed}"), "2027", None),
                named(&format!("{PLANS}{listed}"), "2026", None),
                named(&format!("{PLANS}{secrets}"), "2027", None),
                named(&format!("keys.acme = {{ {secrets} }}"), "2027", None),
                named(PLANS, "2027", Some("pro")),
                named(PLANS, "20 27", None),
            ]
            .join("\n")
        );
    }

    #[test]
    fn table_that_the_file_would_not_accept_is_an_error() {
        let same = format!("[keys.globex]\nsha256 = '{}'", "0123456789ABCDEF".repeat(4));
        let long = "x".repeat(65);
        let errors = [
            in_file(PLANS, None, None),
            in_file(PLANS, None, Some("por")),
            in_file("[routes.all]", None, Some("pro")),
            in_file(PLANS, Some("acme"), Some("pro")),
            in_file(&same, None, None),
            in_file(PLANS, Some("a b"), Some("pro")),
            in_file(PLANS, Some(""), Some("pro")),
            in_file(PLANS, Some("a\"]\n"), Some("pro")),
            in_file(PLANS, Some(&long), Some("pro")),
            in_file("", None, Some("a\"b")),
        ];
        assert_snapshot!(errors.join("\n"), @r#"
        error: gateway.toml has several plans; choose one: --plan `free` or `pro`
        error: gateway.toml has no plan `por`: did you mean `pro`?
        error: gateway.toml has no plans; leave --plan out, or add `[plans.pro]` to it first
        error: gateway.toml has a key `acme` already; choose another --id, or give the key a --name, such as --name 2027, to add it to the client `acme`
        error: gateway.toml has this key already, as `globex`
        error: the name of a key cannot hold ' ': a name is made of letters A-Z and a-z, digits, `_`, `.` and `-`
        error: the name of a key is empty: a name is made of letters A-Z and a-z, digits, `_`, `.` and `-`
        error: the name of a key cannot hold '"': a name is made of letters A-Z and a-z, digits, `_`, `.` and `-`
        error: the name of a key has 65 characters: a name has at most 64; this one begins `xxxxxxxxxxxxxxxxxxxxxxxx…`
        error: the name of a plan cannot hold '"': a name is made of letters A-Z and a-z, digits, `_`, `.` and `-`
        "#);
    }
}
