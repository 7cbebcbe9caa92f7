//! Nodes: they say that they are well, or are not heard of any more.

use serde_json::{Value, json};

use crate::{
    Action, Kind, Plan, World, controllers::Controller, kind::NODES, kubelet::is_down, simulation::NodeShape,
    tree,
};

/// Keeps the status of nodes as a kubelet, or its absence, would.
pub struct Heartbeat;

/// The name of a simulated node says where it is.
pub fn object(cluster: &str, number: usize, shape: &NodeShape, version: &str) -> Value {
    let name = format!("{cluster}-node-{number}");
    let mut labels = json!({
        "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": "simulated",
    });
    for (key, value) in &shape.labels {
        labels[key] = json!(value);
    }
    let amounts = json!({
        "cpu": shape.cpu, "memory": shape.memory, "pods": shape.pods.to_string(), "ephemeral-storage": "100Gi",
    });
    json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"providerID": format!("sim://{cluster}/{name}"), "taints": shape.taints},
        "status": {
            "capacity": amounts, "allocatable": amounts,
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name},
            ],
            "nodeInfo": {
                "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "simulated",
                "osImage": "Hanse simulated node", "containerRuntimeVersion": "sim://1", "kubeletVersion": version,
                "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
            },
        },
    })
}

impl Controller for Heartbeat {
    fn kind(&self) -> Kind {
        NODES
    }

    fn name(&self) -> &'static str {
        "kubelet"
    }

    fn reconcile(&self, world: &dyn World, node: &Value) -> Plan {
        let mut plan = Plan::nothing();
        // Nodes that others brought are theirs.
        if tree::is_deleting(node) || !tree::text(node, "/spec/providerID").starts_with("sim://") {
            return plan;
        }
        let down = is_down(node);
        let wanted: [(&str, &str, &str, &str); 4] = match down {
            true => ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]
                .map(|kind| (kind, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")),
            false => [
                (
                    "MemoryPressure",
                    "False",
                    "KubeletHasSufficientMemory",
                    "kubelet has sufficient memory available",
                ),
                ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
                ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
                ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
            ],
        };
        let says = |(kind, status, ..): &(&str, &str, &str, &str)| {
            tree::condition(node, kind).is_some_and(|it| tree::text(it, "/status") == *status)
        };
        if wanted.iter().all(says) {
            return plan;
        }
        let now = tree::time_text(world.now());
        let conditions: Vec<Value> = wanted
            .iter()
            .map(|(kind, status, reason, message)| {
                json!({
                    "type": kind, "status": status, "reason": reason, "message": message,
                    "lastHeartbeatTime": now, "lastTransitionTime": now,
                })
            })
            .collect();
        plan.then(Action::PatchStatus {
            kind: NODES,
            namespace: String::new(),
            name: tree::name(node).into(),
            patch: json!({"metadata": {"uid": tree::uid(node)}, "status": {"conditions": conditions}}),
        });
        plan
    }
}
