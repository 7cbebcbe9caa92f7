//! What authors of workloads should know though their object is accepted.

use crate::{
    names,
    resource::Tree,
    validation::{
        members::metadata,
        parts::{number, object, text},
    },
};

/// Pods are named after what makes them.
fn name(new: &Tree, old: Option<&Tree>) -> Option<String> {
    let reasons = names::is_dns1123_label(metadata(new, "name"));
    (old.is_none() && !reasons.is_empty()).then(|| {
        format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{}]",
            reasons.join(" ")
        )
    })
}

pub fn warn_replication_controller(new: &Tree, old: Option<&Tree>) -> Vec<String> {
    name(new, old).into_iter().collect()
}

pub fn warn_deployment(new: &Tree, old: Option<&Tree>) -> Vec<String> {
    name(new, old).into_iter().collect()
}

pub fn warn_replica_set(new: &Tree, old: Option<&Tree>) -> Vec<String> {
    name(new, old).into_iter().collect()
}

pub fn warn_daemon_set(_: &Tree, _: Option<&Tree>) -> Vec<String> {
    Vec::new()
}

pub fn warn_stateful_set(new: &Tree, _: Option<&Tree>) -> Vec<String> {
    let limit = object(new, "spec").and_then(|spec| number(spec, "revisionHistoryLimit"));
    let negative = limit.is_some_and(|limit| limit < 0);
    let text = "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended";
    negative.then(|| text.to_owned()).into_iter().collect()
}

pub fn warn_job(new: &Tree, old: Option<&Tree>) -> Vec<String> {
    name(new, old).into_iter().collect()
}

pub fn warn_cron_job(new: &Tree, old: Option<&Tree>) -> Vec<String> {
    let mut warnings: Vec<String> = name(new, old).into_iter().collect();
    let schedule = object(new, "spec").map_or("", |spec| text(spec, "schedule"));
    if old.is_some() && schedule.contains("TZ") {
        warnings.push(
            "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
                .to_owned(),
        );
    }
    warnings
}
