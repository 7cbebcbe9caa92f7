//! What is special about single kinds: defaults, and rules beyond their types. Referred to from their rows.

pub mod cluster;
pub mod conditions;
mod events;
mod members;
pub mod network;
pub mod parts;
pub mod pod;
pub mod policies;
pub mod webhook;
pub mod workloads;

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    field_error::Cause,
    gojson, names,
    resource::{Tree, only},
    selector,
};

pub use events::{event, event_v1};

/// Limit of what config maps and secrets hold, keys not counted.
const MAX_DATA_BYTES: usize = 1024 * 1024;
const IMMUTABLE_WHEN_SET: &str = "field is immutable when `immutable` is set";
const IMMUTABLE: &str = "field is immutable";

fn text<'a>(tree: &'a Tree, key: &str) -> &'a str {
    tree.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn members<'a>(tree: &'a Tree, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    tree.get(key).and_then(Value::as_object).into_iter().flatten()
}

fn items<'a>(tree: &'a Tree, key: &str) -> impl Iterator<Item = (usize, &'a Tree)> {
    let list = tree.get(key).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_object).enumerate()
}

/// The labels, annotations, finalizers and owners stay as they were.
fn keep_metadata(new: &mut Tree, old: &Tree) {
    let was = old.get("metadata").and_then(Value::as_object);
    let metadata = members::made(new, "metadata");
    for key in ["labels", "annotations", "finalizers", "ownerReferences"] {
        match was.and_then(|was| was.get(key)) {
            Some(value) => metadata.insert(key.to_owned(), value.clone()),
            None => metadata.remove(key),
        };
    }
}

/// A struct of Go's in an error message: upstream's server holds fields by other names than JSON has, in an order.
fn go_struct<const N: usize>(members: [(&str, String); N]) -> String {
    let members = members.map(|(name, value)| format!("\"{name}\":{value}"));
    format!("{{{}}}", members.join(","))
}

/// A label selector, if there is one; where the stored one is not valid, with `any_value`.
fn label_selector(selector: Option<&Value>, path: &parts::Path<'_>, any_value: bool) -> Vec<Cause> {
    let selector = selector.filter(|it| it.is_object());
    selector.map(|it| selector::validate_object_with(it, &path.to_string(), any_value)).unwrap_or_default()
}

fn annotation<'a>(tree: &'a Tree, key: &str) -> Option<&'a str> {
    tree.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

fn invalid_each(field: &str, value: &str, problems: Vec<String>) -> impl Iterator<Item = Cause> {
    let causes: Vec<Cause> = problems.iter().map(|it| Cause::invalid(field, &json!(value), it)).collect();
    causes.into_iter()
}

fn decoded_len(value: &Value) -> usize {
    value.as_str().map_or(0, |encoded| BASE64.decode(encoded).map_or(encoded.len(), |bytes| bytes.len()))
}

fn text_len(value: &Value) -> usize {
    value.as_str().map_or(0, str::len)
}

/// What `immutable: true` promises: it stays set and the named fields stay as they are.
fn check_immutable(new: &Tree, old: Option<&Tree>, fields: &[&str]) -> Vec<Cause> {
    let Some(old) = old.filter(|old| old.get("immutable") == Some(&json!(true))) else { return Vec::new() };
    let mut causes = Vec::new();
    if new.get("immutable") != Some(&json!(true)) {
        causes.push(Cause::forbidden("immutable", IMMUTABLE_WHEN_SET));
    }
    let changed = fields.iter().filter(|field| new.get(**field) != old.get(**field));
    causes.extend(changed.map(|field| Cause::forbidden(*field, IMMUTABLE_WHEN_SET)));
    causes
}

pub fn config_map(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut total = 0;
    for (key, value) in members(new, "data") {
        causes.extend(invalid_each(&format!("data[{key}]"), key, names::is_config_map_key(key)));
        if new.get("binaryData").is_some_and(|binary| binary.get(key).is_some()) {
            causes.push(Cause::invalid(
                format!("data[{key}]"),
                &json!(key),
                "duplicate of key present in binaryData",
            ));
        }
        total += text_len(value);
    }
    for (key, value) in members(new, "binaryData") {
        causes.extend(invalid_each(&format!("binaryData[{key}]"), key, names::is_config_map_key(key)));
        total += decoded_len(value);
    }
    if total > MAX_DATA_BYTES {
        // Upstream's path to the object as a whole.
        causes.push(Cause::too_long("[]", MAX_DATA_BYTES));
    }
    causes.extend(check_immutable(new, old, &["data", "binaryData"]));
    causes
}

/// `stringData` is for writing only: it is merged into `data`.
pub fn default_secret(tree: &mut Tree) {
    if let Some(Value::Object(plain)) = tree.remove("stringData") {
        let data = tree.entry("data").or_insert_with(|| json!({}));
        if !data.is_object() {
            *data = json!({});
        }
        if let Some(data) = data.as_object_mut() {
            for (key, value) in plain {
                data.insert(key, json!(BASE64.encode(value.as_str().unwrap_or_default())));
            }
        }
    }
    if text(tree, "type").is_empty() {
        tree.insert("type".into(), json!("Opaque"));
    }
}

pub fn secret(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut total = 0;
    for (key, value) in members(new, "data") {
        causes.extend(invalid_each(&format!("data[{key}]"), key, names::is_config_map_key(key)));
        total += decoded_len(value);
    }
    if total > MAX_DATA_BYTES {
        causes.push(Cause::too_long("data", MAX_DATA_BYTES));
    }
    causes.extend(secret_of_type(new));
    if old.is_some_and(|old| old.get("type") != new.get("type")) {
        causes.push(Cause::invalid("type", &json!(text(new, "type")), IMMUTABLE));
    }
    causes.extend(check_immutable(new, old, &["data"]));
    causes
}

/// The keys that a secret of a known type must have.
fn secret_of_type(new: &Tree) -> Vec<Cause> {
    let data = |key: &str| new.get("data").and_then(|data| data.get(key));
    let require = |key: &str| (data(key).is_none()).then(|| Cause::required(format!("data[{key}]"), ""));
    let mut causes = Vec::new();
    match text(new, "type") {
        "kubernetes.io/service-account-token" => {
            let account = new
                .get("metadata")
                .and_then(|metadata| metadata.get("annotations"))
                .and_then(|annotations| annotations.get("kubernetes.io/service-account.name"));
            if account.and_then(Value::as_str).is_none_or(str::is_empty) {
                causes.push(Cause::required("metadata.annotations[kubernetes.io/service-account.name]", ""));
            }
        }
        "kubernetes.io/dockercfg" => causes.extend(json_key(data(".dockercfg"), ".dockercfg")),
        "kubernetes.io/dockerconfigjson" => {
            causes.extend(json_key(data(".dockerconfigjson"), ".dockerconfigjson"));
        }
        "kubernetes.io/basic-auth" if data("username").is_none() && data("password").is_none() => {
            causes.extend(require("username"));
            causes.extend(require("password"));
        }
        "kubernetes.io/ssh-auth" if data("ssh-privatekey").is_none_or(|value| decoded_len(value) == 0) => {
            causes.push(Cause::required("data[ssh-privatekey]", ""));
        }
        "kubernetes.io/tls" => {
            causes.extend(require("tls.crt"));
            causes.extend(require("tls.key"));
        }
        _ => {}
    }
    causes
}

fn json_key(value: Option<&Value>, key: &str) -> Option<Cause> {
    let field = format!("data[{key}]");
    let Some(encoded) = value.and_then(Value::as_str) else { return Some(Cause::required(field, "")) };
    let bytes = BASE64.decode(encoded).unwrap_or_default();
    let error = gojson::parse(&bytes).err()?;
    Some(Cause::invalid(field, &json!("<secret contents redacted>"), &error.to_string()))
}

const NAMESPACE_FINALIZER: &str = "kubernetes";

/// A namespace is held by the controller that empties it.
pub fn prepare_namespace(tree: &mut Tree) {
    tree.insert("status".into(), json!({"phase": "Active"}));
    let spec = tree.entry("spec").or_insert_with(|| json!({}));
    if !spec.is_object() {
        *spec = json!({});
    }
    let finalizers = spec.as_object_mut().map(|spec| spec.entry("finalizers").or_insert_with(|| json!([])));
    if let Some(Value::Array(list)) = finalizers
        && !list.iter().any(|name| name == NAMESPACE_FINALIZER)
    {
        list.push(json!(NAMESPACE_FINALIZER));
    }
}

/// Only `/finalize` changes them.
pub fn keep_namespace_finalizers(new: &mut Tree, old: &Tree) {
    match old.get("spec") {
        Some(spec) => new.insert("spec".into(), spec.clone()),
        None => new.remove("spec"),
    };
}

/// `/finalize` changes `spec.finalizers` alone.
pub fn only_namespace_finalizers(new: &mut Tree, old: &Tree) {
    let finalizers = new.get("spec").and_then(|spec| spec.get("finalizers")).cloned();
    only(new, old, "spec");
    let mut spec = old.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
    match finalizers.filter(|list| list.as_array().is_some_and(|it| !it.is_empty())) {
        Some(finalizers) => spec.insert("finalizers".into(), finalizers),
        None => spec.remove("finalizers"),
    };
    new.insert("spec".into(), Value::Object(spec));
}

pub fn default_namespace(tree: &mut Tree) {
    let deleting = tree.get("metadata").is_some_and(|metadata| metadata.get("deletionTimestamp").is_some());
    let status = tree.entry("status").or_insert_with(|| json!({}));
    if let Some(status) = status.as_object_mut()
        && status.get("phase").and_then(Value::as_str).unwrap_or_default().is_empty()
    {
        status.insert("phase".into(), json!(if deleting { "Terminating" } else { "Active" }));
    }
    let name = tree.get("metadata").and_then(|metadata| metadata.get("name")).cloned();
    if let (Some(Value::String(name)), Some(metadata)) =
        (name, tree.get_mut("metadata").and_then(Value::as_object_mut))
    {
        // Selectors of namespaces by name rely on this label.
        let labels = metadata.entry("labels").or_insert_with(|| json!({}));
        if let Some(labels) = labels.as_object_mut() {
            labels.insert("kubernetes.io/metadata.name".into(), json!(name));
        }
    }
}

/// A namespace says itself whether it is on its way out, and says so rightly.
pub fn namespace_status(new: &Tree, old: &Tree) -> Vec<Cause> {
    let mut causes = namespace(new, Some(old));
    let deleting = new.get("metadata").is_some_and(|metadata| metadata.get("deletionTimestamp").is_some());
    let phase = new.get("status").and_then(|status| status.get("phase")).and_then(Value::as_str);
    let phase = phase.unwrap_or_default();
    let wrong = match deleting {
        false if phase != "Active" => Some("may only be 'Active' if `deletionTimestamp` is empty"),
        true if phase != "Terminating" => {
            Some("may only be 'Terminating' if `deletionTimestamp` is not empty")
        }
        _ => None,
    };
    causes.extend(wrong.map(|why| Cause::invalid("status.Phase", &json!(phase), why)));
    causes
}

pub fn namespace(new: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    let spec = new.get("spec").and_then(Value::as_object);
    let finalizers = spec.and_then(|spec| spec.get("finalizers")).and_then(Value::as_array);
    let mut causes = Vec::new();
    for name in finalizers.into_iter().flatten() {
        let name = name.as_str().unwrap_or_default();
        let field = "spec.finalizers";
        causes.extend(invalid_each(field, name, names::is_qualified_name(name)));
        if !name.contains('/') && name != "kubernetes" {
            causes.push(Cause::invalid(
                field,
                &json!(name),
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
    causes
}

pub fn lease(new: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    let Some(spec) = new.get("spec").and_then(Value::as_object) else { return Vec::new() };
    let mut causes = Vec::new();
    for (key, least, why) in [
        ("leaseDurationSeconds", 1, "must be greater than 0"),
        ("leaseTransitions", 0, "must be greater than or equal to 0"),
    ] {
        if let Some(value) = spec.get(key).filter(|value| value.as_i64().is_some_and(|number| number < least))
        {
            causes.push(Cause::invalid(format!("spec.{key}"), value, why));
        }
    }
    causes
}

/// Fields of a feature that is off: taken only where a stored object has them already.
const LEASE_FEATURE_FIELDS: [&str; 2] = ["strategy", "preferredHolder"];

pub fn prepare_lease(tree: &mut Tree) {
    if let Some(spec) = tree.get_mut("spec").and_then(Value::as_object_mut) {
        spec.retain(|key, _| !LEASE_FEATURE_FIELDS.contains(&key.as_str()));
    }
}

pub fn keep_lease_fields(new: &mut Tree, old: &Tree) {
    let has = |key: &str| old.get("spec").is_some_and(|spec| spec.get(key).is_some());
    if !LEASE_FEATURE_FIELDS.into_iter().any(has) {
        prepare_lease(new);
    }
}

/// A bootstrap token goes when it says to, at once if that cannot be read; one that is held stays until it is let go.
pub fn bootstrap_token_end(secret: &Tree) -> Option<Timestamp> {
    if secret.get("type")? != "bootstrap.kubernetes.io/token" {
        return None;
    }
    let metadata = secret.get("metadata")?;
    let held = metadata["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
    if metadata["namespace"] != "kube-system" || held {
        return None;
    }
    let text = BASE64.decode(secret.get("data")?.get("expiration")?.as_str()?).unwrap_or_default();
    if text.is_empty() {
        return None;
    }
    let time = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
    Some(time.unwrap_or(Timestamp::UNIX_EPOCH))
}

pub fn account_warnings(new: &Tree, old: Option<&Tree>) -> Vec<String> {
    const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";
    let has = |tree: &Tree| tree.get("metadata").is_some_and(|it| it["annotations"].get(ENFORCE).is_some());
    match has(new) && !old.is_some_and(has) {
        true => vec![format!(
            "metadata.annotations[{ENFORCE}]: deprecated in v1.32+; prefer separate namespaces to isolate access to \
             mounted secrets"
        )],
        false => Vec::new(),
    }
}

/// Of a secret that a service account names only the name counts.
pub fn clean_secret_references(tree: &mut Tree) {
    for secret in tree.get_mut("secrets").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(secret) = secret.as_object_mut() {
            secret.retain(|key, _| key == "name");
        }
    }
}

fn policy_rules(new: &Tree, namespaced: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (at, rule) in items(new, "rules") {
        let empty = |key: &str| rule.get(key).and_then(Value::as_array).is_none_or(Vec::is_empty);
        let field = |key: &str| format!("rules[{at}].{key}");
        if empty("verbs") {
            causes.push(Cause::required(field("verbs"), "verbs must contain at least one value"));
        }
        if !empty("nonResourceURLs") {
            let urls = rule.get("nonResourceURLs").cloned().unwrap_or_default();
            if namespaced {
                causes.push(Cause::invalid(
                    field("nonResourceURLs"),
                    &urls,
                    "namespaced rules cannot apply to non-resource URLs",
                ));
            }
            if !empty("apiGroups") || !empty("resources") || !empty("resourceNames") {
                causes.push(Cause::invalid(
                    field("nonResourceURLs"),
                    &urls,
                    "rules cannot apply to both regular resources and non-resource URLs",
                ));
            }
            continue;
        }
        if empty("apiGroups") {
            causes.push(Cause::required(
                field("apiGroups"),
                "resource rules must supply at least one api group",
            ));
        }
        if empty("resources") {
            causes.push(Cause::required(
                field("resources"),
                "resource rules must supply at least one resource",
            ));
        }
    }
    causes
}

pub fn role(new: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    policy_rules(new, true)
}

pub fn cluster_role(new: &Tree, _: Option<&Tree>) -> Vec<Cause> {
    let mut causes = policy_rules(new, false);
    let selectors = new
        .get("aggregationRule")
        .and_then(|rule| rule.get("clusterRoleSelectors"))
        .and_then(Value::as_array);
    if new.get("aggregationRule").is_some_and(Value::is_object) && selectors.is_none_or(Vec::is_empty) {
        causes.push(Cause::required(
            "aggregationRule.clusterRoleSelectors",
            "at least one clusterRoleSelector required if aggregationRule is non-nil",
        ));
    }
    for (at, object) in selectors.into_iter().flatten().enumerate() {
        let field = format!("aggregationRule.clusterRoleSelectors[{at}]");
        causes.extend(selector::validate_object(object, &field));
        if selector::LabelSelector::from_object(object).is_err() {
            causes.push(Cause::invalid(field, &Value::Null, "invalid label selector."));
        }
    }
    causes
}

/// Subjects and the role of a binding belong to RBAC's own group unless they say otherwise.
pub fn default_binding(tree: &mut Tree) {
    const RBAC: &str = "rbac.authorization.k8s.io";
    if let Some(role) = tree.get_mut("roleRef").and_then(Value::as_object_mut)
        && text(role, "apiGroup").is_empty()
    {
        role.insert("apiGroup".into(), json!(RBAC));
    }
    for subject in tree.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(subject) = subject.as_object_mut() else { continue };
        if text(subject, "apiGroup").is_empty() && matches!(text(subject, "kind"), "User" | "Group") {
            subject.insert("apiGroup".into(), json!(RBAC));
        }
    }
}

pub fn binding(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let namespaced = new
        .get("metadata")
        .and_then(|metadata| metadata.get("namespace"))
        .and_then(Value::as_str)
        .is_some_and(|namespace| !namespace.is_empty());
    let empty = Tree::new();
    let role = new.get("roleRef").and_then(Value::as_object).unwrap_or(&empty);
    let mut causes = Vec::new();
    if text(role, "apiGroup") != RBAC {
        causes.push(Cause::not_supported("roleRef.apiGroup", &json!(text(role, "apiGroup")), &[RBAC]));
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&text(role, "kind")) {
        causes.push(Cause::not_supported("roleRef.kind", &json!(text(role, "kind")), kinds));
    }
    match text(role, "name") {
        "" => causes.push(Cause::required("roleRef.name", "")),
        name => causes.extend(invalid_each("roleRef.name", name, names::path_segment_name(name, false))),
    }
    for (at, subject) in items(new, "subjects") {
        causes.extend(binding_subject(subject, &format!("subjects[{at}]"), namespaced));
    }
    if old.is_some_and(|old| old.get("roleRef") != new.get("roleRef")) {
        causes.push(Cause::invalid("roleRef", &Value::Object(role.clone()), "cannot change roleRef"));
    }
    causes
}

fn binding_subject(subject: &Tree, field: &str, namespaced: bool) -> Vec<Cause> {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let mut causes = Vec::new();
    let name = text(subject, "name");
    if name.is_empty() {
        causes.push(Cause::required(format!("{field}.name"), ""));
    }
    let group = text(subject, "apiGroup");
    match text(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                causes.extend(invalid_each(
                    &format!("{field}.name"),
                    name,
                    names::subdomain_name(name, false),
                ));
            }
            if !group.is_empty() {
                causes.push(Cause::not_supported(format!("{field}.apiGroup"), &json!(group), &[""]));
            }
            if !namespaced && text(subject, "namespace").is_empty() {
                causes.push(Cause::required(format!("{field}.namespace"), ""));
            }
        }
        "User" | "Group" => {
            if group != RBAC {
                causes.push(Cause::not_supported(format!("{field}.apiGroup"), &json!(group), &[RBAC]));
            }
        }
        kind => {
            let valid = ["ServiceAccount", "User", "Group"];
            causes.push(Cause::not_supported(format!("{field}.kind"), &json!(kind), &valid));
        }
    }
    causes
}
