//! The pictures of docs/kinds.md: what each kind of limit lets pass of the same traffic. The core
//! decides.

use std::ops::Range;

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::MemoryStore;
use crate::limit::Limit;
use crate::limit::calendar::{Calendar, Period};
use crate::limit::charge::{BucketId, Charge, Mode};
use crate::limit::concurrency::Concurrency;
use crate::limit::fixed_window::FixedWindow;
use crate::limit::leaky_bucket;
use crate::limit::share::Share;
use crate::limit::sliding_window::SlidingWindow;
use crate::store::rule::rule;

const SECOND_US: u64 = 1_000_000;

/// Length of the traffic in seconds.
const SECONDS: u64 = 180;

/// Width of a bar in seconds.
const BAR_S: u64 = 2;

/// Limit of every kind: this many requests a minute.
const PER_MINUTE: u64 = 60;

const ASKED: RGBColor = RGBColor(205, 209, 214);
const PASSED: RGBColor = RGBColor(9, 105, 218);
const LIMIT: RGBColor = RGBColor(207, 34, 46);
const TEXT: RGBColor = RGBColor(31, 35, 40);

/// Times of the requests in microseconds: one every two seconds, and 120 in 24 seconds around the
/// start of the second minute.
fn traffic() -> Vec<u64> {
    let calm = |seconds: Range<u64>| seconds.step_by(2).map(|second| second * SECOND_US);
    let rush = (0..120).map(|number| 48 * SECOND_US + number * SECOND_US / 5);
    calm(0..48).chain(rush).chain(calm(72..SECONDS)).collect()
}

/// The first instant of the traffic, so that the second minute begins at 60 s.
const START_US: u64 = 10 * 60 * SECOND_US;

/// A request of cost 1.
fn charge(limit: Limit) -> Charge {
    let (bucket, mode) = (BucketId(1), Mode::Enforce);
    Charge { bucket, rule: 0, limit_index: 0, limit, cost: limit.parts(), mode }
}

/// Times at which requests pass, by one limit.
fn passed(limit: Limit, delays: bool) -> Vec<u64> {
    let store = MemoryStore::new(10, &[limit]);
    let mut passed: Vec<u64> = traffic()
        .into_iter()
        .filter_map(|at| {
            let charge = charge(limit);
            let answer = store.take(&[charge], START_US + at, Share::WHOLE);
            let delay =
                if delays { leaky_bucket::delay_us(&charge, &answer.outcomes[0]) } else { 0 };
            answer.allowed().then_some(at + delay)
        })
        .collect();
    passed.sort_unstable();
    passed
}

/// Length of a request for the limit on requests in flight, in microseconds.
const REQUEST_US: u64 = 8 * SECOND_US;

/// Times at which requests pass of which at most `most` are in flight.
fn passed_in_flight(most: u64) -> Vec<u64> {
    let limit = Limit::Concurrency(Concurrency::new(most).unwrap());
    let store = MemoryStore::new(10, &[limit]);
    let mut in_flight = Vec::new();
    let mut passed = Vec::new();
    for at in traffic() {
        in_flight.retain(|(end, _)| *end > at);
        let (answer, held) = store.hold(&[charge(limit)], &[rule()], START_US + at, Share::WHOLE);
        if answer.allowed() {
            in_flight.push((at + REQUEST_US, held));
            passed.push(at);
        }
    }
    passed
}

fn bars(times: &[u64]) -> Vec<u32> {
    let bars = usize::try_from(SECONDS / BAR_S).unwrap();
    let mut counts = vec![0; bars];
    for time in times {
        let bar = usize::try_from(time / SECOND_US / BAR_S).unwrap();
        counts[bar.min(bars - 1)] += 1;
    }
    counts
}

/// Number of requests that passed in the last `span_us` microseconds before each second.
fn in_last(span_us: u64, passed: &[u64]) -> Vec<(f64, f64)> {
    (0..=SECONDS)
        .map(|second| {
            let end = second * SECOND_US;
            let count =
                passed.iter().filter(|time| **time <= end && **time + span_us > end).count();
            (number(second), number(count as u64))
        })
        .collect()
}

#[allow(clippy::cast_precision_loss, reason = "small numbers")]
fn number(value: u64) -> f64 {
    value as f64
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// A chart over the time of the traffic, up to `most`.
fn chart<'a, 'b>(area: &'a Area<'b>, title: &str, of: &str, most: f64) -> Chart<'a, 'b> {
    let font = |size: i32| ("sans-serif", size).into_font().color(&TEXT);
    let mut builder = ChartBuilder::on(area);
    builder.margin_right(16).margin_left(8).x_label_area_size(24).y_label_area_size(56);
    if !title.is_empty() {
        builder.caption(title, font(16));
    }
    let mut chart = builder.build_cartesian_2d(0.0..number(SECONDS), 0.0..most).unwrap();
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh().light_line_style(TRANSPARENT).bold_line_style(ASKED);
    mesh.label_style(font(12)).axis_desc_style(font(12)).y_desc(of).y_labels(4).x_labels(10);
    mesh.x_label_formatter(&|x| format!("{x:.0} s")).y_label_formatter(&|y| format!("{y:.0}"));
    mesh.draw().unwrap();
    chart
}

fn draw_bars(chart: &mut Chart<'_, '_>, counts: &[u32], color: RGBColor) {
    let bar = |(bar, count): (u64, &u32)| {
        let left = number(bar * BAR_S);
        Rectangle::new([(left + 0.15, 0.0), (left + 1.85, f64::from(*count))], color.filled())
    };
    chart.draw_series((0..).zip(counts).map(bar)).unwrap();
}

/// What the lower chart shows: its title, the span that it sums up, and the limit.
struct Sums {
    title: &'static str,
    span_us: u64,
    limit: u64,
    most: f64,
}

const LAST_MINUTE: Sums =
    Sums { title: "in the last minute", span_us: 60 * SECOND_US, limit: PER_MINUTE, most: 130.0 };

/// The picture of one kind as SVG: what was asked for and what passed, and the sum of what passed.
fn picture(title: &str, passed: &[u64], of: &Sums) -> String {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (760, 320)).into_drawing_area();
        root.fill(&WHITE).unwrap();
        let (upper, lower) = root.split_vertically(180);
        let mut each = chart(&upper, title, "requests in 2 s", 12.0);
        draw_bars(&mut each, &bars(&traffic()), ASKED);
        draw_bars(&mut each, &bars(passed), PASSED);
        let mut sums = chart(&lower, "", of.title, of.most);
        let at = number(of.limit);
        let ends = [(0.0, at), (number(SECONDS), at)];
        sums.draw_series(LineSeries::new(ends, LIMIT.stroke_width(1))).unwrap();
        sums.draw_series(LineSeries::new(in_last(of.span_us, passed), PASSED.stroke_width(2)))
            .unwrap();
        root.present().unwrap();
    }
    svg.push('\n');
    svg
}

/// The most requests that passed in any minute.
fn most_in_a_minute(passed: &[u64]) -> usize {
    let from = |begin: u64| {
        passed.iter().filter(|time| (begin..begin + 60 * SECOND_US).contains(time)).count()
    };
    passed.iter().map(|begin| from(*begin)).max().unwrap_or(0)
}

fn fixed_window() -> Limit {
    let calendar = Calendar::new(Period::Minute, "UTC", 1).unwrap();
    Limit::FixedWindow(FixedWindow::new(PER_MINUTE, calendar).unwrap())
}

fn sliding_window() -> Limit {
    Limit::SlidingWindow(SlidingWindow::new(PER_MINUTE, 60 * SECOND_US).unwrap())
}

fn token_bucket(per_minute: u64, burst: u64) -> Limit {
    Limit::token_bucket(per_minute, 60 * SECOND_US, burst).unwrap()
}

/// Name of the file, title, limit, whether requests wait, and the most that pass in a minute.
fn kinds() -> Vec<(&'static str, &'static str, Limit, bool, usize)> {
    vec![
        (
            "token-bucket",
            "token bucket: rate = \"60/m\", burst = 60",
            token_bucket(PER_MINUTE, PER_MINUTE),
            false,
            101,
        ),
        (
            "token-bucket-by-limit",
            "token bucket: limit = \"60/m\", burst = 20",
            token_bucket(PER_MINUTE - 20, 20),
            false,
            53,
        ),
        ("fixed-window", "fixed window: limit = \"60/m\"", fixed_window(), false, 114),
        ("sliding-window", "sliding window: limit = \"60/m\"", sliding_window(), false, 60),
        (
            "leaky-bucket",
            "leaky bucket: rate = \"60/m\", max_delay = \"20s\"",
            token_bucket(
                PER_MINUTE,
                leaky_bucket::capacity(PER_MINUTE, 60 * SECOND_US, 20 * SECOND_US),
            ),
            true,
            60,
        ),
    ]
}

/// Asserts that a file of the docs is this picture, or writes it.
fn assert_kept(name: &str, svg: &str) {
    let file = format!("docs/kinds/{name}.svg");
    if std::env::var_os("UPDATE_PICTURES").is_some() {
        std::fs::create_dir_all("docs/kinds").unwrap();
        std::fs::write(&file, svg).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(kept == svg, "run UPDATE_PICTURES=1 cargo test --lib pictures to update {file}");
}

#[test]
fn pictures_of_the_docs_are_those_of_the_core() {
    for (name, title, limit, delays, most) in kinds() {
        let passed = passed(limit, delays);
        assert_eq!(most_in_a_minute(&passed), most, "{name}");
        assert_kept(name, &picture(title, &passed, &LAST_MINUTE));
    }
}

#[test]
fn picture_of_requests_in_flight_is_that_of_the_core() {
    let of = Sums { title: "in flight", span_us: REQUEST_US, limit: 20, most: 30.0 };
    let passed = passed_in_flight(of.limit);
    let most = in_last(REQUEST_US, &passed).into_iter().map(|(_, count)| count).fold(0.0, f64::max);
    assert!((most - 20.0).abs() < 0.5, "{most}");
    let title = "concurrency: limit = 20, requests that take 8 s";
    assert_kept("concurrency", &picture(title, &passed, &of));
}
