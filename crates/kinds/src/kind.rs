//! The table of kinds. A kind is a row; what has none has the generic one.

use std::{collections::BTreeMap, ops::Deref};

use machinery::resource::ScalePaths;
use serde_json::Value;

use crate::{
    aggregate::{self, Whole},
    fields::at,
    health, split, subject,
    types::{Health, MemberStatus, Problem, Share, Split, Subject, Travel},
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

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub group: &'static str,
    /// Empty in the generic row.
    pub kind: &'static str,
    pub travel: Travel,
    /// Where the wanted number of pods stands.
    replicas: Option<&'static str>,
    pub pods: Pods,
    pub split: Split,
    /// Where the specification of the Job stands, if the kind is one or makes some.
    pub(crate) job: &'static str,
    pub stateful: bool,
    /// Its pods run on every node.
    pub every_node: bool,
    /// Whether its status says which generation it is about.
    pub observes: bool,
    /// Reads what it refers to beside what its pods do.
    pub(crate) refer: fn(&Value, &mut Subject) -> Result<(), Problem>,
    /// Takes out of a copy what the hub chose for itself. Applied without it, that is the member's to choose, and stays as
    /// the member has it.
    pub(crate) strip: fn(&mut Value),
    pub(crate) health: fn(&Value) -> Health,
    pub(crate) aggregate: fn(&Whole<'_>) -> Value,
}

/// What placement and sync know of a kind: its row, and what its definition says if it has no row of its own.
#[derive(Clone, Debug)]
pub struct Kind {
    row: &'static Row,
    scale: Option<ScalePaths>,
}

impl Deref for Kind {
    type Target = Row;

    fn deref(&self) -> &Row {
        self.row
    }
}

const PLAIN: Row = Row {
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
    refer: subject::refers_to_nothing,
    strip: split::strip::nothing_more,
    health: health::always,
    aggregate: aggregate::none,
};

const REPLICAS: Option<&str> = Some("spec.replicas");
const TEMPLATE: Pods = Pods::Template("spec.template");

/// What Kubernetes makes in every namespace.
pub(crate) const MADE_EVERYWHERE: [(&str, &str, &str); 2] =
    [("", "ServiceAccount", "default"), ("", "ConfigMap", "kube-root-ca.crt")];

/// Whatever has no row of its own.
static GENERIC: Row = Row { observes: true, health: health::generic, aggregate: aggregate::generic, ..PLAIN };

/// Whatever has no row but a subresource `scale`.
static SCALED: Row = Row { split: Split::Replicas, ..GENERIC };

const fn row(group: &'static str, kind: &'static str, travel: Travel) -> Row {
    Row { group, kind, travel, ..PLAIN }
}

static ROWS: &[Row] = &[
    Row {
        replicas: REPLICAS,
        pods: TEMPLATE,
        split: Split::Replicas,
        observes: true,
        strip: split::strip::deployment,
        health: health::deployment,
        aggregate: aggregate::workloads::deployment,
        ..row("apps", "Deployment", Travel::Placed)
    },
    Row {
        replicas: REPLICAS,
        pods: TEMPLATE,
        split: Split::Replicas,
        observes: true,
        health: health::replica_set,
        aggregate: aggregate::workloads::replica_set,
        ..row("apps", "ReplicaSet", Travel::Placed)
    },
    Row {
        replicas: REPLICAS,
        pods: TEMPLATE,
        split: Split::Replicas,
        observes: true,
        health: health::replica_set,
        aggregate: aggregate::workloads::replica_set,
        ..row("", "ReplicationController", Travel::Placed)
    },
    Row {
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
    Row {
        pods: TEMPLATE,
        every_node: true,
        observes: true,
        health: health::daemon_set,
        aggregate: aggregate::workloads::daemon_set,
        ..row("apps", "DaemonSet", Travel::Placed)
    },
    Row {
        replicas: Some("spec.parallelism"),
        pods: TEMPLATE,
        split: Split::JobCounts,
        job: "spec",
        strip: split::strip::job,
        health: health::job,
        aggregate: aggregate::jobs::job,
        ..row("batch", "Job", Travel::Placed)
    },
    Row {
        replicas: Some("spec.jobTemplate.spec.parallelism"),
        pods: Pods::Template("spec.jobTemplate.spec.template"),
        split: Split::JobCounts,
        job: "spec.jobTemplate.spec",
        health: health::cron_job,
        aggregate: aggregate::jobs::cron_job,
        ..row("batch", "CronJob", Travel::Placed)
    },
    Row {
        pods: Pods::Itself,
        strip: split::strip::pod,
        health: health::pod,
        aggregate: aggregate::phases::pod,
        ..row("", "Pod", Travel::Placed)
    },
    Row {
        split: Split::MinMax,
        observes: true,
        refer: subject::autoscaler,
        health: health::autoscaler,
        aggregate: aggregate::autoscaler::autoscaler,
        ..row("autoscaling", "HorizontalPodAutoscaler", Travel::Follows)
    },
    Row {
        split: Split::Budget,
        observes: true,
        refer: subject::budget,
        health: health::budget,
        aggregate: aggregate::others::budget,
        ..row("policy", "PodDisruptionBudget", Travel::Follows)
    },
    Row {
        refer: subject::claim,
        strip: split::strip::claim,
        health: health::claim,
        aggregate: aggregate::phases::claim,
        ..row("", "PersistentVolumeClaim", Travel::Follows)
    },
    Row {
        strip: split::strip::volume,
        health: health::volume,
        aggregate: aggregate::phases::volume,
        ..row("", "PersistentVolume", Travel::Named)
    },
    Row { strip: split::strip::class, ..row("storage.k8s.io", "StorageClass", Travel::Named) },
    Row { strip: split::strip::class, ..row("scheduling.k8s.io", "PriorityClass", Travel::Named) },
    Row { strip: split::strip::class, ..row("networking.k8s.io", "IngressClass", Travel::Named) },
    row("node.k8s.io", "RuntimeClass", Travel::Named),
    Row {
        refer: subject::service,
        strip: split::strip::service,
        health: health::service,
        aggregate: aggregate::others::balanced,
        ..row("", "Service", Travel::Follows)
    },
    Row {
        refer: subject::ingress,
        health: health::ingress,
        aggregate: aggregate::others::balanced,
        ..row("networking.k8s.io", "Ingress", Travel::Follows)
    },
    // Those that somebody wrote: controllers of members make the others, in the members.
    Row { refer: subject::endpoint_slice, ..row("discovery.k8s.io", "EndpointSlice", Travel::Follows) },
    row("", "ConfigMap", Travel::Follows),
    Row { strip: split::strip::secret, ..row("", "Secret", Travel::Follows) },
    Row {
        refer: subject::service_account,
        strip: split::strip::service_account,
        ..row("", "ServiceAccount", Travel::Follows)
    },
    Row { refer: subject::network_policy, ..row("networking.k8s.io", "NetworkPolicy", Travel::Follows) },
    row("", "LimitRange", Travel::WithNamespace),
    Row {
        strip: split::strip::namespace,
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
    row("storage.k8s.io", "CSIStorageCapacity", Travel::Stays),
    row("coordination.k8s.io", "Lease", Travel::Stays),
    row("apps", "ControllerRevision", Travel::Stays),
    row("rbac.authorization.k8s.io", "Role", Travel::Stays),
    row("rbac.authorization.k8s.io", "RoleBinding", Travel::Stays),
    row("rbac.authorization.k8s.io", "ClusterRole", Travel::Stays),
    row("rbac.authorization.k8s.io", "ClusterRoleBinding", Travel::Stays),
    row("apiextensions.k8s.io", "CustomResourceDefinition", Travel::Stays),
    row("apiregistration.k8s.io", "APIService", Travel::Stays),
    row("certificates.k8s.io", "CertificateSigningRequest", Travel::Stays),
    row("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", Travel::Stays),
    row("admissionregistration.k8s.io", "MutatingWebhookConfiguration", Travel::Stays),
    row("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", Travel::Stays),
    row("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding", Travel::Stays),
];

/// What is known of a kind; what holds for any if it has no row.
pub fn of(group: &str, kind: &str) -> Kind {
    let row = ROWS.iter().find(|row| row.kind == kind && row.group == group);
    Kind { row: row.unwrap_or(&GENERIC), scale: None }
}

/// Every kind that has a row.
pub fn known() -> &'static [Row] {
    ROWS
}

/// What is known of a kind that a definition makes: with the paths of its subresource `scale` its replicas are divided.
pub fn generic(scale: Option<ScalePaths>) -> Kind {
    Kind { row: if scale.is_some() { &SCALED } else { &GENERIC }, scale }
}

impl Kind {
    /// Where the wanted number of pods stands.
    pub fn replicas(&self) -> Option<&str> {
        self.scale.as_ref().map(|scale| scale.spec_replicas.as_str()).or(self.row.replicas)
    }

    /// Where the status counts them, if the definition of the kind says so.
    pub(crate) fn status_replicas(&self) -> Option<&str> {
        self.scale.as_ref().map(|scale| scale.status_replicas.as_str())
    }

    /// Whether it runs once: its completions cannot be changed after it has begun.
    pub fn is_job(&self) -> bool {
        self.job == "spec"
    }

    /// How an object of this kind and name comes into clusters: what Kubernetes makes in every namespace by itself,
    /// members have already.
    pub fn travel(&self, name: &str) -> Travel {
        match MADE_EVERYWHERE.contains(&(self.group, self.kind, name)) {
            true => Travel::Stays,
            false => self.row.travel,
        }
    }

    /// How an object of this kind does, judged by its own status.
    pub fn health(&self, object: &Value) -> Health {
        if at(object, "metadata.deletionTimestamp").is_some() {
            return Health::Progressing("it is being deleted".to_owned());
        }
        (self.health)(object)
    }

    /// The object as each cluster gets it.
    pub fn split(
        &self,
        object: &Value,
        shares: &BTreeMap<String, Share>,
    ) -> Result<BTreeMap<String, Value>, Problem> {
        split::render(self, object, shares, None)
    }

    /// What [`Kind::split`] has for one cluster; `None`: it gets none of it.
    pub fn split_for(
        &self,
        object: &Value,
        shares: &BTreeMap<String, Share>,
        cluster: &str,
    ) -> Result<Option<Value>, Problem> {
        Ok(split::render(self, object, shares, Some(cluster))?.remove(cluster))
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
        for (at, row) in ROWS.iter().enumerate() {
            let same = ROWS.iter().skip(at + 1).find(|it| (it.group, it.kind) == (row.group, row.kind));
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
