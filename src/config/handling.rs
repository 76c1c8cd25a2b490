//! What a route does with requests and responses, as written.

use super::Named;
use super::tables::List;
use super::walk::table;

table! {
    /// `request_headers` and `response_headers` of a route: changes of headers. `remove` applies first, then `set`,
    /// then `add`.
    pub struct HeaderEdits {
        /// Headers that replace all of the same name. A value may contain variables, such as `{client.id}`, and
        /// `${NAME}`, a variable of the environment. Default: none.
        pub set: Named<String>,
        /// Headers that are added to those of the same name. Default: none.
        pub add: Named<String>,
        /// Names of headers that are removed. Default: none.
        pub remove: List,
    }
}
