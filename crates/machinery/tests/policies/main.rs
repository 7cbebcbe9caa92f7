//! Expressions of policies and of webhooks' match conditions, one object a line of `expressions.jsonl`, with the
//! causes for which kube-apiserver 1.36.4 refused it (none: it was accepted); and specs of policies, one a line of
//! `types.jsonl`, with what kube-controller-manager 1.36.4 found when it checked their types (without the numbers that it
//! puts behind the names of types).

use machinery::{
    Revision,
    admission::types::{self, Kind},
    builtin,
    resource::{Resource, Tree, custom_resources},
    validation::policies,
};
use serde_json::{Value, json};

/// The object of a line, and the fields and messages of what is wrong with it here.
fn refused(kind: &str, given: &Value) -> Vec<(String, String)> {
    let mut spec = given.clone();
    if kind != "ValidatingWebhookConfiguration" {
        let everything = json!({"operations": ["CREATE", "UPDATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]});
        spec["matchConstraints"] = json!({"resourceRules": [everything]});
    }
    let object = match kind {
        "ValidatingWebhookConfiguration" => spec,
        _ => json!({"metadata": {"name": "p"}, "spec": spec}),
    };
    let Value::Object(mut tree) = object else { return Vec::new() };
    let causes = match kind {
        "ValidatingAdmissionPolicy" => {
            policies::default_policy(&mut tree);
            policies::validating_policy(&tree, None)
        }
        "MutatingAdmissionPolicy" => {
            policies::default_policy(&mut tree);
            policies::mutating_policy(&tree, None)
        }
        _ => {
            policies::default_validating_webhooks(&mut tree);
            policies::validating_webhooks(&tree, None)
        }
    };
    causes.into_iter().map(|cause| (cause.field, cause.message)).collect()
}

#[test]
fn expressions_are_refused_as_upstream_refuses_them() {
    let mut different = Vec::new();
    let mut lines = 0;
    for line in include_str!("expressions.jsonl").lines() {
        lines += 1;
        let row: Value = serde_json::from_str(line).expect("a line of JSON");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let causes = row["causes"].as_array().into_iter().flatten();
        let expected: Vec<(String, String)> =
            causes.map(|cause| (text(&cause[0]), text(&cause[1]))).collect();
        let found = refused(row["kind"].as_str().unwrap_or_default(), &row["given"]);
        if found != expected {
            different.push(format!("{}\n  upstream {expected:?}\n  here     {found:?}", row["given"]));
        }
    }
    assert!(different.is_empty(), "{} of {lines} differ:\n{}", different.len(), different.join("\n"));
}

/// The definition that was there when the table was made.
fn things() -> Vec<Resource> {
    let spec = json!({"type": "object", "properties": {
        "size": {"type": "integer"},
        "when": {"type": "string", "format": "date-time"},
        "any": {"x-kubernetes-preserve-unknown-fields": true},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "ios": {"x-kubernetes-int-or-string": true},
        "tags": {"type": "array", "items": {"type": "string"}},
        "m": {"type": "object", "additionalProperties": {"type": "integer"}},
        "namespace": {"type": "string"},
        "a-b": {"type": "string"},
        "n": {"type": "number"},
        "nul": {"type": "string", "nullable": true},
        "emb": {
            "type": "object",
            "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true,
        },
    }});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    let names = json!({"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"});
    let definition = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": names,
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
        "status": {
            "acceptedNames": names,
            "conditions": [
                {"type": "NamesAccepted", "status": "True"},
                {"type": "Established", "status": "True"},
            ],
        },
    });
    custom_resources(definition.as_object().unwrap_or(&Tree::new()), Revision::ZERO)
}

#[test]
fn types_are_checked_as_upstream_checks_them() {
    let mut resources: Vec<Resource> = builtin::rows().map(|row| Resource::new(row.clone())).collect();
    resources.extend(things());
    let mut different = Vec::new();
    for line in include_str!("types.jsonl").lines() {
        let row: Value = serde_json::from_str(line).expect("a line of JSON");
        let policy = json!({"spec": row["spec"]});
        let Value::Object(policy) = policy else { continue };
        let mut kinds = Vec::new();
        for (group, version, plural) in types::named_resources(&policy) {
            let named = resources.iter().filter(|it| {
                (group.is_empty() || it.group == group) && it.version == version && it.plural == plural
            });
            kinds.extend(named.map(Kind::of));
        }
        let params = resources.iter().find(|it| {
            let kind = &row["spec"]["paramKind"];
            kind["apiVersion"] == it.api_version.as_str() && kind["kind"] == it.kind.as_str()
        });
        let found = types::check(&policy, &types::chosen(kinds), params.map(Kind::of).as_ref());
        let found: Vec<Value> = found["expressionWarnings"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|warning| json!([warning["fieldRef"], warning["warning"]]))
            .collect();
        let expected = row["warnings"].as_array().cloned().unwrap_or_default();
        let missing = expected.iter().filter(|it| !found.contains(it)).map(|it| format!("- {it}"));
        let extra = found.iter().filter(|it| !expected.contains(it)).map(|it| format!("+ {it}"));
        different.extend(missing.chain(extra));
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}
