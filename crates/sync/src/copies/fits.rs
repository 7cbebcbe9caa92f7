//! How much of a workload a member has nodes for, by what its pods say.

use api::assignment::{Reference, Report};
use kinds::{Split, running};
use machinery::selector::LabelSelector;
use serde_json::Value;

use super::errand::Case;
use crate::session::Session;

impl Session {
    /// How many pods of a copy the cluster has nodes for; `None`: nothing says that it has none for more.
    pub(super) fn fits(&self, case: &Case, report: &Report) -> Option<u64> {
        let kind = self.kind(case);
        if kind.split != Split::Replicas {
            return None;
        }
        let count = |field: &str| report.status[field].as_u64().unwrap_or(0);
        let (all, ready) = (count("replicas"), count("readyReplicas"));
        let before = case.known_report().and_then(|it| it.fits);
        if all == ready || (before.is_none() && self.unscheduled.lock().is_known_to_be_none()) {
            return None;
        }
        let tree = case.object.as_ref()?.tree().ok()?;
        let selector = selector(&case.assignment.spec.object, &tree.get("spec")?["selector"])?;
        let namespace = self.copies.namespace_of(&case.errand)?;
        match self.unscheduled.lock().count(&namespace, &selector) {
            // What was found before holds until it is known better.
            None => before,
            Some(unschedulable) => {
                running::capacity_after(before, running::capacity(all, unschedulable), all, ready)
            }
        }
    }
}

/// A ReplicationController has labels where all others have a selector.
fn selector(of: &Reference, said: &Value) -> Option<LabelSelector> {
    if (of.group(), of.kind.as_str()) != ("", "ReplicationController") {
        return LabelSelector::from_object(said).ok();
    }
    let labels = said.as_object()?.iter();
    Some(LabelSelector::from_labels(labels.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_selector_is_read_in_both_shapes() {
        let pod = |app: &str| vec![("app".into(), app.into())];
        for (api_version, kind, said) in [
            ("v1", "ReplicationController", json!({"app": "web"})),
            ("apps/v1", "ReplicaSet", json!({"matchLabels": {"app": "web"}})),
        ] {
            let of = Reference { api_version: api_version.into(), kind: kind.into(), ..Reference::default() };
            let selector = selector(&of, &said).unwrap();
            assert!(selector.matches(&pod("web")) && !selector.matches(&pod("other")), "{kind}");
        }
    }
}
