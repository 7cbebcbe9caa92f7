//! One controller from its start until nothing is left of what it made: it is asked for something, then for something else, then
//! for nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use testing::patience::eventually;
use tokio::time::{Instant, sleep};

use super::{
    api::text,
    bundle::{Bundle, corpus},
    controller::Controller,
    course::{self, Outcome},
    picture::{Picture, title},
    program::Program,
    side::{Side, listed},
};

const LOOK_EVERY: Duration = Duration::from_millis(1000);
/// What is still there after so long, when all else is gone, stays: garbage is collected in the background.
const STAYS: Duration = Duration::from_secs(40);
/// What has not become what it is elsewhere, and does not change for so long, will not.
const STANDSTILL: Duration = Duration::from_secs(75);
const LONGEST: Duration = Duration::from_secs(240);
/// So often one may write after it was quiet, before it counts as never at rest.
const TICKS: u32 = 6;
const AT_ONCE: usize = 8;
/// What controllers make, beside kinds of their own. Pods and ReplicaSets are counted, for their names are chosen.
const MADE: [(&str, &str); 19] = [
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "Service"),
    ("v1", "ServiceAccount"),
    ("v1", "ResourceQuota"),
    ("v1", "LimitRange"),
    ("v1", "PersistentVolumeClaim"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("networking.k8s.io/v1", "Ingress"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("policy/v1", "PodDisruptionBudget"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("discovery.k8s.io/v1", "EndpointSlice"),
];

/// How a controller runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Runs {
    Outside,
    Placed,
}

/// What becomes of what a controller is asked for, where it is known that it works.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tended {
    /// After the first request, and after it was changed.
    pub stages: [Picture; 2],
    /// When all that was asked for is deleted.
    pub left: BTreeSet<String>,
}

impl Tended {
    fn file(name: &str) -> std::path::PathBuf {
        corpus().join("plain/controllers").join(format!("{name}.txt"))
    }

    pub fn read(name: &str) -> Result<Tended> {
        let file = Self::file(name);
        let said = std::fs::read_to_string(&file).with_context(|| {
            format!(
                "{} is missing; HANSE_CORPUS_RECORD=1 ./test corpus-controllers-plain writes it",
                file.display()
            )
        })?;
        let mut tended = Tended::default();
        for line in said.lines() {
            let (stage, rest) = line.split_once(' ').with_context(|| line.to_owned())?;
            let at = match stage {
                "used" => 0,
                "changed" => 1,
                _ => {
                    tended.left.insert(rest.to_owned());
                    continue;
                }
            };
            let (what, state) = rest.split_once(": ").with_context(|| line.to_owned())?;
            tended.stages[at].0.insert(what.to_owned(), state.to_owned());
        }
        Ok(tended)
    }

    pub fn write(&self, name: &str) -> Result<()> {
        let stage = |word: &str, picture: &Picture| -> String {
            picture.0.iter().map(|(what, state)| format!("{word} {what}: {state}\n")).collect()
        };
        let left: String = self.left.iter().map(|it| format!("left {it}\n")).collect();
        let all = [stage("used", &self.stages[0]), stage("changed", &self.stages[1]), left].concat();
        let file = Self::file(name);
        std::fs::create_dir_all(file.parent().context("a folder")?)?;
        Ok(std::fs::write(file, all)?)
    }
}

/// Runs it on a cluster that stands alone, and says what became of it.
pub async fn found(side: &Side, controller: &Controller) -> Result<Tended> {
    let program = start(side, controller, Runs::Outside).await?;
    let seen = async {
        let mut tended = Tended::default();
        for (at, stage) in [&controller.used, &controller.changed].into_iter().enumerate() {
            course::apply(side, stage).await?;
            tended.stages[at] = at_rest(side, controller, stage).await?;
        }
        course::delete(side, &controller.changed).await?;
        tended.left = left_at_rest(side, controller).await?;
        program.went_on()?;
        anyhow::Ok(tended)
    };
    let seen = seen.await.with_context(|| program.said());
    end(side, controller, program).await?;
    seen
}

/// Runs it on a hub, and says what is not as it is on a cluster that stands alone.
pub async fn tried(side: &Side, controller: &Controller, runs: Runs, plain: &Tended) -> Outcome {
    let mut outcome =
        Outcome { bundle: controller.name.clone(), misses: Vec::new(), hidden: BTreeSet::new(), seconds: 0 };
    let began = Instant::now();
    if let Err(error) = try_all(side, controller, runs, plain, &mut outcome).await {
        outcome.misses.push(format!("{error:#}"));
    }
    outcome.seconds = began.elapsed().as_secs();
    let state = if outcome.misses.is_empty() { "ok" } else { "MISSED" };
    println!("{:<10} {:<24} {state:<6} {:>3} s", runs.name(), controller.name, outcome.seconds);
    outcome.misses.iter().for_each(|miss| println!("    {miss}"));
    outcome
}

impl Runs {
    pub fn name(self) -> &'static str {
        match self {
            Runs::Outside => "outside",
            Runs::Placed => "placed",
        }
    }
}

async fn try_all(
    side: &Side,
    controller: &Controller,
    runs: Runs,
    plain: &Tended,
    outcome: &mut Outcome,
) -> Result<()> {
    let program = start(side, controller, runs).await?;
    let asked = ask(side, controller, plain, &mut outcome.misses).await;
    outcome.misses.extend(program.went_on().err().map(|it| format!("{it:#}")));
    if !outcome.misses.is_empty() || asked.is_err() {
        println!("{}: {}", controller.name, program.said());
    }
    // In any case: what it leaves behind would be in the way of others.
    let ended = end(side, controller, program).await;
    asked.and(ended)
}

async fn ask(side: &Side, controller: &Controller, plain: &Tended, misses: &mut Vec<String>) -> Result<()> {
    for (stage, wanted) in [&controller.used, &controller.changed].into_iter().zip(&plain.stages) {
        if let Err(error) = course::apply(side, stage).await {
            misses.push(format!("it is refused: {error:#}"));
        }
        misses.extend(until_same(side, controller, stage, wanted).await?);
    }
    course::delete(side, &controller.changed).await?;
    misses.extend(until_left(side, controller, &plain.left).await?);
    Ok(())
}

async fn start(side: &Side, controller: &Controller, runs: Runs) -> Result<Program> {
    course::apply(side, &controller.install).await?;
    for namespace in controller.used.namespaces() {
        side.api.apply(&namespace, "").await?;
    }
    until_served(side, controller).await?;
    match runs {
        Runs::Outside => Program::outside(side, controller).await,
        Runs::Placed => Program::placed(side, controller).await,
    }
}

/// As who installs an operator waits for its definitions: some look only once for their kinds.
async fn until_served(side: &Side, controller: &Controller) -> Result<()> {
    for (version, kind) in &controller.kinds {
        eventually("its definitions are served", || async {
            let served = side.api.served(&json!({"apiVersion": version, "kind": kind})).await;
            let Ok(served) = served else { return Ok(None) };
            Ok(side.api.is_listed(&served).await?.then_some(()))
        })
        .await?;
    }
    Ok(())
}

/// Namespaces go while the controller still works, for it may have to let go of what is in them.
async fn end(side: &Side, controller: &Controller, program: Program) -> Result<()> {
    course::end(side, &controller.used).await?;
    side.api.delete(&controller.deployment, "").await?;
    drop(program);
    course::delete(side, &controller.install).await?;
    course::end(side, &controller.install).await
}

/// Those of what it is asked for, and those that it makes: they begin with its name.
async fn namespaces(side: &Side, controller: &Controller) -> Result<Vec<Value>> {
    let served = side.api.served(&json!({"apiVersion": "v1", "kind": "Namespace"})).await?;
    let mut all = side.api.list(&served, None).await?;
    let prefix = format!("{}-", controller.name);
    all.retain(|it| {
        let name = text(it, "/metadata/name");
        name == controller.name || name.starts_with(&prefix) && name != controller.home()
    });
    all.iter_mut().for_each(|it| it["kind"] = "Namespace".into());
    Ok(all)
}

/// All that is there of what it was asked for and of what was made of that.
async fn objects(side: &Side, controller: &Controller) -> Result<Vec<Value>> {
    let mut all = namespaces(side, controller).await?;
    let own = controller.kinds.iter().map(|(version, kind)| (version.as_str(), kind.as_str()));
    let kinds: Vec<(&str, &str)> =
        MADE.into_iter().chain([("v1", "Pod"), ("apps/v1", "ReplicaSet")]).chain(own).collect();
    let names: Vec<String> = all.iter().map(|it| text(it, "/metadata/name").to_owned()).collect();
    let asked = names.iter().flat_map(|name| kinds.iter().map(move |kind| (*kind, name.as_str())));
    let asked: Vec<((&str, &str), &str)> = asked.collect();
    let lists = stream::iter(asked).map(|((version, kind), namespace)| async move {
        // Its own kinds may be in no namespace, or not served yet.
        let object = json!({"apiVersion": version, "kind": kind});
        match side.api.served(&object).await {
            Ok(served) if served.namespaced => listed(&[&side.api], version, kind, namespace).await,
            _ => Ok(Vec::new()),
        }
    });
    let lists: Vec<Vec<Value>> = lists.buffer_unordered(AT_ONCE).try_collect().await?;
    all.extend(lists.into_iter().flatten());
    // Claims of StatefulSets are in the clusters alone.
    for namespace in &names {
        for claim in listed(&side.clusters(), "v1", "PersistentVolumeClaim", namespace).await? {
            let is_known = all.iter().any(|it| title(it, "") == title(&claim, ""));
            if !is_known {
                all.push(claim);
            }
        }
    }
    all.retain(|it| !is_of_every_namespace(it));
    Ok(all)
}

fn is_of_every_namespace(object: &Value) -> bool {
    let by = text(object, "/metadata/labels/endpointslice.kubernetes.io~1managed-by");
    let short = format!("{} {}", text(object, "/kind"), text(object, "/metadata/name"));
    short == "ServiceAccount default"
        || short == "ConfigMap kube-root-ca.crt"
        || by.ends_with(".k8s.io") && object["kind"] == "EndpointSlice"
}

/// What can be seen now.
async fn picture(side: &Side, controller: &Controller, stage: &Bundle) -> Result<Picture> {
    let mut picture = Picture::default();
    let objects = objects(side, controller).await?;
    for object in stage.contents() {
        let found = side.api.get(object, &stage.name).await?;
        picture.add(object, found.as_ref(), &stage.name);
    }
    let is_counted = |it: &Value| it["kind"] == "Pod" || it["kind"] == "ReplicaSet";
    let (counted, named): (Vec<Value>, Vec<Value>) = objects.iter().cloned().partition(is_counted);
    for object in &named {
        picture.add(object, Some(object), &stage.name);
        picture.add_content(object, &stage.name);
    }
    picture.add_made(&counted, &counted, &stage.name);
    for namespace in namespaces(side, controller).await? {
        let namespace = text(&namespace, "/metadata/name");
        let slices = listed(&side.clusters(), "discovery.k8s.io/v1", "EndpointSlice", namespace).await?;
        picture.add_endpoints(&slices, &stage.name);
    }
    Ok(picture)
}

/// Of each object, in which version it is.
async fn versions(side: &Side, controller: &Controller, stage: &Bundle) -> Result<BTreeMap<String, String>> {
    let mut all = objects(side, controller).await?;
    for object in stage.contents() {
        all.extend(side.api.get(object, &stage.name).await?);
    }
    let version = |it: &Value| (title(it, ""), text(it, "/metadata/resourceVersion").to_owned());
    Ok(all.iter().map(version).collect())
}

/// Waits until nobody writes anything any more; else, what is written.
async fn until_quiet(side: &Side, controller: &Controller, stage: &Bundle) -> Result<Vec<String>> {
    let began = Instant::now();
    let mut last = versions(side, controller, stage).await?;
    loop {
        sleep(controller.quiet).await;
        let now = versions(side, controller, stage).await?;
        let written: Vec<String> = now
            .iter()
            .filter(|(what, version)| last.get(*what) != Some(version))
            .map(|it| it.0.clone())
            .collect();
        if written.is_empty() && now.len() == last.len() {
            return Ok(Vec::new());
        }
        if began.elapsed() > STANDSTILL.max(controller.quiet * TICKS) {
            return Ok(vec![format!("never at rest: {}", written.join(", "))]);
        }
        last = now;
    }
}

/// What it looks like when nothing changes any more.
async fn at_rest(side: &Side, controller: &Controller, stage: &Bundle) -> Result<Picture> {
    let began = Instant::now();
    loop {
        let restless = until_quiet(side, controller, stage).await?;
        if !restless.is_empty() {
            bail!("{}", restless.join("\n"));
        }
        let picture = picture(side, controller, stage).await?;
        let heard = is_heard(controller, stage, &picture);
        // Some always seem to be on their way.
        if heard && (picture.is_done() || began.elapsed() > STAYS) {
            return Ok(picture);
        }
        if began.elapsed() > STANDSTILL {
            bail!("{} does not get there: {picture}", controller.name);
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Whether the controller has said anything of what it is asked for, and of what it is asked for now.
fn is_heard(controller: &Controller, stage: &Bundle, picture: &Picture) -> bool {
    let is_own = |it: &&Value| controller.kinds.iter().any(|(_, kind)| it["kind"] == kind.as_str());
    let states = stage.contents().filter(is_own).filter_map(|it| picture.0.get(&title(it, &stage.name)));
    let states: Vec<&String> = states.collect();
    states.iter().any(|it| *it != "Unknown") && !states.iter().any(|it| it.contains("; behind"))
}

/// Waits until it looks as it should, and then until nothing is written any more; else, what is not so.
async fn until_same(
    side: &Side,
    controller: &Controller,
    stage: &Bundle,
    wanted: &Picture,
) -> Result<Vec<String>> {
    let (began, mut since) = (Instant::now(), Instant::now());
    let mut last: Option<Picture> = None;
    loop {
        let now = picture(side, controller, stage).await?;
        let differences = now.differences(wanted);
        if differences.is_empty() {
            break;
        }
        if last.as_ref() != Some(&now) {
            (last, since) = (Some(now), Instant::now());
        }
        if since.elapsed() > STANDSTILL || began.elapsed() > LONGEST {
            return Ok(differences);
        }
        sleep(LOOK_EVERY).await;
    }
    let restless = until_quiet(side, controller, stage).await?;
    let after = picture(side, controller, stage).await?.differences(wanted);
    Ok([restless, after].concat())
}

/// What is in the namespaces, where it was asked for and where it runs, and namespaces that the controller made.
async fn left(side: &Side, controller: &Controller) -> Result<BTreeSet<String>> {
    let mut left = side.left(&controller.changed).await?;
    let brought = controller.used.namespaces();
    for namespace in namespaces(side, controller).await? {
        if !brought.iter().any(|it| it["metadata"]["name"] == namespace["metadata"]["name"]) {
            left.insert(title(&namespace, ""));
        }
    }
    Ok(left)
}

async fn left_at_rest(side: &Side, controller: &Controller) -> Result<BTreeSet<String>> {
    let began = Instant::now();
    let (mut last, mut since) = (left(side, controller).await?, Instant::now());
    while since.elapsed() < if last.is_empty() { controller.quiet } else { STAYS.max(controller.quiet) } {
        sleep(LOOK_EVERY).await;
        let now = left(side, controller).await?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
        if began.elapsed() > LONGEST {
            bail!("{} does not end: {last:?}", controller.name);
        }
    }
    Ok(last)
}

/// Waits until no more is left than elsewhere, and no less; else, what differs.
async fn until_left(side: &Side, controller: &Controller, wanted: &BTreeSet<String>) -> Result<Vec<String>> {
    let began = Instant::now();
    loop {
        let left = left(side, controller).await?;
        if left == *wanted {
            return Ok(Vec::new());
        }
        if began.elapsed() > STANDSTILL {
            return Ok(course::differences(&left, wanted));
        }
        sleep(LOOK_EVERY).await;
    }
}
