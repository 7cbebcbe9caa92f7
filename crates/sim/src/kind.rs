//! The kinds that simulated clusters act on.

use store::Collection;

/// Where objects of a kind are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind {
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
}

impl Kind {
    const fn of(
        group: &'static str,
        version: &'static str,
        plural: &'static str,
        kind: &'static str,
        namespaced: bool,
    ) -> Kind {
        Kind { group, version, plural, kind, namespaced }
    }

    pub fn collection(&self) -> Collection {
        Collection::new(self.group, self.plural)
    }

    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// The path of an object, or of all in `namespace` if `name` is empty.
    pub fn path(&self, namespace: &str, name: &str) -> String {
        let mut path = match self.group {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        for part in [if self.namespaced { "namespaces" } else { "" }, namespace, self.plural, name] {
            if !part.is_empty() {
                path.push('/');
                path.push_str(part);
            }
        }
        path
    }

    /// The kind with this collection, of those known here.
    pub fn stored_in(collection: &Collection) -> Option<Kind> {
        let (group, plural) = collection.parts();
        ALL.iter().copied().find(|kind| kind.group == group && kind.plural == plural)
    }

    /// As owner references name it.
    pub fn named(api_version: &str, kind: &str) -> Option<Kind> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        ALL.iter().copied().find(|it| it.group == group && it.kind == kind)
    }
}

pub const PODS: Kind = Kind::of("", "v1", "pods", "Pod", true);
pub const NODES: Kind = Kind::of("", "v1", "nodes", "Node", false);
pub const SERVICES: Kind = Kind::of("", "v1", "services", "Service", true);
pub const ENDPOINTS: Kind = Kind::of("", "v1", "endpoints", "Endpoints", true);
pub const CLAIMS: Kind = Kind::of("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", true);
pub const VOLUMES: Kind = Kind::of("", "v1", "persistentvolumes", "PersistentVolume", false);
pub const REPLICATION_CONTROLLERS: Kind =
    Kind::of("", "v1", "replicationcontrollers", "ReplicationController", true);
pub const EVENTS: Kind = Kind::of("", "v1", "events", "Event", true);
pub const CONFIG_MAPS: Kind = Kind::of("", "v1", "configmaps", "ConfigMap", true);
pub const SECRETS: Kind = Kind::of("", "v1", "secrets", "Secret", true);
pub const NAMESPACES: Kind = Kind::of("", "v1", "namespaces", "Namespace", false);
pub const DEPLOYMENTS: Kind = Kind::of("apps", "v1", "deployments", "Deployment", true);
pub const REPLICA_SETS: Kind = Kind::of("apps", "v1", "replicasets", "ReplicaSet", true);
pub const STATEFUL_SETS: Kind = Kind::of("apps", "v1", "statefulsets", "StatefulSet", true);
pub const DAEMON_SETS: Kind = Kind::of("apps", "v1", "daemonsets", "DaemonSet", true);
pub const REVISIONS: Kind = Kind::of("apps", "v1", "controllerrevisions", "ControllerRevision", true);
pub const JOBS: Kind = Kind::of("batch", "v1", "jobs", "Job", true);
pub const CRON_JOBS: Kind = Kind::of("batch", "v1", "cronjobs", "CronJob", true);
pub const AUTOSCALERS: Kind =
    Kind::of("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", true);
pub const BUDGETS: Kind = Kind::of("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", true);
pub const SLICES: Kind = Kind::of("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true);
pub const STORAGE_CLASSES: Kind = Kind::of("storage.k8s.io", "v1", "storageclasses", "StorageClass", false);

/// Those that controllers have, and look for by whom they are controlled. Pods have an index of their own.
pub const CONTROLLED: &[Kind] = &[REPLICATION_CONTROLLERS, REPLICA_SETS, REVISIONS, JOBS, SLICES];

const ALL: &[Kind] = &[
    PODS,
    NODES,
    SERVICES,
    ENDPOINTS,
    CLAIMS,
    VOLUMES,
    REPLICATION_CONTROLLERS,
    EVENTS,
    NAMESPACES,
    DEPLOYMENTS,
    REPLICA_SETS,
    STATEFUL_SETS,
    DAEMON_SETS,
    REVISIONS,
    JOBS,
    CRON_JOBS,
    AUTOSCALERS,
    BUDGETS,
    SLICES,
    STORAGE_CLASSES,
];
