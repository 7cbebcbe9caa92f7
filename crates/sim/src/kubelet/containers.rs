//! One container: waiting, running, terminated, and again.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Life, images, needs};
use crate::{
    World,
    script::{self, Surroundings},
    tree,
};

/// The longest pause before a container that keeps failing is started again.
const LONGEST_PAUSE: i64 = 300;
const FIRST_PAUSE: i64 = 10;

/// What a container is to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It must end well before the next one starts.
    Init,
    /// It starts before the others and stays.
    Sidecar,
    Main,
}

/// A container's status after this moment, and when to look again.
pub struct Advanced {
    pub status: Value,
    pub again: Option<Duration>,
    pub notes: Vec<(bool, &'static str, String)>,
}

pub struct Container<'a> {
    pub world: &'a dyn World,
    pub pod: &'a Value,
    pub spec: &'a Value,
    pub status: Option<&'a Value>,
    pub role: Role,
    /// Since when it may start; `None`: not yet.
    pub may_start: Option<Timestamp>,
}

fn whole(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

fn until(due: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(due.duration_since(now)).unwrap_or_default()
}

/// Why a container of a pod waits that has not been started; upstream says the same of all.
pub fn not_yet(pod: &Value) -> &'static str {
    match tree::items(pod, "/spec/initContainers").len() {
        0 => "ContainerCreating",
        _ => "PodInitializing",
    }
}

/// Later, or as late as time goes.
fn after(time: Timestamp, duration: Duration) -> Timestamp {
    time.checked_add(whole(duration)).unwrap_or(Timestamp::MAX)
}

/// Runs of a container before the one that is asked for, of which so many can have left something.
const MOST_RUNS: i64 = 100;

/// What a simulated container runs after so many restarts, if it is known what that does. What earlier runs wrote to
/// volumes is still there.
pub fn program(pod: &Value, spec: &Value, restarts: i64) -> Option<script::Run> {
    let words = |pointer: &str| tree::items(spec, pointer).filter_map(Value::as_str).map(str::to_owned);
    let words: Vec<String> = words("/command").chain(words("/args")).collect();
    let mut around = surroundings(pod, spec);
    let image = around.files.clone();
    for _ in 0..restarts.min(MOST_RUNS) {
        let written = script::run(&words, &around)?.files;
        let mut files = image.clone();
        files.extend(written.into_iter().filter(|(path, _)| is_on_volume(spec, path)));
        if files == around.files {
            break;
        }
        around.files = files;
    }
    script::run(&words, &around).filter(|run| run.is_known)
}

fn is_on_volume(spec: &Value, path: &str) -> bool {
    let mounts = tree::items(spec, "/volumeMounts").map(|mount| tree::text(mount, "/mountPath"));
    mounts
        .map(|it| it.trim_end_matches('/'))
        .any(|it| path.strip_prefix(it).is_some_and(|it| it.starts_with('/')))
}

/// What a `fieldPath` of a container's environment stands for: members, and one label or annotation in brackets.
fn field<'a>(pod: &'a Value, path: &str) -> &'a str {
    let bracketed = path.split_once("['").and_then(|(map, key)| Some((map, key.strip_suffix("']")?)));
    match bracketed {
        Some(("metadata.labels", key)) => tree::label(pod, key),
        Some(("metadata.annotations", key)) => tree::annotation(pod, key),
        Some(_) => "",
        None => tree::text(pod, &format!("/{}", path.replace('.', "/"))),
    }
}

pub fn surroundings(pod: &Value, spec: &Value) -> Surroundings {
    let mut variables: std::collections::BTreeMap<String, String> = [
        ("HOME".to_owned(), "/root".to_owned()),
        ("HOSTNAME".to_owned(), tree::name(pod).to_owned()),
        ("PATH".to_owned(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
    ]
    .into();
    for variable in tree::items(spec, "/env") {
        let value = match tree::text(variable, "/valueFrom/fieldRef/fieldPath") {
            "" => tree::text(variable, "/value"),
            path => field(pod, path),
        };
        variables.insert(tree::text(variable, "/name").to_owned(), value.to_owned());
    }
    let files = [
        ("/etc/hostname".to_owned(), format!("{}\n", tree::name(pod))),
        (
            "/var/run/secrets/kubernetes.io/serviceaccount/namespace".to_owned(),
            tree::namespace(pod).to_owned(),
        ),
    ];
    Surroundings { host: tree::name(pod).to_owned(), variables, files: files.into(), date: String::new() }
}

impl Container<'_> {
    fn name(&self) -> &str {
        tree::text(self.spec, "/name")
    }

    fn now(&self) -> Timestamp {
        self.world.now()
    }

    /// How long it runs, and how it ends then; `None`: for ever.
    fn run(&self, life: &Life) -> Option<(Duration, i32)> {
        if self.role == Role::Main
            && let Some(after) = life.exit_after
        {
            return Some((after, life.exit_code));
        }
        match program(self.pod, self.spec, self.restarts()) {
            Some(run) => run.ends,
            None if self.role == Role::Init => Some((Duration::ZERO, 0)),
            None if self.role == Role::Main && life.is_job => Some((life.job_takes, life.exit_code)),
            None => None,
        }
    }

    fn restarts_after(&self, code: i64) -> bool {
        let policy = match tree::text(self.spec, "/restartPolicy") {
            "" => tree::text(self.pod, "/spec/restartPolicy"),
            own => own,
        };
        match (self.role, policy) {
            (Role::Sidecar, _) => true,
            (Role::Init, "Never") => false,
            (Role::Init, _) => code != 0,
            (Role::Main, "Never") => false,
            (Role::Main, "OnFailure") => code != 0,
            (Role::Main, _) => true,
        }
    }

    fn waiting(&self, reason: &str, message: &str) -> Value {
        let mut state = json!({"reason": reason});
        if !message.is_empty() {
            state["message"] = json!(message);
        }
        self.with(json!({"waiting": state}), false, self.restarts(), self.last())
    }

    fn restarts(&self) -> i64 {
        self.status.and_then(|it| tree::number(it, "/restartCount")).unwrap_or(0)
    }

    fn last(&self) -> Value {
        self.status.and_then(|it| it.get("lastState")).cloned().unwrap_or_else(|| json!({}))
    }

    fn with(&self, state: Value, ready: bool, restarts: i64, last: Value) -> Value {
        let image = tree::text(self.spec, "/image");
        let running = state.get("running").is_some();
        let mut status = json!({
            "name": self.name(), "image": image, "imageID": "", "ready": ready, "restartCount": restarts,
            "started": running, "state": state, "lastState": last,
        });
        if state.get("waiting").is_none() || restarts > 0 {
            status["imageID"] = json!(format!("sim://{image}"));
            status["containerID"] =
                json!(format!("sim://{}/{}/{restarts}", tree::uid(self.pod), self.name()));
        }
        status
    }

    fn unchanged(&self) -> Advanced {
        let status = match self.status {
            Some(status) => status.clone(),
            None => self.waiting("PodInitializing", ""),
        };
        Advanced { status, again: None, notes: Vec::new() }
    }

    pub fn advance(&self, life: &Life) -> Advanced {
        let state = |member: &str| self.status.and_then(|it| it.get("state")?.get(member));
        if let Some(terminated) = state("terminated") {
            return self.after_end(terminated);
        }
        if let Some(running) = state("running") {
            return self.while_running(running, life);
        }
        self.while_waiting(life)
    }

    fn while_waiting(&self, life: &Life) -> Advanced {
        let quiet = |status: Value| Advanced { status, again: None, notes: Vec::new() };
        let Some(may_start) = self.may_start else {
            return match self.status {
                Some(status) => quiet(status.clone()),
                None => quiet(self.waiting("PodInitializing", "")),
            };
        };
        let now = self.now();
        if !life.stuck.is_empty() {
            return quiet(self.waiting(&life.stuck, "as its annotation asks for"));
        }
        if let Some(why) = needs::missing_variable(self.world, self.pod, self.spec) {
            let again = Some(Duration::from_secs(2));
            let note = (true, "Failed", format!("Error: {why}"));
            let known = self.status.is_some_and(|it| tree::text(it, "/state/waiting/message") == why);
            let notes = if known { Vec::new() } else { vec![note] };
            return Advanced { status: self.waiting("CreateContainerConfigError", &why), again, notes };
        }
        let ended = self.status.and_then(|it| tree::time(it, "/lastState/terminated/finishedAt"));
        let due = match ended.filter(|_| self.restarts_on()) {
            Some(ended) => after(ended, self.pause()),
            None => after(may_start, life.start_after),
        };
        if now < due {
            let again = Some(until(due, now));
            let status = match self.status {
                Some(status) => status.clone(),
                None => self.waiting(not_yet(self.pod), ""),
            };
            return Advanced { status, again, notes: Vec::new() };
        }
        let waited = Duration::try_from(now.duration_since(due)).unwrap_or_default();
        if let Some(failure) = images::failure(self.spec, waited) {
            let known =
                self.status.is_some_and(|it| tree::text(it, "/state/waiting/reason") == failure.reason);
            let notes = if known { Vec::new() } else { failure.notes };
            let status = self.waiting(failure.reason, &failure.message);
            return Advanced { status, again: failure.again, notes };
        }
        let restarts = if ended.is_some() { self.restarts() + 1 } else { self.restarts() };
        let started = json!({"running": {"startedAt": tree::time_text(now)}});
        let name = self.name();
        let notes = vec![
            (
                false,
                "Pulled",
                format!("Container image \"{}\" already present on machine", tree::text(self.spec, "/image")),
            ),
            (false, "Created", format!("Container created: {name}")),
            (false, "Started", format!("Container started: {name}")),
        ];
        let status = self.with(started, false, restarts, self.last());
        let running = json!({"startedAt": tree::time_text(now)});
        let begun = Container { status: Some(&status), ..*self };
        let mut next = begun.while_running(&running, life);
        next.notes.splice(0..0, notes);
        next
    }

    /// It was started before and ended.
    fn restarts_on(&self) -> bool {
        self.status.is_some_and(|it| tree::text(it, "/state/waiting/reason") == "CrashLoopBackOff")
    }

    fn pause(&self) -> Duration {
        let doubled = FIRST_PAUSE.saturating_mul(1 << self.restarts().clamp(0, 10));
        Duration::from_secs(doubled.min(LONGEST_PAUSE) as u64)
    }

    fn while_running(&self, running: &Value, life: &Life) -> Advanced {
        let now = self.now();
        let started = tree::time(running, "/startedAt").unwrap_or(now);
        let ends = self.run(life);
        if let Some((takes, code)) = ends
            && after(started, takes) <= now
        {
            let finished = after(started, takes);
            let terminated = json!({
                "exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" },
                "startedAt": tree::time_text(started), "finishedAt": tree::time_text(finished),
                "containerID": format!("sim://{}/{}/{}", tree::uid(self.pod), self.name(), self.restarts()),
            });
            let status = self.with(json!({"terminated": terminated}), false, self.restarts(), self.last());
            let ended = Container { status: Some(&status), ..*self };
            return ended.after_end(&terminated);
        }
        let (said, probed) = life.ready_after;
        let has_probe = self.spec.get("readinessProbe").is_some();
        let ready_at = after(started, said.unwrap_or(if has_probe { probed } else { Duration::ZERO }));
        let is_ready = ready_at <= now;
        let mut again = ends.map(|(takes, _)| until(after(started, takes), now));
        if !is_ready {
            let soon = until(ready_at, now);
            again = Some(again.map_or(soon, |it| it.min(soon)));
        }
        let state = json!({"running": {"startedAt": tree::time_text(started)}});
        let status = self.with(state, is_ready && self.role != Role::Init, self.restarts(), self.last());
        Advanced { status, again, notes: Vec::new() }
    }

    fn after_end(&self, terminated: &Value) -> Advanced {
        let code = tree::number(terminated, "/exitCode").unwrap_or(0);
        if !self.restarts_after(code) {
            let mut advanced = self.unchanged();
            // An init container that has done its work counts as ready.
            advanced.status["ready"] = json!(self.role == Role::Init && code == 0);
            return advanced;
        }
        let pause = self.pause();
        let seconds = pause.as_secs();
        let back_off = match seconds / 60 {
            0 => format!("{seconds}s"),
            minutes => format!("{minutes}m{}s", seconds % 60),
        };
        let message = format!(
            "back-off {back_off} restarting failed container={} pod={}_{}({})",
            self.name(),
            tree::name(self.pod),
            tree::namespace(self.pod),
            tree::uid(self.pod)
        );
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}});
        let mut status = self.with(waiting, false, self.restarts(), json!({"terminated": terminated}));
        status["containerID"] = terminated.get("containerID").cloned().unwrap_or_default();
        let finished = tree::time(terminated, "/finishedAt").unwrap_or_else(|| self.now());
        let again = Some(until(after(finished, pause), self.now()));
        let note = (
            true,
            "BackOff",
            format!("Back-off restarting failed container {} in pod {}", self.name(), tree::name(self.pod)),
        );
        Advanced { status, again, notes: vec![note] }
    }
}
