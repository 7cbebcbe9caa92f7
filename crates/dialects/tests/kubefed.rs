//! Cases of KubeFed, by what federated objects become here.
#![allow(clippy::disallowed_methods)]

use dialects::{
    Federated, FederatedType, TYPES_GROUP,
    translate::{Namespace, World, translate},
    types,
};
use placement::{cluster::Labels, dialect};
use serde_json::{Value, json};

fn cases(of: &str) -> Vec<Value> {
    let data: Value = serde_json::from_str(include_str!("data/kubefed.json")).unwrap();
    data[of].as_array().cloned().unwrap()
}

fn deployments() -> FederatedType {
    types::builtin().into_iter().find(|it| it.is_at(TYPES_GROUP, "federateddeployments")).unwrap()
}

/// What the plain object says of clusters.
fn said(federated: &Federated, world: &World<'_>) -> String {
    let object = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u"}});
    let plain = translate(&deployments(), &object, federated, world).unwrap();
    plain["metadata"]["annotations"][api::FEDERATED_ANNOTATION].as_str().unwrap().to_owned()
}

fn named(names: &Value) -> Value {
    let names = names.as_array().into_iter().flatten();
    json!({"clusters": names.map(|name| json!({"name": name})).collect::<Vec<_>>()})
}

#[test]
fn a_namespace_allows_what_it_allows_in_kubefed() {
    let rows = cases("inNamespace");
    for case in &rows {
        let federated = Federated { placement: named(&case["object"]), ..Federated::default() };
        let within = named(&case["namespace"]);
        let namespace = match (&case["namespace"], case["oneNamespace"] == true) {
            (Value::Null, true) => Namespace::Anywhere,
            (Value::Null, false) => Namespace::NotFederated,
            _ => Namespace::Within(&within),
        };
        let said = said(&federated, &World { namespace, preference: None, adopts: false });
        let choice = dialect::federated(&said).unwrap().clusters;
        let all = ["cluster1", "cluster2", "cluster3"];
        let chosen: Vec<&str> =
            all.into_iter().filter(|name| choice.holds(name, &Labels::default())).collect();
        assert_eq!(json!(chosen), case["clusters"], "{case}");
    }
    assert_eq!(rows.len(), 5);
}

/// KubeFed writes the plan beside the other overrides. Here the plan is the Assignment's, which alone says how many there are:
/// what is left of the overrides is the same.
#[test]
fn a_plan_takes_the_place_of_overridden_replicas_and_of_nothing_else() {
    let rows = cases("planned");
    for case in &rows {
        let before = case["before"].as_object().unwrap().iter();
        let overrides =
            before.map(|(cluster, changes)| json!({"clusterName": cluster, "clusterOverrides": changes}));
        let federated = Federated { overrides: overrides.collect(), ..Federated::default() };
        let preference = json!({"spec": {"totalReplicas": 5}});
        let world = World { namespace: Namespace::Anywhere, preference: Some(&preference), adopts: false };
        let said: Value = serde_json::from_str(&said(&federated, &world)).unwrap();
        let left: Value = kinds::overrides::read(&said["overrides"])
            .unwrap()
            .into_iter()
            .map(|(cluster, changes)| {
                let changes: Value = changes.into_iter().map(|it| (it.path, it.value)).collect();
                (cluster, changes)
            })
            .collect();
        let mut wanted = case["after"].clone();
        for changes in wanted.as_object_mut().unwrap().values_mut() {
            changes.as_object_mut().unwrap().remove("/spec/replicas");
        }
        assert_eq!(left, wanted, "{}", case["name"]);
    }
    assert_eq!(rows.len(), 3);
}
