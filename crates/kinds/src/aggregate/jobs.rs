//! Jobs and CronJobs.
//!
//! The API server takes nothing back that was said of a Job: counters do not fall, ends do not change, and a Job that
//! is over has no pods left. So a Job fails in two steps, as in one cluster: `FailureTarget` as soon as one cluster
//! has failed, `Failed` once no pod of it is left anywhere. In between the other clusters stop.

use serde_json::{Value, json};

use super::{
    Member, Whole,
    conditions::{self, condition, decided, of, status_of},
    earliest, latest, set, total,
};
use crate::{
    Kind,
    fields::{at, count, flag, list, put, remove, text},
    subject::is_indexed,
};

const OWN: [&str; 5] = ["Complete", "Failed", "FailureTarget", "SuccessCriteriaMet", "Suspended"];

pub(crate) fn job(whole: &Whole<'_>) -> Value {
    if holds(whole.old, "Complete") || holds(whole.old, "Failed") {
        return whole.old.clone();
    }
    let mut status = whole.base();
    remove(&mut status, "completionTime");
    counters(whole, &mut status);
    let mut all = Vec::new();
    suspended(whole, &mut all);
    start(whole, &mut status, &all);
    let end = End::of(whole, &status);
    end.say(whole, &mut all);
    if end.complete {
        let ended = completion_time(whole, text(&status, "startTime"));
        put(&mut status, "completionTime", ended);
    }
    all.extend(conditions::merged(whole, &OWN));
    match all.is_empty() {
        true => drop(remove(&mut status, "conditions")),
        false => put(&mut status, "conditions", all),
    }
    status
}

impl Kind {
    /// Has a copy stop if another one's failure is that of the whole; `status` is what its own cluster says of it.
    pub fn stop_if_failing(&self, object: &Value, status: &Value, copy: &mut Value) {
        if self.stops(object, status) {
            put(copy, "spec.suspend", true);
        }
    }

    /// Whether a copy of this object is to run no more, and might still.
    pub fn stops(&self, object: &Value, status: &Value) -> bool {
        // One that has reached its end, or is about to, is brought there by its own cluster.
        let ends = ["SuccessCriteriaMet", "FailureTarget", "Complete", "Failed"];
        let is_ending = ends.iter().any(|kind| holds(status, kind));
        // It is a Job, and not what Jobs are made from.
        self.job == "spec" && holds(&object["status"], "FailureTarget") && !is_ending
    }
}

fn holds(status: &Value, kind: &str) -> bool {
    status_of(status, kind) == "True"
}

/// The clusters that have anything to do.
fn working<'a, 'b>(whole: &'b Whole<'a>) -> impl Iterator<Item = &'b Member<'a>> {
    whole.staying().filter(|member| {
        member.share() > 0 || member.known.assigned.completions.is_some_and(|completions| completions > 0)
    })
}

fn counters(whole: &Whole<'_>, status: &mut Value) {
    let sum = |field: &str| total(whole.all().map(|member| member.count(field)));
    let before = |field: &str| count(whole.old, field).unwrap_or(0);
    let active = sum("active");
    set(status, "active", active);
    set(status, "failed", sum("failed").max(before("failed")));
    let elastic = at(whole.object, whole.kind.job).is_some_and(is_indexed);
    let succeeded = sum("succeeded");
    set(status, "succeeded", if elastic { succeeded } else { succeeded.max(before("succeeded")) });
    for field in ["ready", "terminating"] {
        if whole.all().any(|member| at(member.status(), field).is_some()) {
            let most = if field == "ready" { active } else { u64::MAX };
            put(status, field, sum(field).min(most));
        }
    }
}

fn suspended(whole: &Whole<'_>, all: &mut Vec<Value>) {
    const KIND: &str = "Suspended";
    // Those that stop because others failed say so, too.
    let reported = !holds(whole.old, "FailureTarget")
        && working(whole).any(|member| of(member.status(), KIND).is_some());
    if !reported && of(whole.old, KIND).is_none() {
        return;
    }
    let mut members = working(whole).peekable();
    let stopped = flag(whole.object, "spec.suspend")
        && members.peek().is_some()
        && members.all(|member| holds(member.status(), KIND));
    all.push(match stopped {
        true => condition(whole, KIND, "True", "JobSuspended", "Job suspended"),
        false => condition(whole, KIND, "False", "JobResumed", "Job resumed"),
    });
}

/// When it began: once said, this changes only with a pause.
fn start(whole: &Whole<'_>, status: &mut Value, conditions: &[Value]) {
    let resumed = holds(whole.old, "Suspended")
        && conditions.iter().any(|it| text(it, "type") == "Suspended" && text(it, "status") == "False");
    let known = Some(text(whole.old, "startTime"))
        .filter(|known| !known.is_empty() && !resumed && !flag(whole.object, "spec.suspend"));
    let began = earliest(whole.all().map(|member| text(member.status(), "startTime")));
    match known.or(began) {
        Some(time) => put(status, "startTime", time.to_owned()),
        None => drop(remove(status, "startTime")),
    }
}

/// How far a Job is from its end.
struct End {
    failing: bool,
    failed: bool,
    succeeding: bool,
    complete: bool,
}

impl End {
    fn of(whole: &Whole<'_>, status: &Value) -> Self {
        let all = |holds_in: fn(&Value) -> bool| {
            let mut members = working(whole).peekable();
            members.peek().is_some() && members.all(|member| holds_in(member.status()))
        };
        let succeeded = holds(whole.old, "SuccessCriteriaMet");
        let fails =
            |member: &Member<'_>| holds(member.status(), "Failed") || holds(member.status(), "FailureTarget");
        let failing = !succeeded && (holds(whole.old, "FailureTarget") || working(whole).any(fails));
        let over = count(status, "active").unwrap_or(0) == 0
            && count(status, "terminating").unwrap_or(0) == 0
            && !text(status, "startTime").is_empty();
        let failed = failing && over && working(whole).any(|member| holds(member.status(), "Failed"));
        let covered = is_covered(whole);
        let met = |status: &Value| holds(status, "SuccessCriteriaMet") || holds(status, "Complete");
        let succeeding = !failing && (succeeded || (covered && all(met)));
        let complete = succeeding && covered && over && all(|status| holds(status, "Complete"));
        Self { failing, failed, succeeding, complete }
    }

    fn say(&self, whole: &Whole<'_>, conditions: &mut Vec<Value>) {
        let rows = [
            (self.failing, "FailureTarget", "Failed"),
            (self.failed, "Failed", "FailureTarget"),
            (self.succeeding, "SuccessCriteriaMet", "Complete"),
            (self.complete, "Complete", "SuccessCriteriaMet"),
        ];
        let said = rows.into_iter().filter(|(is, ..)| *is);
        conditions.extend(said.map(|(_, kind, alike)| ended(whole, kind, alike)));
    }
}

/// A condition as the clusters that have it say it, or that have one `alike`.
fn ended(whole: &Whole<'_>, kind: &str, alike: &str) -> Value {
    let with = |kind: &str| -> Vec<&Member<'_>> {
        working(whole).filter(|member| holds(member.status(), kind)).collect()
    };
    let who = with(kind);
    if !who.is_empty() {
        return decided(whole, kind, "True", &who);
    }
    if let Some(old) = of(whole.old, kind).filter(|old| text(old, "status") == "True") {
        return old.clone();
    }
    let mut said = decided(whole, alike, "True", &with(alike));
    put(&mut said, "type", kind);
    said
}

/// Whether the shares are all of the completions, so that nothing is left when all are done.
fn is_covered(whole: &Whole<'_>) -> bool {
    let Some(wanted) = count(whole.object, "spec.completions") else { return true };
    let shares = || working(whole).map(|member| member.known.assigned.completions);
    // Shares that say nothing are divided when copies are made, and then are all of it.
    shares().any(|share| share.is_none()) || total(shares().flatten()) >= wanted
}

fn completion_time(whole: &Whole<'_>, start: &str) -> Value {
    let ended = latest(working(whole).map(|member| text(member.status(), "completionTime")));
    json!(ended.unwrap_or(start).max(start))
}

/// Each cluster keeps its own schedule; the runs are those of all.
pub(crate) fn cron_job(whole: &Whole<'_>) -> Value {
    let mut status = whole.base();
    let active: Vec<Value> =
        whole.all().flat_map(|member| list(member.status(), "active").iter().cloned()).collect();
    match active.is_empty() {
        true => drop(remove(&mut status, "active")),
        false => put(&mut status, "active", active),
    }
    for field in ["lastScheduleTime", "lastSuccessfulTime"] {
        let seen = whole.all().map(|member| text(member.status(), field));
        if let Some(time) = latest(seen.chain([text(whole.old, field)])) {
            put(&mut status, field, time.to_owned());
        }
    }
    status
}
