//! Policies of valid files, and diagnostics of invalid ones.

mod defaults;
mod diagnostics;
mod docs;
mod files;
mod meaning;
mod mutations;
mod ranges;
mod robustness;

/// The smallest valid file.
const SMALLEST: &str = "[upstreams.api]\nservers = [\"demo\"]\n[routes.all]\n";

/// The rendered diagnostics of a file with this text and [`SMALLEST`].
fn render(text: &str) -> String {
    let text = format!("{text}\n{SMALLEST}");
    render_whole(&text)
}

/// The rendered diagnostics of a whole file.
fn render_whole(text: &str) -> String {
    match crate::load::check_text("gateway.toml", text, &|variable| std::env::var(variable).ok()) {
        Ok((_, report)) if report.warnings.is_empty() => "no errors\n".to_owned(),
        Ok((_, report)) | Err(report) => report.render(false),
    }
}

/// The messages of a file with errors.
fn messages(text: &str) -> Vec<String> {
    let report = crate::load::from_text("gateway.toml", text).unwrap_err();
    report.errors.list.into_iter().map(|diagnostic| diagnostic.message).collect()
}
