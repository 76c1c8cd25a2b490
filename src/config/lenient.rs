//! Reads single settings of a file that has errors.

use super::diagnostic::Report;

impl Report {
    /// The text of a setting of the file, as far as it can be read although the file has errors;
    /// without quotes.
    pub fn setting(&self, table: &str, name: &str) -> Option<&str> {
        find(&self.source, table, name)
    }
}

fn find<'a>(source: &'a str, table: &str, name: &str) -> Option<&'a str> {
    let mut current = "";
    for line in source.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            current = header.split(']').next().unwrap_or_default().trim();
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let key = key.trim();
        let is_dotted = || key.split_once('.').is_some_and(|(of, key)| (of, key) == (table, name));
        if current == table && key == name || current.is_empty() && is_dotted() {
            let value = value.split('#').next().unwrap_or_default();
            return Some(value.trim().trim_matches(['"', '\'']));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_is_found_in_a_file_with_errors() {
        let table = [
            ("[log]\nformat = \"json\"\n[server\nx", Some("json")),
            ("=\n[ log ] # a\n  format='text' # not json\n", Some("text")),
            ("log.format = \"json\"\n[rules.r]\n", Some("json")),
            ("[logs]\nformat = \"json\"\n", None),
            ("[log]\n[a]\nformat = \"json\"\n", None),
            ("format = \"json\"\n", None),
            ("", None),
        ];
        for (source, expected) in table {
            assert_eq!(find(source, "log", "format"), expected, "{source:?}");
        }
    }
}
