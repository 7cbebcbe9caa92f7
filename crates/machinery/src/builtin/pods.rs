//! Pods and what belongs to them.

mod columns;

use serde_json::Value;

use super::{AGE, NAME, compute, field};
use crate::{
    resource::{Row, SelectableField, Subresource, Tree},
    validation::pod,
};

const STATUS: Subresource = Subresource::status("Pod", "", "v1");

/// What is created below a pod is no change of the pod; the server knows what to make of it.
const ACTION: Subresource = Subresource { verbs: &["create"], ..STATUS };

pub const ROWS: &[Row] = &[
    Row {
        kind: "Pod",
        plural: "pods",
        singular: "pod",
        short_names: &["po"],
        categories: &["all"],
        type_name: "core/v1.Pod",
        grace: Some(pod::grace),
        subresources: &[
            Subresource { name: "binding", kind: "Binding", ..ACTION },
            Subresource {
                name: "ephemeralcontainers",
                prepare: pod::only_ephemeral_containers,
                validate: pod::added_ephemeral_containers,
                owns: &["spec.ephemeralContainers"],
                ..STATUS
            },
            Subresource { name: "eviction", kind: "Eviction", group: "policy", ..ACTION },
            Subresource { name: "exec", kind: "PodExecOptions", verbs: &["create", "get"], ..STATUS },
            Subresource { name: "log", verbs: &["get"], ..STATUS },
            Subresource {
                name: "resize",
                prepare: pod::only_resources,
                validate: pod::resized_pod,
                owns: &[
                    "spec.containers.*.resources",
                    "spec.containers.*.resizePolicy",
                    "spec.initContainers.*.resources",
                    "spec.initContainers.*.resizePolicy",
                ],
                ..STATUS
            },
            Subresource {
                prepare: pod::only_status,
                validate: pod::changed_status,
                resets: &["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"],
                ..STATUS
            },
        ],
        columns: &[
            NAME,
            compute("Ready", 0, columns::ready, "Containers that are ready, of all."),
            compute("Status", 0, columns::status, "What the containers say together."),
            compute("Restarts", 0, columns::restarts, "How often containers started again, and when last."),
            AGE,
            compute("IP", 1, columns::ip, "The pod's address."),
            compute("Node", 1, |it, _| columns::or_none(it, "/spec/nodeName"), "Where the pod runs."),
            compute(
                "Nominated Node",
                1,
                |it, _| columns::or_none(it, "/status/nominatedNodeName"),
                "Where the pod is meant to run once there is room.",
            ),
            compute(
                "Readiness Gates",
                1,
                columns::readiness_gates,
                "Conditions that are met, of those it waits for.",
            ),
        ],
        fields: &[
            field("spec.nodeName", &["spec.nodeName"]),
            field("spec.restartPolicy", &["spec.restartPolicy"]),
            field("spec.schedulerName", &["spec.schedulerName"]),
            field("spec.serviceAccountName", &["spec.serviceAccountName"]),
            SelectableField { absent: "false", ..field("spec.hostNetwork", &["spec.hostNetwork"]) },
            field("status.phase", &["status.phase"]),
            field("status.podIP", &["status.podIP"]),
            field("status.podIPs", &["status.podIPs"]),
            field("status.nominatedNodeName", &["status.nominatedNodeName"]),
        ],
        generation: true,
        returns_deleted: true,
        prepare_create: pod::prepare_pod,
        default: pod::default_pod,
        validate: pod::pod,
        warn: pod::pod_warnings,
        ..Row::PLAIN
    },
    Row {
        kind: "PodTemplate",
        plural: "podtemplates",
        singular: "podtemplate",
        type_name: "core/v1.PodTemplate",
        columns: &[
            NAME,
            compute("Containers", 0, |it, _| columns::containers(it, "name"), "Names of the containers."),
            compute("Images", 0, |it, _| columns::containers(it, "image"), "Images of the containers."),
            compute("Pod Labels", 0, columns::pod_labels, "Labels of pods from this template."),
        ],
        generation: true,
        returns_deleted: true,
        default: default_pod_template,
        validate: pod_template,
        warn: pod_template_warnings,
        ..Row::PLAIN
    },
];

fn default_pod_template(tree: &mut Tree) {
    if let Some(template) = tree.get_mut("template").and_then(Value::as_object_mut) {
        pod::default_template(template);
    }
}

fn template_of(tree: &Tree) -> Option<&Tree> {
    tree.get("template").and_then(Value::as_object)
}

fn pod_template(new: &Tree, old: Option<&Tree>) -> Vec<crate::field_error::Cause> {
    pod::template(template_of(new).unwrap_or(&Tree::new()), old.and_then(template_of), "template")
}

fn pod_template_warnings(new: &Tree, old: Option<&Tree>) -> Vec<String> {
    let template = template_of(new).filter(|template| old.and_then(template_of) != Some(template));
    template.map(|template| pod::template_warnings(template, "template")).unwrap_or_default()
}
