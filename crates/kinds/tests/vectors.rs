//! Cases of federation v1 and KubeFed, where what they do is what is wanted, and what is wanted where it is not.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeMap;

use kinds::{
    Problem,
    divide::{Algorithm, Preference, Preferences},
    overrides, propagation, retain,
    split::{
        bounds::{Bounds, Local, bounds},
        jobs::{self, JobShare},
    },
};
use serde_json::{Value, json};

fn read(name: &str) -> Value {
    let path = format!("{}/tests/data/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).expect("a file")).expect("JSON")
}

fn cases(of: &Value) -> &[Value] {
    of.as_array().expect("cases")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

fn preferences(case: &Value) -> Preferences {
    let Some(given) = case["preferences"].as_object() else { return Preferences::even() };
    let one = |(cluster, it): (&String, &Value)| {
        let preference =
            Preference { min: number(&it["min"]), max: it["max"].as_u64(), weight: number(&it["weight"]) };
        (cluster.clone(), preference)
    };
    Preferences { rebalance: false, clusters: given.iter().map(one).collect() }
}

#[test]
fn jobs_are_divided_as_federation_v1_meant_to() {
    for case in cases(&read("jobs")) {
        let clusters: Vec<&str> = cases(&case["clusters"]).iter().filter_map(Value::as_str).collect();
        let divided = jobs::divide(
            case["key"].as_str().expect("a key"),
            number(&case["parallelism"]),
            case["completions"].as_u64(),
            &clusters,
            &preferences(case),
            Algorithm::Federation,
        );
        // What was intended where the code did another thing, and what is recommended where that leaves work undone.
        let expected = ["recommended", "expectAsIntended", "expect"].iter().find_map(|key| case.get(key));
        let share = |(cluster, it): (&String, &Value)| {
            let share =
                JobShare { parallelism: number(&it["parallelism"]), completions: it["completions"].as_u64() };
            (cluster.clone(), share)
        };
        let expected: BTreeMap<String, JobShare> =
            expected.and_then(Value::as_object).expect("shares").iter().map(share).collect();
        assert_eq!(divided, expected, "{}", case["name"]);
        let created: Vec<&str> = cases(&case["createdIn"]).iter().filter_map(Value::as_str).collect();
        assert_eq!(divided.keys().map(String::as_str).collect::<Vec<_>>(), created, "{}", case["name"]);
    }
}

fn local(it: &Value) -> Option<Local> {
    it.is_object().then(|| Local {
        bounds: Bounds { min: it["min"].as_u64().unwrap_or(1), max: number(&it["max"]) },
        current: number(&it["currentReplicas"]),
        desired: number(&it["desiredReplicas"]),
        scaled: it["lastScaleSecondsAgo"].as_u64(),
    })
}

fn divided_bounds(of: &Value) -> BTreeMap<String, Bounds> {
    let bounds = |(cluster, it): (&String, &Value)| {
        let bounds = Bounds { min: it["min"].as_u64()?, max: it["max"].as_u64()? };
        (bounds.max > 0).then(|| (cluster.clone(), bounds))
    };
    of.as_object().expect("bounds").iter().filter_map(bounds).collect()
}

#[test]
fn autoscalers_are_divided_as_federation_v1_did_where_that_is_certain() {
    let vectors = read("autoscalers");
    for case in cases(&vectors["cases"]) {
        let name = &case["name"];
        let whole =
            Bounds { min: case["fed"]["min"].as_u64().unwrap_or(1), max: number(&case["fed"]["max"]) };
        let clusters: BTreeMap<String, Option<Local>> = case["local"]
            .as_object()
            .expect("clusters")
            .iter()
            .map(|(cluster, it)| (cluster.clone(), local(it)))
            .collect();
        let divided = bounds(whole, &clusters, number(&vectors["windowSeconds"]));
        let sum = |of: fn(&Bounds) -> u64| divided.values().map(of).sum::<u64>();
        assert_eq!(sum(|it| it.max), whole.max, "{name}");
        assert_eq!(sum(|it| it.min), whole.min.max(divided.len() as u64), "{name}");
        assert!(divided.values().all(|it| 1 <= it.min && it.min <= it.max), "{name}");
        for key in ["expect", "recommended"] {
            if case.get(key).is_some_and(Value::is_object) {
                assert_eq!(divided, divided_bounds(&case[key]), "{name}");
            }
        }
        let outcomes = case.get("upstreamOutcomes").map(cases).unwrap_or_default();
        if outcomes.iter().all(Value::is_object) && !outcomes.is_empty() {
            assert!(outcomes.iter().any(|it| divided_bounds(it) == divided), "{name}: {divided:?}");
        }
    }
}

fn service(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": spec})
}

fn retain_service(desired: Value, cluster: &Value) -> Result<Value, Problem> {
    let mut desired = service(desired);
    let member = service(cluster.get("spec").cloned().unwrap_or(json!({})));
    retain(&kinds::of("", "Service"), &mut desired, &member)?;
    Ok(desired)
}

#[test]
fn copies_keep_what_is_the_members() {
    for case in cases(&read("kubefed")["retention"]["cases"]) {
        let name = case["name"].as_str().expect("a name");
        if name.starts_with("replicas") {
            let deployment = |replicas: &Value| json!({"kind": "Deployment", "spec": {"replicas": replicas}});
            let mut desired = deployment(&case["desired"]);
            if case["retainReplicas"] == json!(true) {
                retain::replicas(
                    &kinds::of("apps", "Deployment"),
                    &mut desired,
                    &deployment(&case["cluster"]),
                );
            }
            assert_eq!(desired["spec"]["replicas"], case["expect"], "{name}");
        } else if name.starts_with("nodePort") {
            let member = json!({"spec": {"ports": case["clusterPorts"]}});
            let kept = retain_service(json!({"ports": case["desiredPorts"]}), &member).expect("kept");
            let expected = case.get("recommended").unwrap_or(&case["expectPorts"]);
            assert_eq!(&kept["spec"]["ports"], expected, "{name}");
        } else if name.starts_with("serviceaccount") {
            let mut desired = case["desired"].clone();
            retain(&kinds::of("", "ServiceAccount"), &mut desired, &case["cluster"]).expect("kept");
            assert_eq!(desired["secrets"], case["expect"]["secrets"], "{name}");
        } else {
            let kept = retain_service(json!({}), &case["cluster"]);
            assert_eq!(kept.is_ok(), case["ok"] == json!(true), "{name}");
            let Ok(kept) = kept else { continue };
            match case["expect"].as_object() {
                Some(expected) => {
                    for (field, value) in expected {
                        assert_eq!(&kept["spec"][field], value, "{name}: {field}");
                    }
                }
                None => assert_eq!(kept["spec"]["healthCheckNodePort"], case["expect"], "{name}"),
            }
        }
    }
}

#[test]
fn overrides_change_copies_and_nothing_else() {
    let vectors = read("kubefed");
    for case in cases(&vectors["overrides"]["cases"]) {
        if case.get("expectLabels").is_some() {
            // Of labels that only copies have: `sync` makes those, and has this case.
            continue;
        }
        let entry = json!({"clusterName": "c", "clusterOverrides": case["overrides"]});
        let twice = case["duplicateClusterName"] == json!(true);
        let written = if twice { json!([entry, entry]) } else { json!([entry]) };
        let mut copy = case["template"].clone();
        let applied = overrides::read(&written).and_then(|read| overrides::apply(&mut copy, &read["c"]));
        match case.get("expectStatus") {
            Some(_) => {
                assert!(applied.is_err(), "{case}");
                assert_eq!(copy, case["template"], "nothing is half changed");
            }
            None => {
                assert_eq!(applied, Ok(()), "{case}");
                assert_eq!(Some(&copy), case.get("expect"), "{case}");
            }
        }
    }
    for path in cases(&vectors["overrides"]["invalidPaths"]) {
        let written = json!([{"clusterName": "c", "clusterOverrides": [{"path": path, "value": "x"}]}]);
        assert!(overrides::read(&written).is_err(), "{path}");
    }
}

#[test]
fn a_status_is_written_when_something_changed() {
    let vectors = read("kubefed");
    for case in cases(&vectors["statusUpdate"]["cases"]) {
        let mut entry = json!({"name": "cluster1"});
        if let Some(remote) = case.get("remoteStatus") {
            entry["remoteStatus"] = remote.clone();
        }
        let mut status = json!({
            "observedGeneration": 0, "clusters": [entry], "conditions": [{"type": "Propagation", "status": "True"}],
        });
        let members = |key: &str| case.get(key).and_then(Value::as_object).into_iter().flatten();
        let pass = propagation::Pass {
            generation: case.get("generation").and_then(Value::as_i64).unwrap_or(0),
            reason: case.get("reason").and_then(Value::as_str).unwrap_or_default().to_owned(),
            clusters: members("statusMap")
                .map(|(cluster, status)| (cluster.clone(), status.as_str().unwrap_or_default().to_owned()))
                .collect(),
            statuses: members("resourceStatusMap").map(|(key, value)| (key.clone(), value.clone())).collect(),
            updated: case.get("resourcesUpdated") == Some(&json!(true)),
            collect: case["collect"] == json!(true),
        };
        let changed = propagation::update(&mut status, &pass, "2026-01-01T00:00:00Z");
        assert_eq!(json!(changed), case["changed"], "{}", case["name"]);
        let again = propagation::update(&mut status, &propagation::Pass { updated: false, ..pass }, "later");
        let settled = case["collect"] == json!(true) && case.get("resourceStatusMap").is_none();
        assert!(!again || settled, "{}: the same again is no change", case["name"]);
    }
}
