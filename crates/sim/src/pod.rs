//! A pod as controllers need it: small, because there are many.

use compact_str::CompactString;
use jiff::Timestamp;
use machinery::Object;
use serde_json::Value;

use crate::tree;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

/// Who controls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    pub kind: CompactString,
    pub name: CompactString,
    pub uid: CompactString,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    pub name: CompactString,
    pub number: u16,
    pub protocol: CompactString,
}

/// A port that a container takes on its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// Empty: all that the node has.
    pub address: CompactString,
    pub protocol: CompactString,
    pub number: i64,
}

impl HostPort {
    pub fn clashes(&self, other: &HostPort) -> bool {
        let is_all = |it: &HostPort| matches!(it.address.as_str(), "" | "0.0.0.0");
        self.number == other.number
            && self.protocol == other.protocol
            && (is_all(self) || is_all(other) || self.address == other.address)
    }
}

/// Keeps a pod until its Job has counted it.
pub const JOB_TRACKING: &str = "batch.kubernetes.io/job-tracking";
pub const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";

#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    pub namespace: CompactString,
    pub name: CompactString,
    pub uid: CompactString,
    pub labels: Box<[(CompactString, CompactString)]>,
    pub controller: Option<Controller>,
    /// Empty: not bound yet.
    pub node: CompactString,
    pub phase: Phase,
    pub ready: bool,
    /// Since when it is ready, or is not.
    pub ready_changed: Option<Timestamp>,
    pub created: Option<Timestamp>,
    /// When it is to be gone, if it is being deleted.
    pub terminating: Option<Timestamp>,
    /// Why it is not as it should be, of its status.
    pub reason: CompactString,
    pub ip: CompactString,
    pub restarts: u32,
    /// The most restarts of one container, and of one that runs beside all others from the start.
    pub most_restarts: (u32, u32),
    /// When a node took it up.
    pub started: Option<Timestamp>,
    pub hostname: CompactString,
    pub subdomain: CompactString,
    /// Ports of its containers that have names.
    pub ports: Box<[Port]>,
    /// The lower, the sooner its ReplicaSet gives it up.
    pub deletion_cost: i32,
    /// Which part of an indexed Job it does.
    pub completion_index: Option<u32>,
    /// Its Job has not counted it yet.
    pub is_tracked: bool,
    pub priority: i32,
    /// No node was found for it.
    pub was_refused: bool,
    /// The node that it is to get, when others have gone for it.
    pub nominated: Option<Box<str>>,
    pub host_ports: Box<[HostPort]>,
    /// It wants to be away from others, which must be away from it then.
    pub repels: bool,
    /// Requested by its containers, as the scheduler counts: (resource, amount); cpu in thousandths, others whole.
    pub requests: Box<[(CompactString, u64)]>,
}

impl Pod {
    /// `None` if the object is no pod that the API server would store.
    pub fn read(object: &Object) -> Option<Pod> {
        let tree = Value::Object(object.tree().ok()?);
        Some(Pod::of(&tree))
    }

    pub fn of(tree: &Value) -> Pod {
        let text = |pointer: &str| CompactString::from(tree::text(tree, pointer));
        let labels = tree::members(tree, "/metadata/labels")
            .map(|(key, value)| (key.into(), value.as_str().unwrap_or_default().into()))
            .collect();
        let ready = tree::condition(tree, "Ready");
        Pod {
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
            labels,
            controller: tree::controller(tree).map(|owner| Controller {
                kind: tree::text(owner, "/kind").into(),
                name: tree::text(owner, "/name").into(),
                uid: tree::text(owner, "/uid").into(),
            }),
            node: text("/spec/nodeName"),
            phase: match tree::text(tree, "/status/phase") {
                "Running" => Phase::Running,
                "Succeeded" => Phase::Succeeded,
                "Failed" => Phase::Failed,
                _ => Phase::Pending,
            },
            ready: ready.is_some_and(|condition| tree::text(condition, "/status") == "True"),
            ready_changed: ready.and_then(|condition| tree::time(condition, "/lastTransitionTime")),
            created: tree::time(tree, "/metadata/creationTimestamp"),
            terminating: tree::time(tree, "/metadata/deletionTimestamp"),
            reason: text("/status/reason"),
            ip: text("/status/podIP"),
            restarts: tree::items(tree, "/status/containerStatuses")
                .map(|status| tree::number(status, "/restartCount").unwrap_or(0))
                .sum::<i64>()
                .try_into()
                .unwrap_or(u32::MAX),
            most_restarts: most_restarts(tree),
            started: tree::time(tree, "/status/startTime"),
            hostname: text("/spec/hostname"),
            subdomain: text("/spec/subdomain"),
            ports: named_ports(tree),
            deletion_cost: tree::annotation(tree, "controller.kubernetes.io/pod-deletion-cost")
                .parse()
                .unwrap_or(0),
            completion_index: tree::annotation(tree, COMPLETION_INDEX).parse().ok(),
            is_tracked: tree::items(tree, "/metadata/finalizers").any(|name| name == JOB_TRACKING),
            priority: tree::number(tree, "/spec/priority").unwrap_or(0) as i32,
            was_refused: tree::condition(tree, "PodScheduled")
                .is_some_and(|condition| tree::text(condition, "/status") == "False"),
            nominated: Some(tree::text(tree, "/status/nominatedNodeName"))
                .filter(|it| !it.is_empty())
                .map(Box::from),
            host_ports: tree::host_ports(tree),
            repels: tree
                .pointer("/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution")
                .is_some(),
            requests: tree::requests(tree),
        }
    }

    /// It has ended, or is about to: it does not count any more.
    pub fn is_active(&self) -> bool {
        !self.is_finished() && self.terminating.is_none()
    }

    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Ready for so long that a rollout may count on it.
    pub fn is_available(&self, min_ready_seconds: i64, now: Timestamp) -> bool {
        let long_enough = |since: Timestamp| now.duration_since(since).as_secs() >= min_ready_seconds;
        self.ready && (min_ready_seconds <= 0 || self.ready_changed.is_some_and(long_enough))
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    pub fn is_controlled_by(&self, uid: &str) -> bool {
        self.controller.as_ref().is_some_and(|controller| controller.uid == uid)
    }
}

fn named_ports(tree: &Value) -> Box<[Port]> {
    let beside = tree::items(tree, "/spec/initContainers").filter(|container| stays(container));
    let containers = tree::items(tree, "/spec/containers").chain(beside);
    let ports = containers.flat_map(|container| tree::items(container, "/ports"));
    let port = |port: &Value| {
        let name = tree::text(port, "/name");
        let number = tree::number(port, "/containerPort").and_then(|number| u16::try_from(number).ok())?;
        let protocol = match tree::text(port, "/protocol") {
            "" => "TCP",
            protocol => protocol,
        };
        (!name.is_empty()).then(|| Port { name: name.into(), number, protocol: protocol.into() })
    };
    ports.filter_map(port).collect()
}

fn most_restarts(tree: &Value) -> (u32, u32) {
    let restarts =
        |status: &Value| u32::try_from(tree::number(status, "/restartCount").unwrap_or(0)).unwrap_or(0);
    let regular = tree::items(tree, "/status/containerStatuses").map(restarts).max().unwrap_or(0);
    let stays = |status: &&Value| {
        let name = tree::text(status, "/name");
        tree::items(tree, "/spec/initContainers").any(|it| stays(it) && tree::text(it, "/name") == name)
    };
    let beside =
        tree::items(tree, "/status/initContainerStatuses").filter(stays).map(restarts).max().unwrap_or(0);
    (regular, beside)
}

/// An init container that runs beside all that follow it.
fn stays(container: &Value) -> bool {
    tree::text(container, "/restartPolicy") == "Always"
}
