//! A new pod.

use serde_json::{Value, json};

use super::{
    super::parts::{Path, items, items_mut, list, object, object_mut, text},
    affinity, amounts,
    annotations::{self, APP_ARMOR, app_armor_field},
    containers, default_pod,
    options::Options,
    spec,
};
use crate::{field_error::Cause, resource::Tree};

const SPEC: Path<'_> = Path::new("spec");
const ANNOTATIONS: Path<'_> = Path::new("metadata.annotations");

/// What the server says about a new pod before anybody else does. A pod that has a status is prepared already.
pub fn prepare_pod(pod: &mut Tree) {
    if pod.contains_key("status") {
        return;
    }
    default_pod(pod);
    // Set aside, so that the spec can be changed by what it says.
    let metadata = pod.remove("metadata");
    let empty = Tree::new();
    let said = metadata.as_ref().and_then(Value::as_object).unwrap_or(&empty);
    let mut status = json!({"phase": "Pending"});
    if let Some(spec) = object_mut(pod, "spec") {
        status["qosClass"] = json!(amounts::quality_of_service(spec));
        if !list(spec, "schedulingGates").is_empty() {
            status["conditions"] = json!([gated(said)]);
        }
        affinity::merge_label_keys(spec, object(said, "labels").unwrap_or(&empty));
        take_over_app_armor(spec, said);
    }
    pod.extend(metadata.map(|metadata| ("metadata".to_owned(), metadata)));
    pod.insert("status".to_owned(), status);
}

/// The time is that of the pod's creation, which is now.
fn gated(metadata: &Tree) -> Value {
    let mut condition = json!({
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": null,
        "lastTransitionTime": metadata.get("creationTimestamp"),
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    });
    if let Some(condition) = condition.as_object_mut() {
        condition.retain(|key, value| key == "lastProbeTime" || !value.is_null());
    }
    condition
}

/// Profiles that annotations name become fields.
fn take_over_app_armor(spec: &mut Tree, metadata: &Tree) {
    if object(spec, "os").is_some_and(|os| text(os, "name") == "windows") {
        return;
    }
    let of_pod = object(spec, "securityContext").and_then(|context| context.get("appArmorProfile")).cloned();
    for kind in ["initContainers", "containers", "ephemeralContainers"] {
        for container in items_mut(spec, kind) {
            let key = format!("{APP_ARMOR}{}", text(container, "name"));
            let own = object(container, "securityContext").and_then(|it| it.get("appArmorProfile"));
            let Some(written) = annotations::annotation(Some(metadata), &key).filter(|_| own.is_none())
            else {
                continue;
            };
            let Some(profile) = app_armor_field(written).filter(|it| Some(it) != of_pod.as_ref()) else {
                continue;
            };
            let context = container.entry("securityContext").or_insert_with(|| json!({}));
            if let Some(context) = context.as_object_mut() {
                context.insert("appArmorProfile".to_owned(), profile);
            }
        }
    }
}

/// The rules for a pod's annotations and spec that hold at every time.
pub fn every_pod(pod: &Tree, options: &Options) -> Vec<Cause> {
    let empty = Tree::new();
    let metadata = object(pod, "metadata");
    let own_spec = object(pod, "spec").unwrap_or(&empty);
    let mut causes = annotations::annotations(metadata, own_spec, options.any_deletion_cost, &ANNOTATIONS);
    causes.extend(spec::spec(own_spec, metadata, &SPEC, options));
    if text(own_spec, "serviceAccountName").is_empty() {
        causes.extend(tokens_of_nobody(own_spec));
    }
    for key in ["containers", "initContainers"] {
        causes.extend(containers::padded_images(own_spec, key, &SPEC.child(key)));
    }
    causes
}

fn tokens_of_nobody(spec: &Tree) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (volume, source) in items(spec, "volumes") {
        let sources = object(source, "projected").into_iter().flat_map(|it| items(it, "sources"));
        for (at, _) in sources.filter(|(_, source)| source.contains_key("serviceAccountToken")) {
            let field = format!("spec.volumes[{volume}].projected.sources[{at}].serviceAccountToken");
            causes.push(Cause::forbidden(field, "must not be specified when serviceAccountName is not set"));
        }
    }
    causes
}

pub fn new_pod(pod: &Tree) -> Vec<Cause> {
    let empty = Tree::new();
    let own_spec = object(pod, "spec").unwrap_or(&empty);
    let mut causes = every_pod(pod, &Options::of_new(true));
    if !list(own_spec, "ephemeralContainers").is_empty() {
        causes.push(Cause::forbidden(&SPEC.child("ephemeralContainers"), "cannot be set on create"));
    }
    if !text(own_spec, "nodeName").is_empty() && !list(own_spec, "schedulingGates").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        causes.push(Cause::forbidden(&SPEC.child("nodeName"), detail));
    }
    causes.extend(annotations::matching_profiles(object(pod, "metadata"), own_spec, &SPEC));
    causes
}
