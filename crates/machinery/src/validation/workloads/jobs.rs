//! Jobs, and the jobs that cron jobs make.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    indexes,
    shared::{NOT_SELECTED, counters, domain_prefixed_path, or_null, selects, template_labels},
};
use crate::{
    field_error::Cause,
    gotext, names,
    resource::Tree,
    schema::{Spelling, written},
    selector::{self, LabelSelector},
    validation::{
        members::{assign, count, made, metadata, name_prefix, set},
        parts::{
            IMMUTABLE, Path, flag, items, list, not_negative, number, object, object_mut, qualified_name,
            text,
        },
        pod,
    },
};

const SPEC: Path<'static> = Path::new("spec");
const INDEXED: &str = "Indexed";
const NON_INDEXED: &str = "NonIndexed";

const MAX_PARALLELISM_OF_INDEXED: i64 = 100_000;
const MAX_FAILED_INDEXES: i64 = 100_000;
/// Above it, the numbers that a job with a limit per index can have are smaller.
const MANY_COMPLETIONS: i64 = 100_000;
const LIMIT_FOR_MANY_COMPLETIONS: i64 = 10_000;
const MAX_RULES: usize = 20;
const MAX_EXIT_CODES: usize = 255;
const MAX_PATTERNS: usize = 20;
const MAX_MANAGED_BY: usize = 63;
const MAX_SUCCEEDED_INDEXES: usize = 64 * 1024;

/// What an update of a job may do, by the state in which the job is.
struct Freedom {
    scheduling: bool,
    resources: bool,
    /// The template has the labels that newer servers generate.
    prefixed_labels: bool,
}

impl Freedom {
    fn of(old: Option<&Tree>) -> Self {
        let Some(old) = old else {
            return Freedom { scheduling: false, resources: false, prefixed_labels: true };
        };
        let empty = Tree::new();
        let spec = object(old, "spec").unwrap_or(&empty);
        let status = object(old, "status").unwrap_or(&empty);
        let rests = set(status, "startTime").is_none() || super::job_status::holds(old, "Suspended");
        let free = flag(spec, "suspend") && rests && count(status, "active") == 0;
        let labels = object(spec, "template").map_or(&Value::Null, template_labels);
        let prefixed = ["batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid"];
        Freedom {
            scheduling: free,
            resources: free,
            prefixed_labels: prefixed.iter().all(|label| labels.get(*label).is_some()),
        }
    }
}

pub fn job(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let empty = Tree::new();
    let spec = object(new, "spec").unwrap_or(&empty);
    let old_spec = old.map(|old| object(old, "spec").unwrap_or(&empty));
    let freedom = Freedom::of(old);
    let mut causes = name_prefix(new, old);
    causes.extend(generated_selector(new, spec, freedom.prefixed_labels));
    causes.extend(selecting_spec(spec, old_spec));
    let completions = number(spec, "completions").filter(|_| text(spec, "completionMode") == INDEXED);
    if let Some(completions @ 1..) = completions {
        let name = metadata(new, "name");
        let hostname = format!("{name}-{}", completions - 1);
        if !names::is_dns1123_label(&hostname).is_empty() {
            let detail = format!("will not able to create pod with invalid DNS label: {hostname}");
            causes.push(Cause::invalid("metadata.name", &json!(name), &detail));
        }
    }
    if let Some(old_spec) = old_spec {
        // Upstream looks at the spec twice.
        causes.extend(selecting_spec(spec, Some(old_spec)));
        causes.extend(spec_update(spec, old_spec, &freedom));
    }
    causes
}

fn generated_selector(new: &Tree, spec: &Tree, prefixed_labels: bool) -> Vec<Cause> {
    if flag(spec, "manualSelector") || set(spec, "selector").is_none() {
        return Vec::new();
    }
    let (name, uid) = (metadata(new, "name"), metadata(new, "uid"));
    let mut causes = Vec::new();
    if uid.is_empty() {
        causes.push(Cause::required("metadata.uid", ""));
    }
    let labels = object(spec, "template").map_or(&Value::Null, template_labels);
    let path = SPEC.child("template");
    let path = path.child("metadata");
    let path = path.child("labels");
    let prefixed = [("batch.kubernetes.io/controller-uid", uid), ("batch.kubernetes.io/job-name", name)];
    let mut expected = vec![("controller-uid", uid), ("job-name", name)];
    expected.extend(prefixed.into_iter().filter(|_| prefixed_labels));
    for (label, value) in &expected {
        let detail = format!("must be '{value}'");
        match labels.get(*label) {
            None => causes.push(Cause::required(&path.key(label), &detail)),
            Some(found) if found != value => causes.push(Cause::invalid(&path.key(label), labels, &detail)),
            Some(_) => {}
        }
    }
    let expected = expected.into_iter().map(|(key, value)| (key.into(), value.into())).collect::<Vec<_>>();
    let selector = LabelSelector::from_object(or_null(spec, "selector"));
    if selector.is_ok_and(|selector| !selector.matches(&expected)) {
        causes.push(Cause::invalid_text(
            &SPEC.child("selector"),
            &selector_text(spec),
            "`selector` not auto-generated",
        ));
    }
    causes
}

fn selector_text(spec: &Tree) -> String {
    written("meta/v1.LabelSelector", set(spec, "selector"), Spelling::Versioned)
}

/// The spec of a job that has its selector.
fn selecting_spec(spec: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let mut causes = job_spec(spec, old, &SPEC);
    let value = or_null(spec, "selector");
    if value.is_null() {
        causes.push(Cause::required(&SPEC.child("selector"), ""));
    } else {
        causes.extend(selector::validate_object(value, &SPEC.child("selector").to_string()));
    }
    let labels = object(spec, "template").map_or(&Value::Null, template_labels);
    if LabelSelector::from_object(value).is_ok_and(|selector| !selects(&selector, labels)) {
        let path = SPEC.child("template");
        causes.push(Cause::invalid(&path.child("metadata").child("labels"), labels, NOT_SELECTED));
    }
    causes
}

/// The spec of a job, also one in a cron job.
pub fn job_spec(spec: &Tree, old: Option<&Tree>, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = counters(
        spec,
        path,
        &[
            "parallelism",
            "completions",
            "activeDeadlineSeconds",
            "backoffLimit",
            "ttlSecondsAfterFinished",
            "backoffLimitPerIndex",
            "maxFailedIndexes",
        ],
    );
    if set(spec, "maxFailedIndexes").is_some() && set(spec, "backoffLimitPerIndex").is_none() {
        let detail = "when maxFailedIndexes is specified";
        causes.push(Cause::required(&path.child("backoffLimitPerIndex"), detail));
    }
    if let Some(Value::String(manager)) = set(spec, "managedBy") {
        let path = path.child("managedBy");
        causes.extend(domain_prefixed_path(manager, &path));
        if manager.len() > MAX_MANAGED_BY {
            causes.push(Cause::too_long(&path, MAX_MANAGED_BY));
        }
    }
    causes.extend(completion_mode(spec, path));
    if let Some(policy) = object(spec, "podFailurePolicy") {
        causes.extend(failure_policy(spec, policy, &path.child("podFailurePolicy")));
    }
    if let Some(policy) = object(spec, "successPolicy") {
        let path = path.child("successPolicy");
        match text(spec, "completionMode") {
            INDEXED => causes.extend(success_policy(spec, policy, &path)),
            _ => {
                let shown = written("batch/v1.SuccessPolicy", spec.get("successPolicy"), Spelling::Internal);
                causes.push(Cause::invalid_text(&path, &shown, "requires indexed completion mode"));
            }
        }
    }
    causes.extend(replacement_policy(spec, &path.child("podReplacementPolicy")));
    let empty = Tree::new();
    let template = object(spec, "template").unwrap_or(&empty);
    let old_template = old.and_then(|old| object(old, "template"));
    let template_path = path.child("template");
    causes.extend(pod::template(template, old_template, &template_path.to_string()));
    causes.extend(restart_policy(spec, template, &template_path.child("spec").child("restartPolicy")));
    causes
}

fn restart_policy(spec: &Tree, template: &Tree, path: &Path<'_>) -> Option<Cause> {
    let policy = object(template, "spec").map_or("", |pod| text(pod, "restartPolicy"));
    match policy {
        "" | "Always" => Some(Cause::required(path, r#"valid values: "OnFailure", "Never""#)),
        "OnFailure" if set(spec, "podFailurePolicy").is_some() => Some(Cause::invalid(
            path,
            &json!(policy),
            r#"only "Never" is supported when podFailurePolicy is specified"#,
        )),
        "OnFailure" | "Never" => None,
        _ => Some(Cause::not_supported(path, &json!(policy), &["OnFailure", "Never"])),
    }
}

fn completion_mode(spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let mode = set(spec, "completionMode").and_then(Value::as_str);
    let mut causes = Vec::new();
    if let Some(mode) = mode.filter(|mode| !matches!(*mode, INDEXED | NON_INDEXED)) {
        let valid = [NON_INDEXED, INDEXED];
        causes.push(Cause::not_supported(&path.child("completionMode"), &json!(mode), &valid));
    }
    if mode == Some(INDEXED) {
        causes.extend(indexed(spec, path));
    }
    if mode.is_none_or(|mode| mode == NON_INDEXED) {
        for key in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(value) = set(spec, key) {
                causes.push(Cause::invalid(&path.child(key), value, "requires indexed completion mode"));
            }
        }
    }
    causes
}

fn indexed(spec: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let [completions, parallelism, max_failed] =
        ["completions", "parallelism", "maxFailedIndexes"].map(|key| number(spec, key));
    let mut causes = Vec::new();
    if completions.is_none() {
        causes.push(Cause::required(&path.child("completions"), "when completion mode is Indexed"));
    }
    let most = MAX_PARALLELISM_OF_INDEXED;
    let detail = format!("must be less than or equal to {most} when completion mode is Indexed");
    causes.extend(at_most(parallelism, Some(most), &path.child("parallelism"), &detail));
    let failed_path = path.child("maxFailedIndexes");
    causes.extend(at_most(
        max_failed,
        completions,
        &failed_path,
        "must be less than or equal to completions",
    ));
    let most = MAX_FAILED_INDEXES;
    let detail = format!("must be less than or equal to {most}");
    causes.extend(at_most(max_failed, Some(most), &failed_path, &detail));
    if completions.is_some_and(|it| it > MANY_COMPLETIONS) && set(spec, "backoffLimitPerIndex").is_some() {
        if max_failed.is_none() {
            let detail = format!("must be specified when completions is above {MANY_COMPLETIONS}");
            causes.push(Cause::required(&failed_path, &detail));
        }
        let most = LIMIT_FOR_MANY_COMPLETIONS;
        let detail = format!(
            "must be less than or equal to {most} when completions are above {MANY_COMPLETIONS} and used with backoff limit per index"
        );
        causes.extend(at_most(parallelism, Some(most), &path.child("parallelism"), &detail));
        causes.extend(at_most(max_failed, Some(most), &failed_path, &detail));
    }
    causes
}

fn at_most(value: Option<i64>, most: Option<i64>, path: &Path<'_>, detail: &str) -> Option<Cause> {
    let value = value.filter(|value| most.is_some_and(|most| *value > most))?;
    Some(Cause::invalid(path, &json!(value), detail))
}

fn replacement_policy(spec: &Tree, path: &Path<'_>) -> Option<Cause> {
    let policy = set(spec, "podReplacementPolicy").and_then(Value::as_str)?;
    let valid: &[&str] = match set(spec, "podFailurePolicy") {
        Some(_) => &["Failed"],
        None => &["Failed", "TerminatingOrFailed"],
    };
    (!valid.contains(&policy)).then(|| Cause::not_supported(path, &json!(policy), valid))
}

fn failure_policy(spec: &Tree, policy: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let path = path.child("rules");
    let mut causes = Vec::new();
    let rules = list(policy, "rules").len();
    if rules > MAX_RULES {
        causes.push(Cause::too_many(&path, rules, MAX_RULES));
    }
    let empty = Tree::new();
    let pod = object(spec, "template").and_then(|template| object(template, "spec")).unwrap_or(&empty);
    let containers = ["containers", "initContainers"];
    let containers: BTreeSet<&str> =
        containers.iter().flat_map(|key| items(pod, key)).map(|(_, it)| text(it, "name")).collect();
    for (at, rule) in items(policy, "rules") {
        causes.extend(failure_rule(spec, rule, &path.index(at), &containers));
    }
    causes
}

fn failure_rule(spec: &Tree, rule: &Tree, path: &Path<'_>, containers: &BTreeSet<&str>) -> Vec<Cause> {
    const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
    let mut causes = Vec::new();
    let action_path = path.child("action");
    match text(rule, "action") {
        "" => causes.push(Cause::required(&action_path, &valid_values(&ACTIONS))),
        "FailIndex" if set(spec, "backoffLimitPerIndex").is_none() => causes.push(Cause::invalid(
            &action_path,
            &json!("FailIndex"),
            "requires the backoffLimitPerIndex to be set",
        )),
        action if !ACTIONS.contains(&action) => {
            causes.push(Cause::not_supported(&action_path, &json!(action), &ACTIONS));
        }
        _ => {}
    }
    let (codes, patterns) = (object(rule, "onExitCodes"), list(rule, "onPodConditions"));
    if let Some(codes) = codes {
        causes.extend(exit_codes(codes, &path.child("onExitCodes"), containers));
    }
    if !patterns.is_empty() {
        causes.extend(pod_conditions(rule, &path.child("onPodConditions")));
    }
    match (codes.is_some(), !patterns.is_empty()) {
        (true, true) => causes.push(Cause::invalid_unseen(
            path,
            "specifying both OnExitCodes and OnPodConditions is not supported",
        )),
        (false, false) => causes.push(Cause::invalid_unseen(
            path,
            "specifying one of OnExitCodes and OnPodConditions is required",
        )),
        _ => {}
    }
    causes
}

fn valid_values(values: &[&str]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    format!("valid values: [{}]", quoted.join(" "))
}

fn pod_conditions(rule: &Tree, path: &Path<'_>) -> Vec<Cause> {
    const STATUSES: [&str; 3] = ["False", "True", "Unknown"];
    let mut causes = Vec::new();
    let patterns = list(rule, "onPodConditions").len();
    if patterns > MAX_PATTERNS {
        causes.push(Cause::too_many(path, patterns, MAX_PATTERNS));
    }
    for (at, pattern) in items(rule, "onPodConditions") {
        let path = path.index(at);
        causes.extend(qualified_name(text(pattern, "type"), &path.child("type")));
        match text(pattern, "status") {
            "" => causes.push(Cause::required(&path.child("status"), &valid_values(&STATUSES))),
            status if !STATUSES.contains(&status) => {
                causes.push(Cause::not_supported(&path.child("status"), &json!(status), &STATUSES));
            }
            _ => {}
        }
    }
    causes
}

fn exit_codes(codes: &Tree, path: &Path<'_>, containers: &BTreeSet<&str>) -> Vec<Cause> {
    const OPERATORS: [&str; 2] = ["In", "NotIn"];
    let mut causes = Vec::new();
    let operator = text(codes, "operator");
    let operator_path = path.child("operator");
    if operator.is_empty() {
        causes.push(Cause::required(&operator_path, &valid_values(&OPERATORS)));
    } else if !OPERATORS.contains(&operator) {
        causes.push(Cause::not_supported(&operator_path, &json!(operator), &OPERATORS));
    }
    if let Some(name) = set(codes, "containerName").and_then(Value::as_str)
        && !containers.contains(name)
    {
        let detail = "must be one of the container or initContainer names in the pod template";
        causes.push(Cause::invalid(&path.child("containerName"), &json!(name), detail));
    }
    let path = path.child("values");
    let values = list(codes, "values");
    if values.is_empty() {
        causes.push(Cause::invalid(&path, or_null(codes, "values"), "at least one value is required"));
    } else if values.len() > MAX_EXIT_CODES {
        causes.push(Cause::too_many(&path, values.len(), MAX_EXIT_CODES));
    }
    let numbers: Vec<i64> = values.iter().map(|value| value.as_i64().unwrap_or(0)).collect();
    let mut seen = BTreeSet::new();
    for (at, code) in numbers.iter().enumerate() {
        if operator == "In" && *code == 0 {
            let detail = "must not be 0 for the In operator";
            causes.push(Cause::invalid(&path.index(at), &json!(code), detail));
        }
        if !seen.insert(code) {
            causes.push(Cause::duplicate(&path.index(at), &json!(code)));
        }
    }
    if !numbers.is_sorted() {
        causes.push(Cause::invalid(&path, or_null(codes, "values"), "must be ordered"));
    }
    causes
}

fn success_policy(spec: &Tree, policy: &Tree, path: &Path<'_>) -> Vec<Cause> {
    let path = path.child("rules");
    let mut causes = Vec::new();
    let rules = list(policy, "rules").len();
    if rules == 0 {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        causes.push(Cause::required(&path, detail));
    }
    if rules > MAX_RULES {
        causes.push(Cause::too_many(&path, rules, MAX_RULES));
    }
    for (at, rule) in items(policy, "rules") {
        causes.extend(success_rule(spec, rule, &path.index(at)));
    }
    causes
}

fn success_rule(spec: &Tree, rule: &Tree, path: &Path<'_>) -> Vec<Cause> {
    // Upstream fails without completions, which it has refused by then.
    let completions = count(spec, "completions");
    let indexes = set(rule, "succeededIndexes").and_then(Value::as_str);
    let succeeded = number(rule, "succeededCount");
    let mut causes = Vec::new();
    if indexes.is_none() && succeeded.is_none() {
        let detail = "at least one of succeededCount or succeededIndexes must be specified";
        causes.push(Cause::required(path, detail));
    }
    let mut total = 0;
    if let Some(indexes) = indexes {
        let path = path.child("succeededIndexes");
        if indexes.len() > MAX_SUCCEEDED_INDEXES {
            causes.push(Cause::too_long(&path, MAX_SUCCEEDED_INDEXES));
        }
        match indexes::total(indexes, completions) {
            Ok(number) => total = number,
            Err(error) => {
                let detail = format!("error parsing succeededIndexes: {error}");
                causes.push(Cause::invalid(&path, &json!(indexes), &detail));
            }
        }
    }
    if let Some(succeeded) = succeeded {
        let path = path.child("succeededCount");
        causes.extend(not_negative(succeeded, &path));
        if succeeded > completions {
            let detail =
                format!("must be less than or equal to {completions} (the number of specified completions)");
            causes.push(Cause::invalid(&path, &json!(succeeded), &detail));
        }
        if indexes.is_some() && succeeded > total {
            let detail = format!(
                "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
            );
            causes.push(Cause::invalid(&path, &json!(succeeded), &detail));
        }
    }
    causes
}

fn spec_update(spec: &Tree, old: &Tree, freedom: &Freedom) -> Vec<Cause> {
    let keep = |key: &str, type_name: &str| {
        let (new, old) = (set(spec, key), set(old, key));
        (new != old).then(|| {
            let shown = match type_name {
                "" => gotext::bad_value(new.unwrap_or(&Value::Null)),
                _ => written(type_name, new, Spelling::Internal),
            };
            Cause::invalid_text(&SPEC.child(key), &shown, IMMUTABLE)
        })
    };
    let found = [
        completions_update(spec, old),
        keep("selector", "meta/v1.LabelSelector"),
        template_update(spec, old, freedom),
        keep("completionMode", ""),
        keep("podFailurePolicy", "batch/v1.PodFailurePolicy"),
        keep("backoffLimitPerIndex", ""),
        keep("managedBy", ""),
        keep("successPolicy", "batch/v1.SuccessPolicy"),
    ];
    found.into_iter().flatten().collect()
}

fn completions_update(spec: &Tree, old: &Tree) -> Option<Cause> {
    let (new, old) = (set(spec, "completions"), set(old, "completions"));
    if new == old {
        return None;
    }
    let path = SPEC.child("completions");
    if text(spec, "completionMode") != INDEXED {
        return Some(Cause::invalid(&path, new.unwrap_or(&Value::Null), IMMUTABLE));
    }
    let new = new?;
    (new.as_i64() != number(spec, "parallelism"))
        .then(|| Cause::invalid(&path, new, "can only be modified in tandem with spec.parallelism"))
}

/// The template stays, but for what tells the scheduler where to run the pods of a job that rests, and what they need.
fn template_update(spec: &Tree, old: &Tree, freedom: &Freedom) -> Option<Cause> {
    let empty = Tree::new();
    let template = object(spec, "template").unwrap_or(&empty);
    let mut expected = object(old, "template").unwrap_or(&empty).clone();
    if freedom.scheduling {
        take_over_scheduling(&mut expected, template);
    }
    if !flag(old, "suspend") || !freedom.resources {
        return (*template != expected).then(|| {
            let shown = written("core/v1.PodTemplateSpec", spec.get("template"), Spelling::Internal);
            Cause::invalid_text(&SPEC.child("template"), &shown, IMMUTABLE)
        });
    }
    let pod = object(template, "spec").unwrap_or(&empty);
    let expected = made(&mut expected, "spec");
    take_over_resources(expected, pod);
    (pod != expected).then(|| {
        let shown = written("core/v1.PodSpec", template.get("spec"), Spelling::Internal);
        Cause::invalid_text("spec.template.spec", &shown, IMMUTABLE)
    })
}

fn take_over_scheduling(expected: &mut Tree, template: &Tree) {
    let empty = Tree::new();
    let new_pod = object(template, "spec").unwrap_or(&empty);
    let new_metadata = object(template, "metadata").unwrap_or(&empty);
    let old_pod = made(expected, "spec");
    let node_affinity =
        object(new_pod, "affinity").and_then(|affinity| affinity.get("nodeAffinity")).cloned();
    match (object(new_pod, "affinity"), object_mut(old_pod, "affinity")) {
        (Some(_), None) => assign(made(old_pod, "affinity"), "nodeAffinity", node_affinity),
        (_, Some(affinity)) => assign(affinity, "nodeAffinity", node_affinity),
        (None, None) => {}
    }
    if object(new_pod, "affinity").is_none() && object(old_pod, "affinity").is_some_and(Tree::is_empty) {
        old_pod.remove("affinity");
    }
    for key in ["nodeSelector", "tolerations", "schedulingGates"] {
        assign(old_pod, key, new_pod.get(key).cloned());
    }
    for key in ["annotations", "labels"] {
        assign(made(expected, "metadata"), key, new_metadata.get(key).cloned());
    }
}

fn take_over_resources(expected: &mut Tree, pod: &Tree) {
    for key in ["containers", "initContainers"] {
        if list(pod, key).len() != list(expected, key).len() {
            continue;
        }
        let old = expected.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten();
        for (old, new) in old.zip(list(pod, key)) {
            if old["name"] == new["name"]
                && let Some(old) = old.as_object_mut()
            {
                assign(old, "resources", new.get("resources").cloned());
            }
        }
    }
}
