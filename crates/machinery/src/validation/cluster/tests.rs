use super::*;

fn tree(value: Value) -> Tree {
    value.as_object().cloned().unwrap_or_default()
}

fn fields(causes: &[Cause]) -> Vec<&str> {
    causes.iter().map(|cause| cause.field.as_str()).collect()
}

#[test]
fn the_time_of_a_phase_changes_with_the_phase() {
    const NOW: &str = "2030-01-01T00:00:00Z";
    let of = |phase: &str, time: Option<&str>| {
        tree(json!({"status": {"phase": phase, "lastPhaseTransitionTime": time}}))
    };
    let old = of("Pending", Some("2020-01-01T00:00:00Z"));
    for (case, mut new, old, wanted) in [
        ("new", of("Pending", None), None, NOW),
        ("same", of("Pending", None), Some(&old), "2020-01-01T00:00:00Z"),
        ("changed", of("Bound", None), Some(&old), NOW),
        ("changed, old time", of("Bound", Some("2020-01-01T00:00:00Z")), Some(&old), NOW),
        ("changed, own time", of("Bound", Some("2021-01-01T00:00:00Z")), Some(&old), "2021-01-01T00:00:00Z"),
    ] {
        volume::stamp(&mut new, old, NOW);
        assert_eq!(new["status"]["lastPhaseTransitionTime"], wanted, "{case}");
    }
}

#[test]
fn a_claim_only_grows_once_it_is_bound() {
    let of = |phase: &str, size: &str| {
        tree(json!({
            "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem", "resources": {"requests": {"storage": size}}},
            "status": {"phase": phase, "capacity": {"storage": "2Gi"}},
        }))
    };
    for (phase, was, now, wanted) in [
        ("Pending", "4Gi", "4Gi", &[][..]),
        ("Pending", "4Gi", "5Gi", &["spec"][..]),
        ("Bound", "4Gi", "5Gi", &[][..]),
        ("Bound", "4Gi", "3Gi", &[][..]),
        ("Bound", "4Gi", "2Gi", &["spec.resources.requests.storage"][..]),
    ] {
        let causes = claim::validate(&of(phase, now), Some(&of(phase, was)));
        assert_eq!(fields(&causes), wanted, "{phase} from {was} to {now}");
    }
}

#[test]
fn the_status_of_a_claim_has_amounts_of_storage() {
    let spec = json!({"accessModes": ["ReadWriteOnce"]});
    for (status, wanted) in [
        (json!({"capacity": {"storage": "1Gi"}, "allocatedResources": {"storage": "1Gi"}}), &[][..]),
        (json!({"capacity": {"storage": "-1"}}), &["status.capacity[storage]"][..]),
        (json!({"allocatedResources": {"cpu": "1"}}), &["status.allocatedResources"][..]),
        (json!({"allocatedResourceStatuses": {"storage": "Odd"}}), &["status.allocatedResourceStatuses"][..]),
        (json!({"allocatedResourceStatuses": {"storage": "NodeResizePending"}}), &[][..]),
    ] {
        let new = tree(json!({"spec": spec, "status": status}));
        assert_eq!(fields(&claim::status(&new, &new)), wanted, "{status}");
    }
}

#[test]
fn sources_of_claims_are_said_twice() {
    let source = json!({"kind": "PersistentVolumeClaim", "name": "a"});
    let foreign = json!({"kind": "PersistentVolumeClaim", "name": "a", "namespace": "other"});
    let unknown = json!({"kind": "Odd", "name": "a", "apiGroup": "example.com"});
    for (sent, old_field, new_field) in [
        (json!({"dataSource": source}), Some(&source), Some(&source)),
        (json!({"dataSourceRef": source}), Some(&source), Some(&source)),
        (json!({"dataSource": unknown}), None, None),
        (json!({"dataSourceRef": unknown}), Some(&unknown), Some(&unknown)),
        (json!({"dataSourceRef": foreign}), None, None),
    ] {
        let mut new = tree(json!({"spec": sent}));
        claim::prepare_create(&mut new);
        assert_eq!(new["spec"].get("dataSource"), old_field, "{sent}");
        assert_eq!(new["spec"].get("dataSourceRef"), new_field, "{sent}");
    }
}

#[test]
fn a_nodes_status_is_checked_through_either_path() {
    let old =
        tree(json!({"metadata": {"name": "a"}, "spec": {"providerID": "x", "podCIDRs": ["10.0.0.0/24"]}}));
    for (spec, status, wanted) in [
        (json!({"providerID": "x", "podCIDRs": ["10.0.0.0/24"]}), json!({}), &[][..]),
        (json!({"providerID": "y"}), json!({}), &["spec.podCIDRs", "spec.providerID"][..]),
        (
            json!({"providerID": "x", "podCIDRs": ["10.0.0.0/24"]}),
            json!({"addresses": [{"type": "Hostname", "address": "a"}, {"type": "Hostname", "address": "a"}]}),
            &["status.addresses[1]"][..],
        ),
        (
            json!({"providerID": "x", "podCIDRs": ["10.0.0.0/24"]}),
            json!({"capacity": {"cpu": "-1"}, "declaredFeatures": ["B", "A"]}),
            &["status.capacity.cpu", "status.declaredFeatures[1]"][..],
        ),
    ] {
        let new = tree(json!({"metadata": {"name": "a"}, "spec": spec, "status": status}));
        assert_eq!(fields(&node::status(&new, &old)), wanted);
    }
}

#[test]
fn podcidr_is_the_first_of_podcidrs() {
    for (sent, one, all) in [
        (json!({"podCIDR": "10.0.0.0/24"}), json!("10.0.0.0/24"), json!(["10.0.0.0/24"])),
        (json!({"podCIDRs": ["10.0.0.0/24"]}), json!("10.0.0.0/24"), json!(["10.0.0.0/24"])),
        (
            json!({"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.0.0.0/24", "fd00::/64"]}),
            json!("10.1.0.0/24"),
            json!(["10.1.0.0/24"]),
        ),
    ] {
        let mut new = tree(json!({"spec": sent}));
        node::default(&mut new);
        assert_eq!((&new["spec"]["podCIDR"], &new["spec"]["podCIDRs"]), (&one, &all));
    }
}

#[test]
fn the_systems_priorities_are_its_own() {
    let of = |name: &str, value: i64| tree(json!({"metadata": {"name": name}, "value": value}));
    for (name, value, wanted) in [
        ("mine", 1_000_000_000, &[][..]),
        ("mine", 1_000_000_001, &["value"][..]),
        ("system-mine", 1, &["metadata.name"][..]),
        ("system-node-critical", 2_000_001_000, &[][..]),
        ("system-cluster-critical", 1, &["metadata.name"][..]),
    ] {
        assert_eq!(fields(&classes::validate_priority(&of(name, value), None)), wanted, "{name} {value}");
    }
    assert!(classes::system_priority("system-node-critical").is_some());
    assert!(classes::system_priority("system-mine").is_none());
}

#[test]
fn iscsi_names_have_a_form() {
    let of = |iqn: &str| {
        tree(json!({"spec": {
            "capacity": {"storage": "1"}, "accessModes": ["ReadWriteOnce"],
            "iscsi": {"targetPortal": "a", "iqn": iqn, "lun": 0},
        }}))
    };
    for (iqn, fits) in [
        ("iqn.2001-04.com.example:storage", true),
        ("iqn.2001-04.com.example", false),
        ("iqn.2001.com.example:a", false),
        ("eui.0123456789abcdef", true),
        ("eui.0123", false),
        ("naa.0123456789abcdef0123456789abcdef", true),
        ("other", false),
    ] {
        assert_eq!(volume::validate(&of(iqn), None).is_empty(), fits, "{iqn}");
    }
}

#[test]
fn an_attachments_errors_are_short_and_its_spec_stays() {
    let of = |node: &str, status: Value| {
        let source = json!({"persistentVolumeName": "pv"});
        tree(
            json!({"spec": {"attacher": "csi.example.com", "nodeName": node, "source": source}, "status": status}),
        )
    };
    let old = of("a", json!({"attached": false}));
    let long = "x".repeat(1025);
    for (new, wanted) in [
        (of("a", json!({"attached": true})), &[][..]),
        (of("b", json!({"attached": true})), &["spec"][..]),
        (
            of("a", json!({"attached": false, "attachError": {"message": long}})),
            &["status.attachError.message"][..],
        ),
        (
            of("a", json!({"attached": false, "detachError": {"errorCode": -1}})),
            &["status.detachError.errorCode"][..],
        ),
    ] {
        assert_eq!(fields(&storage::validate_attachment(&new, Some(&old))), wanted);
    }
}
