//! What others wrote for Kubernetes federation, said in Hanse's words: their kinds are served as they are, and each is a
//! thin translation.
//!
//! ```text
//!   FederatedX (+ Placement, Override, ReplicaSchedulingPreference, FederatedNamespace)
//!        │ federated::read                                       ▲ report::pass
//!        ▼                                                       │
//!   Federated ── translate ──> X, with `hanse.io/federated` ──> Assignment
//!
//!   KubeFedCluster, Cluster of the registry ── members ──> Cluster
//! ```
//!
//! Pure: the API server serves [`rows`], and its controller brings about what is said here.

mod deletion;
pub mod federated;
pub mod members;
pub mod report;
mod rows;
mod schema;
pub mod translate;
pub mod types;

pub use deletion::{DeleteOption, Owned, delete_option};
pub use federated::Federated;
pub use rows::rows;
pub use types::{FederatedType, Form};

/// The later, unified form: `Federated<Kind>` with template, placement and overrides.
pub const TYPES_GROUP: &str = "types.kubefed.io";
pub const CORE_GROUP: &str = "core.kubefed.io";
pub const SCHEDULING_GROUP: &str = "scheduling.kubefed.io";
/// The first form, of three objects; overrides have one typed field.
pub const TYPED_GROUP: &str = "core.federation.k8s.io";
/// The next, of three objects; overrides have a path in dots and a value.
pub const DOTTED_GROUP: &str = "primitives.federation.k8s.io";
pub const REGISTRY_GROUP: &str = "clusterregistry.k8s.io";

/// The namespace of KubeFed's own objects.
pub const SYSTEM_NAMESPACE: &str = "kube-federation-system";
/// Where entries of the registry are, for all to see.
pub const REGISTRY_NAMESPACE: &str = "kube-multicluster-public";
/// Where controllers of the registry keep what is theirs, such as Secrets.
pub const REGISTRY_SYSTEM_NAMESPACE: &str = "kube-multicluster-system";
/// Nothing in these goes to members.
pub const RESERVED_NAMESPACES: [&str; 3] = [SYSTEM_NAMESPACE, REGISTRY_NAMESPACE, REGISTRY_SYSTEM_NAMESPACE];

/// On a federated object: its copies are to go before it does.
pub const FINALIZER: &str = "kubefed.io/sync-controller";
/// On copies: `true` if they are looked after; whoever writes `false` there wants them left alone.
pub const MANAGED_LABEL: &str = "kubefed.io/managed";
/// On a federated object: with `true`, copies stay when it is deleted.
pub const ORPHAN_ANNOTATION: &str = "kubefed.io/orphan";
/// On a federated object: options for the deletion of its copies, as JSON.
pub const DELETE_OPTION_ANNOTATION: &str = "kubefed.io/deleteoption";

/// Where kinds of a group stand among all: a name without its group means the first that has it, and of a dialect's the later
/// form, which is the one in use.
pub fn place(group: &str) -> u8 {
    match group {
        TYPES_GROUP => 1,
        _ if is_dialect(group) => 2,
        _ => 0,
    }
}

/// Whether kinds of a group are a dialect's.
pub fn is_dialect(group: &str) -> bool {
    [TYPES_GROUP, CORE_GROUP, SCHEDULING_GROUP, TYPED_GROUP, DOTTED_GROUP, REGISTRY_GROUP].contains(&group)
}
