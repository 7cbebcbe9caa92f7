use super::*;
use crate::validation::network::service;

fn service(spec: Value) -> Tree {
    let mut tree = Tree::new();
    tree.insert("metadata".into(), json!({"name": "web", "namespace": "shop"}));
    tree.insert("spec".into(), spec);
    tree
}

fn created(spec: Value) -> Tree {
    let mut new = service(spec);
    prepare_create(&mut new);
    new
}

fn updated(spec: Value, old: &Tree) -> Tree {
    let mut new = service(spec);
    prepare_update(&mut new, old);
    new
}

/// As the server would: whatever is asked for, and else the next.
fn granted(mut tree: Tree, old: Option<&Tree>) -> Tree {
    let demand = demand(&tree, old).unwrap();
    let found = Granted {
        addresses: demand
            .addresses
            .iter()
            .map(|it| it.wanted.clone().unwrap_or("10.96.0.10".into()))
            .collect(),
        node_ports: (30_100..).zip(&demand.node_ports).map(|(next, it)| it.wanted.unwrap_or(next)).collect(),
        health_check_port: demand.health_check_port.map(|wanted| wanted.unwrap_or(30_500)),
    };
    grant(&mut tree, &demand, &found);
    tree
}

fn spec(tree: &Tree) -> &Value {
    &tree["spec"]
}

fn address(index: usize, wanted: Option<&str>) -> AddressDemand {
    AddressDemand { index, family: "IPv4".into(), wanted: wanted.map(str::to_owned) }
}

fn port(indices: &[usize], wanted: Option<i64>) -> PortDemand {
    PortDemand { indices: indices.to_vec(), wanted }
}

#[test]
fn a_new_service_needs_what_its_type_says() {
    let ports = json!([{"port": 80}]);
    let dns = json!([{"name": "a", "port": 53}, {"name": "b", "port": 53, "protocol": "UDP"}]);
    let asked =
        json!([{"name": "a", "port": 53}, {"name": "b", "port": 53, "protocol": "UDP", "nodePort": 30053}]);
    let local = json!({"type": "LoadBalancer", "ports": ports, "externalTrafficPolicy": "Local"});
    let without = json!({"type": "LoadBalancer", "ports": ports, "allocateLoadBalancerNodePorts": false});
    let any = vec![address(0, None)];
    for (case, spec, addresses, node_ports, health) in [
        ("plain", json!({"ports": ports}), any.clone(), vec![], None),
        (
            "fixed",
            json!({"ports": ports, "clusterIP": "10.96.1.1"}),
            vec![address(0, Some("10.96.1.1"))],
            vec![],
            None,
        ),
        (
            "headless",
            json!({"ports": ports, "clusterIP": "None", "selector": {"a": "b"}}),
            vec![],
            vec![],
            None,
        ),
        ("name", json!({"type": "ExternalName", "externalName": "a.b"}), vec![], vec![], None),
        ("node port", json!({"type": "NodePort", "ports": ports}), any.clone(), vec![port(&[0], None)], None),
        ("shared", json!({"type": "NodePort", "ports": dns}), any.clone(), vec![port(&[0, 1], None)], None),
        (
            "shared, asked",
            json!({"type": "NodePort", "ports": asked}),
            any.clone(),
            vec![port(&[0, 1], Some(30053))],
            None,
        ),
        ("no node ports", without, any.clone(), vec![], None),
        ("health", local, any.clone(), vec![port(&[0], None)], Some(None)),
    ] {
        let demand = demand(&created(spec), None).unwrap();
        assert_eq!(demand.addresses, addresses, "{case}");
        assert_eq!(demand.node_ports, node_ports, "{case}");
        assert_eq!(demand.health_check_port, health, "{case}");
        assert!(demand.released_addresses.is_empty() && demand.released_ports.is_empty(), "{case}");
    }
}

#[test]
fn families_and_their_policy_are_filled_in() {
    let ports = json!([{"port": 80}]);
    for (case, sent, families, policy) in [
        ("plain", json!({"ports": ports}), json!(["IPv4"]), "SingleStack"),
        (
            "preferred",
            json!({"ports": ports, "ipFamilyPolicy": "PreferDualStack"}),
            json!(["IPv4"]),
            "PreferDualStack",
        ),
        ("fixed", json!({"ports": ports, "clusterIP": "10.96.0.7"}), json!(["IPv4"]), "SingleStack"),
        ("headless", json!({"clusterIP": "None", "selector": {"a": "b"}}), json!(["IPv4"]), "SingleStack"),
        ("no selector", json!({"clusterIP": "None"}), json!(["IPv4", "IPv6"]), "RequireDualStack"),
    ] {
        let new = created(sent);
        assert_eq!(spec(&new)["ipFamilies"], families, "{case}");
        assert_eq!(spec(&new)["ipFamilyPolicy"], policy, "{case}");
    }
    let name = created(json!({"type": "ExternalName", "externalName": "a.b"}));
    assert_eq!(spec(&name).get("ipFamilies"), None);
}

#[test]
fn what_the_cluster_does_not_have_is_refused_before_the_rest() {
    let ports = json!([{"port": 0}]);
    for (sent, field, message) in [
        (
            json!({"ports": ports, "ipFamilyPolicy": "RequireDualStack"}),
            "spec.ipFamilyPolicy",
            "this cluster is not configured for dual-stack services",
        ),
        (
            json!({"ports": ports, "ipFamilies": ["IPv6"]}),
            "spec.ipFamilies[0]",
            "not configured on this cluster",
        ),
        (
            json!({"ports": ports, "clusterIP": "fd00::1"}),
            "spec.clusterIPs[0]",
            "IPv6 is not configured on this cluster",
        ),
        (
            json!({"ports": ports, "clusterIPs": ["10.96.0.1"]}),
            "spec.clusterIPs",
            "must be empty when `clusterIP`",
        ),
    ] {
        let new = created(sent);
        let causes = demand(&new, None).unwrap_err();
        assert_eq!(causes.len(), 1, "{causes:?}");
        assert_eq!(causes[0].field, field);
        assert!(causes[0].message.contains(message), "{causes:?}");
        assert_eq!(service::validate(&new, None), causes, "and nothing of the port");
    }
}

#[test]
fn an_update_keeps_what_it_does_not_send() {
    let sent = json!({
        "type": "LoadBalancer", "externalTrafficPolicy": "Local",
        "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}],
    });
    let old = granted(created(sent.clone()), None);
    let new = updated(sent, &old);
    assert_eq!(new["spec"], old["spec"]);
    assert!(demand(&new, Some(&old)).unwrap().is_empty());
}

#[test]
fn a_changed_type_takes_and_gives_back() {
    let ports = json!([{"port": 80}]);
    let sent = |kind: &str| match kind {
        "ExternalName" => json!({"type": kind, "externalName": "a.b"}),
        "Headless" => {
            json!({"type": "ClusterIP", "clusterIP": "None", "ports": ports, "selector": {"a": "b"}})
        }
        kind => json!({"type": kind, "ports": ports}),
    };
    let ip = || vec!["10.96.0.10".to_owned()];
    for (from, to, addresses, node_ports, released, released_ports) in [
        ("ClusterIP", "NodePort", 0, 1, vec![], vec![]),
        ("ClusterIP", "ExternalName", 0, 0, ip(), vec![]),
        ("NodePort", "ClusterIP", 0, 0, vec![], vec![30_100]),
        ("NodePort", "LoadBalancer", 0, 0, vec![], vec![]),
        ("LoadBalancer", "ExternalName", 0, 0, ip(), vec![30_100]),
        ("ExternalName", "ClusterIP", 1, 0, vec![], vec![]),
        ("ExternalName", "LoadBalancer", 1, 1, vec![], vec![]),
        ("Headless", "ExternalName", 0, 0, vec![], vec![]),
        ("ExternalName", "Headless", 0, 0, vec![], vec![]),
    ] {
        let old = granted(created(sent(from)), None);
        // A client changes the type in what it read, and leaves the rest.
        let mut changed = old["spec"].clone();
        if let (Value::Object(spec), Value::Object(more)) = (&mut changed, sent(to)) {
            spec.extend(more);
        }
        let new = updated(changed, &old);
        let demand = demand(&new, Some(&old)).unwrap();
        let case = format!("{from} to {to}");
        assert_eq!((demand.addresses.len(), demand.node_ports.len()), (addresses, node_ports), "{case}");
        assert_eq!((demand.released_addresses, demand.released_ports), (released, released_ports), "{case}");
        let new = granted(new, Some(&old));
        assert_eq!(service::validate(&new, Some(&old)), [], "{case}");
        assert_eq!(spec(&new)["clusterIP"].is_string(), to != "ExternalName", "{case}");
    }
}

#[test]
fn a_node_port_that_another_port_asks_for_is_not_kept() {
    let old = granted(created(json!({"type": "NodePort", "ports": [{"name": "a", "port": 80}]})), None);
    let sent = json!({"type": "NodePort", "ports": [{"name": "b", "port": 81, "nodePort": 30100}, {"name": "a", "port": 80}]});
    let new = updated(sent, &old);
    assert_eq!(demand(&new, Some(&old)).unwrap().node_ports, [port(&[1], None)]);
}

#[test]
fn health_check_ports_come_and_go_with_the_policy() {
    let of = |policy: &str| json!({"type": "LoadBalancer", "externalTrafficPolicy": policy, "ports": [{"port": 80}]});
    let local = granted(created(of("Local")), None);
    assert_eq!(spec(&local)["healthCheckNodePort"], 30_500);
    let mut sent = local["spec"].clone();
    sent["externalTrafficPolicy"] = json!("Cluster");
    let cluster = updated(sent, &local);
    assert_eq!(spec(&cluster).get("healthCheckNodePort"), None);
    assert_eq!(demand(&cluster, Some(&local)).unwrap().released_ports, [30_500]);
    assert_eq!(held(&local).released_ports, [30_100, 30_500]);
    assert_eq!(held(&local).released_addresses, ["10.96.0.10"]);
}

#[test]
fn what_is_asked_for_must_be_in_range() {
    let ranges = Ranges::DEFAULT;
    for (address, fits) in [
        ("10.96.0.0", false),
        ("10.96.0.1", true),
        ("10.111.255.254", true),
        ("10.111.255.255", false),
        ("10.112.0.1", false),
    ] {
        assert_eq!(ranges.has_address(address.parse().unwrap()), fits, "{address}");
    }
    let new = created(
        json!({"type": "NodePort", "clusterIP": "10.0.0.1", "ports": [{"port": 80, "nodePort": 80}]}),
    );
    let causes = demand(&new, None).unwrap().out_of_range(&new, &ranges, false);
    let messages: Vec<&str> = causes.iter().map(|cause| cause.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "Invalid value: [\"10.0.0.1\"]: failed to allocate IP 10.0.0.1: the provided network does not match the current range",
            "Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767",
        ]
    );
}

#[test]
fn everything_in_range_is_tried_once_and_what_may_be_asked_for_last() {
    let small =
        Ranges { network: Ipv4Addr::new(10, 0, 0, 0), prefix: 24, first_port: 30_000, last_port: 30_063 };
    let addresses: Vec<Ipv4Addr> = small.addresses(1000).collect();
    assert_eq!(addresses.len(), 254);
    assert_eq!(addresses.iter().collect::<std::collections::HashSet<_>>().len(), 254);
    assert_eq!(addresses.last(), Some(&Ipv4Addr::new(10, 0, 0, 16)), "the first sixteen come last");
    let ports: Vec<u16> = small.ports(0).collect();
    assert_eq!((ports.len(), ports[0], ports[47], ports[48]), (64, 30_016, 30_063, 30_000));
    let one = Ranges { prefix: 31, ..small };
    assert_eq!(one.addresses(7).count(), 0);
}

#[test]
fn a_taken_address_says_by_whom() {
    let tree = ip_address_object("10.96.0.10", "shop", "web");
    assert!(is_held_by(&tree, "shop", "web") && !is_held_by(&tree, "shop", "other"));
    assert_eq!(super::super::validate_address(&tree, None), []);
    assert_eq!(tree["metadata"]["labels"]["ipaddress.kubernetes.io/ip-family"], "IPv4");
}
