//! Who tells of requests: to a log, to a collector, to whoever asks later.

use std::sync::Arc;

use tracing::info;

use crate::observe::access_log::AccessLog;
use crate::observe::audit::Audit;
use crate::observe::metrics::Metrics;
use crate::observe::traces::Traces;
use crate::policy::Policy;
use crate::store::redis::append::Appender;

/// What is told of requests.
pub(super) struct Tellers {
    /// A line for each.
    pub(super) access_log: Arc<AccessLog>,
    /// Who was refused.
    pub(super) audit: Arc<Audit>,
    /// Spans.
    pub(super) traces: Arc<Traces>,
}

impl Tellers {
    /// # Errors
    /// In words: a log that cannot be written, or a kernel without threads.
    pub(super) fn start(
        policy: &Policy,
        metrics: &Metrics,
        stream: Option<Appender>,
    ) -> Result<Self, String> {
        let (output, dropped) =
            (policy.access_log.output.clone(), metrics.access_log_dropped.clone());
        let access_log = AccessLog::start(output, dropped)
            .map_err(|error| format!("the access log cannot be written: {error}"))?;
        let cannot_start = |error| format!("cannot start: {error}");
        let audit = Audit::start(stream).map_err(cannot_start)?;
        audit.configure_stream(&policy.audit);
        let traces = Traces::start(metrics.traces.clone()).map_err(cannot_start)?;
        traces.aim_at(policy.tracing.as_ref());
        if let Some(tracing) = &policy.tracing {
            info!("traces of requests go to {}", tracing.endpoint);
        }
        Ok(Self { access_log: Arc::new(access_log), audit, traces: Arc::new(traces) })
    }

    /// Has them tell what waits.
    pub(super) fn close(&self) {
        self.audit.close();
        self.access_log.close();
        self.traces.close();
    }
}
