//! Dry runs: what a reload would change and what needs a restart. Nothing is applied.
//!
//! A text that was sent may come from a reader who must not learn the secrets of this gateway. So
//! nothing of it is looked up: no variable and no file is read, and every `${…}` has an assumed
//! value, in the file in force too. Secrets that are written out in a file are not compared, since
//! "unchanged" would confirm a guess. Hashes of keys are compared: the port for clients confirms a
//! guess at a key anyway.

use std::path::Path;
use std::sync::Arc;

use super::{Content, READ_DEADLINE, Reloader, names};
use crate::base::blocking::NoResult;
use crate::config::changes::Changes;
use crate::config::findings::Findings;
use crate::config::outline::Outline;
use crate::load::{LoadError, Source};
use crate::policy::bucket_changes::{self, BucketChange};
use crate::policy::restart;
use crate::runtime::Snapshot;

/// The result of a dry run.
#[derive(Debug)]
pub struct DryRun {
    /// Generation of the configuration in force.
    pub generation: u64,
    /// What a reload would do, or why it would reject the file.
    pub plan: Result<Plan, LoadError>,
}

/// What a reload of a valid file would do.
#[derive(Debug, Default)]
pub struct Plan {
    /// Differences from the file in force.
    pub changes: Changes,
    /// Settings that differ and that a reload cannot change: it would reject the file.
    pub restart: Vec<String>,
    /// Whether an upgrade would change them, without closing a port.
    pub by_upgrade: bool,
    /// What happens to the buckets of clients.
    pub buckets: Vec<BucketChange>,
    /// Settings that are not compared, because they are secret.
    pub not_compared: Vec<String>,
    /// What has an assumed value, as it is written in the file.
    pub assumed: Vec<String>,
    /// Warnings of the file.
    pub warnings: Findings,
}

impl Reloader {
    /// What a reload of the file would do now.
    pub async fn dry_run(&self) -> DryRun {
        let state = self.state.lock().await;
        let (content, outline) = (state.content.clone(), state.outline.clone());
        let snapshot = self.runtime.current.load_full();
        // A reload during the dry run does not change what is compared.
        drop(state);
        let (path, generation) = (self.path.clone(), snapshot.generation);
        let plan = move || of_file(&path, &content, &outline, &snapshot);
        let plan = self.dry_runs.run(READ_DEADLINE, plan).await;
        DryRun { generation, plan: plan.unwrap_or_else(|why| Err(late(&self.path, why))) }
    }

    /// What a reload would do if the file had this content. Reads no file and no variable.
    pub async fn dry_run_of(&self, content: Vec<u8>) -> DryRun {
        let state = self.state.lock().await;
        let (in_force, generation) = (Arc::clone(&state.text), self.runtime.generation());
        drop(state);
        let plan = move || of_content(&in_force, content);
        let plan = self.dry_runs.run(READ_DEADLINE, plan).await;
        let plan = plan.unwrap_or_else(|why| match why {
            // No file was read.
            NoResult::Late(deadline) => Err(LoadError::LateCheck { deadline }),
            why => Err(late(&self.path, why)),
        });
        DryRun { generation, plan }
    }
}

/// The error of a dry run without a result.
fn late(path: &Path, why: NoResult) -> LoadError {
    match why {
        NoResult::TooMany(count) => LoadError::TooManyDryRuns { count },
        why => LoadError::of_no_result(path, why),
    }
}

/// The plan for the file at `path`. `content`, `outline` and `snapshot` are those in force. Looks
/// up no name: it warns of those that are known to have no address.
fn of_file(
    path: &Path,
    content: &Content,
    outline: &Outline,
    snapshot: &Snapshot,
) -> Result<Plan, LoadError> {
    let source = Source::read_again(path)?;
    let policy = &snapshot.policy;
    if content.is_of(&source) {
        let mut warnings = policy.warnings.clone();
        names::add_warnings(&mut warnings, policy, &snapshot.pools);
        return Ok(Plan { warnings, ..Plan::default() });
    }
    let new = source.policy()?;
    let mut warnings = new.warnings.clone();
    names::add_warnings(&mut warnings, &new, &snapshot.pools);
    let new_outline = source.outline();
    // A reload also opens the output, which may create the file.
    if let Some(error) = super::cannot_log(policy, &new, &new_outline, |_| Ok(())) {
        return Err(LoadError::Diagnostics(source.report([error])));
    }
    let needed = restart::needed(policy, &new);
    Ok(Plan {
        changes: Changes::between(outline, &new_outline),
        restart: needed.iter().map(|setting| setting.join(".")).collect(),
        by_upgrade: !needed.is_empty() && restart::can_upgrade(policy, &new),
        buckets: bucket_changes::between(policy, &new),
        not_compared: Vec::new(),
        assumed: Vec::new(),
        warnings,
    })
}

/// The plan for a content that was sent. `in_force` is the text of the file in force.
fn of_content(in_force: &str, content: Vec<u8>) -> Result<Plan, LoadError> {
    let [name, current] = ["the file", "the file in force"].map(Path::new);
    let source = Source::unresolved(name, content)?;
    let new = source.policy()?;
    let in_force = Source::unresolved(current, in_force.as_bytes().to_vec())?;
    let old = in_force.policy()?;
    let (changes, not_compared) = Changes::without_secrets(in_force.outline(), source.outline());
    let needed = restart::needed(&old, &new);
    let is_compared = |setting: &String| {
        let is_password = matches!(setting.as_str(), "redis.password" | "redis.sentinel_password");
        !is_password || !not_compared.iter().any(|path| path.starts_with("redis."))
    };
    let restart: Vec<String> =
        needed.iter().map(|setting| setting.join(".")).filter(is_compared).collect();
    let by_upgrade = !restart.is_empty() && restart::can_upgrade(&old, &new);
    Ok(Plan {
        changes,
        restart,
        by_upgrade,
        buckets: bucket_changes::between(&old, &new),
        not_compared,
        assumed: source.assumed(),
        warnings: new.warnings,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "[upstreams.u]\nservers = ['demo']\n[routes.all]\n\
        [rules.r]\nper = []\nrate = '1/s'\n";

    fn plan(old: &str, new: &str) -> Plan {
        let text = |lines: &str| format!("{FILE}{lines}\n");
        of_content(&text(old), text(new).into_bytes()).unwrap()
    }

    /// An equal guess has the same answer as a wrong one.
    #[test]
    fn equal_secret_is_not_confirmed() {
        let table = [
            ("[admin]\ntoken = '0123456789abcdef-X'", "admin.token"),
            ("[redis]\nurl = 'redis://h'\npassword = 'X'", "redis.password"),
            ("[redis]\nurl = 'redis://u:X@h'", "redis.url"),
            (
                "[redis]\nurl = 'redis+sentinel://h/m'\nsentinel_password = 'X'",
                "redis.sentinel_password",
            ),
            ("[access_log]\nsalt = '0123456789abcdef-X'", "access_log.salt"),
            ("[tracing]\nheaders = { authorization = 'X' }", "tracing.headers.authorization"),
            ("[tracing]\nheaders = { sha256 = 'X' }", "tracing.headers.sha256"),
        ];
        for (lines, path) in table {
            let answer = |guess: &str| {
                let Plan { changes, restart, buckets, not_compared, assumed, .. } =
                    plan(&lines.replace('X', "hunter2"), &lines.replace('X', guess));
                assert_eq!(not_compared, [path], "{lines}");
                format!("{changes} {restart:?} {buckets:?} {assumed:?}")
            };
            assert_eq!(answer("hunter2"), answer("hunter3"), "{lines}");
            assert_eq!(answer("hunter2"), "no setting changed [] [] []", "{lines}");
        }
    }

    /// `PATH` is set and `/etc/passwd` exists: neither is looked up, so that both look the same as
    /// what does not exist.
    #[test]
    fn nothing_is_looked_up() {
        for (reference, other) in [("PATH", "NOT_SET"), ("file:/etc/passwd", "file:/none")] {
            let table = [
                "[admin]\ntoken = '${X}'",
                "[redis]\nurl = 'redis://${X}'",
                "[redis]\nurl = 'rediss://h'\nca = '/none/${PATH}'\npassword = '${X}'",
                "[tracing]\nendpoint = '${X}'\nservice_name = '${X}'",
                "[access_log]\nsalt = '${X}'\noutput = '${PATH}'",
            ];
            for lines in table {
                let of = |name: &str| plan("", &lines.replace("${X}", &format!("${{{name}}}")));
                let (known, unknown) = (of(reference), of(other));
                assert_eq!(known.restart, unknown.restart);
                assert_eq!(known.buckets, unknown.buckets);
                assert!(known.assumed.contains(&format!("${{{reference}}}")), "{known:?}");
                let (known, unknown) =
                    (format!("{:?}", known.changes), format!("{:?}", unknown.changes));
                assert_eq!(
                    known.replace(reference, other),
                    unknown.replace(reference, other),
                    "{lines}"
                );
            }
        }
        // In the file in force, too: a literal guess at the value of a variable is not confirmed.
        let path = std::env::var("PATH").unwrap();
        let lines = |value: &str| format!("[redis]\nurl = 'redis://h'\npassword = '{value}'");
        let guess = plan(&lines("${PATH}"), &lines(&path));
        let wrong = plan(&lines("${PATH}"), &lines("wrong"));
        assert_eq!(format!("{guess:?}"), format!("{wrong:?}"));
    }

    #[test]
    fn another_reference_is_a_change_that_needs_a_restart() {
        let lines = |value: &str| format!("[redis]\nurl = 'redis://h'\npassword = '{value}'");
        let changed = plan(&lines("${A}"), &lines("${file:/b}"));
        assert_eq!(changed.restart, ["redis.password"]);
        let expected = "1 change: redis.password: \"${A}\" -> \"${file:/b}\"";
        assert_eq!(changed.changes.to_string(), expected);
        assert_eq!(plan(&lines("${A}"), &lines("${A}")).changes.count(), 0);
    }

    #[test]
    fn errors_are_those_of_the_content() {
        let error = of_content(FILE, b"[rules.r]\nper = ['kye']".to_vec()).unwrap_err();
        assert!(error.to_string().contains("`per` does not take `kye`"), "{error}");
        let error = of_content(FILE, b"x\n\xff".to_vec()).unwrap_err();
        assert_eq!(error.to_string(), "the file:2: not UTF-8, at byte 2 of the file");
        let error = of_content(FILE, vec![b' '; (4 << 20) + 1]).unwrap_err();
        assert_eq!(error.to_string(), "the file is larger than 4 MiB; it was not read");
    }
}
