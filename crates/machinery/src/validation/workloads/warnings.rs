//! What authors of workloads should know though their object is accepted.

use super::defaults::template_generation;
use crate::{
    names,
    resource::Tree,
    validation::{
        members::{count, metadata},
        parts::{Path, items, number, object, text},
        pod,
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

/// Whether an update changes the spec, so that its author looks at it.
fn is_changed(new: &Tree, old: Option<&Tree>) -> bool {
    old.is_none_or(|old| new.get("spec") != old.get("spec"))
}

fn template(tree: &Tree) -> Vec<String> {
    let template = object(tree, "spec").and_then(|spec| object(spec, "template"));
    template.map(|template| pod::template_warnings(template, "spec.template")).unwrap_or_default()
}

/// What is said of everything that is named like its pods.
fn named(new: &Tree, old: Option<&Tree>, changed: bool) -> Vec<String> {
    let mut warnings: Vec<String> = name(new, old).into_iter().collect();
    if changed {
        warnings.extend(template(new));
    }
    warnings
}

pub fn warn_replication_controller(new: &Tree, old: Option<&Tree>) -> Vec<String> {
    match old {
        // Upstream looks at the template that is replaced.
        Some(old) if is_changed(new, Some(old)) => template(old),
        Some(_) => Vec::new(),
        None => named(new, None, true),
    }
}

pub fn warn_deployment(new: &Tree, old: Option<&Tree>) -> Vec<String> {
    let annotations =
        |tree: &Tree| object(tree, "metadata").and_then(|it| object(it, "annotations")).cloned();
    let annotated = old.is_some_and(|old| annotations(new) != annotations(old));
    named(new, old, annotated || is_changed(new, old))
}

pub fn warn_replica_set(new: &Tree, old: Option<&Tree>) -> Vec<String> {
    named(new, old, is_changed(new, old))
}

pub fn warn_daemon_set(new: &Tree, old: Option<&Tree>) -> Vec<String> {
    match old.is_none_or(|old| template_generation(new) != template_generation(old)) {
        true => template(new),
        false => Vec::new(),
    }
}

pub fn warn_stateful_set(new: &Tree, old: Option<&Tree>) -> Vec<String> {
    let empty = Tree::new();
    let spec = object(new, "spec").unwrap_or(&empty);
    let mut warnings = if is_changed(new, old) { template(new) } else { Vec::new() };
    let path = Path::new("spec.volumeClaimTemplates");
    for (at, claim) in items(spec, "volumeClaimTemplates") {
        let path = path.index(at);
        // Upstream names the place in two ways.
        let path = if old.is_some() { path.child("Spec") } else { path };
        warnings.extend(pod::claim_warnings(object(claim, "spec").unwrap_or(&empty), &path));
    }
    if number(spec, "revisionHistoryLimit").is_some_and(|limit| limit < 0) {
        let text = "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended";
        warnings.push(text.to_owned());
    }
    warnings
}

fn job_spec(spec: &Tree, path: &str) -> Vec<String> {
    const MANY_COMPLETIONS: i64 = 100_000;
    const MUCH_PARALLELISM: i64 = 10_000;
    let mut warnings = Vec::new();
    if text(spec, "completionMode") == "Indexed"
        && count(spec, "completions") > MANY_COMPLETIONS
        && count(spec, "parallelism") > MUCH_PARALLELISM
    {
        warnings.push(format!(
            "{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        ));
    }
    if let Some(template) = object(spec, "template") {
        warnings.extend(pod::template_warnings(template, &format!("{path}.template")));
    }
    warnings
}

pub fn warn_job(new: &Tree, old: Option<&Tree>) -> Vec<String> {
    let mut warnings: Vec<String> = name(new, old).into_iter().collect();
    if let Some(spec) = object(new, "spec").filter(|_| is_changed(new, old)) {
        warnings.extend(job_spec(spec, "spec"));
    }
    warnings
}

pub fn warn_cron_job(new: &Tree, old: Option<&Tree>) -> Vec<String> {
    let empty = Tree::new();
    let spec = object(new, "spec").unwrap_or(&empty);
    let mut warnings: Vec<String> = name(new, old).into_iter().collect();
    let job = object(spec, "jobTemplate").and_then(|template| object(template, "spec"));
    if let Some(job) = job.filter(|_| is_changed(new, old)) {
        warnings.extend(job_spec(job, "spec.jobTemplate.spec"));
    }
    if old.is_some() && text(spec, "schedule").contains("TZ") {
        warnings.push(
            "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
                .to_owned(),
        );
    }
    warnings
}
