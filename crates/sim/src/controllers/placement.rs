//! Which nodes a pod may be on: selectors, affinity, taints.

use machinery::selector::LabelSelector;
use serde_json::Value;

use crate::tree;

/// What a pod's spec asks of a node's labels and name: its selector and its required affinity.
pub fn selects(spec: &Value, node: &Value) -> bool {
    let labels =
        tree::members(spec, "/nodeSelector").map(|(key, value)| (key, value.as_str().unwrap_or_default()));
    if !LabelSelector::from_labels(labels).matches(&tree::labels(node, "/metadata/labels")) {
        return false;
    }
    match spec.pointer("/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution") {
        Some(required) => matches_any(required, node),
        None => true,
    }
}

/// A node selector holds if one of its terms does; a term without requirements never does.
pub fn matches_any(selector: &Value, node: &Value) -> bool {
    tree::items(selector, "/nodeSelectorTerms").any(|term| {
        let expressions = tree::items(term, "/matchExpressions");
        let fields = tree::items(term, "/matchFields");
        if expressions.len() + fields.len() == 0 {
            return false;
        }
        let has = |requirement: &Value| {
            let labels = node.pointer("/metadata/labels");
            let key = tree::text(requirement, "/key");
            holds(requirement, labels.and_then(|labels| labels.get(key)).and_then(Value::as_str))
        };
        let is = |requirement: &Value| match tree::text(requirement, "/key") {
            "metadata.name" => holds(requirement, Some(tree::name(node))),
            _ => false,
        };
        expressions.clone().all(has) && fields.clone().all(is)
    })
}

fn holds(requirement: &Value, value: Option<&str>) -> bool {
    let mut values = tree::items(requirement, "/values").filter_map(Value::as_str);
    match tree::text(requirement, "/operator") {
        "In" => value.is_some_and(|value| values.any(|it| it == value)),
        "NotIn" => value.is_none_or(|value| values.all(|it| it != value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        operator @ ("Gt" | "Lt") => {
            let number = value.and_then(|value| value.parse::<i64>().ok());
            let bound = values.next().and_then(|bound| bound.parse::<i64>().ok());
            let (Some(number), Some(bound)) = (number, bound) else { return false };
            if operator == "Gt" { number > bound } else { number < bound }
        }
        _ => false,
    }
}

/// The toleration bears the taint.
pub fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let of = |pointer: &str| (tree::text(toleration, pointer), tree::text(taint, pointer));
    let (effect, taint_effect) = of("/effect");
    let (key, taint_key) = of("/key");
    let (value, taint_value) = of("/value");
    if !(effect.is_empty() || effect == taint_effect) || !(key.is_empty() || key == taint_key) {
        return false;
    }
    match tree::text(toleration, "/operator") {
        "Exists" => true,
        "" | "Equal" => value == taint_value,
        _ => false,
    }
}

/// The first taint with one of these effects that no toleration bears.
pub fn untolerated<'a>(taints: &'a [Value], tolerations: &[Value], effects: &[&str]) -> Option<&'a Value> {
    taints.iter().find(|taint| {
        effects.contains(&tree::text(taint, "/effect")) && !tolerations.iter().any(|it| tolerates(it, taint))
    })
}

pub fn taints(node: &Value) -> Vec<Value> {
    tree::items(node, "/spec/taints").cloned().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requirements_hold_as_their_operator_says() {
        let node = json!({ "metadata": { "name": "n", "labels": { "zone": "a", "cores": "8" } } });
        let table = [
            (json!({ "key": "zone", "operator": "In", "values": ["a", "b"] }), true),
            (json!({ "key": "zone", "operator": "NotIn", "values": ["a"] }), false),
            (json!({ "key": "rack", "operator": "NotIn", "values": ["a"] }), true),
            (json!({ "key": "zone", "operator": "Exists" }), true),
            (json!({ "key": "rack", "operator": "DoesNotExist" }), true),
            (json!({ "key": "cores", "operator": "Gt", "values": ["7"] }), true),
            (json!({ "key": "cores", "operator": "Lt", "values": ["8"] }), false),
            (json!({ "key": "zone", "operator": "Gt", "values": ["7"] }), false),
        ];
        for (requirement, expected) in table {
            let selector = json!({ "nodeSelectorTerms": [{ "matchExpressions": [requirement] }] });
            assert_eq!(matches_any(&selector, &node), expected, "{selector}");
        }
        let by_name = |name: &str| {
            json!({ "nodeSelectorTerms": [
                { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [name] }] }] })
        };
        assert!(matches_any(&by_name("n"), &node) && !matches_any(&by_name("m"), &node));
        assert!(!matches_any(&json!({ "nodeSelectorTerms": [{}] }), &node));
    }

    #[test]
    fn a_taint_is_borne_by_what_names_it_or_everything() {
        let taint = json!({ "key": "k", "value": "v", "effect": "NoSchedule" });
        let table = [
            (json!({ "operator": "Exists" }), true),
            (json!({ "key": "k", "operator": "Exists" }), true),
            (json!({ "key": "k", "value": "v" }), true),
            (json!({ "key": "k", "value": "w" }), false),
            (json!({ "key": "k", "operator": "Exists", "effect": "NoExecute" }), false),
            (json!({ "key": "l", "operator": "Exists" }), false),
        ];
        for (toleration, expected) in table {
            assert_eq!(tolerates(&toleration, &taint), expected, "{toleration}");
        }
    }
}
