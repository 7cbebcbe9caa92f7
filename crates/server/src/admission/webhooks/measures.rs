//! What is measured about webhooks, under kube-apiserver's names. Webhooks are not told apart by theirs: workspaces choose
//! those, could grow the metrics without bound, and would be seen by whoever reads them.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};

use crate::metrics::{Count, OTHER};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Timed {
    name: &'static str,
    r#type: &'static str,
    operation: &'static str,
    rejected: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Requested {
    name: &'static str,
    r#type: &'static str,
    operation: &'static str,
    code: u16,
    rejected: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Rejected {
    name: &'static str,
    r#type: &'static str,
    operation: &'static str,
    error_type: &'static str,
    rejection_code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Opened {
    name: &'static str,
    r#type: &'static str,
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

/// What kind of webhook was asked about what.
#[derive(Clone, Copy)]
pub struct Asked {
    /// `admit` or `validating`.
    pub step: &'static str,
    pub operation: &'static str,
}

pub struct Measures {
    durations: Family<Timed, Histogram, fn() -> Histogram>,
    requests: Family<Requested, Counter>,
    rejections: Family<Rejected, Count>,
    opened: Family<Opened, Count>,
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
        };
        registry.register(
            "apiserver_admission_webhook_admission_duration_seconds",
            "Time that admission webhooks take, by type and operation",
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

    /// One call, and the code of what came of it.
    pub fn asked(&self, asked: Asked, took: Duration, rejected: bool, code: u16) {
        let Asked { step, operation } = asked;
        let rejected = rejected.to_string();
        let timed = Timed { name: OTHER, r#type: step, operation, rejected: rejected.clone() };
        self.durations.get_or_create(&timed).observe(took.as_secs_f64());
        let requested = Requested { name: OTHER, r#type: step, operation, code: code.min(600), rejected };
        self.requests.get_or_create(&requested).inc();
    }

    pub fn rejected(&self, asked: Asked, because: Because, code: u16) {
        let Asked { step, operation } = asked;
        let (error_type, rejection_code) = (because.as_str(), code.min(600));
        self.rejections
            .get_or_create(&Rejected { name: OTHER, r#type: step, operation, error_type, rejection_code })
            .inc();
    }

    pub fn failed_open(&self, asked: Asked) {
        self.opened.get_or_create(&Opened { name: OTHER, r#type: asked.step }).inc();
    }
}
