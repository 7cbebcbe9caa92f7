//! How much room a member has, and how much of it pods ask for.
//!
//! Counted are nodes that are ready and not cordoned, and the pods on them: what is free is the difference.

use std::collections::HashMap;

use compact_str::{CompactString, format_compact};
use machinery::{
    admission::amounts::{self, Amounts, PodLevel, PodOptions},
    quantity::{Format, Quantity},
    resource::Tree,
};
use serde::Deserialize;
use serde_json::{Value, json};

/// What is known of a member's nodes and pods.
#[derive(Default)]
pub struct Capacity {
    nodes: HashMap<CompactString, Node>,
    /// By `namespace/name`; those that are over, or nowhere yet, are left out.
    pods: HashMap<CompactString, Need>,
}

struct Node {
    ready: bool,
    unschedulable: bool,
    capacity: Amounts,
    allocatable: Amounts,
}

impl Node {
    fn is_usable(&self) -> bool {
        self.ready && !self.unschedulable
    }
}

/// What a pod asks for. There are many of them, and most ask for these two only.
struct Need {
    node: CompactString,
    /// Of the pod: with another one it may ask for something else. 0: its cluster counts none.
    generation: i64,
    milli_cpu: i64,
    memory: i64,
    others: Option<Box<Amounts>>,
}

/// What it all comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub nodes: u64,
    pub ready: u64,
    pub unschedulable: u64,
    pub pods: u64,
    pub capacity: Amounts,
    pub allocatable: Amounts,
    pub requested: Amounts,
}

#[derive(Deserialize)]
struct NodeWire {
    metadata: Named,
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Deserialize)]
struct Named {
    name: CompactString,
    #[serde(default)]
    namespace: CompactString,
    #[serde(default)]
    generation: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeSpec {
    unschedulable: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeStatus {
    capacity: Tree,
    allocatable: Tree,
    conditions: Vec<NodeCondition>,
}

#[derive(Deserialize)]
struct NodeCondition {
    r#type: String,
    status: String,
}

/// Which pod it is, and where.
#[derive(Deserialize)]
struct PodWire {
    metadata: Named,
    #[serde(default)]
    spec: PodPlace,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodPlace {
    node_name: CompactString,
}

#[derive(Deserialize)]
struct PodNeeds {
    spec: PodSpec,
}

/// Only what pods ask for by it; the rest is skipped while reading.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    containers: Vec<Container>,
    init_containers: Vec<Container>,
    overhead: Option<Value>,
    resources: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Container {
    resources: Option<Value>,
    restart_policy: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodStatus {
    phase: CompactString,
}

impl PodSpec {
    /// As a tree, for the rules that are the API's own.
    fn to_pod(&self) -> Tree {
        let container =
            |it: &Container| json!({"resources": it.resources, "restartPolicy": it.restart_policy});
        let spec = json!({
            "containers": self.containers.iter().map(container).collect::<Value>(),
            "initContainers": self.init_containers.iter().map(container).collect::<Value>(),
            "overhead": self.overhead, "resources": self.resources,
        });
        Tree::from_iter([("spec".to_owned(), spec)])
    }
}

fn amounts_of(list: Tree) -> Amounts {
    amounts::amounts_in(&Tree::from_iter([("list".to_owned(), Value::Object(list))]), "list")
}

impl Capacity {
    /// All nodes there are.
    pub fn take_nodes(&mut self, listed: Capacity) {
        self.nodes = listed.nodes;
    }

    /// All pods there are.
    pub fn take_pods(&mut self, listed: Capacity) {
        self.pods = listed.pods;
    }

    pub fn put_node(&mut self, object: &[u8]) {
        let Ok(wire) = serde_json::from_slice::<NodeWire>(object) else { return };
        let ready = wire.status.conditions.iter().any(|it| it.r#type == "Ready" && it.status == "True");
        let node = Node {
            ready,
            unschedulable: wire.spec.unschedulable,
            capacity: amounts_of(wire.status.capacity),
            allocatable: amounts_of(wire.status.allocatable),
        };
        self.nodes.insert(wire.metadata.name, node);
    }

    pub fn remove_node(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    pub fn put_pod(&mut self, object: &[u8]) {
        let Ok(wire) = serde_json::from_slice::<PodWire>(object) else { return };
        let key = format_compact!("{}/{}", wire.metadata.namespace, wire.metadata.name);
        let is_over = matches!(wire.status.phase.as_str(), "Succeeded" | "Failed");
        if is_over || wire.spec.node_name.is_empty() {
            self.pods.remove(&key);
            return;
        }
        let (node, generation) = (wire.spec.node_name, wire.metadata.generation);
        // A pod is told of each time that something becomes of it, and asks for the same.
        let is_known = |known: &Need| known.node == node && known.generation == generation;
        if generation > 0 && self.pods.get(&key).is_some_and(is_known) {
            return;
        }
        let Ok(PodNeeds { spec }) = serde_json::from_slice::<PodNeeds>(object) else { return };
        let options = PodOptions { with_status: false, with_overhead: true, level: PodLevel::Full };
        let mut needed = amounts::of_pod(&spec.to_pod(), "requests", options);
        let milli_cpu = needed.remove("cpu").map_or(0, |it| it.milli_value());
        let memory = needed.remove("memory").map_or(0, |it| it.value());
        let others = (!needed.is_empty()).then(|| Box::new(needed));
        self.pods.insert(key, Need { node, generation, milli_cpu, memory, others });
    }

    pub fn remove_pod(&mut self, namespace: &str, name: &str) {
        self.pods.remove(&format_compact!("{namespace}/{name}"));
    }

    pub fn summary(&self) -> Summary {
        let mut summary = Summary { nodes: self.nodes.len() as u64, ..Summary::default() };
        for node in self.nodes.values() {
            summary.ready += u64::from(node.ready);
            summary.unschedulable += u64::from(node.unschedulable);
            amounts::add(&mut summary.capacity, &node.capacity);
            if node.is_usable() {
                amounts::add(&mut summary.allocatable, &node.allocatable);
            }
        }
        let (mut milli_cpu, mut memory) = (0_i64, 0_i64);
        for need in self.pods.values() {
            if !self.nodes.get(&need.node).is_some_and(Node::is_usable) {
                continue;
            }
            summary.pods += 1;
            milli_cpu = milli_cpu.saturating_add(need.milli_cpu);
            memory = memory.saturating_add(need.memory);
            if let Some(others) = &need.others {
                amounts::add(&mut summary.requested, others);
            }
        }
        let pods = i64::try_from(summary.pods).unwrap_or(i64::MAX);
        summary.requested.extend([
            ("cpu".to_owned(), Quantity::from_milli(milli_cpu, Format::DecimalSi)),
            ("memory".to_owned(), Quantity::new(memory, Format::BinarySi)),
            ("pods".to_owned(), Quantity::new(pods, Format::DecimalSi)),
        ]);
        summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, ready: &str, unschedulable: bool) -> Vec<u8> {
        let amounts = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
        json!({
            "metadata": {"name": name},
            "spec": {"unschedulable": unschedulable},
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": ready}]},
        })
        .to_string()
        .into_bytes()
    }

    fn pod(name: &str, node: &str, phase: &str, cpu: &str) -> Vec<u8> {
        json!({
            "metadata": {"namespace": "n", "name": name},
            "spec": {"nodeName": node, "containers": [
                {"name": "a", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "1Gi", "example.com/gpu": "1"}}},
                {"name": "b"},
            ]},
            "status": {"phase": phase},
        })
        .to_string()
        .into_bytes()
    }

    #[test]
    fn what_is_free_is_counted_on_nodes_that_can_be_used() {
        let mut capacity = Capacity::default();
        for (name, ready, unschedulable) in [
            ("a", "True", false),
            ("b", "True", false),
            ("cordoned", "True", true),
            ("gone", "Unknown", false),
        ] {
            capacity.put_node(&node(name, ready, unschedulable));
        }
        for (name, node, phase) in [
            ("one", "a", "Running"),
            ("two", "b", "Pending"),
            ("waiting", "", "Pending"),
            ("over", "a", "Succeeded"),
            ("lost", "gone", "Running"),
        ] {
            capacity.put_pod(&pod(name, node, phase, "250m"));
        }
        let summary = capacity.summary();
        assert_eq!((summary.nodes, summary.ready, summary.unschedulable, summary.pods), (4, 3, 1, 2));
        let text = amounts::text_of;
        assert_eq!(text(&summary.capacity), "cpu=16,memory=32Gi,pods=440");
        assert_eq!(text(&summary.allocatable), "cpu=8,memory=16Gi,pods=220");
        assert_eq!(text(&summary.requested), "cpu=500m,example.com/gpu=2,memory=2Gi,pods=2");
    }

    #[test]
    fn a_pod_counts_once_and_as_it_is_now() {
        let mut capacity = Capacity::default();
        capacity.put_node(&node("a", "True", false));
        capacity.put_pod(&pod("one", "a", "Running", "1"));
        capacity.put_pod(&pod("one", "a", "Running", "2"));
        assert_eq!(capacity.summary().requested["cpu"].to_string(), "2");
        capacity.put_pod(&pod("one", "a", "Failed", "2"));
        assert_eq!(capacity.summary().requested["cpu"].to_string(), "0");
        capacity.put_pod(&pod("one", "a", "Running", "2"));
        capacity.remove_pod("n", "one");
        assert_eq!(capacity.summary().pods, 0);
        let resized = |generation: i64, cpu: &str| {
            let mut pod: Value = serde_json::from_slice(&pod("one", "a", "Running", cpu)).unwrap();
            pod["metadata"]["generation"] = json!(generation);
            pod.to_string().into_bytes()
        };
        capacity.put_pod(&resized(1, "1"));
        capacity.put_pod(&resized(2, "3"));
        assert_eq!(capacity.summary().requested["cpu"].to_string(), "3", "it was resized");
        capacity.remove_pod("n", "one");
        capacity.put_pod(b"nonsense");
        capacity.put_node(b"nonsense");
        assert_eq!(capacity.summary().nodes, 1);
    }
}
