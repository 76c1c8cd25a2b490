//! Shares that the file writes as a percentage: `"20%"`, `"0.5%"`.

use super::values::{optional, out_of_range};
use crate::base::text::cut;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::row::Row;
use crate::config::spanned::Spanned;
use crate::config::tables::Field;

/// The share of a setting in thousandths, within its range; that of its default if it is left out.
/// None with an error.
pub(super) fn thousandths(
    row: &Row,
    field: &Field<String>,
    diagnostics: &mut Diagnostics,
) -> Option<u16> {
    match field {
        Some(field) => written(row, field, diagnostics),
        None => parse(row.text()?),
    }
}

/// As [`thousandths`], for a setting without a default; the inner result is none if it is left out.
#[allow(
    clippy::option_option,
    reason = "an error and a setting that is left out are different things"
)]
pub(super) fn optional_thousandths(
    row: &Row,
    field: &Field<String>,
    diagnostics: &mut Diagnostics,
) -> Option<Option<u16>> {
    optional(field.as_ref(), |field| written(row, field, diagnostics))
}

fn written(row: &Row, field: &Spanned<String>, diagnostics: &mut Diagnostics) -> Option<u16> {
    let text = field.get_ref();
    let Some(share) = parse(text) else {
        let name = row.name;
        let message = format!("`{name}` is a percentage, not `{}`", cut(text, 40));
        let number =
            text.trim().parse::<f64>().ok().filter(|number| (0.0..=100.0).contains(number));
        let help = match number {
            Some(number) if number > 0.0 && number < 1.0 => {
                format!("write `{name} = \"{}%\"`", number * 100.0)
            }
            Some(number) => format!("write `{name} = \"{number}%\"`"),
            None => "it looks like `\"20%\"` or `\"0.5%\"`, and is at most `\"100%\"`".to_owned(),
        };
        diagnostics.push(Diagnostic::new(field.span(), message).help(help));
        return None;
    };
    if row.range().has(share) {
        return Some(share);
    }
    diagnostics.push(out_of_range(row, field.span()));
    None
}

/// Thousandths of a percentage with at most one decimal.
fn parse(text: &str) -> Option<u16> {
    let number = text.trim().strip_suffix('%')?.trim_end();
    let (whole, tenth) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |digits: &str, most| {
        (1..=most).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    if !is_number(whole, 3) || !is_number(tenth, 1) {
        return None;
    }
    let share = whole.parse::<u16>().ok()? * 10 + tenth.parse::<u16>().ok()?;
    (share <= 1_000).then_some(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentage_has_at_most_one_decimal() {
        let table = [("20%", 200), ("0.5%", 5), ("100%", 1_000), ("0%", 0), (" 7 % ", 70)];
        for (text, share) in table {
            assert_eq!(parse(text), Some(share), "{text}");
        }
        for text in ["", "%", "20", "0.2", "100.1%", "101%", "0.05%", "-1%", "1e1%", "+5%", ".5%"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
