//! What a pod, or the template of pods, needs and names.

use compact_str::CompactString;
use machinery::{
    admission::amounts::{self, PodLevel, PodOptions},
    quantity::{Format, Quantity},
    selector::{Operator, Requirement},
};
use serde_json::Value;
use smallvec::SmallVec;

use super::{add, class, texts};
use crate::{
    fields::{at, count, list, text},
    types::{ClassKind, NodeTerm, PreferredTerm, References, SpreadConstraint, Subject, Toleration},
};

/// Reads a pod or a template: both have `metadata` and `spec`.
pub(super) fn read(pod: &Value, subject: &mut Subject) {
    let spec = at(pod, "spec").unwrap_or(&Value::Null);
    subject.needs = needs(pod);
    subject.pod_labels = texts(pod, "metadata.labels");
    subject.node_selector = texts(spec, "nodeSelector");
    subject.required_affinity = required(spec);
    subject.preferred_affinity = preferred(spec);
    subject.tolerations = list(spec, "tolerations").iter().map(toleration).collect();
    subject.spread = list(spec, "topologySpreadConstraints").iter().map(spread).collect();
    class(subject, ClassKind::PriorityClass, text(spec, "priorityClassName"));
    class(subject, ClassKind::RuntimeClass, text(spec, "runtimeClassName"));
    refer(spec, subject);
}

/// By the rule of the scheduler: containers together, or the init container that needs most, and the overhead.
fn needs(pod: &Value) -> amounts::Amounts {
    let options = PodOptions { with_status: false, with_overhead: true, level: PodLevel::Full };
    let mut needs = pod.as_object().map(|pod| amounts::of_pod(pod, "requests", options)).unwrap_or_default();
    needs.insert("pods".to_owned(), Quantity::new(1, Format::DecimalSi));
    needs
}

fn required(spec: &Value) -> Option<Vec<NodeTerm>> {
    let required = at(spec, "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution")?;
    Some(list(required, "nodeSelectorTerms").iter().filter_map(node_term).collect())
}

fn preferred(spec: &Value) -> Vec<PreferredTerm> {
    let preferred = list(spec, "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution");
    let term = |each: &Value| {
        let weight = at(each, "weight").and_then(Value::as_i64).unwrap_or(0);
        Some(PreferredTerm { weight, term: node_term(at(each, "preference")?)? })
    };
    preferred.iter().filter_map(term).collect()
}

/// `None`: it matches nothing. So does a term that asks for nothing, and, as for the scheduler, one that asks for what no
/// label can be: the API takes those.
fn node_term(term: &Value) -> Option<NodeTerm> {
    let labels: Option<Vec<Requirement>> = list(term, "matchExpressions").iter().map(requirement).collect();
    let labels = labels?;
    let names_node = !list(term, "matchFields").is_empty();
    (!labels.is_empty() || names_node).then_some(NodeTerm { labels, names_node })
}

fn requirement(expression: &Value) -> Option<Requirement> {
    let operator = match text(expression, "operator") {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::GreaterThan,
        "Lt" => Operator::LessThan,
        _ => return None,
    };
    let values: SmallVec<[CompactString; 1]> =
        list(expression, "values").iter().filter_map(|value| value.as_str().map(Into::into)).collect();
    Requirement::new(text(expression, "key"), operator, values).ok()
}

fn toleration(toleration: &Value) -> Toleration {
    let own = |key| text(toleration, key).to_owned();
    Toleration {
        key: own("key"),
        operator: own("operator"),
        value: own("value"),
        effect: own("effect"),
        seconds: at(toleration, "tolerationSeconds").and_then(Value::as_i64),
    }
}

fn spread(constraint: &Value) -> SpreadConstraint {
    SpreadConstraint {
        topology_key: text(constraint, "topologyKey").to_owned(),
        max_skew: count(constraint, "maxSkew").unwrap_or(1).max(1),
        min_domains: count(constraint, "minDomains"),
        required: text(constraint, "whenUnsatisfiable") != "ScheduleAnyway",
    }
}

fn refer(spec: &Value, subject: &mut Subject) {
    let References { config_maps, secrets, service_accounts, .. } = &mut subject.references;
    add(service_accounts, text(spec, "serviceAccountName"));
    for secret in list(spec, "imagePullSecrets") {
        add(secrets, text(secret, "name"));
    }
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    for container in lists.into_iter().flat_map(|path| list(spec, path)) {
        let sources = list(container, "envFrom").iter();
        for source in sources.chain(list(container, "env").iter().filter_map(|it| at(it, "valueFrom"))) {
            for path in ["configMapRef.name", "configMapKeyRef.name"] {
                add(config_maps, text(source, path));
            }
            for path in ["secretRef.name", "secretKeyRef.name"] {
                add(secrets, text(source, path));
            }
        }
    }
    for volume in list(spec, "volumes") {
        read_volume(volume, subject);
    }
}

/// Where volumes of the old in-tree kinds name a Secret.
const VOLUME_SECRETS: [&str; 10] = [
    "secret.secretName",
    "azureFile.secretName",
    "cephfs.secretRef.name",
    "csi.nodePublishSecretRef.name",
    "flexVolume.secretRef.name",
    "iscsi.secretRef.name",
    "rbd.secretRef.name",
    "scaleIO.secretRef.name",
    "storageos.secretRef.name",
    "cinder.secretRef.name",
];

fn read_volume(volume: &Value, subject: &mut Subject) {
    let References { config_maps, secrets, claims, .. } = &mut subject.references;
    add(config_maps, text(volume, "configMap.name"));
    for path in VOLUME_SECRETS {
        add(secrets, text(volume, path));
    }
    for source in list(volume, "projected.sources") {
        add(config_maps, text(source, "configMap.name"));
        add(secrets, text(source, "secret.name"));
    }
    let claim = text(volume, "persistentVolumeClaim.claimName");
    add(claims, claim);
    let ephemeral = at(volume, "ephemeral.volumeClaimTemplate");
    if let Some(template) = ephemeral {
        class(subject, ClassKind::StorageClass, text(template, "spec.storageClassName"));
    }
    // An ephemeral claim lives and dies with its pod, so it binds the workload to no place.
    subject.mounts_volumes |= !claim.is_empty();
}
