//! What `metadata` may hold when an object is created, and what an update may change in it.
//!
//! The tree is expected to have the types of `ObjectMeta` already (see [`crate::schema`]); a member of another type
//! is taken as absent.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::{
    field_error::Cause,
    gotext,
    names::{self, NameRule},
};

/// Keys and values together, per object.
pub const ANNOTATIONS_MAX_BYTES: usize = 256 * 1024;
const FIELD_MANAGER_MAX: usize = 128;
const SUBRESOURCE_MAX: usize = 256;
const IMMUTABLE: &str = "field is immutable";
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

type Metadata = Map<String, Value>;

/// Checks the metadata of a new object. Its name is already generated, if it is to be.
pub fn validate_create(metadata: &Metadata, namespaced: bool, name_rule: NameRule) -> Vec<Cause> {
    let mut causes = Vec::new();
    let generate_name = text(metadata, "generateName");
    if !generate_name.is_empty() {
        causes.extend(invalid_each("metadata.generateName", generate_name, name_rule(generate_name, true)));
    }
    match text(metadata, "name") {
        "" => causes.push(Cause::required("metadata.name", "name or generateName is required")),
        name => causes.extend(invalid_each("metadata.name", name, name_rule(name, false))),
    }
    causes.extend(namespace(metadata, namespaced));
    if let Some(generation) =
        metadata.get("generation").filter(|value| value.as_i64().is_some_and(|it| it < 0))
    {
        causes.push(Cause::invalid("metadata.generation", generation, "must be greater than or equal to 0"));
    }
    causes.extend(labels(metadata.get("labels"), "metadata.labels"));
    causes.extend(annotations(metadata.get("annotations"), "metadata.annotations"));
    causes.extend(owner_references(metadata));
    causes.extend(finalizers(metadata));
    causes.extend(managed_fields(metadata));
    causes
}

/// Checks the metadata that is to replace `old`.
pub fn validate_update(new: &Metadata, old: &Metadata) -> Vec<Cause> {
    let mut causes = common(new);
    if is_set(old, "deletionTimestamp") {
        causes.extend(no_new_finalizers(new, old));
    }
    if text(new, "resourceVersion").is_empty() {
        causes.push(Cause::invalid(
            "metadata.resourceVersion",
            &"".into(),
            "must be specified for an update",
        ));
    }
    let generation = |metadata: &Metadata| metadata.get("generation").and_then(Value::as_i64).unwrap_or(0);
    if generation(new) < generation(old) {
        causes.push(Cause::invalid(
            "metadata.generation",
            &generation(new).into(),
            "must not be decremented",
        ));
    }
    for field in ["name", "namespace", "uid"] {
        if text(new, field) != text(old, field) {
            causes.push(Cause::invalid(format!("metadata.{field}"), &text(new, field).into(), IMMUTABLE));
        }
    }
    for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let value = |metadata: &Metadata| metadata.get(field).cloned().unwrap_or(Value::Null);
        if value(new) != value(old) {
            causes.push(Cause::invalid(format!("metadata.{field}"), &value(new), IMMUTABLE));
        }
    }
    causes
}

/// What upstream asks of the metadata of every kind before each change: less than it asks of new objects.
fn common(metadata: &Metadata) -> Vec<Cause> {
    let prefix = text(metadata, "generateName");
    let mut causes = invalid_each("metadata.generateName", prefix, names::path_segment_name(prefix, true));
    causes.extend(labels(metadata.get("labels"), "metadata.labels"));
    causes.extend(annotations(metadata.get("annotations"), "metadata.annotations"));
    causes.extend(owner_references(metadata));
    causes.extend(finalizers(metadata));
    causes.extend(managed_fields(metadata));
    causes
}

/// Checks a map of labels, also one outside `metadata`.
pub fn labels(labels: Option<&Value>, field: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (key, value) in members(labels) {
        causes.extend(invalid_each(field, key, names::is_qualified_name(key)));
        let value = value.as_str().unwrap_or_default();
        causes.extend(invalid_each(field, value, names::is_label_value(value)));
    }
    causes
}

/// Checks a map of annotations, also one outside `metadata`.
pub fn annotations(annotations: Option<&Value>, field: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut size = 0;
    for (key, value) in members(annotations) {
        // Upstream lets case pass, also in the prefix.
        causes.extend(invalid_each(field, key, names::is_qualified_name(&key.to_lowercase())));
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_MAX_BYTES {
        causes.push(Cause::too_long(field, ANNOTATIONS_MAX_BYTES));
    }
    causes
}

/// Checks the name of who writes fields.
pub fn field_manager(manager: &str, field: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    if manager.len() > FIELD_MANAGER_MAX {
        causes.push(Cause::too_long(field, FIELD_MANAGER_MAX));
    }
    for (at, c) in manager.char_indices().filter(|(_, c)| !gotext::is_print(*c)) {
        let detail = format!("invalid character {} (at position {at})", gotext::code_point(c));
        causes.push(Cause::invalid(field, &manager.into(), &detail));
    }
    causes
}

fn namespace(metadata: &Metadata, namespaced: bool) -> Vec<Cause> {
    let namespace = text(metadata, "namespace");
    match (namespaced, namespace) {
        (true, "") => vec![Cause::required("metadata.namespace", "")],
        (true, _) => invalid_each("metadata.namespace", namespace, names::label_name(namespace, false)),
        (false, "") => Vec::new(),
        (false, _) => vec![Cause::forbidden("metadata.namespace", "not allowed on this type")],
    }
}

/// Takes out owners that come again, and says whose; upstream does so with a warning.
pub fn drop_doubled_owners(metadata: &mut Metadata) -> Option<String> {
    drop_doubled(metadata, "")
}

/// The same, once others may have changed the object.
pub fn drop_doubled_owners_after_admission(metadata: &mut Metadata) -> Option<String> {
    drop_doubled(metadata, " after mutating admission happens")
}

fn drop_doubled(metadata: &mut Metadata, when: &str) -> Option<String> {
    let owners = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut)?;
    let mut seen: Vec<Value> = Vec::new();
    let mut doubled: Vec<String> = Vec::new();
    owners.retain(|owner| {
        if seen.contains(owner) {
            let uid = owner.get("uid").and_then(Value::as_str).unwrap_or_default();
            doubled.push(uid.to_owned());
            return false;
        }
        seen.push(owner.clone());
        true
    });
    doubled.sort();
    doubled.dedup();
    (!doubled.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may \
             reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            doubled.join(", ")
        )
    })
}

fn owner_references(metadata: &Metadata) -> Vec<Cause> {
    const FIELD: &str = "metadata.ownerReferences";
    let owners: Vec<&Metadata> =
        items(metadata, "ownerReferences").iter().filter_map(Value::as_object).collect();
    let mut causes = Vec::new();
    let mut controller: Option<String> = None;
    for owner in &owners {
        causes.extend(owner_reference(owner, FIELD));
        if owner.get("controller") != Some(&Value::Bool(true)) {
            continue;
        }
        let named = format!("{}/{}", text(owner, "kind"), text(owner, "name"));
        match &controller {
            None => controller = Some(named),
            Some(first) => {
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {named}"
                );
                let rendered = owners.iter().map(|owner| owner_text(owner)).collect::<Vec<_>>().join(",");
                causes.push(Cause::invalid_text(FIELD, &format!("[{rendered}]"), &detail));
            }
        }
    }
    causes
}

fn owner_reference(owner: &Metadata, field: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (api_version, kind) = (text(owner, "apiVersion"), text(owner, "kind"));
    // An API version of more than two parts reads as none.
    let version = match api_version.split('/').collect::<Vec<_>>()[..] {
        [version] | [_, version] => version,
        _ => "",
    };
    if version.is_empty() {
        causes.push(Cause::invalid(
            format!("{field}.apiVersion"),
            &api_version.into(),
            "version must not be empty",
        ));
    }
    for (name, value) in [("kind", kind), ("name", text(owner, "name")), ("uid", text(owner, "uid"))] {
        if value.is_empty() {
            causes.push(Cause::invalid(format!("{field}.{name}"), &value.into(), "must not be empty"));
        }
    }
    if (api_version, kind) == ("v1", "Event") {
        let detail = "/v1, Kind=Event is disallowed from being an owner";
        causes.push(Cause::invalid_text(field, &owner_text(owner), detail));
    }
    causes
}

/// An owner reference as Go writes it: in the order of its fields.
fn owner_text(owner: &Metadata) -> String {
    let required = ["apiVersion", "kind", "name", "uid"].map(|field| {
        let value = Value::from(text(owner, field));
        format!("{}:{}", gotext::json(field), gotext::json(&value))
    });
    let optional = ["controller", "blockOwnerDeletion"].into_iter().filter_map(|field| {
        let value = owner.get(field).filter(|value| !value.is_null())?;
        Some(format!("{}:{}", gotext::json(field), gotext::json(value)))
    });
    format!("{{{}}}", required.into_iter().chain(optional).collect::<Vec<_>>().join(","))
}

fn finalizers(metadata: &Metadata) -> Vec<Cause> {
    const FIELD: &str = "metadata.finalizers";
    let finalizers: Vec<&str> = items(metadata, "finalizers").iter().filter_map(Value::as_str).collect();
    let mut causes: Vec<Cause> = finalizers
        .iter()
        .flat_map(|name| invalid_each(FIELD, name, names::is_qualified_name(name)))
        .collect();
    if finalizers.contains(&ORPHAN) && finalizers.contains(&FOREGROUND) {
        let detail = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        causes.push(Cause::invalid(FIELD, &finalizers.into(), &detail));
    }
    causes
}

fn no_new_finalizers(new: &Metadata, old: &Metadata) -> Option<Cause> {
    let set =
        |metadata| items(metadata, "finalizers").iter().filter_map(Value::as_str).collect::<BTreeSet<_>>();
    let (new, old) = (set(new), set(old));
    let added: Vec<String> = new.difference(&old).map(|name| gotext::quote(name)).collect();
    if added.is_empty() {
        return None;
    }
    let detail = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        added.join(", ")
    );
    Some(Cause::forbidden("metadata.finalizers", &detail))
}

fn managed_fields(metadata: &Metadata) -> Vec<Cause> {
    let entries = items(metadata, "managedFields").iter().filter_map(Value::as_object);
    entries.enumerate().flat_map(|(at, entry)| managed_fields_entry(entry, at)).collect()
}

fn managed_fields_entry(entry: &Metadata, at: usize) -> Vec<Cause> {
    let field = |name: &str| format!("metadata.managedFields[{at}].{name}");
    let mut causes = Vec::new();
    let operation = text(entry, "operation");
    if !matches!(operation, "Apply" | "Update") {
        causes.push(Cause::invalid(field("operation"), &operation.into(), "must be `Apply` or `Update`"));
    }
    let fields_type = text(entry, "fieldsType");
    if !matches!(fields_type, "" | "FieldsV1") {
        causes.push(Cause::invalid(field("fieldsType"), &fields_type.into(), "must be `FieldsV1`"));
    }
    causes.extend(field_manager(text(entry, "manager"), &field("manager")));
    if text(entry, "subresource").len() > SUBRESOURCE_MAX {
        causes.push(Cause::too_long(field("subresource"), SUBRESOURCE_MAX));
    }
    causes
}

fn text<'a>(metadata: &'a Metadata, field: &str) -> &'a str {
    metadata.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn is_set(metadata: &Metadata, field: &str) -> bool {
    metadata.get(field).is_some_and(|value| !value.is_null())
}

fn items<'a>(metadata: &'a Metadata, field: &str) -> &'a [Value] {
    metadata.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn members(value: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> {
    value.and_then(Value::as_object).into_iter().flatten()
}

fn invalid_each(field: &str, value: &str, reasons: Vec<String>) -> Vec<Cause> {
    let value = Value::from(value);
    reasons.iter().map(|reason| Cause::invalid(field, &value, reason)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tree(value: Value) -> Metadata {
        value.as_object().cloned().unwrap_or_default()
    }

    fn on_create(metadata: Value) -> Vec<String> {
        texts(validate_create(&tree(metadata), true, names::subdomain_name))
    }

    fn on_update(changes: Value, old: Value) -> Vec<String> {
        let mut new = tree(old.clone());
        new.insert("resourceVersion".into(), json!("7"));
        new.extend(tree(changes));
        texts(validate_update(&new, &tree(old)))
    }

    fn texts(causes: Vec<Cause>) -> Vec<String> {
        causes.into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
    }

    #[test]
    fn a_new_object_needs_a_name_and_its_namespace() {
        assert_eq!(on_create(json!({"name": "a", "namespace": "b"})), [""; 0]);
        assert_eq!(
            on_create(json!({})),
            [
                "metadata.name: Required value: name or generateName is required",
                "metadata.namespace: Required value"
            ]
        );
        let cluster_scoped = tree(json!({"name": "a", "namespace": "b"}));
        assert_eq!(
            texts(validate_create(&cluster_scoped, false, names::path_segment_name)),
            ["metadata.namespace: Forbidden: not allowed on this type"]
        );
        let bad = on_create(json!({"name": "A", "generateName": "BB-", "namespace": "c.d"}));
        assert_eq!(bad.len(), 3);
        assert!(
            bad[0]
                .starts_with("metadata.generateName: Invalid value: \"BB-\": a lowercase RFC 1123 subdomain")
        );
        assert!(bad[1].starts_with("metadata.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain"));
        assert_eq!(bad[2], "metadata.namespace: Invalid value: \"c.d\": must not contain dots");
    }

    #[test]
    fn labels_and_annotations_have_qualified_keys() {
        let bad = on_create(json!({
            "name": "a", "namespace": "b",
            "labels": {"x/y/z": "ok", "ok": "-"},
            "annotations": {"Upper/Case": "any text", "bad key": ""},
        }));
        assert_eq!(bad.len(), 3);
        assert!(
            bad[0].starts_with(
                "metadata.labels: Invalid value: \"-\": a valid label must be an empty string or"
            )
        );
        assert!(
            bad[1].starts_with("metadata.labels: Invalid value: \"x/y/z\": a valid label key must consist")
        );
        assert!(
            bad[2].starts_with("metadata.annotations: Invalid value: \"bad key\": name part must consist")
        );
    }

    #[test]
    fn annotations_are_bounded_together() {
        let with = |len: usize| {
            on_create(json!({"name": "a", "namespace": "b", "annotations": {"k": "x".repeat(len)}}))
        };
        assert_eq!(with(ANNOTATIONS_MAX_BYTES - 1), [""; 0]);
        assert_eq!(
            with(ANNOTATIONS_MAX_BYTES),
            ["metadata.annotations: Too long: may not be more than 262144 bytes"]
        );
    }

    #[test]
    fn owners_are_complete_and_one_controls() {
        let owner = |name: &str| json!({"kind": "K", "apiVersion": "g/v1", "name": name, "uid": "u", "controller": true});
        assert_eq!(
            on_create(json!({"name": "a", "namespace": "b", "ownerReferences": [owner("x"), owner("y")]})),
            [concat!(
                r#"metadata.ownerReferences: Invalid value: [{"apiVersion":"g/v1","kind":"K","name":"x","uid":"u","controller":true},"#,
                r#"{"apiVersion":"g/v1","kind":"K","name":"y","uid":"u","controller":true}]: "#,
                r#"Only one reference can have Controller set to true. Found "true" in references for K/x and K/y"#
            )]
        );
        assert_eq!(
            on_create(json!({"name": "a", "namespace": "b", "ownerReferences": [{"apiVersion": "a/b/c"}]})),
            [
                r#"metadata.ownerReferences.apiVersion: Invalid value: "a/b/c": version must not be empty"#,
                r#"metadata.ownerReferences.kind: Invalid value: "": must not be empty"#,
                r#"metadata.ownerReferences.name: Invalid value: "": must not be empty"#,
                r#"metadata.ownerReferences.uid: Invalid value: "": must not be empty"#,
            ]
        );
        let event = json!({"kind": "Event", "apiVersion": "v1", "name": "x", "uid": "u"});
        assert_eq!(
            on_create(json!({"name": "a", "namespace": "b", "ownerReferences": [event]})),
            [concat!(
                r#"metadata.ownerReferences: Invalid value: {"apiVersion":"v1","kind":"Event","name":"x","uid":"u"}: "#,
                "/v1, Kind=Event is disallowed from being an owner"
            )]
        );
    }

    #[test]
    fn finalizers_are_qualified_and_do_not_contradict() {
        assert_eq!(
            on_create(json!({"name": "a", "namespace": "b", "finalizers": ["orphan", "foregroundDeletion"]})),
            [concat!(
                r#"metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: "#,
                "finalizer orphan and foregroundDeletion cannot be both set"
            )]
        );
    }

    #[test]
    fn managed_fields_say_who_and_how() {
        let entries = json!([{"operation": "Apply", "fieldsType": "FieldsV1", "manager": "m"}, {"manager": "a\tb", "fieldsType": "V2"}]);
        assert_eq!(
            on_create(json!({"name": "a", "namespace": "b", "managedFields": entries})),
            [
                "metadata.managedFields[1].operation: Invalid value: \"\": must be `Apply` or `Update`",
                "metadata.managedFields[1].fieldsType: Invalid value: \"V2\": must be `FieldsV1`",
                "metadata.managedFields[1].manager: Invalid value: \"a\\tb\": invalid character U+0009 (at position 1)",
            ]
        );
    }

    #[test]
    fn identity_and_times_do_not_change() {
        let old = json!({"name": "a", "namespace": "b", "uid": "u", "creationTimestamp": "2024-01-01T00:00:00Z", "generation": 2});
        assert_eq!(on_update(json!({}), old.clone()), [""; 0]);
        assert_eq!(
            on_update(
                json!({"name": "x", "uid": "v", "creationTimestamp": null, "deletionGracePeriodSeconds": 5, "generation": 1, "resourceVersion": ""}),
                old
            ),
            [
                "metadata.resourceVersion: Invalid value: \"\": must be specified for an update",
                "metadata.generation: Invalid value: 1: must not be decremented",
                "metadata.name: Invalid value: \"x\": field is immutable",
                "metadata.uid: Invalid value: \"v\": field is immutable",
                "metadata.creationTimestamp: Invalid value: null: field is immutable",
                "metadata.deletionGracePeriodSeconds: Invalid value: 5: field is immutable",
            ]
        );
    }

    #[test]
    fn a_dying_object_takes_no_new_finalizers() {
        let old = json!({"name": "a", "namespace": "b", "deletionTimestamp": "2024-01-01T00:00:00Z", "finalizers": ["x/a"]});
        assert_eq!(on_update(json!({"finalizers": []}), old.clone()), [""; 0]);
        assert_eq!(
            on_update(json!({"finalizers": ["x/c", "x/a", "x/b"]}), old),
            [
                r#"metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"x/b", "x/c"}"#
            ]
        );
    }
}
