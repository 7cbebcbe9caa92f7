//! Expressions of policies and of webhooks' match conditions, one object a line of `expressions.jsonl`, with the
//! causes for which kube-apiserver 1.36.4 refused it (none: it was accepted).

use machinery::validation::policies;
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
