use serde_json::json;

use super::{super::defaults, *};

fn mk_user(name: &str, groups: &[&str]) -> User {
    let groups = groups.iter().map(|it| (*it).to_owned()).collect();
    User { name: name.into(), groups, ..User::default() }
}

fn mk_flows(more: Vec<Value>) -> Flows {
    let mut schemas: Vec<Tree> = defaults::schemas().collect();
    schemas.extend(more.into_iter().filter_map(|tree| tree.as_object().cloned()));
    let levels: Vec<Tree> = defaults::levels().collect();
    Flows::read(&schemas, &levels)
}

/// `verb group/resource/subresource namespace`, with `-` for nothing; or `verb /path`.
fn attributes(request: &str) -> Attributes<'_> {
    let words: Vec<&str> = request.split(' ').map(|word| if word == "-" { "" } else { word }).collect();
    match words[..] {
        [verb, what, namespace] => {
            let parts: Vec<&str> = what.split('/').map(|it| if it == "core" { "" } else { it }).collect();
            Attributes::Resource {
                verb,
                group: parts[0],
                resource: parts[1],
                subresource: parts.get(2).copied().unwrap_or_default(),
                namespace,
                name: "",
            }
        }
        _ => Attributes::NonResource { verb: words[0], path: words[1] },
    }
}

#[test]
fn the_default_schemas_sort_requests_as_upstream_does() {
    let flows = mk_flows(vec![]);
    let account = "system:serviceaccount:kube-system:x";
    let accounts = ["system:serviceaccounts", "system:authenticated"];
    let rows: &[(&str, &[&str], &str, &str)] = &[
        ("admin", &["system:masters", "system:authenticated"], "get core/pods n", "exempt"),
        ("ann", &["system:authenticated"], "get /healthz", "probes"),
        ("ann", &["system:authenticated"], "get /readyz/ping", "probes"),
        ("ann", &["system:authenticated"], "get /readyzz", "global-default"),
        ("ann", &["system:authenticated"], "post /healthz", "global-default"),
        ("ann", &["system:authenticated"], "list core/pods -", "global-default"),
        ("system:anonymous", &["system:unauthenticated"], "get /version", "global-default"),
        (
            "system:kube-controller-manager",
            &["system:authenticated"],
            "update coordination.k8s.io/leases kube-system",
            "system-leader-election",
        ),
        (
            "system:kube-controller-manager",
            &["system:authenticated"],
            "list core/pods -",
            "kube-controller-manager",
        ),
        ("system:kube-scheduler", &["system:authenticated"], "list core/pods -", "kube-scheduler"),
        (
            "system:node:a",
            &["system:nodes", "system:authenticated"],
            "patch core/nodes/status -",
            "system-node-high",
        ),
        (
            "system:node:a",
            &["system:nodes", "system:authenticated"],
            "update coordination.k8s.io/leases kube-node-lease",
            "system-node-high",
        ),
        ("system:node:a", &["system:nodes", "system:authenticated"], "get core/secrets n", "system-nodes"),
        (account, &accounts, "get coordination.k8s.io/leases n", "system-leader-election"),
        (account, &accounts, "get core/pods n", "kube-system-service-accounts"),
        ("system:serviceaccount:kube-systemx:x", &accounts, "get core/pods n", "service-accounts"),
        ("nobody", &[], "get core/pods n", "catch-all"),
    ];
    for (name, groups, request, expected) in rows {
        let at = flows.classify(&mk_user(name, groups), &attributes(request));
        assert_eq!(flows.schemas()[at].name, *expected, "{name} {request}");
    }
}

fn mk_schema(name: &str, precedence: i64, level: &str, by: &str, resource: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence,
            "distinguisherMethod": {"type": by},
            "rules": [{
                "subjects": [{"kind": "User", "user": {"name": "*"}}],
                "resourceRules": [{
                    "verbs": ["*"], "apiGroups": ["*"], "resources": [resource], "namespaces": ["n"],
                }],
            }],
        },
    })
}

#[test]
fn precedence_then_name_decides_and_a_schema_without_a_level_counts_for_nothing() {
    let flows = mk_flows(vec![
        mk_schema("b", 300, "workload-low", "ByUser", "pods"),
        mk_schema("a", 300, "workload-high", "ByUser", "pods"),
        mk_schema("first", 200, "absent", "ByUser", "pods"),
        mk_schema("logs", 250, "workload-low", "ByUser", "pods/log"),
    ]);
    let user = mk_user("ann", &["system:authenticated"]);
    let name = |request| flows.schemas()[flows.classify(&user, &attributes(request))].name.as_str();
    assert_eq!(name("get core/pods n"), "a");
    assert_eq!(name("get core/pods/log n"), "logs");
    assert_eq!(name("get core/pods m"), "global-default", "another namespace");
    assert_eq!(name("list core/pods -"), "global-default", "a rule without cluster scope");
}

#[test]
fn flows_are_told_apart_by_user_or_namespace_or_not_at_all() {
    let flows = mk_flows(vec![
        mk_schema("users", 300, "workload-low", "ByUser", "pods"),
        mk_schema("spaces", 300, "workload-low", "ByNamespace", "secrets"),
        mk_schema("one", 300, "workload-low", "", "events"),
    ]);
    let flow = |name: &str, user: &str, request| {
        let schema = flows.schemas().iter().find(|it| it.name == name).unwrap();
        schema.flow(&mk_user(user, &[]), &attributes(request))
    };
    assert_ne!(flow("users", "ann", "get core/pods n"), flow("users", "bob", "get core/pods n"));
    assert_eq!(flow("users", "ann", "get core/pods n"), flow("users", "ann", "get core/pods m"));
    assert_ne!(flow("spaces", "ann", "get core/pods n"), flow("spaces", "ann", "get core/pods m"));
    assert_eq!(flow("spaces", "ann", "get core/pods n"), flow("spaces", "bob", "get core/pods n"));
    assert_eq!(flow("one", "ann", "get core/pods n"), flow("one", "bob", "get core/pods m"));
}

#[test]
fn what_is_mandatory_cannot_be_changed_or_taken_away() {
    let mut fake = mk_schema("exempt", 1, "workload-low", "ByUser", "*");
    fake["spec"]["rules"][0]["subjects"] = json!([]);
    let schemas = [fake.as_object().unwrap().clone()];
    let level = json!({"metadata": {"name": "exempt"}, "spec": {"type": "Limited", "limited": {}}});
    let levels = [level.as_object().unwrap().clone()];
    let flows = Flows::read(&schemas, &levels);
    let names: Vec<&str> = flows.schemas().iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["exempt", "catch-all"]);
    let master = mk_user("admin", &["system:masters"]);
    let at = flows.classify(&master, &attributes("get core/pods n"));
    assert_eq!(flows.levels()[flows.schemas()[at].level].limits, None);
}

#[test]
fn nonsense_that_was_stored_is_read_without_harm() {
    for spec in
        [json!(null), json!([]), json!({"limited": 5}), json!({"limited": {"nominalConcurrencyShares": -7}})]
    {
        let level = json!({"metadata": {"name": "x"}, "spec": spec});
        let schema = json!({"metadata": {"name": "x"}, "spec": spec});
        Flows::read(&[schema.as_object().unwrap().clone()], &[level.as_object().unwrap().clone()]);
    }
}
