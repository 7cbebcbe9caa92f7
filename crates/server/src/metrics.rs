//! Counters and timings, under kube-apiserver's names so that its dashboards work.

use std::{sync::atomic::AtomicU64, time::Duration};

use env::Clock;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use crate::{admission::webhooks::Measures, login::LoginMetrics};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    pub verb: &'static str,
    pub group: &'static str,
    pub version: &'static str,
    pub resource: &'static str,
    pub code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TimingLabels {
    pub verb: &'static str,
    pub group: &'static str,
    pub version: &'static str,
    pub resource: &'static str,
}

fn timing() -> Histogram {
    Histogram::new([
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    ])
}

/// A part of answering a write, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// From bytes to a checked tree; for a patch, up to the patched object.
    Decode,
    /// Defaults, and what only the server sets.
    Prepare,
    /// Who set which field.
    Track,
    /// Validation.
    Check,
    /// What others say about it: policies, webhooks, quotas.
    Admit,
    Encode,
    /// Until it is durable and visible.
    Commit,
}

impl Stage {
    const ALL: [Stage; 7] = [
        Stage::Decode,
        Stage::Prepare,
        Stage::Track,
        Stage::Check,
        Stage::Admit,
        Stage::Encode,
        Stage::Commit,
    ];

    fn name(self) -> &'static str {
        match self {
            Stage::Decode => "decode",
            Stage::Prepare => "prepare",
            Stage::Track => "track",
            Stage::Check => "check",
            Stage::Admit => "admit",
            Stage::Encode => "encode",
            Stage::Commit => "commit",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StageLabels {
    stage: &'static str,
}

/// Times the stages of one write.
pub struct Stopwatch<'a> {
    clock: &'a dyn Clock,
    metrics: &'a Metrics,
    last: Duration,
}

impl<'a> Stopwatch<'a> {
    pub fn start(clock: &'a dyn Clock, metrics: &'a Metrics) -> Self {
        metrics.writes.inc();
        Self { clock, metrics, last: clock.elapsed() }
    }

    /// What was done since the last call was `stage`.
    pub fn lap(&mut self, stage: Stage) {
        let now = self.clock.elapsed();
        self.metrics.stages[stage as usize].inc_by(now.saturating_sub(self.last).as_secs_f64());
        self.last = now;
    }
}

/// Everything that is measured. Labels come from the tables of kinds, never from what a client sent, so that
/// their number is bounded.
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    durations: Family<TimingLabels, Histogram, fn() -> Histogram>,
    pub inflight: Gauge,
    pub watches: Gauge,
    pub watch_events: Counter<u64, AtomicU64>,
    pub connections: Gauge,
    pub collected: Counter<u64, AtomicU64>,
    pub webhooks: Measures,
    writes: Counter<u64, AtomicU64>,
    stages: [Counter<f64, AtomicU64>; Stage::ALL.len()],
    pub login: LoginMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let requests = Family::default();
        let durations = Family::new_with_constructor(timing as fn() -> Histogram);
        let inflight = Gauge::default();
        let watches = Gauge::default();
        let watch_events = Counter::default();
        let connections = Gauge::default();
        let collected = Counter::default();
        registry.register(
            "apiserver_request",
            "Requests answered, by verb, resource and code",
            requests.clone(),
        );
        registry.register(
            "apiserver_request_duration_seconds",
            "Time to answer a request; for a watch, to its first byte",
            durations.clone(),
        );
        registry.register("apiserver_current_inflight_requests", "Requests being answered", inflight.clone());
        registry.register("apiserver_longrunning_requests", "Watches that are open", watches.clone());
        registry.register("apiserver_watch_events", "Events sent to watchers", watch_events.clone());
        registry.register("hanse_connections", "Open client connections", connections.clone());
        registry.register(
            "hanse_garbage_collected",
            "Objects removed because their owners are gone",
            collected.clone(),
        );
        let writes = Counter::default();
        registry.register("hanse_writes", "Objects that clients wanted to write", writes.clone());
        let by_stage: Family<StageLabels, Counter<f64, AtomicU64>> = Family::default();
        registry.register(
            "hanse_write_stage_seconds",
            "Time spent in each stage of writes",
            by_stage.clone(),
        );
        let stages =
            Stage::ALL.map(|stage| by_stage.get_or_create(&StageLabels { stage: stage.name() }).clone());
        let login = LoginMetrics::default();
        login.register(&mut registry);
        let webhooks = Measures::register(&mut registry);
        Self {
            registry,
            login,
            requests,
            durations,
            inflight,
            watches,
            watch_events,
            connections,
            collected,
            webhooks,
            writes,
            stages,
        }
    }
}

impl Metrics {
    pub fn request(&self, labels: RequestLabels, took: Duration) {
        let timing = TimingLabels {
            verb: labels.verb,
            group: labels.group,
            version: labels.version,
            resource: labels.resource,
        };
        self.durations.get_or_create(&timing).observe(took.as_secs_f64());
        self.requests.get_or_create(&labels).inc();
    }

    /// The text that Prometheus reads.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}
