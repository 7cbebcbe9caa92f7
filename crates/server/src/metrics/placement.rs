//! What the placement controller does, of all workspaces together.

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};

#[derive(Clone, Default)]
pub struct PlacementMetrics {
    /// Times that it was looked where an object is to be.
    pub decisions: Counter,
    /// Assignments and states that were written.
    pub writes: Counter,
    /// Objects that have no place for all of them.
    pub pending: Gauge,
    /// Objects that are to be looked at.
    pub waiting: Gauge,
    /// What has failed again and again, and is tried still.
    pub failing: Gauge,
}

impl PlacementMetrics {
    pub(super) fn register(registry: &mut Registry) -> PlacementMetrics {
        let metrics = PlacementMetrics::default();
        registry.register(
            "hanse_placement_decisions",
            "Times that it was decided where an object is to be",
            metrics.decisions.clone(),
        );
        registry.register(
            "hanse_placement_writes",
            "Assignments, and states of objects that they sum up to, that were written",
            metrics.writes.clone(),
        );
        registry.register(
            "hanse_placement_pending",
            "Objects that have no cluster, or not for all of their replicas",
            metrics.pending.clone(),
        );
        registry.register(
            "hanse_placement_queue",
            "Objects that wait to be looked at",
            metrics.waiting.clone(),
        );
        registry.register(
            "hanse_placement_failing",
            "What cannot be placed, summed up or scaled, again and again; the objects say why",
            metrics.failing.clone(),
        );
        metrics
    }
}
