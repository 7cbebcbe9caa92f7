use serde_json::json;

use super::*;

fn mk_policy(rules: Value) -> Policy {
    Policy::read(&json!({"kind": "Policy", "apiVersion": "audit.k8s.io/v1", "rules": rules})).unwrap().0
}

/// `verb group/resource/subresource namespace name`, with `-` for nothing; or `verb /path`.
fn level_of(policy: &Policy, user: &str, groups: &[&str], request: &str) -> Level {
    let groups: Vec<String> = groups.iter().map(|it| (*it).to_owned()).collect();
    let words: Vec<&str> = request.split(' ').map(|word| if word == "-" { "" } else { word }).collect();
    let mut attributes =
        Attributes { user: Some((user, &groups)), verb: words[0], path: words[1], resource: None };
    if let [_, what, namespace, name] = words[..] {
        let parts: Vec<&str> = what.split('/').map(|it| if it == "core" { "" } else { it }).collect();
        attributes.resource = Some(ResourceAttributes {
            group: parts[0],
            resource: parts[1],
            subresource: parts.get(2).copied().unwrap_or_default(),
            namespace,
            name,
        });
    }
    policy.demand(&attributes).level
}

#[test]
fn a_rule_matches_by_all_that_it_says() {
    let rows: &[(Value, &str, bool)] = &[
        (json!({}), "get core/pods n p", true),
        (json!({}), "get /version", true),
        (json!({"users": ["ann"]}), "get core/pods n p", true),
        (json!({"users": ["bob"]}), "get core/pods n p", false),
        (json!({"userGroups": ["x", "devs"]}), "get core/pods n p", true),
        (json!({"userGroups": ["ops"]}), "get core/pods n p", false),
        (json!({"verbs": ["get"]}), "get core/pods n p", true),
        (json!({"verbs": ["list"]}), "get core/pods n p", false),
        (json!({"namespaces": ["n"]}), "get core/pods n p", true),
        (json!({"namespaces": [""]}), "get core/nodes - p", true),
        (json!({"namespaces": ["m"]}), "get core/pods n p", false),
        (json!({"namespaces": ["n"]}), "get /version", false),
        (json!({"resources": [{"group": ""}]}), "get core/pods n p", true),
        (json!({"resources": [{"group": "apps"}]}), "get core/pods n p", false),
        (json!({"resources": [{"group": "*"}]}), "get apps/deployments n p", true),
        (json!({"resources": [{"resources": ["pods"]}]}), "get core/pods n p", true),
        (json!({"resources": [{"resources": ["pods"]}]}), "get core/pods/log n p", false),
        (json!({"resources": [{"resources": ["pods/log"]}]}), "get core/pods/log n p", true),
        (json!({"resources": [{"resources": ["pods/log"]}]}), "get core/pods/status n p", false),
        (json!({"resources": [{"resources": ["pods/log"]}]}), "get core/pods n p", false),
        (json!({"resources": [{"resources": ["pods/*"]}]}), "get core/pods/log n p", true),
        (json!({"resources": [{"resources": ["pods/*"]}]}), "get core/pods n p", true),
        (json!({"resources": [{"resources": ["*/scale"]}]}), "get core/pods/scale n p", true),
        (json!({"resources": [{"resources": ["*/scale"]}]}), "get core/pods n p", false),
        (json!({"resources": [{"resources": ["*"]}]}), "get core/pods/log n p", true),
        (json!({"resources": [{"resources": ["pods"], "resourceNames": ["p"]}]}), "get core/pods n p", true),
        (json!({"resources": [{"resources": ["pods"], "resourceNames": ["q"]}]}), "get core/pods n p", false),
        (json!({"nonResourceURLs": ["/healthz*"]}), "get /healthz/ping", true),
        (json!({"nonResourceURLs": ["/healthz"]}), "get /healthz/ping", false),
        (json!({"nonResourceURLs": ["*"]}), "get /version", true),
        (json!({"nonResourceURLs": ["*"]}), "get core/pods n p", false),
    ];
    for (rule, request, expected) in rows {
        let mut rule = rule.clone();
        rule["level"] = json!("Request");
        let level = level_of(&mk_policy(json!([rule])), "ann", &["devs"], request);
        assert_eq!(level == Level::Request, *expected, "{rule} {request}");
    }
}

#[test]
fn the_first_rule_that_matches_decides_and_none_means_nothing() {
    let policy = mk_policy(json!([
        {"level": "None", "users": ["ann"]},
        {"level": "RequestResponse", "verbs": ["create"]},
    ]));
    assert_eq!(level_of(&policy, "ann", &[], "create core/pods n p"), Level::None);
    assert_eq!(level_of(&policy, "bob", &[], "create core/pods n p"), Level::RequestResponse);
    assert_eq!(level_of(&policy, "bob", &[], "get core/pods n p"), Level::None);
}

#[test]
fn bodies_with_credentials_are_never_asked_for() {
    let policy = mk_policy(json!([{"level": "RequestResponse"}]));
    for (request, expected) in [
        ("create core/secrets n -", Level::Metadata),
        ("list core/secrets - -", Level::Metadata),
        ("create core/serviceaccounts/token n s", Level::Metadata),
        ("create authentication.k8s.io/tokenreviews - -", Level::Metadata),
        ("create core/serviceaccounts n s", Level::RequestResponse),
        ("create example.com/secrets n s", Level::RequestResponse),
    ] {
        assert_eq!(level_of(&policy, "ann", &[], request), expected, "{request}");
    }
}

#[test]
fn stages_and_managed_fields_of_a_rule_and_of_all() {
    let tree = json!({"kind": "Policy", "apiVersion": "audit.k8s.io/v1",
    "omitStages": ["RequestReceived"], "omitManagedFields": true,
    "rules": [
        {"level": "Metadata", "verbs": ["get"], "omitStages": ["Panic"], "omitManagedFields": false},
        {"level": "Metadata"},
    ]});
    let (policy, remarks) = Policy::read(&tree).unwrap();
    assert_eq!(remarks, Vec::<String>::new());
    let demand = |verb| policy.demand(&Attributes { user: None, verb, path: "/", resource: None });
    let (get, other) = (demand("get"), demand("post"));
    assert!(get.omit_stages.contains(Stage::RequestReceived) && get.omit_stages.contains(Stage::Panic));
    assert!(!other.omit_stages.contains(Stage::Panic) && other.omit_stages.contains(Stage::RequestReceived));
    assert_eq!((get.omit_managed_fields, other.omit_managed_fields), (false, true));
}

#[test]
fn mistakes_are_named_as_upstream_names_them() {
    let levels = r#"supported values: "None", "Metadata", "Request", "RequestResponse""#;
    let stages = "allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic";
    let rows = [
        (json!([]), "loaded illegal policy with 0 rules".to_owned()),
        (json!([{}]), "rules[0].level: Required value".to_owned()),
        (json!([{"level": "All"}]), format!(r#"rules[0].level: Unsupported value: "All": {levels}"#)),
        (
            json!([{"level": "None", "omitStages": ["foo"]}]),
            format!(r#"rules[0].omitStages[0]: Invalid value: "foo": {stages}"#),
        ),
        (
            json!([{"level": "None", "nonResourceURLs": ["x"]}]),
            "rules[0].nonResourceURLs[0]: Invalid value: \"x\": non-resource URL rules must begin with a '/' \
             character"
                .to_owned(),
        ),
        (
            json!([{"level": "None", "nonResourceURLs": ["/a*/b"]}]),
            "rules[0].nonResourceURLs[0]: Invalid value: \"/a*/b\": non-resource URL wildcards '*' must be the \
             final character of the rule"
                .to_owned(),
        ),
        (
            json!([{"level": "None", "nonResourceURLs": ["/a"], "namespaces": ["n"]}]),
            "rules[0].nonResourceURLs: Invalid value: [\"/a\"]: rules cannot apply to both regular resources \
             and non-resource URLs"
                .to_owned(),
        ),
        (
            json!([{"level": "None", "resources": [{"resourceNames": ["a"]}]}]),
            "rules[0].resources.resourceNames: Invalid value: [\"a\"]: using resourceNames requires at least \
             one resource"
                .to_owned(),
        ),
        (json!([{}, {}]), "[rules[0].level: Required value, rules[1].level: Required value]".to_owned()),
        (
            json!([{"level": "None", "users": "ann"}]),
            r#"rules[0].users: Invalid value: "ann": must be a list"#.to_owned(),
        ),
        (json!(["x"]), r#"[rules[0]: Invalid value: "x": must be an object, rules[0].level: Required value]"#.into()),
    ];
    for (rules, expected) in rows {
        let tree = json!({"kind": "Policy", "apiVersion": "audit.k8s.io/v1", "rules": rules});
        assert_eq!(Policy::read(&tree).unwrap_err(), expected, "{tree}");
    }
    let other = Policy::read(&json!({"kind": "Policy", "apiVersion": "audit.k8s.io/v1beta1"})).unwrap_err();
    assert!(other.contains("audit.k8s.io/v1beta1"), "{other}");
    assert!(Policy::read(&Value::Null).is_err());
}

#[test]
fn unknown_fields_are_remarked_on() {
    let tree = json!({"kind": "Policy", "apiVersion": "audit.k8s.io/v1",
        "rules": [{"level": "Metadata", "verb": ["get"]}]});
    assert_eq!(Policy::read(&tree).unwrap().1, [r#"unknown field "rules[0].verb""#]);
}

#[test]
fn without_a_policy_writes_and_refusals_are_recorded() {
    let policy = Policy::standard();
    let demand = |verb, resource| {
        let resource = ResourceAttributes { group: "", resource, subresource: "", namespace: "n", name: "x" };
        policy.demand(&Attributes { user: None, verb, path: "", resource: Some(resource) })
    };
    assert_eq!(
        (demand("create", "pods").level, demand("create", "pods").refusals_only),
        (Level::Metadata, false)
    );
    assert!(demand("get", "pods").refusals_only);
    assert!(demand("create", "events").refusals_only);
    assert!(demand("create", "pods").omit_stages.contains(Stage::RequestReceived));
}
