//! What a pod's author may leave open.

use serde_json::{Value, json};

use super::{
    super::parts::{flag, items_mut, list, number, object, object_mut, set_absent, set_default, text},
    amounts,
    images::default_pull_policy,
};
use crate::resource::Tree;

const FILE_MODE: i64 = 0o644;
const TOKEN_SECONDS: i64 = 3600;
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];
/// From when init containers were annotations; nothing may find them any more.
const INIT_CONTAINER_ANNOTATIONS: [&str; 4] = [
    "pod.beta.kubernetes.io/init-containers",
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
    "pod.alpha.kubernetes.io/init-container-statuses",
];

/// Fills in what a pod template's author left open.
pub fn default_template(template: &mut Tree) {
    drop_init_container_annotations(template);
    with_spec(template, default_spec);
}

fn with_spec(holder: &mut Tree, fill: impl FnOnce(&mut Tree)) {
    if let Some(spec) = holder.entry("spec").or_insert_with(|| json!({})).as_object_mut() {
        fill(spec);
    }
}

fn drop_init_container_annotations(holder: &mut Tree) {
    let Some(metadata) = object_mut(holder, "metadata") else { return };
    let Some(annotations) = object_mut(metadata, "annotations") else { return };
    annotations.retain(|key, _| !INIT_CONTAINER_ANNOTATIONS.contains(&key.as_str()));
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

/// Fills in what a pod's author left open: more than in a template, since this is what will run.
pub fn default_pod(pod: &mut Tree) {
    drop_init_container_annotations(pod);
    with_spec(pod, default_pod_spec);
    if let Some(status) = object_mut(pod, "status") {
        default_status(status);
    }
}

fn default_pod_spec(spec: &mut Tree) {
    for key in ["containers", "initContainers"] {
        items_mut(spec, key).for_each(amounts::default_requests);
    }
    amounts::default_pod_level(spec);
    set_absent(spec, "enableServiceLinks", true);
    if flag(spec, "hostNetwork") {
        for key in ["containers", "initContainers"] {
            items_mut(spec, key).for_each(default_host_ports);
        }
    }
    if number(spec, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        spec.insert("terminationGracePeriodSeconds".into(), json!(1));
    }
    default_spec(spec);
}

fn default_host_ports(container: &mut Tree) {
    for port in items_mut(container, "ports") {
        if number(port, "hostPort").unwrap_or(0) == 0
            && let Some(number) = number(port, "containerPort").filter(|number| *number != 0)
        {
            port.insert("hostPort".into(), json!(number));
        }
    }
}

/// The one address and the list of addresses say the same; amounts are rounded.
fn default_status(status: &mut Tree) {
    for key in ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"] {
        for container in items_mut(status, key) {
            amounts::round_up(container, "allocatedResources");
            round_resources(container);
        }
    }
    amounts::round_up(status, "allocatedResources");
    round_resources(status);
    let ip = text(status, "podIP").to_owned();
    let first = list(status, "podIPs").first().and_then(|first| first.get("ip")).and_then(Value::as_str);
    if !ip.is_empty() && first != Some(ip.as_str()) {
        status.insert("podIPs".into(), json!([{"ip": ip}]));
    } else if let Some(first) = first.filter(|first| !first.is_empty() && ip.is_empty()).map(str::to_owned) {
        status.insert("podIP".into(), json!(first));
    }
}

fn round_resources(holder: &mut Tree) {
    if let Some(resources) = object_mut(holder, "resources") {
        amounts::round_up(resources, "limits");
        amounts::round_up(resources, "requests");
    }
}

/// Fills in what every spec of pods has, in a template or not.
pub fn default_spec(spec: &mut Tree) {
    set_default(spec, "dnsPolicy", "ClusterFirst");
    set_default(spec, "restartPolicy", "Always");
    set_absent(spec, "securityContext", json!({}));
    set_absent(spec, "terminationGracePeriodSeconds", 30);
    set_default(spec, "schedulerName", "default-scheduler");
    default_service_account(spec);
    items_mut(spec, "volumes").for_each(default_volume);
    for key in CONTAINERS {
        items_mut(spec, key).for_each(default_container);
    }
    amounts::round_up(spec, "overhead");
    round_resources(spec);
    drop_disabled(spec);
}

/// `serviceAccount` is the old name of `serviceAccountName`.
fn default_service_account(spec: &mut Tree) {
    let name = match text(spec, "serviceAccountName") {
        "" => text(spec, "serviceAccount").to_owned(),
        name => name.to_owned(),
    };
    if !name.is_empty() {
        spec.insert("serviceAccountName".into(), json!(name));
        spec.insert("serviceAccount".into(), json!(name));
    }
}

fn default_container(container: &mut Tree) {
    let policy = default_pull_policy(text(container, "image"));
    set_default(container, "imagePullPolicy", policy);
    set_default(container, "terminationMessagePath", "/dev/termination-log");
    set_default(container, "terminationMessagePolicy", "File");
    for port in items_mut(container, "ports") {
        set_default(port, "protocol", "TCP");
    }
    for variable in items_mut(container, "env") {
        let Some(source) = object_mut(variable, "valueFrom") else { continue };
        default_field_reference(source);
        if let Some(file) = object_mut(source, "fileKeyRef") {
            set_absent(file, "optional", false);
        }
    }
    round_resources(container);
    for key in PROBES {
        if let Some(probe) = object_mut(container, key) {
            default_probe(probe);
        }
    }
    if let Some(lifecycle) = object_mut(container, "lifecycle") {
        for key in ["postStart", "preStop"] {
            if let Some(handler) = object_mut(lifecycle, key) {
                default_http_get(handler);
            }
        }
    }
}

fn default_field_reference(holder: &mut Tree) {
    if let Some(reference) = object_mut(holder, "fieldRef") {
        set_default(reference, "apiVersion", "v1");
    }
}

fn default_http_get(handler: &mut Tree) {
    if let Some(http) = object_mut(handler, "httpGet") {
        set_default(http, "path", "/");
        set_default(http, "scheme", "HTTP");
    }
}

fn default_probe(probe: &mut Tree) {
    for (key, value) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        if number(probe, key).unwrap_or(0) == 0 {
            probe.insert(key.to_owned(), json!(value));
        }
    }
    default_http_get(probe);
    if let Some(grpc) = object_mut(probe, "grpc") {
        set_absent(grpc, "service", "");
    }
}

fn default_volume(volume: &mut Tree) {
    if volume.keys().all(|key| key == "name") {
        volume.insert("emptyDir".into(), json!({}));
    }
    for key in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = object_mut(volume, key) {
            set_absent(source, "defaultMode", FILE_MODE);
        }
    }
    for (key, defaults) in SOURCE_DEFAULTS {
        let Some(source) = object_mut(volume, key) else { continue };
        for (field, text) in *defaults {
            set_default(source, field, text);
        }
    }
    if let Some(image) = object_mut(volume, "image") {
        let policy = default_pull_policy(text(image, "reference"));
        set_default(image, "pullPolicy", policy);
    }
    for (key, field, value) in POINTER_DEFAULTS {
        if let Some(source) = object_mut(volume, key) {
            set_absent(source, field, *value);
        }
    }
    if let Some(disk) = object_mut(volume, "azureDisk") {
        set_absent(disk, "readOnly", false);
    }
    if let Some(downward) = object_mut(volume, "downwardAPI") {
        items_mut(downward, "items").for_each(default_field_reference);
    }
    if let Some(projected) = object_mut(volume, "projected") {
        items_mut(projected, "sources").for_each(default_projection);
    }
    let ephemeral = object_mut(volume, "ephemeral");
    if let Some(template) = ephemeral.and_then(|ephemeral| object_mut(ephemeral, "volumeClaimTemplate")) {
        with_spec(template, |spec| {
            set_absent(spec, "volumeMode", "Filesystem");
            round_resources(spec);
        });
    }
}

/// Texts of volume sources that have a value when they are empty.
const SOURCE_DEFAULTS: &[(&str, &[(&str, &str)])] = &[
    ("iscsi", &[("iscsiInterface", "default")]),
    ("rbd", &[("pool", "rbd"), ("user", "admin"), ("keyring", "/etc/ceph/keyring")]),
    ("scaleIO", &[("storageMode", "ThinProvisioned"), ("fsType", "xfs")]),
];

/// Texts of volume sources that have a value when they are absent.
const POINTER_DEFAULTS: &[(&str, &str, &str)] = &[
    ("hostPath", "type", ""),
    ("azureDisk", "cachingMode", "ReadWrite"),
    ("azureDisk", "fsType", "ext4"),
    ("azureDisk", "kind", "Shared"),
];

fn default_projection(source: &mut Tree) {
    if let Some(downward) = object_mut(source, "downwardAPI") {
        items_mut(downward, "items").for_each(default_field_reference);
    }
    if let Some(token) = object_mut(source, "serviceAccountToken") {
        set_absent(token, "expirationSeconds", TOKEN_SECONDS);
    }
}

/// Fields of features that are off by default go.
fn drop_disabled(spec: &mut Tree) {
    spec.remove("schedulingGroup");
    for volume in items_mut(spec, "volumes") {
        let Some(projected) = object_mut(volume, "projected") else { continue };
        for source in items_mut(projected, "sources") {
            source.remove("clusterTrustBundle");
            source.remove("podCertificate");
        }
    }
    for key in CONTAINERS {
        for container in items_mut(spec, key) {
            let dropped = object_mut(container, "lifecycle").and_then(|it| it.remove("stopSignal"));
            if dropped.is_some() && object(container, "lifecycle").is_some_and(Tree::is_empty) {
                container.remove("lifecycle");
            }
        }
    }
}
