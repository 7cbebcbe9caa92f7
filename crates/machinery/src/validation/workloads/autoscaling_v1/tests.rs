use super::*;

fn stored(mut v1: Value) -> Value {
    if let Some(tree) = v1.as_object_mut() {
        autoscaler_from_v1(tree);
    }
    v1
}

fn served(mut v2: Value) -> Value {
    if let Some(tree) = v2.as_object_mut() {
        autoscaler_to_v1(tree);
    }
    v2
}

#[test]
fn the_one_metric_of_v1_is_the_use_of_the_processor() {
    for (utilization, metrics) in
        [(json!(null), json!([cpu_metric(80)])), (json!(55), json!([cpu_metric(55)]))]
    {
        let v1 = json!({"metadata": {}, "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": utilization}});
        assert_eq!(stored(v1), json!({"metadata": {}, "spec": {"maxReplicas": 3, "metrics": metrics}}));
    }
}

#[test]
fn what_v1_cannot_express_goes_through_annotations_and_back() {
    let v2 = json!({
        "metadata": {"name": "a", "annotations": {"mine": "x"}},
        "spec": {
            "maxReplicas": 3,
            "metrics": [
                cpu_metric(50),
                {"type": "Pods", "pods": {"metric": {"name": "rate", "selector": {"matchLabels": {"a": "b"}}}, "target": {"type": "AverageValue", "averageValue": "10"}}},
                {"type": "Object", "object": {
                    "describedObject": {"kind": "Service", "name": "s", "apiVersion": "v1"},
                    "metric": {"name": "hits"}, "target": {"type": "Value", "value": "5"},
                }},
                {"type": "External", "external": {"metric": {"name": "q"}, "target": {"type": "AverageValue", "averageValue": "1"}}},
                {"type": "ContainerResource", "containerResource": {"name": "memory", "container": "c", "target": {"type": "Utilization", "averageUtilization": 7}}},
            ],
            "behavior": {"scaleDown": {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}},
        },
        "status": {
            "desiredReplicas": 2,
            "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 40, "averageValue": "1"}}}],
            "conditions": [{"type": "AbleToScale", "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z", "reason": "r"}],
        },
    });
    let v1 = served(v2.clone());
    assert_eq!(v1["spec"], json!({"maxReplicas": 3, "targetCPUUtilizationPercentage": 50}));
    assert_eq!(
        v1["status"],
        json!({"currentReplicas": 0, "desiredReplicas": 2, "currentCPUUtilizationPercentage": 40})
    );
    let annotations = &v1["metadata"]["annotations"];
    assert_eq!(annotations["mine"], "x");
    assert_eq!(
        annotations[METRICS],
        concat!(
            r#"[{"type":"Pods","pods":{"metricName":"rate","targetAverageValue":"10","selector":{"matchLabels":{"a":"b"}}}},"#,
            r#"{"type":"Object","object":{"target":{"kind":"Service","name":"s","apiVersion":"v1"},"metricName":"hits","targetValue":"5"}},"#,
            r#"{"type":"External","external":{"metricName":"q","targetAverageValue":"1"}},"#,
            r#"{"type":"ContainerResource","containerResource":{"name":"memory","targetAverageUtilization":7,"container":"c"}}]"#
        )
    );
    assert_eq!(
        annotations[BEHAVIOR],
        r#"{"ScaleUp":null,"ScaleDown":{"StabilizationWindowSeconds":null,"SelectPolicy":"Max","Policies":[{"Type":"Percent","Value":100,"PeriodSeconds":15}],"Tolerance":null}}"#
    );
    let mut again = stored(v1);
    // The metric of the processor comes last now, as it does upstream.
    if let Some(metrics) = again["spec"]["metrics"].as_array_mut() {
        metrics.rotate_right(1);
    }
    assert_eq!(again, v2);
}

#[test]
fn annotations_that_are_not_understood_are_dropped() {
    let v1 = json!({
        "metadata": {"annotations": {METRICS: "{", BEHAVIOR: "[]", CONDITIONS: "1"}},
        "spec": {"targetCPUUtilizationPercentage": 9},
        "status": {"currentReplicas": 0, "desiredReplicas": 0},
    });
    assert_eq!(
        stored(v1),
        json!({
            "metadata": {},
            "spec": {"metrics": [cpu_metric(9)]},
            "status": {"desiredReplicas": 0, "currentMetrics": null},
        })
    );
}
