//! The virtual `Node` that stands for a cluster: to whoever schedules or looks, a cluster is what a node is elsewhere.

use machinery::{admission::amounts, resource::Tree};
use serde_json::{Value, json};

use crate::{capacity::Summary, wanted::Wanted};

/// On the node: whether Hanse has it unschedulable. Where the node says otherwise, somebody has cordoned it.
pub const CORDON_NOTE: &str = "hanse.io/unschedulable";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const CORDONED: &str = "node.kubernetes.io/unschedulable";

/// What is to be said of a cluster by its node.
pub struct Facts<'a> {
    pub name: &'a str,
    pub wanted: &'a Wanted,
    pub version: &'a str,
    pub ready: bool,
    pub reason: &'a str,
    pub message: &'a str,
    /// When it became so.
    pub since: &'a str,
    pub summary: &'a Summary,
}

impl Facts<'_> {
    pub fn labels(&self) -> Value {
        let mut labels = self.wanted.labels.clone();
        labels.insert(api::CLUSTER_LABEL.into(), json!(self.name));
        labels.insert("kubernetes.io/hostname".into(), json!(self.name));
        Value::Object(labels)
    }

    pub fn spec(&self) -> Value {
        let mut taints = self.wanted.taints.as_array().cloned().unwrap_or_default();
        if self.wanted.unschedulable {
            taints.push(json!({"key": CORDONED, "effect": "NoSchedule"}));
        }
        if !self.ready {
            taints.push(json!({"key": UNREACHABLE, "effect": "NoSchedule"}));
        }
        let mut spec = Tree::new();
        if !taints.is_empty() {
            spec.insert("taints".into(), Value::Array(taints));
        }
        if self.wanted.unschedulable {
            spec.insert("unschedulable".into(), json!(true));
        }
        Value::Object(spec)
    }

    /// Without the time of a heartbeat: a node whose cluster is as it was is not written again. The `Cluster` has it.
    pub fn status(&self) -> Value {
        let amounts = |amounts: &amounts::Amounts| Value::Object(amounts::to_tree(amounts));
        let ready = json!({
            "type": "Ready",
            "status": if self.ready { "True" } else { "Unknown" },
            "reason": self.reason,
            "message": self.message,
            "lastTransitionTime": self.since,
            "lastHeartbeatTime": self.since,
        });
        json!({
            "capacity": amounts(&self.summary.capacity),
            "allocatable": amounts(&self.summary.allocatable),
            "conditions": [ready],
            "addresses": [{"type": "Hostname", "address": self.name}],
            "nodeInfo": {
                "kubeletVersion": self.version, "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "",
                "osImage": "", "containerRuntimeVersion": "", "kubeProxyVersion": "", "operatingSystem": "linux",
                "architecture": "",
            },
        })
    }

    /// It goes with its cluster.
    pub fn owner(&self) -> Value {
        json!([{
            "apiVersion": api::API_VERSION, "kind": api::cluster::KIND, "name": self.name, "uid": self.wanted.uid,
            "controller": true,
        }])
    }

    pub fn note(&self) -> &'static str {
        if self.wanted.unschedulable { "true" } else { "false" }
    }
}

/// What somebody who cordoned the node, or let it go, wants of the cluster.
pub fn cordoned_by_hand(node: &Value) -> Option<bool> {
    let noted = node["metadata"]["annotations"][CORDON_NOTE].as_str()?;
    let is = node["spec"]["unschedulable"] == true;
    (noted != if is { "true" } else { "false" }).then_some(is)
}

/// Whether what is there already says all that `wanted` says.
pub fn says(there: &Value, wanted: &Value) -> bool {
    match (there, wanted) {
        (Value::Object(there), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| there.get(key).is_some_and(|there| says(there, value)))
        }
        (Value::Array(there), Value::Array(wanted)) => {
            there.len() == wanted.len() && there.iter().zip(wanted).all(|(there, wanted)| says(there, wanted))
        }
        // What is empty may be left out.
        (there, wanted) => there == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Trouble;

    fn wanted() -> Wanted {
        Wanted {
            uid: "u".into(),
            link: Err(Trouble::definite("", "")),
            labels: Tree::from_iter([(api::REGION_LABEL.to_owned(), json!("eu"))]),
            taints: json!([{"key": "gpu", "effect": "NoSchedule"}]),
            prefixed: false,
            admits: Default::default(),
            unschedulable: true,
            secret: Default::default(),
        }
    }

    #[test]
    fn a_node_says_of_its_cluster_what_nodes_say_of_themselves() {
        let (wanted, summary) = (wanted(), Summary::default());
        let facts = Facts {
            name: "eu-1",
            wanted: &wanted,
            version: "v1.36.4",
            ready: false,
            reason: "Unreachable",
            message: "",
            since: "t",
            summary: &summary,
        };
        assert_eq!(facts.labels()[api::REGION_LABEL], "eu");
        let keys: Vec<Value> =
            facts.spec()["taints"].as_array().unwrap().iter().map(|it| it["key"].clone()).collect();
        assert_eq!(keys, ["gpu", CORDONED, UNREACHABLE]);
        assert_eq!(facts.spec()["unschedulable"], true);
        assert_eq!(facts.status()["nodeInfo"]["kubeletVersion"], "v1.36.4");
        assert_eq!(facts.status()["conditions"][0]["status"], "Unknown");
    }

    #[test]
    fn a_cordon_by_hand_is_told_from_ours() {
        let node =
            |noted: &str, is: Value| json!({"metadata": {"annotations": {CORDON_NOTE: noted}}, "spec": is});
        assert_eq!(cordoned_by_hand(&node("false", json!({"unschedulable": true}))), Some(true));
        assert_eq!(cordoned_by_hand(&node("true", json!({}))), Some(false));
        assert_eq!(cordoned_by_hand(&node("true", json!({"unschedulable": true}))), None);
        assert_eq!(cordoned_by_hand(&json!({"spec": {"unschedulable": true}})), None);
    }
}
