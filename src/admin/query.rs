//! Reads the parameters of a request's query.

use std::borrow::Cow;

use http::StatusCode;

use super::answer::Answer;
use crate::config::suggest;
use crate::identity::query_parameters;
use crate::net::percent::decode_query;

/// The parameters of a query, decoded, in order.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

/// Why a query is invalid, as a text for the caller.
#[derive(Debug)]
pub(super) struct BadQuery(pub(super) String);

impl Query {
    /// Reads a query that may contain only `names`; those in `many` can be repeated.
    pub(super) fn read(
        query: Option<&str>,
        names: &[&str],
        many: &[&str],
    ) -> Result<Self, BadQuery> {
        let mut read = Self::default();
        for (name, value) in query_parameters(query.unwrap_or_default()) {
            let text = |bytes: Cow<'_, [u8]>| {
                let error = |_| BadQuery("the query is not UTF-8".to_owned());
                String::from_utf8(bytes.into_owned()).map_err(error)
            };
            let (name, value) = (text(decode_query(name))?, text(decode_query(value))?);
            if !names.contains(&name.as_str()) {
                return Err(BadQuery(suggest::unknown("the query", &name, names)));
            }
            if !many.contains(&name.as_str()) && read.get(&name).is_some() {
                return Err(BadQuery(format!("`{name}` is given twice")));
            }
            read.0.push((name, value));
        }
        Ok(read)
    }

    /// The first value of that name.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// All values of that name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

impl From<BadQuery> for Box<Answer> {
    fn from(BadQuery(message): BadQuery) -> Self {
        Answer::refusal(StatusCode::BAD_REQUEST, &message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_unknown_ones_are_errors() {
        let read = |query| Query::read(query, &["rule", "header"], &["header"]);
        let query = read(Some("rule=a%20b+c&header=x%3A1&header=&")).unwrap();
        assert_eq!(query.get("rule"), Some("a b c"));
        assert_eq!(query.all("header").collect::<Vec<_>>(), ["x:1", ""]);
        assert!(read(None).unwrap().get("rule").is_none());
        let wrong = |query| read(Some(query)).unwrap_err().0;
        assert_eq!(wrong("rul=1"), "the query has an unknown name `rul`: did you mean `rule`?");
        assert_eq!(wrong("rule=1&rule=2"), "`rule` is given twice");
        assert_eq!(wrong("rule=%ff"), "the query is not UTF-8");
    }
}
