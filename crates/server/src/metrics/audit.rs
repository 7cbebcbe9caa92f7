//! The audit: what is recorded, and what is lost.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

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
    pub(super) fn register(registry: &mut Registry) -> AuditMetrics {
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
