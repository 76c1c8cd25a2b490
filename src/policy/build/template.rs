//! Texts with variables of a request, such as `{client.id}`, and of the environment, `${NAME}`.

use super::environment::{Environment, expand_part};
use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::reference::{Piece, pieces};
use crate::config::spanned::Spanned;
use crate::config::suggest;
use crate::policy::template::{self, Template, TemplateError};

/// The template of a setting.
pub(super) struct Expanded {
    pub(super) template: Template,
    /// Whether a part of it is a placeholder, so that only its other parts can be checked.
    pub(super) is_assumed: bool,
}

/// The template of a setting. Variables of the environment are replaced; their values have no
/// variables.
pub(super) fn template(
    field: &Spanned<String>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Expanded> {
    let mut template = Template::default();
    let mut is_assumed = false;
    // Literal `${` whose `}` has not been found yet.
    let mut literals = 0_usize;
    // A text that is not split has an error, which `expand_part` reports.
    let Ok(pieces) = pieces(field.get_ref()) else {
        expand_part(field.get_ref(), field, environment, &|value| value, diagnostics)?;
        return None;
    };
    for piece in pieces {
        let result = match piece {
            Piece::Reference(reference) => {
                let whole = reference.to_string();
                let value = expand_part(&whole, field, environment, &|value| value, diagnostics)?;
                template.push_text(&value.text);
                is_assumed |= value.is_assumed;
                Ok(())
            }
            // `$${` was cut to `${`.
            Piece::Text(text @ "${") => {
                template.push_text(text);
                literals += 1;
                Ok(())
            }
            Piece::Text(text) => {
                let (literal, rest) = literal_end(text, &mut literals);
                template.push_text(literal);
                template.push(rest)
            }
        };
        if let Err(error) = result {
            diagnostics.push(diagnostic(&error, field));
            return None;
        }
    }
    Some(Expanded { template, is_assumed })
}

/// Splits a text after the `}` of each literal `${` before it. `}}` is that `}` as well, as
/// anywhere in a template.
fn literal_end<'a>(text: &'a str, literals: &mut usize) -> (&'a str, &'a str) {
    let mut at = 0;
    while *literals > 0
        && let Some(brace) = text[at..].find(['{', '}']).map(|found| at + found)
        && text[brace..].starts_with('}')
        && !text[brace..].starts_with("}}")
    {
        at = brace + 1;
        *literals -= 1;
    }
    text.split_at(at)
}

fn diagnostic(error: &TemplateError, field: &Spanned<String>) -> Diagnostic {
    const BRACES: &str = "a variable looks like `{client.id}`; write `{{` and `}}` for braces";
    let (message, help) = match error {
        TemplateError::Unclosed | TemplateError::Unopened => (error.to_string(), BRACES.to_owned()),
        TemplateError::Name(text) => {
            let message = format!("`{{{}}}` has no valid name after its colon", cut(text, 64));
            (message, "such as `{param:tenant}`, `{header:x-tenant}` or `{query:page}`".to_owned())
        }
        TemplateError::Unknown(name) => {
            let message = format!("unknown variable `{{{}}}`", cut(name, 64));
            let names = template::names();
            (message, suggest::help_lines(name, &names))
        }
    };
    Diagnostic::new(field.span(), message).help(help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::build::Lookup;

    #[test]
    fn literal_reference_ends_at_its_brace() {
        let written = |text: &str| {
            let mut diagnostics = Diagnostics::default();
            let field = Spanned::new(text.to_owned(), 0..0);
            let lookup = |_: crate::config::reference::Reference<'_>| Lookup::Value("v".to_owned());
            let expanded = template(&field, &lookup, &mut diagnostics);
            expanded.and_then(|expanded| expanded.template.constant().map(str::to_owned))
        };
        for (text, expected) in [
            ("$${NAME}", Some("${NAME}")),
            ("a $${NAME} b", Some("a ${NAME} b")),
            ("$${NAME}}", Some("${NAME}")),
            ("$${A}$${B}c", Some("${A}${B}c")),
            ("$${A${B}}", Some("${Av}")),
            ("$${file:/a}{{b}}", Some("${file:/a}{b}")),
            ("$${", Some("${")),
            ("$${A}}}", None),
            ("$${A}x}", None),
            ("}", None),
        ] {
            assert_eq!(written(text).as_deref(), expected, "{text}");
        }
    }
}
