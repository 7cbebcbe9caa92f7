//! HorizontalPodAutoscalers.

use serde_json::{Value, json};
use sim::{kind, tree};

use crate::cluster::{Cluster, Kubelet, conditions};

fn deployment(replicas: i64) -> Value {
    json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [
                    { "name": "main", "image": "a", "resources": { "requests": { "cpu": "100m", "memory": "1Gi" } } }] },
            },
        },
    })
}

fn autoscaler(target: Value, behavior: Option<Value>) -> Value {
    let resource = json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } });
    let mut object = json!({
        "metadata": { "name": "web" },
        "spec": {
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "minReplicas": 1, "maxReplicas": 10, "metrics": [resource],
        },
    });
    if let Some(behavior) = behavior {
        object["spec"]["behavior"] = behavior;
    }
    object
}

fn utilization(percent: i64) -> Value {
    json!({ "type": "Utilization", "averageUtilization": percent })
}

/// All pods use so many thousandths of a core.
fn use_cpu(cluster: &mut Cluster, milli: f64) {
    for pod in cluster.names(kind::PODS) {
        cluster.usage.insert((pod, "cpu".to_owned()), milli / 1000.0);
    }
}

fn replicas(cluster: &Cluster) -> i64 {
    tree::number(&cluster.get(kind::DEPLOYMENTS, "web"), "/spec/replicas").expect("a number")
}

fn web(cluster: &Cluster) -> Value {
    cluster.get(kind::AUTOSCALERS, "web")
}

/// Long enough that pods count as started.
const START: u64 = 400;

#[test]
fn more_use_means_more_replicas_and_less_means_less_after_a_while() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::DEPLOYMENTS, deployment(2));
    cluster.seconds(START);
    use_cpu(&mut cluster, 100.0);
    cluster.create(kind::AUTOSCALERS, autoscaler(utilization(50), None));
    assert_eq!(replicas(&cluster), 4);
    let stored = web(&cluster);
    assert_eq!(
        conditions(&stored),
        [
            "AbleToScale=True SucceededRescale",
            "ScalingActive=True ValidMetricFound",
            "ScalingLimited=False DesiredWithinRange"
        ]
    );
    assert_eq!(stored["status"]["currentMetrics"][0]["resource"]["current"]["averageUtilization"], 100);
    assert_eq!(tree::text(&stored, "/status/currentMetrics/0/resource/current/averageValue"), "100m");
    assert_eq!(
        (stored["status"]["currentReplicas"].as_i64(), stored["status"]["desiredReplicas"].as_i64()),
        (Some(2), Some(4))
    );
    assert!(cluster.has_event("SuccessfulRescale: New size: 4; reason: cpu resource utilization (percentage of request) above target"));

    use_cpu(&mut cluster, 50.0);
    cluster.seconds(START);
    assert_eq!(replicas(&cluster), 4);
    assert_eq!(conditions(&web(&cluster))[0], "AbleToScale=True ReadyForNewScale");

    use_cpu(&mut cluster, 10.0);
    cluster.seconds(60);
    assert_eq!(replicas(&cluster), 4);
    assert_eq!(conditions(&web(&cluster))[0], "AbleToScale=True ScaleDownStabilized");
    cluster.seconds(400);
    assert_eq!(replicas(&cluster), 1);
}

#[test]
fn it_grows_no_faster_than_twofold_and_no_further_than_its_limit() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::DEPLOYMENTS, deployment(3));
    cluster.seconds(START);
    use_cpu(&mut cluster, 1000.0);
    cluster.create(kind::AUTOSCALERS, autoscaler(utilization(50), None));
    assert_eq!(replicas(&cluster), 6);
    assert_eq!(conditions(&web(&cluster))[2], "ScalingLimited=True ScaleUpLimit");
    use_cpu(&mut cluster, 1000.0);
    cluster.seconds(30);
    assert_eq!(replicas(&cluster), 10);
    cluster.seconds(30);
    assert_eq!(conditions(&web(&cluster))[2], "ScalingLimited=True TooManyReplicas");
}

#[test]
fn little_deviation_is_tolerated() {
    for (milli, expected) in [(54.0, 4), (56.0, 5), (46.0, 4), (44.0, 4)] {
        let mut cluster = Cluster::new(1);
        cluster.create(kind::DEPLOYMENTS, deployment(4));
        cluster.seconds(START);
        use_cpu(&mut cluster, milli);
        cluster.create(kind::AUTOSCALERS, autoscaler(utilization(50), None));
        assert_eq!(replicas(&cluster), expected, "{milli}");
    }
}

#[test]
fn an_average_may_be_given_as_an_amount() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::DEPLOYMENTS, deployment(2));
    cluster.seconds(START);
    use_cpu(&mut cluster, 300.0);
    cluster.create(
        kind::AUTOSCALERS,
        autoscaler(json!({ "type": "AverageValue", "averageValue": "200m" }), None),
    );
    assert_eq!(replicas(&cluster), 3);
}

#[test]
fn policies_say_how_fast() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::DEPLOYMENTS, deployment(4));
    cluster.seconds(START);
    use_cpu(&mut cluster, 1000.0);
    let behavior = json!({
        "scaleUp": {
            "stabilizationWindowSeconds": 0, "selectPolicy": "Max",
            "policies": [{ "type": "Pods", "value": 1, "periodSeconds": 60 }],
        },
        "scaleDown": {
            "stabilizationWindowSeconds": 0, "selectPolicy": "Max",
            "policies": [{ "type": "Percent", "value": 50, "periodSeconds": 60 }],
        },
    });
    cluster.create(kind::AUTOSCALERS, autoscaler(utilization(50), Some(behavior)));
    assert_eq!(replicas(&cluster), 5);
    assert_eq!(conditions(&web(&cluster))[2], "ScalingLimited=True ScaleUpLimit");
    cluster.seconds(50);
    assert_eq!(replicas(&cluster), 5);
    use_cpu(&mut cluster, 1000.0);
    cluster.seconds(20);
    assert_eq!(replicas(&cluster), 6);
    use_cpu(&mut cluster, 1.0);
    cluster.seconds(START);
    assert_eq!(replicas(&cluster), 1);
}

#[test]
fn without_metrics_nothing_is_done() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::DEPLOYMENTS, deployment(2));
    cluster.create(kind::AUTOSCALERS, autoscaler(utilization(50), None));
    assert_eq!(replicas(&cluster), 2);
    assert_eq!(
        conditions(&web(&cluster)),
        ["AbleToScale=True SucceededGetScale", "ScalingActive=False FailedGetResourceMetric"]
    );
    let stored = web(&cluster);
    let message = tree::text(tree::condition(&stored, "ScalingActive").expect("one"), "/message");
    assert_eq!(
        message,
        "the HPA was unable to compute the replica count: failed to get cpu utilization: unable to get metrics for \
         resource cpu: no metrics returned from resource metrics API"
    );
}

#[test]
fn without_a_target_nothing_is_done() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::AUTOSCALERS, autoscaler(utilization(50), None));
    assert_eq!(conditions(&web(&cluster)), ["AbleToScale=False FailedGetScale"]);
    assert!(cluster.has_event("FailedGetScale: deployments.apps \"web\" not found"));
}

#[test]
fn bounds_hold_whatever_is_used() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::DEPLOYMENTS, deployment(20));
    cluster.create(kind::AUTOSCALERS, autoscaler(utilization(50), None));
    assert_eq!(replicas(&cluster), 10);
    assert!(cluster.has_event("New size: 10; reason: Current number of replicas above Spec.MaxReplicas"));
    cluster.patch(kind::DEPLOYMENTS, "web", json!({ "spec": { "replicas": 0 } }));
    cluster.seconds(60);
    assert_eq!(conditions(&web(&cluster))[1], "ScalingActive=False ScalingDisabled");
    assert_eq!(replicas(&cluster), 0);
}

#[test]
fn pods_that_are_not_ready_dampen_growth() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::DEPLOYMENTS, deployment(2));
    cluster.seconds(START);
    use_cpu(&mut cluster, 75.0);
    cluster.kubelet = Kubelet::Stuck;
    cluster.patch(kind::DEPLOYMENTS, "web", json!({ "spec": { "replicas": 3 } }));
    cluster.create(kind::AUTOSCALERS, autoscaler(utilization(50), None));
    // Two pods at 150 percent would ask for three; the third is on its way.
    assert_eq!(replicas(&cluster), 3);
}
