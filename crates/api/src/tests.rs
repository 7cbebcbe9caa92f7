use machinery::{
    definition,
    resource::{Cell, Resource, Row, own_definition},
};
use serde_json::{Value, json};

use crate::{ROWS, admit, assignment, cluster, overrides, placement};

/// What the server would say against a new object.
pub fn refusals(row: &Row, object: Value) -> Vec<String> {
    admit(row, object).err().unwrap_or_default()
}

fn spec_refused(row: &Row, spec: Value) -> Vec<String> {
    refusals(row, json!({"metadata": {"name": "a"}, "spec": spec}))
}

#[test]
fn schemas_are_such_as_definitions_may_have() {
    for row in ROWS {
        let schema = row.schema.expect("every kind has a schema")();
        let causes = definition::validate(&own_definition(row, &schema), None);
        let causes: Vec<String> = causes.iter().map(|it| format!("{}: {}", it.field, it.message)).collect();
        assert_eq!(causes, [] as [String; 0], "{}", row.kind);
    }
}

#[test]
fn placements_that_can_work_are_accepted() {
    let good = [
        json!({}),
        json!({"select": [{"apiGroups": ["apps"], "kinds": ["Deployment"], "labelSelector": {"matchLabels": {"a": "b"}}}],
            "clusters": {"names": ["eu-1", "us-1"]}, "strategy": "Duplicate"}),
        json!({"clusters": {"selector": {"matchExpressions": [{"key": "generation", "operator": "Gt", "values": ["3"]}]}},
            "strategy": "Single", "tolerations": [{"operator": "Exists"}]}),
        json!({"groups": [{"name": "near", "names": ["eu-1"]}, {"selector": {"matchLabels": {"far": "yes"}}}],
            "spread": [{"topologyKey": "topology.kubernetes.io/region", "minDomains": 2, "maxDomains": 3}],
            "divide": {"by": "Weight", "rebalance": true, "shares": [
                {"cluster": "eu-1", "min": 1, "max": 5, "weight": 3},
                {"selector": {"matchLabels": {"size": "big"}}, "weight": 2},
                {"cluster": "*", "weight": 0}]}}),
        json!({"divide": {"algorithm": "Federation", "by": "Weight", "shares": [{"cluster": "*", "weight": 1}]}}),
        json!({"strategy": "Divide", "divide": {}}),
        json!({"spread": [{"topologyKey": "zone"}]}),
    ];
    for spec in good {
        assert_eq!(spec_refused(&placement::ROW, spec.clone()), [] as [String; 0], "{spec}");
    }
}

#[test]
fn a_strategy_that_is_not_written_is_left_to_the_kind() {
    let strategy = placement::ROW.columns.iter().find(|it| it.name == "Strategy").map(|it| it.cell);
    for (spec, shown) in
        [(json!({}), "by kind"), (json!({"divide": {}}), "Divide"), (json!({"strategy": "Single"}), "Single")]
    {
        let object =
            admit(&placement::ROW, json!({"metadata": {"name": "a"}, "spec": spec})).expect("accepted");
        assert_eq!(object["spec"].get("strategy"), spec.get("strategy"), "{spec}");
        let Some(Cell::Compute(cell)) = strategy else { panic!("it is computed") };
        assert_eq!(cell(&object, 0), shown, "{spec}");
    }
}

#[test]
fn placements_that_cannot_work_are_refused_with_the_reason() {
    let bad: [(Value, &str, &str); 20] = [
        (json!({"strategy": "Some"}), "spec.strategy", "supported values"),
        (json!({"strategy": "Single", "divide": {}}), "spec.divide", "only strategy Divide divides"),
        (json!({"strategy": "Duplicate", "divide": {}}), "spec.divide", "only strategy Divide divides"),
        (
            json!({"strategy": "Single", "spread": [{"topologyKey": "zone"}]}),
            "spec.spread",
            "cannot be spread",
        ),
        (json!({"divide": {"by": "Weight"}}), "spec.divide.by", "needs a share with a weight"),
        (
            json!({"divide": {"by": "Weight", "shares": [{"cluster": "a", "weight": 0}]}}),
            "spec.divide.by",
            "weight above 0",
        ),
        (json!({"divide": {"shares": [{"cluster": "a", "weight": 1}]}}), "spec.divide.by", "count only with"),
        (
            json!({"divide": {"by": "Capacity", "algorithm": "Federation"}}),
            "spec.divide.algorithm",
            "evenly or by weight",
        ),
        (
            json!({"divide": {"shares": [{"cluster": "a", "min": 3, "max": 2}]}}),
            "spec.divide.shares[0]",
            "min must not",
        ),
        (json!({"divide": {"shares": [{"min": 3}]}}), "spec.divide.shares[0]", "a cluster or a selector"),
        (
            json!({"divide": {"shares": [{"cluster": "a", "min": -1}]}}),
            "spec.divide.shares[0].min",
            "greater than",
        ),
        (
            json!({"divide": {"shares": [{"cluster": "a"}, {"cluster": "a"}]}}),
            "spec.divide.shares[1].cluster",
            "Duplicate",
        ),
        (
            json!({"clusters": {"names": ["a"]}, "divide": {"shares": [{"cluster": "b"}]}}),
            "spec.divide.shares[0].cluster",
            "nothing could run there",
        ),
        (
            json!({"clusters": {"names": ["a"]}, "groups": [{"names": ["b"]}]}),
            "spec.groups[0].names[0]",
            "nothing could run there",
        ),
        (json!({"groups": [{"name": "near"}]}), "spec.groups[0]", "needs names or a selector"),
        (
            json!({"clusters": {"selector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["x"]}]}}}),
            "spec.clusters.selector.matchExpressions[0].values",
            "integer",
        ),
        (
            json!({"spread": [{"topologyKey": "zone", "minDomains": 3, "maxDomains": 2}]}),
            "spec.spread[0]",
            "minDomains must not",
        ),
        (
            json!({"select": [{"labelSelector": {"matchLabels": {"a b": "c"}}}]}),
            "spec.select[0].labelSelector",
            "name part",
        ),
        (json!({"tolerations": [{"effect": "Never"}]}), "spec.tolerations[0].effect", "supported values"),
        (json!({"cluster": ["a"]}), "unknown field", "spec.cluster"),
    ];
    for (spec, place, why) in bad {
        let found = spec_refused(&placement::ROW, spec.clone());
        assert!(found.iter().any(|it| it.starts_with(place) && it.contains(why)), "{spec}: {found:?}");
    }
}

#[test]
fn overrides_change_what_may_differ_between_clusters() {
    let with = |patch: Value| json!({"select": [{"kinds": ["Deployment"]}], "patches": [patch]});
    let good = [
        json!({"path": "/spec/replicas", "value": 3}),
        json!({"op": "add", "path": "/metadata/annotations/a~1b", "value": "c"}),
        json!({"op": "remove", "path": "/spec/template/spec/nodeSelector"}),
    ];
    for patch in good {
        assert_eq!(spec_refused(&overrides::ROW, with(patch.clone())), [] as [String; 0], "{patch}");
    }
    let bad = [
        (json!({"path": "/metadata/name", "value": "b"}), "cannot differ"),
        (json!({"path": "/metadata/ownerReferences/0", "value": {}}), "cannot differ"),
        (json!({"path": "/status/replicas", "value": 1}), "cannot differ"),
        (json!({"path": "/spec", "value": {}}), "must name a field"),
        (json!({"path": "spec.replicas", "value": 1}), "JSON pointer"),
        (json!({"path": "/spec/a~2", "value": 1}), "~0"),
        (json!({"path": "/spec/a"}), "Required"),
        (json!({"op": "remove", "path": "/spec/a", "value": 1}), "no value"),
        (json!({"op": "move", "path": "/spec/a", "value": 1}), "supported values"),
    ];
    for (patch, why) in bad {
        let found = spec_refused(&overrides::ROW, with(patch.clone()));
        assert!(
            found.iter().any(|it| it.starts_with("spec.patches[0]") && it.contains(why)),
            "{patch}: {found:?}"
        );
    }
    let twice = json!({"select": [{}], "patches": [
        {"path": "/spec/a", "value": 1}, {"path": "/spec/a", "value": 2}]});
    assert!(spec_refused(&overrides::ROW, twice)[0].contains("Duplicate"));
}

#[test]
fn names_of_assignments_are_readable_and_never_too_long() {
    assert_eq!(assignment::name_of("apps", "deployments", "web"), "deployments.apps.web");
    assert_eq!(assignment::name_of("", "configmaps", "web"), "configmaps.web");
    let long = |end: &str| assignment::name_of("apps", "deployments", &format!("{}{end}", "x".repeat(250)));
    assert_eq!(long("a").len(), 253);
    assert_ne!(long("a"), long("b"));
}

#[test]
fn what_was_stored_before_has_the_present_form_when_it_is_looked_at() {
    let resource = Resource::new(cluster::ROW.clone());
    let stored = json!({
        "apiVersion": "hanse.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "a"},
        "spec": {"endpoint": "https://a", "owner": "somebody"},
    });
    let Value::Object(mut tree) = stored else { panic!("an object") };
    resource.from_storage(&mut tree);
    assert_eq!(tree["spec"], json!({"endpoint": "https://a", "namespaces": "Same", "network": "None"}));
}
