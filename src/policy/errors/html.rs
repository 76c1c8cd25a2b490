//! Where in HTML a text ends, as far as it matters for a value that follows. Pure.

/// What a value after a text is read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Text, or a part of the value of an attribute in quotes: references are replaced in it.
    Value,
    /// A part of a tag outside of quotes.
    Tag,
    /// A part of a script or a style sheet, or of an attribute that is one or is a page.
    Script,
}

/// Elements whose content is not read as HTML.
const RAW: [&str; 2] = ["script", "style"];

impl Place {
    /// What a value after `text` is read as.
    pub(super) fn after(text: &str) -> Self {
        let text = text.to_ascii_lowercase();
        let mut rest = text.as_str();
        while let Some((_, inner)) = rest.split_once('<') {
            rest = inner;
            if let Some(comment) = rest.strip_prefix("!--") {
                let Some((_, after)) = comment.split_once("-->") else { return Self::Value };
                rest = after;
            } else if rest.starts_with(|c: char| c.is_ascii_alphabetic() || "/!?".contains(c)) {
                let (name, after) = match tag(rest) {
                    Ok(tag) => tag,
                    Err(place) => return place,
                };
                rest = after;
                if RAW.contains(&name) {
                    let Some(end) = rest.find(&format!("</{name}")) else { return Self::Script };
                    rest = &rest[end..];
                }
            }
        }
        Self::Value
    }
}

/// The name of the element whose tag a text begins with after the `<`, and what follows the tag.
///
/// # Errors
/// The text ends in the tag, at this place.
fn tag(text: &str) -> Result<(&str, &str), Place> {
    let mut open = None;
    for (at, c) in text.char_indices() {
        match open {
            Some((quote, _)) if c == quote => open = None,
            None if c == '>' => {
                let name = text.split(|c: char| !c.is_ascii_alphanumeric()).next();
                return Ok((name.unwrap_or_default(), &text[at + 1..]));
            }
            None if matches!(c, '"' | '\'') => {
                let attribute = text[..at].trim_end().strip_suffix('=');
                open = attribute.map(|attribute| (c, attribute.trim_end()));
            }
            Some(_) | None => {}
        }
    }
    let Some((_, before)) = open else { return Err(Place::Tag) };
    let attribute = before.rsplit(|c: char| c.is_whitespace() || "\"'/".contains(c)).next();
    let attribute = attribute.unwrap_or_default();
    let is_script = attribute.starts_with("on") || matches!(attribute, "style" | "srcdoc");
    Err(if is_script { Place::Script } else { Place::Value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_that_of_html() {
        let table: [(Place, &[&str]); 3] = [
            (
                Place::Value,
                &[
                    "",
                    "<p>",
                    "a < b, c=",
                    "<!doctype html><br/>",
                    "<a title='",
                    "<a onclick='f()' data-on=\"",
                    "<a href=\"/?onclick='b'&style=",
                    "<script>a</script ><p>",
                    "<script>a='<p>'</script><style>b{}</style>",
                    "<!-- <script> -->",
                    "<!-- <a title=",
                    "<scripts>",
                    "<p>a='",
                    "<svg/onload='f()'>",
                ],
            ),
            (Place::Tag, &["<a title=", "<a title= ", "<a ", "</", "<a title='>' b", "<?xml "]),
            (
                Place::Script,
                &[
                    "<SCRIPT>let a = '",
                    "<script type='application/json'>",
                    "<script></script><style>a{}.b{color:",
                    "<a onClick=\"f('",
                    "<a onclick=\"a > b; c='d'; f(",
                    "<p id=a\nstyle = 'color:",
                    "<iframe srcdoc='",
                    "<svg/onload='",
                    "<a title='onclick'onclick='",
                ],
            ),
        ];
        for (place, texts) in table {
            for text in texts {
                assert_eq!(Place::after(text), place, "{text}");
            }
        }
    }
}
