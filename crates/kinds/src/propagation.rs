//! How far an object has come to its clusters, as KubeFed writes it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::fields::{at, list, number, put, text};

/// What one pass over the clusters came to.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    pub generation: i64,
    /// Why there was nothing to do for the clusters; empty: there was.
    pub reason: String,
    /// By cluster, what happened; empty: all went well.
    pub clusters: BTreeMap<String, String>,
    /// By cluster, the status of the copy.
    pub statuses: BTreeMap<String, Value>,
    /// Whether copies were written.
    pub updated: bool,
    /// Whether the statuses of copies are collected.
    pub collect: bool,
}

impl Pass {
    /// What the condition `Propagation` says: a cluster where all is not well, or whose status is missing.
    fn reason(&self) -> &str {
        let bad = |(cluster, status): (&String, &String)| {
            !status.is_empty() || (self.collect && !self.statuses.contains_key(cluster))
        };
        match self.reason.is_empty() && self.clusters.iter().any(bad) {
            true => "CheckClusters",
            false => &self.reason,
        }
    }

    fn differs(&self, shown: &[Value]) -> bool {
        shown.len() != self.clusters.len()
            || shown.iter().any(|entry| {
                let cluster = text(entry, "name");
                self.clusters.get(cluster).map(String::as_str) != Some(text(entry, "status"))
                    || self.statuses.get(cluster) != at(entry, "remoteStatus")
            })
    }

    fn entries(&self) -> Vec<Value> {
        let entry = |(cluster, status): (&String, &String)| {
            let mut entry = json!({"name": cluster});
            if !status.is_empty() {
                put(&mut entry, "status", status.clone());
            }
            if let Some(remote) = self.statuses.get(cluster) {
                put(&mut entry, "remoteStatus", remote.clone());
            }
            entry
        };
        self.clusters.iter().map(entry).collect()
    }
}

/// Brings a status up to a pass. Whether anything changed, so that it has to be written.
pub fn update(status: &mut Value, pass: &Pass, now: &str) -> bool {
    let observed = number(status, "observedGeneration") != pass.generation;
    put(status, "observedGeneration", pass.generation);
    let differs = pass.differs(list(status, "clusters"));
    if differs {
        put(status, "clusters", pass.entries());
    }
    let propagated = differs || (!pass.clusters.is_empty() && pass.updated);
    set_condition(status, pass.reason(), propagated, now) || observed
}

fn set_condition(status: &mut Value, reason: &str, propagated: bool, now: &str) -> bool {
    const KIND: &str = "Propagation";
    let state = if reason.is_empty() { "True" } else { "False" };
    let old = list(status, "conditions").iter().find(|it| text(it, "type") == KIND);
    let turned = old.is_none_or(|old| text(old, "status") != state || text(old, "reason") != reason);
    if !turned && !propagated {
        return false;
    }
    let since = old.map(|old| text(old, "lastTransitionTime")).filter(|_| !turned).unwrap_or(now);
    let mut condition =
        json!({"type": KIND, "status": state, "lastUpdateTime": now, "lastTransitionTime": since});
    if !reason.is_empty() {
        put(&mut condition, "reason", reason);
    }
    put(status, "conditions", vec![condition]);
    true
}
