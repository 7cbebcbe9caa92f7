use super::*;

fn mk(value: Value) -> Tree {
    value.as_object().cloned().unwrap_or_default()
}

#[test]
fn a_pod_gets_the_priority_of_its_class() {
    let class = mk(json!({"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"}));
    let mut pod = mk(json!({"spec": {"priorityClassName": "high"}}));
    assert_eq!(set_priority(&mut pod, Some(&class)), Ok(()));
    assert_eq!(
        pod["spec"],
        json!({"priorityClassName": "high", "priority": 1000, "preemptionPolicy": "Never"})
    );
    let mut own = mk(json!({"spec": {"priorityClassName": "high", "priority": 7}}));
    assert_eq!(
        set_priority(&mut own, Some(&class)),
        Err("the integer value of priority (7) must not be provided in pod spec; priority admission controller \
             computed 1000 from the given PriorityClass name"
            .to_owned())
    );
    let mut plain = mk(json!({"spec": {}}));
    assert_eq!(set_priority(&mut plain, None), Ok(()));
    assert_eq!(plain["spec"], json!({"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}));
}

#[test]
fn tolerations_are_added_where_none_covers_the_taint() {
    let mut pod = mk(json!({"spec": {"tolerations": [{"key": NOT_READY, "operator": "Exists"}]}}));
    tolerate_for_a_while(&mut pod);
    let keys: Vec<&str> =
        items(object(&pod, "spec").expect("a spec"), "tolerations").map(|(_, it)| text(it, "key")).collect();
    assert_eq!(keys, [NOT_READY, UNREACHABLE]);
    let mut all = mk(json!({"spec": {"tolerations": [{"operator": "Exists"}]}}));
    tolerate_for_a_while(&mut all);
    assert_eq!(all["spec"]["tolerations"], json!([{"operator": "Exists"}]));
}

#[test]
fn a_runtime_brings_its_cost_and_its_place() {
    let class = mk(json!({
        "overhead": {"podFixed": {"cpu": "100m"}},
        "scheduling": {"nodeSelector": {"runtime": "vm"}, "tolerations": [{"key": "vm", "operator": "Exists"}]},
    }));
    let mut pod = mk(json!({"spec": {"tolerations": [{"key": "vm", "operator": "Equal", "value": "x"}]}}));
    assert_eq!(set_runtime(&mut pod, &class), Ok(()));
    assert_eq!(pod["spec"]["overhead"], json!({"cpu": "100m"}));
    assert_eq!(pod["spec"]["nodeSelector"], json!({"runtime": "vm"}));
    assert_eq!(pod["spec"]["tolerations"], json!([{"key": "vm", "operator": "Exists"}]), "the wider one");
    let mut other = mk(json!({"spec": {"nodeSelector": {"runtime": "runc"}}}));
    assert_eq!(
        set_runtime(&mut other, &class),
        Err("conflict: runtimeClass.scheduling.nodeSelector[runtime] = vm; pod.spec.nodeSelector[runtime] = runc"
            .to_owned())
    );
    assert!(check_overhead(&pod, None).is_err());
    assert_eq!(check_overhead(&pod, Some(&class)), Ok(()));
}

#[test]
fn a_pod_grows_only_as_far_as_its_node_can() {
    let node =
        mk(json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1", "memory": "1Gi"}}}));
    let pod = |cpu: &str| mk(json!({"spec": {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}}));
    assert_eq!(check_resize(&pod("1"), &node), Ok(()));
    let why = "node didn't have enough allocatable resources: cpu, requested: 2000, allocatable: 1000";
    assert_eq!(check_resize(&pod("2"), &node), Err(("NodeCapacity", why.to_owned())));
}
