//! Kinds that make pods.

mod cells;
mod targets;

use serde_json::json;

use super::{AGE, NAME, at, compute, field, path};
use crate::{
    names,
    resource::{Column, Conversion, Row, Scale, SelectableField, Subresource},
    validation::workloads as v,
};
use cells::*;

const APPS: Row = Row { group: "apps", generation: true, categories: &["all"], ..Row::PLAIN };
const BATCH: Row = Row { group: "batch", generation: true, categories: &["all"], ..Row::PLAIN };

const REPLICAS: Option<Scale> = Some(Scale {
    spec_replicas: ".spec.replicas",
    status_replicas: ".status.replicas",
    selector: ".spec.selector",
});

const STATUS_REPLICAS: &[SelectableField] =
    &[SelectableField { absent: "0", ..field("status.replicas", &["status.replicas"]) }];

const CONTAINERS: Column = compute(
    "Containers",
    1,
    |o, _| containers(o, "/spec/template/spec/containers", "/name"),
    "Names of the template's containers.",
);
const IMAGES: Column = compute(
    "Images",
    1,
    |o, _| containers(o, "/spec/template/spec/containers", "/image"),
    "Images of the template's containers.",
);
const SELECTOR: Column = compute(
    "Selector",
    1,
    |o, _| formatted_selector(o, "/spec/selector"),
    "Labels of the pods that belong to it.",
);

/// A number that is zero where it is left out.
const fn number(
    name: &'static str,
    cell: fn(&serde_json::Value, i64) -> serde_json::Value,
    description: &'static str,
) -> Column {
    Column { kind: "integer", ..compute(name, 0, cell, description) }
}

const DESIRED: Column =
    number("Desired", |o, _| json!(count(o, "/spec/replicas")), "How many pods are wanted.");
const CURRENT: Column =
    number("Current", |o, _| json!(count(o, "/status/replicas")), "How many pods there are.");
const READY: Column =
    number("Ready", |o, _| json!(count(o, "/status/readyReplicas")), "How many of them are ready.");

const AUTOSCALER: Row = Row {
    group: "autoscaling",
    kind: "HorizontalPodAutoscaler",
    plural: "horizontalpodautoscalers",
    singular: "horizontalpodautoscaler",
    short_names: &["hpa"],
    categories: &["all"],
    columns: &[
        NAME,
        compute("Reference", 0, scale_target, "What is scaled."),
        compute("Targets", 0, targets::targets, "Measured and wanted values."),
        compute("MinPods", 0, min_pods, "The fewest replicas."),
        compute("MaxPods", 0, |o, _| json!(count(o, "/spec/maxReplicas")), "The most replicas."),
        compute("Replicas", 0, |o, _| json!(count(o, "/status/currentReplicas")), "Replicas now."),
        AGE,
    ],
    prepare_create: v::prepare_autoscaler,
    prepare_update: |new, _| v::drop_autoscaler_annotations(new),
    default: v::default_autoscaler,
    validate: v::autoscaler,
    ..Row::PLAIN
};

pub const ROWS: &[Row] = &[
    Row {
        kind: "ReplicationController",
        plural: "replicationcontrollers",
        singular: "replicationcontroller",
        short_names: &["rc"],
        categories: &["all"],
        generation: true,
        type_name: "core/v1.ReplicationController",
        name_rule: names::long_name,
        orphans_by_default: true,
        subresources: &[
            Subresource::SCALE,
            Subresource {
                validate: v::replication_controller_status,
                ..Subresource::status("ReplicationController", "", "v1")
            },
        ],
        scale: REPLICAS,
        fields: STATUS_REPLICAS,
        columns: &[
            NAME,
            DESIRED,
            CURRENT,
            READY,
            AGE,
            CONTAINERS,
            IMAGES,
            compute(
                "Selector",
                1,
                |o, _| labels(o, "/spec/selector"),
                "Labels of the pods that belong to it.",
            ),
        ],
        prepare_create: |new| v::zero_status(new, json!({"replicas": 0})),
        default: v::default_replication_controller,
        validate: v::replication_controller,
        warn: v::warn_replication_controller,
        ..Row::PLAIN
    },
    Row {
        kind: "ControllerRevision",
        plural: "controllerrevisions",
        singular: "controllerrevision",
        categories: &[],
        generation: false,
        type_name: "apps/v1.ControllerRevision",
        columns: &[
            NAME,
            compute("Controller", 0, controller, "Whose revision it is."),
            compute("Revision", 0, |o, _| json!(count(o, "/revision")), "Its number."),
            AGE,
        ],
        validate: v::controller_revision,
        ..APPS
    },
    Row {
        kind: "DaemonSet",
        plural: "daemonsets",
        singular: "daemonset",
        short_names: &["ds"],
        type_name: "apps/v1.DaemonSet",
        subresources: &[Subresource {
            prepare: v::only_daemon_set_status,
            validate: v::daemon_set_status,
            ..Subresource::status("DaemonSet", "apps", "v1")
        }],
        columns: &[
            NAME,
            number(
                "Desired",
                |o, _| json!(count(o, "/status/desiredNumberScheduled")),
                "Nodes that should have its pod.",
            ),
            number(
                "Current",
                |o, _| json!(count(o, "/status/currentNumberScheduled")),
                "Nodes that have it.",
            ),
            number("Ready", |o, _| json!(count(o, "/status/numberReady")), "Nodes on which it is ready."),
            number(
                "Up-to-date",
                |o, _| json!(count(o, "/status/updatedNumberScheduled")),
                "Nodes with the newest template.",
            ),
            number(
                "Available",
                |o, _| json!(count(o, "/status/numberAvailable")),
                "Nodes on which it is available.",
            ),
            compute(
                "Node Selector",
                0,
                |o, _| labels(o, "/spec/template/spec/nodeSelector"),
                "Labels of the nodes.",
            ),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        readable: v::has_template_generation,
        prepare_create: v::prepare_daemon_set,
        prepare_update: v::count_daemon_set_template,
        default: v::default_daemon_set,
        validate: v::daemon_set,
        warn: v::warn_daemon_set,
        ..APPS
    },
    Row {
        kind: "Deployment",
        plural: "deployments",
        singular: "deployment",
        short_names: &["deploy"],
        type_name: "apps/v1.Deployment",
        generation_counts_annotations: true,
        subresources: &[
            Subresource::SCALE,
            Subresource {
                prepare: v::only_deployment_status,
                resets: &["spec", "metadata.labels"],
                validate: v::deployment_status,
                ..Subresource::status("Deployment", "apps", "v1")
            },
        ],
        scale: REPLICAS,
        columns: &[
            NAME,
            compute("Ready", 0, ready_of_desired, "Ready pods, and how many are wanted."),
            compute(
                "Up-to-date",
                0,
                |o, _| json!(count(o, "/status/updatedReplicas")),
                "Pods of the newest template.",
            ),
            compute(
                "Available",
                0,
                |o, _| json!(count(o, "/status/availableReplicas")),
                "Pods that are available.",
            ),
            AGE,
            CONTAINERS,
            IMAGES,
            compute("Selector", 1, deployment_selector, "Labels of the pods that belong to it."),
        ],
        readable: v::has_rollback_revision,
        prepare_create: |new| v::zero_status(new, json!({})),
        default: v::default_deployment,
        validate: v::deployment,
        warn: v::warn_deployment,
        ..APPS
    },
    Row {
        kind: "ReplicaSet",
        plural: "replicasets",
        singular: "replicaset",
        short_names: &["rs"],
        type_name: "apps/v1.ReplicaSet",
        subresources: &[
            Subresource::SCALE,
            Subresource {
                validate: v::replica_set_status,
                ..Subresource::status("ReplicaSet", "apps", "v1")
            },
        ],
        scale: REPLICAS,
        fields: STATUS_REPLICAS,
        columns: &[NAME, DESIRED, CURRENT, READY, AGE, CONTAINERS, IMAGES, SELECTOR],
        prepare_create: |new| v::zero_status(new, json!({"replicas": 0})),
        default: v::default_replica_set,
        validate: v::replica_set,
        warn: v::warn_replica_set,
        ..APPS
    },
    Row {
        kind: "StatefulSet",
        plural: "statefulsets",
        singular: "statefulset",
        short_names: &["sts"],
        type_name: "apps/v1.StatefulSet",
        name_rule: names::label_name,
        subresources: &[
            Subresource::SCALE,
            Subresource {
                validate: v::stateful_set_status,
                ..Subresource::status("StatefulSet", "apps", "v1")
            },
        ],
        scale: REPLICAS,
        columns: &[
            NAME,
            compute("Ready", 0, ready_of_desired, "Ready pods, and how many are wanted."),
            AGE,
            CONTAINERS,
            IMAGES,
        ],
        prepare_create: v::prepare_stateful_set,
        prepare_update: v::keep_stateful_set_features,
        default: v::default_stateful_set,
        validate: v::stateful_set,
        warn: v::warn_stateful_set,
        ..APPS
    },
    // Clients prefer the first.
    Row {
        version: "v2",
        type_name: "autoscaling/v2.HorizontalPodAutoscaler",
        subresources: &[Subresource {
            prepare: v::only_autoscaler_status,
            validate: v::autoscaler_status,
            ..Subresource::status("HorizontalPodAutoscaler", "autoscaling", "v2")
        }],
        ..AUTOSCALER
    },
    Row {
        version: "v1",
        type_name: "autoscaling/v1.HorizontalPodAutoscaler",
        subresources: &[Subresource {
            prepare: v::only_autoscaler_status,
            validate: v::autoscaler_status,
            ..Subresource::status("HorizontalPodAutoscaler", "autoscaling", "v1")
        }],
        stored_as: Some(("autoscaling", "v2")),
        convert: Some(Conversion { to_storage: v::autoscaler_from_v1, from_storage: v::autoscaler_to_v1 }),
        ..AUTOSCALER
    },
    Row {
        kind: "CronJob",
        plural: "cronjobs",
        singular: "cronjob",
        short_names: &["cj"],
        type_name: "batch/v1.CronJob",
        subresources: &[Subresource::status("CronJob", "batch", "v1")],
        columns: &[
            NAME,
            path("Schedule", 0, ".spec.schedule", "When jobs start, in Cron's notation."),
            compute("Timezone", 0, time_zone, "The time zone of the schedule."),
            Column { kind: "boolean", ..compute("Suspend", 0, suspend, "Whether it rests.") },
            number("Active", |o, _| json!(length(o, "/status/active")), "Jobs that run now."),
            compute("Last Schedule", 0, last_schedule, "When a job was last started."),
            AGE,
            compute(
                "Containers",
                1,
                |o, _| containers(o, "/spec/jobTemplate/spec/template/spec/containers", "/name"),
                "Names of the template's containers.",
            ),
            compute(
                "Images",
                1,
                |o, _| containers(o, "/spec/jobTemplate/spec/template/spec/containers", "/image"),
                "Images of the template's containers.",
            ),
            compute(
                "Selector",
                1,
                |o, _| formatted_selector(o, "/spec/jobTemplate/spec/selector"),
                "Labels of the pods that belong to it.",
            ),
        ],
        prepare_create: |new| v::zero_status(new, json!({})),
        default: v::default_cron_job,
        validate: v::cron_job,
        warn: v::warn_cron_job,
        ..BATCH
    },
    Row {
        kind: "Job",
        plural: "jobs",
        singular: "job",
        orphans_by_default: true,
        type_name: "batch/v1.Job",
        subresources: &[Subresource { validate: v::job_status, ..Subresource::status("Job", "batch", "v1") }],
        fields: &[SelectableField { absent: "0", ..field("status.successful", &["status.succeeded"]) }],
        columns: &[
            NAME,
            compute("Status", 0, job_status, "The state of the job."),
            compute("Completions", 0, completions, "Pods that succeeded, and how many must."),
            compute("Duration", 0, job_duration, "How long it took, or takes so far."),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        prepare_create: v::prepare_job,
        default: v::default_job,
        validate: v::job,
        warn: v::warn_job,
        ..BATCH
    },
    Row {
        group: "policy",
        kind: "PodDisruptionBudget",
        plural: "poddisruptionbudgets",
        singular: "poddisruptionbudget",
        short_names: &["pdb"],
        type_name: "policy/v1.PodDisruptionBudget",
        name_rule: names::path_segment_name,
        qualified_finalizers: false,
        generation: true,
        unconditional_update: false,
        subresources: &[Subresource {
            validate: v::disruption_budget_status,
            ..Subresource::status("PodDisruptionBudget", "policy", "v1")
        }],
        columns: &[
            NAME,
            compute("Min Available", 0, |o, _| bound(o, "/spec/minAvailable"), "How many pods must stay."),
            compute("Max Unavailable", 0, |o, _| bound(o, "/spec/maxUnavailable"), "How many pods may go."),
            number(
                "Allowed Disruptions",
                |o, _| json!(count(o, "/status/disruptionsAllowed")),
                "How many more pods may go now.",
            ),
            AGE,
        ],
        prepare_create: v::prepare_disruption_budget,
        validate: v::disruption_budget,
        ..Row::PLAIN
    },
];
