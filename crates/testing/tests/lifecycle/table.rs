//! The cases, and where the clusters may differ.

pub struct Case {
    /// Also its namespace.
    pub name: &'static str,
    pub steps: &'static [Step],
}

pub enum Step {
    /// Creates these objects.
    Create(&'static str),
    /// Merges JSON into an object; `deployments.apps/web`.
    Patch(&'static str, &'static str),
    /// Deletes an object.
    Delete(&'static str),
    /// Waits until an object has this JSON at a place.
    Until(&'static str, &'static str, &'static str),
    /// Waits until an object has anything at a place.
    Has(&'static str, &'static str),
}

use Step::{Create, Delete, Has, Patch, Until};

const DEPLOYMENT: &str = include_str!("cases/deployment.yaml");
const WEB: &str = "deployments.apps/web";
const COMPLETE: Step = Until(WEB, "/status/conditions/1/reason", "\"NewReplicaSetAvailable\"");
const NEW_IMAGE: &str =
    r#"{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"example.com/web:2"}]}}}}"#;

pub const CASES: &[Case] = &[
    // First, because it waits for the minute.
    Case {
        name: "cron-job-ran",
        steps: &[
            Create(include_str!("cases/cron-job-ran.yaml")),
            Has("cronjobs.batch/tick", "/status/lastSuccessfulTime"),
            Patch("cronjobs.batch/tick", r#"{"spec":{"suspend":true}}"#),
        ],
    },
    Case {
        name: "deployment",
        steps: &[Create(DEPLOYMENT), Until(WEB, "/status/availableReplicas", "3"), COMPLETE],
    },
    Case {
        name: "deployment-rolled",
        steps: &[
            Create(DEPLOYMENT),
            Until(WEB, "/status/availableReplicas", "3"),
            Patch(WEB, NEW_IMAGE),
            Until(WEB, "/metadata/annotations/deployment.kubernetes.io~1revision", "\"2\""),
            Until(WEB, "/status/updatedReplicas", "3"),
            Until(WEB, "/status/replicas", "3"),
        ],
    },
    Case {
        name: "deployment-rolled-back",
        steps: &[
            Create(DEPLOYMENT),
            Until(WEB, "/status/availableReplicas", "3"),
            Patch(WEB, NEW_IMAGE),
            Until(WEB, "/metadata/annotations/deployment.kubernetes.io~1revision", "\"2\""),
            Until(WEB, "/status/updatedReplicas", "3"),
            Until(WEB, "/status/replicas", "3"),
            Patch(
                WEB,
                r#"{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"example.com/web:1","ports":[{"name":"http","containerPort":8080}]}]}}}}"#,
            ),
            Until(WEB, "/metadata/annotations/deployment.kubernetes.io~1revision", "\"3\""),
            Until(WEB, "/status/updatedReplicas", "3"),
            Until(WEB, "/status/replicas", "3"),
        ],
    },
    Case {
        name: "deployment-scaled",
        steps: &[
            Create(DEPLOYMENT),
            Until(WEB, "/status/availableReplicas", "3"),
            Patch(WEB, r#"{"spec":{"replicas":1}}"#),
            Until(WEB, "/status/replicas", "1"),
        ],
    },
    Case {
        name: "deployment-paused",
        steps: &[
            Create(DEPLOYMENT),
            Until(WEB, "/status/availableReplicas", "3"),
            Patch(WEB, r#"{"spec":{"paused":true}}"#),
            Patch(WEB, NEW_IMAGE),
        ],
    },
    Case {
        name: "deployment-recreated",
        steps: &[
            Create(include_str!("cases/deployment-recreate.yaml")),
            Until(WEB, "/status/availableReplicas", "2"),
            Patch(WEB, NEW_IMAGE),
            Until(WEB, "/metadata/annotations/deployment.kubernetes.io~1revision", "\"2\""),
            Until(WEB, "/status/availableReplicas", "2"),
        ],
    },
    Case {
        name: "deployment-stuck",
        steps: &[
            Create(include_str!("cases/deployment-stuck.yaml")),
            Until(WEB, "/status/conditions/1/reason", "\"ProgressDeadlineExceeded\""),
        ],
    },
    Case {
        name: "deployment-over-quota",
        steps: &[
            Create(include_str!("cases/quota.yaml")),
            Until("resourcequotas/few", "/status/hard/pods", "\"1\""),
            Create(DEPLOYMENT),
            Until(WEB, "/status/availableReplicas", "1"),
        ],
    },
    Case {
        name: "replica-set",
        steps: &[
            Create(include_str!("cases/replica-set.yaml")),
            Until("replicasets.apps/web", "/status/availableReplicas", "2"),
        ],
    },
    Case {
        name: "replication-controller",
        steps: &[
            Create(include_str!("cases/replication-controller.yaml")),
            Until("replicationcontrollers/web", "/status/availableReplicas", "2"),
        ],
    },
    Case {
        name: "stateful-set",
        steps: &[
            Create(include_str!("cases/stateful-set.yaml")),
            Until("statefulsets.apps/db", "/status/availableReplicas", "3"),
            Patch("statefulsets.apps/db", r#"{"spec":{"replicas":2}}"#),
            Until("statefulsets.apps/db", "/status/replicas", "2"),
        ],
    },
    Case {
        name: "stateful-set-partly-updated",
        steps: &[
            Create(include_str!("cases/stateful-set.yaml")),
            Until("statefulsets.apps/db", "/status/availableReplicas", "3"),
            Patch(
                "statefulsets.apps/db",
                r#"{"spec":{"updateStrategy":{"rollingUpdate":{"partition":2}},"template":{"spec":{"containers":[{"name":"main","image":"example.com/db:2"}]}}}}"#,
            ),
            Until("statefulsets.apps/db", "/status/updatedReplicas", "1"),
            Until("statefulsets.apps/db", "/status/availableReplicas", "3"),
        ],
    },
    Case {
        name: "daemon-set",
        steps: &[
            Create(include_str!("cases/daemon-set.yaml")),
            Until("daemonsets.apps/agent", "/status/numberAvailable", "2"),
            Patch(
                "daemonsets.apps/agent",
                r#"{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"example.com/agent:2"}]}}}}"#,
            ),
            Until("daemonsets.apps/agent", "/status/observedGeneration", "2"),
            Until("daemonsets.apps/agent", "/status/updatedNumberScheduled", "2"),
            Until("daemonsets.apps/agent", "/status/numberAvailable", "2"),
        ],
    },
    Case {
        name: "job",
        steps: &[
            Create(include_str!("cases/job.yaml")),
            Until("jobs.batch/work", "/status/conditions/1/type", "\"Complete\""),
        ],
    },
    Case {
        name: "job-indexed",
        steps: &[
            Create(include_str!("cases/job-indexed.yaml")),
            Until("jobs.batch/work", "/status/conditions/1/type", "\"Complete\""),
        ],
    },
    Case {
        name: "job-suspended",
        steps: &[
            Create(include_str!("cases/job-suspended.yaml")),
            Until("jobs.batch/work", "/status/conditions/0/type", "\"Suspended\""),
        ],
    },
    Case {
        name: "job-late",
        steps: &[
            Create(include_str!("cases/job-late.yaml")),
            Until("jobs.batch/work", "/status/conditions/1/type", "\"Failed\""),
        ],
    },
    Case {
        name: "job-failed",
        steps: &[
            Create(include_str!("cases/job-failed.yaml")),
            Until("jobs.batch/work", "/status/conditions/1/type", "\"Failed\""),
        ],
    },
    Case {
        name: "job-failed-by-policy",
        steps: &[
            Create(include_str!("cases/job-failed-by-policy.yaml")),
            Until("jobs.batch/work", "/status/conditions/1/type", "\"Failed\""),
        ],
    },
    Case {
        name: "job-indexes-failed",
        steps: &[
            Create(include_str!("cases/job-indexes-failed.yaml")),
            Until("jobs.batch/work", "/status/conditions/1/type", "\"Failed\""),
        ],
    },
    Case {
        name: "job-enough",
        steps: &[
            Create(include_str!("cases/job-enough.yaml")),
            Until("jobs.batch/work", "/status/conditions/1/type", "\"Complete\""),
        ],
    },
    Case { name: "cron-job", steps: &[Create(include_str!("cases/cron-job.yaml"))] },
    Case {
        name: "autoscaler",
        steps: &[
            Create(DEPLOYMENT),
            Until(WEB, "/status/availableReplicas", "3"),
            Create(include_str!("cases/autoscaler.yaml")),
            Until(WEB, "/status/availableReplicas", "4"),
            Until(
                "horizontalpodautoscalers.autoscaling/web",
                "/status/conditions/1/reason",
                "\"FailedGetResourceMetric\"",
            ),
        ],
    },
    Case {
        name: "autoscaler-lost",
        steps: &[
            Create(include_str!("cases/autoscaler-lost.yaml")),
            Until(
                "horizontalpodautoscalers.autoscaling/lost",
                "/status/conditions/0/reason",
                "\"FailedGetScale\"",
            ),
        ],
    },
    Case {
        name: "budgets",
        steps: &[
            Create(DEPLOYMENT),
            Until(WEB, "/status/availableReplicas", "3"),
            Create(include_str!("cases/budgets.yaml")),
            Until("poddisruptionbudgets.policy/most", "/status/disruptionsAllowed", "1"),
            Until("poddisruptionbudgets.policy/none", "/status/observedGeneration", "1"),
        ],
    },
    Case {
        name: "services",
        steps: &[
            Create(include_str!("cases/services.yaml")),
            Create(DEPLOYMENT),
            Until(WEB, "/status/availableReplicas", "3"),
            Patch(WEB, r#"{"spec":{"replicas":2}}"#),
            Until(WEB, "/status/replicas", "2"),
        ],
    },
    Case {
        name: "services-written",
        steps: &[
            Create(include_str!("cases/services-written.yaml")),
            // Long enough to be mirrored.
            Create(DEPLOYMENT),
            Until(WEB, "/status/availableReplicas", "3"),
            Patch("endpoints/written", r#"{"metadata":{"labels":{"more":"yes"}}}"#),
            Delete("services/gone"),
        ],
    },
    Case {
        name: "preemption",
        steps: &[
            Create(include_str!("cases/preemption.yaml")),
            Until("pods/first", "/status/phase", "\"Running\""),
            Create(include_str!("cases/preemptor.yaml")),
            Until("pods/important", "/status/phase", "\"Running\""),
        ],
    },
    Case {
        name: "volumes",
        steps: &[
            Create(include_str!("cases/volumes.yaml")),
            Until("persistentvolumes/lifecycle-small", "/status/phase", "\"Available\""),
            Until("persistentvolumes/lifecycle-large", "/status/phase", "\"Available\""),
            Create(include_str!("cases/claims.yaml")),
            Until("persistentvolumeclaims/data", "/status/phase", "\"Bound\""),
        ],
    },
    Case {
        name: "volumes-released",
        steps: &[
            Create(include_str!("cases/volume-left.yaml")),
            Until("persistentvolumes/lifecycle-left", "/status/phase", "\"Available\""),
            Create(include_str!("cases/claim-gone.yaml")),
            Until("persistentvolumeclaims/data", "/status/phase", "\"Bound\""),
            Delete("persistentvolumeclaims/data"),
        ],
    },
];

/// Case (or `*`), place, and why the clusters may differ there. A place may have `*` for any part of it.
pub const ACCEPTED: &[(&str, &str, &str)] = &[(
    "autoscaler",
    "horizontalpodautoscalers/web#0/status/conditions/*/message",
    "the real one has no API for metrics; the simulated one knows what pods use without one, but nobody said",
)];
