//! The `[keys.<id>]` table of a key, such that the file that it is appended to remains valid.

use std::fmt;

use crate::config::suggest;
use crate::config::{Config, in_order};
use crate::load;

/// How many digits of the hash are part of an id that the user did not choose.
const ID_DIGITS: usize = 8;

/// What the user asks for.
pub(super) struct Wanted {
    /// SHA-256 of the key, in hexadecimal.
    pub(super) digest: String,
    pub(super) id: Option<String>,
    pub(super) plan: Option<String>,
}

/// A `[keys.<id>]` table. It displays as TOML.
#[derive(Debug)]
pub(super) struct Table {
    /// Id of the client.
    pub(super) id: String,
    digest: String,
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
}

impl Table {
    /// The table for a file that is not known.
    ///
    /// # Errors
    /// The id or the plan is not a valid name.
    pub(super) fn alone(wanted: Wanted) -> Result<Self, String> {
        let Wanted { digest, id, plan } = wanted;
        let id = id.unwrap_or_else(|| format!("client-{}", &digest[..ID_DIGITS]));
        let plan = plan.map_or(Plan::Unknown, Plan::Named);
        let table = Self { id, digest, plan };
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
        let same = |key: &str| key.eq_ignore_ascii_case(&table.digest);
        for (id, key) in in_order(&file.keys) {
            if id.get_ref() == &table.id {
                return Err(format!(
                    "{name} has a key `{}` already; choose another --id",
                    table.id
                ));
            }
            if key.get_ref().sha256.as_ref().is_some_and(|sha256| same(sha256.get_ref())) {
                return Err(format!("{name} has this key already, as `{}`", id.get_ref()));
            }
        }
        let plans: Vec<&str> =
            in_order(&file.plans).into_iter().map(|(plan, _)| plan.get_ref().as_str()).collect();
        table.plan = match (table.plan, plans.as_slice()) {
            (Plan::Named(plan), []) => Plan::Named(plan),
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

    /// Checks the names by the code that reads files.
    fn check_names(&self) -> Result<(), String> {
        let plan = match &self.plan {
            Plan::Named(plan) => {
                format!("[plans.{plan:?}]\n[clients]\nanonymous_plan = {plan:?}\n")
            }
            Plan::Implicit | Plan::Unknown => String::new(),
        };
        let file = "[upstreams.api]\nservers = [\"demo\"]\n[routes.all]\n";
        let key = format!("[keys.{:?}]\nsha256 = {:?}\n", self.id, self.digest);
        let plan_of_key = match &self.plan {
            Plan::Named(plan) => format!("plan = {plan:?}\n"),
            Plan::Implicit | Plan::Unknown => String::new(),
        };
        let text = format!("{file}{plan}{key}{plan_of_key}");
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
        let Self { id, digest, plan } = self;
        writeln!(formatter, "[keys.{}]\nsha256 = \"{digest}\"", suggest::key(id))?;
        match plan {
            Plan::Named(plan) => writeln!(formatter, "plan = \"{plan}\""),
            Plan::Implicit => Ok(()),
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
        Wanted { digest, id: id.map(str::to_owned), plan: plan.map(str::to_owned) }
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
    fn table_that_the_file_would_not_accept_is_an_error() {
        let same = format!("[keys.globex]\nsha256 = '{}'", "0123456789ABCDEF".repeat(4));
        let long = "x".repeat(65);
        let errors = [
            in_file(PLANS, None, None),
            in_file(PLANS, None, Some("por")),
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
        error: gateway.toml has a key `acme` already; choose another --id
        error: gateway.toml has this key already, as `globex`
        error: the name of a key cannot hold ' ': a name is made of letters A-Z and a-z, digits, `_`, `.` and `-`
        error: the name of a key is empty: a name is made of letters A-Z and a-z, digits, `_`, `.` and `-`
        error: the name of a key cannot hold '"': a name is made of letters A-Z and a-z, digits, `_`, `.` and `-`
        error: the name of a key has 65 characters: a name has at most 64; this one begins `xxxxxxxxxxxxxxxxxxxxxxxx…`
        error: the name of a plan cannot hold '"': a name is made of letters A-Z and a-z, digits, `_`, `.` and `-`
        "#);
    }
}
