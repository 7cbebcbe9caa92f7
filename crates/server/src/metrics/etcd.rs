//! How the store's calls to etcd go.

use std::time::Duration;

use etcd::Observer;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    operation: &'static str,
    result: &'static str,
}

/// Under the names that kube-apiserver's have, where it has them.
#[derive(Clone)]
pub struct EtcdMetrics {
    calls: Family<ResultLabels, Counter>,
    durations: Family<OperationLabels, Histogram, fn() -> Histogram>,
}

impl EtcdMetrics {
    pub fn register(registry: &mut Registry) -> EtcdMetrics {
        let durations = Family::new_with_constructor(super::timing as fn() -> Histogram);
        let metrics = EtcdMetrics { calls: Family::default(), durations };
        registry.register("etcd_requests", "Calls to etcd, by how they went", metrics.calls.clone());
        registry.register(
            "etcd_request_duration_seconds",
            "How long calls to etcd took that it answered",
            metrics.durations.clone(),
        );
        metrics
    }
}

impl Observer for EtcdMetrics {
    fn called(&self, operation: &'static str, result: &'static str, took: Duration) {
        self.calls.get_or_create(&ResultLabels { operation, result }).inc();
        // How long the others took is how long somebody was willing to wait.
        if result == "ok" {
            self.durations.get_or_create(&OperationLabels { operation }).observe(took.as_secs_f64());
        }
    }
}
