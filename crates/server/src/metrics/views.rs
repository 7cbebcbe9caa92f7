//! Views: what is sent on to members.

use http::Method;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ForwardLabels {
    method: &'static str,
    outcome: &'static str,
}

/// What views count.
#[derive(Clone, Default)]
pub struct ViewMetrics {
    forwarded: Family<ForwardLabels, Counter>,
}

impl ViewMetrics {
    pub(super) fn register(registry: &mut Registry) -> ViewMetrics {
        let metrics = ViewMetrics::default();
        registry.register(
            "hanse_view_forwarded",
            "Requests sent on to members, by method and by how they ended",
            metrics.forwarded.clone(),
        );
        metrics
    }

    /// `code`: the member's answer; 0: it was not reached.
    pub fn forwarded(&self, method: &Method, code: u16) {
        let method = match method.as_str() {
            "GET" => "GET",
            "DELETE" => "DELETE",
            "PATCH" => "PATCH",
            "POST" => "POST",
            _ => "PUT",
        };
        let outcome = match code {
            0 => "unreached",
            200..=299 => "done",
            _ => "refused",
        };
        self.forwarded.get_or_create(&ForwardLabels { method, outcome }).inc();
    }
}
