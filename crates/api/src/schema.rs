//! What several of the kinds have in common, as schemas.

use machinery::{
    field_error::Cause,
    names,
    resource::Tree,
    selector,
    validation::parts::{
        NOT_INTEGER, Path, dns_label, invalid_each, items, node_selector_requirement, object, qualified_name,
        text, texts,
    },
};
use serde_json::{Value, json};

/// More clusters than this cannot be named one by one; labels select as many as there are.
pub const MOST_NAMES: usize = 1024;
/// Entries of a selection.
pub const MOST_SELECTIONS: usize = 64;

/// Of a kind: its members beside those that every object has.
pub fn kind(description: &str, mut members: Value) -> Value {
    let open = json!({"type": "object"});
    let mut properties =
        json!({"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": open});
    let required = members.get("spec").map(|_| json!(["spec"])).unwrap_or_else(|| json!([]));
    if let (Some(all), Some(own)) = (properties.as_object_mut(), members.as_object_mut()) {
        all.append(own);
    }
    json!({"type": "object", "description": description, "required": required, "properties": properties})
}

pub fn object_of(description: &str, properties: Value) -> Value {
    json!({"type": "object", "description": description, "properties": properties})
}

pub fn word(description: &str) -> Value {
    json!({"type": "string", "maxLength": 253, "description": description})
}

pub fn flag(description: &str) -> Value {
    json!({"type": "boolean", "description": description})
}

pub fn count(description: &str) -> Value {
    json!({"type": "integer", "format": "int32", "minimum": 0, "description": description})
}

pub fn choice(description: &str, of: &[&str], default: Option<&str>) -> Value {
    let mut choice = json!({"type": "string", "enum": of, "description": description});
    if let (Some(choice), Some(default)) = (choice.as_object_mut(), default) {
        choice.insert("default".into(), json!(default));
    }
    choice
}

pub fn words(description: &str, most: usize) -> Value {
    json!({
        "type": "array", "description": description, "minItems": 1, "maxItems": most,
        "x-kubernetes-list-type": "set", "items": {"type": "string", "maxLength": 253},
    })
}

pub fn list_of(description: &str, most: usize, items: Value) -> Value {
    json!({
        "type": "array", "description": description, "maxItems": most, "x-kubernetes-list-type": "atomic",
        "items": items,
    })
}

/// Anything, kept as it is.
pub fn anything(description: &str) -> Value {
    json!({"description": description, "x-kubernetes-preserve-unknown-fields": true})
}

pub fn amounts(description: &str) -> Value {
    json!({
        "type": "object", "description": description, "additionalProperties": {
            "anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true,
        },
    })
}

/// A selector of labels. `numbers`: also by comparing them, as node affinity does.
pub fn selector_of(description: &str, numbers: bool) -> Value {
    let operators: &[&str] = match numbers {
        true => &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"],
        false => &["In", "NotIn", "Exists", "DoesNotExist"],
    };
    let requirement = json!({
        "type": "object", "required": ["key", "operator"], "properties": {
            "key": word("The label."),
            "operator": choice("How it is compared with the values.", operators, None),
            "values": {
                "type": "array", "maxItems": MOST_NAMES, "x-kubernetes-list-type": "atomic",
                "items": {"type": "string", "maxLength": 253},
                "description": "None for Exists and DoesNotExist, one number for Gt and Lt.",
            },
        },
    });
    let labels = json!({
        "type": "object", "additionalProperties": {"type": "string", "maxLength": 63},
        "description": "Labels that must be there with these values.",
    });
    object_of(
        description,
        json!({"matchLabels": labels, "matchExpressions": list_of("All of these must hold.", 64, requirement)}),
    )
}

/// Which objects a policy is for.
pub fn selections() -> Value {
    let entry = object_of(
        "All that is given must hold; an entry with nothing given selects every object.",
        json!({
            "apiGroups": words("Groups of the API; \"\" is the core group.", 64),
            "kinds": words("Kinds, such as Deployment.", 64),
            "names": words("Names of objects.", MOST_NAMES),
            "namespaces": words("Namespaces they are in.", MOST_NAMES),
            "labelSelector": selector_of("Selects by the labels of the object.", false),
            "namespaceSelector": selector_of("Selects by the labels of its namespace.", false),
        }),
    );
    list_of(
        "Which objects this is for: those that one of the entries selects. Without entries only those that name it \
         with the annotation hanse.io/placement.",
        MOST_SELECTIONS,
        entry,
    )
}

/// Which clusters, by name and by label.
pub fn clusters(description: &str) -> Value {
    object_of(
        description,
        json!({
            "names": words("Names of clusters; every cluster if it is left out.", MOST_NAMES),
            "selector": selector_of("Of those, the ones with these labels.", true),
        }),
    )
}

/// What is wrong with the entries of a selection.
pub fn check_selections(spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let path = path.child("select");
    let mut causes = Vec::new();
    for (at, entry) in items(spec, "select") {
        let path = path.index(at);
        for key in ["labelSelector", "namespaceSelector"] {
            if let Some(value) = entry.get(key) {
                causes.extend(selector::validate_object(value, &path.child(key).to_string()));
            }
        }
        causes.extend(check_labels(entry, "namespaces", &path));
    }
    causes
}

/// What is wrong with names and selector of clusters.
pub fn check_clusters(tree: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = check_labels(tree, "names", path);
    causes.extend(check_cluster_selector(tree, path));
    causes
}

/// As node affinity has it, which is why it can compare numbers.
pub fn check_cluster_selector(tree: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let Some(selector) = object(tree, "selector") else { return Vec::new() };
    let path = path.child("selector");
    let labels = path.child("matchLabels");
    let mut causes = Vec::new();
    for (key, value) in object(selector, "matchLabels").into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        causes.extend(qualified_name(key, &labels));
        causes.extend(invalid_each(&labels.child(key), value, names::is_label_value(value)));
    }
    let expressions = path.child("matchExpressions");
    for (at, requirement) in items(selector, "matchExpressions") {
        let path = expressions.index(at);
        causes.extend(node_selector_requirement(requirement, false, &path));
        if matches!(text(requirement, "operator"), "Gt" | "Lt") {
            let values = path.child("values");
            let wrong = texts(requirement, "values").filter(|value| value.parse::<i64>().is_err());
            causes.extend(wrong.map(|value| Cause::invalid(&values, &json!(value), NOT_INTEGER)));
        }
    }
    causes
}

fn check_labels(tree: &Tree, key: &str, path: &Path<'_>) -> Vec<Cause> {
    let path = path.child(key);
    let each = texts(tree, key).enumerate();
    each.flat_map(|(at, name)| dns_label(name, &path.index(at)).collect::<Vec<_>>()).collect()
}
