//! Kinds about the machines, their storage and their limits.

use serde_json::{Value, json};

use super::{AGE, CREATED_AT, NAME, at, boolean, compute, field, integer, path};
use crate::{
    resource::{Cell, Column, Row, SelectableField, Subresource},
    validation::cluster as v,
};

const STORAGE: Row = Row { group: "storage.k8s.io", namespaced: false, ..Row::PLAIN };

const NODE_COLUMNS: &[Column] = &[
    NAME,
    compute("Status", 0, node_status, "Whether the node is ready."),
    compute("Roles", 0, node_roles, "The roles that its labels name."),
    AGE,
    path("Version", 0, ".status.nodeInfo.kubeletVersion", "The version of its kubelet."),
    compute("Internal-IP", 1, |o, _| node_address(o, "InternalIP"), "Its address in the cluster."),
    compute("External-IP", 1, |o, _| node_address(o, "ExternalIP"), "Its address outside."),
    compute("OS-Image", 1, |o, _| known(o, "/status/nodeInfo/osImage"), "Its operating system."),
    compute("Kernel-Version", 1, kernel, "The version of its kernel."),
    compute(
        "Container-Runtime",
        1,
        |o, _| known(o, "/status/nodeInfo/containerRuntimeVersion"),
        "What runs its containers.",
    ),
];

const VOLUME_COLUMNS: &[Column] = &[
    NAME,
    compute("Capacity", 0, |o, _| json!(storage_of(&o["spec"]["capacity"])), "How much it holds."),
    compute("Access Modes", 0, |o, _| access_modes(&o["spec"]["accessModes"]), "How it can be mounted."),
    path("Reclaim Policy", 0, ".spec.persistentVolumeReclaimPolicy", "What becomes of it when released."),
    compute("Status", 0, phase, "Whether it is bound."),
    compute("Claim", 0, claim, "The claim it is bound to."),
    compute("StorageClass", 0, |o, _| json!(storage_class(o)), "Its storage class."),
    compute("VolumeAttributesClass", 0, attributes_class, "Its class of attributes."),
    compute("Reason", 0, |o, _| json!(at(o, "/status/reason")), "Why it is in its state."),
    AGE,
    compute("VolumeMode", 1, volume_mode, "Whether it has a file system."),
];

const CLAIM_COLUMNS: &[Column] = &[
    NAME,
    compute("Status", 0, phase, "Whether it is bound."),
    compute("Volume", 0, |o, _| json!(at(o, "/spec/volumeName")), "The volume it is bound to."),
    compute("Capacity", 0, claim_capacity, "How much the volume holds."),
    compute("Access Modes", 0, claim_modes, "How it can be mounted."),
    compute("StorageClass", 0, |o, _| json!(storage_class(o)), "Its storage class."),
    compute("VolumeAttributesClass", 0, attributes_class, "Its class of attributes."),
    AGE,
    compute("VolumeMode", 1, volume_mode, "Whether it has a file system."),
];

const DRIVER_COLUMNS: &[Column] = &[
    NAME,
    boolean(compute("AttachRequired", 0, |o, _| flag(o, "/spec/attachRequired", true), "Must be attached.")),
    boolean(compute("PodInfoOnMount", 0, |o, _| flag(o, "/spec/podInfoOnMount", false), "Is told of pods.")),
    boolean(compute(
        "StorageCapacity",
        0,
        |o, _| flag(o, "/spec/storageCapacity", false),
        "Tells what is free.",
    )),
    compute("TokenRequests", 0, token_requests, "Audiences of the tokens it gets."),
    boolean(compute(
        "RequiresRepublish",
        0,
        |o, _| flag(o, "/spec/requiresRepublish", false),
        "Is called again and again.",
    )),
    compute("Modes", 0, lifecycle_modes, "Lifecycles of volumes it supports."),
    AGE,
];

const NODE_FIELDS: &[SelectableField] =
    &[SelectableField { absent: "false", ..field("spec.unschedulable", &["spec.unschedulable"]) }];

pub const ROWS: &[Row] = &[
    Row {
        kind: "Node",
        plural: "nodes",
        singular: "node",
        namespaced: false,
        short_names: &["no"],
        subresources: &[Subresource {
            prepare: v::node::only_status,
            validate: v::node::status,
            ..Subresource::status("Node", "", "v1")
        }],
        type_name: "core/v1.Node",
        columns: NODE_COLUMNS,
        fields: NODE_FIELDS,
        status_on_create: true,
        prepare_create: v::node::prepare_create,
        prepare_update: v::node::prepare_update,
        default: v::node::default,
        validate: v::node::validate,
        warn: v::node::warn,
        ..Row::PLAIN
    },
    Row {
        kind: "PersistentVolume",
        plural: "persistentvolumes",
        singular: "persistentvolume",
        namespaced: false,
        short_names: &["pv"],
        subresources: &[Subresource::status("PersistentVolume", "", "v1")],
        type_name: "core/v1.PersistentVolume",
        columns: VOLUME_COLUMNS,
        fields: &[field("name", &["metadata.name"])],
        returns_deleted: true,
        prepare_create: v::volume::prepare_create,
        default: v::volume::default,
        stamp: v::volume::stamp,
        validate: v::volume::validate,
        warn: v::volume::warn,
        ..Row::PLAIN
    },
    Row {
        kind: "PersistentVolumeClaim",
        plural: "persistentvolumeclaims",
        singular: "persistentvolumeclaim",
        short_names: &["pvc"],
        subresources: &[Subresource {
            validate: v::claim::status,
            ..Subresource::status("PersistentVolumeClaim", "", "v1")
        }],
        type_name: "core/v1.PersistentVolumeClaim",
        columns: CLAIM_COLUMNS,
        fields: &[field("name", &["metadata.name"])],
        returns_deleted: true,
        prepare_create: v::claim::prepare_create,
        prepare_update: v::claim::prepare_update,
        default: v::claim::default,
        validate: v::claim::validate,
        warn: v::claim::warn,
        ..Row::PLAIN
    },
    Row {
        kind: "LimitRange",
        plural: "limitranges",
        singular: "limitrange",
        short_names: &["limits"],
        type_name: "core/v1.LimitRange",
        columns: &[NAME, CREATED_AT],
        create_on_update: true,
        prepare_create: v::limits::prepare_create,
        default: v::limits::default,
        validate: v::limits::validate,
        ..Row::PLAIN
    },
    Row {
        kind: "ResourceQuota",
        plural: "resourcequotas",
        singular: "resourcequota",
        short_names: &["quota"],
        subresources: &[Subresource {
            validate: v::quota::status,
            ..Subresource::status("ResourceQuota", "", "v1")
        }],
        type_name: "core/v1.ResourceQuota",
        columns: &[
            NAME,
            compute("Request", 0, |o, _| quota_use(o, false), "What is requested of what is granted."),
            compute("Limit", 0, |o, _| quota_use(o, true), "The limits of what is granted."),
            AGE,
        ],
        returns_deleted: true,
        prepare_create: v::quota::prepare_create,
        default: v::quota::default,
        validate: v::quota::validate,
        warn: v::quota::warn,
        ..Row::PLAIN
    },
    Row {
        kind: "StorageClass",
        plural: "storageclasses",
        singular: "storageclass",
        short_names: &["sc"],
        type_name: "storage/v1.StorageClass",
        columns: &[
            Column { cell: Cell::Compute(storage_class_name), ..NAME },
            path("Provisioner", 0, ".provisioner", "Who makes its volumes."),
            path("ReclaimPolicy", 0, ".reclaimPolicy", "What becomes of released volumes."),
            path("VolumeBindingMode", 0, ".volumeBindingMode", "When volumes are bound."),
            compute(
                "AllowVolumeExpansion",
                0,
                |o, _| flag(o, "/allowVolumeExpansion", false),
                "Whether volumes can grow.",
            ),
            AGE,
        ],
        returns_deleted: true,
        default: v::storage::default_class,
        validate: v::storage::validate_class,
        warn: v::storage::warn_class,
        ..STORAGE
    },
    Row {
        kind: "CSIDriver",
        plural: "csidrivers",
        singular: "csidriver",
        type_name: "storage/v1.CSIDriver",
        columns: DRIVER_COLUMNS,
        generation: true,
        first_generation: 0,
        unconditional_update: false,
        returns_deleted: true,
        prepare_create: v::storage::prepare_driver,
        prepare_update: v::storage::keep_driver_fields,
        default: v::storage::default_driver,
        validate: v::storage::validate_driver,
        warn: v::storage::warn_driver,
        ..STORAGE
    },
    Row {
        kind: "CSINode",
        plural: "csinodes",
        singular: "csinode",
        type_name: "storage/v1.CSINode",
        columns: &[
            NAME,
            integer(compute(
                "Drivers",
                0,
                |o, _| json!(list(&o["spec"]["drivers"]).len()),
                "Number of drivers on the node.",
            )),
            AGE,
        ],
        unconditional_update: false,
        returns_deleted: true,
        validate: v::storage::validate_csi_node,
        ..STORAGE
    },
    Row {
        kind: "VolumeAttachment",
        plural: "volumeattachments",
        singular: "volumeattachment",
        subresources: &[Subresource {
            prepare: v::storage::only_status_of_attachment,
            resets: &["metadata", "spec"],
            validate: |new, old| v::storage::validate_attachment(new, Some(old)),
            ..Subresource::status("VolumeAttachment", "storage.k8s.io", "v1")
        }],
        type_name: "storage/v1.VolumeAttachment",
        columns: &[
            NAME,
            Column { format: "name", ..path("Attacher", 0, ".spec.attacher", "Who attaches.") },
            compute("PV", 0, |o, _| json!(at(o, "/spec/source/persistentVolumeName")), "The volume."),
            path("Node", 0, ".spec.nodeName", "The node."),
            boolean(compute("Attached", 0, |o, _| flag(o, "/status/attached", false), "Whether it is.")),
            AGE,
        ],
        unconditional_update: false,
        returns_deleted: true,
        prepare_create: v::storage::prepare_attachment,
        default: v::storage::default_attachment,
        validate: v::storage::validate_attachment,
        ..STORAGE
    },
    Row {
        kind: "CSIStorageCapacity",
        plural: "csistoragecapacities",
        singular: "csistoragecapacity",
        namespaced: true,
        type_name: "storage/v1.CSIStorageCapacity",
        columns: &[NAME, CREATED_AT],
        unconditional_update: false,
        validate: v::storage::validate_capacity,
        warn: v::storage::warn_capacity,
        ..STORAGE
    },
    Row {
        kind: "VolumeAttributesClass",
        plural: "volumeattributesclasses",
        singular: "volumeattributesclass",
        short_names: &["vac"],
        type_name: "storage/v1.VolumeAttributesClass",
        columns: &[NAME, path("DriverName", 0, ".driverName", "Who understands the parameters."), AGE],
        returns_deleted: true,
        validate: v::storage::validate_attributes_class,
        ..STORAGE
    },
    Row {
        group: "scheduling.k8s.io",
        kind: "PriorityClass",
        plural: "priorityclasses",
        singular: "priorityclass",
        namespaced: false,
        short_names: &["pc"],
        type_name: "scheduling/v1.PriorityClass",
        columns: &[
            NAME,
            integer(compute("Value", 0, |o, _| o["value"].clone(), "The priority.")),
            boolean(compute(
                "Global-Default",
                0,
                |o, _| flag(o, "/globalDefault", false),
                "For pods without one.",
            )),
            AGE,
            compute(
                "PreemptionPolicy",
                0,
                |o, _| json!(at(o, "/preemptionPolicy")),
                "Whether it displaces pods.",
            ),
        ],
        generation: true,
        counts_generation: Some(|_, _| false),
        undeletable: v::classes::system_priority,
        default: v::classes::default_priority,
        validate: v::classes::validate_priority,
        ..Row::PLAIN
    },
    Row {
        group: "node.k8s.io",
        kind: "RuntimeClass",
        plural: "runtimeclasses",
        singular: "runtimeclass",
        namespaced: false,
        type_name: "node/v1.RuntimeClass",
        columns: &[NAME, path("Handler", 0, ".handler", "What the node calls the runtime."), AGE],
        create_on_update: true,
        unconditional_update: false,
        qualified_finalizers: false,
        validate: v::classes::validate_runtime,
        warn: v::classes::warn_runtime,
        ..Row::PLAIN
    },
];

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn flag(object: &Value, pointer: &str, otherwise: bool) -> Value {
    json!(object.pointer(pointer).and_then(Value::as_bool).unwrap_or(otherwise))
}

fn node_status(object: &Value, _: i64) -> Value {
    let conditions = list(&object["status"]["conditions"]);
    // The last one counts, should there be several.
    let ready = conditions.iter().rev().find(|condition| condition["type"] == "Ready");
    let mut status = match ready {
        Some(condition) if condition["status"] == "True" => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if object["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    json!(status)
}

fn node_roles(object: &Value, _: i64) -> Value {
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    let mut roles: Vec<&str> = labels
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            None if key == "kubernetes.io/role" => value.as_str(),
            role => role,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    json!(if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") })
}

fn node_address(object: &Value, kind: &str) -> Value {
    let found = list(&object["status"]["addresses"]).iter().find(|address| address["type"] == kind);
    json!(found.map_or("<none>", |address| at(address, "/address")))
}

fn known(object: &Value, pointer: &str) -> Value {
    match at(object, pointer) {
        "" => json!("<unknown>"),
        text => json!(text),
    }
}

fn kernel(object: &Value, _: i64) -> Value {
    let version = known(object, "/status/nodeInfo/kernelVersion");
    match at(object, "/status/nodeInfo/architecture") {
        "" => version,
        architecture => json!(format!("{} ({architecture})", version.as_str().unwrap_or_default())),
    }
}

fn storage_of(resources: &Value) -> &str {
    resources["storage"].as_str().unwrap_or("0")
}

fn access_modes(modes: &Value) -> Value {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let short = SHORT.iter().filter(|(mode, _)| list(modes).iter().any(|it| it == mode));
    json!(short.map(|(_, short)| *short).collect::<Vec<_>>().join(","))
}

fn phase(object: &Value, _: i64) -> Value {
    match object["metadata"]["deletionTimestamp"].is_string() {
        true => json!("Terminating"),
        false => json!(at(object, "/status/phase")),
    }
}

fn claim(object: &Value, _: i64) -> Value {
    let claim = &object["spec"]["claimRef"];
    match claim.is_object() {
        true => json!(format!("{}/{}", at(claim, "/namespace"), at(claim, "/name"))),
        false => json!(""),
    }
}

/// By the annotation that came before the field, first.
fn storage_class(object: &Value) -> &str {
    let annotation = &object["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    annotation.as_str().unwrap_or_else(|| at(object, "/spec/storageClassName"))
}

fn attributes_class(object: &Value, _: i64) -> Value {
    json!(object["spec"]["volumeAttributesClassName"].as_str().unwrap_or("<unset>"))
}

fn volume_mode(object: &Value, _: i64) -> Value {
    json!(object["spec"]["volumeMode"].as_str().unwrap_or("<unset>"))
}

fn is_bound(object: &Value) -> bool {
    !at(object, "/spec/volumeName").is_empty()
}

fn claim_capacity(object: &Value, _: i64) -> Value {
    json!(if is_bound(object) { storage_of(&object["status"]["capacity"]) } else { "" })
}

fn claim_modes(object: &Value, _: i64) -> Value {
    if is_bound(object) { access_modes(&object["status"]["accessModes"]) } else { json!("") }
}

fn quota_use(object: &Value, limits: bool) -> Value {
    let hard = object["status"]["hard"].as_object().into_iter().flatten();
    let hard = hard.filter(|(name, _)| name.starts_with("limits.") == limits);
    let parts = hard.map(|(name, hard)| {
        let used = object["status"]["used"][name].as_str().unwrap_or("0");
        format!("{name}: {used}/{}", hard.as_str().unwrap_or("0"))
    });
    json!(parts.collect::<Vec<_>>().join(", "))
}

fn storage_class_name(object: &Value, _: i64) -> Value {
    let annotations = &object["metadata"]["annotations"];
    let keys =
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
    let is_default = keys.iter().any(|key| annotations[*key] == "true");
    let name = at(object, "/metadata/name");
    json!(if is_default { format!("{name} (default)") } else { name.to_owned() })
}

fn token_requests(object: &Value, _: i64) -> Value {
    let requests = &object["spec"]["tokenRequests"];
    let audiences = list(requests).iter().map(|request| at(request, "/audience")).collect::<Vec<_>>();
    json!(if requests.is_array() { audiences.join(",") } else { "<unset>".to_owned() })
}

fn lifecycle_modes(object: &Value, _: i64) -> Value {
    let modes = list(&object["spec"]["volumeLifecycleModes"]).iter().filter_map(Value::as_str);
    let modes = modes.collect::<Vec<_>>().join(",");
    json!(if modes.is_empty() { "<none>".to_owned() } else { modes })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cells of a row's columns, but for the name and the age.
    fn cells(kind: &str, object: &Value) -> Vec<Value> {
        let row = ROWS.iter().find(|row| row.kind == kind).unwrap();
        let shown = row.columns.iter().filter_map(|column| match column.cell {
            Cell::Compute(compute) => Some(compute(object, 0)),
            Cell::Path(path) => Some(crate::table::find(object, path)),
            _ => None,
        });
        shown.collect()
    }

    #[test]
    fn nodes_show_their_state_and_roles() {
        let node = json!({
            "metadata": {"labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "old", "a": "b"}},
            "spec": {"unschedulable": true},
            "status": {
                "conditions": [{"type": "Ready", "status": "False"}, {"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                "nodeInfo": {"kubeletVersion": "v1", "kernelVersion": "6", "architecture": "arm64"},
            },
        });
        assert_eq!(
            json!(cells("Node", &node)),
            json!([
                "Ready,SchedulingDisabled",
                "old,worker",
                "v1",
                "10.0.0.1",
                "<none>",
                "<unknown>",
                "6 (arm64)",
                "<unknown>"
            ])
        );
        let empty = json!({"metadata": {}, "status": {"nodeInfo": {"kubeletVersion": ""}}});
        assert_eq!(cells("Node", &empty)[..3], ["Unknown", "<none>", ""]);
    }

    #[test]
    fn volumes_and_claims_show_what_they_are_bound_to() {
        let volume = json!({
            "metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "beta"}, "deletionTimestamp": "2020-01-01T00:00:00Z"},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce", "ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": "n", "name": "c"},
                "storageClassName": "slow", "volumeMode": "Block",
            },
        });
        assert_eq!(
            json!(cells("PersistentVolume", &volume)),
            json!(["1Gi", "RWO,RWX", "Retain", "Terminating", "n/c", "beta", "<unset>", "", "Block"])
        );
        let claim = |volume: &str| {
            json!({
                "spec": {"volumeName": volume, "storageClassName": "slow", "resources": {"requests": {"storage": "1Gi"}}},
                "status": {"phase": "Bound", "capacity": {"storage": "2Gi"}, "accessModes": ["ReadOnlyMany"]},
            })
        };
        assert_eq!(
            json!(cells("PersistentVolumeClaim", &claim("v"))),
            json!(["Bound", "v", "2Gi", "ROX", "slow", "<unset>", "<unset>"])
        );
        assert_eq!(cells("PersistentVolumeClaim", &claim(""))[2..4], ["", ""]);
    }

    #[test]
    fn quotas_show_use_by_requests_and_limits() {
        let quota = json!({"status": {
            "hard": {"limits.cpu": "2", "pods": "10", "cpu": "1"},
            "used": {"pods": "3"},
        }});
        assert_eq!(cells("ResourceQuota", &quota), ["cpu: 0/1, pods: 3/10", "limits.cpu: 0/2"]);
    }

    #[test]
    fn classes_and_drivers_show_what_is_left_out_too() {
        let class = json!({
            "metadata": {"name": "a", "annotations": {"storageclass.beta.kubernetes.io/is-default-class": "true"}},
            "provisioner": "p", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
        });
        assert_eq!(
            json!(cells("StorageClass", &class)),
            json!(["a (default)", "p", "Delete", "Immediate", false])
        );
        let driver = json!({"spec": {"tokenRequests": [{"audience": "a"}, {"audience": "b"}]}});
        assert_eq!(json!(cells("CSIDriver", &driver)), json!([true, false, false, "a,b", false, "<none>"]));
        let priority = json!({"value": -1});
        assert_eq!(json!(cells("PriorityClass", &priority)), json!([-1, false, ""]));
        assert_eq!(json!(cells("CSINode", &json!({"spec": {"drivers": [{}, {}]}}))), json!([2]));
    }
}
