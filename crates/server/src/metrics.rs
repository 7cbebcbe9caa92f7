//! Counters and timings, under kube-apiserver's names and labels so that its dashboards work. What has another meaning,
//! or none there, begins with `hanse_`.
//!
//! The values of labels come from tables of ours, never from clients: their number must not grow with what workspaces
//! make, and their names are nobody else's business. What a workspace named is `other`.

mod audit;
mod copies;
mod flow;
mod members;
mod placement;
mod quota;
mod requests;
mod stages;
mod state;
pub mod text;
mod tokens;
mod views;
mod work;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder},
    metrics::{MetricType, TypedMetric, counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::{
    admission::webhooks::Measures, controllers, hub::Hub, login::LoginMetrics, operate::OperateMetrics,
};

mod etcd;

pub use etcd::EtcdMetrics;

pub use audit::{AuditMetrics, LevelLabels, PluginLabels, ReloadLabels};
pub use copies::CopyMetrics;
pub use flow::{ExecutionLabels, FlowLabels, FlowMetrics, PriorityLabels, RejectionLabels, WaitLabels};
pub use members::MemberMetrics;
pub use placement::PlacementMetrics;
pub use quota::QuotaMetrics;
pub use requests::{About, Answered, Requests, WatchMeasures, is_dry_run};
use stages::StageLabels;
pub use stages::{Stage, Stopwatch};
pub use tokens::TokenMetrics;
pub use views::ViewMetrics;
pub use work::{OneKind, WorkMetrics};

/// What a workspace has named.
pub const OTHER: &str = "other";

/// A counter whose name does not end in `_total`, as upstream has some.
#[derive(Clone, Debug, Default)]
pub struct Count(Arc<AtomicU64>);

impl Count {
    pub fn inc(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl TypedMetric for Count {
    // The text says counter: see `text`.
    const TYPE: MetricType = MetricType::Unknown;
}

impl EncodeMetric for Count {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        encoder.encode_gauge(&self.0.load(Ordering::Relaxed))
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
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

/// What there is only so much of for one workspace or user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Watches,
    Connections,
    RequestBytes,
    /// Objects, or bytes of them.
    Stored,
}

impl Limit {
    fn name(self) -> &'static str {
        match self {
            Limit::Watches => "watches",
            Limit::Connections => "connections",
            Limit::RequestBytes => "request-bytes",
            Limit::Stored => "stored",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabels {
    limit: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ValidatingPolicyLabels {
    policy: &'static str,
    policy_binding: &'static str,
    error_type: &'static str,
    enforcement_action: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MutatingPolicyLabels {
    policy: &'static str,
    policy_binding: &'static str,
    error_type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AuthorizationLabels {
    result: &'static str,
}

/// Everything that is measured.
pub struct Metrics {
    registry: Registry,
    pub requests: Requests,
    pub work: WorkMetrics,
    pub allowed: Counter,
    pub denied: Counter,
    pub relayed: Counter,
    pub handshake_errors: Counter,
    pub connections: Gauge,
    pub connections_refused: Counter,
    pub collected: Counter<u64, AtomicU64>,
    pub controller_panics: Counter<u64, AtomicU64>,
    pub tokens: TokenMetrics,
    pub webhooks: Measures,
    pub quota: QuotaMetrics,
    pub pod_security_refused: Counter<u64, AtomicU64>,
    pub audit: AuditMetrics,
    pub flow: FlowMetrics,
    limits: Family<LimitLabels, Counter>,
    writes: Counter<u64, AtomicU64>,
    validating_policies: Family<ValidatingPolicyLabels, Counter>,
    mutating_policies: Family<MutatingPolicyLabels, Counter>,
    stages: [Counter<f64, AtomicU64>; Stage::ALL.len()],
    pub login: LoginMetrics,
    pub operate: OperateMetrics,
    pub etcd: EtcdMetrics,
    pub views: ViewMetrics,
    pub members: MemberMetrics,
    pub placement: PlacementMetrics,
    pub copies: CopyMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let requests = Requests::register(&mut registry);
        let work = WorkMetrics::register(&mut registry, controllers::KINDS_OF_WORK);
        let decisions: Family<AuthorizationLabels, Counter> = Family::default();
        registry.register(
            "authorization_attempts",
            "Requests by whether they were allowed",
            decisions.clone(),
        );
        let decision = |result| decisions.get_or_create(&AuthorizationLabels { result }).clone();
        let relayed = Counter::default();
        registry.register(
            "hanse_relayed_requests",
            "Requests that the server on duty was asked to answer",
            relayed.clone(),
        );
        let handshake_errors = Counter::default();
        registry.register(
            "apiserver_tls_handshake_errors",
            "TLS handshakes that failed",
            handshake_errors.clone(),
        );
        let connections = Gauge::default();
        let connections_refused = Counter::default();
        let collected = Counter::default();
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
        let quota = QuotaMetrics::register(&mut registry);
        let pod_security_refused = Counter::default();
        registry.register(
            "hanse_pod_security_refused",
            "Pods refused by the pod security level of their namespace",
            pod_security_refused.clone(),
        );
        let audit = AuditMetrics::register(&mut registry);
        let flow = FlowMetrics::register(&mut registry);
        let limits = Family::default();
        registry.register(
            "hanse_limit_reached",
            "Requests refused because somebody holds as much as it may, by what",
            limits.clone(),
        );
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
        let views = ViewMetrics::register(&mut registry);
        let members = MemberMetrics::register(&mut registry);
        let placement = PlacementMetrics::register(&mut registry);
        let copies = CopyMetrics::register(&mut registry);
        let login = LoginMetrics::default();
        login.register(&mut registry);
        Self {
            registry,
            login,
            operate,
            etcd,
            views,
            members,
            placement,
            copies,
            requests,
            work,
            allowed: decision("allowed"),
            denied: decision("denied"),
            relayed,
            handshake_errors,
            connections,
            connections_refused,
            collected,
            controller_panics,
            tokens,
            webhooks,
            quota,
            pod_security_refused,
            audit,
            flow,
            limits,
            writes,
            validating_policies,
            mutating_policies,
            stages,
        }
    }
}

impl Metrics {
    /// Policies are the clients' to name, so the counts are of all together.
    pub fn validating_policy(&self, error_type: &'static str, enforcement_action: &'static str) {
        let labels =
            ValidatingPolicyLabels { policy: OTHER, policy_binding: OTHER, error_type, enforcement_action };
        self.validating_policies.get_or_create(&labels).inc();
    }

    pub fn mutating_policy(&self, error_type: &'static str) {
        let labels = MutatingPolicyLabels { policy: OTHER, policy_binding: OTHER, error_type };
        self.mutating_policies.get_or_create(&labels).inc();
    }

    pub fn limit_reached(&self, limit: Limit) {
        self.limits.get_or_create(&LimitLabels { limit: limit.name() }).inc();
    }

    /// The text that Prometheus reads, with what `hub` is now.
    pub fn encode(&self, hub: &Hub) -> String {
        let mut open = String::new();
        // Writing to a String cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut open, &self.registry);
        let mut text = text::from_open_metrics(&open);
        state::describe(hub, &mut text);
        text
    }
}
