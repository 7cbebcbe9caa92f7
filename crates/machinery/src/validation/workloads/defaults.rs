//! What authors of workloads left open, and what only creation or an update sets.

use serde_json::{Value, json};

use crate::{
    gotext,
    resource::{Tree, only},
    validation::{
        members::{annotation, assign, default_to, made, set},
        parts::{flag, items_mut, object, object_mut, set_default, text},
        pod,
    },
};

/// Upstream keeps the number of a daemon set's template outside its spec for the sake of old clients.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";

const JOB_NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";
const CONTROLLER_UID_LABELS: [&str; 2] = ["controller-uid", CONTROLLER_UID];

/// A new object has no history yet.
pub fn zero_status(tree: &mut Tree, zero: Value) {
    tree.insert("status".into(), zero);
}

fn default_pod_template(spec: &mut Tree) {
    if let Some(template) = object_mut(spec, "template") {
        pod::default_template(template);
    }
}

/// The labels of a template, if it has any.
fn template_labels(spec: &Tree) -> Option<&Tree> {
    let metadata = object(spec, "template").and_then(|template| object(template, "metadata"));
    metadata.and_then(|metadata| object(metadata, "labels")).filter(|labels| !labels.is_empty())
}

/// An object without labels is labelled as its pods are.
fn label_as_template(tree: &mut Tree) {
    let labels = object(tree, "spec").and_then(template_labels).cloned();
    if let Some(labels) = labels {
        let metadata = made(tree, "metadata");
        if object(metadata, "labels").is_none_or(Tree::is_empty) {
            metadata.insert("labels".into(), Value::Object(labels));
        }
    }
}

pub fn default_replication_controller(tree: &mut Tree) {
    let spec = made(tree, "spec");
    let labels = template_labels(spec).cloned();
    if let Some(labels) = labels
        && object(spec, "selector").is_none_or(Tree::is_empty)
    {
        spec.insert("selector".into(), Value::Object(labels));
    }
    default_to(spec, "replicas", 1);
    default_pod_template(spec);
    label_as_template(tree);
}

pub fn default_replica_set(tree: &mut Tree) {
    let spec = made(tree, "spec");
    default_to(spec, "replicas", 1);
    default_pod_template(spec);
}

pub fn default_deployment(tree: &mut Tree) {
    let spec = made(tree, "spec");
    default_to(spec, "replicas", 1);
    let strategy = made(spec, "strategy");
    set_default(strategy, "type", "RollingUpdate");
    if text(strategy, "type") == "RollingUpdate" {
        let rolling = made(strategy, "rollingUpdate");
        default_to(rolling, "maxUnavailable", "25%");
        default_to(rolling, "maxSurge", "25%");
    }
    default_to(spec, "revisionHistoryLimit", 10);
    default_to(spec, "progressDeadlineSeconds", 600);
    default_pod_template(spec);
}

/// The status of a deployment is written without changing its labels.
pub fn only_deployment_status(new: &mut Tree, old: &Tree) {
    only(new, old, "status");
    let labels = object(old, "metadata").and_then(|metadata| metadata.get("labels")).cloned();
    assign(made(new, "metadata"), "labels", labels);
}

pub fn default_daemon_set(tree: &mut Tree) {
    let spec = made(tree, "spec");
    let strategy = made(spec, "updateStrategy");
    set_default(strategy, "type", "RollingUpdate");
    if text(strategy, "type") == "RollingUpdate" {
        let rolling = made(strategy, "rollingUpdate");
        default_to(rolling, "maxUnavailable", 1);
        default_to(rolling, "maxSurge", 0);
    } else if let Some(rolling) = object_mut(strategy, "rollingUpdate") {
        // Not used then, but never without numbers.
        default_to(rolling, "maxUnavailable", 0);
        default_to(rolling, "maxSurge", 0);
    }
    default_to(spec, "revisionHistoryLimit", 10);
    default_pod_template(spec);
}

/// What Go says of a text that is no number of 64 bits.
fn number_in(text: &str) -> Result<(), String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let why = match digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        true => "invalid syntax",
        false if text.parse::<i64>().is_err() => "value out of range",
        false => return Ok(()),
    };
    Err(format!("strconv.ParseInt: parsing {}: {why}", gotext::quote(text)))
}

/// A daemon set says which of its templates it has in an annotation; who sends it may only send a number.
pub fn has_template_generation(tree: &Tree) -> Result<(), String> {
    let annotations = object(tree, "metadata").and_then(|metadata| object(metadata, "annotations"));
    let generation = annotations.and_then(|annotations| annotations.get(TEMPLATE_GENERATION));
    generation.and_then(Value::as_str).map_or(Ok(()), number_in)
}

/// So old clients ask for an earlier template of a deployment.
pub fn has_rollback_revision(tree: &Tree) -> Result<(), String> {
    match annotation(tree, ROLLBACK_TO) {
        "" => Ok(()),
        revision => number_in(revision).map_err(|error| {
            format!("failed to parse annotation[{ROLLBACK_TO}]={revision} as int64: {error}")
        }),
    }
}

/// The number of a daemon set's template; 0 if it has none.
pub fn template_generation(tree: &Tree) -> i64 {
    annotation(tree, TEMPLATE_GENERATION).parse().unwrap_or(0)
}

fn set_template_generation(tree: &mut Tree, generation: i64) {
    let annotations = made(made(tree, "metadata"), "annotations");
    annotations.insert(TEMPLATE_GENERATION.into(), json!(generation.to_string()));
}

pub fn prepare_daemon_set(tree: &mut Tree) {
    zero_status(
        tree,
        json!({
            "currentNumberScheduled": 0,
            "numberMisscheduled": 0,
            "desiredNumberScheduled": 0,
            "numberReady": 0,
        }),
    );
    let generation = template_generation(tree).max(1);
    set_template_generation(tree, generation);
}

/// A daemon set's status is written without changing the number of its template.
pub fn only_daemon_set_status(new: &mut Tree, old: &Tree) {
    only(new, old, "status");
    set_template_generation(new, template_generation(old));
}

/// A changed template counts up, and nothing else does.
pub fn count_daemon_set_template(new: &mut Tree, old: &Tree) {
    default_daemon_set(new);
    let template = |tree: &Tree| object(tree, "spec").and_then(|spec| spec.get("template")).cloned();
    let changed = template(new) != template(old);
    set_template_generation(new, template_generation(old).saturating_add(i64::from(changed)));
}

pub fn default_stateful_set(tree: &mut Tree) {
    let spec = made(tree, "spec");
    set_default(spec, "podManagementPolicy", "OrderedReady");
    let strategy = made(spec, "updateStrategy");
    if text(strategy, "type").is_empty() {
        strategy.insert("type".into(), json!("RollingUpdate"));
        made(strategy, "rollingUpdate");
    }
    if text(strategy, "type") == "RollingUpdate"
        && let Some(rolling) = object_mut(strategy, "rollingUpdate")
    {
        default_to(rolling, "partition", 0);
    }
    let retention = made(spec, "persistentVolumeClaimRetentionPolicy");
    set_default(retention, "whenDeleted", "Retain");
    set_default(retention, "whenScaled", "Retain");
    default_to(spec, "replicas", 1);
    default_to(spec, "revisionHistoryLimit", 10);
    for claim in items_mut(spec, "volumeClaimTemplates") {
        default_claim_template(claim);
    }
    default_pod_template(spec);
}

fn default_claim_template(claim: &mut Tree) {
    claim.insert("kind".into(), json!("PersistentVolumeClaim"));
    claim.insert("apiVersion".into(), json!("v1"));
    set_default(made(claim, "status"), "phase", "Pending");
    default_to(made(claim, "spec"), "volumeMode", "Filesystem");
}

pub fn prepare_stateful_set(tree: &mut Tree) {
    zero_status(tree, json!({"replicas": 0, "availableReplicas": 0}));
    drop_max_unavailable(tree);
}

/// A field of a feature that is off: kept only where a stored object has it already.
pub fn keep_stateful_set_features(new: &mut Tree, old: &Tree) {
    let strategy = object(old, "spec").and_then(|spec| object(spec, "updateStrategy"));
    let rolling = strategy.and_then(|strategy| object(strategy, "rollingUpdate"));
    if rolling.is_none_or(|rolling| set(rolling, "maxUnavailable").is_none()) {
        drop_max_unavailable(new);
    }
}

fn drop_max_unavailable(tree: &mut Tree) {
    let strategy = object_mut(tree, "spec").and_then(|spec| object_mut(spec, "updateStrategy"));
    if let Some(rolling) = strategy.and_then(|strategy| object_mut(strategy, "rollingUpdate")) {
        rolling.remove("maxUnavailable");
    }
}

fn default_job_spec(spec: &mut Tree) {
    for rule in object_mut(spec, "podFailurePolicy").into_iter().flat_map(|policy| items_mut(policy, "rules"))
    {
        for pattern in items_mut(rule, "onPodConditions") {
            set_default(pattern, "status", "True");
        }
    }
    default_pod_template(spec);
}

pub fn default_job(tree: &mut Tree) {
    let spec = made(tree, "spec");
    if set(spec, "completions").is_none() && set(spec, "parallelism").is_none() {
        spec.insert("completions".into(), json!(1));
    }
    default_to(spec, "parallelism", 1);
    let by_index = set(spec, "backoffLimitPerIndex").is_some();
    default_to(spec, "backoffLimit", if by_index { i32::MAX } else { 6 });
    default_to(spec, "completionMode", "NonIndexed");
    default_to(spec, "suspend", false);
    let has_failure_policy = set(spec, "podFailurePolicy").is_some();
    default_to(
        spec,
        "podReplacementPolicy",
        if has_failure_policy { "Failed" } else { "TerminatingOrFailed" },
    );
    default_to(spec, "manualSelector", false);
    default_job_spec(spec);
    // Generated labels are its own as well, so that it waits for them.
    let complete = template_labels(spec).is_some_and(|labels| labels.contains_key(CONTROLLER_UID));
    if complete || flag(spec, "manualSelector") {
        label_as_template(tree);
    }
}

/// A job selects its pods by its own unique id, unless its author looks after that.
pub fn prepare_job(tree: &mut Tree) {
    zero_status(tree, json!({}));
    let metadata = object(tree, "metadata");
    let [name, uid] = ["name", "uid"].map(|key| metadata.map_or("", |it| text(it, key)).to_owned());
    let spec = made(tree, "spec");
    if flag(spec, "manualSelector") {
        return;
    }
    let labels = made(made(made(spec, "template"), "metadata"), "labels");
    for label in JOB_NAME_LABELS {
        default_to(labels, label, name.as_str());
    }
    for label in CONTROLLER_UID_LABELS {
        default_to(labels, label, uid.as_str());
    }
    let selected = made(made(spec, "selector"), "matchLabels");
    default_to(selected, CONTROLLER_UID, uid.as_str());
}

pub fn default_cron_job(tree: &mut Tree) {
    let spec = made(tree, "spec");
    set_default(spec, "concurrencyPolicy", "Allow");
    default_to(spec, "suspend", false);
    default_to(spec, "successfulJobsHistoryLimit", 3);
    default_to(spec, "failedJobsHistoryLimit", 1);
    if let Some(job) = object_mut(spec, "jobTemplate").and_then(|template| object_mut(template, "spec")) {
        default_job_spec(job);
    }
}

pub fn prepare_disruption_budget(tree: &mut Tree) {
    zero_status(
        tree,
        json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}),
    );
}
