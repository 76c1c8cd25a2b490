//! Formats the results as tables: what must hold and exactness for docs/benchmarks.md, the costs
//! for docs/benchmarks/tables.md.

use std::fmt::Write as _;
use std::process::Command;

use crate::Plan;
use crate::cost::{Cell, Keys};
use crate::exactness::{ATTACK, Exactness};
use crate::goals;
use crate::server::RedisServer;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/benchmarks.md");
const TABLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/benchmarks/tables.md");
/// Prints what the benchmark runs on: commit, compiler, processor, kernel.
const PROVENANCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/provenance.py");
const BEGIN: &str = "<!-- redis_three_ways: begin -->\n";
const END: &str = "<!-- redis_three_ways: end -->\n";

/// The results as Markdown.
pub(crate) struct Report {
    /// For the page: what must hold, and exactness.
    summary: String,
    /// For the page of all tables: the costs.
    tables: String,
}

impl Report {
    pub(crate) fn new(
        server: &RedisServer,
        plan: &Plan,
        all: &[Cell],
        exactness: &[Exactness],
    ) -> Self {
        let head = format!(
            "`make bench-redis`, {date}, {provenance}. {version}. Medians of {rounds} rounds of \
             {seconds} s; in brackets the fastest and the slowest.\n",
            date = output("date", &["+%F"]),
            provenance = output(PROVENANCE, &[]),
            version = server.version(),
            rounds = plan.rounds,
            seconds = plan.round.as_secs_f64(),
        );
        let mut summary = head.clone();
        write_goals(&mut summary, all, exactness);
        write_exactness(&mut summary, exactness);
        Self { summary, tables: head + &costs(all) }
    }

    /// Replaces the text between the markers of both pages.
    pub(crate) fn write(&self) {
        for (file, text) in [(PAGE, &self.summary), (TABLES, &self.tables)] {
            let page = std::fs::read_to_string(file).unwrap();
            let (before, rest) = page.split_once(BEGIN).expect("a mark where the tables begin");
            let (_, after) = rest.split_once(END).expect("a mark where the tables end");
            std::fs::write(file, format!("{before}{BEGIN}{text}{END}{after}")).unwrap();
        }
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.summary, self.tables)
    }
}

/// Panics if the sources differ from the commit: figures are only written for a commit.
pub(crate) fn require_clean() {
    let status = Command::new(PROVENANCE).arg("--clean").current_dir(ROOT).status().unwrap();
    assert!(status.success(), "commit the sources first");
}

/// The table of costs.
pub(crate) fn costs(costs: &[Cell]) -> String {
    let mut text = String::new();
    for keys in Keys::ALL {
        write_costs(&mut text, keys, costs);
    }
    text
}

fn write_goals(text: &mut String, costs: &[Cell], exactness: &[Exactness]) {
    text.push_str("\n| what must hold | measured | |\n| --- | --- | --- |\n");
    for goal in goals::all(costs, exactness) {
        let _ = writeln!(text, "| {} | {} | {} |", goal.promise, goal.measured, goal.verdict);
    }
}

fn write_exactness(text: &mut String, all: &[Exactness]) {
    let _ = write!(
        text,
        "\nExactness. Burst 10, 10/s, 64 clients on one key for 3 s: how many passed of how many may, three \
         times. Then an attack: {ATTACK} requests on a bucket that is empty.\n\n\
         | way | passed | Redis calls of the attack | ns/request | Redis CPU, ms |\n\
         | --- | --- | ---: | ---: | ---: |\n",
    );
    for one in all {
        let grants: Vec<String> =
            one.grants.iter().map(|(passed, may)| format!("{passed} of {may}")).collect();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.0} | {:.1} |",
            one.way.name(),
            grants.join(", "),
            one.attack_calls,
            one.attack_nanoseconds,
            one.attack_redis_us / 1e3,
        );
    }
}

fn write_costs(text: &mut String, keys: Keys, costs: &[Cell]) {
    let title = match keys {
        Keys::Hot => "One hot key",
        Keys::Distinct => "A key for each of 100,000 users",
    };
    let _ = write!(
        text,
        "\n### {title}\n\n\
         The quota is so large that nothing is refused, so the deny cache answers nothing. The \
         last column is the share of requests without a decision: after 20 tries in (c), after 10 \
         ms in tollgate.\n\n\
         | clients | way | ns/request | requests/s | Redis calls/request | allocations/request | \
         Redis CPU, µs/request | client CPU, µs/request | given up |\n\
         | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for cell in costs.iter().filter(|cell| cell.keys == keys) {
        let (median, fastest, slowest) = cell.of(|sample| sample.nanoseconds);
        let _ = writeln!(
            text,
            "| {} | {} | {median:.0} ({fastest:.0} to {slowest:.0}) | {:.0} | {:.3} | {:.1} | {:.1} \
             | {:.1} | {:.1} % |",
            cell.clients,
            cell.way.name(),
            1e9 / median,
            cell.median(|sample| sample.calls),
            cell.median(|sample| sample.allocations),
            cell.median(|sample| sample.redis_us),
            cell.median(|sample| sample.own_us),
            cell.median(|sample| sample.undecided) * 100.0,
        );
    }
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(ROOT).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_string()
}
