//! The kinds that are compared.

use std::fmt;

/// A kind and where it is served. Written down here and not read from Hanse's own rows, so that a kind Hanse lacks is
/// noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Empty for the core group.
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub namespaced: bool,
}

/// The namespace that everything namespaced is in.
pub const NAMESPACE: &str = "kinds";

const fn namespaced(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> Kind {
    Kind { group, version, kind, plural, namespaced: true }
}

const fn of_cluster(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> Kind {
    Kind { group, version, kind, plural, namespaced: false }
}

const ADMISSION: &str = "admissionregistration.k8s.io";
const FLOW: &str = "flowcontrol.apiserver.k8s.io";
const NETWORKING: &str = "networking.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const STORAGE: &str = "storage.k8s.io";

pub const KINDS: &[Kind] = &[
    namespaced("", "v1", "ConfigMap", "configmaps"),
    namespaced("", "v1", "Endpoints", "endpoints"),
    namespaced("", "v1", "Event", "events"),
    namespaced("", "v1", "LimitRange", "limitranges"),
    of_cluster("", "v1", "Namespace", "namespaces"),
    of_cluster("", "v1", "Node", "nodes"),
    of_cluster("", "v1", "PersistentVolume", "persistentvolumes"),
    namespaced("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    namespaced("", "v1", "Pod", "pods"),
    namespaced("", "v1", "PodTemplate", "podtemplates"),
    namespaced("", "v1", "ReplicationController", "replicationcontrollers"),
    namespaced("", "v1", "ResourceQuota", "resourcequotas"),
    namespaced("", "v1", "Secret", "secrets"),
    namespaced("", "v1", "Service", "services"),
    namespaced("", "v1", "ServiceAccount", "serviceaccounts"),
    of_cluster(ADMISSION, "v1", "MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
    of_cluster(ADMISSION, "v1", "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"),
    of_cluster(ADMISSION, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    of_cluster(ADMISSION, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
    of_cluster(ADMISSION, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    of_cluster(ADMISSION, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    of_cluster("apiregistration.k8s.io", "v1", "APIService", "apiservices"),
    namespaced("apps", "v1", "ControllerRevision", "controllerrevisions"),
    namespaced("apps", "v1", "DaemonSet", "daemonsets"),
    namespaced("apps", "v1", "Deployment", "deployments"),
    namespaced("apps", "v1", "ReplicaSet", "replicasets"),
    namespaced("apps", "v1", "StatefulSet", "statefulsets"),
    namespaced("autoscaling", "v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
    namespaced("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
    namespaced("batch", "v1", "CronJob", "cronjobs"),
    namespaced("batch", "v1", "Job", "jobs"),
    of_cluster("certificates.k8s.io", "v1", "CertificateSigningRequest", "certificatesigningrequests"),
    namespaced("coordination.k8s.io", "v1", "Lease", "leases"),
    namespaced("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"),
    namespaced("events.k8s.io", "v1", "Event", "events"),
    of_cluster(FLOW, "v1", "FlowSchema", "flowschemas"),
    of_cluster(FLOW, "v1", "PriorityLevelConfiguration", "prioritylevelconfigurations"),
    of_cluster(NETWORKING, "v1", "IPAddress", "ipaddresses"),
    namespaced(NETWORKING, "v1", "Ingress", "ingresses"),
    of_cluster(NETWORKING, "v1", "IngressClass", "ingressclasses"),
    namespaced(NETWORKING, "v1", "NetworkPolicy", "networkpolicies"),
    of_cluster(NETWORKING, "v1", "ServiceCIDR", "servicecidrs"),
    of_cluster("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses"),
    namespaced("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    of_cluster(RBAC, "v1", "ClusterRole", "clusterroles"),
    of_cluster(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings"),
    namespaced(RBAC, "v1", "Role", "roles"),
    namespaced(RBAC, "v1", "RoleBinding", "rolebindings"),
    of_cluster("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses"),
    of_cluster(STORAGE, "v1", "CSIDriver", "csidrivers"),
    of_cluster(STORAGE, "v1", "CSINode", "csinodes"),
    namespaced(STORAGE, "v1", "CSIStorageCapacity", "csistoragecapacities"),
    of_cluster(STORAGE, "v1", "StorageClass", "storageclasses"),
    of_cluster(STORAGE, "v1", "VolumeAttachment", "volumeattachments"),
    of_cluster(STORAGE, "v1", "VolumeAttributesClass", "volumeattributesclasses"),
];

impl Kind {
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Where objects are created.
    pub fn collection(&self) -> String {
        let version = match self.group {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        match self.namespaced {
            true => format!("{version}/namespaces/{NAMESPACE}/{}", self.plural),
            false => format!("{version}/{}", self.plural),
        }
    }

    /// Controllers write to new objects of these kinds: inside the real server or beside it, and inside Hanse.
    pub fn is_written_by_controllers(&self) -> bool {
        matches!(
            self.kind,
            "APIService"
                | "ClusterRole"
                | "FlowSchema"
                | "PriorityLevelConfiguration"
                | "ResourceQuota"
                | "Secret"
                | "ServiceCIDR"
                | "ValidatingAdmissionPolicy"
        )
    }

    /// Objects of other kinds are judged by those of these, so that they must not stay.
    pub fn rules_others(&self) -> bool {
        matches!(self.kind, "LimitRange" | "ResourceQuota")
    }

    /// The kind that an object says it is.
    pub fn of(object: &serde_json::Value) -> Option<&'static Kind> {
        KINDS.iter().find(|kind| object["kind"] == kind.kind && object["apiVersion"] == kind.api_version())
    }
}

/// `apps.v1.Deployment`, as upstream's own files have it.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = if self.group.is_empty() { "core" } else { self.group };
        write!(f, "{group}.{}.{}", self.version, self.kind)
    }
}
