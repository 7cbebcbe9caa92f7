//! Conditions of autoscalers, budgets and of any definition, judged by those who read them.

mod judges;

use std::collections::BTreeMap;

use kinds::{MemberStatus, aggregate, generic, stamp};
use machinery::{resource::ScalePaths, validation::workloads};
use proptest::prelude::*;
use serde_json::{Value, json};

fn mk(api_version: &str, kind: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "generation": 2}, "spec": {}})
}

fn member(status: Value) -> MemberStatus {
    MemberStatus { generation: 5, source_generation: 2, status, reachable: true, ..MemberStatus::default() }
}

fn members(statuses: &[Value]) -> BTreeMap<String, MemberStatus> {
    statuses.iter().enumerate().map(|(at, it)| (format!("c{at}"), member(it.clone()))).collect()
}

/// The copy as its cluster shows it.
fn copy(object: &Value, status: &Value) -> Value {
    let mut copy = object.clone();
    copy["metadata"]["generation"] = json!(5);
    copy["status"] = status.clone();
    copy
}

fn whole(object: &Value, statuses: &[Value]) -> Value {
    let mut whole = object.clone();
    whole["status"] = aggregate(object, &members(statuses));
    whole
}

fn any_condition(
    kind: &'static str,
    states: &'static [(&'static str, &'static str)],
) -> impl Strategy<Value = Value> {
    (0..states.len())
        .prop_map(move |at| json!({"type": kind, "status": states[at].0, "reason": states[at].1}))
}

fn any_scaler() -> impl Strategy<Value = Value> {
    let able = any_condition(
        "AbleToScale",
        &[("True", "ReadyForNewScale"), ("True", "SucceededRescale"), ("False", "FailedGetScale")],
    );
    let active =
        any_condition("ScalingActive", &[("True", "ValidMetricFound"), ("False", "FailedGetResourceMetric")]);
    let limited =
        any_condition("ScalingLimited", &[("False", "DesiredWithinRange"), ("True", "TooManyReplicas")]);
    let all = (able, prop::option::of(active), prop::option::of(limited));
    let status = all.prop_map(|(able, active, limited)| {
        let conditions: Vec<Value> = [Some(able), active, limited].into_iter().flatten().collect();
        json!({"observedGeneration": 5, "desiredReplicas": 1, "conditions": conditions})
    });
    prop_oneof![8 => status, 1 => Just(Value::Null)]
}

fn any_widget() -> impl Strategy<Value = Value> {
    let ready = any_condition(
        "Ready",
        &[("True", "R"), ("True", "R"), ("True", "R"), ("False", "R"), ("Unknown", "R")],
    );
    let stalled = any_condition("Stalled", &[("False", "S"), ("True", "S")]);
    let working = any_condition("Reconciling", &[("False", "W"), ("True", "W")]);
    let observed = prop_oneof![6 => Just(json!(5)), 1 => Just(json!(4))];
    (ready, prop::option::weighted(0.2, stalled), prop::option::weighted(0.2, working), observed).prop_map(
        |(ready, stalled, working, observed)| {
            let conditions: Vec<Value> = [Some(ready), stalled, working].into_iter().flatten().collect();
            json!({"observedGeneration": observed, "conditions": conditions})
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_autoscaler_is_healthy_only_if_all_are(statuses in prop::collection::vec(any_scaler(), 1..4)) {
        let object = mk("autoscaling/v2", "HorizontalPodAutoscaler");
        let whole = whole(&object, &statuses);
        if judges::argo(&whole) {
            for status in &statuses {
                prop_assert!(judges::argo(&copy(&object, status)), "{status:#} {whole:#}");
            }
        }
        let tree = whole.as_object().expect("an object");
        prop_assert!(workloads::autoscaler_status(tree, tree).is_empty());
    }

    #[test]
    fn anything_is_current_if_and_only_if_all_are(statuses in prop::collection::vec(any_widget(), 1..4)) {
        let object = mk("example.com/v1", "Widget");
        let whole = whole(&object, &statuses);
        let all = statuses.iter().all(|status| judges::kstatus(&copy(&object, status)));
        prop_assert_eq!(judges::kstatus(&whole), all, "{:#}", &whole);
        prop_assert_eq!(judges::wait(&whole, "Ready"), statuses.iter().all(|it| judges::wait(&copy(&object, it), "Ready")));
    }

    #[test]
    fn the_api_server_takes_the_status_of_a_budget(
        allowed in prop::collection::vec(0u64..3, 1..4), failing in any::<bool>()
    ) {
        let status = |allowed: &u64| {
            let reason = if failing { "SyncFailed" } else { "SufficientPods" };
            let condition = json!({
                "type": "DisruptionAllowed", "status": if *allowed > 0 { "True" } else { "False" }, "reason": reason,
                "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            json!({
                "observedGeneration": 5, "disruptionsAllowed": allowed, "currentHealthy": 3, "desiredHealthy": 2,
                "expectedPods": 3, "conditions": [condition],
            })
        };
        let object = mk("policy/v1", "PodDisruptionBudget");
        let statuses: Vec<Value> = allowed.iter().map(status).collect();
        let whole = whole(&object, &statuses);
        prop_assert_eq!(&whole["status"]["disruptionsAllowed"], &json!(allowed.iter().sum::<u64>()));
        let tree = whole.as_object().expect("an object");
        let causes = workloads::disruption_budget_status(tree, tree);
        prop_assert!(causes.is_empty(), "{causes:?} {whole:#}");
        prop_assert_eq!(judges::wait(&whole, "DisruptionAllowed"), !failing && allowed.iter().any(|it| *it > 0));
    }
}

#[test]
fn a_time_that_is_not_known_is_now_and_one_that_is_stays() {
    let object = mk("example.com/v1", "Widget");
    let ready = |status: &str| json!({"conditions": [{"type": "Ready", "status": status}]});
    let mut first = whole(&object, &[ready("False"), ready("True")]);
    stamp(&mut first["status"], "2026-01-01T00:00:00Z");
    let time = |object: &Value| object["status"]["conditions"][0]["lastTransitionTime"].clone();
    assert_eq!(time(&first), "2026-01-01T00:00:00Z");
    let mut again = whole(&first, &[ready("False"), ready("False")]);
    stamp(&mut again["status"], "2026-01-02T00:00:00Z");
    assert_eq!(time(&again), "2026-01-01T00:00:00Z", "it is still not ready");
    let mut turned = whole(&again, &[ready("True"), ready("True")]);
    stamp(&mut turned["status"], "2026-01-03T00:00:00Z");
    assert_eq!(time(&turned), "2026-01-03T00:00:00Z");
}

#[test]
fn what_has_a_scale_counts_at_the_path_that_its_definition_names() {
    let kind = generic(Some(ScalePaths {
        spec_replicas: ".spec.size".into(),
        status_replicas: ".status.nodes.running".into(),
        selector: String::new(),
    }));
    let mut object = mk("example.com/v1", "Widget");
    object["spec"]["size"] = json!(3);
    let mut members = members(&[
        json!({"nodes": {"running": 2}, "readyReplicas": 2}),
        json!({"nodes": {"running": 1}, "readyReplicas": 0}),
    ]);
    for (member, share) in members.values_mut().zip([2, 1]) {
        member.assigned.replicas = share;
    }
    let status = kind.aggregate(&object, &members);
    assert_eq!(status, json!({"nodes": {"running": 3}, "readyReplicas": 2}));
    let shares = members.iter().map(|(cluster, member)| (cluster.clone(), member.assigned)).collect();
    let copies = kind.split(&object, &shares).expect("copies");
    assert_eq!((&copies["c0"]["spec"]["size"], &copies["c1"]["spec"]["size"]), (&json!(2), &json!(1)));
}
