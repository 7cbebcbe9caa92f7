//! Rules of pods, by example: a change of a good pod, and what is said to it.

use serde_json::{Value, json};

use super::*;
use crate::schema::{self, Types};

/// Takes a pod the way a request does.
fn conformed(mut value: Value) -> Tree {
    let types = Types::builtin();
    let message = types.get("core/v1.Pod").expect("pods are a built-in type");
    schema::conform(types, message, &mut value, schema::Options::default()).expect("the right types");
    value.as_object().cloned().unwrap_or_default()
}

fn prepared(value: Value) -> Tree {
    let mut pod = conformed(value);
    pod.remove("status");
    prepare_pod(&mut pod);
    pod
}

/// A good pod with the value at a place set; `null` takes it away.
fn with(place: &str, value: Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "app", "image": "example.com/app:1"}]},
    });
    put(&mut pod, place, value);
    pod
}

fn put(tree: &mut Value, place: &str, value: Value) {
    let mut at = tree;
    for key in place.split('/').filter(|key| !key.is_empty()) {
        at = match key.parse::<usize>() {
            Ok(index) => &mut at[index],
            Err(_) => &mut at[key],
        };
    }
    *at = value;
}

fn said(causes: &[Cause]) -> Vec<String> {
    causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
}

#[test]
fn what_is_left_open_is_filled_in() {
    let pod = prepared(json!({
        "metadata": {"name": "web"},
        "spec": {
            "serviceAccount": "robot",
            "hostNetwork": true,
            "terminationGracePeriodSeconds": -5,
            "volumes": [
                {"name": "scratch"},
                {"name": "secret", "secret": {"secretName": "s"}},
                {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
            ],
            "containers": [{
                "name": "app",
                "image": "example.com/app",
                "ports": [{"containerPort": 80}],
                "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "resources": {"limits": {"cpu": "1", "memory": "1.0001"}},
                "readinessProbe": {"httpGet": {"port": 80}},
                "lifecycle": {"stopSignal": "SIGTERM"},
            }],
        },
    }));
    let pod = Value::Object(pod);
    for (place, wanted) in [
        ("/spec/dnsPolicy", json!("ClusterFirst")),
        ("/spec/restartPolicy", json!("Always")),
        ("/spec/schedulerName", json!("default-scheduler")),
        ("/spec/securityContext", json!({})),
        ("/spec/enableServiceLinks", json!(true)),
        ("/spec/terminationGracePeriodSeconds", json!(1)),
        ("/spec/serviceAccountName", json!("robot")),
        ("/spec/volumes/0/emptyDir", json!({})),
        ("/spec/volumes/1/secret/defaultMode", json!(420)),
        ("/spec/volumes/2/projected/sources/0/serviceAccountToken/expirationSeconds", json!(3600)),
        ("/spec/containers/0/imagePullPolicy", json!("Always")),
        ("/spec/containers/0/terminationMessagePolicy", json!("File")),
        ("/spec/containers/0/ports/0", json!({"containerPort": 80, "hostPort": 80, "protocol": "TCP"})),
        ("/spec/containers/0/env/0/valueFrom/fieldRef/apiVersion", json!("v1")),
        ("/spec/containers/0/resources/requests", json!({"cpu": "1", "memory": "1001m"})),
        ("/spec/containers/0/readinessProbe/httpGet/scheme", json!("HTTP")),
        ("/spec/containers/0/readinessProbe/failureThreshold", json!(3)),
        ("/spec/containers/0/lifecycle", Value::Null),
        ("/status", json!({"phase": "Pending", "qosClass": "Guaranteed"})),
    ] {
        assert_eq!(pod.pointer(place).unwrap_or(&Value::Null), &wanted, "{place}");
    }
}

#[test]
fn a_pod_is_prepared_once() {
    let mut pod = prepared(with(
        "/spec/topologySpreadConstraints",
        json!([{
            "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"tier": "a"}}, "matchLabelKeys": ["app"],
        }]),
    ));
    let once = pod.clone();
    prepare_pod(&mut pod);
    assert_eq!(pod, once);
    let merged = json!([{"key": "app", "operator": "In", "values": ["web"]}]);
    assert_eq!(pod["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchExpressions"], merged);
    assert_eq!(said(&super::pod(&pod, None)), [""; 0]);
}

#[test]
fn the_class_of_service_follows_from_requests_and_limits() {
    let container = |requests: Value, limits: Value| json!({"name": "a", "image": "a", "resources": {"requests": requests, "limits": limits}});
    let both = json!({"cpu": "1", "memory": "1Gi"});
    for (containers, wanted) in [
        (json!([container(json!({}), json!({}))]), "BestEffort"),
        (json!([container(json!({}), both.clone())]), "Guaranteed"),
        (json!([container(json!({"cpu": "500m"}), both.clone())]), "Burstable"),
        (json!([container(json!({}), json!({"cpu": "1"}))]), "Burstable"),
        (json!([container(json!({}), both), container(json!({}), json!({}))]), "Burstable"),
    ] {
        let pod = prepared(with("/spec/containers", containers));
        assert_eq!(pod["status"]["qosClass"], wanted);
    }
}

#[test]
fn new_pods_are_checked() {
    let container = "/spec/containers/0";
    for (place, value, wanted) in [
        ("", json!(null), "spec.containers: Required value"),
        ("/spec/containers", json!([]), "spec.containers: Required value"),
        (
            "/spec/containers",
            json!([{"name": "a", "image": "a"}, {"name": "a", "image": "a"}]),
            "spec.containers[1].name: Duplicate value: \"a\"",
        ),
        (
            &format!("{container}/image"),
            json!(" app"),
            "spec.containers[0].image: Invalid value: \" app\": must not have leading or trailing whitespace",
        ),
        (
            &format!("{container}/volumeMounts"),
            json!([{"name": "data", "mountPath": "/data"}]),
            "spec.containers[0].volumeMounts[0].name: Not found: \"data\"",
        ),
        (
            &format!("{container}/resources"),
            json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
            "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
        ),
        (
            &format!("{container}/resources"),
            json!({"limits": {"gpu": "1"}}),
            "spec.containers[0].resources.limits[gpu]: Invalid value: \"gpu\": must be a standard resource type or fully qualified",
        ),
        (
            &format!("{container}/livenessProbe"),
            json!({}),
            "spec.containers[0].livenessProbe: Required value: must specify a handler type",
        ),
        (
            &format!("{container}/env"),
            json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.phase"}}}]),
            "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Unsupported value: \"status.phase\": supported values: \"metadata.name\", \"metadata.namespace\", \"metadata.uid\", \"spec.nodeName\", \"spec.serviceAccountName\", \"status.hostIP\", \"status.hostIPs\", \"status.podIP\", \"status.podIPs\"",
        ),
        (
            &format!("{container}/securityContext"),
            json!({"procMount": "Unmasked"}),
            "spec.containers[0].securityContext.procMount: Invalid value: \"Unmasked\": `hostUsers` must be false to use `Unmasked`",
        ),
        (
            "/spec/volumes",
            json!([{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}]),
            "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
        ),
        (
            "/spec/volumes",
            json!([{"name": "v", "hostPath": {"path": "/a/../b"}}]),
            "spec.volumes[0].hostPath.path: Invalid value: \"/a/../b\": must not contain '..'",
        ),
        (
            "/spec/tolerations",
            json!([{"operator": "Equal"}]),
            "spec.tolerations[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
        ),
        (
            "/spec/dnsPolicy",
            json!("None"),
            "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None",
        ),
        (
            "/spec/ephemeralContainers",
            json!([{"name": "debug", "image": "a"}]),
            "spec.ephemeralContainers: Forbidden: cannot be set on create",
        ),
        (
            "/spec/securityContext",
            json!({"seccompProfile": {"type": "RuntimeDefault", "localhostProfile": "x"}}),
            "spec.securityContext.seccompProfile.localhostProfile: Invalid value: {\"Type\":\"RuntimeDefault\",\"LocalhostProfile\":\"x\"}: can only be set when seccomp type is Localhost",
        ),
        (
            "/metadata/annotations",
            json!({"container.apparmor.security.beta.kubernetes.io/other": "unconfined"}),
            "metadata.annotations[container.apparmor.security.beta.kubernetes.io/other]: Invalid value: \"other\": container not found",
        ),
    ] {
        let value = if place.is_empty() { json!({"metadata": {"name": "web"}}) } else { with(place, value) };
        let said = said(&super::pod(&prepared(value), None));
        assert!(said.contains(&wanted.to_owned()), "{place}: {said:#?}");
    }
}

#[test]
fn a_good_pod_is_good() {
    assert_eq!(said(&super::pod(&prepared(with("/spec/nodeName", json!("node-1"))), None)), [""; 0]);
}

#[test]
fn of_a_pod_that_is_there_little_changes() {
    let old = prepared(with("/spec/tolerations", json!([{"key": "a", "operator": "Exists"}])));
    for (place, value, allowed) in [
        ("/spec/containers/0/image", json!("example.com/app:2"), true),
        ("/spec/activeDeadlineSeconds", json!(10), true),
        ("/spec/activeDeadlineSeconds", json!(0), false),
        (
            "/spec/tolerations",
            json!([{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]),
            true,
        ),
        ("/spec/tolerations", json!([]), false),
        ("/spec/containers/0/command", json!(["sh"]), false),
        ("/spec/nodeName", json!("node-1"), false),
        ("/spec/schedulingGates", json!([{"name": "a/b"}]), false),
        ("/spec/containers", json!([]), false),
        ("/metadata/annotations", json!({"kubernetes.io/config.mirror": "x"}), false),
    ] {
        let mut new = Value::Object(old.clone());
        put(&mut new, place, value);
        let new = conformed(new);
        let said = said(&super::pod(&new, Some(&old)));
        assert_eq!(said.is_empty(), allowed, "{place}: {said:#?}");
    }
}

#[test]
fn a_refused_change_is_shown() {
    let old = prepared(with("/spec/nodeName", json!("node-1")));
    let new = prepared(with("/spec/nodeName", json!("node-2")));
    let causes = super::pod(&new, Some(&old));
    let [cause] = causes.as_slice() else { panic!("{causes:#?}") };
    assert!(cause.message.ends_with(
        "@@ -42,7 +42,7 @@\n  \"NodeSelector\": null,\n  \"ServiceAccountName\": \"\",\n  \"AutomountServiceAccountToken\": null,\n- \"NodeName\": \"node-1\",\n+ \"NodeName\": \"node-2\",\n  \"SecurityContext\": {\n   \"HostNetwork\": false,\n   \"HostPID\": false,\n"
    ), "{}", cause.message);
}

#[test]
fn equal_amounts_are_no_change() {
    let pod = |memory: &str| {
        prepared(with("/spec/containers/0/resources", json!({"requests": {"memory": memory}})))
    };
    assert_eq!(said(&super::pod(&pod("1073741824"), Some(&pod("1Gi")))), [""; 0]);
    assert_eq!(super::pod(&pod("2Gi"), Some(&pod("1Gi"))).len(), 1);
}

#[test]
fn a_resize_changes_cpu_and_memory() {
    let old = prepared(with(
        "/spec/containers/0/resources",
        json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "200m", "example.com/dev": "1"}}),
    ));
    for (place, value, wanted) in [
        ("/spec/containers/0/resources/requests/cpu", json!("150m"), &[][..]),
        ("/spec/containers/0/image", json!("other"), &[]),
        (
            "/spec/containers/0/resources/limits",
            json!({"cpu": "200m"}),
            &[
                "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed",
                "spec: Forbidden: only cpu and memory resources are mutable",
            ],
        ),
        (
            "/spec/containers/0/name",
            json!("other"),
            &["spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize"],
        ),
    ] {
        let mut new = Value::Object(old.clone());
        put(&mut new, place, value);
        let mut new = conformed(new);
        only_resources(&mut new, &old);
        default_pod(&mut new);
        let said = said(&resized_pod(&new, &old));
        for wanted in wanted {
            assert!(said.iter().any(|it| it == wanted), "{place}: {said:#?}");
        }
        assert_eq!(said.is_empty(), wanted.is_empty(), "{place}: {said:#?}");
    }
}

#[test]
fn containers_for_debugging_are_only_added() {
    let debug = |image: &str| json!([{"name": "debug", "image": image}]);
    let mut old = prepared(with("/spec/nodeName", json!("node-1")));
    old["spec"]["ephemeralContainers"] = debug("a");
    default_pod(&mut old);
    let old = conformed(Value::Object(old));
    for (containers, wanted) in [
        (debug("a"), ""),
        (json!([{"name": "debug", "image": "a"}, {"name": "more", "image": "a"}]), ""),
        (debug("b"), "Forbidden: existing ephemeral containers \"debug\" may not be changed\n"),
        (json!([]), "Forbidden: existing ephemeral containers \"debug\" may not be removed\n"),
        (
            json!([{"name": "debug", "image": "a"}, {"name": "more", "image": "a", "ports": [{"containerPort": 1}]}]),
            "Forbidden: cannot be set for an Ephemeral Container",
        ),
    ] {
        let mut new = Value::Object(old.clone());
        put(&mut new, "/spec/ephemeralContainers", containers);
        put(&mut new, "/spec/nodeName", json!("elsewhere"));
        let mut new = conformed(new);
        only_ephemeral_containers(&mut new, &old);
        default_pod(&mut new);
        assert_eq!(new["spec"]["nodeName"], "node-1");
        let causes = added_ephemeral_containers(&new, &old);
        assert_eq!(causes.is_empty(), wanted.is_empty(), "{causes:#?}");
        assert!(causes.iter().all(|cause| cause.message.starts_with(wanted)), "{causes:#?}");
    }
}

#[test]
fn a_status_keeps_what_is_decided() {
    let mut old = prepared(with("/spec/restartPolicy", json!("Never")));
    let ended = json!([{"name": "app", "state": {"terminated": {"exitCode": 1}}}]);
    old["status"]["containerStatuses"] = ended.clone();
    old["status"]["observedGeneration"] = json!(3);
    for (place, value, wanted) in [
        ("/status/phase", json!("Running"), ""),
        (
            "/status/qosClass",
            json!("Guaranteed"),
            "status.qosClass: Invalid value: \"Guaranteed\": field is immutable",
        ),
        (
            "/status/containerStatuses",
            json!([{"name": "app", "state": {"running": {}}}]),
            "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state",
        ),
        (
            "/status/podIPs",
            json!([{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]),
            "status.podIPs: Invalid value: [{\"IP\":\"10.0.0.1\"},{\"IP\":\"10.0.0.2\"}]: may specify no more than one IP for each IP family",
        ),
    ] {
        let mut new = Value::Object(old.clone());
        put(&mut new, "/status/observedGeneration", json!(0));
        put(&mut new, place, value);
        let mut new = conformed(new);
        only_status(&mut new, &old);
        default_pod(&mut new);
        assert_eq!(new["status"]["observedGeneration"], 3);
        let said = said(&changed_status(&new, &old));
        assert_eq!(said.join("\n"), wanted, "{place}");
    }
}

#[test]
fn authors_are_warned() {
    for (place, value, wanted) in [
        ("/spec/nodeName", json!("a"), ""),
        (
            "/metadata/name",
            json!("a.b"),
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]",
        ),
        (
            "/spec/nodeSelector",
            json!({"beta.kubernetes.io/os": "linux"}),
            "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
        ),
        (
            "/spec/containers/0/ports",
            json!([{"containerPort": 80}, {"containerPort": 80}]),
            "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
        ),
        (
            "/spec/containers/0/env",
            json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
            "spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply",
        ),
        (
            "/spec/volumes",
            json!([{"name": "v", "configMap": {"name": "c", "items": [{"key": "a", "path": "x"}, {"key": "b", "path": "x/y"}]}}]),
            "volume \"v\" (ConfigMap \"c\"): overlapping paths: \"x/y\" with \"x\"",
        ),
        (
            "/metadata/annotations",
            json!({"container.apparmor.security.beta.kubernetes.io/app": "unconfined"}),
            "metadata.annotations[container.apparmor.security.beta.kubernetes.io/app]: deprecated since v1.30; use the \"appArmorProfile\" field instead",
        ),
    ] {
        assert_eq!(pod_warnings(&prepared(with(place, value)), None).join("\n"), wanted, "{place}");
    }
}

#[test]
fn templates_keep_what_they_had() {
    let spread = |skew: i64| {
        let mut template = json!({"spec": {
            "containers": [{"name": "a", "image": "a"}],
            "topologySpreadConstraints": [{
                "maxSkew": skew, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["-"]}]},
            }],
        }});
        default_template(template.as_object_mut().expect("an object"));
        template.as_object().cloned().unwrap_or_default()
    };
    let refused = said(&template(&spread(1), None, "spec.template"));
    assert_eq!(refused.len(), 1);
    assert!(refused[0].starts_with(
        "spec.template.spec.topologySpreadConstraints[0].labelSelector.matchExpressions[0].values[0]: Invalid value"
    ));
    assert_eq!(said(&template(&spread(2), Some(&spread(1)), "spec.template")), [""; 0]);
}

/// Would not end if lists were searched for each of their items.
#[test]
fn a_huge_pod_is_checked_in_time() {
    const MANY: usize = 10_000;
    let many = |make: &dyn Fn(usize) -> Value| Value::Array((0..MANY).map(make).collect());
    let mut pod = with("/spec/volumes", many(&|at| json!({"name": format!("v{at}"), "emptyDir": {}})));
    let container = "/spec/containers/0";
    let mount = |at: usize| json!({"name": format!("v{at}"), "mountPath": format!("/{at}")});
    put(&mut pod, &format!("{container}/volumeMounts"), many(&mount));
    put(&mut pod, &format!("{container}/ports"), many(&|_| json!({"containerPort": 80})));
    put(&mut pod, &format!("{container}/env"), many(&|_| json!({"name": "A", "value": "b"})));
    put(&mut pod, "/spec/tolerations", many(&|at| json!({"key": format!("k{at}"), "operator": "Exists"})));
    put(
        &mut pod,
        "/spec/resourceClaims",
        many(&|at| json!({"name": format!("c{at}"), "resourceClaimName": "c"})),
    );
    let old = prepared(pod);
    let mut new = old.clone();
    new["spec"]["nodeName"] = json!("elsewhere");
    assert_eq!(said(&super::pod(&old, None)), [""; 0]);
    assert_eq!(super::pod(&new, Some(&old)).len(), 1);
    assert!(pod_warnings(&old, None).len() < 2 * MANY);
}
