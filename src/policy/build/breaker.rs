//! `[redis.breaker]`.

use crate::base::duration::micros;
use crate::config::spanned::Spanned;

use super::redis_url::UrlAddress;
use super::values::{duration, number, written_duration};
use crate::base::duration::MICROS_PER_SECOND;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::row::DefaultValue;
use crate::config::tables;
use crate::limit::breaker::Settings;

/// Microseconds in a millisecond.
const MICROS_PER_MILLISECOND: u64 = MICROS_PER_SECOND / 1_000;

/// Default of `open_max` with one server.
const OPEN_MAX_US: u64 = 15 * MICROS_PER_SECOND;

/// Default of `open_max` with sentinels and in a cluster: rare probes would notice the end of a
/// failover late.
const FAILOVER_OPEN_MAX_US: u64 = MICROS_PER_SECOND;

/// Maximum number of steps of a ramp.
const MAX_STEPS: usize = 16;

/// The settings of the breaker; `place` is that of `url`, if it is valid.
pub(super) fn breaker(
    redis: &tables::Redis,
    place: Option<&UrlAddress>,
    diagnostics: &mut Diagnostics,
) -> Option<Settings> {
    let left_out = tables::Breaker::default();
    let table = redis.breaker.as_ref().map_or(&left_out, |table| table.get_ref());
    let mut count =
        |row, field| number(row, field, diagnostics).and_then(|count| u32::try_from(count).ok());
    let timeouts = count(&tables::Breaker::timeouts, &table.timeouts);
    let window_calls = count(&tables::Breaker::window_calls, &table.window_calls);
    let window_timeouts = count(&tables::Breaker::window_timeouts, &table.window_timeouts);
    let probes = count(&tables::Breaker::probes, &table.probes);
    let mut time = |row, field| duration(row, field, diagnostics).map(micros);
    let window = time(&tables::Breaker::window, &table.window);
    let open = time(&tables::Breaker::open, &table.open);
    let ramp_step = time(&tables::Breaker::ramp_step, &table.ramp_step);
    let open_max = match (&table.open_max, place) {
        (Some(field), _) => {
            written_duration(&tables::Breaker::open_max, field, diagnostics).map(micros)
        }
        (None, Some(UrlAddress::Sentinel(..) | UrlAddress::Cluster(_))) => {
            Some(FAILOVER_OPEN_MAX_US)
        }
        (None, _) => Some(OPEN_MAX_US),
    };
    // The default of `open_max` depends on the place.
    if let (Some(open), Some(open_max)) = (open, open_max)
        && (place.is_some() || table.open_max.is_some())
    {
        check_order(table, open, open_max, place, diagnostics);
    }
    let ramp = ramp(table.ramp.as_ref(), diagnostics);
    Some(Settings {
        timeouts: timeouts?,
        window_us: window?,
        window_calls: window_calls?,
        window_timeouts_percent: window_timeouts?,
        open_us: open?,
        open_max_us: open_max?,
        probes: probes?,
        ramp: ramp?,
        ramp_step_us: ramp_step?,
    })
}

/// Checks that `open_max`, up to which `open` doubles, is at least `open`.
fn check_order(
    table: &tables::Breaker,
    open: u64,
    open_max: u64,
    place: Option<&UrlAddress>,
    diagnostics: &mut Diagnostics,
) {
    let breaker = |name| ["redis", "breaker", name];
    if open_max >= open {
        return;
    }
    let diagnostic = match (&table.open, &table.open_max) {
        (Some(open), Some(open_max)) => Diagnostic::new(
            open_max.span(),
            "`open_max` is shorter than `open`",
        )
        .and(open.span(), "the first time it stays open")
        .help("`open` doubles up to `open_max`; for the same time throughout, give both one value"),
        (Some(field), None) if !diagnostics.explain_absence(&breaker("open_max")) => {
            let why = match place {
                Some(UrlAddress::Sentinel(..)) => " with sentinels",
                Some(UrlAddress::Cluster(_)) => " with a cluster",
                _ => "",
            };
            let default = written(open_max);
            let message = format!("`open` is longer than `open_max`, by default {default}{why}");
            Diagnostic::new(field.span(), message)
                .help(format!("write `open_max = \"{}\"` or longer, too", written(open)))
        }
        (None, Some(field)) if !diagnostics.explain_absence(&breaker("open")) => {
            let default = written(open);
            let message = format!("`open_max` is shorter than `open`, by default {default}");
            Diagnostic::new(field.span(), message)
                .help(format!("write `open = \"{}\"` or shorter, too", written(open_max)))
        }
        _ => return,
    };
    diagnostics.push(diagnostic);
}

/// Formats a duration in microseconds as the file has it, such as `500ms`.
fn written(duration_us: u64) -> String {
    let milliseconds = duration_us / MICROS_PER_MILLISECOND;
    if milliseconds.is_multiple_of(1_000) {
        format!("{}s", milliseconds / 1_000)
    } else {
        format!("{milliseconds}ms")
    }
}

/// The percentages of requests that use Redis again, step by step.
fn ramp(
    field: Option<&Spanned<Vec<Spanned<u64>>>>,
    diagnostics: &mut Diagnostics,
) -> Option<Vec<u32>> {
    let Some(field) = field else {
        let DefaultValue::Numbers(steps) = tables::Breaker::ramp.default else { return None };
        return steps.iter().map(|step| u32::try_from(*step).ok()).collect();
    };
    let list = field.get_ref();
    let is_damaged = diagnostics.explain_absence(&["redis", "breaker", "ramp"]);
    let help = "it looks like `ramp = [1, 10, 50, 100]`; `[100]` returns all at once";
    if list.len() > MAX_STEPS {
        let message = format!("`ramp` has more than {MAX_STEPS} steps");
        diagnostics.push(Diagnostic::new(field.span(), message));
        return None;
    }
    let mut steps = Vec::with_capacity(list.len());
    let mut before: Option<&Spanned<u64>> = None;
    for item in list {
        let range = tables::Breaker::ramp.range();
        let step = Some(*item.get_ref()).filter(|step| range.has(*step));
        let step = step.and_then(|step| u32::try_from(step).ok());
        if step.is_none() {
            let message = format!("a step of `ramp` is a percentage, {}", range.in_words());
            diagnostics.push(Diagnostic::new(item.span(), message));
        } else if let Some(before) = before.filter(|before| before.get_ref() > item.get_ref()) {
            let diagnostic =
                Diagnostic::new(item.span(), "a step of `ramp` is below the one before it");
            diagnostics.push(diagnostic.and(before.span(), "before it"));
        }
        before = Some(item);
        steps.extend(step);
    }
    match list.last() {
        _ if is_damaged => {}
        None => diagnostics.push(Diagnostic::new(field.span(), "`ramp` has no step").help(help)),
        Some(item) if (1..100).contains(item.get_ref()) => {
            let message = "the last step of `ramp` is not 100: some requests would never return";
            diagnostics.push(Diagnostic::new(item.span(), message).help(help));
        }
        Some(_) => {}
    }
    let is_whole = steps.len() == list.len() && steps.last() == Some(&100);
    (is_whole && steps.is_sorted()).then_some(steps)
}
