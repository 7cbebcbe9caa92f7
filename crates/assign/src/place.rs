//! One object: where it is to be, and what is written because of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use api::assignment::{self, Assignment, FINALIZER, Propagation, Reference, State, Target};
use jiff::SignedDuration;
use kinds::{Extent, Share, Split, Subject};
use machinery::{Draft, Object, object::ObjectError, resource::Tree};
use placement::{Decision, Fields, Input, Outcome, Policies, Strategy, decide};
use serde_json::{Value, json};
use server::space::Space;
use store::{Change, Commit, Expect, Key, Write};

use crate::{
    events::{self, News},
    leave,
    queue::{Aspect, Id},
    record::{self, Left},
    scale,
    world::{World, account, kind_of, namespace_of},
};

/// Labels of an Assignment that name its clusters, so that it can be selected by them, begin so.
const CLUSTER_LABELS: &str = "cluster.hanse.io/";

/// What is to be committed; `None`: all is as it should be.
pub type Step = Result<Option<Commit>, Problem>;

/// Why nothing can be committed.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// An error of the one who decides: nothing of the kind is ever written.
    #[error("a cluster of its Assignment would change as none may: {0}")]
    Illegal(String),
}

/// Looks at one object.
pub fn look(world: &mut World, id: &Id) -> Step {
    let Some(space) = world.hub.space_by_id(&id.workspace) else { return Ok(None) };
    let object = space.get(&id.key);
    let stored = space.get(&id.assignment());
    match (object, stored) {
        (_, Some(stored)) if stored.head.deleting => leave::take_leave(world, &space, id, &stored),
        (None, None) => Ok(None),
        (None, Some(stored)) => leave::orphan(world, id, &stored),
        // One of the same name was there before: its Assignment goes first.
        (Some(object), Some(stored)) if !belongs(world, &stored, &object)? => Ok(None),
        (Some(object), Some(stored)) if object.head.deleting && is_pod(&object) => {
            leave::dismiss(world, id, &stored)
        }
        (Some(object), Some(stored)) if is_pod(&object) && leave::is_lost(world, &stored)? => {
            leave::lose(world, id, &object, &stored)
        }
        (Some(object), None) if leave::has_ended(&object) && is_on_a_cluster(world, &space, &object)? => {
            Ok(Some(removed(&object, &id.key)))
        }
        (Some(object), stored) => assign(world, &space, id, &object, stored),
    }
}

/// Pods on nodes that are no clusters are their kubelets' to let go of.
fn is_on_a_cluster(world: &World, space: &Space, pod: &Object) -> Result<bool, ObjectError> {
    let tree = pod.tree()?;
    let node = tree.get("spec").and_then(|spec| spec.get("nodeName")).and_then(Value::as_str);
    Ok(node.is_some_and(|node| world.clusters.uid(space.id(), node).is_some()))
}

pub fn is_pod(object: &Object) -> bool {
    kind_of(object).is_some_and(|(group, _, kind)| (group, kind) == ("", "Pod"))
}

/// Whether the workspace is being deleted.
pub fn is_going(world: &World, space: &Space) -> bool {
    let key = Key::new(api::GROUP, "workspaces", "", space.name());
    world.hub.store.get(&server::hub::root_id(), &key).is_some_and(|workspace| workspace.head.deleting)
}

fn belongs(world: &World, stored: &Object, object: &Object) -> Result<bool, ObjectError> {
    Ok(world.hub.assignments.read(stored)?.spec.object.uid == object.head.uid.as_str())
}

pub fn metadata(tree: &mut Tree) -> &mut Tree {
    let metadata = tree.entry("metadata").or_insert_with(|| json!({}));
    if !metadata.is_object() {
        *metadata = json!({});
    }
    match metadata {
        Value::Object(metadata) => metadata,
        _ => unreachable!("it was made one"),
    }
}

fn assign(
    world: &mut World,
    space: &Space,
    id: &Id,
    object: &Arc<Object>,
    stored: Option<Arc<Object>>,
) -> Step {
    let namespace = space.get(&Key::new("", "namespaces", "", id.namespace()));
    // What is being deleted stays where it is until it is gone.
    if is_going(world, space) {
        return Ok(None);
    }
    let has_room = id.is_shared() || namespace.is_some_and(|namespace| !namespace.head.deleting);
    if object.head.deleting || !has_room {
        return Ok(None);
    }
    let old = stored.as_deref().map(|stored| world.hub.assignments.read(stored)).transpose()?;
    let old = old.as_deref();
    let new = match id.is_namespace() {
        true => namespace_itself(world, space, id, object, old)?,
        false => decided(world, space, id, object, old)?,
    };
    let Some(mut new) = new else { return Ok(None) };
    new.spec.propagation = keeps_copies(object)?.then_some(Propagation::Keep);
    new.status = old.map(|old| known(old, &new.spec.clusters)).unwrap_or_default();
    refuse_illegal(old, &new, false, |target| {
        let is_joined = world.clusters.is_joined(&target.uid);
        old.map_or(Left::Something, |old| record::left(old, target, is_joined))
    })?;
    if new.spec.clusters.is_empty() && new.spec.decision.message.is_empty() {
        // It is nowhere, which is where it should be: there is nothing to write down.
        let Some(stored) = stored else { return Ok(None) };
        let mut commit = removed(&stored, &id.assignment());
        tell(world, id, &new.spec.object, old.and_then(events::removal), &mut commit)?;
        return Ok(Some(commit));
    }
    let targets = &new.spec.clusters;
    let returned = world.holds.dropped(id, |uid| targets.iter().any(|target| target.uid == uid));
    world.give_back(returned);
    let commit = match (&stored, old) {
        (Some(_), Some(old)) if is_as_it_was(old, &new) => return Ok(None),
        (Some(stored), _) => put(stored, &id.assignment(), &new)?,
        (None, _) => Some(create(world, id, &new)?),
    };
    let Some(commit) = commit else { return Ok(None) };
    let mut commit = with_object(commit, space, id, object, &new)?;
    let news = events::news(old, &new, |uid| world.clusters.is_joined(uid));
    tell(world, id, &new.spec.object, news, &mut commit)?;
    Ok(Some(commit))
}

/// What is known of copies that stay, or are on their way out.
fn known(old: &Assignment, targets: &[Target]) -> assignment::Status {
    let mut status = old.status.clone();
    status.clusters.retain(|report| {
        let is_it = |target: &&Target| target.uid == report.uid;
        let was_there = old.spec.clusters.iter().any(|it| is_it(&it));
        // That it was gone once, or what another one did, says nothing of a copy that is to be made.
        let stays = |it: &Target| it.run == report.run && (it.state == State::Draining || !report.is_gone());
        was_there && targets.iter().find(is_it).is_some_and(stays)
    });
    status
}

/// What must not be is not written, whoever has decided it.
pub fn refuse_illegal(
    old: Option<&Assignment>,
    new: &Assignment,
    deleting: bool,
    left: impl Fn(&Target) -> Left,
) -> Result<(), Problem> {
    let Some(why) = record::illegal(old, new, deleting, left) else { return Ok(()) };
    tracing::error!(object = ?new.spec.object, why, "a decision was refused");
    Err(Problem::Illegal(why))
}

/// Has what is news told by the same commit that makes it so.
pub fn tell(
    world: &World,
    id: &Id,
    about: &Reference,
    news: impl IntoIterator<Item = News>,
    commit: &mut Commit,
) -> Result<(), ObjectError> {
    for news in news {
        commit.writes.push(events::event(&world.hub, &id.workspace, id.namespace(), about, &news)?);
    }
    Ok(())
}

pub fn removed(stored: &Object, key: &Key) -> Commit {
    let write = Write { key: key.clone(), expect: Expect::At(stored.revision), change: Change::Remove };
    Commit { guards: Vec::new(), writes: vec![write] }
}

/// What clusters were found to be like may be worded otherwise today; that alone is not worth a write.
fn is_as_it_was(old: &Assignment, new: &Assignment) -> bool {
    let (was, is) = (&old.spec.decision, &new.spec.decision);
    old.spec.object == new.spec.object
        && old.spec.propagation == new.spec.propagation
        && old.spec.clusters == new.spec.clusters
        && old.spec.finished == new.spec.finished
        && old.status == new.status
        && (&was.layer, &was.policy, was.strategy, was.algorithm, was.pending, &was.message)
            == (&is.layer, &is.policy, is.strategy, is.algorithm, is.pending, &is.message)
        && !(is.policy == placement::dialect::SOURCE && is_answered_now(was, is))
}

/// Whether a cluster that had no answer yet has one. Whoever federates waits for that: it says whether what is written has
/// come to all clusters that it is meant for.
fn is_answered_now(was: &assignment::Decision, is: &assignment::Decision) -> bool {
    let answer = |decision: &assignment::Decision, cluster: &str| {
        let verdict = decision.verdicts.iter().find(|it| it.cluster == cluster);
        verdict.is_some_and(|it| !dialects::report::NOT_YET.contains(&it.reason.as_str()))
    };
    is.verdicts.iter().any(|it| answer(is, &it.cluster) && !answer(was, &it.cluster))
}

pub fn reference(id: &Id, object: &Object) -> Option<Reference> {
    let (_, api_version, kind) = kind_of(object)?;
    Some(Reference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        resource: id.key.collection.parts().1.to_owned(),
        name: object.head.name.to_string(),
        uid: object.head.uid.to_string(),
    })
}

/// Whether copies are to stay when the object is deleted.
pub fn keeps_copies(object: &Object) -> Result<bool, ObjectError> {
    Ok(annotation(object, api::ON_DELETE_ANNOTATION)?.is_some_and(|it| it == "Keep"))
}

fn annotation(object: &Object, name: &str) -> Result<Option<String>, ObjectError> {
    // Hardly any has it, and none else need be taken apart.
    if !object.metadata_member().windows(name.len()).any(|window| window == name.as_bytes()) {
        return Ok(None);
    }
    let tree = object.tree()?;
    let metadata = tree.get("metadata").unwrap_or(&Value::Null);
    Ok(metadata["annotations"][name].as_str().map(str::to_owned))
}

/// The clusters that a federated namespace is in whatever is in it; `None`: it is not federated.
fn federated_in(object: &Object) -> Result<Option<Vec<String>>, ObjectError> {
    let said = annotation(object, api::FEDERATED_ANNOTATION)?;
    let rule = said.and_then(|said| placement::dialect::federated(&said).ok());
    Ok(rule.map(|rule| rule.clusters.names.unwrap_or_default()))
}

/// A namespace is wherever anything of it is, and stays there as long as it lives: others may come soon. One that is
/// federated is where that says, too, and stays nowhere else.
fn namespace_itself(
    world: &World,
    space: &Space,
    id: &Id,
    object: &Object,
    old: Option<&Assignment>,
) -> Result<Option<Assignment>, ObjectError> {
    let known = world.namespace(id);
    let mut names = known.map(|known| known.occupied()).unwrap_or_default();
    let before = old.map(|old| old.spec.clusters.as_slice()).unwrap_or_default();
    match federated_in(object)? {
        Some(clusters) => {
            // Whatever is written, an account uses what it may.
            let directory = world.clusters.directory(space.id());
            let serves = |name: &String| directory.get(name).is_some_and(|it| it.serves(account(space)));
            names.extend(clusters.into_iter().filter(serves));
        }
        None => {
            // What was to leave when it was federated leaves, however long a cluster was silent.
            let stay = before.iter().filter(|it| it.state != State::Draining);
            let joined = stay.filter(|it| world.clusters.is_joined(&it.uid));
            names.extend(joined.map(|it| it.name.clone()));
        }
    }
    let shares: BTreeMap<String, Share> = names.into_iter().map(|name| (name, Share::default())).collect();
    let targets = targets(world, space, old, &shares, false);
    let decision = assignment::Decision { layer: "Default".to_owned(), ..assignment::Decision::default() };
    let Some(reference) = reference(id, object) else { return Ok(None) };
    let spec = record::spec(reference, targets, decision);
    Ok(Some(Assignment { spec, status: assignment::Status::default() }))
}

fn targets(
    world: &World,
    space: &Space,
    old: Option<&Assignment>,
    shares: &BTreeMap<String, Share>,
    counts: bool,
) -> Vec<Target> {
    let uid = |name: &str| world.clusters.uid(space.id(), name).map(|uid| uid.to_string());
    record::targets(old, shares, counts, uid, |uid| world.clusters.is_joined(uid))
}

/// Decides anew; `None`: it stays in the hub, and always has.
fn decided(
    world: &mut World,
    space: &Space,
    id: &Id,
    object: &Object,
    old: Option<&Assignment>,
) -> Result<Option<Assignment>, ObjectError> {
    let Some(known) = world.namespace(id).and_then(|it| it.get(&id.key)) else {
        // Nothing selects it any more; or it is not understood, and all stays as it is.
        let is_unselected = world.is_unselected(space, &id.key, object);
        return Ok(old.filter(|_| is_unselected).and_then(|old| unassigned(world, space, id, object, old)));
    };
    let subject = known.subject.clone();
    if old.is_none() && awaits_claims(world, id, &subject) {
        return Ok(None);
    }
    let tree = Value::Object(object.tree()?);
    let lacks = world.clusters.directory(space.id()).offers().iter().any(|offer| !offer.lacks.is_empty());
    let fields = if lacks { Fields::used(&tree) } else { Fields::none() };
    let (policies, root) = (world.policies(space.id()), world.policies(&server::hub::root_id()));
    let cordoned = world.cordoned(space.id());
    let home = world.home(space.id());
    let namespace = namespace_of(&world.hub, space.id(), id.realm());
    let current =
        old.map(|old| record::staying(old, |uid| world.clusters.is_joined(uid))).unwrap_or_default();
    let (referrers, neighbours) = match placement::follow::is_follower(&subject) {
        true if id.is_shared() => (world.users(space.id(), &subject), BTreeSet::new()),
        true => {
            let here = world.namespace(id);
            let referrers = here.map(|it| it.referrers(&subject)).unwrap_or_default();
            let mut neighbours = here.map(|it| it.neighbourhood()).unwrap_or_default();
            if neighbours.is_empty() && placement::follow::is_claim(&subject) {
                neighbours = here.map(|it| it.claimed()).unwrap_or_default();
            }
            (referrers, neighbours)
        }
        false => Default::default(),
    };
    let now = world.hub.now().as_second();
    let is_divided = |old: &&Assignment| subject.splits == Split::MinMax && is_divided_by(old);
    let is_ready = |name: &str| world.clusters.is_ready(space.id(), name);
    let autoscalers = old.filter(is_divided).map(|old| scale::locals(old, is_ready, now));
    let autoscalers = autoscalers.unwrap_or_default();
    let window = world.hub.options.autoscaler_window.as_secs();
    let claims = world.namespace(id).map(|it| it.claims_of(&subject)).unwrap_or_default();
    let fits = old.map(record::fits).unwrap_or_default();
    let held = match old.is_some_and(record::asks_for_more) {
        true => world.holds.for_one(id),
        false => BTreeMap::new(),
    };
    let is_joined = |uid: &str| world.clusters.is_joined(uid);
    let counts_parts = matches!(subject.extent, Extent::Job { completions: Some(_), .. })
        && subject.splits == Split::JobCounts
        && world.kind(space, &id.key.collection, &subject.group, &subject.kind).is_job();
    let parts = |shares: &BTreeMap<String, Share>| match old.filter(|_| counts_parts) {
        Some(old) if is_divided_by(old) => record::finished(old, is_joined, shares),
        Some(old) => old.spec.finished.clone(),
        None => Vec::new(),
    };
    let before = parts(&BTreeMap::new());
    let finished = before.iter().map(|it| it.completions).fold(0, u64::saturating_add);
    let runs = before.into_iter().map(|it| (it.cluster, it.run.saturating_add(1))).collect();
    let idle = old.filter(|_| counts_parts).map(record::idle).unwrap_or_default();
    let brought = world.brought(space.id(), &subject);
    let resource = id.key.collection.parts().1;
    let none = Policies::new();
    let input = Input {
        resource: Some(resource),
        fields: &fields,
        namespace: &namespace,
        account: account(space),
        // A Placement of root itself is not one of its workspace, too.
        workspace: if *space.id() == server::hub::root_id() { &none } else { &policies },
        root: &root,
        current: &current,
        fits: &fits,
        held: &held,
        finished,
        runs: &runs,
        idle: &idle,
        home: home.as_deref(),
        referrers: &referrers,
        awaited: world.namespace(id).is_some_and(|it| it.is_awaited(&subject)),
        claims: &claims,
        brought: &brought,
        neighbours: &neighbours,
        cordoned: &cordoned,
        autoscalers: &autoscalers,
        window,
        now,
        ..Input::new(&subject, world.clusters.directory(space.id()))
    };
    let decision = decide(&input);
    let explanation = decision.explain(&input);
    if old.is_none() && matches!(decision.outcome, Outcome::Above(_)) {
        world.waiting.forget(id);
        return Ok(None);
    }
    if old.is_none() && input.directory.is_empty() {
        // A workspace without clusters is an API server and nothing else, until there is one.
        note(world, space, id, &subject, &decision);
        return Ok(None);
    }
    let mut reasons = record::reasons(&decision, &explanation);
    if matches!(decision.outcome, Outcome::Above(_)) || (decision.shares.is_empty() && !decision.is_unplaced)
    {
        // Nowhere is where it should be.
        reasons.message.clear();
    }
    // Whoever has all of it does all of it.
    let is_whole = matches!(decision.strategy, Some(Strategy::Single | Strategy::Duplicate));
    let finished = if is_whole { Vec::new() } else { parts(&decision.shares) };
    let targets = targets(world, space, old, &decision.shares, record::counts(&subject));
    note(world, space, id, &subject, &decision);
    // When the first of them has settled, its bounds may move.
    let settles = autoscalers.values().filter_map(|it| it.settles_in(window)).min();
    if let Some(settles) = settles.filter(|_| decision.leaving.is_empty()) {
        let at = SignedDuration::try_from(Duration::from_secs(settles)).ok();
        world.alarms.set(id, at.and_then(|at| world.hub.now().checked_add(at).ok()));
    }
    if old.is_none() && world.clusters.directory(space.id()).entries().is_empty() {
        // Without clusters a workspace is an API server like any other. The first that is joined wakes who waits.
        return Ok(None);
    }
    let Some(reference) = reference(id, object) else { return Ok(None) };
    let spec = assignment::Spec { finished, ..record::spec(reference, targets, reasons) };
    Ok(Some(Assignment { spec, status: assignment::Status::default() }))
}

/// Whether each cluster has a part of it.
fn is_divided_by(assignment: &Assignment) -> bool {
    assignment.spec.decision.strategy == Some(assignment::Strategy::Divide)
}

/// Whether a claim that it must be beside was decided, and that is not written down yet: whoever waits is looked at again
/// when it is, or was not.
fn awaits_claims(world: &World, id: &Id, subject: &Subject) -> bool {
    let claims = world.namespace(id).map(|it| it.waits_for(subject)).unwrap_or_default();
    claims.iter().any(|claim| world.queue.is_busy(&Id::new(&id.workspace, claim), Aspect::Place))
}

/// Room is held for what was decided, and whoever waits is woken by what it waits for.
fn note(world: &mut World, space: &Space, id: &Id, subject: &Subject, decision: &Decision) {
    for (cluster, amounts) in &decision.reservations {
        world.try_hold(id, cluster, amounts);
    }
    let leaves = decision.leaving.values().min();
    let at = leaves.and_then(|it| world.hub.now().checked_add(SignedDuration::from_secs(*it)).ok());
    world.alarms.set(id, at);
    let directory = world.clusters.directory(space.id());
    world.waiting.note(id, decision, directory, subject.every_node);
}

/// All copies go.
fn unassigned(
    world: &World,
    space: &Space,
    id: &Id,
    object: &Object,
    old: &Assignment,
) -> Option<Assignment> {
    let targets = targets(world, space, Some(old), &BTreeMap::new(), false);
    let decision = assignment::Decision { layer: "Default".to_owned(), ..assignment::Decision::default() };
    Some(Assignment {
        spec: record::spec(reference(id, object)?, targets, decision),
        status: assignment::Status::default(),
    })
}

fn labels(assignment: &Assignment) -> Value {
    let clusters = assignment.spec.clusters.iter();
    clusters.map(|target| (format!("{CLUSTER_LABELS}{}", target.name), json!(""))).collect::<Tree>().into()
}

fn create(world: &World, id: &Id, new: &Assignment) -> Result<Commit, ObjectError> {
    let key = id.assignment();
    let reference = &new.spec.object;
    let mut tree = Tree::new();
    tree.insert("apiVersion".into(), json!(api::API_VERSION));
    tree.insert("kind".into(), json!(assignment::KIND));
    let metadata = json!({
        "name": key.item.name(), "namespace": key.item.namespace(), "uid": world.hub.new_uid(),
        "creationTimestamp": world.hub.now_text(), "generation": 1, "finalizers": [FINALIZER],
        "labels": labels(new),
        "ownerReferences": [{
            "apiVersion": reference.api_version, "kind": reference.kind, "name": reference.name,
            "uid": reference.uid, "controller": true, "blockOwnerDeletion": true,
        }],
    });
    tree.insert("metadata".into(), metadata);
    new.write(&mut tree)?;
    let put = Change::Put { draft: Draft::encode(&tree)?, expires: None };
    Ok(Commit { guards: Vec::new(), writes: vec![Write { key, expect: Expect::Absent, change: put }] })
}

/// A pod is bound in the same commit. Of other objects nobody may delete one in between: there would be nobody to clean
/// up after.
fn with_object(
    mut commit: Commit,
    space: &Space,
    id: &Id,
    object: &Object,
    new: &Assignment,
) -> Result<Commit, ObjectError> {
    // What every workspace has, such as the namespace `default`, need not be stored.
    let is_stored = space.store().get(space.id(), &id.key).is_some() || !space.in_base(&id.key);
    let expect = if is_stored { Expect::At(object.revision) } else { Expect::Absent };
    match bound(object, new)? {
        Some(pod) => {
            let change = Change::Put { draft: Draft::encode(&pod)?, expires: None };
            commit.writes.push(Write { key: id.key.clone(), expect, change });
        }
        None => commit.guards.push((id.key.clone(), expect)),
    }
    Ok(commit)
}

/// A pod is on the node of its cluster.
fn bound(object: &Object, new: &Assignment) -> Result<Option<Tree>, ObjectError> {
    let [target] = new.spec.clusters.as_slice() else { return Ok(None) };
    if new.spec.object.kind != "Pod" || !new.spec.object.group().is_empty() {
        return Ok(None);
    }
    let mut tree = object.tree()?;
    let Some(spec) = tree.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(None) };
    if spec.get("nodeName").and_then(Value::as_str) == Some(target.name.as_str()) {
        return Ok(None);
    }
    spec.insert("nodeName".into(), json!(target.name));
    Ok(Some(tree))
}

pub fn put(stored: &Object, key: &Key, new: &Assignment) -> Step {
    let mut tree = stored.tree()?;
    let before = tree.get("spec").cloned();
    new.write(&mut tree)?;
    if tree.get("spec") != before.as_ref() {
        let labels = labels(new);
        let generation = stored.head.generation + 1;
        let metadata = metadata(&mut tree);
        metadata.insert("generation".into(), json!(generation));
        metadata.insert("labels".into(), labels);
    }
    replaced(stored, key, &tree)
}

pub fn replaced(stored: &Object, key: &Key, tree: &Tree) -> Step {
    let draft = Draft::encode(tree)?;
    if draft.seal(stored.revision, machinery::EventType::Modified).body_slice() == stored.body_slice() {
        return Ok(None);
    }
    let expect = Expect::At(stored.revision);
    let change = Change::Put { draft, expires: None };
    Ok(Some(Commit { guards: Vec::new(), writes: vec![Write { key: key.clone(), expect, change }] }))
}
