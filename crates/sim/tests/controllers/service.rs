//! Services: slices and endpoints.

use serde_json::{Value, json};
use sim::{kind, tree};

use crate::cluster::{Cluster, template};

fn set(replicas: i64) -> Value {
    let mut template = template("web", "a");
    template["spec"]["containers"][0]["ports"] =
        json!([{ "name": "http", "containerPort": 8080, "protocol": "TCP" }]);
    json!({
        "metadata": { "name": "web" },
        "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": "web" } }, "template": template },
    })
}

fn service(spec: Value) -> Value {
    let mut service = json!({
        "metadata": { "name": "web", "labels": { "team": "a" } },
        "spec": {
            "clusterIP": "10.96.0.7", "ipFamilies": ["IPv4"], "selector": { "app": "web" },
            "ports": [{ "name": "main", "port": 80, "protocol": "TCP", "targetPort": "http" }],
        },
    });
    for (key, value) in spec.as_object().expect("a spec") {
        service["spec"][key] = value.clone();
    }
    service
}

/// `ready serving terminating` of every endpoint.
fn endpoints(cluster: &Cluster) -> Vec<String> {
    let text = |endpoint: &Value| {
        let of = |field: &str| endpoint["conditions"][field].as_bool().unwrap_or(false);
        format!("{} {} {}", of("ready"), of("serving"), of("terminating"))
    };
    let slices = cluster.all(kind::SLICES);
    let mut all: Vec<String> =
        slices.iter().flat_map(|slice| tree::items(slice, "/endpoints")).map(text).collect();
    all.sort();
    all
}

#[test]
fn pods_are_behind_their_service() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::SERVICES, service(json!({})));
    assert_eq!(cluster.all(kind::SLICES).len(), 1);
    assert_eq!(endpoints(&cluster), [] as [&str; 0]);
    assert_eq!(tree::items(&cluster.get(kind::ENDPOINTS, "web"), "/subsets").len(), 0);

    cluster.create(kind::REPLICA_SETS, set(2));
    let slice = &cluster.all(kind::SLICES)[0];
    assert_eq!(cluster.all(kind::SLICES).len(), 1);
    assert_eq!(endpoints(&cluster), ["true true false", "true true false"]);
    assert_eq!(slice["ports"], json!([{ "name": "main", "port": 8080, "protocol": "TCP" }]));
    assert_eq!(tree::label(slice, "kubernetes.io/service-name"), "web");
    assert_eq!(
        tree::label(slice, "endpointslice.kubernetes.io/managed-by"),
        "endpointslice-controller.k8s.io"
    );
    assert_eq!(tree::label(slice, "team"), "a");
    assert_eq!(tree::text(slice, "/endpoints/0/nodeName"), "node-0");
    assert_eq!(tree::text(slice, "/addressType"), "IPv4");
    let old = cluster.get(kind::ENDPOINTS, "web");
    assert_eq!(tree::items(&old, "/subsets/0/addresses").len(), 2);
    assert_eq!(old["subsets"][0]["ports"], json!([{ "name": "main", "port": 8080, "protocol": "TCP" }]));
    assert_eq!(tree::label(&old, "endpoints.kubernetes.io/managed-by"), "endpoint-controller");

    let pod = cluster.names(kind::PODS).remove(0);
    cluster.end_pod(&pod, "Failed", 1);
    assert_eq!(endpoints(&cluster), ["true true false", "true true false"]);
}

#[test]
fn readiness_and_endings_show() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::REPLICA_SETS, set(2));
    cluster.create(kind::SERVICES, service(json!({})));
    let pod = cluster.names(kind::PODS).remove(0);
    cluster.patch_status(kind::PODS, &pod, json!({ "conditions": [{ "type": "Ready", "status": "False" }] }));
    assert_eq!(endpoints(&cluster), ["false false false", "true true false"]);
    let old = cluster.get(kind::ENDPOINTS, "web");
    assert_eq!(tree::items(&old, "/subsets/0/notReadyAddresses").len(), 1);

    cluster.patch(kind::SERVICES, "web", json!({ "spec": { "publishNotReadyAddresses": true } }));
    assert_eq!(endpoints(&cluster), ["true false false", "true true false"]);
    assert_eq!(tree::items(&cluster.get(kind::ENDPOINTS, "web"), "/subsets/0/addresses").len(), 2);
}

#[test]
fn a_headless_service_names_its_pods() {
    let mut cluster = Cluster::new(1);
    let mut object = set(1);
    object["spec"]["template"]["spec"]["hostname"] = "one".into();
    object["spec"]["template"]["spec"]["subdomain"] = "web".into();
    cluster.create(kind::REPLICA_SETS, object);
    cluster.create(kind::SERVICES, service(json!({ "clusterIP": "None" })));
    let slice = &cluster.all(kind::SLICES)[0];
    assert!(slice["metadata"]["labels"].get("service.kubernetes.io/headless").is_some());
    assert_eq!(tree::text(slice, "/endpoints/0/hostname"), "one");
    assert_eq!(tree::text(&cluster.get(kind::ENDPOINTS, "web"), "/subsets/0/addresses/0/hostname"), "one");
}

#[test]
fn a_slice_holds_a_hundred() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::REPLICA_SETS, set(250));
    cluster.create(kind::SERVICES, service(json!({})));
    let sizes = |cluster: &Cluster| {
        let mut sizes: Vec<usize> =
            cluster.all(kind::SLICES).iter().map(|slice| tree::items(slice, "/endpoints").len()).collect();
        sizes.sort_unstable();
        sizes
    };
    assert_eq!(sizes(&cluster), [50, 100, 100]);
    cluster.patch(kind::REPLICA_SETS, "web", json!({ "spec": { "replicas": 3 } }));
    assert_eq!(endpoints(&cluster).len(), 3);
    assert!(sizes(&cluster).len() <= 3);
    cluster.patch(kind::REPLICA_SETS, "web", json!({ "spec": { "replicas": 120 } }));
    assert_eq!(endpoints(&cluster).len(), 120);
}

#[test]
fn nothing_is_said_for_services_without_a_selector() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::SERVICES, bare_service());
    assert_eq!(cluster.all(kind::SLICES).len() + cluster.all(kind::ENDPOINTS).len(), 0);
}

#[test]
fn all_goes_with_the_service() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::SERVICES, service(json!({})));
    cluster.delete(kind::SERVICES, "web");
    assert_eq!(cluster.all(kind::SLICES).len() + cluster.all(kind::ENDPOINTS).len(), 0);
}

#[test]
fn pods_with_other_ports_are_apart() {
    let mut cluster = Cluster::new(1);
    for (name, port) in [("one", 8080), ("two", 9090), ("three", 9090)] {
        let ports = json!([{ "name": "http", "containerPort": port, "protocol": "TCP" }]);
        let conditions = json!([{ "type": "Ready", "status": "True" }]);
        let pod = json!({
            "metadata": { "name": name, "labels": { "app": "web" } },
            "spec": { "nodeName": "node-0", "containers": [{ "name": "main", "ports": ports }] },
            "status": { "phase": "Running", "podIP": format!("10.9.9.{}", name.len()), "conditions": conditions },
        });
        cluster.create(kind::PODS, pod);
    }
    cluster.create(kind::SERVICES, service(json!({})));
    let slices = cluster.all(kind::SLICES);
    let number =
        |slice: &Value| (tree::number(slice, "/ports/0/port"), tree::items(slice, "/endpoints").len());
    let mut ports: Vec<_> = slices.iter().map(number).collect();
    ports.sort_unstable();
    assert_eq!(ports, [(Some(8080), 1), (Some(9090), 2)]);
    assert_eq!(tree::items(&cluster.get(kind::ENDPOINTS, "web"), "/subsets").len(), 2);
}

/// A Service that says nothing of what is behind it.
fn bare_service() -> Value {
    let mut object = service(json!({}));
    object["spec"].as_object_mut().expect("a spec").remove("selector");
    object
}

fn written_endpoints(subsets: Value) -> Value {
    json!({
        "metadata": {
            "name": "web", "labels": { "by": "hand" },
            "annotations": { "why": "test", "kubectl.kubernetes.io/last-applied-configuration": "{}" },
        },
        "subsets": subsets,
    })
}

/// `family ports: addresses` of every slice, with a `-` before what is not ready.
fn mirrored(cluster: &Cluster) -> Vec<String> {
    let line = |slice: &Value| {
        let ports = tree::items(slice, "/ports").map(|port| port["port"].to_string());
        let address = |endpoint: &Value| {
            let mark = if tree::flag(endpoint, "/conditions/ready") { "" } else { "-" };
            format!("{mark}{}", tree::text(endpoint, "/addresses/0"))
        };
        format!(
            "{} {}: {}",
            tree::text(slice, "/addressType"),
            ports.collect::<Vec<_>>().join(","),
            tree::items(slice, "/endpoints").map(address).collect::<Vec<_>>().join(" ")
        )
    };
    let mut lines: Vec<String> = cluster.all(kind::SLICES).iter().map(line).collect();
    lines.sort();
    lines
}

#[test]
fn endpoints_that_somebody_wrote_are_mirrored() {
    let ports = |number: i64| json!([{ "name": "main", "port": number, "protocol": "TCP" }]);
    let table: [(Value, &[&str]); 6] = [
        (json!([]), &[]),
        (json!([{ "addresses": [{ "ip": "10.1.2.3" }], "ports": ports(80) }]), &["IPv4 80: 10.1.2.3"]),
        (json!([{ "addresses": [{ "ip": "10.1.2.3" }] }]), &["IPv4 : 10.1.2.3"]),
        (
            json!([{
                "addresses": [{ "ip": "10.1.2.4" }, { "ip": "2001:db8::1" }],
                "notReadyAddresses": [{ "ip": "10.1.2.3" }], "ports": ports(80),
            }]),
            &["IPv4 80: 10.1.2.4 -10.1.2.3", "IPv6 80: 2001:db8::1"],
        ),
        (
            json!([
                { "addresses": [{ "ip": "10.1.2.3" }], "ports": ports(80) },
                { "addresses": [{ "ip": "10.1.2.3" }], "ports": ports(81) },
            ]),
            &["IPv4 80,81: 10.1.2.3"],
        ),
        (
            json!([
                { "addresses": [{ "ip": "10.1.2.3" }], "ports": ports(80) },
                { "addresses": [{ "ip": "10.1.2.4" }], "ports": ports(81) },
            ]),
            &["IPv4 80: 10.1.2.3", "IPv4 81: 10.1.2.4"],
        ),
    ];
    let mut changing = Cluster::new(1);
    changing.create(kind::SERVICES, bare_service());
    changing.create(kind::ENDPOINTS, written_endpoints(json!([])));
    for (subsets, expected) in table {
        let mut cluster = Cluster::new(1);
        cluster.create(kind::ENDPOINTS, written_endpoints(subsets.clone()));
        assert_eq!(mirrored(&cluster), [] as [&str; 0], "no Service, {subsets}");
        cluster.create(kind::SERVICES, bare_service());
        assert_eq!(mirrored(&cluster), expected, "{subsets}");
        changing.patch(kind::ENDPOINTS, "web", json!({ "subsets": subsets }));
        assert_eq!(mirrored(&changing), expected, "changed to {subsets}");
    }
}

#[test]
fn a_mirror_is_marked_as_one_and_kept() {
    let mut cluster = Cluster::new(1);
    cluster.create(kind::SERVICES, bare_service());
    cluster.create(kind::ENDPOINTS, written_endpoints(json!([{ "addresses": [{ "ip": "10.1.2.3" }] }])));
    let slice = cluster.all(kind::SLICES).remove(0);
    let labels = json!({
        "by": "hand", "kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io",
    });
    assert_eq!(slice["metadata"]["labels"], labels);
    assert_eq!(slice["metadata"]["annotations"], json!({ "why": "test" }));
    assert_eq!(tree::text(&slice, "/metadata/ownerReferences/0/kind"), "Endpoints");

    cluster.patch(kind::SLICES, tree::name(&slice), json!({ "endpoints": [] }));
    assert_eq!(mirrored(&cluster), ["IPv4 : 10.1.2.3"]);
    cluster.delete(kind::SLICES, tree::name(&slice));
    assert_eq!(mirrored(&cluster), ["IPv4 : 10.1.2.3"]);
}

#[test]
fn a_mirror_goes_when_it_is_not_wanted() {
    type Change = fn(&mut Cluster);
    let changes: [(&str, Change); 4] = [
        ("the Service selects pods", |cluster| {
            cluster.patch(kind::SERVICES, "web", json!({ "spec": { "selector": { "app": "web" } } }));
            // What it selects is said by others.
            for slice in cluster.all(kind::SLICES) {
                assert_eq!(tree::text(&slice, "/metadata/ownerReferences/0/kind"), "Service");
            }
            cluster.delete(kind::SERVICES, "web");
        }),
        ("the Service is gone", |cluster| {
            cluster.delete(kind::SERVICES, "web");
            assert_eq!(cluster.all(kind::ENDPOINTS).len(), 0);
        }),
        ("the Endpoints are gone", |cluster| cluster.delete(kind::ENDPOINTS, "web")),
        ("the Endpoints say so", |cluster| {
            let label = json!({ "endpointslice.kubernetes.io/skip-mirror": "true" });
            cluster.patch(kind::ENDPOINTS, "web", json!({ "metadata": { "labels": label } }));
        }),
    ];
    for (why, change) in changes {
        let mut cluster = Cluster::new(1);
        cluster.create(kind::SERVICES, bare_service());
        cluster.create(kind::ENDPOINTS, written_endpoints(json!([{ "addresses": [{ "ip": "10.1.2.3" }] }])));
        assert_eq!(mirrored(&cluster), ["IPv4 : 10.1.2.3"]);
        change(&mut cluster);
        assert_eq!(mirrored(&cluster), [] as [&str; 0], "{why}");
    }
}

#[test]
fn a_mirror_holds_a_thousand_addresses() {
    let addresses: Vec<Value> =
        (0..1010).map(|at| json!({ "ip": format!("10.1.{}.{}", at / 250, at % 250) })).collect();
    let mut cluster = Cluster::new(1);
    cluster.create(kind::SERVICES, bare_service());
    cluster.create(kind::ENDPOINTS, written_endpoints(json!([{ "addresses": addresses }])));
    assert_eq!(endpoints(&cluster).len(), 1000);
}
