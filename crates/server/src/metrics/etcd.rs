//! How the store's calls to etcd go.
//!
//! Not under kube-apiserver's names (`etcd_requests_total` and others): those count by kind of object, and a call of ours
//! is about whatever was to be written at that moment.

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

#[derive(Clone)]
pub struct EtcdMetrics {
    calls: Family<ResultLabels, Counter>,
    durations: Family<OperationLabels, Histogram, fn() -> Histogram>,
}

/// From a read on loopback to a member that has lost its leader.
fn timing() -> Histogram {
    Histogram::new([0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0])
}

impl EtcdMetrics {
    pub fn register(registry: &mut Registry) -> EtcdMetrics {
        let durations = Family::new_with_constructor(timing as fn() -> Histogram);
        let metrics = EtcdMetrics { calls: Family::default(), durations };
        registry.register("hanse_etcd_requests", "Calls to etcd, by how they went", metrics.calls.clone());
        registry.register(
            "hanse_etcd_request_duration_seconds",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_how_they_went_and_timed_if_they_were_answered() {
        let mut registry = Registry::default();
        let metrics = EtcdMetrics::register(&mut registry);
        metrics.called("txn", "ok", Duration::from_millis(2));
        metrics.called("txn", "uncertain", Duration::from_secs(5));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("it is text");
        for line in [
            r#"hanse_etcd_requests_total{operation="txn",result="ok"} 1"#,
            r#"hanse_etcd_requests_total{operation="txn",result="uncertain"} 1"#,
            r#"hanse_etcd_request_duration_seconds_count{operation="txn"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(text.lines().all(|line| line.starts_with('#') || line.starts_with("hanse_etcd_")), "{text}");
    }
}
