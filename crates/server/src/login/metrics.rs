//! What an operator wants to know of logging in.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
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

const HOUR: f64 = 3600.0;
const DAY: f64 = 24.0 * HOUR;

pub struct LoginMetrics {
    expirations: Histogram,
    reloads: Family<ReloadLabels, Counter>,
    attempts: Family<AttemptLabels, Counter>,
    signings: Family<SigningLabels, Counter>,
    pub serving_not_after: Gauge,
}

impl Default for LoginMetrics {
    fn default() -> Self {
        // The bounds of upstream, which alerts ask for by their value.
        let ends = [0.0, 0.5, 1.0, 2.0, 6.0, 12.0].map(|hours| hours * HOUR);
        let later = [1.0, 2.0, 4.0, 7.0, 30.0, 90.0, 180.0, 360.0].map(|days| days * DAY);
        LoginMetrics {
            expirations: Histogram::new(ends.into_iter().chain(later)),
            reloads: Family::default(),
            attempts: Family::default(),
            signings: Family::default(),
            serving_not_after: Gauge::default(),
        }
    }
}

impl LoginMetrics {
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "apiserver_client_certificate_expiration_seconds",
            "What is left to the certificate of a client when it makes a request",
            self.expirations.clone(),
        );
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

    /// Somebody came with a certificate that is good for so many seconds.
    pub fn certificate_used(&self, seconds_left: i64) {
        self.expirations.observe(seconds_left as f64);
    }

    pub fn attempt(&self, way: &'static str, good: bool) {
        let result = if good { "success" } else { "error" };
        self.attempts.get_or_create(&AttemptLabels { way, result }).inc();
    }

    pub fn signing(&self, signer: &'static str, outcome: &'static str) {
        self.signings.get_or_create(&SigningLabels { signer, outcome }).inc();
    }
}
