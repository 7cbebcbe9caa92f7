//! What sessions with member clusters do. Names of clusters are the clients' to choose, so counts are of all together;
//! which one it is, its `Cluster` says.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

/// Of all sessions together.
#[derive(Clone, Default)]
pub struct MemberMetrics {
    /// Sessions, by why their cluster can be used or not.
    sessions: Family<ReasonLabels, Gauge>,
    probes: Family<ReasonLabels, Counter>,
    pub lists: Counter,
    pub watches: Counter,
    pub events: Counter,
    pub bytes: Counter,
    pub status_writes: Counter,
    /// Lists that were given up because the member has more than is looked at.
    pub overfull: Counter,
    tokens: Family<ReasonLabels, Counter>,
}

impl MemberMetrics {
    pub(super) fn register(registry: &mut Registry) -> MemberMetrics {
        let metrics = MemberMetrics::default();
        registry.register(
            "hanse_member_sessions",
            "Joined clusters, by the reason of their condition Ready",
            metrics.sessions.clone(),
        );
        registry.register(
            "hanse_member_probes",
            "Times that a member was asked how it is, by what came of it",
            metrics.probes.clone(),
        );
        registry.register(
            "hanse_member_lists",
            "Collections of members that were listed whole",
            metrics.lists.clone(),
        );
        registry.register(
            "hanse_member_watches",
            "Watches that were opened at members",
            metrics.watches.clone(),
        );
        registry.register(
            "hanse_member_events",
            "Changes that members told of by watches",
            metrics.events.clone(),
        );
        registry.register(
            "hanse_member_received_bytes",
            "Bytes of objects that members sent in lists and watches",
            metrics.bytes.clone(),
        );
        registry.register(
            "hanse_member_status_writes",
            "Writes of what is known of members: Clusters, virtual Nodes, Events",
            metrics.status_writes.clone(),
        );
        registry.register(
            "hanse_member_overfull_lists",
            "Lists of members that were given up because there is more than is looked at",
            metrics.overfull.clone(),
        );
        registry.register(
            "hanse_member_tokens",
            "Secrets with tokens of the hub in members, by what was done with them",
            metrics.tokens.clone(),
        );
        metrics
    }

    /// A Secret with a token was `Made`, `Renewed` or `Removed`, or that `Failed`.
    pub fn token(&self, reason: &'static str) {
        self.tokens.get_or_create(&ReasonLabels { reason }).inc();
    }

    /// A session's reason is another one now; `None`: there is no session before, or after.
    pub fn moved(&self, before: Option<&'static str>, after: Option<&'static str>) {
        if let Some(reason) = before {
            self.sessions.get_or_create(&ReasonLabels { reason }).dec();
        }
        if let Some(reason) = after {
            self.sessions.get_or_create(&ReasonLabels { reason }).inc();
        }
    }

    pub fn probed(&self, reason: &'static str) {
        self.probes.get_or_create(&ReasonLabels { reason }).inc();
    }
}
