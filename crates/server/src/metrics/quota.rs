//! What resource quotas do, of all workspaces together.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};

#[derive(Clone, Default)]
pub struct QuotaMetrics {
    pub refused: Counter<u64, AtomicU64>,
    pub recounts: Counter<u64, AtomicU64>,
    pub charged: Counter<u64, AtomicU64>,
    /// As many as there are batches: several writes are charged together.
    pub commits: Counter<u64, AtomicU64>,
    pub waiting: Gauge,
}

impl QuotaMetrics {
    pub(super) fn register(registry: &mut Registry) -> QuotaMetrics {
        let metrics = QuotaMetrics::default();
        registry.register(
            "hanse_quota_refused",
            "Writes refused by a resource quota",
            metrics.refused.clone(),
        );
        registry.register(
            "hanse_quota_recounts",
            "Resource quotas whose use was counted from scratch",
            metrics.recounts.clone(),
        );
        registry.register(
            "hanse_quota_charged",
            "Writes that were charged to resource quotas",
            metrics.charged.clone(),
        );
        registry.register(
            "hanse_quota_commits",
            "Commits that charged writes to resource quotas, often several at once",
            metrics.commits.clone(),
        );
        registry.register(
            "hanse_quota_waiting",
            "Writes that wait to be charged to the quotas of their namespace",
            metrics.waiting.clone(),
        );
        metrics
    }
}
