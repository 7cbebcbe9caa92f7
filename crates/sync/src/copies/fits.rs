//! How much of a workload a member has nodes for, by what its pods say.

use api::assignment::Report;
use kinds::{
    Split,
    running::{self, PodCounts},
};
use machinery::selector::LabelSelector;

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
        if all == ready || self.unscheduled.lock().is_known_to_be_none() {
            return None;
        }
        let tree = case.object.as_ref()?.tree().ok()?;
        let selector = LabelSelector::from_object(&tree.get("spec")?["selector"]).ok()?;
        let namespace = self.copies.namespace_of(&case.errand)?;
        let before = case.known_report().and_then(|it| it.fits);
        match self.unscheduled.lock().count(&namespace, &selector) {
            // What was found before holds until it is known better.
            None => before,
            Some(unschedulable) => {
                let pods = || PodCounts { unschedulable, ..PodCounts::default() };
                running::capacity_after(before, running::running(all, ready, pods).capacity, ready)
            }
        }
    }
}
