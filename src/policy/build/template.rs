//! Texts with variables of a request, such as `{client.id}`, and of the environment, `${NAME}`.

use super::environment::{Environment, expand_part};
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::reference::{Piece, pieces};
use crate::config::spanned::Spanned;
use crate::config::suggest::{self, cut};
use crate::policy::template::{self, Template, TemplateError};

/// The template of a setting. Variables of the environment are replaced; their values have no variables.
pub(super) fn template(
    field: &Spanned<String>,
    environment: Environment<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<Template> {
    let mut template = Template::default();
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
                Ok(())
            }
            // `$${` was cut to `${`.
            Piece::Text(text @ "${") => {
                template.push_text(text);
                Ok(())
            }
            Piece::Text(text) => template.push(text),
        };
        if let Err(error) = result {
            diagnostics.push(diagnostic(&error, field));
            return None;
        }
    }
    Some(template)
}

fn diagnostic(error: &TemplateError, field: &Spanned<String>) -> Diagnostic {
    const BRACES: &str = "a variable looks like `{client.id}`; write `{{` and `}}` for braces";
    let (message, help) = match error {
        TemplateError::Unclosed | TemplateError::Unopened => (error.to_string(), BRACES.to_owned()),
        TemplateError::Unknown(name) => {
            let message = format!("unknown variable `{{{}}}`", cut(name, 64));
            let names = template::names();
            (message, suggest::help_lines(name, &names))
        }
    };
    Diagnostic::new(field.span(), message).help(help)
}
