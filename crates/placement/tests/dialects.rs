//! What federation v1 and KubeFed say, said with the words of this crate.

use placement::{
    Choice, Cluster, Directory, Input, Means, Rule,
    cluster::Labels,
    dialect::{self, kubefed_choice, selector},
    feasible, resolve, select,
};
use serde_json::Value;

fn labels(value: &Value) -> Labels {
    let entries = value.as_object().into_iter().flatten();
    entries.map(|(key, value)| (key.into(), value.as_str().unwrap().into())).collect()
}

#[test]
fn cluster_selectors_match_as_in_federation() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("data/cluster_selector.json")).unwrap();
    for case in &cases {
        let found = selector(case["annotation"].as_str().unwrap());
        let found = found.ok().map(|selector| selector.matches(&labels(&case["labels"])));
        assert_eq!(found, case["matches"].as_bool(), "{case}");
    }
    assert_eq!(cases.len(), 21);
}

#[test]
fn names_of_fields_are_read_in_any_case() {
    let read = selector(r#"[{"KEY": "region", "Operator": "In", "vAlues": ["eu"]}]"#).unwrap();
    assert!(read.matches(&labels(&serde_json::json!({"region": "eu"}))));
    assert!(!read.matches(&labels(&serde_json::json!({"region": "us"}))));
}

#[test]
fn kubefed_compares_no_numbers() {
    let choice = |operator: &str| {
        kubefed_choice(&serde_json::json!({"clusterSelector": {
            "matchExpressions": [{"key": "size", "operator": operator, "values": ["3"]}]}}))
    };
    assert!(choice("In").is_ok());
    assert!(choice("Gt").is_err());
    assert!(choice("Lt").is_err());
}

/// What a choice means for all clusters, through the front door.
fn chosen(directory: &Directory, clusters: Choice) -> Vec<String> {
    let subject = kinds::Subject::default();
    let rule = Rule { clusters, ..Rule::default() };
    let verdicts = select(&Input::new(&subject, directory), &rule);
    feasible(&verdicts, directory).into_iter().map(str::to_owned).collect()
}

#[test]
fn placements_choose_as_in_kubefed() {
    let data: Value = serde_json::from_str(include_str!("data/kubefed.json")).unwrap();
    let directory = Directory::new(data["clusters"].as_object().unwrap().iter().map(|(name, given)| {
        let cluster = Cluster::open(name);
        labels(given).iter().fold(cluster, |cluster, (key, value)| cluster.with_label(key, value))
    }));
    for case in data["placement"].as_array().unwrap() {
        let found = kubefed_choice(&case["placement"]).ok().map(|choice| chosen(&directory, choice));
        let wanted = case["clusters"]
            .as_array()
            .map(|names| names.iter().map(|name| name.as_str().unwrap().to_owned()).collect::<Vec<_>>());
        assert_eq!(found, wanted, "{case}");
    }
}

/// What somebody notes on the plain object does not move what a federated one places.
#[test]
fn what_a_federated_object_says_comes_before_other_annotations_of_the_plain_one() {
    let directory = Directory::default();
    let federated = r#"{"placement": {"clusters": [{"name": "a"}]}}"#;
    for other in ["hanse.io/clusters", "hanse.io/placement"] {
        let object = serde_json::json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": "web", "namespace": "shop",
                "annotations": {"hanse.io/federated": federated, other: "c"},
            },
        });
        let subject = kinds::subject(&object).unwrap();
        let resolved = resolve(&Input::new(&subject, &directory));
        assert_eq!(resolved.source, dialect::SOURCE, "{other}");
        let Means::Rule(rule) = resolved.means else { panic!("{other} is read: {:?}", resolved.means) };
        assert_eq!(rule.clusters, Choice::names(vec!["a".to_owned()]));
    }
}

/// Whoever deletes an object and whoever places it must mean the same, or its copies are nobody's.
#[test]
fn what_federation_decides_is_the_same_for_whoever_asks() {
    let said = [
        ("hanse.io/clusters", " a,b"),
        ("hanse.io/clusters", ", "),
        ("hanse.io/placement", "mine"),
        ("hanse.io/federated", r#"{"placement": {}}"#),
        ("federation.alpha.kubernetes.io/cluster-selector", "[]"),
        ("federation.alpha.kubernetes.io/cluster-selector", "nonsense"),
        ("federation.kubernetes.io/deployment-preferences", "{}"),
        ("federation.kubernetes.io/replica-set-preferences", "{}"),
    ];
    let directory = Directory::default();
    let mut decided = 0;
    for kind in ["Deployment", "ReplicaSet", "ConfigMap"] {
        for chosen in 0..1u32 << said.len() {
            let chosen = said.iter().enumerate().filter(|(at, _)| chosen & (1 << at) != 0).map(|(_, it)| *it);
            let annotations: std::collections::BTreeMap<&str, &str> = chosen.collect();
            let api_version = if kind == "ConfigMap" { "v1" } else { "apps/v1" };
            let object = serde_json::json!({
                "apiVersion": api_version, "kind": kind, "spec": {"replicas": 1, "template": {"spec": {"containers": []}}},
                "metadata": {"name": "web", "namespace": "shop", "annotations": annotations},
            });
            let subject = kinds::subject(&object).unwrap();
            let by_placement = resolve(&Input::new(&subject, &directory)).source == dialect::ANNOTATIONS;
            let decides = dialect::decides(kind, |name| annotations.get(name).copied());
            assert_eq!(decides, by_placement, "{kind} {annotations:?}");
            decided += u32::from(decides);
        }
    }
    assert!(decided > 0);
}
