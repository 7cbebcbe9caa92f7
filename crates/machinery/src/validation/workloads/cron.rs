//! Cron jobs.

use serde_json::{Value, json};

use super::{jobs::job_spec, schedule, shared::counters};
use crate::{
    field_error::Cause,
    resource::Tree,
    schema::{Spelling, written},
    validation::{
        members::{metadata, set},
        parts::{Path, flag, object, one_of, text},
    },
};

const SPEC: Path<'static> = Path::new("spec");
/// Names of its jobs have eleven characters more, and are labels.
const MAX_NAME: usize = 52;

pub fn cron_job(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let empty = Tree::new();
    let spec = object(new, "spec").unwrap_or(&empty);
    let old_spec = old.map(|old| object(old, "spec").unwrap_or(&empty));
    let mut causes = scheduled(spec, old_spec);
    causes.extend(counters(spec, &SPEC, &["startingDeadlineSeconds"]));
    if old_spec.is_none_or(|old| set(old, "timeZone") != set(spec, "timeZone"))
        && let Some(zone) = set(spec, "timeZone").and_then(Value::as_str)
    {
        causes.extend(time_zone(zone, &SPEC.child("timeZone")));
    }
    let policies = ["Allow", "Forbid", "Replace"];
    causes.extend(one_of(text(spec, "concurrencyPolicy"), &SPEC.child("concurrencyPolicy"), &policies));
    causes.extend(job_template(spec, old_spec));
    causes.extend(counters(spec, &SPEC, &["successfulJobsHistoryLimit", "failedJobsHistoryLimit"]));
    let name = metadata(new, "name");
    if old.is_none() && name.len() > MAX_NAME {
        let detail = format!("must be no more than {MAX_NAME} characters");
        causes.push(Cause::invalid("metadata.name", &json!(name), &detail));
    }
    causes
}

fn scheduled(spec: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let text = text(spec, "schedule");
    let path = SPEC.child("schedule");
    if text.is_empty() {
        return vec![Cause::required(&path, "")];
    }
    let mut causes = Vec::new();
    if let Err(error) = schedule::check(text) {
        causes.push(Cause::invalid(&path, &json!(text), &error));
    }
    let had_zone = old.is_some_and(|old| crate::validation::parts::text(old, "schedule").contains("TZ"));
    let detail = match (text.contains("TZ"), had_zone, set(spec, "timeZone")) {
        (true, true, Some(_)) => "cannot use both timeZone field and TZ or CRON_TZ in schedule",
        (true, false, _) => "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        _ => return causes,
    };
    causes.push(Cause::invalid(&path, &json!(text), detail));
    causes
}

fn time_zone(zone: &str, path: &Path<'_>) -> Vec<Cause> {
    let value = json!(zone);
    if zone.is_empty() {
        return vec![Cause::invalid(path, &value, "timeZone must be nil or non-empty string")];
    }
    let unknown = || Cause::invalid(path, &value, &format!("unknown time zone {zone}"));
    if !zone.split('/').all(is_zone_part) {
        return vec![unknown()];
    }
    let mut causes = Vec::new();
    if zone.eq_ignore_ascii_case("Local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        causes.push(Cause::invalid(path, &value, detail));
    }
    if !schedule::is_zone(zone) {
        causes.push(unknown());
    }
    causes
}

fn is_zone_part(part: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte);
    !matches!(part, "." | "..")
        && !part.starts_with('-')
        && (1..=14).contains(&part.len())
        && part.bytes().all(fits)
}

fn job_template(spec: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let empty = Tree::new();
    let template_spec = |spec: &'_ Tree| {
        object(spec, "jobTemplate").and_then(|it| object(it, "spec")).cloned().unwrap_or_default()
    };
    let path = SPEC.child("jobTemplate");
    let path = path.child("spec");
    let job = object(spec, "jobTemplate").and_then(|it| object(it, "spec")).unwrap_or(&empty);
    let mut causes = job_spec(job, old.map(template_spec).as_ref(), &path);
    if set(job, "selector").is_some() {
        let shown = written("meta/v1.LabelSelector", job.get("selector"), Spelling::Versioned);
        causes.push(Cause::invalid_text(
            &path.child("selector"),
            &shown,
            "`selector` will be auto-generated",
        ));
    }
    if flag(job, "manualSelector") {
        let valid = ["nil", "false"];
        causes.push(Cause::not_supported(&path.child("manualSelector"), &json!(true), &valid));
    }
    causes
}
