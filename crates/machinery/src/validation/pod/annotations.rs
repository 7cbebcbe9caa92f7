//! Annotations that say something about how a pod runs.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    super::parts::{Path, entries, object, text, tolerations},
    each_container, security,
    volumes::descending_path,
};
use crate::{field_error::Cause, gojson, gotext, resource::Tree};

pub const MIRROR: &str = "kubernetes.io/config.mirror";
pub const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
pub const SECCOMP_OF_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
pub const SECCOMP_OF_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const LOCALHOST: &str = "localhost/";

/// The value of an annotation.
pub fn annotation<'a>(metadata: Option<&'a Tree>, key: &str) -> Option<&'a str> {
    object(metadata?, "annotations")?.get(key)?.as_str()
}

pub fn annotations(
    metadata: Option<&Tree>,
    spec: &Tree,
    any_deletion_cost: bool,
    path: &Path<'_>,
) -> Vec<Cause> {
    let mut causes = Vec::new();
    let Some(metadata) = metadata else { return causes };
    let find = |key: &str| annotation(Some(metadata), key);
    if let Some(value) = find(MIRROR)
        && text(spec, "nodeName").is_empty()
    {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        causes.push(Cause::invalid(&path.key(MIRROR), &json!(value), detail));
    }
    if let Some(tolerations) = find(TOLERATIONS).filter(|text| !text.is_empty()) {
        causes.extend(annotated_tolerations(tolerations, path));
    }
    if !any_deletion_cost && !is_deletion_cost_valid(metadata) {
        let cost = json!(find(DELETION_COST).unwrap_or_default());
        causes.push(Cause::invalid(&path.key(DELETION_COST), &cost, "must be a 32bit integer"));
    }
    if let Some(profile) = find(SECCOMP_OF_POD) {
        causes.extend(seccomp_profile(profile, &path.child(SECCOMP_OF_POD)));
    }
    let names: BTreeSet<&str> = each_container(spec).map(|(it, ..)| text(it, "name")).collect();
    for (key, value) in entries(metadata, "annotations") {
        let value = value.as_str().unwrap_or_default();
        if key.starts_with(SECCOMP_OF_CONTAINER) {
            causes.extend(seccomp_profile(value, &path.child(key)));
        }
        if let Some(container) = key.strip_prefix(APP_ARMOR) {
            causes.extend(app_armor_profile(container, value, &names, &path.key(key)));
        }
    }
    causes
}

/// Tolerations as they were before they had a field. Upstream reads them by the names of Go, in any case.
fn annotated_tolerations(written: &str, path: &Path<'_>) -> Vec<Cause> {
    let parsed = match gojson::parse(written.as_bytes()) {
        Ok(parsed) => parsed,
        Err(error) => return vec![Cause::invalid(path, &json!(TOLERATIONS), &error.to_string())],
    };
    let fields = ["key", "operator", "value", "effect", "tolerationSeconds"];
    let read = |item: &Value| {
        let members = item.as_object().into_iter().flatten();
        let known = members.filter_map(|(name, value)| {
            let field = fields.into_iter().find(|field| field.eq_ignore_ascii_case(name))?;
            Some((field.to_owned(), value.clone()))
        });
        Value::Object(known.filter(|(_, value)| !value.is_null()).collect())
    };
    let Value::Array(items) = parsed else {
        if parsed.is_null() {
            return Vec::new();
        }
        let found = gojson::type_name(&parsed);
        let detail = format!("json: cannot unmarshal {found} into Go value of type []core.Toleration");
        return vec![Cause::invalid(path, &json!(TOLERATIONS), &detail)];
    };
    let mut holder = Tree::new();
    holder.insert(TOLERATIONS.to_owned(), Value::Array(items.iter().map(read).collect()));
    tolerations(&holder, TOLERATIONS, path)
}

/// What deleting the pod costs, for whoever scales down: no leading zeros, no plus sign.
pub fn is_deletion_cost_valid(metadata: &Tree) -> bool {
    annotation(Some(metadata), DELETION_COST).is_none_or(|cost| {
        let starts_well =
            cost == "0" || cost.starts_with('-') || cost.starts_with(|c: char| ('1'..='9').contains(&c));
        starts_well && cost.parse::<i32>().is_ok()
    })
}

fn seccomp_profile(profile: &str, path: &Path<'_>) -> Vec<Cause> {
    match profile {
        "runtime/default" | "docker/default" | "unconfined" => Vec::new(),
        _ => match profile.strip_prefix(LOCALHOST) {
            Some(local) => descending_path(local, path),
            None => vec![Cause::invalid(path, &json!(profile), "must be a valid seccomp profile")],
        },
    }
}

fn app_armor_profile(container: &str, profile: &str, names: &BTreeSet<&str>, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if !names.contains(container) {
        causes.push(Cause::invalid(path, &json!(container), "container not found"));
    }
    let is_known = matches!(profile, "" | "runtime/default" | "unconfined") || profile.starts_with(LOCALHOST);
    if !is_known {
        let detail = format!("invalid AppArmor profile name: {}", gotext::quote(profile));
        causes.push(Cause::invalid(path, &json!(profile), &detail));
    }
    causes
}

/// Where a profile is in a field and in an annotation, both say the same.
pub fn matching_profiles(metadata: Option<&Tree>, spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let of_pod = object(spec, "securityContext");
    if let Some(written) = annotation(metadata, SECCOMP_OF_POD)
        && let Some(profile) = of_pod.and_then(|it| object(it, "seccompProfile"))
    {
        let field = format!("{path}.securityContext.seccompProfile");
        causes.extend(mismatch(written, profile, "seccomp", &["docker/default"], &field));
    }
    for (container, kind, at) in each_container(spec) {
        let profile = object(container, "securityContext").and_then(|it| object(it, "seccompProfile"));
        let key = format!("{SECCOMP_OF_CONTAINER}{}", text(container, "name"));
        if let (Some(profile), Some(written)) = (profile, annotation(metadata, &key)) {
            let field = format!("{path}.{kind}[{at}].securityContext.seccompProfile");
            causes.extend(mismatch(written, profile, "seccomp", &["docker/default"], &field));
        }
    }
    if object(spec, "os").is_some_and(|os| text(os, "name") == "windows") {
        return causes;
    }
    let default = of_pod.and_then(|it| object(it, "appArmorProfile"));
    for (container, kind, at) in each_container(spec) {
        let own = object(container, "securityContext").and_then(|it| object(it, "appArmorProfile"));
        let key = format!("{APP_ARMOR}{}", text(container, "name"));
        if let (Some(profile), Some(written)) = (own.or(default), annotation(metadata, &key)) {
            let field = format!("{path}.{kind}[{at}].securityContext.appArmorProfile");
            causes.extend(mismatch(written, profile, "apparmor", &[], &field));
        }
    }
    causes
}

/// `default_names` are other names of the runtime's profile.
fn mismatch(written: &str, profile: &Tree, what: &str, default_names: &[&str], field: &str) -> Option<Cause> {
    let local = text(profile, "localhostProfile");
    let (key, same) = match text(profile, "type") {
        "Unconfined" => ("type", written == "unconfined"),
        "RuntimeDefault" => ("type", written == "runtime/default" || default_names.contains(&written)),
        "Localhost" => match written.strip_prefix(LOCALHOST) {
            None => ("type", false),
            Some(name) => ("localhostProfile", profile.contains_key("localhostProfile") && name == local),
        },
        _ => return None,
    };
    let word = if key == "type" { "type" } else { "profile" };
    (!same).then(|| {
        Cause::forbidden(
            format!("{field}.{key}"),
            &format!("{what} {word} in annotation and field must match"),
        )
    })
}

/// The profile that an annotation of old means.
pub fn app_armor_profile_of(written: &str) -> Option<Value> {
    match written {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        _ => {
            let local = written.strip_prefix(LOCALHOST).filter(|local| !local.is_empty())?;
            Some(json!({"type": "Localhost", "localhostProfile": local}))
        }
    }
}

/// As [`app_armor_profile_of`], if it is a right one.
pub fn app_armor_field(written: &str) -> Option<Value> {
    let profile = app_armor_profile_of(written)?;
    let mut context = Tree::new();
    context.insert("appArmorProfile".to_owned(), profile.clone());
    security::app_armor(&context, &Path::new("")).is_empty().then_some(profile)
}

/// Annotations that stay as they are once a pod is there.
pub fn fixed_annotations(new: Option<&Tree>, old: Option<&Tree>, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let fixed = |key: &str| match () {
        () if key.starts_with(APP_ARMOR) => Some("AppArmor annotations"),
        () if key == MIRROR => Some("mirror pod annotation"),
        () => None,
    };
    for (key, value) in old.into_iter().flat_map(|old| entries(old, "annotations")) {
        let Some(what) = fixed(key).filter(|_| annotation(new, key) != value.as_str()) else { continue };
        causes.push(Cause::forbidden(&path.key(key), &format!("may not remove or update {what}")));
    }
    for (key, _) in new.into_iter().flat_map(|new| entries(new, "annotations")) {
        let Some(what) = fixed(key).filter(|_| annotation(old, key).is_none()) else { continue };
        causes.push(Cause::forbidden(&path.key(key), &format!("may not add {what}")));
    }
    causes
}

/// Whether the pod is the API's picture of one that its node runs by itself.
pub fn is_mirror(metadata: Option<&Tree>) -> bool {
    annotation(metadata, MIRROR).is_some()
}
