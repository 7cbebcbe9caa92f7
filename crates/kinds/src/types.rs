//! The words that placement, sync and this crate share.

use std::collections::{BTreeMap, BTreeSet};

use machinery::{
    admission::amounts::Amounts,
    selector::{LabelSelector, Requirement},
};
use serde_json::Value;

/// Amounts by the name of the resource: `cpu`, `memory`, `pods` …
pub type Resources = Amounts;

/// Says why an object cannot be read as its kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("the object has no {0}")]
    Missing(&'static str),
    #[error("{field}: {reason}")]
    Invalid { field: String, reason: String },
    /// A part of it cannot be divided as the shares ask.
    #[error("cannot be divided: {0}")]
    Indivisible(String),
}

/// How an object that is in several clusters is divided between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Split {
    /// Each cluster gets all of it.
    #[default]
    Whole,
    /// Each cluster runs some of the replicas.
    Replicas,
    /// Each cluster runs a range of the ordinals.
    Ordinals,
    /// Parallelism and completions.
    JobCounts,
    /// The bounds of an autoscaler.
    MinMax,
    /// A budget of disruptions: follows the division of the pods it is about.
    Budget,
}

/// How much of a kind there is beside its replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    #[default]
    None,
    /// The first ordinal of a StatefulSet; `replicas` says how many there are.
    Ordinals { start: u64 },
    /// A Job; its parallelism is in `replicas`.
    Job { completions: Option<u64>, indexed: bool },
    /// An autoscaler.
    Bounds { min: u64, max: u64 },
}

/// A kind of class, cluster-scoped, that a pod or claim or ingress names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClassKind {
    StorageClass,
    PriorityClass,
    IngressClass,
    RuntimeClass,
}

impl ClassKind {
    pub const ALL: [ClassKind; 4] =
        [ClassKind::StorageClass, ClassKind::PriorityClass, ClassKind::IngressClass, ClassKind::RuntimeClass];

    pub fn group(self) -> &'static str {
        match self {
            ClassKind::StorageClass => "storage.k8s.io",
            ClassKind::PriorityClass => "scheduling.k8s.io",
            ClassKind::IngressClass => "networking.k8s.io",
            ClassKind::RuntimeClass => "node.k8s.io",
        }
    }

    pub fn kind(self) -> &'static str {
        match self {
            ClassKind::StorageClass => "StorageClass",
            ClassKind::PriorityClass => "PriorityClass",
            ClassKind::IngressClass => "IngressClass",
            ClassKind::RuntimeClass => "RuntimeClass",
        }
    }

    /// `None`: it is no class.
    pub fn of(group: &str, kind: &str) -> Option<ClassKind> {
        ClassKind::ALL.into_iter().find(|it| (it.group(), it.kind()) == (group, kind))
    }
}

/// An object that is named by another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    pub group: String,
    pub kind: String,
    pub name: String,
}

impl Target {
    pub fn class(kind: ClassKind, name: &str) -> Target {
        Target { group: kind.group().to_owned(), kind: kind.kind().to_owned(), name: name.to_owned() }
    }

    fn volume(name: &str) -> Target {
        Target { group: String::new(), kind: "PersistentVolume".to_owned(), name: name.to_owned() }
    }
}

/// What an object names, in its own namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    pub config_maps: BTreeSet<String>,
    pub secrets: BTreeSet<String>,
    pub service_accounts: BTreeSet<String>,
    pub claims: BTreeSet<String>,
    pub services: BTreeSet<String>,
    /// The volumes that a claim is for, which are in no namespace.
    pub volumes: BTreeSet<String>,
    /// What an autoscaler scales.
    pub targets: BTreeSet<Target>,
    /// The pods that a Service, a budget or a NetworkPolicy is about.
    pub pods: Option<LabelSelector>,
}

/// Requirements on a node, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTerm {
    pub labels: Vec<Requirement>,
    /// Names a node, or another field of it: nothing that holds of a cluster.
    pub names_node: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreferredTerm {
    pub weight: i64,
    pub term: NodeTerm,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toleration {
    /// Empty: any, if the operator is `Exists`.
    pub key: String,
    pub operator: String,
    pub value: String,
    /// Empty: any.
    pub effect: String,
    pub seconds: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpreadConstraint {
    pub topology_key: String,
    pub max_skew: u64,
    pub min_domains: Option<u64>,
    /// `ScheduleAnyway` is false.
    pub required: bool,
}

/// How objects come into clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Travel {
    /// They are placed: by policies, or else by the default.
    Placed,
    /// They go where the objects are that they refer to, or that refer to them; those that nothing refers to go with
    /// the workloads of their namespace.
    Follows,
    /// They go wherever anything of their namespace is.
    WithNamespace,
    /// They are in no namespace, and go where objects of any namespace are that name them.
    Named,
    /// Only if a policy selects them.
    #[default]
    IfSelected,
    /// They stay in the hub.
    Stays,
}

/// What placement needs to know of an object, read once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub travel: Travel,
    /// Wanted copies of a pod; `None`: the kind has none.
    pub replicas: Option<u64>,
    pub extent: Extent,
    /// What one replica asks for, `pods: 1` included. Empty for what runs no pods.
    pub needs: Resources,
    pub node_selector: BTreeMap<String, String>,
    /// One of these must hold; `None`: nothing is asked.
    pub required_affinity: Option<Vec<NodeTerm>>,
    pub preferred_affinity: Vec<PreferredTerm>,
    pub tolerations: Vec<Toleration>,
    pub spread: Vec<SpreadConstraint>,
    /// The classes it names, which a cluster must have.
    pub classes: BTreeSet<(ClassKind, String)>,
    /// The labels of its pods, by which Services, budgets and NetworkPolicies find them.
    pub pod_labels: BTreeMap<String, String>,
    pub references: References,
    pub splits: Split,
    /// Its pods have names and volumes of their own.
    pub stateful: bool,
    /// Its pods run on every node: it has no replicas to divide, and with no policy is in every cluster.
    pub every_node: bool,
    /// Its pods mount claims, or it makes some for them.
    pub mounts_volumes: bool,
}

impl Subject {
    /// Itself, as others name it.
    pub fn target(&self) -> Target {
        Target { group: self.group.clone(), kind: self.kind.clone(), name: self.name.clone() }
    }

    /// What it names that is in no namespace.
    pub fn named(&self) -> BTreeSet<Target> {
        let classes = self.classes.iter().map(|(kind, name)| Target::class(*kind, name));
        classes.chain(self.references.volumes.iter().map(|name| Target::volume(name))).collect()
    }
}

/// Types of Secrets that are good in the hub alone, and never leave it.
pub const HUB_CREDENTIALS: [&str; 2] =
    ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"];

/// What one cluster gets of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Replicas; the parallelism of a Job; the pods that a budget is about.
    pub replicas: u64,
    /// Asked for beyond these, though there is no room for them now: so it is noticed when there is.
    pub overflow: u64,
    /// Of a Job.
    pub completions: Option<u64>,
    /// Of a Job: how many copies there were before, each of which did its part.
    pub run: u64,
    /// Of a StatefulSet: the first of its `replicas` ordinals.
    pub ordinals: Option<u64>,
    /// Of an autoscaler.
    pub min: Option<u64>,
    pub max: Option<u64>,
}

/// How an object does, judged by its own status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Healthy,
    /// On its way; why it is not there yet.
    Progressing(String),
    /// It will not get there without help.
    Degraded(String),
    /// Stopped on purpose.
    Suspended,
    /// Nothing is known.
    Unknown(String),
}

/// What is known of the copy of an object in one cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemberStatus {
    /// What is assigned to the cluster.
    pub assigned: Share,
    /// The `metadata.generation` of the copy in the member.
    pub generation: i64,
    /// The generation of the hub's object from which the copy was made; 0: none was made yet.
    pub source_generation: i64,
    /// The `status` of the copy; `Null` if none was seen.
    pub status: Value,
    /// Whether the cluster answers. If not, `status` is what was seen last.
    pub reachable: bool,
    /// Whether it is to lose its copy: what is still there counts, but nothing waits for it.
    pub leaving: bool,
}
