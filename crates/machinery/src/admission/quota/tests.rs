use serde_json::{Value, json};

use super::*;

const NOW: i64 = 1_800_000_000;

fn mk(value: Value) -> Tree {
    value.as_object().cloned().unwrap_or_default()
}

fn mk_quota(hard: Value, used: Value, spec: Value) -> Quota {
    let mut tree =
        mk(json!({"metadata": {"name": "q"}, "spec": spec, "status": {"hard": hard, "used": used}}));
    tree["spec"]["hard"] = tree["status"]["hard"].clone();
    Quota::read(&tree)
}

fn mk_pod(resources: Value) -> Tree {
    mk(json!({"spec": {"containers": [{"name": "c", "resources": resources}]}}))
}

fn create<'a>(new: &'a Tree) -> Change<'a> {
    Change { new, old: None, subresource: "", now: NOW }
}

fn charge(quotas: &[Quota], measure: &Measure, change: &Change<'_>) -> Result<Vec<Option<Amounts>>, String> {
    Demand::of(quotas, measure, change)?.charge(quotas)
}

fn texts_of(amounts: &Amounts) -> String {
    amounts::text_of(amounts)
}

#[test]
fn a_pod_uses_what_its_containers_ask_for() {
    let rows = [
        ("nothing said", mk_pod(json!({})), "count/pods=1,pods=1"),
        (
            "requests and limits",
            mk_pod(json!({"requests": {"cpu": "1", "nvidia.com/gpu": "2"}, "limits": {"memory": "1Gi"}})),
            "count/pods=1,cpu=1,limits.memory=1Gi,pods=1,requests.cpu=1,requests.nvidia.com/gpu=2",
        ),
        (
            "ended",
            mk(json!({
                "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]},
                "status": {"phase": "Succeeded"},
            })),
            "count/pods=1",
        ),
        (
            "its time to end is over",
            mk(json!({
                "metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30},
                "spec": {"containers": []},
            })),
            "count/pods=1",
        ),
        (
            "an init container that needs more, beside a sidecar",
            mk(json!({"spec": {
                "containers": [{"resources": {"requests": {"cpu": "1"}}}],
                "initContainers": [
                    {"restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}},
                    {"resources": {"requests": {"cpu": "3"}}},
                ],
            }})),
            "count/pods=1,cpu=3500m,pods=1,requests.cpu=3500m",
        ),
        (
            "as a whole, with overhead",
            mk(json!({"spec": {
                "containers": [{"resources": {"requests": {"cpu": "1"}}}],
                "resources": {"requests": {"cpu": "2"}}, "overhead": {"cpu": "250m"},
            }})),
            "count/pods=1,cpu=2250m,pods=1,requests.cpu=2250m",
        ),
        (
            "shrinking, while the node has not let go",
            mk(json!({
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
                "status": {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]},
            })),
            "count/pods=1,cpu=4,pods=1,requests.cpu=4",
        ),
    ];
    for (what, pod, wanted) in rows {
        assert_eq!(texts_of(&Measure::Pods.usage(&pod, NOW)), wanted, "{what}");
    }
}

#[test]
fn services_and_claims_use_what_they_take() {
    let rows = [
        (Measure::Services, json!({"spec": {"type": "ClusterIP", "ports": [{}]}}), "0", "0"),
        (Measure::Services, json!({"spec": {"type": "NodePort", "ports": [{}, {}]}}), "0", "2"),
        (Measure::Services, json!({"spec": {"type": "LoadBalancer", "ports": [{}]}}), "1", "1"),
        (
            Measure::Services,
            json!({"spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false,
                "ports": [{"nodePort": 30000}, {}]}}),
            "1",
            "1",
        ),
    ];
    for (measure, service, balancers, ports) in rows {
        let usage = measure.usage(&mk(service), NOW);
        assert_eq!(usage["services.loadbalancers"].to_string(), balancers);
        assert_eq!(usage["services.nodeports"].to_string(), ports);
    }
    let claim =
        mk(json!({"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1Gi"}}}}));
    assert_eq!(
        texts_of(&Measure::Claims.usage(&claim, NOW)),
        "count/persistentvolumeclaims=1,gold.storageclass.storage.k8s.io/persistentvolumeclaims=1,\
         gold.storageclass.storage.k8s.io/requests.storage=1Gi,persistentvolumeclaims=1,requests.storage=1Gi"
    );
}

#[test]
fn who_asks_for_more_than_is_left_is_told_how_much_that_is() {
    let quota = mk_quota(
        json!({"pods": "5", "requests.cpu": "2"}),
        json!({"pods": "1", "requests.cpu": "1500m"}),
        json!({}),
    );
    let pod = mk_pod(json!({"requests": {"cpu": "1"}}));
    assert_eq!(
        charge(std::slice::from_ref(&quota), &Measure::Pods, &create(&pod)),
        Err(
            "exceeded quota: q, requested: requests.cpu=1, used: requests.cpu=1500m, limited: requests.cpu=2"
                .to_owned()
        )
    );
    let small = mk_pod(json!({"requests": {"cpu": "500m"}}));
    let charged = charge(std::slice::from_ref(&quota), &Measure::Pods, &create(&small)).expect("fits");
    assert_eq!(charged[0].as_ref().map(texts_of).as_deref(), Some("pods=2,requests.cpu=2"));
    assert_eq!(
        charge(&[quota], &Measure::Pods, &create(&mk_pod(json!({})))),
        Err("failed quota: q: must specify requests.cpu for: c".to_owned())
    );
    let uncounted = mk_quota(json!({"pods": "5", "cpu": "1"}), json!({"pods": "1"}), json!({}));
    assert_eq!(
        charge(&[uncounted], &Measure::Pods, &create(&small)),
        Err("status unknown for quota: q, resources: cpu,pods".to_owned())
    );
}

#[test]
fn an_update_is_charged_for_what_it_adds() {
    let quota = mk_quota(json!({"requests.cpu": "4"}), json!({"requests.cpu": "1"}), json!({}));
    let pod = |cpu: &str| mk_pod(json!({"requests": {"cpu": cpu}}));
    let resize = |new: &str| {
        let (new, old) = (pod(new), pod("1"));
        let change = Change { new: &new, old: Some(&old), subresource: "resize", now: NOW };
        assert!(Measure::Pods.minds(&change));
        charge(std::slice::from_ref(&quota), &Measure::Pods, &change)
    };
    assert_eq!(resize("3").expect("fits")[0].as_ref().map(texts_of).as_deref(), Some("requests.cpu=3"));
    assert_eq!(resize("500m"), Ok(vec![None]), "what is given back is found by counting");
    assert!(resize("5").is_err());
}

#[test]
fn scopes_decide_which_objects_count() {
    let with = |spec: Value| {
        let mut pod = mk_pod(json!({}));
        for (key, value) in mk(spec) {
            pod["spec"][key] = value;
        }
        pod
    };
    let selector = |name: &str, operator: &str, values: &[&str]| json!({"scopeSelector": {"matchExpressions": [{"scopeName": name, "operator": operator, "values": values}]}});
    let affinity = json!({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"podAffinityTerm": {"namespaceSelector": {}}}]}}});
    let rows = [
        (json!({"scopes": ["Terminating"]}), with(json!({"activeDeadlineSeconds": 5})), true),
        (json!({"scopes": ["Terminating"]}), with(json!({})), false),
        (json!({"scopes": ["NotTerminating", "BestEffort"]}), with(json!({})), true),
        (json!({"scopes": ["NotBestEffort"]}), with(json!({})), false),
        (json!({"scopes": ["NotBestEffort"]}), mk_pod(json!({"limits": {"cpu": "1"}})), true),
        (json!({"scopes": ["PriorityClass"]}), with(json!({"priorityClassName": "x"})), true),
        (selector("PriorityClass", "In", &["a", "b"]), with(json!({"priorityClassName": "b"})), true),
        (selector("PriorityClass", "NotIn", &["a"]), with(json!({})), true),
        (selector("PriorityClass", "DoesNotExist", &[]), with(json!({"priorityClassName": "b"})), false),
        (json!({"scopes": ["CrossNamespacePodAffinity"]}), with(affinity), true),
        (json!({"scopes": ["CrossNamespacePodAffinity"]}), with(json!({})), false),
    ];
    for (spec, pod, wanted) in rows {
        let quota = mk_quota(json!({"pods": "1"}), json!({"pods": "0"}), spec.clone());
        assert_eq!(quota.matches(&Measure::Pods, &pod), wanted, "{spec} {pod:?}");
    }
    let claims = selector("VolumeAttributesClass", "In", &["gold"]);
    let quota = mk_quota(json!({"persistentvolumeclaims": "1"}), json!({}), claims);
    let claim = |class: &str| {
        mk(json!({"status": {"modifyVolumeStatus": {"targetVolumeAttributesClassName": class}}}))
    };
    assert!(quota.matches(&Measure::Claims, &claim("gold")));
    assert!(!quota.matches(&Measure::Claims, &claim("silver")));
}

#[test]
fn kinds_are_counted_under_their_names() {
    let names = |group: &str, resource: &str| match Measure::of(group, resource) {
        Some(Measure::Count(names)) => names,
        other => panic!("{other:?}"),
    };
    assert_eq!(names("", "configmaps"), ["count/configmaps", "configmaps"]);
    assert_eq!(names("", "serviceaccounts"), ["count/serviceaccounts"]);
    assert_eq!(names("apps", "deployments"), ["count/deployments.apps"]);
    assert_eq!(Measure::of("", "events"), None);
    assert_eq!(Measure::of("events.k8s.io", "events"), None);
}

#[test]
fn a_recount_says_zero_of_what_is_not_there_and_keeps_what_nobody_can_count() {
    let hard = json!({"pods": "5", "count/configmaps": "3", "count/things.example.com": "1"});
    let quota = mk_quota(hard, json!({"count/things.example.com": "1", "secrets": "4"}), json!({}));
    let mut recount = Recount::new(&quota);
    let maps = Measure::of("", "configmaps").expect("counted");
    assert!(recount.begin(&Measure::Pods) && recount.begin(&maps));
    assert!(!recount.begin(&Measure::Services));
    recount.add_many(&maps, 2);
    let used = recount.finish().expect("it was not known");
    assert_eq!(texts_of(&used), "count/configmaps=2,count/things.example.com=1,pods=0");
}
