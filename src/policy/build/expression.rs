//! `path_regex` of routes.

use super::mistake::Mistake;
use crate::base::text::cut;
use crate::policy::expression::{Expression, ExpressionError, MAX_EXPRESSION_BYTES};

/// Compiles an expression.
///
/// # Errors
/// See [`Mistake`].
pub(super) fn parse(text: &str, ignore_case: bool) -> Result<Expression, Mistake> {
    let bare = text.trim_start_matches(['~', '*', ' ']);
    if text.starts_with('~') {
        let help = format!("write `{}`", cut(bare, 100));
        return Err(Mistake::new("a regular expression is written without `~`", help));
    }
    if text.is_empty() {
        let help = "such as `^/v[0-9]+/search$`; without it, the route is for all paths";
        return Err(Mistake::new("`path_regex` is empty", help));
    }
    if text.len() > MAX_EXPRESSION_BYTES {
        let message = format!("`path_regex` is longer than {MAX_EXPRESSION_BYTES} bytes");
        return Err(Mistake::new(message, "take several routes, or a path with parameters"));
    }
    Expression::parse(text, ignore_case).map_err(|error| match error {
        ExpressionError::Syntax(why) => {
            let message = format!("`path_regex` is no regular expression: {}", cut(&why, 120));
            Mistake::new(message, "such as `^/v[0-9]+/search$`: the syntax is that of RE2")
        }
        ExpressionError::TooLarge => {
            let message = "`path_regex` needs more memory than a regular expression may have";
            Mistake::new(message, "let it have fewer or smaller repetitions, such as `{2,50}`")
        }
    })
}
