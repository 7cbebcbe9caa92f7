use serde_json::{Value, json};

use super::*;
use crate::{field_error::Cause, resource::Tree};

fn tree(value: Value) -> Tree {
    match value {
        Value::Object(tree) => tree,
        other => panic!("not an object: {other}"),
    }
}

fn told(causes: Vec<Cause>) -> Vec<String> {
    causes.into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
}

fn webhooks(hook: Value) -> Tree {
    let mut tree = tree(json!({"webhooks": [hook]}));
    default_validating_webhooks(&mut tree);
    tree
}

#[test]
fn webhooks_have_names_rules_and_an_address() {
    let good = json!({
        "name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {"namespace": "n", "name": "s"}},
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/*"]}],
    });
    let full = webhooks(good.clone());
    let hook = &full["webhooks"][0];
    assert_eq!(hook["clientConfig"]["service"]["port"], 443);
    assert_eq!(hook["rules"][0]["scope"], "*");
    assert_eq!(told(validating_webhooks(&full, None)), [""; 0]);
    for (key, value, problems) in [
        (
            "name",
            json!("a.b"),
            vec![
                "webhooks[0].name: Invalid value: \"a.b\": should be a domain with at least three segments separated by dots",
            ],
        ),
        (
            "sideEffects",
            json!("Some"),
            vec![
                r#"webhooks[0].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun""#,
            ],
        ),
        (
            "admissionReviewVersions",
            json!(["v9"]),
            vec![
                r#"webhooks[0].admissionReviewVersions: Invalid value: ["v9"]: must include at least one of v1, v1beta1"#,
            ],
        ),
        (
            "timeoutSeconds",
            json!(31),
            vec![
                "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
            ],
        ),
        (
            "rules",
            json!([{"operations": ["*", "X"], "apiGroups": ["*", "a"], "apiVersions": [""], "resources": ["*/*", "pods/*", "pods/log", "*", "b"]}]),
            vec![
                r#"webhooks[0].rules[0].operations: Invalid value: ["*","X"]: if '*' is present, must not specify other operations"#,
                r#"webhooks[0].rules[0].operations[1]: Unsupported value: "X": supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE""#,
                r#"webhooks[0].rules[0].apiGroups: Invalid value: ["*","a"]: if '*' is present, must not specify other API groups"#,
                "webhooks[0].rules[0].apiVersions[0]: Required value",
                "webhooks[0].rules[0].resources[1]: Invalid value: \"pods/*\": if '*/*' is present, must not specify pods/*",
                "webhooks[0].rules[0].resources[2]: Invalid value: \"pods/log\": if 'pods/*' is present, must not specify pods/log",
                r#"webhooks[0].rules[0].resources: Invalid value: ["*/*","pods/*","pods/log","*","b"]: if '*/*' is present, must not specify other resources"#,
                r#"webhooks[0].rules[0].resources: Invalid value: ["*/*","pods/*","pods/log","*","b"]: if '*' is present, must not specify other resources without subresources"#,
            ],
        ),
        (
            "matchConditions",
            json!([{"name": "a", "expression": " "}, {"name": "a", "expression": "true"}]),
            vec![
                "webhooks[0].matchConditions[0].expression: Required value",
                "webhooks[0].matchConditions[1].name: Duplicate value: \"a\"",
            ],
        ),
    ] {
        let mut hook = tree(good.clone());
        hook.insert(key.into(), value);
        assert_eq!(told(validating_webhooks(&webhooks(Value::Object(hook)), None)), problems, "{key}");
    }
}

#[test]
fn what_stored_webhooks_have_they_keep() {
    let stored = webhooks(json!({
        "name": "a.b.c", "sideEffects": "Some", "admissionReviewVersions": ["v9"],
        "clientConfig": {"url": "https://a"}, "matchConditions": [{"name": "", "expression": ""}],
    }));
    assert_eq!(validating_webhooks(&stored, None).len(), 4);
    assert_eq!(told(validating_webhooks(&stored, Some(&stored))), [""; 0]);
}

fn policy(member: &str, value: Value) -> Tree {
    let mut spec = tree(json!({
        "matchConstraints": {"resourceRules": [
            {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]},
        ]},
        "validations": [{"expression": "true"}],
    }));
    if !member.is_empty() {
        spec.insert(member.into(), value);
    }
    let mut policy = tree(json!({"metadata": {"name": "p"}, "spec": spec}));
    default_policy(&mut policy);
    policy
}

#[test]
fn validating_policies() {
    for (member, value, problems) in [
        ("", json!(null), vec![]),
        (
            "validations",
            json!([]),
            vec![
                "spec.validations: Required value: validations or auditAnnotations must contain at least one item",
                "spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item",
            ],
        ),
        (
            "validations",
            json!([{"expression": "", "message": "a\nb", "reason": "X"}]),
            vec![
                "spec.validations[0].expression: Required value: expression is not specified",
                "spec.validations[0].message: Invalid value: \"a\\nb\": must not contain line breaks",
                r#"spec.validations[0].reason: Unsupported value: "X": supported values: "Forbidden", "Invalid", "RequestEntityTooLarge""#,
            ],
        ),
        (
            "paramKind",
            json!({"apiVersion": "a/b/c", "kind": "K k"}),
            vec![
                "spec.paramKind.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
                "spec.paramKind.kind: Invalid value: \"K k\": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
            ],
        ),
        (
            "variables",
            json!([{"name": "in", "expression": "1"}]),
            vec!["spec.variables[0].name: Invalid value: \"in\": must be a valid CEL identifier"],
        ),
        (
            "auditAnnotations",
            json!([{"key": "k", "valueExpression": "'x'"}, {"key": "k", "valueExpression": ""}]),
            vec![
                "spec.auditAnnotations[1].valueExpression: Required value: valueExpression is not specified",
                "spec.auditAnnotations[1].key: Duplicate value: \"k\"",
            ],
        ),
    ] {
        assert_eq!(told(validating_policy(&policy(member, value), None)), problems, "{member}");
    }
}

#[test]
fn mutations_are_of_one_sort() {
    for (mutation, problems) in [
        (json!({"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'add'}]"}}), vec![]),
        (json!({}), vec!["spec.mutations[0].patchType: Required value"]),
        (
            json!({"patchType": "ApplyConfiguration", "jsonPatch": {"expression": "[]"}}),
            vec![
                "spec.mutations[0].applyConfiguration: Required value: must be specified when patchType is ApplyConfiguration",
                "spec.mutations[0].jsonPatch: Invalid value: \"{jsonPatch}\": must not be specified when patchType is ApplyConfiguration",
            ],
        ),
    ] {
        let mut policy = policy("mutations", json!([mutation]));
        if let Some(spec) = policy.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("reinvocationPolicy".into(), json!("Never"));
        }
        assert_eq!(told(mutating_policy(&policy, None)), problems);
    }
}

#[test]
fn policy_bindings() {
    for (spec, problems) in [
        (json!({"policyName": "p", "validationActions": ["Deny", "Audit"]}), vec![]),
        (
            json!({"validationActions": ["Deny", "Warn", "Deny"], "paramRef": {"name": "a", "selector": {}}}),
            vec![
                "spec.policyName: Required value",
                "spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
                "spec.paramRef.selector: Forbidden: name and selector are mutually exclusive",
                "spec.paramRef.parameterNotFoundAction: Required value",
                "spec.validationActions[2]: Duplicate value: \"Deny\"",
                "spec.validationActions: Invalid value: [\"Deny\",\"Warn\",\"Deny\"]: must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)",
            ],
        ),
    ] {
        assert_eq!(told(validating_policy_binding(&tree(json!({"spec": spec})), None)), problems);
    }
}

#[test]
fn flow_schemas() {
    let schema = |name: &str, spec: Value| {
        let mut schema = tree(json!({"metadata": {"name": name}, "spec": spec}));
        default_flow_schema(&mut schema);
        told(flow_schema(&schema, None))
    };
    let rule = |subject: Value| json!({"subjects": [subject], "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/a/*"]}]});
    let level = json!({"name": "l"});
    for (spec, problems) in [
        (
            json!({"priorityLevelConfiguration": level, "rules": [rule(json!({"kind": "User", "user": {"name": "u"}}))]}),
            vec![],
        ),
        (
            json!({"matchingPrecedence": 1}),
            vec![
                "spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1",
                "spec.priorityLevelConfiguration.name: Required value: must reference a priority level",
            ],
        ),
        (
            json!({"priorityLevelConfiguration": level, "rules": [rule(json!({"kind": "Group", "user": {"name": "u"}}))]}),
            vec![
                "spec.rules[0].subjects[0].group: Required value: group is required when subject kind is 'Group'",
                "spec.rules[0].subjects[0].user: Forbidden: user is forbidden when subject kind is not 'User'",
            ],
        ),
        (
            json!({"priorityLevelConfiguration": level, "rules": [{"subjects": [], "resourceRules": [{"verbs": ["x"], "apiGroups": ["*", "a"], "resources": ["*"]}]}]}),
            vec![
                "spec.rules[0].subjects: Required value: subjects must contain at least one value",
                r#"spec.rules[0].resourceRules[0].verbs: Unsupported value: ["x"]: supported values: "create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch""#,
                r#"spec.rules[0].resourceRules[0].apiGroups: Invalid value: ["*","a"]: if '*' is present, must not specify other api groups"#,
                "spec.rules[0].resourceRules[0].namespaces: Required value: resource rules that are not cluster scoped must supply at least one namespace",
            ],
        ),
    ] {
        assert_eq!(schema("s", spec), problems);
    }
    let changed = schema("catch-all", json!({"priorityLevelConfiguration": level}));
    assert!(changed[0].ends_with("spec of 'catch-all' must equal the fixed value"), "{changed:?}");
}

#[test]
fn priority_levels() {
    let level = |name: &str, spec: Value| {
        let mut level = tree(json!({"metadata": {"name": name}, "spec": spec}));
        default_priority_level(&mut level);
        told(priority_level(&level, None))
    };
    let queue = |queuing: Value| json!({"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": queuing}}});
    for (name, spec, problems) in [
        ("l", queue(json!({})), vec![]),
        ("exempt", json!({"type": "Exempt"}), vec![]),
        (
            "l",
            json!({"type": "Exempt"}),
            vec!["spec.type: Invalid value: \"Exempt\": must be 'Exempt' if and only if `name` is 'exempt'"],
        ),
        (
            "l",
            json!({"type": "Limited"}),
            vec!["spec.limited: Required value: must not be empty when type is Limited"],
        ),
        (
            "l",
            queue(json!({"queues": 4, "handSize": 5})),
            vec![
                "spec.limited.limitResponse.queuing.handSize: Invalid value: 5: should not be greater than queues (4)",
            ],
        ),
        (
            "l",
            queue(json!({"queues": 1024, "handSize": 7})),
            vec![
                "spec.limited.limitResponse.queuing.handSize: Invalid value: 7: required entropy bits of deckSize 1024 and handSize 7 should not be greater than 60",
            ],
        ),
    ] {
        assert_eq!(level(name, spec), problems);
    }
}

#[test]
fn api_services() {
    let service = |spec: Value| {
        let name = format!(
            "{}.{}",
            spec["version"].as_str().unwrap_or_default(),
            spec["group"].as_str().unwrap_or_default()
        );
        let mut service = tree(json!({"metadata": {"name": name, "creationTimestamp": "t"}, "spec": spec}));
        prepare_api_service(&mut service);
        default_api_service(&mut service);
        service
    };
    let local =
        service(json!({"group": "a.b", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}));
    assert_eq!(told(api_service(&local, None)), [""; 0]);
    assert_eq!(local["status"]["conditions"][0]["lastTransitionTime"], "t");
    let remote = json!({
        "group": "a.b", "version": "v1", "groupPriorityMinimum": 20_001, "versionPriority": 0,
        "service": {"name": "s"}, "insecureSkipTLSVerify": true, "caBundle": "AA==",
    });
    assert_eq!(
        told(api_service(&service(remote), None)),
        [
            "spec.groupPriorityMinimum: Invalid value: 20001: must be positive and less than 20000",
            "spec.versionPriority: Invalid value: 0: must be positive and less than 1000",
            "spec.service.namespace: Required value",
            "spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present",
        ]
    );
}

#[test]
fn signing_requests() {
    let request = tree(
        json!({"spec": {"request": "", "signerName": "x", "usages": ["any", "any", "y"], "expirationSeconds": 599}}),
    );
    let problems = told(signing_request(&request, None));
    assert_eq!(problems[0], "spec.request: Invalid value: null: PEM block type must be CERTIFICATE REQUEST");
    assert!(problems[1].starts_with("spec.usages[2]: Unsupported value: \"y\""));
    assert_eq!(
        problems[2..],
        [
            "spec.usages[1]: Duplicate value: \"any\"",
            "spec.signerName: Invalid value: \"x\": must be a fully qualified domain and path of the form 'example.com/signer-name'",
            "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)",
        ]
    );
}

#[test]
fn only_approvers_approve() {
    let base = tree(json!({"metadata": {"name": "c"}, "spec": {}, "status": {}}));
    let approved = json!({"conditions": [{"type": "Approved", "status": "True"}], "certificate": "AA=="});
    let written = |prepare: fn(&mut Tree, &Tree), check: fn(&Tree, &Tree) -> Vec<Cause>| {
        let mut new = base.clone();
        new.insert("status".into(), approved.clone());
        prepare(&mut new, &base);
        let problems = told(check(&new, &base)).into_iter().filter(|it| it.starts_with("status"));
        (new["status"].clone(), problems.collect::<Vec<_>>())
    };
    let (status, problems) = written(only_approval, approval);
    assert_eq!(status, json!({"conditions": [{"type": "Approved", "status": "True"}]}));
    assert_eq!(problems, [""; 0]);
    let (_, problems) = written(only_signing_status, signing_status);
    assert_eq!(
        problems,
        [
            "status.certificate: Invalid value: \"<certificate data>\": must contain at least one CERTIFICATE PEM block",
            "status.conditions: Forbidden: updates may not add a condition of type \"Approved\"",
        ]
    );
}
