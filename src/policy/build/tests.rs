//! What a file means, and what is wrong with it.

mod diagnostics;
mod meaning;
mod mutations;
mod robustness;

/// Enough for a file to be served.
const SMALLEST: &str = "[upstreams.api]\nservers = [\"demo\"]\n[routes.all]\n";

/// The diagnostics of a file that is wrong, without those of its lack of routes.
fn told(text: &str) -> String {
    let text = format!("{text}\n{SMALLEST}");
    told_alone(&text)
}

/// The diagnostics of a whole file.
fn told_alone(text: &str) -> String {
    match crate::load::from_text("gateway.toml", text) {
        Ok(_) => "no errors\n".to_owned(),
        Err(report) => report.render(false),
    }
}
