//! The table of kinds. A kind is a row; what has none has the generic one.

use std::{borrow::Cow, collections::BTreeMap};

use machinery::resource::ScalePaths;
use serde_json::Value;

use crate::{
    aggregate::{self, Whole},
    health, retain, split, subject,
    types::{Health, MemberStatus, Problem, Share, Split, Subject},
};

/// Where the pods of a kind are described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pods {
    None,
    /// The object is a pod.
    Itself,
    /// In the template at this path.
    Template(&'static str),
}

/// How objects of a kind come into clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Travel {
    /// They are placed: by policies, or else by the default.
    Placed,
    /// They go where the objects are that they refer to, or that refer to them; those that nothing refers to go with
    /// the workloads of their namespace.
    Follows,
    /// They go wherever anything of their namespace is.
    WithNamespace,
    /// Only if a policy selects them.
    IfSelected,
    /// They stay in the hub.
    Stays,
}

pub(crate) type Retain = fn(&mut Value, &Value) -> Result<(), Problem>;

/// What placement and sync know of a kind.
#[derive(Clone)]
pub struct Kind {
    pub group: &'static str,
    /// Empty in the generic row.
    pub kind: &'static str,
    pub travel: Travel,
    /// Where the wanted number of pods stands.
    pub replicas: Option<Cow<'static, str>>,
    pub pods: Pods,
    pub split: Split,
    /// Where the specification of the Job stands, if the kind is one or makes some.
    pub(crate) job: &'static str,
    pub stateful: bool,
    /// Its pods run on every node.
    pub every_node: bool,
    /// Whether its status says which generation it is about.
    pub observes: bool,
    /// What the status of a copy counts, if the definition of the kind says so.
    pub(crate) status_replicas: Option<Cow<'static, str>>,
    /// Reads what it refers to beside what its pods do.
    pub(crate) refer: fn(&Value, &mut Subject) -> Result<(), Problem>,
    /// Takes out of a copy what the hub chose for itself.
    pub(crate) strip: fn(&mut Value),
    /// Keeps in a copy what is the member's to choose.
    pub(crate) retain: Retain,
    pub(crate) health: fn(&Value) -> Health,
    pub(crate) aggregate: fn(&Whole<'_>) -> Value,
}

const PLAIN: Kind = Kind {
    group: "",
    kind: "",
    travel: Travel::IfSelected,
    replicas: None,
    pods: Pods::None,
    split: Split::Whole,
    job: "",
    stateful: false,
    every_node: false,
    observes: false,
    status_replicas: None,
    refer: subject::refers_to_nothing,
    strip: split::strip::nothing_more,
    retain: retain::nothing_more,
    health: health::always,
    aggregate: aggregate::none,
};

const REPLICAS: Option<Cow<'static, str>> = Some(Cow::Borrowed("spec.replicas"));
const TEMPLATE: Pods = Pods::Template("spec.template");

/// Whatever has no row of its own.
static GENERIC: Kind =
    Kind { observes: true, health: health::generic, aggregate: aggregate::generic, ..PLAIN };

const fn row(group: &'static str, kind: &'static str, travel: Travel) -> Kind {
    Kind { group, kind, travel, ..PLAIN }
}

static KINDS: &[Kind] = &[
    Kind {
        replicas: REPLICAS,
        pods: TEMPLATE,
        split: Split::Replicas,
        observes: true,
        strip: split::strip::deployment,
        health: health::deployment,
        aggregate: aggregate::workloads::deployment,
        ..row("apps", "Deployment", Travel::Placed)
    },
    Kind {
        replicas: REPLICAS,
        pods: TEMPLATE,
        split: Split::Replicas,
        observes: true,
        health: health::replica_set,
        aggregate: aggregate::workloads::replica_set,
        ..row("apps", "ReplicaSet", Travel::Placed)
    },
    Kind {
        replicas: REPLICAS,
        pods: TEMPLATE,
        split: Split::Replicas,
        observes: true,
        health: health::replica_set,
        aggregate: aggregate::workloads::replica_set,
        ..row("", "ReplicationController", Travel::Placed)
    },
    Kind {
        replicas: REPLICAS,
        pods: TEMPLATE,
        split: Split::Ordinals,
        stateful: true,
        observes: true,
        refer: subject::claim_templates,
        health: health::stateful_set,
        aggregate: aggregate::workloads::stateful_set,
        ..row("apps", "StatefulSet", Travel::Placed)
    },
    Kind {
        pods: TEMPLATE,
        every_node: true,
        observes: true,
        health: health::daemon_set,
        aggregate: aggregate::workloads::daemon_set,
        ..row("apps", "DaemonSet", Travel::Placed)
    },
    Kind {
        replicas: Some(Cow::Borrowed("spec.parallelism")),
        pods: TEMPLATE,
        split: Split::JobCounts,
        job: "spec",
        strip: split::strip::job,
        retain: retain::job,
        health: health::job,
        aggregate: aggregate::jobs::job,
        ..row("batch", "Job", Travel::Placed)
    },
    Kind {
        replicas: Some(Cow::Borrowed("spec.jobTemplate.spec.parallelism")),
        pods: Pods::Template("spec.jobTemplate.spec.template"),
        split: Split::JobCounts,
        job: "spec.jobTemplate.spec",
        health: health::cron_job,
        aggregate: aggregate::jobs::cron_job,
        ..row("batch", "CronJob", Travel::Placed)
    },
    Kind {
        pods: Pods::Itself,
        strip: split::strip::pod,
        retain: retain::pod,
        health: health::pod,
        aggregate: aggregate::phases::pod,
        ..row("", "Pod", Travel::Placed)
    },
    Kind {
        split: Split::MinMax,
        observes: true,
        refer: subject::autoscaler,
        health: health::autoscaler,
        aggregate: aggregate::autoscaler::autoscaler,
        ..row("autoscaling", "HorizontalPodAutoscaler", Travel::Follows)
    },
    Kind {
        split: Split::Budget,
        observes: true,
        refer: subject::budget,
        health: health::budget,
        aggregate: aggregate::others::budget,
        ..row("policy", "PodDisruptionBudget", Travel::Follows)
    },
    Kind {
        refer: subject::claim,
        strip: split::strip::claim,
        retain: retain::claim,
        health: health::claim,
        aggregate: aggregate::phases::claim,
        ..row("", "PersistentVolumeClaim", Travel::Follows)
    },
    Kind {
        strip: split::strip::volume,
        retain: retain::volume,
        health: health::volume,
        aggregate: aggregate::phases::volume,
        ..row("", "PersistentVolume", Travel::IfSelected)
    },
    Kind {
        refer: subject::service,
        strip: split::strip::service,
        retain: retain::service,
        health: health::service,
        aggregate: aggregate::others::balanced,
        ..row("", "Service", Travel::Follows)
    },
    Kind {
        refer: subject::ingress,
        health: health::ingress,
        aggregate: aggregate::others::balanced,
        ..row("networking.k8s.io", "Ingress", Travel::Follows)
    },
    row("", "ConfigMap", Travel::Follows),
    Kind {
        strip: split::strip::secret,
        retain: retain::secret,
        ..row("", "Secret", Travel::Follows)
    },
    Kind {
        refer: subject::service_account,
        strip: split::strip::service_account,
        retain: retain::service_account,
        ..row("", "ServiceAccount", Travel::Follows)
    },
    Kind { refer: subject::network_policy, ..row("networking.k8s.io", "NetworkPolicy", Travel::Follows) },
    row("", "LimitRange", Travel::WithNamespace),
    Kind {
        strip: split::strip::namespace,
        retain: retain::namespace,
        aggregate: aggregate::as_it_was,
        health: health::namespace,
        ..row("", "Namespace", Travel::WithNamespace)
    },
    // The hub keeps these itself, or the members make their own.
    row("", "ResourceQuota", Travel::Stays),
    row("", "Event", Travel::Stays),
    row("", "Endpoints", Travel::Stays),
    row("", "Node", Travel::Stays),
    row("", "PodTemplate", Travel::Stays),
    row("events.k8s.io", "Event", Travel::Stays),
    row("discovery.k8s.io", "EndpointSlice", Travel::Stays),
    row("coordination.k8s.io", "Lease", Travel::Stays),
    row("apps", "ControllerRevision", Travel::Stays),
    row("rbac.authorization.k8s.io", "Role", Travel::Stays),
    row("rbac.authorization.k8s.io", "RoleBinding", Travel::Stays),
    row("rbac.authorization.k8s.io", "ClusterRole", Travel::Stays),
    row("rbac.authorization.k8s.io", "ClusterRoleBinding", Travel::Stays),
    row("storage.k8s.io", "StorageClass", Travel::Stays),
    row("scheduling.k8s.io", "PriorityClass", Travel::Stays),
    row("networking.k8s.io", "IngressClass", Travel::Stays),
    row("node.k8s.io", "RuntimeClass", Travel::Stays),
    row("apiextensions.k8s.io", "CustomResourceDefinition", Travel::Stays),
    row("apiregistration.k8s.io", "APIService", Travel::Stays),
    row("certificates.k8s.io", "CertificateSigningRequest", Travel::Stays),
    row("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", Travel::Stays),
    row("admissionregistration.k8s.io", "MutatingWebhookConfiguration", Travel::Stays),
    row("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", Travel::Stays),
    row("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding", Travel::Stays),
];

/// The row of a kind; the generic one if it has none.
pub fn of(group: &str, kind: &str) -> &'static Kind {
    KINDS.iter().find(|row| row.kind == kind && row.group == group).unwrap_or(&GENERIC)
}

/// Every kind that has a row.
pub fn known() -> &'static [Kind] {
    KINDS
}

/// The row of a kind that a definition makes: with the paths of its subresource `scale` its replicas are divided.
pub fn generic(scale: Option<ScalePaths>) -> Kind {
    let Some(scale) = scale else { return GENERIC.clone() };
    Kind {
        replicas: Some(Cow::Owned(scale.spec_replicas)),
        status_replicas: Some(Cow::Owned(scale.status_replicas)),
        split: Split::Replicas,
        ..GENERIC.clone()
    }
}

impl Kind {
    /// How an object of this kind does, judged by its own status.
    pub fn health(&self, object: &Value) -> Health {
        (self.health)(object)
    }

    /// The object as each cluster gets it.
    pub fn split(
        &self,
        object: &Value,
        shares: &BTreeMap<String, Share>,
    ) -> Result<BTreeMap<String, Value>, Problem> {
        split::render(self, object, shares)
    }

    /// Keeps in `desired` what is the member's to choose.
    pub fn retain(&self, desired: &mut Value, member: &Value) -> Result<(), Problem> {
        retain::metadata(desired, member);
        (self.retain)(desired, member)
    }

    /// The status of the whole, of what is known of the copies.
    pub fn aggregate(&self, object: &Value, members: &BTreeMap<String, MemberStatus>) -> Value {
        (self.aggregate)(&Whole::new(self, object, members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_one_row_and_others_the_generic_one() {
        for (at, row) in KINDS.iter().enumerate() {
            let same = KINDS.iter().skip(at + 1).find(|it| (it.group, it.kind) == (row.group, row.kind));
            assert!(same.is_none(), "two rows for {}/{}", row.group, row.kind);
            assert_eq!((of(row.group, row.kind).group, of(row.group, row.kind).kind), (row.group, row.kind));
        }
        assert_eq!(of("example.com", "Widget").kind, "");
        assert_eq!(of("extensions", "Deployment").kind, "", "a kind is known by its group too");
    }

    #[test]
    fn what_has_a_scale_is_divided_at_the_paths_its_definition_names() {
        let paths = ScalePaths {
            spec_replicas: ".spec.size".into(),
            status_replicas: ".status.size".into(),
            selector: String::new(),
        };
        let kind = generic(Some(paths));
        let object = serde_json::json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 5},
        });
        assert_eq!(kind.wanted(&object), Some(5));
        assert_eq!(kind.split, Split::Replicas);
        assert_eq!(generic(None).split, Split::Whole);
    }
}
