//! Starts the access log, the audit of refusals and the exporter of traces.

use std::io;
use std::sync::Arc;

use tracing::info;

use crate::net::io_text;
use crate::observe::access_log::AccessLog;
use crate::observe::audit::Audit;
use crate::observe::metrics::Metrics;
use crate::observe::traces::Traces;
use crate::policy::Policy;
use crate::policy::access_log::Output;
use crate::store::redis::append::Appender;

/// Records of requests: the access log, the audit of refusals, and traces.
pub(super) struct Telemetry {
    pub(super) access_log: Arc<AccessLog>,
    pub(super) audit: Arc<Audit>,
    pub(super) traces: Arc<Traces>,
}

fn cannot_write(output: &Output, error: &io::Error) -> String {
    let cause = io_text::plain(error);
    match output {
        Output::File(path) => {
            format!("the access log cannot be written: `{}`: {cause}", path.display())
        }
        Output::Off | Output::Stdout => format!("the access log cannot be written: {cause}"),
    }
}

impl Telemetry {
    /// Starts all three.
    ///
    /// # Errors
    /// A message for the operator, if the access log cannot be written or a thread cannot be
    /// started.
    pub(super) fn start(
        policy: &Policy,
        metrics: &Metrics,
        stream: Option<Appender>,
    ) -> Result<Self, String> {
        let (output, dropped) =
            (policy.access_log.output.clone(), metrics.access_log_dropped.clone());
        let access_log = AccessLog::start(output, dropped)
            .map_err(|error| cannot_write(&policy.access_log.output, &error))?;
        let cannot_start = |error| format!("cannot start: {error}");
        let audit = Audit::start(stream).map_err(cannot_start)?;
        audit.configure_stream(&policy.audit);
        let traces = Traces::start(metrics.traces.clone()).map_err(cannot_start)?;
        traces.set_endpoint(policy.tracing.as_ref());
        if let Some(tracing) = &policy.tracing {
            info!("traces of requests go to {}", tracing.endpoint);
        }
        Ok(Self { access_log: Arc::new(access_log), audit, traces: Arc::new(traces) })
    }

    /// Writes and sends pending records.
    pub(super) fn close(&self) {
        self.audit.close();
        self.access_log.close();
        self.traces.close();
    }
}
