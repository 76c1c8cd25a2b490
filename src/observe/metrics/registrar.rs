//! Registration of series. Keeps their descriptions for `docs/metrics.md`.

use std::cell::RefCell;

use prometheus::core::Collector;
use prometheus::{
    CounterVec, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, IntGaugeVec, Opts, Registry,
};

use super::docs::Described;
use super::{BATCH_CHECKS, UsageSeries, WAIT_SECONDS, WaitSeries};
use crate::store::redis::batch::CallSeries;
use crate::store::redis::heartbeat::PeerSeries;
use crate::store::redis::link::breaker::BreakerSeries;
use crate::store::redis::nodes::RedisSeries;

/// A registry under construction.
#[derive(Default)]
pub(super) struct Registrar {
    pub(super) registry: Registry,
    /// In the order of registration.
    pub(super) described: RefCell<Vec<Described>>,
}

impl Registrar {
    /// Registers a collector and returns it.
    pub(super) fn keep<C: Collector + Clone + 'static>(
        &self,
        series: C,
    ) -> Result<C, prometheus::Error> {
        self.described.borrow_mut().extend(Described::all(&series));
        self.registry.register(Box::new(series.clone()))?;
        Ok(series)
    }

    pub(super) fn counters(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<IntCounterVec, prometheus::Error> {
        self.keep(IntCounterVec::new(Opts::new(name, help), labels)?)
    }

    pub(super) fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        self.keep(IntGauge::new(name, help)?)
    }

    pub(super) fn histograms(
        &self,
        name: &str,
        help: &str,
        label: &str,
        bounds: &[f64],
    ) -> Result<HistogramVec, prometheus::Error> {
        let options = HistogramOpts::new(name, help).buckets(bounds.to_vec());
        self.keep(HistogramVec::new(options, &[label])?)
    }

    pub(super) fn float_counters(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<CounterVec, prometheus::Error> {
        self.keep(CounterVec::new(Opts::new(name, help), labels)?)
    }

    /// Registers the build's version and, on Linux, the resource usage of the process.
    pub(super) fn describe_process(&self, version: &str) -> Result<(), prometheus::Error> {
        let help = "Always 1. The label is the version of the running program.";
        let build_info = Opts::new("tollgate_build_info", help);
        let build_info = self.keep(IntGaugeVec::new(build_info, &["version"])?)?;
        build_info.with_label_values(&[version]).set(1);
        #[cfg(target_os = "linux")]
        {
            use prometheus::process_collector::ProcessCollector;

            let process = ProcessCollector::for_self();
            self.described.borrow_mut().extend(Described::all(&process));
            self.registry.register(Box::new(process))?;
        }
        Ok(())
    }

    fn redis_calls(&self) -> Result<CallSeries, prometheus::Error> {
        let help = "Calls to Redis by result: ok, timeout, or the class of the error.";
        let calls = self.counters("tollgate_redis_calls_total", help, &["result"])?;
        let help = "Number of checks in one call to Redis.";
        let checks = HistogramOpts::new("tollgate_redis_batch_checks", help);
        let checks = self.keep(Histogram::with_opts(checks.buckets(BATCH_CHECKS.to_vec()))?)?;
        let help = "Checks sent to Redis and not answered in time. Redis has counted those that it ran in time.";
        let name = "tollgate_redis_ambiguous_checks_total";
        let ambiguous = self.keep(IntCounter::new(name, help)?)?;
        let help = "Tokens granted by local fallback, or by which a response cost more than was reserved, and later taken from the bucket in Redis.";
        let settled = self.float_counters("tollgate_debt_settled_tokens_total", help, &["rule"])?;
        let help =
            "Debts dropped beyond `memory.max_buckets`. Redis grants their tokens a second time.";
        let dropped = self.keep(IntCounter::new("tollgate_debts_dropped_total", help)?)?;
        let help = "Tokens that this gateway borrowed (lease), by event: lent, returned to the bucket, expired unspent.";
        let leased =
            self.float_counters("tollgate_lease_tokens_total", help, &["rule", "event"])?;
        Ok(CallSeries { calls, checks, ambiguous, settled, leased, dropped })
    }

    pub(super) fn usage(&self) -> Result<UsageSeries, prometheus::Error> {
        let help = "Writes of usage to Redis or to the file `usage.file`, by result: ok, error.";
        let writes = self.counters("tollgate_usage_writes_total", help, &["result"])?;
        let help = "Records of usage that could not be written to Redis or to `usage.file` at the last attempt.";
        let unwritten = self.gauge("tollgate_usage_unwritten", help)?;
        let [written, failed] = ["ok", "error"].map(|result| writes.with_label_values(&[result]));
        let help = "Records of usage that are not kept, or may be wrong: there are `usage.max_records`, nothing could be written for long, or a bucket could not be read before its period ended.";
        let dropped = self.keep(IntCounter::new("tollgate_usage_dropped_total", help)?)?;
        Ok(UsageSeries { written, failed, unwritten, dropped })
    }

    pub(super) fn waits(&self) -> Result<WaitSeries, prometheus::Error> {
        let help = "Requests that wait because of leaky buckets.";
        let waiting = self.gauge("tollgate_waiting_requests", help)?;
        let help = "Time that requests wait because of leaky buckets, in seconds. Those that pass at once do not count.";
        let duration = HistogramOpts::new("tollgate_wait_seconds", help);
        let duration = self.keep(Histogram::with_opts(duration.buckets(WAIT_SECONDS.to_vec()))?)?;
        Ok(WaitSeries { waiting, duration })
    }

    pub(super) fn held_units(&self) -> Result<GaugeVec, prometheus::Error> {
        let help = "Units of limits on requests in flight (kind = \"concurrency\") that requests of this gateway hold.";
        self.keep(GaugeVec::new(Opts::new("tollgate_held_units", help), &["rule"])?)
    }

    pub(super) fn redis(&self) -> Result<RedisSeries, prometheus::Error> {
        let (breaker, peers) = (self.breaker()?, self.peers()?);
        let calls = self.redis_calls()?;
        let help = "State of the circuit breaker of each master of a Redis Cluster, as in `tollgate_breaker_state`.";
        let breakers = Opts::new("tollgate_redis_node_breaker_state", help);
        let breakers = self.keep(IntGaugeVec::new(breakers, &["node"])?)?;
        Ok(RedisSeries { breaker, breakers, calls, peers })
    }

    fn breaker(&self) -> Result<BreakerSeries, prometheus::Error> {
        let help = "State of the circuit breaker: 0 closed (all requests use Redis), 1 half open (some do), 2 open (none does). In a Redis Cluster, of all masters: 0 if all are closed, 2 if all are open, otherwise 1; `tollgate_redis_node_breaker_state` has each.";
        let state = self.gauge("tollgate_breaker_state", help)?;
        let help =
            "State changes of the circuit breaker by the new state: closed, half_open, open.";
        let transitions = self.counters("tollgate_breaker_transitions_total", help, &["to"])?;
        Ok(BreakerSeries { state, transitions })
    }

    fn peers(&self) -> Result<PeerSeries, prometheus::Error> {
        let help = "Live gateways that share this Redis, including this one; 1 without Redis.";
        let gateways = self.gauge("tollgate_gateways", help)?;
        gateways.set(1);
        let help = "Live gateways that share this Redis and have other limits than this one: another hash of `tollgate_limits_info`. Gateways of versions before this series do not count.";
        let others = self.gauge("tollgate_gateways_with_other_limits", help)?;
        Ok(PeerSeries { gateways, others })
    }
}
