//! What is measured about webhooks, under kube-apiserver's names.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder},
    metrics::{MetricType, TypedMetric, counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};

/// So many webhooks are told apart by name; the rest is counted together, or tenants could grow this without bound.
const MAX_NAMES: usize = 1000;
const OTHERS: &str = "(other)";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Timed {
    name: String,
    r#type: &'static str,
    operation: &'static str,
    rejected: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Requested {
    name: String,
    r#type: &'static str,
    operation: &'static str,
    code: u16,
    rejected: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Rejected {
    name: String,
    r#type: &'static str,
    operation: &'static str,
    error_type: &'static str,
    rejection_code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Opened {
    name: String,
    r#type: &'static str,
}

/// A counter whose name does not end in `_total`, as upstream has two of.
#[derive(Clone, Debug, Default)]
struct Count(Arc<AtomicU64>);

impl Count {
    fn inc(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl TypedMetric for Count {
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

/// Why a request was refused on account of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// It said so.
    Denied,
    /// It could not be asked, or its answer did not count.
    Calling,
    /// What it wanted cannot be done.
    Internal,
}

impl Because {
    fn as_str(self) -> &'static str {
        match self {
            Because::Denied => "no_error",
            Because::Calling => "calling_webhook_error",
            Because::Internal => "apiserver_internal_error",
        }
    }
}

/// Which webhook was asked about what.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    pub name: &'a str,
    /// `admit` or `validating`.
    pub step: &'static str,
    pub operation: &'static str,
}

pub struct Measures {
    durations: Family<Timed, Histogram, fn() -> Histogram>,
    requests: Family<Requested, Counter>,
    rejections: Family<Rejected, Count>,
    opened: Family<Opened, Count>,
    names: Mutex<HashSet<String>>,
}

fn timing() -> Histogram {
    Histogram::new([0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0])
}

impl Measures {
    pub fn register(registry: &mut Registry) -> Self {
        let measures = Measures {
            durations: Family::new_with_constructor(timing as fn() -> Histogram),
            requests: Family::default(),
            rejections: Family::default(),
            opened: Family::default(),
            names: Mutex::default(),
        };
        registry.register(
            "apiserver_admission_webhook_admission_duration_seconds",
            "Time that admission webhooks take, by name, type and operation",
            measures.durations.clone(),
        );
        registry.register(
            "apiserver_admission_webhook_request",
            "Requests to admission webhooks, by the code of what came of them",
            measures.requests.clone(),
        );
        registry.register(
            "apiserver_admission_webhook_rejection_count",
            "Requests refused on account of an admission webhook, by the reason",
            measures.rejections.clone(),
        );
        registry.register(
            "apiserver_admission_webhook_fail_open_count",
            "Failures of admission webhooks that were passed over",
            measures.opened.clone(),
        );
        measures
    }

    fn name(&self, name: &str) -> String {
        let mut names = self.names.lock();
        if names.contains(name) {
            return name.to_owned();
        }
        if names.len() >= MAX_NAMES {
            return OTHERS.to_owned();
        }
        names.insert(name.to_owned());
        name.to_owned()
    }

    /// One call, and the code of what came of it.
    pub fn asked(&self, asked: Asked<'_>, took: Duration, rejected: bool, code: u16) {
        let (name, Asked { step, operation, .. }) = (self.name(asked.name), asked);
        let rejected = rejected.to_string();
        let timed = Timed { name: name.clone(), r#type: step, operation, rejected: rejected.clone() };
        self.durations.get_or_create(&timed).observe(took.as_secs_f64());
        let requested = Requested { name, r#type: step, operation, code: code.min(600), rejected };
        self.requests.get_or_create(&requested).inc();
    }

    pub fn rejected(&self, asked: Asked<'_>, because: Because, code: u16) {
        let (name, Asked { step, operation, .. }) = (self.name(asked.name), asked);
        let (error_type, rejection_code) = (because.as_str(), code.min(600));
        self.rejections
            .get_or_create(&Rejected { name, r#type: step, operation, error_type, rejection_code })
            .inc();
    }

    pub fn failed_open(&self, asked: Asked<'_>) {
        self.opened.get_or_create(&Opened { name: self.name(asked.name), r#type: asked.step }).inc();
    }
}
