//! Classes of storage, and the drivers that provide it.

use serde_json::{Value, json};

use super::{
    super::{keep_metadata, label_selector, members::default_to, pod::shape},
    deprecated_label, immutable, quantity, volume,
};
use crate::{
    field_error::Cause,
    names,
    resource::{Tree, only},
    validation::parts::{
        self, IMMUTABLE, Path, csi_driver_name, dns_subdomain, entries, invalid_each, items, list, number,
        object, object_mut, qualified_name, text, texts,
    },
};

const ROOT: Path<'_> = Path::new("");
const SPEC: Path<'_> = Path::new("spec");
const MAX_PARAMETERS: usize = 512;
const MAX_BYTES: usize = 256 * 1024;

pub fn default_class(tree: &mut Tree) {
    default_to(tree, "reclaimPolicy", "Delete");
    default_to(tree, "volumeBindingMode", "Immediate");
}

pub fn validate_class(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let mut causes = provisioner(new, "provisioner");
    causes.extend(parameters(new));
    causes.extend(enumerated(new, "reclaimPolicy", &["Delete", "Retain"], true));
    causes.extend(enumerated(new, "volumeBindingMode", &["Immediate", "WaitForFirstConsumer"], false));
    causes.extend(topologies(new));
    for key in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        causes.extend(old.and_then(|old| immutable(new, old, key, &ROOT.child(key))));
    }
    causes
}

fn enumerated(tree: &Tree, key: &str, valid: &[&str], may_be_empty: bool) -> Option<Cause> {
    let value = tree.get(key).and_then(Value::as_str)?;
    let fits = valid.contains(&value) || value.is_empty() && may_be_empty;
    (!fits).then(|| Cause::not_supported(&ROOT.child(key), &json!(value), valid))
}

fn provisioner(tree: &Tree, key: &str) -> Vec<Cause> {
    match text(tree, key) {
        "" => vec![Cause::required(&ROOT.child(key), "")],
        name => qualified_name(&name.to_lowercase(), &ROOT.child(key)).collect(),
    }
}

fn parameters(tree: &Tree) -> Vec<Cause> {
    let path = ROOT.child("parameters");
    let count = object(tree, "parameters").map_or(0, Tree::len);
    if count > MAX_PARAMETERS {
        return vec![Cause::too_long(&path, MAX_PARAMETERS)];
    }
    let has_empty = object(tree, "parameters").is_some_and(|it| it.contains_key(""));
    let mut causes = Vec::new();
    if has_empty {
        causes.push(Cause::invalid(&path, &json!(""), "field can not be empty."));
    }
    if bytes_of(tree, "parameters") > MAX_BYTES {
        causes.push(Cause::too_long(&path, MAX_BYTES));
    }
    causes
}

fn bytes_of(tree: &Tree, key: &str) -> usize {
    entries(tree, key).map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum()
}

fn topologies(new: &Tree) -> Vec<Cause> {
    let root = ROOT.child("allowedTopologies");
    let mut causes = Vec::new();
    // Upstream compares with as many terms that say nothing, too.
    let empty = list(new, "allowedTopologies").len();
    let mut seen = std::collections::HashMap::from([(Vec::new(), empty)]);
    for (at, term) in items(new, "allowedTopologies") {
        let path = root.index(at);
        causes.extend(parts::topology_selector_term(term, &path));
        let count = seen.entry(meaning(term)).or_insert(0);
        causes
            .extend((0..*count).map(|_| Cause::duplicate(&path.child("matchLabelExpressions"), &json!(""))));
        *count += 1;
    }
    causes
}

/// Keys and their values, whatever their order.
fn meaning(term: &Tree) -> Vec<(String, Vec<String>)> {
    let mut by_key = std::collections::BTreeMap::new();
    for (_, requirement) in items(term, "matchLabelExpressions") {
        let mut values: Vec<String> = texts(requirement, "values").map(str::to_owned).collect();
        values.sort_unstable();
        values.dedup();
        by_key.insert(text(requirement, "key").to_owned(), values);
    }
    by_key.into_iter().collect()
}

pub fn warn_class(new: &Tree, _: Option<&Tree>) -> Vec<String> {
    let mut warnings = Vec::new();
    for (term_at, term) in items(new, "allowedTopologies") {
        for (at, requirement) in items(term, "matchLabelExpressions") {
            if let Some(message) = deprecated_label(text(requirement, "key")) {
                let path = format!("allowedTopologies[{term_at}].matchLabelExpressions[{at}].key");
                warnings.push(format!("{path}: {message}"));
            }
        }
    }
    warnings
}

/// A field of a feature that is off.
const DRIVER_FEATURE: &str = "preventPodSchedulingIfMissing";

pub fn prepare_driver(tree: &mut Tree) {
    if let Some(spec) = object_mut(tree, "spec") {
        spec.remove(DRIVER_FEATURE);
    }
}

pub fn keep_driver_fields(new: &mut Tree, old: &Tree) {
    if object(old, "spec").is_none_or(|spec| !spec.contains_key(DRIVER_FEATURE)) {
        prepare_driver(new);
    }
}

pub fn default_driver(tree: &mut Tree) {
    let Some(spec) = object_mut(tree, "spec") else { return };
    default_to(spec, "attachRequired", true);
    default_to(spec, "podInfoOnMount", false);
    default_to(spec, "storageCapacity", false);
    default_to(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    if list(spec, "volumeLifecycleModes").is_empty() {
        spec.insert("volumeLifecycleModes".into(), json!(["Persistent"]));
    }
    default_to(spec, "requiresRepublish", false);
    default_to(spec, "seLinuxMount", false);
}

pub fn validate_driver(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let Some(spec) = object(new, "spec") else { return Vec::new() };
    let mut causes = Vec::new();
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    if let Some(policy) = spec.get("fsGroupPolicy").and_then(Value::as_str)
        && !policies.contains(&policy)
    {
        causes.push(Cause::not_supported(&SPEC.child("fsGroupPolicy"), &json!(policy), &policies));
    }
    causes.extend(token_requests(spec));
    let modes = ["Persistent", "Ephemeral"];
    let unknown = texts(spec, "volumeLifecycleModes").filter(|mode| !modes.contains(mode));
    let modes_path = SPEC.child("volumeLifecycleModes");
    causes.extend(unknown.map(|mode| Cause::not_supported(&modes_path, &json!(mode), &modes)));
    if let Some(period) = number(spec, "nodeAllocatableUpdatePeriodSeconds").filter(|period| *period < 10) {
        let path = SPEC.child("nodeAllocatableUpdatePeriodSeconds");
        causes.push(Cause::invalid(&path, &json!(period), "must be greater than or equal to 10 seconds"));
    }
    if let Some(Value::Bool(in_secrets)) = spec.get("serviceAccountTokenInSecrets")
        && list(spec, "tokenRequests").is_empty()
    {
        let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        causes.push(Cause::invalid(&SPEC.child("serviceAccountTokenInSecrets"), &json!(in_secrets), detail));
    }
    if let Some(was) = old.and_then(|old| object(old, "spec")) {
        // Upstream's name of the field.
        causes.extend(immutable(spec, was, "attachRequired", &SPEC.child("attachedRequired")));
        causes.extend(immutable(spec, was, "volumeLifecycleModes", &modes_path));
    }
    causes
}

fn token_requests(spec: &Tree) -> Vec<Cause> {
    const LEAST: i64 = 600;
    const MOST: i64 = 1 << 32;
    let root = SPEC.child("tokenRequests");
    let mut causes = Vec::new();
    let mut audiences = std::collections::HashSet::new();
    for (at, request) in items(spec, "tokenRequests") {
        let path = root.index(at);
        let audience = text(request, "audience");
        if !audiences.insert(audience) {
            causes.push(Cause::duplicate(&path.child("audience"), &json!(audience)));
            continue;
        }
        let Some(seconds) = number(request, "expirationSeconds") else { continue };
        let path = path.child("expirationSeconds");
        if seconds < LEAST {
            let detail = "may not specify a duration less than 10 minutes";
            causes.push(Cause::invalid(&path, &json!(seconds), detail));
        }
        if seconds > MOST {
            let detail = "may not specify a duration larger than 2^32 seconds";
            causes.push(Cause::invalid(&path, &json!(seconds), detail));
        }
    }
    causes
}

pub fn warn_driver(new: &Tree, old: Option<&Tree>) -> Vec<String> {
    let Some(spec) = object(new, "spec") else { return Vec::new() };
    let requests = list(spec, "tokenRequests");
    let had = old.and_then(|old| object(old, "spec")).map(|spec| list(spec, "tokenRequests"));
    let unsaid = spec.get("serviceAccountTokenInSecrets").is_none_or(Value::is_null);
    if requests.is_empty() || had == Some(requests) || !unsaid {
        return Vec::new();
    }
    let warning = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes";
    vec![warning.to_owned()]
}

pub fn validate_csi_node(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let empty = Tree::new();
    let spec = object(new, "spec").unwrap_or(&empty);
    let root = SPEC.child("drivers");
    let mut causes = Vec::new();
    let mut seen = Vec::new();
    for (at, driver) in items(spec, "drivers") {
        let path = root.index(at);
        causes.extend(node_driver(driver, &path));
        let name = text(driver, "name");
        if seen.contains(&name) {
            causes.push(Cause::duplicate(&path.child("name"), &json!(name)));
        }
        seen.push(name);
        causes.extend(topology_keys(driver, &path));
    }
    let was = old.and_then(|old| object(old, "spec")).unwrap_or(&empty);
    for (_, had) in items(was, "drivers") {
        let same_name = items(spec, "drivers").filter(|(_, it)| text(it, "name") == text(had, "name"));
        for (_, driver) in same_name.filter(|(_, driver)| fixed(driver) != fixed(had)) {
            let shown = shape::shown("CSINodeDriver", &fixed(driver));
            causes.push(Cause::invalid_text(&root, &shown, IMMUTABLE));
        }
    }
    causes
}

/// What of a driver does not change; how many volumes it takes may.
fn fixed(driver: &Tree) -> Tree {
    let mut driver = driver.clone();
    driver.remove("allocatable");
    driver.retain(|_, value| !parts::is_empty(value));
    driver
}

fn node_driver(driver: &Tree, path: &Path<'_>) -> Vec<Cause> {
    const MAX_ID: usize = 256;
    let mut causes = csi_driver_name(text(driver, "name"), &path.child("name"));
    let (id, id_path) = (text(driver, "nodeID"), path.child("nodeID"));
    if id.is_empty() {
        causes.push(Cause::required(&id_path, ""));
    }
    if id.len() > MAX_ID {
        let detail = format!("must be {MAX_ID} characters or less");
        causes.push(Cause::invalid(&id_path, &json!(id), &detail));
    }
    let count = object(driver, "allocatable").and_then(|it| number(it, "count"));
    if let Some(count) = count {
        let path = path.child("allocatable");
        causes.extend(parts::not_negative(count, &path.child("count")));
    }
    causes
}

fn topology_keys(driver: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut seen = Vec::new();
    for key in texts(driver, "topologyKeys") {
        if key.is_empty() {
            causes.push(Cause::required(path, ""));
        }
        if seen.contains(&key) {
            causes.push(Cause::duplicate(path, &json!(key)));
        }
        seen.push(key);
        causes.extend(qualified_name(key, path));
    }
    causes
}

pub fn prepare_attachment(tree: &mut Tree) {
    tree.insert("status".into(), json!({"attached": false}));
}

/// `/status` of an attachment does not touch metadata.
pub fn only_status_of_attachment(new: &mut Tree, old: &Tree) {
    only(new, old, "status");
    keep_metadata(new, old);
}

pub fn default_attachment(tree: &mut Tree) {
    let source = object_mut(tree, "spec").and_then(|spec| object_mut(spec, "source"));
    if let Some(inline) = source.and_then(|source| object_mut(source, "inlineVolumeSpec")) {
        volume::default_sources(inline);
    }
}

pub fn validate_attachment(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let empty = Tree::new();
    let spec = object(new, "spec").unwrap_or(&empty);
    let mut causes = csi_driver_name(text(spec, "attacher"), &SPEC.child("attacher"));
    let source = object(spec, "source").unwrap_or(&empty);
    causes.extend(attachment_source(source));
    let node = text(spec, "nodeName");
    causes.extend(invalid_each(&SPEC.child("nodeName"), node, names::is_dns1123_subdomain(node)));
    causes.extend(attachment_status(object(new, "status").unwrap_or(&empty)));
    if let Some(name) = source.get("persistentVolumeName").and_then(Value::as_str) {
        causes.extend(dns_subdomain(name, &Path::new("spec.source.persistentVolumeName")));
    }
    if old.is_some_and(|old| object(old, "spec") != object(new, "spec")) {
        causes.push(Cause::invalid_text(&SPEC, &shape::shown("VolumeAttachmentSpec", spec), IMMUTABLE));
    }
    causes
}

fn attachment_source(source: &Tree) -> Vec<Cause> {
    const ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let path = SPEC.child("source");
    let name = source.get("persistentVolumeName").and_then(Value::as_str);
    match (object(source, "inlineVolumeSpec"), name) {
        (None, None) => vec![Cause::required(&path, ONE)],
        (Some(_), Some(_)) => vec![Cause::forbidden(&path, ONE)],
        (None, Some("")) => {
            let detail = "must specify non empty persistentVolumeName";
            vec![Cause::required(&path.child("persistentVolumeName"), detail)]
        }
        (None, Some(_)) => Vec::new(),
        (Some(inline), None) => volume::inline_spec(inline, &path.child("inlineVolumeSpec")),
    }
}

fn attachment_status(status: &Tree) -> Vec<Cause> {
    const MAX_MESSAGE: usize = 1024;
    let root = Path::new("status");
    let mut causes = Vec::new();
    if bytes_of(status, "attachmentMetadata") > MAX_BYTES {
        causes.push(Cause::too_long(&root.child("attachmentMetadata"), MAX_BYTES));
    }
    for key in ["attachError", "detachError"] {
        let Some(error) = object(status, key) else { continue };
        let path = root.child(key);
        if text(error, "message").len() > MAX_MESSAGE {
            // Upstream names another limit than it checks.
            causes.push(Cause::too_long(&path.child("message"), MAX_BYTES));
        }
        if let Some(code) = number(error, "errorCode").filter(|code| *code < 0) {
            let detail = format!("must be between 0 and {}, inclusive", i32::MAX);
            causes.push(Cause::invalid(&path.child("errorCode"), &json!(code), &detail));
        }
    }
    causes
}

pub fn validate_capacity(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let topology = ROOT.child("nodeTopology");
    let any_value =
        old.is_some_and(|old| !label_selector(old.get("nodeTopology"), &topology, false).is_empty());
    let mut causes = label_selector(new.get("nodeTopology"), &topology, any_value);
    let class = text(new, "storageClassName");
    let class_path = ROOT.child("storageClassName");
    causes.extend(invalid_each(&class_path, class, names::is_dns1123_subdomain(class)));
    if let Some(value) = new.get("capacity").filter(|value| quantity(value).is_negative()) {
        causes.push(Cause::invalid(&ROOT.child("capacity"), value, parts::NOT_NEGATIVE));
    }
    if let Some(old) = old {
        if new.get("nodeTopology") != old.get("nodeTopology") {
            let selector = object(new, "nodeTopology");
            let shown = selector.map_or("null".to_owned(), |it| shape::shown("LabelSelector", it));
            causes.push(Cause::invalid_text(&topology, &shown, IMMUTABLE));
        }
        causes.extend(immutable(new, old, "storageClassName", &class_path));
    }
    causes
}

pub fn warn_capacity(new: &Tree, _: Option<&Tree>) -> Vec<String> {
    let Some(selector) = object(new, "nodeTopology") else { return Vec::new() };
    let mut warnings = Vec::new();
    for (at, requirement) in items(selector, "matchExpressions") {
        let key = text(requirement, "key");
        if let Some(message) = deprecated_label(key) {
            warnings.push(format!("nodeTopology.matchExpressions[{at}].key: {key} is {message}"));
        }
    }
    for (label, _) in entries(selector, "matchLabels") {
        if let Some(message) = deprecated_label(label) {
            warnings.push(format!("nodeTopology.matchLabels.{label}: {message}"));
        }
    }
    warnings
}

pub fn validate_attributes_class(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let mut causes = Vec::new();
    for key in ["driverName", "parameters"] {
        if old.is_some_and(|old| old.get(key) != new.get(key)) {
            causes.push(Cause::forbidden(&ROOT.child(key), &format!("updates to {key} are forbidden.")));
        }
    }
    causes.extend(provisioner(new, "driverName"));
    causes.extend(parameters(new));
    if object(new, "parameters").is_none_or(Tree::is_empty) {
        let detail = "must contain at least one key/value pair";
        causes.push(Cause::required(&ROOT.child("parameters"), detail));
    }
    causes
}
