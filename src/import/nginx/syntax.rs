//! The syntax of nginx' files: directives with arguments, and blocks of them.

use crate::import::SyntaxError;
use crate::import::note::Place;

/// Maximum depth of blocks.
const MAX_DEPTH: usize = 100;

/// A directive with its arguments, and the directives of its block if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Directive {
    pub(super) place: Place,
    pub(super) name: String,
    pub(super) arguments: Vec<String>,
    pub(super) block: Option<Vec<Directive>>,
}

// === impl Directive ===

impl Directive {
    /// The directive without its block.
    pub(super) fn clone_head(&self) -> Self {
        let Self { place, name, arguments, .. } = self;
        Self { place: *place, name: name.clone(), arguments: arguments.clone(), block: None }
    }

    /// The directive as it is written, without its block.
    pub(super) fn shown(&self) -> String {
        [std::slice::from_ref(&self.name), &self.arguments].concat().join(" ")
    }

    /// The first argument; empty without one.
    pub(super) fn first(&self) -> &str {
        self.arguments.first().map_or("", String::as_str)
    }

    /// The value of an argument `name=value`.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.arguments.iter().find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='))
    }

    pub(super) fn has(&self, argument: &str) -> bool {
        self.arguments.iter().any(|own| own == argument)
    }

    /// The directives of the block.
    pub(super) fn inner(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }
}

/// Parses a file.
///
/// # Errors
/// A block or a string that does not end, or blocks that are too deep.
pub(super) fn parse(text: &str, file: usize) -> Result<Vec<Directive>, SyntaxError> {
    let mut reader = Reader { rest: text, place: Place { file, line: 1, column: 0 } };
    // The blocks that are open: the directive of each, without its block, and what is in it so far.
    let mut open: Vec<(Directive, Vec<Directive>)> = Vec::new();
    let mut current: Vec<Directive> = Vec::new();
    let mut words: Vec<(Place, String)> = Vec::new();
    while let Some(token) = reader.next()? {
        match token {
            Token::Word(place, word) => words.push((place, word)),
            Token::End => current.extend(directive(&mut words, None)),
            Token::Open if is_lua(&words) => {
                reader.skip_code()?;
                current.extend(directive(&mut words, Some(Vec::new())));
            }
            Token::Open => {
                if open.len() >= MAX_DEPTH {
                    return Err(SyntaxError::new(reader.place, "more than 100 levels of blocks"));
                }
                let Some(head) = directive(&mut words, None) else {
                    return Err(SyntaxError::new(reader.place, "a block without a name"));
                };
                open.push((head, std::mem::take(&mut current)));
            }
            Token::Close => {
                // A directive without `;` at the end of a block.
                current.extend(directive(&mut words, None));
                let Some((mut head, outer)) = open.pop() else {
                    return Err(SyntaxError::new(reader.place, "a `}` without a `{`"));
                };
                head.block = Some(std::mem::replace(&mut current, outer));
                current.push(head);
            }
        }
    }
    current.extend(directive(&mut words, None));
    match open.pop() {
        Some((head, _)) => {
            Err(SyntaxError::new(head.place, format!("the block `{}` does not end", head.name)))
        }
        None => Ok(current),
    }
}

/// Whether the block that follows is code, such as that of `access_by_lua_block`.
fn is_lua(words: &[(Place, String)]) -> bool {
    words.first().is_some_and(|(_, name)| name.ends_with("_by_lua_block"))
}

fn directive(words: &mut Vec<(Place, String)>, block: Option<Vec<Directive>>) -> Option<Directive> {
    let mut words = std::mem::take(words).into_iter();
    let (place, name) = words.next()?;
    Some(Directive { place, name, arguments: words.map(|(_, word)| word).collect(), block })
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(Place, String),
    /// `;`
    End,
    /// `{`
    Open,
    /// `}`
    Close,
}

struct Reader<'a> {
    rest: &'a str,
    place: Place,
}

// === impl Reader ===

impl Reader<'_> {
    fn take(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        if c == '\n' {
            self.place.line += 1;
        }
        Some(c)
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Result<Option<Token>, SyntaxError> {
        loop {
            match self.peek() {
                None => return Ok(None),
                Some(c) if c.is_whitespace() || c == '\u{feff}' => {
                    self.take();
                }
                Some('#') => while self.take().is_some_and(|c| c != '\n') {},
                Some(_) => break,
            }
        }
        let place = self.place;
        Ok(match self.peek() {
            None => None,
            Some(quote @ ('"' | '\'')) => {
                self.take();
                Some(Token::Word(place, self.quoted(quote, place)?))
            }
            Some(c @ (';' | '{' | '}')) => {
                self.take();
                Some(match c {
                    ';' => Token::End,
                    '{' => Token::Open,
                    _ => Token::Close,
                })
            }
            Some(_) => Some(Token::Word(place, self.bare())),
        })
    }

    fn quoted(&mut self, quote: char, begin: Place) -> Result<String, SyntaxError> {
        let mut text = String::new();
        while let Some(c) = self.take() {
            match c {
                c if c == quote => return Ok(text),
                '\\' => match self.take() {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some('r') => text.push('\r'),
                    Some(c) if c == quote || c == '\\' => text.push(c),
                    // As in a regular expression.
                    Some(c) => text.extend(['\\', c]),
                    None => {}
                },
                c => text.push(c),
            }
        }
        Err(SyntaxError::new(begin, "a string does not end"))
    }

    fn bare(&mut self) -> String {
        let mut text = String::new();
        while let Some(c) = self.peek() {
            match c {
                ';' => break,
                // `${name}` is part of a word, `{` otherwise begins a block, as in `a{2}` of an
                // expression without quotes, which nginx does not accept either.
                '{' if !text.ends_with('$') => break,
                '}' if !text.contains("${") || text.rfind('}') > text.rfind("${") => break,
                c if c.is_whitespace() => break,
                '\\' => {
                    self.take();
                    text.push('\\');
                    if let Some(c) = self.take() {
                        text.push(c);
                    }
                }
                c => {
                    self.take();
                    text.push(c);
                }
            }
        }
        text
    }

    /// Skips Lua up to the brace that ends its block.
    fn skip_code(&mut self) -> Result<(), SyntaxError> {
        let begin = self.place;
        let mut depth = 1_usize;
        while let Some(c) = self.take() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                '"' | '\'' => self.skip_string(c),
                '-' if self.rest.starts_with('-') => {
                    while self.take().is_some_and(|c| c != '\n') {}
                }
                _ => {}
            }
            if depth == 0 {
                return Ok(());
            }
        }
        Err(SyntaxError::new(begin, "a block of Lua does not end"))
    }

    fn skip_string(&mut self, quote: char) {
        while let Some(c) = self.take() {
            match c {
                '\\' => {
                    self.take();
                }
                c if c == quote || c == '\n' => return,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str) -> Vec<String> {
        fn add(directives: &[Directive], indent: usize, lines: &mut Vec<String>) {
            for directive in directives {
                let line = directive.place.line;
                lines.push(format!("{line}{}{}", " ".repeat(indent + 1), directive.shown()));
                add(directive.inner(), indent + 2, lines);
            }
        }
        let mut lines = Vec::new();
        add(&parse(text, 0).unwrap(), 0, &mut lines);
        lines
    }

    #[test]
    fn directives_blocks_strings_and_comments_are_read() {
        let text = "user www; # a; comment {\nhttp {\n  log_format a '$remote_addr \"x\"'\n    'y;';\n  \
                    location ~ \\.php$ { return 200 \"a\\\"b\"; }\n  set $a ${b}c;\n}";
        assert_eq!(
            shown(text),
            [
                "1 user www",
                "2 http",
                "3   log_format a $remote_addr \"x\" y;",
                "5   location ~ \\.php$",
                "5     return 200 a\"b",
                "6   set $a ${b}c"
            ]
        );
    }

    #[test]
    fn code_of_lua_is_skipped() {
        let text = "access_by_lua_block {\n if a then x = { '}' } end -- }\n}\nreturn 200;";
        assert_eq!(shown(text), ["1 access_by_lua_block", "4 return 200"]);
    }

    #[test]
    fn what_does_not_end_is_an_error_with_its_line() {
        for (text, line) in [("a;\nhttp {\n a;", 2), ("a;\n}", 2), ("a 'b", 1), ("{", 1)] {
            assert_eq!(parse(text, 0).unwrap_err().place.line, line, "{text}");
        }
        assert!(parse(&"a {".repeat(1000), 0).is_err());
    }

    proptest! {
        #![proptest_config(crate::base::cases::with_cases(256))]

        #[test]
        fn no_text_panics(text in r#"(?s)([a-z $\{\}\[\];#\\'"\n~=^@.*()|]|server |location |_by_lua_block|\PC){0,200}"#) {
            let _ = parse(&text, 0);
        }
    }
}
