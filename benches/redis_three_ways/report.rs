//! Formats the results as tables.

use std::fmt::Write as _;
use std::process::Command;

use crate::Plan;
use crate::cost::{Cell, Keys};
use crate::exactness::{ATTACK, Exactness};
use crate::goals;
use crate::server::RedisServer;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/benchmarks.md");
const BEGIN: &str = "<!-- redis_three_ways: begin -->\n";
const END: &str = "<!-- redis_three_ways: end -->\n";

/// All results as Markdown.
pub(crate) fn markdown(
    server: &RedisServer,
    plan: &Plan,
    costs: &[Cell],
    exactness: &[Exactness],
) -> String {
    let mut text = format!(
        "`make bench-redis`, {date}, {version}, {cores} cores ({processor}). Medians of {rounds} \
         rounds of {seconds} s; in brackets the fastest and the slowest.\n",
        date = output("date", &["+%F"]),
        version = server.version(),
        cores = std::thread::available_parallelism().unwrap(),
        processor = processor(),
        rounds = plan.rounds,
        seconds = plan.round.as_secs_f64(),
    );
    write_goals(&mut text, costs, exactness);
    write_exactness(&mut text, exactness);
    text + &self::costs(costs)
}

/// The table of costs.
pub(crate) fn costs(costs: &[Cell]) -> String {
    let mut text = String::new();
    for keys in Keys::ALL {
        write_costs(&mut text, keys, costs);
    }
    text
}

/// Replaces the text between the markers of the page.
pub(crate) fn write(text: &str) {
    let file = std::fs::read_to_string(FILE).unwrap();
    let (before, rest) = file.split_once(BEGIN).expect("a mark where the tables begin");
    let (_, after) = rest.split_once(END).expect("a mark where the tables end");
    std::fs::write(FILE, format!("{before}{BEGIN}\n{text}\n{END}{after}")).unwrap();
}

fn write_goals(text: &mut String, costs: &[Cell], exactness: &[Exactness]) {
    text.push_str("\n| what must hold | measured | |\n| --- | --- | --- |\n");
    for goal in goals::all(costs, exactness) {
        let met = if goal.met { "holds" } else { "does not hold" };
        let _ = writeln!(text, "| {} | {} | {met} |", goal.promise, goal.measured);
    }
}

fn write_exactness(text: &mut String, all: &[Exactness]) {
    let _ = write!(
        text,
        "\n### Exactness\n\n\
         Burst 10, 10/s, 64 clients on one key for 3 s: how many passed of how many may, three \
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

fn processor() -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpus.lines().find_map(|line| line.strip_prefix("model name\t: "));
    name.unwrap_or("unknown").to_string()
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_string()
}
