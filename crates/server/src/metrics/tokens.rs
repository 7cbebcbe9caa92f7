//! Bearer tokens: which are good, and who signed them.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use super::Count;

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
    pub accepted: Count,
    pub refused: Count,
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
    pub(super) fn register(registry: &mut Registry) -> TokenMetrics {
        let attempts: Family<ResultLabels, Count> = Family::default();
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
