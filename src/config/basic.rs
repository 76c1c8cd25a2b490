//! `[clients.basic]` as written: users with passwords.

use super::row::DefaultValue::{InWords, Switch, Text};
use super::row::Form::Duration;
use super::row::Range::{Characters, Durations};
use super::row::{Shown, Unit};
use super::tables::{Field, TextOrList};
use super::walk::table;

table! {
    /// `[clients.basic]`: users with passwords (HTTP Basic authentication), which are clients as
    /// those with API keys are.
    pub struct Basic {
        /// The users and the hashes of their passwords: a file that `htpasswd -B` makes, as
        /// `"file:users.htpasswd"`, or a list of such lines.
        pub users: Field<TextOrList> {
            example: Some(r#""file:users.htpasswd""#),
            shown: Shown::Masked,
        },
        /// What browsers show when they ask for a password.
        pub realm: Field<String> { default: Text("tollgate"), range: Characters(1, 128) },
        /// Plan of users without a table in `[keys]`.
        pub plan: Field<String> { default: InWords("that of clients without a key") },
        /// Whether user and password are removed before the request is forwarded.
        pub hide_password: Field<bool> { default: Switch(true) },
        /// How long a verified password is not verified again.
        pub cache: Field<String> {
            default: Text("5m"),
            form: Duration(Unit::Seconds),
            range: Durations("0s", "1d"),
        },
    }
}
