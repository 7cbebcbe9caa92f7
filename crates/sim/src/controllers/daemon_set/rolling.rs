//! From one revision to the next, some nodes at a time.

use std::sync::Arc;

use super::{Changes, Work};
use crate::{Pod, controllers::share::share};

/// The pods of a node that stay, by revision.
struct OnNode {
    new: Option<Arc<Pod>>,
    old: Option<Arc<Pod>>,
}

impl Work<'_> {
    pub(super) fn surges(&self) -> bool {
        self.rolls() && self.limit("maxSurge", 1) > 0
    }

    fn limit(&self, field: &str, nodes: i64) -> i64 {
        let value =
            self.set.pointer("/spec/updateStrategy/rollingUpdate").and_then(|rolling| rolling.get(field));
        share(value, nodes, true).unwrap_or(0)
    }

    pub(super) fn roll(&self) -> Changes {
        let wanted = self.nodes.values().filter(|eligibility| eligibility.starts).count() as i64;
        let surge = self.limit("maxSurge", wanted);
        let unavailable = self.limit("maxUnavailable", wanted);
        if surge == 0 {
            let least = i64::from(wanted > 0);
            return Changes { nodes: Vec::new(), pods: self.to_replace(unavailable.max(least)) };
        }
        self.surge(surge, wanted)
    }

    /// Every node that should have a pod or has one; `None` if it has too many to tell.
    fn on_nodes(&self) -> impl Iterator<Item = (&str, Option<OnNode>)> {
        let wanted = self.nodes.iter().filter(|(name, it)| it.starts && !self.pods.contains_key(*name));
        let names = self.pods.keys().chain(wanted.map(|(name, _)| name));
        names.map(|name| (name.as_str(), self.on_node(name)))
    }

    fn on_node(&self, node: &str) -> Option<OnNode> {
        let pods = self.pods.get(node).map(Vec::as_slice).unwrap_or_default();
        let staying = pods.iter().filter(|pod| pod.terminating.is_none());
        let (new, old): (Vec<_>, Vec<_>) = staying.cloned().partition(|pod| self.is_updated(pod));
        let only = |pods: Vec<Arc<Pod>>| (pods.len() <= 1).then(|| pods.into_iter().next());
        Some(OnNode { new: only(new)?, old: only(old)? })
    }

    /// Old pods that do not work, and as many others as may be unavailable.
    fn to_replace(&self, most: i64) -> Vec<Arc<Pod>> {
        let (mut unavailable, mut broken, mut candidates) = (0, Vec::new(), Vec::new());
        for (_, pods) in self.on_nodes() {
            match pods {
                Some(OnNode { new: Some(new), old: None }) => {
                    unavailable += i64::from(!self.is_available(&new))
                }
                Some(OnNode { new: None, old: Some(old) }) if self.is_available(&old) => candidates.push(old),
                Some(OnNode { new: None, old: Some(old) }) => {
                    broken.push(old);
                    unavailable += 1;
                }
                _ => unavailable += 1,
            }
        }
        let room = usize::try_from(most - unavailable).unwrap_or(0);
        broken.extend(candidates.into_iter().take(room));
        broken
    }

    /// New pods beside old ones, which go when the new ones are available.
    fn surge(&self, most: i64, wanted: i64) -> Changes {
        let mut changes = Changes::default();
        let (mut surging, mut available) = (0, 0);
        let (mut candidates, mut unwanted) = (Vec::new(), Vec::new());
        for (node, pods) in self.on_nodes() {
            let Some(OnNode { new, old }) = pods else {
                surging += 1;
                continue;
            };
            if let Some(pod) = old.as_ref().or(new.as_ref()) {
                available += i64::from(self.is_available(pod));
            }
            match (new, old) {
                (_, None) => {}
                (Some(new), Some(old)) if self.is_available(&new) => changes.pods.push(old),
                (Some(_), Some(_)) => surging += 1,
                (None, Some(old)) => {
                    let starts = self.nodes.get(node).is_some_and(|eligibility| eligibility.starts);
                    match (self.is_available(&old), starts) {
                        (false, false) => changes.pods.push(old),
                        (false, true) => changes.nodes.push(node.to_owned()),
                        (true, false) => unwanted.push(old),
                        (true, true) => candidates.push(node.to_owned()),
                    }
                }
            }
        }
        let spare = usize::try_from(available - wanted).unwrap_or(0);
        changes.pods.extend(unwanted.into_iter().take(spare));
        let room = usize::try_from(most - surging).unwrap_or(0);
        changes.nodes.extend(candidates.into_iter().take(room));
        changes
    }
}
