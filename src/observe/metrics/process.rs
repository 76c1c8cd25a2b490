//! Series of the process itself: its configuration, client connections and the export of traces.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts};

use super::Registrar;
use crate::base::clock;
use crate::policy::limits_hash::LimitsHash;

/// Which configuration is in force, since when, and the results of reloads.
#[derive(Clone)]
pub struct ConfigSeries {
    applied: IntCounter,
    rejected: IntCounter,
    generation: IntGauge,
    last_success: IntGauge,
    is_good: IntGauge,
    limits: IntGaugeVec,
    /// The label of `limits`.
    shown_limits: Arc<Mutex<Option<LimitsHash>>>,
}

/// Number of client connections, open and in total.
#[derive(Clone)]
pub struct ConnectionSeries {
    open: IntGauge,
    all: IntCounter,
    pub(super) rejected: IntCounterVec,
}

/// Connections, descriptors and memory of the process against their limits.
#[derive(Clone)]
pub struct OverloadSeries {
    connections: IntGauge,
    max_connections: IntGauge,
    max_connections_per_ip: IntGauge,
    max_bytes: IntGauge,
    descriptors: IntGauge,
    memory: IntGauge,
    failed_accepts: IntCounterVec,
}

/// Counts a client connection as open until it is dropped.
#[derive(Debug)]
pub struct OpenConnection(IntGauge);

/// Spans by result, and exports to the collector by result.
#[derive(Clone)]
pub struct TraceSeries {
    /// Spans that the collector accepted.
    pub sent: IntCounter,
    /// Spans that the collector rejected in an otherwise successful export.
    pub rejected: IntCounter,
    /// Spans whose export failed.
    pub failed: IntCounter,
    /// Spans dropped because the queue was full.
    pub queue_full: IntCounter,
    exports: IntCounterVec,
}

impl ConfigSeries {
    pub(super) fn register(series: &Registrar) -> Result<Self, prometheus::Error> {
        let reloads = Opts::new(
            "tollgate_config_reloads_total",
            "Reloads of a changed file by result: applied, rejected.",
        );
        let reloads = series.keep(IntCounterVec::new(reloads, &["result"])?)?;
        let limits = Opts::new(
            "tollgate_limits_info",
            "1, with a hash of the limits in force: the same on all gateways that have the same limits.",
        );
        let all = Self {
            applied: reloads.with_label_values(&["applied"]),
            rejected: reloads.with_label_values(&["rejected"]),
            generation: series.gauge(
                "tollgate_config_generation",
                "Number of configurations that have been in force since the start.",
            )?,
            last_success: series.gauge(
                "tollgate_config_last_success_timestamp_seconds",
                "Unix time at which the configuration in force was applied, in seconds.",
            )?,
            is_good: series.gauge(
                "tollgate_config_last_reload_successful",
                "1: the file is in force. 0: the file was rejected, and the configuration before it is \
                 in force.",
            )?,
            limits: series.keep(IntGaugeVec::new(limits, &["hash"])?)?,
            shown_limits: Arc::default(),
        };
        all.set_in_force(1);
        Ok(all)
    }

    pub(super) fn generation(&self) -> i64 {
        self.generation.get()
    }

    /// Whether the file on disk is the configuration in force.
    pub(super) fn is_good(&self) -> bool {
        self.is_good.get() == 1
    }

    /// Records that a changed file was applied as the configuration with this number.
    pub fn applied(&self, generation: u64) {
        self.applied.inc();
        self.set_in_force(generation);
    }

    /// Records that a changed file was rejected.
    pub fn rejected(&self) {
        self.rejected.inc();
        self.is_good.set(0);
    }

    /// Records that the file again equals the configuration in force.
    pub fn restored(&self) {
        self.is_good.set(1);
    }

    /// Shows the hash of the limits in force.
    pub fn show_limits(&self, hash: LimitsHash) {
        let before = self.shown_limits.lock().replace(hash);
        self.limits.with_label_values(&[&hash.to_string()]).set(1);
        if let Some(before) = before.filter(|before| *before != hash) {
            // An error means that there is no such series.
            let _ = self.limits.remove_label_values(&[&before.to_string()]);
        }
    }

    fn set_in_force(&self, generation: u64) {
        self.generation.set(i64::try_from(generation).unwrap_or(i64::MAX));
        self.last_success.set(i64::try_from(clock::unix_seconds()).unwrap_or_default());
        self.is_good.set(1);
    }
}

impl ConnectionSeries {
    pub(super) fn register(series: &Registrar) -> Result<Self, prometheus::Error> {
        Ok(Self {
            open: series.gauge(
                "tollgate_client_connections_open",
                "Open client connections that have sent a request.",
            )?,
            all: series.keep(IntCounter::new(
                "tollgate_client_connections_total",
                "Client connections that have sent a request.",
            )?)?,
            rejected: series.counters(
                "tollgate_connections_rejected_total",
                "Client connections that were closed without a response, or because the client is too \
                 slow, by reason: untrusted_proxy, proxy_header, handshake_timeout, head_timeout, head_size, \
                 preface (of HTTP/2), body_rate, send_rate, malformed_requests, max_connections, \
                 max_connections_per_ip; idle ones: shed (near max_connections), no_descriptors, memory.",
                &["reason"],
            )?,
        })
    }

    /// Counts a connection that was closed without a response.
    pub fn reject(&self, reason: &str) {
        self.rejected.with_label_values(&[reason]).inc();
    }

    /// Counts a connection. Called at its first request.
    pub fn open(&self) -> OpenConnection {
        self.all.inc();
        self.open.inc();
        OpenConnection(self.open.clone())
    }
}

impl OverloadSeries {
    pub(super) fn register(series: &Registrar) -> Result<Self, prometheus::Error> {
        let overloaded = Opts::new(
            "tollgate_overloaded",
            "1: the process has run out of a resource: descriptors, memory. It accepts no connections then, \
             and closes idle ones.",
        );
        let overloaded = series.keep(IntGaugeVec::new(overloaded, &["resource"])?)?;
        Ok(Self {
            connections: series.gauge(
                "tollgate_client_connections_held",
                "Open client connections, including those that have sent no request. Read once a second.",
            )?,
            max_connections: series.gauge(
                "tollgate_client_connections_max",
                "Maximum number of open client connections: server.limits.max_connections, or fewer if the \
                 limit of open files allows fewer.",
            )?,
            max_connections_per_ip: series.gauge(
                "tollgate_client_connections_per_ip_max",
                "Maximum number of open client connections from one address: \
                 server.limits.max_connections_per_ip, or half of tollgate_client_connections_max if that is \
                 fewer.",
            )?,
            max_bytes: series.gauge(
                "tollgate_memory_max_bytes",
                "Memory of the process above which it accepts no connections: memory.max_bytes. 0: no limit.",
            )?,
            descriptors: overloaded.with_label_values(&["descriptors"]),
            memory: overloaded.with_label_values(&["memory"]),
            failed_accepts: series.counters(
                "tollgate_accept_failures_total",
                "Failed attempts to accept a client connection by reason: no_descriptors, memory, other. The \
                 connection waits, and the attempt is repeated.",
                &["reason"],
            )?,
        })
    }

    /// Counts a failed attempt to accept a connection.
    pub fn fail_accept(&self, reason: &str) {
        self.failed_accepts.with_label_values(&[reason]).inc();
    }

    /// Shows whether the process is out of file descriptors.
    pub fn set_descriptors(&self, is_out: bool) {
        self.descriptors.set(is_out.into());
    }

    /// Shows whether the process is over its memory limit.
    pub fn set_memory(&self, is_over: bool) {
        self.memory.set(is_over.into());
    }

    /// Shows the number of connections and the limits.
    pub fn show(
        &self,
        connections: usize,
        max_connections: usize,
        max_connections_per_ip: usize,
        max_bytes: Option<u64>,
    ) {
        self.connections.set(i64::try_from(connections).unwrap_or(i64::MAX));
        self.max_connections.set(i64::try_from(max_connections).unwrap_or(i64::MAX));
        self.max_connections_per_ip.set(i64::try_from(max_connections_per_ip).unwrap_or(i64::MAX));
        self.max_bytes.set(i64::try_from(max_bytes.unwrap_or_default()).unwrap_or(i64::MAX));
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl TraceSeries {
    pub(super) fn register(series: &Registrar) -> Result<Self, prometheus::Error> {
        let spans = series.counters(
            "tollgate_traces_spans_total",
            "Spans of recorded requests by result: sent; rejected (by the collector); failed (the \
             export failed); queue_full (the collector is too slow). All except sent are lost.",
            &["result"],
        )?;
        let exports = series.counters(
            "tollgate_traces_exports_total",
            "Exports to the trace collector by result: ok, connect, timeout, broken, 4xx, 5xx, other.",
            &["result"],
        )?;
        let of = |result| spans.with_label_values(&[result]);
        Ok(Self {
            sent: of("sent"),
            rejected: of("rejected"),
            failed: of("failed"),
            queue_full: of("queue_full"),
            exports,
        })
    }

    /// Counts an export by its result.
    pub fn count(&self, result: &str) {
        self.exports.with_label_values(&[result]).inc();
    }
}
