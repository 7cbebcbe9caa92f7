//! What an operator wants to know of logging in.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReloadLabels {
    what: &'static str,
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    way: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SigningLabels {
    signer: &'static str,
    outcome: &'static str,
}

#[derive(Default)]
pub struct LoginMetrics {
    reloads: Family<ReloadLabels, Counter>,
    attempts: Family<AttemptLabels, Counter>,
    signings: Family<SigningLabels, Counter>,
    pub serving_not_after: Gauge,
}

impl LoginMetrics {
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "hanse_login_reloads",
            "Files with certificates or configuration that changed, by whether the new content was good",
            self.reloads.clone(),
        );
        registry.register(
            "hanse_login_attempts",
            "Credentials looked at, by kind and by what was found",
            self.attempts.clone(),
        );
        registry.register(
            "hanse_certificate_signings",
            "Approved requests for certificates, by what became of them",
            self.signings.clone(),
        );
        registry.register(
            "hanse_serving_certificate_not_after_seconds",
            "When the serving certificate ends, as seconds since 1970",
            self.serving_not_after.clone(),
        );
    }

    pub fn reloaded(&self, what: &'static str, good: bool) {
        let status = if good { "success" } else { "failure" };
        self.reloads.get_or_create(&ReloadLabels { what, status }).inc();
    }

    pub fn attempt(&self, way: &'static str, good: bool) {
        let result = if good { "success" } else { "error" };
        self.attempts.get_or_create(&AttemptLabels { way, result }).inc();
    }

    pub fn signing(&self, signer: &'static str, outcome: &'static str) {
        self.signings.get_or_create(&SigningLabels { signer, outcome }).inc();
    }
}
