//! Counters and timings, under kube-apiserver's names so that its dashboards work.

use std::{sync::atomic::AtomicU64, time::Duration};

use env::Clock;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use crate::admission::webhooks::Measures;
use crate::login::LoginMetrics;
use crate::operate::OperateMetrics;
use crate::trace;

mod etcd;

pub use etcd::EtcdMetrics;

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

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PluginLabels {
    pub plugin: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct LevelLabels {
    pub level: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReloadLabels {
    pub result: &'static str,
}

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

/// What fairness counts, over all workspaces. Levels and schemas that a workspace made count as `other`.
#[derive(Clone)]
pub struct FlowMetrics {
    pub dispatched: Family<FlowLabels, Counter>,
    pub rejected: Family<RejectionLabels, Counter>,
    pub executing: Family<FlowLabels, Gauge>,
    pub in_queue: Family<FlowLabels, Gauge>,
    pub waits: Family<FlowLabels, Histogram, fn() -> Histogram>,
    pub nominal: Family<PriorityLabels, Gauge>,
}

impl FlowMetrics {
    fn register(registry: &mut Registry) -> FlowMetrics {
        let metrics = FlowMetrics {
            dispatched: Family::default(),
            rejected: Family::default(),
            executing: Family::default(),
            in_queue: Family::default(),
            waits: Family::new_with_constructor(timing as fn() -> Histogram),
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
            name("nominal_limit_seats"),
            "Seats that a level is sure of in a workspace that is alone and has the default levels",
            metrics.nominal.clone(),
        );
        metrics
    }
}

/// Something that is counted as long as it lasts, also if it is given up in the middle.
pub struct Counted(Gauge);

impl Counted {
    pub fn new(gauge: &Gauge) -> Counted {
        gauge.inc();
        Counted(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// What the audit counts.
#[derive(Clone, Default)]
pub struct AuditMetrics {
    pub events: Counter,
    pub errors: Family<PluginLabels, Counter>,
    pub levels: Family<LevelLabels, Counter>,
    pub rejected: Counter,
    pub reloads: Family<ReloadLabels, Counter>,
}

impl AuditMetrics {
    fn register(registry: &mut Registry) -> AuditMetrics {
        let metrics = AuditMetrics::default();
        registry.register("apiserver_audit_event", "Audit events made", metrics.events.clone());
        registry.register("apiserver_audit_error", "Audit events lost, by outlet", metrics.errors.clone());
        registry.register(
            "apiserver_audit_level",
            "Requests by the level the audit policy wants",
            metrics.levels.clone(),
        );
        registry.register(
            "apiserver_audit_requests_rejected",
            "Requests refused because they could not be recorded",
            metrics.rejected.clone(),
        );
        registry.register(
            "hanse_audit_policy_reloads",
            "Changes of the audit policy's file, by whether they were taken over",
            metrics.reloads.clone(),
        );
        metrics
    }
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

    /// What a request's span calls it.
    pub fn field(self) -> &'static str {
        match self {
            Stage::Decode => "stage.decode",
            Stage::Prepare => "stage.prepare",
            Stage::Track => "stage.track",
            Stage::Check => "stage.check",
            Stage::Admit => "stage.admit",
            Stage::Encode => "stage.encode",
            Stage::Commit => "stage.commit",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StageLabels {
    stage: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ValidatingPolicyLabels {
    error_type: &'static str,
    enforcement_action: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MutatingPolicyLabels {
    error_type: &'static str,
}

/// Times the stages of one write.
pub struct Stopwatch<'a> {
    clock: &'a dyn Clock,
    metrics: &'a Metrics,
    last: Duration,
    /// How long each stage took in all.
    spent: [Duration; Stage::ALL.len()],
}

impl<'a> Stopwatch<'a> {
    pub fn start(clock: &'a dyn Clock, metrics: &'a Metrics) -> Self {
        metrics.writes.inc();
        Self { clock, metrics, last: clock.elapsed(), spent: Default::default() }
    }

    /// What was done since the last call was `stage`.
    pub fn lap(&mut self, stage: Stage) {
        let now = self.clock.elapsed();
        let took = now.saturating_sub(self.last);
        self.metrics.stages[stage as usize].inc_by(took.as_secs_f64());
        self.spent[stage as usize] += took;
        self.last = now;
    }
}

impl Drop for Stopwatch<'_> {
    /// A stage can come more than once; the request's span has the sums.
    fn drop(&mut self) {
        if trace::is_on() {
            for stage in Stage::ALL {
                trace::record_micros(stage.field(), self.spent[stage as usize]);
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CacheLabels {
    status: &'static str,
}

/// What becomes of bearer tokens.
pub struct TokenMetrics {
    pub accepted: Counter,
    pub refused: Counter,
    /// Signatures that were known to be good already, and such that had to be verified.
    pub remembered: Counter,
    pub verified: Counter,
    pub issued: Counter,
    /// Used by programs that read their token again, and such that should.
    pub fresh: Counter,
    pub stale: Counter,
    pub legacy: Counter,
}

impl TokenMetrics {
    fn register(registry: &mut Registry) -> TokenMetrics {
        let attempts: Family<ResultLabels, Counter> = Family::default();
        registry.register(
            "authentication_attempts",
            "Bearer tokens of requests, by what became of them",
            attempts.clone(),
        );
        let cache: Family<CacheLabels, Counter> = Family::default();
        registry.register(
            "authentication_token_cache_request",
            "Signatures of service account tokens, by whether they were known to be good",
            cache.clone(),
        );
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let attempt = |result| attempts.get_or_create(&ResultLabels { result }).clone();
        let cached = |status| cache.get_or_create(&CacheLabels { status }).clone();
        TokenMetrics {
            accepted: attempt("success"),
            refused: attempt("failure"),
            remembered: cached("hit"),
            verified: cached("miss"),
            issued: counter("hanse_tokens_issued", "Service account tokens issued"),
            fresh: counter("serviceaccount_valid_tokens", "Uses of tokens of pods in their first hour"),
            stale: counter("serviceaccount_stale_tokens", "Uses of tokens of pods after their first hour"),
            legacy: counter("serviceaccount_legacy_tokens", "Uses of tokens kept in secrets"),
        }
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
    pub connections_refused: Counter,
    pub collected: Counter<u64, AtomicU64>,
    pub controller_panics: Counter<u64, AtomicU64>,
    pub tokens: TokenMetrics,
    pub webhooks: Measures,
    pub quota_refused: Counter<u64, AtomicU64>,
    pub quota_recounts: Counter<u64, AtomicU64>,
    pub pod_security_refused: Counter<u64, AtomicU64>,
    pub audit: AuditMetrics,
    pub flow: FlowMetrics,
    writes: Counter<u64, AtomicU64>,
    validating_policies: Family<ValidatingPolicyLabels, Counter>,
    mutating_policies: Family<MutatingPolicyLabels, Counter>,
    stages: [Counter<f64, AtomicU64>; Stage::ALL.len()],
    pub login: LoginMetrics,
    pub operate: OperateMetrics,
    pub etcd: EtcdMetrics,
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
        let connections_refused = Counter::default();
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
            "hanse_connections_refused",
            "Connections closed at once because there were too many",
            connections_refused.clone(),
        );
        registry.register(
            "hanse_garbage_collected",
            "Objects removed because their owners are gone",
            collected.clone(),
        );
        let controller_panics = Counter::default();
        registry.register(
            "hanse_controller_panics",
            "Times that a controller panicked; what it did is tried again",
            controller_panics.clone(),
        );
        let tokens = TokenMetrics::register(&mut registry);
        let quota_refused = Counter::default();
        registry.register("hanse_quota_refused", "Writes refused by a resource quota", quota_refused.clone());
        let quota_recounts = Counter::default();
        registry.register(
            "hanse_quota_recounts",
            "Resource quotas whose use was counted from scratch",
            quota_recounts.clone(),
        );
        let pod_security_refused = Counter::default();
        registry.register(
            "hanse_pod_security_refused",
            "Pods refused by the pod security level of their namespace",
            pod_security_refused.clone(),
        );
        let audit = AuditMetrics::register(&mut registry);
        let flow = FlowMetrics::register(&mut registry);
        let writes = Counter::default();
        registry.register("hanse_writes", "Objects that clients wanted to write", writes.clone());
        let validating_policies = Family::default();
        registry.register(
            "apiserver_validating_admission_policy_check",
            "Validations that failed or could not be evaluated, by what was done about it",
            validating_policies.clone(),
        );
        let mutating_policies = Family::default();
        registry.register(
            "apiserver_mutating_admission_policy_check",
            "Mutations that policies were asked for",
            mutating_policies.clone(),
        );
        let by_stage: Family<StageLabels, Counter<f64, AtomicU64>> = Family::default();
        registry.register(
            "hanse_write_stage_seconds",
            "Time spent in each stage of writes",
            by_stage.clone(),
        );
        let stages =
            Stage::ALL.map(|stage| by_stage.get_or_create(&StageLabels { stage: stage.name() }).clone());
        let webhooks = Measures::register(&mut registry);
        let operate = OperateMetrics::register(&mut registry);
        let etcd = EtcdMetrics::register(&mut registry);
        let login = LoginMetrics::default();
        login.register(&mut registry);
        Self {
            registry,
            login,
            operate,
            etcd,
            requests,
            durations,
            inflight,
            watches,
            watch_events,
            connections,
            connections_refused,
            collected,
            controller_panics,
            tokens,
            webhooks,
            quota_refused,
            quota_recounts,
            pod_security_refused,
            audit,
            flow,
            writes,
            validating_policies,
            mutating_policies,
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

    /// Policies are the clients' to name, so the counts are of all together.
    pub fn validating_policy(&self, error_type: &'static str, enforcement_action: &'static str) {
        self.validating_policies
            .get_or_create(&ValidatingPolicyLabels { error_type, enforcement_action })
            .inc();
    }

    pub fn mutating_policy(&self, error_type: &'static str) {
        self.mutating_policies.get_or_create(&MutatingPolicyLabels { error_type }).inc();
    }

    /// The text that Prometheus reads.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}
