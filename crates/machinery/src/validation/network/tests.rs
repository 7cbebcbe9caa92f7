use super::*;

fn tree(value: Value) -> Tree {
    value.as_object().cloned().unwrap_or_default()
}

/// Field and message of each cause.
fn said(causes: &[Cause]) -> Vec<(&str, &str)> {
    causes.iter().map(|cause| (cause.field.as_str(), cause.message.as_str())).collect()
}

#[test]
fn an_address_is_named_by_itself() {
    for (name, fits) in [
        ("10.96.0.1", true),
        ("2001:db8::1", true),
        ("2001:DB8::1", false),
        ("010.0.0.1", false),
        ("a", false),
    ] {
        assert_eq!(address_name(name, false).is_empty(), fits, "{name}");
    }
    assert_eq!(address_name("2001:DB8::1", false), ["must be in canonical form (\"2001:db8::1\")"]);
}

#[test]
fn the_ranges_of_services_only_grow_by_the_other_family() {
    let of = |ranges: Value| tree(json!({"spec": {"cidrs": ranges}}));
    let immutable = |value: &str| format!("Invalid value: {value}: field is immutable");
    for (was, now, wanted) in [
        (json!(["10.0.0.0/8"]), json!(["10.0.0.0/8"]), None),
        (json!(["10.0.0.0/8"]), json!(["10.0.0.0/8", "fd00::/64"]), None),
        (json!(["10.0.0.0/8"]), json!(["11.0.0.0/8"]), Some(("spec.cidrs[0]", immutable("\"11.0.0.0/8\"")))),
        (
            json!(["10.0.0.0/8", "fd00::/64"]),
            json!(["10.0.0.0/8"]),
            Some(("spec.cidrs", immutable("[\"10.0.0.0/8\"]"))),
        ),
    ] {
        let causes = validate_range(&of(now), Some(&of(was)));
        let wanted: Vec<(&str, &str)> =
            wanted.iter().map(|(field, message)| (*field, message.as_str())).collect();
        assert_eq!(said(&causes), wanted);
    }
}

#[test]
fn addresses_behind_services_can_be_reached_from_elsewhere() {
    for (ip, wanted) in [
        ("10.0.0.1", ""),
        ("0.0.0.0", "unspecified"),
        ("127.0.0.1", "loopback"),
        ("169.254.1.1", "link-local range"),
        ("224.0.0.1", "link-local multicast"),
        ("::1", "loopback"),
        ("fe80::1", "link-local range"),
        ("ff02::1", "link-local multicast"),
        ("2001:db8::1", ""),
    ] {
        let causes = endpoint_ip(ip, &Path::new("ip"));
        assert_eq!(causes.len(), usize::from(!wanted.is_empty()), "{ip}");
        assert!(causes.iter().all(|cause| cause.message.contains(wanted)), "{ip}: {causes:?}");
    }
}

#[test]
fn status_of_load_balancers_is_for_load_balancers() {
    let of = |kind: &str, ingress: Value| {
        tree(json!({"spec": {"type": kind}, "status": {"loadBalancer": {"ingress": ingress}}}))
    };
    let old = of("LoadBalancer", json!([{"ip": "010.0.0.1"}]));
    for (kind, ingress, wanted) in [
        ("LoadBalancer", json!([{"ip": "10.0.0.1", "ipMode": "VIP"}]), vec![]),
        ("LoadBalancer", json!([{"ip": "010.0.0.1", "ipMode": "Proxy"}]), vec![]),
        (
            "ClusterIP",
            json!([{"hostname": "a.b"}]),
            vec![(
                "status.loadBalancer.ingress",
                "Forbidden: may only be used when `spec.type` is 'LoadBalancer'",
            )],
        ),
        (
            "LoadBalancer",
            json!([{"hostname": "10.0.0.1", "ipMode": "VIP"}]),
            vec![
                (
                    "status.loadBalancer.ingress[0].ipMode",
                    "Forbidden: may not be specified when `ip` is not set",
                ),
                (
                    "status.loadBalancer.ingress[0].hostname",
                    "Invalid value: \"10.0.0.1\": must be a DNS name, not an IP address",
                ),
            ],
        ),
        (
            "LoadBalancer",
            json!([{"ip": "10.0.0.1"}]),
            vec![(
                "status.loadBalancer.ingress[0].ipMode",
                "Required value: must be specified when `ip` is set",
            )],
        ),
    ] {
        let causes = service::status(&of(kind, ingress), &old);
        assert_eq!(said(&causes), wanted, "{kind}");
    }
    let ingress = of("", json!([{"ip": "x"}, {"hostname": "a.b"}]));
    assert_eq!(ingress::status(&ingress, &old).len(), 1);
}

#[test]
fn metadata_stays_when_the_status_of_a_range_changes() {
    let old = tree(json!({"metadata": {"name": "a", "labels": {"a": "b"}}, "spec": {"cidrs": []}}));
    let mut new =
        tree(json!({"metadata": {"name": "a", "labels": {"c": "d"}}, "status": {"conditions": []}}));
    only_status_of_range(&mut new, &old);
    assert_eq!(new["metadata"], old["metadata"]);
    assert_eq!(new["status"], json!({"conditions": []}));
}

#[test]
fn a_node_named_by_the_old_topology_is_kept() {
    let hosts = |host: &str| json!({"addresses": ["10.0.0.1"], "deprecatedTopology": {"kubernetes.io/hostname": host}});
    let old = tree(json!({"endpoints": [hosts("node-1")]}));
    let mut new = tree(json!({"endpoints": [hosts("node-1"), hosts("node-2")]}));
    endpoints::keep_topology(&mut new, &old);
    assert_eq!(
        new["endpoints"],
        json!([{"addresses": ["10.0.0.1"], "nodeName": "node-1"}, {"addresses": ["10.0.0.1"]}])
    );
}

#[test]
fn labels_of_slices_count_as_changes() {
    let of = |labels: Value, ports: Value| tree(json!({"metadata": {"labels": labels}, "ports": ports}));
    let old = of(json!({"a": "b"}), json!([]));
    for (new, counts) in [
        (of(json!({"a": "b"}), json!([])), false),
        (of(json!({"a": "c"}), json!([])), true),
        (of(json!({"a": "b"}), json!([{"port": 1}])), true),
    ] {
        assert_eq!(endpoints::slice_counts(&new, &old), counts);
    }
}

#[test]
fn an_exception_is_a_part_of_its_block() {
    let of = |range: &str, except: &str| {
        tree(
            json!({"spec": {"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": range, "except": [except]}}]}]}}),
        )
    };
    for (range, except, fits) in [
        ("10.0.0.0/8", "10.1.0.0/16", true),
        ("10.0.0.0/8", "10.0.0.0/8", false),
        ("10.0.0.0/8", "11.0.0.0/16", false),
        ("10.0.0.0/16", "10.0.0.0/8", false),
        ("0.0.0.0/0", "10.0.0.0/8", true),
        ("10.0.0.0/8", "fd00::/64", false),
        ("fd00::/16", "fd00:1::/64", true),
    ] {
        assert_eq!(policy::validate(&of(range, except), None).is_empty(), fits, "{except} of {range}");
    }
}
