//! The examples of the documentation: each block of TOML has only settings that exist, with values
//! that they take.

use std::path::PathBuf;

use crate::load::check_text;

/// Parts of messages about what a part of a file lacks. Files of lists and bodies are not
/// there, either.
const OF_PARTS: [&str; 7] = [
    "there are no routes",
    "there is no plan",
    "there is no upstream",
    "there is no route",
    "has no upstream",
    "`stream` needs Redis",
    "the environment variable `",
];

/// Blocks of TOML of a page that begin with the head of a table, with the number of the line before
/// each. Others are lines of a table, whose name the text says.
fn blocks(page: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        if line.trim() != "```toml" {
            continue;
        }
        let text = lines.by_ref().map(|(_, line)| line.get(indent..).unwrap_or_default());
        let text: Vec<&str> = text.take_while(|line| *line != "```").collect();
        let first = text.iter().find(|line| !line.is_empty() && !line.starts_with('#'));
        if first.is_some_and(|line| line.starts_with('[')) {
            blocks.push((number + 1, text.join("\n")));
        }
    }
    blocks
}

#[test]
fn examples_of_all_pages_are_valid() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let pages = std::fs::read_dir(root.join("docs")).unwrap().map(|page| page.unwrap().path());
    let mut pages: Vec<PathBuf> = pages.chain([root.join("README.md")]).collect();
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        for (line, block) in blocks(&text) {
            count += 1;
            let Err(report) = check_text("gateway.toml", &block, &|_| Some("x".repeat(40))) else {
                continue;
            };
            let is_of_part = |message: &str| OF_PARTS.iter().any(|part| message.contains(part));
            let errors = report.errors.list.iter().filter(|error| !is_of_part(&error.message));
            let page = page.file_name().unwrap().to_string_lossy();
            wrong.extend(errors.map(|error| format!("{page}:{line}: {}", error.message)));
        }
    }
    assert!(count > 50, "{count}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
