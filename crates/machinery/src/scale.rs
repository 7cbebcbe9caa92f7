//! The subresource `scale`: the replicas of any kind, as `autoscaling/v1` shows them.

use serde_json::{Value, json};

use crate::{
    field_error::Cause,
    resource::{ScalePaths, Tree},
    selector::LabelSelector,
};

fn at<'a>(tree: &'a Tree, path: &str) -> Option<&'a Value> {
    let mut keys = path.split('.').filter(|key| !key.is_empty());
    let first = tree.get(keys.next()?)?;
    keys.try_fold(first, |value, key| value.get(key))
}

/// The selector as text: kinds keep it as an object, as plain labels, or as text already.
fn selector_text(value: Option<&Value>) -> String {
    let labels = |labels: &Tree| {
        let pairs: Vec<(&str, &str)> =
            labels.iter().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?))).collect();
        LabelSelector::from_labels(pairs).to_string()
    };
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Object(object))
            if object.contains_key("matchLabels") || object.contains_key("matchExpressions") =>
        {
            LabelSelector::from_object(&Value::Object(object.clone()))
                .map(|it| it.to_string())
                .unwrap_or_default()
        }
        Some(Value::Object(object)) => labels(object),
        _ => String::new(),
    }
}

/// The scale of an object; `None` when it has no number of replicas.
pub fn scale_of(object: &Tree, paths: &ScalePaths) -> Option<Tree> {
    let count = |path: &str| at(object, path).and_then(Value::as_i64);
    let mut metadata = Tree::new();
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.get("metadata").and_then(|metadata| metadata.get(key)) {
            metadata.insert(key.into(), value.clone());
        }
    }
    let mut spec = Tree::new();
    if let Some(replicas) = count(&paths.spec_replicas).filter(|replicas| *replicas != 0) {
        spec.insert("replicas".into(), json!(replicas));
    }
    let mut status = json!({"replicas": count(&paths.status_replicas).unwrap_or(0)});
    let selector = selector_text(at(object, &paths.selector).filter(|_| !paths.selector.is_empty()));
    if !selector.is_empty() {
        status["selector"] = json!(selector);
    }
    let Value::Object(scale) = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": metadata, "spec": spec, "status": status,
    }) else {
        return None;
    };
    Some(scale)
}

/// The object with the replicas that `scale` asks for.
pub fn set_scale(object: &mut Tree, paths: &ScalePaths, scale: &Tree) {
    let replicas = at(scale, "spec.replicas").cloned().unwrap_or_else(|| json!(0));
    let mut keys: Vec<&str> = paths.spec_replicas.split('.').filter(|key| !key.is_empty()).collect();
    let Some(last) = keys.pop() else { return };
    let mut tree = object;
    for key in keys {
        let value = tree.entry(key).or_insert_with(|| json!({}));
        if !value.is_object() {
            *value = json!({});
        }
        match value.as_object_mut() {
            Some(inner) => tree = inner,
            None => return,
        }
    }
    tree.insert(last.to_owned(), replicas);
}

pub fn validate(scale: &Tree) -> Vec<Cause> {
    let replicas = at(scale, "spec.replicas").and_then(Value::as_i64).unwrap_or(0);
    match replicas {
        0.. => Vec::new(),
        _ => vec![Cause::invalid("spec.replicas", &json!(replicas), "must be greater than or equal to 0")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(value: Value) -> Tree {
        value.as_object().cloned().unwrap_or_default()
    }

    fn paths(selector: &str) -> ScalePaths {
        ScalePaths {
            spec_replicas: ".spec.replicas".into(),
            status_replicas: ".status.replicas".into(),
            selector: selector.into(),
        }
    }

    #[test]
    fn it_shows_replicas_and_the_selector_in_text() {
        for (selector, text) in [
            (json!({"matchLabels": {"b": "2", "a": "1"}}), "a=1,b=2"),
            (json!({"a": "1"}), "a=1"),
            (json!("x in (1,2)"), "x in (1,2)"),
        ] {
            let object = tree(json!({
                "metadata": {"name": "web", "resourceVersion": "7", "labels": {"x": "y"}},
                "spec": {"replicas": 3, "selector": selector}, "status": {"replicas": 2},
            }));
            let scale = scale_of(&object, &paths(".spec.selector")).unwrap();
            assert_eq!(
                Value::Object(scale),
                json!({
                    "kind": "Scale", "apiVersion": "autoscaling/v1",
                    "metadata": {"name": "web", "resourceVersion": "7"},
                    "spec": {"replicas": 3}, "status": {"replicas": 2, "selector": text},
                })
            );
        }
    }

    #[test]
    fn it_sets_replicas_and_nothing_else() {
        let mut object = tree(json!({"spec": {"paused": true}}));
        set_scale(&mut object, &paths(""), &tree(json!({"spec": {"replicas": 5}})));
        assert_eq!(object, tree(json!({"spec": {"paused": true, "replicas": 5}})));
        set_scale(&mut object, &paths(""), &tree(json!({"spec": {}})));
        assert_eq!(object["spec"]["replicas"], 0, "left out is none");
    }

    #[test]
    fn replicas_are_not_negative() {
        assert!(validate(&tree(json!({"spec": {"replicas": 0}}))).is_empty());
        assert_eq!(validate(&tree(json!({"spec": {"replicas": -1}})))[0].field, "spec.replicas");
    }
}
