//! What the hub's controllers do, under the names of upstream's work queues: each kind of work is one.

use std::{collections::HashMap, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    name: &'static str,
}

/// As upstream: from ten nanoseconds on.
fn timing() -> Histogram {
    Histogram::new((0..10).map(|step| 1e-8 * 10f64.powi(step)))
}

#[derive(Clone)]
pub struct WorkMetrics {
    adds: Family<QueueLabels, Counter>,
    depth: Family<QueueLabels, Gauge>,
    waits: Family<QueueLabels, Histogram, fn() -> Histogram>,
    durations: Family<QueueLabels, Histogram, fn() -> Histogram>,
    retries: Family<QueueLabels, Counter>,
    of: HashMap<&'static str, OneKind>,
}

/// One kind of work, looked up once.
#[derive(Clone)]
pub struct OneKind {
    pub adds: Counter,
    pub depth: Gauge,
    waits: Histogram,
    durations: Histogram,
    pub retries: Counter,
}

impl OneKind {
    pub fn waited(&self, time: Duration) {
        self.waits.observe(time.as_secs_f64());
    }

    pub fn took(&self, time: Duration) {
        self.durations.observe(time.as_secs_f64());
    }
}

impl WorkMetrics {
    pub(super) fn register(registry: &mut Registry, names: &[&'static str]) -> WorkMetrics {
        let mut metrics = WorkMetrics {
            adds: Family::default(),
            depth: Family::default(),
            waits: Family::new_with_constructor(timing as fn() -> Histogram),
            durations: Family::new_with_constructor(timing as fn() -> Histogram),
            retries: Family::default(),
            of: HashMap::new(),
        };
        registry.register("workqueue_adds", "Work that was asked for", metrics.adds.clone());
        registry.register("workqueue_depth", "Work that waits", metrics.depth.clone());
        registry.register(
            "workqueue_queue_duration_seconds",
            "How long work waited until somebody began it",
            metrics.waits.clone(),
        );
        registry.register("workqueue_work_duration_seconds", "How long work took", metrics.durations.clone());
        registry.register(
            "workqueue_retries",
            "Work that is to be done again after a while",
            metrics.retries.clone(),
        );
        for name in names {
            let labels = QueueLabels { name };
            let one = OneKind {
                adds: metrics.adds.get_or_create(&labels).clone(),
                depth: metrics.depth.get_or_create(&labels).clone(),
                waits: metrics.waits.get_or_create(&labels).clone(),
                durations: metrics.durations.get_or_create(&labels).clone(),
                retries: metrics.retries.get_or_create(&labels).clone(),
            };
            metrics.of.insert(name, one);
        }
        metrics
    }

    pub fn of(&self, name: &'static str) -> Option<&OneKind> {
        self.of.get(name)
    }
}
