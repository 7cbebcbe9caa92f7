//! What may become of a job.

use serde_json::{Value, json};

use super::{indexes, shared::counters};
use crate::{
    field_error::Cause,
    resource::Tree,
    schema::{Spelling, written},
    validation::{
        members::{count, set},
        parts::{IMMUTABLE, Path, flag, items, list, number, object, text, texts},
    },
};

const STATUS: Path<'static> = Path::new("status");

/// Whether a condition of the job is true.
pub fn holds(job: &Tree, kind: &str) -> bool {
    has_condition(job, kind, "True")
}

fn has_condition(job: &Tree, kind: &str, state: &str) -> bool {
    let Some(status) = object(job, "status") else { return false };
    items(status, "conditions").any(|(_, it)| text(it, "type") == kind && text(it, "status") == state)
}

fn is_finished(job: &Tree) -> bool {
    holds(job, "Complete") || holds(job, "Failed")
}

/// A job, before and after a change of its status: rules look only at what changed.
struct Change<'a> {
    new: &'a Tree,
    old: &'a Tree,
    spec: &'a Tree,
    status: &'a Tree,
    old_status: &'a Tree,
}

impl Change<'_> {
    fn of(&self, key: &str) -> bool {
        set(self.status, key) != set(self.old_status, key)
    }

    fn of_condition(&self, kind: &str) -> bool {
        holds(self.new, kind) != holds(self.old, kind)
    }

    fn of_end(&self) -> bool {
        is_finished(self.new) != is_finished(self.old)
    }

    fn is_indexed(&self) -> bool {
        text(self.spec, "completionMode") == "Indexed"
    }
}

fn conditions(detail: &str) -> Cause {
    Cause::invalid_unseen(&STATUS.child("conditions"), detail)
}

pub fn job_status(new: &Tree, old: &Tree) -> Vec<Cause> {
    let empty = Tree::new();
    let part = |tree: &'_ Tree, key: &str| object(tree, key).cloned().unwrap_or_default();
    let (spec, status, old_status) = (part(new, "spec"), part(new, "status"), part(old, "status"));
    let change = Change { new, old, spec: &spec, status: &status, old_status: &old_status };
    let uncounted = object(&status, "uncountedTerminatedPods").unwrap_or(&empty);
    let mut causes = counters(&status, &STATUS, &["active", "succeeded", "failed", "ready", "terminating"]);
    causes.extend(uncounted_pods(uncounted));
    causes.extend(endings(&change));
    causes.extend(finished(&change, uncounted));
    causes.extend(index_sets(&change));
    causes.extend(pods(&change));
    causes.extend(success(&change));
    causes.extend(history(&change));
    causes
}

fn uncounted_pods(uncounted: &Tree) -> Vec<Cause> {
    let mut seen = std::collections::BTreeSet::new();
    let mut causes = Vec::new();
    let path = STATUS.child("uncountedTerminatedPods");
    for key in ["succeeded", "failed"] {
        let path = path.child(key);
        for (at, uid) in texts(uncounted, key).enumerate() {
            if uid.is_empty() {
                causes.push(Cause::invalid(&path.index(at), &json!(uid), "must not be empty"));
            } else if !seen.insert(uid) {
                causes.push(Cause::duplicate(&path.index(at), &json!(uid)));
            }
        }
    }
    causes
}

/// How a job may end, and when.
fn endings(change: &Change<'_>) -> Vec<Cause> {
    let Change { new, status, .. } = change;
    let complete = holds(new, "Complete");
    let mut causes = Vec::new();
    if (change.of_condition("Complete") || change.of_condition("Failed")) && complete && holds(new, "Failed")
    {
        causes.push(conditions("cannot set Complete=True and Failed=true conditions"));
    }
    if (change.of_condition("Complete") || change.of_condition("FailureTarget"))
        && complete
        && holds(new, "FailureTarget")
    {
        causes.push(conditions("cannot set Complete=True and FailureTarget=true conditions"));
    }
    let path = STATUS.child("completionTime");
    let completion = set(status, "completionTime");
    if change.of_condition("Complete") || change.of("completionTime") {
        match completion {
            Some(time) if !complete => causes.push(Cause::invalid_text(
                &path,
                &crate::gotext::json(time),
                "cannot set completionTime when there is no Complete=True condition",
            )),
            None if complete => {
                causes.push(Cause::required(&path, "completionTime is required for Complete jobs"));
            }
            _ => {}
        }
    }
    if (change.of("startTime") || change.of("completionTime"))
        && let (Some(start), Some(end)) = (set(status, "startTime"), completion)
        && second(end) < second(start)
    {
        let shown = crate::gotext::json(end);
        causes.push(Cause::invalid_text(&path, &shown, "must be equal to or after `startTime`"));
    }
    if (change.of_condition("Failed") || change.of("failedIndexes"))
        && holds(new, "Failed")
        && !holds(new, "FailureTarget")
    {
        causes.push(conditions("cannot set Failed=True condition without the FailureTarget=true condition"));
    }
    if (change.of_condition("Complete") || change.of_condition("SuccessCriteriaMet"))
        && complete
        && !holds(new, "SuccessCriteriaMet")
    {
        causes.push(conditions(
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        ));
    }
    causes
}

fn second(time: &Value) -> i64 {
    let time = time.as_str().and_then(|text| crate::schema::parse_time(text).ok());
    time.map_or(0, |(second, _)| second)
}

/// A job that is over has no pods left to count.
fn finished(change: &Change<'_>, uncounted: &Tree) -> Vec<Cause> {
    let Change { new, spec, status, .. } = change;
    if !is_finished(new) {
        return Vec::new();
    }
    let mut causes = Vec::new();
    let active = count(status, "active");
    if (change.of_end() || change.of("active")) && active > 0 {
        causes.push(Cause::invalid(
            &STATUS.child("active"),
            &json!(active),
            "active>0 is invalid for finished job",
        ));
    }
    let nothing_to_do = flag(spec, "suspend") && number(spec, "completions") == Some(0);
    if (change.of_end() || change.of("startTime")) && !nothing_to_do && set(status, "startTime").is_none() {
        causes.push(Cause::required(&STATUS.child("startTime"), "startTime is required for finished job"));
    }
    let left = list(uncounted, "failed").len() + list(uncounted, "succeeded").len();
    if (change.of_end() || change.of("uncountedTerminatedPods")) && left > 0 {
        let shown = written(
            "batch/v1.UncountedTerminatedPods",
            status.get("uncountedTerminatedPods"),
            Spelling::Internal,
        );
        let path = STATUS.child("uncountedTerminatedPods");
        causes.push(Cause::invalid_text(&path, &shown, "must be empty for finished job"));
    }
    causes
}

fn index_sets(change: &Change<'_>) -> Vec<Cause> {
    let Change { spec, status, .. } = change;
    let completed = text(status, "completedIndexes");
    let failed = set(status, "failedIndexes").and_then(Value::as_str);
    let completions = number(spec, "completions");
    let by_index = set(spec, "backoffLimitPerIndex").is_some();
    let (completed_path, failed_path) = (STATUS.child("completedIndexes"), STATUS.child("failedIndexes"));
    let mut causes = Vec::new();
    let mut unreadable = |path: &Path<'_>, indexes: &str, completions, name: &str| {
        if let Err(error) = indexes::total(indexes, completions) {
            let detail = format!("error parsing {name}: {error}");
            causes.push(Cause::invalid(path, &json!(indexes), &detail));
        }
    };
    let (completed_changed, failed_changed) = (change.of("completedIndexes"), change.of("failedIndexes"));
    if let Some(completions) = completions {
        if completed_changed {
            unreadable(&completed_path, completed, completions, "completedIndexes");
        }
        if let Some(failed) = failed.filter(|_| failed_changed && by_index) {
            unreadable(&failed_path, failed, completions, "failedIndexes");
        }
    }
    if completed_changed && !completed.is_empty() && !change.is_indexed() {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        causes.push(Cause::invalid(&completed_path, &json!(completed), detail));
    }
    if let Some(failed) = failed {
        if failed_changed && !by_index {
            let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
            causes.push(Cause::invalid(&failed_path, &json!(failed), detail));
        }
        if (failed_changed || completed_changed)
            && let Some(at) = indexes::overlap(completed, failed, completions.unwrap_or(0))
        {
            let detail = format!("failedIndexes and completedIndexes overlap at index: {at}");
            causes.push(Cause::invalid(&failed_path, &json!(failed), &detail));
        }
    }
    causes
}

fn pods(change: &Change<'_>) -> Vec<Cause> {
    let Change { new, status, .. } = change;
    let mut causes = Vec::new();
    if (change.of_end() || change.of("terminating"))
        && let Some(terminating @ 1..) = number(status, "terminating")
        && is_finished(new)
    {
        let detail = "terminating>0 is invalid for finished job";
        causes.push(Cause::invalid(&STATUS.child("terminating"), &json!(terminating), detail));
    }
    if (change.of("ready") || change.of("active"))
        && let Some(ready) = number(status, "ready").filter(|ready| *ready > count(status, "active"))
    {
        let detail = "cannot set more ready pods than active";
        causes.push(Cause::invalid(&STATUS.child("ready"), &json!(ready), detail));
    }
    causes
}

fn success(change: &Change<'_>) -> Vec<Cause> {
    let Change { new, spec, .. } = change;
    let met = holds(new, "SuccessCriteriaMet");
    let mut causes = Vec::new();
    if met && holds(new, "Failed") {
        causes.push(conditions("cannot set SuccessCriteriaMet=True and Failed=true conditions"));
    }
    if met && holds(new, "FailureTarget") {
        causes.push(conditions("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"));
    }
    if set(spec, "successPolicy").is_some() && !met && holds(new, "Complete") {
        causes.push(conditions(
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
        ));
    }
    causes
}

/// What cannot be taken back.
fn history(change: &Change<'_>) -> Vec<Cause> {
    let Change { new, old, spec, status, old_status } = change;
    let mut causes = Vec::new();
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if holds(old, kind) && !holds(new, kind) {
            causes.push(conditions(&format!("cannot disable the terminal {kind}=True condition")));
        }
    }
    let elastic = change.is_indexed() && set(spec, "completions") == set(spec, "parallelism");
    for (key, checked) in [("failed", true), ("succeeded", !elastic)] {
        let now = count(status, key);
        if checked && now < count(old_status, key) {
            let detail = format!("cannot decrease the {key} counter");
            causes.push(Cause::invalid(&STATUS.child(key), &json!(now), &detail));
        }
    }
    let shown = |key: &str| crate::gotext::json(set(status, key).unwrap_or(&Value::Null));
    let had = |key: &str| set(old_status, key).is_some() && change.of(key);
    if had("completionTime") && set(status, "completionTime").is_some() {
        causes.push(Cause::invalid_text(
            &STATUS.child("completionTime"),
            &shown("completionTime"),
            IMMUTABLE,
        ));
    }
    let resumes = holds(old, "Suspended") && has_condition(new, "Suspended", "False");
    if had("startTime") && !resumes && !flag(spec, "suspend") {
        let detail = "field is immutable for unsuspended job once set";
        causes.push(Cause::invalid_text(&STATUS.child("startTime"), &shown("startTime"), detail));
    }
    let (met, was_met) = (holds(new, "SuccessCriteriaMet"), holds(old, "SuccessCriteriaMet"));
    if was_met && !met {
        causes.push(conditions("cannot disable the SuccessCriteriaMet=True condition"));
    }
    if holds(old, "Complete") && !was_met && met {
        causes.push(conditions(
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
        ));
    }
    causes
}
