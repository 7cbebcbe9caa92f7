//! Copies of objects in members, of all sessions together.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Clone)]
pub struct CopyMetrics {
    writes: Family<OutcomeLabels, Counter>,
    /// Reports that were written into Assignments.
    pub reports: Counter,
    pub copies: Gauge,
    pub queue: Gauge,
    lag: Histogram,
}

impl CopyMetrics {
    pub(super) fn register(registry: &mut Registry) -> CopyMetrics {
        let buckets = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
        let metrics = CopyMetrics {
            writes: Family::default(),
            reports: Counter::default(),
            copies: Gauge::default(),
            queue: Gauge::default(),
            lag: Histogram::new(buckets),
        };
        registry.register(
            "hanse_copy_writes",
            "Writes of copies to members, by how they ended",
            metrics.writes.clone(),
        );
        registry.register(
            "hanse_copy_reports",
            "Times that an Assignment was told what came of it",
            metrics.reports.clone(),
        );
        registry.register(
            "hanse_copies",
            "Objects assigned to clusters, once for each cluster",
            metrics.copies.clone(),
        );
        registry.register(
            "hanse_copy_queue",
            "Copies that are being looked at or wait for it",
            metrics.queue.clone(),
        );
        registry.register(
            "hanse_copy_lag_seconds",
            "Time from the change of an object or its Assignment until a member had it",
            metrics.lag.clone(),
        );
        metrics
    }

    pub fn wrote(&self, outcome: &'static str) {
        self.writes.get_or_create(&OutcomeLabels { outcome }).inc();
    }

    pub fn arrived(&self, after: Duration) {
        self.lag.observe(after.as_secs_f64());
    }
}
