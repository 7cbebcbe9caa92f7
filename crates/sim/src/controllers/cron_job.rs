//! CronJobs: Jobs by the clock.

mod schedule;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use serde_json::{Value, json};

use self::schedule::Schedule;
use super::{Controller, job};
use crate::{Action, Kind, Plan, Propagation, World, kind, tree};

pub struct CronJobs;

const KIND: Kind = kind::CRON_JOBS;
/// More missed times than this are worth a word.
const MANY: i64 = 100;
/// Upstream looks a little after the minute, and so do we: nothing is lost, and clocks differ.
const AFTER: Duration = Duration::from_millis(100);

impl Controller for CronJobs {
    fn kind(&self) -> Kind {
        KIND
    }

    fn name(&self) -> &'static str {
        "cronjob-controller"
    }

    fn reconcile(&self, world: &dyn World, cron: &Value) -> Plan {
        let jobs = world.owned(kind::JOBS, tree::namespace(cron), tree::uid(cron));
        let active = tree::items(cron, "/status/active").cloned().collect();
        let status = cron.get("status").cloned().unwrap_or_else(|| json!({}));
        let mut work = Work { world, cron, jobs, active, status, plan: Plan::nothing() };
        work.take_stock();
        if !tree::is_deleting(cron) {
            work.forget_finished();
            work.start();
        }
        work.finish()
    }
}

/// One look at a CronJob.
struct Work<'a> {
    world: &'a dyn World,
    cron: &'a Value,
    jobs: Vec<Value>,
    active: Vec<Value>,
    status: Value,
    plan: Plan,
}

impl Work<'_> {
    fn finish(mut self) -> Plan {
        self.status["active"] = self.active.into();
        let status = tree::compact(self.status, &[]);
        self.plan.set_status(KIND, self.cron, status);
        self.plan
    }

    fn is_active(&self, uid: &str) -> bool {
        self.active.iter().any(|reference| tree::text(reference, "/uid") == uid)
    }

    fn deactivate(&mut self, uid: &str) {
        self.active.retain(|reference| tree::text(reference, "/uid") != uid);
    }

    /// Which of its Jobs still run.
    fn take_stock(&mut self) {
        for found in self.jobs.clone() {
            let (name, uid) = (tree::name(&found), tree::uid(&found));
            let Some(condition) = job::finished(&found) else {
                self.take_up(&found);
                continue;
            };
            if self.is_active(uid) {
                let kind = tree::text(condition, "/type");
                let message = format!("Saw completed job: {name}, condition: {kind}");
                self.plan.note(KIND, self.cron, "SawCompletedJob", message);
                self.deactivate(uid);
            }
            let completed = tree::time(&found, "/status/completionTime");
            let last =
                self.status.get("lastSuccessfulTime").and_then(Value::as_str).and_then(|at| at.parse().ok());
            if let Some(completed) =
                completed.filter(|completed| last.is_none_or(|last: Timestamp| *completed > last))
            {
                self.status["lastSuccessfulTime"] = tree::time_text(completed).into();
            }
        }
        for reference in self.active.clone() {
            let (uid, name) = (tree::text(&reference, "/uid"), tree::text(&reference, "/name"));
            let is_known = self.jobs.iter().any(|job| tree::uid(job) == uid);
            if !is_known && self.world.get(kind::JOBS, tree::namespace(self.cron), name).is_none() {
                self.plan.note(KIND, self.cron, "MissingJob", format!("Active job went missing: {name}"));
                self.deactivate(uid);
            }
        }
    }

    /// The status names a Job that was started; one that this controller made and had no time to write down is known by
    /// the time in its name.
    fn take_up(&mut self, job: &Value) {
        if self.is_active(tree::uid(job)) {
            return;
        }
        let name = tree::name(job);
        let minutes = name.strip_prefix(tree::name(self.cron)).and_then(|rest| rest.strip_prefix('-'));
        let Some(time) = minutes.and_then(|minutes| minutes.parse::<i64>().ok()).and_then(of_minutes) else {
            let message = format!("Saw a job that the controller did not create or forgot: {name}");
            self.plan.warn(KIND, self.cron, "UnexpectedJob", message);
            return;
        };
        self.active.push(tree::reference(kind::JOBS, job));
        if self.last_scheduled().is_none_or(|last| last < time) {
            self.status["lastScheduleTime"] = tree::time_text(time).into();
        }
    }

    fn last_scheduled(&self) -> Option<Timestamp> {
        self.status.get("lastScheduleTime").and_then(Value::as_str).and_then(|time| time.parse().ok())
    }

    fn forget_finished(&mut self) {
        for (kind, limit) in
            [("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")]
        {
            let Some(limit) =
                self.cron.pointer("/spec").and_then(|spec| spec.get(limit)).and_then(Value::as_u64)
            else {
                continue;
            };
            let ended = |job: &&Value| job::finished(job).is_some_and(|it| tree::text(it, "/type") == kind);
            let mut jobs: Vec<Value> = self.jobs.iter().filter(ended).cloned().collect();
            jobs.sort_by_cached_key(|job| {
                let started = tree::time(job, "/status/startTime");
                (started.is_none(), started, tree::name(job).to_owned())
            });
            let surplus = jobs.len().saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
            for job in jobs.iter().take(surplus) {
                self.delete(job);
            }
        }
    }

    fn delete(&mut self, job: &Value) {
        if tree::is_deleting(job) {
            return;
        }
        self.plan.then(Action::delete_with(kind::JOBS, job, Propagation::Background));
        self.plan.note(KIND, self.cron, "SuccessfulDelete", format!("Deleted job {}", tree::name(job)));
        self.deactivate(tree::uid(job));
    }

    fn zone(&self) -> Option<TimeZone> {
        schedule::zone(tree::text(self.cron, "/spec/timeZone"))
    }

    fn start(&mut self) {
        let Some(zone) = self.zone() else {
            let name = tree::text(self.cron, "/spec/timeZone");
            let message = format!("invalid timeZone: \"{name}\": unknown time zone {name}");
            return self.plan.warn(KIND, self.cron, "UnknownTimeZone", message);
        };
        if tree::flag(self.cron, "/spec/suspend") {
            return;
        }
        let text = tree::text(self.cron, "/spec/schedule");
        let Some(schedule) = Schedule::parse(text, zone) else {
            let message = format!("unparseable schedule: \"{text}\"");
            return self.plan.warn(KIND, self.cron, "UnparseableSchedule", message);
        };
        if let Some(time) = self.due(&schedule) {
            self.start_at(time);
        }
        if let Some(wait) = self.until_next(&schedule) {
            self.plan.look_again(wait.saturating_add(AFTER));
        }
    }

    fn until_next(&self, schedule: &Schedule) -> Option<Duration> {
        let now = self.world.now();
        Duration::try_from(schedule.next(now)?.duration_since(now)).ok()
    }

    /// The last time up to now at which a Job should have started and did not.
    fn due(&mut self, schedule: &Schedule) -> Option<Timestamp> {
        let now = self.world.now();
        let created = tree::time(self.cron, "/metadata/creationTimestamp");
        let mut earliest = self.last_scheduled().or(created)?;
        let deadline = tree::number(self.cron, "/spec/startingDeadlineSeconds");
        if let Some(seconds) = deadline
            && let Ok(oldest) = now.checked_sub(SignedDuration::from_secs(seconds))
        {
            earliest = earliest.max(oldest);
        }
        let first = schedule.next(earliest).filter(|first| *first <= now)?;
        let (last, missed) = last_until(schedule, first, now);
        if missed > MANY {
            let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            self.plan.warn(KIND, self.cron, "TooManyMissedTimes", message);
        }
        Some(last)
    }

    fn start_at(&mut self, time: Timestamp) {
        if self.last_scheduled() == Some(time) || self.rests() {
            return;
        }
        match tree::text(self.cron, "/spec/concurrencyPolicy") {
            "Forbid" if !self.active.is_empty() => {
                let message =
                    "Not starting job because prior execution is running and concurrency policy is Forbid";
                return self.plan.note(KIND, self.cron, "JobAlreadyActive", message);
            }
            "Replace" => {
                let running: Vec<Value> =
                    self.jobs.iter().filter(|job| self.is_active(tree::uid(job))).cloned().collect();
                running.iter().for_each(|job| self.delete(job));
            }
            _ => {}
        }
        let job = self.job(time);
        let name = tree::name(&job).to_owned();
        // One of that name is either ours, and then it was taken up, or somebody else's.
        if self.world.get(kind::JOBS, tree::namespace(self.cron), &name).is_some() {
            return;
        }
        self.plan.then(Action::create(kind::JOBS, job));
        self.plan.note(KIND, self.cron, "SuccessfulCreate", format!("Created job {name}"));
        self.status["lastScheduleTime"] = tree::time_text(time).into();
    }

    /// The API server did not take the last Job, and it is too early to try again.
    fn rests(&mut self) -> bool {
        let refusal = self.world.refusal(KIND, tree::namespace(self.cron), tree::name(self.cron));
        let Some(refusal) = refusal else { return false };
        if refusal.fresh && !refusal.namespace_ends {
            self.plan.warn(
                KIND,
                self.cron,
                "FailedCreate",
                format!("Error creating job: {}", refusal.message),
            );
        }
        let Some(rest) = refusal.rest(self.world.now()) else { return false };
        self.plan.look_again(rest);
        true
    }

    fn job(&self, time: Timestamp) -> Value {
        let template = self.cron.pointer("/spec/jobTemplate").unwrap_or(&Value::Null);
        let of = |at: &str| template.pointer(at).cloned().unwrap_or_else(|| json!({}));
        let mut annotations = of("/metadata/annotations");
        let zone = self.zone().unwrap_or(TimeZone::UTC);
        annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"] = rfc3339(time, &zone).into();
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {
                "name": format!("{}-{}", tree::name(self.cron), time.as_second().div_euclid(60)),
                "namespace": tree::namespace(self.cron),
                "labels": of("/metadata/labels"),
                "annotations": annotations,
                "ownerReferences": [tree::controller_reference(KIND, self.cron)],
            },
            "spec": of("/spec"),
        })
    }
}

fn of_minutes(minutes: i64) -> Option<Timestamp> {
    Timestamp::from_second(minutes.checked_mul(60)?).ok()
}

/// The last time from `first` to `now`, and about how many there were. As upstream does, most are skipped by assuming
/// that they are as far apart as the first two.
fn last_until(schedule: &Schedule, first: Timestamp, now: Timestamp) -> (Timestamp, i64) {
    let Some(second) = schedule.next(first).filter(|second| *second <= now) else { return (first, 1) };
    let apart = second.duration_since(first).as_secs().max(1);
    let missed = now.duration_since(first).as_secs() / apart + 1;
    let skipped = SignedDuration::from_secs((missed - 2).max(0).saturating_mul(apart));
    let mut last = first;
    let mut from = first.checked_add(skipped).unwrap_or(first);
    while let Some(time) = schedule.next(from).filter(|time| *time <= now) {
        last = time;
        from = time;
    }
    (last.max(first), missed)
}

/// As Go prints it: `Z` for UTC, else the offset.
fn rfc3339(time: Timestamp, zone: &TimeZone) -> String {
    let offset = zone.to_offset(time);
    if offset.seconds() == 0 {
        return tree::time_text(time);
    }
    let (sign, seconds) =
        if offset.seconds() < 0 { ('-', -offset.seconds()) } else { ('+', offset.seconds()) };
    let local = zone.to_datetime(time).strftime("%Y-%m-%dT%H:%M:%S").to_string();
    format!("{local}{sign}{:02}:{:02}", seconds / 3600, seconds % 3600 / 60)
}
