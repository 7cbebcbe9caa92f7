//! Fairness: who is let in, who waits, who is turned away.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct FlowLabels {
    pub priority_level: &'static str,
    pub flow_schema: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RejectionLabels {
    pub priority_level: &'static str,
    pub flow_schema: &'static str,
    pub reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PriorityLabels {
    pub priority_level: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct WaitLabels {
    pub priority_level: &'static str,
    pub flow_schema: &'static str,
    /// Whether it was let in at last.
    pub execute: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ExecutionLabels {
    pub priority_level: &'static str,
    pub flow_schema: &'static str,
    /// `regular`, or `watch` for its beginning.
    pub r#type: &'static str,
}

fn waits() -> Histogram {
    Histogram::new([0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0])
}

fn executions() -> Histogram {
    Histogram::new([0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0])
}

/// What fairness counts, over all workspaces. Levels and schemas that a workspace made count as `other`.
#[derive(Clone)]
pub struct FlowMetrics {
    pub dispatched: Family<FlowLabels, Counter>,
    pub rejected: Family<RejectionLabels, Counter>,
    pub executing: Family<FlowLabels, Gauge>,
    pub in_queue: Family<FlowLabels, Gauge>,
    pub waits: Family<WaitLabels, Histogram, fn() -> Histogram>,
    pub executing_seats: Family<FlowLabels, Gauge>,
    pub executions: Family<ExecutionLabels, Histogram, fn() -> Histogram>,
    pub nominal: Family<PriorityLabels, Gauge>,
}

impl FlowMetrics {
    pub(super) fn register(registry: &mut Registry) -> FlowMetrics {
        let metrics = FlowMetrics {
            dispatched: Family::default(),
            rejected: Family::default(),
            executing: Family::default(),
            in_queue: Family::default(),
            waits: Family::new_with_constructor(waits as fn() -> Histogram),
            executing_seats: Family::default(),
            executions: Family::new_with_constructor(executions as fn() -> Histogram),
            nominal: Family::default(),
        };
        let name = |name: &str| format!("apiserver_flowcontrol_{name}");
        registry.register(name("dispatched_requests"), "Requests let in", metrics.dispatched.clone());
        registry.register(name("rejected_requests"), "Requests turned away", metrics.rejected.clone());
        registry.register(
            name("current_executing_requests"),
            "Requests with a seat",
            metrics.executing.clone(),
        );
        registry.register(name("current_inqueue_requests"), "Requests that wait", metrics.in_queue.clone());
        registry.register(
            name("request_wait_duration_seconds"),
            "How long requests waited that had to",
            metrics.waits.clone(),
        );
        registry.register(
            name("current_executing_seats"),
            "Seats that are taken",
            metrics.executing_seats.clone(),
        );
        registry.register(
            name("request_execution_seconds"),
            "How long requests held their seats",
            metrics.executions.clone(),
        );
        registry.register(
            name("nominal_limit_seats"),
            "Seats that a level is sure of in a workspace that is alone and has the default levels",
            metrics.nominal.clone(),
        );
        metrics
    }
}
