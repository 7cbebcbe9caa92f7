//! What the author of an accepted pod should know.

mod paths;
mod ports;

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    super::parts::{Path, entries, ip_warnings, items, object, quantity_in, text, texts},
    annotations::{self, APP_ARMOR, SECCOMP_OF_CONTAINER, SECCOMP_OF_POD},
    each_container,
};
use crate::{gotext, names, resource::Tree};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const NO_SELECTOR: &str = "a null labelSelector results in matching no pod";

const OLD_NODE_LABELS: [(&str, &str); 8] = [
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
];
const OLD_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];
/// A kind of volume, how upstream calls it here, and since when it is of no use.
const OLD_VOLUMES: [(&str, &str, &str); 9] = [
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// What is to be said of a label of nodes that has a better name now.
pub fn old_node_label(key: &str) -> Option<&'static str> {
    OLD_NODE_LABELS.iter().find(|(old, _)| *old == key).map(|(_, message)| *message)
}

/// For a new pod, in upstream's order.
pub fn of_new_pod(pod: &Tree) -> Vec<String> {
    let empty = Tree::new();
    let metadata = object(pod, "metadata").unwrap_or(&empty);
    let spec = object(pod, "spec").unwrap_or(&empty);
    let mut warnings = app_armor_of_pod(metadata, spec);
    let reasons = names::is_dns1123_label(text(metadata, "name"));
    if !reasons.is_empty() {
        warnings.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{}]",
            reasons.join(" ")
        ));
    }
    warnings.extend(of_spec(metadata, spec, &Path::new(""), false));
    warnings
}

/// For a template at `path`.
pub fn of_template(template: &Tree, path: &str) -> Vec<String> {
    let empty = Tree::new();
    let metadata = object(template, "metadata").unwrap_or(&empty);
    of_spec(metadata, object(template, "spec").unwrap_or(&empty), &Path::new(path), true)
}

fn of_spec(metadata: &Tree, spec: &Tree, path: &Path<'_>, is_template: bool) -> Vec<String> {
    let spec_path = path.child("spec");
    let annotations_path = path.child("metadata");
    let annotations_path = annotations_path.child("annotations");
    let mut warnings = scheduling(spec, &spec_path);
    let old =
        OLD_ANNOTATIONS.iter().filter(|(key, _)| annotations::annotation(Some(metadata), key).is_some());
    warnings.extend(old.map(|(key, message)| format!("{}: {message}", annotations_path.key(key))));
    warnings.extend(volumes(spec, &spec_path));
    warnings.extend(paths::overlaps(spec));
    warnings.extend(aliases_and_secrets(spec, &spec_path));
    for name in ["memory", "ephemeral-storage"] {
        warnings
            .extend(object(spec, "overhead").and_then(|it| fraction(it, name, &spec_path.child("overhead"))));
    }
    warnings.extend(profiles(metadata, spec, &annotations_path, is_template));
    warnings.extend(ports::ports(spec, &spec_path));
    let grace = spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64);
    if grace.is_some_and(|seconds| seconds < 0) {
        warnings.push(format!(
            "{}: must be >= 0; negative values are invalid and will be treated as 1",
            spec_path.child("terminationGracePeriodSeconds")
        ));
    }
    warnings.extend(pod_affinity(spec, &spec_path));
    warnings.extend(addresses(spec, &spec_path));
    warnings
}

fn scheduling(spec: &Tree, path: &Path<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let selector = path.child("nodeSelector");
    for (key, _) in entries(spec, "nodeSelector") {
        warnings.extend(old_node_label(key).map(|message| format!("{}: {message}", selector.key(key))));
    }
    let affinity = object(spec, "affinity").and_then(|affinity| object(affinity, "nodeAffinity"));
    if let Some(affinity) = affinity {
        let required = object(affinity, REQUIRED).into_iter().flat_map(|it| items(it, "nodeSelectorTerms"));
        for (at, term) in required {
            let field = format!("{path}.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[{at}]");
            warnings.extend(node_selector_term(term, false, &field));
        }
        for (at, term) in items(affinity, PREFERRED) {
            let field = format!("{path}.affinity.nodeAffinity.{PREFERRED}[{at}].preference");
            warnings.extend(
                object(term, "preference").map(|it| node_selector_term(it, true, &field)).unwrap_or_default(),
            );
        }
    }
    let constraints = path.child("topologySpreadConstraints");
    for (at, constraint) in items(spec, "topologySpreadConstraints") {
        let constraint_path = constraints.index(at);
        let key = text(constraint, "topologyKey");
        if let Some(message) = old_node_label(key) {
            warnings.push(format!("{}: {key} is {message}", constraint_path.child("topologyKey")));
        }
        if !constraint.contains_key("labelSelector") {
            warnings.push(format!("{}: {NO_SELECTOR}", constraint_path.child("labelSelector")));
        }
    }
    warnings
}

/// Preferred terms may name values that no label has; their author should know.
pub fn node_selector_term(term: &Tree, checks_values: bool, field: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    for (at, expression) in items(term, "matchExpressions") {
        let key = text(expression, "key");
        if let Some(message) = old_node_label(key) {
            warnings.push(format!("{field}.matchExpressions[{at}].key: {key} is {message}"));
        }
        for (index, value) in texts(expression, "values").enumerate().filter(|_| checks_values) {
            let reasons = names::is_label_value(value).into_iter();
            warnings.extend(reasons.map(|reason| {
                format!("{field}.matchExpressions[{at}].values[{index}]: {value} is invalid, {reason}")
            }));
        }
    }
    warnings
}

fn volumes(spec: &Tree, path: &Path<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let volumes = path.child("volumes");
    for (at, volume) in items(spec, "volumes") {
        let volume_path = volumes.index(at);
        let old = OLD_VOLUMES.iter().filter(|(key, ..)| volume.contains_key(*key));
        let old: Vec<String> =
            old.map(|(_, shown, message)| format!("{}: {message}", volume_path.child(shown))).collect();
        // The claims of ephemeral volumes come before the last two kinds, and no volume is both.
        warnings.extend(old);
        let template = object(volume, "ephemeral").and_then(|it| object(it, "volumeClaimTemplate"));
        if let Some(claim) = template.and_then(|template| object(template, "spec")) {
            let field = format!("{volume_path}.ephemeral.volumeClaimTemplate.spec");
            warnings.extend(claim_spec(claim, &Path::new(&field)));
        }
    }
    warnings
}

/// What the author of a claim should know.
pub fn claim_spec(spec: &Tree, path: &Path<'_>) -> Vec<String> {
    let Some(resources) = object(spec, "resources") else { return Vec::new() };
    let resources_path = path.child("resources");
    let check = |list: &str| {
        object(resources, list).and_then(|it| fraction(it, "storage", &resources_path.child(list)))
    };
    check("requests").into_iter().chain(check("limits")).collect()
}

/// There is no part of a byte.
fn fraction(list: &Tree, name: &str, path: &Path<'_>) -> Option<String> {
    let amount = quantity_in(list, name).filter(|amount| amount.milli_value() % 1000 != 0)?;
    let shown = gotext::quote(&amount.to_string());
    Some(format!("{}: fractional byte value {shown} is invalid, must be an integer", path.key(name)))
}

fn aliases_and_secrets(spec: &Tree, path: &Path<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    for (list, key) in [("hostAliases", "ip"), ("imagePullSecrets", "name")] {
        let list_path = path.child(list);
        let mut taken = BTreeSet::new();
        for (at, item) in items(spec, list) {
            if !taken.insert(text(item, key)) {
                let field = list_path.index(at);
                let shown = gotext::quote(text(item, key));
                warnings.push(format!("{}: duplicate {key} {shown}", field.child(key)));
            }
        }
    }
    for (at, secret) in items(spec, "imagePullSecrets") {
        if text(secret, "name").is_empty() {
            warnings.push(format!("{path}.imagePullSecrets[{at}].name: invalid empty name \"\""));
        }
    }
    warnings
}

/// Profiles in annotations, amounts of bytes and variables, container by container.
fn profiles(metadata: &Tree, spec: &Tree, annotations_path: &Path<'_>, is_template: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    let annotation = |key: &str| annotations::annotation(Some(metadata), key);
    let profile =
        |holder: &Tree, key: &str| object(holder, "securityContext").and_then(|it| it.get(key)).cloned();
    let seccomp = |key: &str| {
        format!(
            "{}: non-functional in v1.27+; use the \"seccompProfile\" field instead",
            annotations_path.key(key)
        )
    };
    if profile(spec, "seccompProfile").is_none() && annotation(SECCOMP_OF_POD).is_some() {
        warnings.push(seccomp(SECCOMP_OF_POD));
    }
    let of_pod = profile(spec, "appArmorProfile");
    for (container, kind, at) in each_container(spec) {
        let name = text(container, "name");
        let key = format!("{SECCOMP_OF_CONTAINER}{name}");
        if profile(container, "seccompProfile").is_none() && annotation(&key).is_some() {
            warnings.push(seccomp(&key));
        }
        let key = format!("{APP_ARMOR}{name}");
        if let Some(written) = annotation(&key).filter(|_| is_template)
            && profile(container, "appArmorProfile").is_none()
            && (of_pod.is_none() || annotations::app_armor_profile_of(written) != of_pod)
        {
            warnings.push(old_app_armor(&annotations_path.key(&key)));
        }
        let root = annotations_path.to_string();
        let root = root.strip_suffix("metadata.annotations").unwrap_or_default();
        warnings.extend(of_container(container, &format!("{root}spec.{kind}[{at}]")));
    }
    warnings
}

fn old_app_armor(field: &Path<'_>) -> String {
    format!("{field}: deprecated since v1.30; use the \"appArmorProfile\" field instead")
}

/// A new pod's annotations have become fields already, where they could.
fn app_armor_of_pod(metadata: &Tree, spec: &Tree) -> Vec<String> {
    let mut warnings = Vec::new();
    if object(spec, "os").is_some_and(|os| text(os, "name") == "windows") {
        return warnings;
    }
    let profile =
        |holder: &Tree| object(holder, "securityContext").and_then(|it| it.get("appArmorProfile")).cloned();
    let of_pod = profile(spec);
    for (container, ..) in each_container(spec) {
        let key = format!("{APP_ARMOR}{}", text(container, "name"));
        let Some(written) = annotations::annotation(Some(metadata), &key) else { continue };
        let meant = annotations::app_armor_field(written);
        let own = profile(container);
        let was_taken_over = own.is_some() && own == meant && meant != of_pod;
        if was_taken_over || (own.is_none() && meant.is_none()) {
            warnings.push(old_app_armor(&Path::new("metadata.annotations").key(&key)));
        }
    }
    warnings
}

fn of_container(container: &Tree, field: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    let path = Path::new(field);
    let resources_path = path.child("resources");
    if let Some(resources) = object(container, "resources") {
        for name in ["memory", "ephemeral-storage"] {
            for list in ["limits", "requests"] {
                let amounts = object(resources, list);
                warnings.extend(amounts.and_then(|it| fraction(it, name, &resources_path.child(list))));
            }
        }
    }
    let mut taken = BTreeSet::new();
    for (at, variable) in items(container, "env") {
        let (name, value) = (text(variable, "name"), text(variable, "value"));
        if taken.insert(name) {
            continue;
        }
        let reference = format!("$({name})");
        let hides = variable.contains_key("valueFrom") || value == reference || !value.contains(&reference);
        if hides {
            let shown = gotext::quote(name);
            warnings.push(format!(
                "{field}.env[{at}]: hides previous definition of {shown}, which may be dropped when using apply"
            ));
        }
    }
    warnings
}

fn pod_affinity(spec: &Tree, path: &Path<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = object(spec, "affinity").and_then(|it| object(it, kind)) else { continue };
        for (at, term) in items(affinity, REQUIRED) {
            if !term.contains_key("labelSelector") {
                warnings
                    .push(format!("{path}.affinity.{kind}.{REQUIRED}[{at}].labelSelector: {NO_SELECTOR}"));
            }
        }
        for (at, weighted) in items(affinity, PREFERRED) {
            let term = object(weighted, "podAffinityTerm");
            if !term.is_some_and(|term| term.contains_key("labelSelector")) {
                warnings.push(format!(
                    "{path}.affinity.{kind}.{PREFERRED}[{at}].podAffinityTerm.labelSelector: {NO_SELECTOR}"
                ));
            }
        }
    }
    warnings
}

fn addresses(spec: &Tree, path: &Path<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(config) = object(spec, "dnsConfig") {
        for (at, server) in texts(config, "nameservers").enumerate() {
            let field = format!("{path}.dnsConfig.nameservers[{at}]");
            warnings.extend(ip_warnings(server, &Path::new(&field)));
        }
    }
    for (at, alias) in items(spec, "hostAliases") {
        let field = format!("{path}.hostAliases[{at}].ip");
        warnings.extend(ip_warnings(text(alias, "ip"), &Path::new(&field)));
    }
    warnings
}
