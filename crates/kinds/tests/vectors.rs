//! Cases of federation v1 and KubeFed, where what they do is what is wanted, and what is wanted where it is not.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeMap;

use kinds::{
    divide::{Algorithm, Preference, Preferences},
    overrides, propagation,
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
        assert!(!again, "{}: the same again is no change", case["name"]);
    }
}

/// What is there to show of a family of cases.
enum Shown {
    /// By these tests, each with its file below `crates`.
    By(&'static [(&'static str, &'static str)]),
    /// Nothing, for this reason.
    Nothing(&'static str),
}

/// Every family of KubeFed's cases, how many it has, and what shows them. Where what they are about is made otherwise
/// here, a test has them in the words of that.
const FAMILIES: [(&str, usize, Shown); 12] = {
    const CAPACITY: (&str, &str) = ("sync/src/unscheduled.rs", "capacity_is_found_as_in_federation");
    const IN_A_HUB: &str = "testing/tests/dialects/vectors.rs";
    use Shown::{By, Nothing};
    [
        (
            "placement",
            9,
            By(&[
                ("placement/tests/dialects.rs", "placements_choose_as_in_kubefed"),
                (IN_A_HUB, "placements_choose_clusters_as_in_kubefed"),
            ]),
        ),
        (
            "namespacedPlacement",
            5,
            By(&[
                ("dialects/tests/kubefed.rs", "a_namespace_allows_what_it_allows_in_kubefed"),
                (IN_A_HUB, "namespaces_limit_what_is_in_them_as_in_kubefed"),
            ]),
        ),
        (
            "overrides",
            16,
            By(&[
                ("kinds/tests/vectors.rs", "overrides_change_copies_and_nothing_else"),
                (IN_A_HUB, "overrides_change_copies_as_in_kubefed"),
                (
                    "sync/src/copies/render.rs",
                    "a_federated_copy_is_managed_whatever_its_template_and_overrides_say",
                ),
            ]),
        ),
        (
            "rspOverrideMap",
            3,
            By(&[
                (
                    "dialects/tests/kubefed.rs",
                    "a_plan_takes_the_place_of_overridden_replicas_and_of_nothing_else",
                ),
                (IN_A_HUB, "a_plan_goes_before_overridden_replicas_and_leaves_other_overrides"),
            ]),
        ),
        (
            "retention",
            15,
            By(&[(
                "testing/tests/dialects/retention.rs",
                "scenario_15_copies_keep_in_members_what_they_keep_in_kubefed",
            )]),
        ),
        ("statusUpdate", 17, By(&[("kinds/tests/vectors.rs", "a_status_is_written_when_something_changed")])),
        (
            "healthThreshold",
            5,
            By(&[("sync/src/health.rs", "what_kubefed_holds_of_a_member_and_what_is_held_here")]),
        ),
        // docs/dialects.md has the words of KubeFed's that are never said, and why.
        (
            "templateHash",
            2,
            Nothing("nothing is remembered of copies, so there is nothing to make a hash of"),
        ),
        ("clusterReplicaState", 3, By(&[CAPACITY])),
        ("podAnalyzer", 3, By(&[CAPACITY])),
        (
            "syncOperationsV1",
            11,
            By(&[
                ("sync/src/copies/plan.rs", "every_wish_meets_everything_that_may_be_there"),
                ("testing/tests/dialects/operations.rs", "what_federation_v1_answers_of_a_pass_is_told"),
                (
                    "testing/tests/dialects/operations.rs",
                    "what_a_cluster_refuses_is_told_and_done_when_it_no_longer_does",
                ),
            ]),
        ),
        (
            "kubemciVersions",
            15,
            Nothing("kubemci is no part of federation: it balances requests over clusters, which is traffic"),
        ),
    ]
};

#[test]
fn every_family_of_kubefed_is_shown_or_has_nothing_to_show() {
    let vectors = read("kubefed");
    let mut rows: BTreeMap<&str, usize> = BTreeMap::new();
    for (family, tables) in vectors.as_object().expect("families") {
        let lists = tables.as_object().expect("tables of a family").values().filter_map(Value::as_array);
        rows.insert(family, lists.map(Vec::len).sum());
    }
    let listed: BTreeMap<&str, usize> = FAMILIES.iter().map(|(family, count, _)| (*family, *count)).collect();
    assert_eq!(rows, listed);
    for (family, _, shown) in &FAMILIES {
        match shown {
            Shown::By(tests) => {
                for (file, test) in *tests {
                    let path = format!("{}/../{file}", env!("CARGO_MANIFEST_DIR"));
                    let source = std::fs::read_to_string(path).expect("a file");
                    assert!(source.contains(&format!("fn {test}(")), "{family}: no {test} in {file}");
                }
            }
            Shown::Nothing(why) => assert!(!why.is_empty(), "{family}"),
        }
    }
}
