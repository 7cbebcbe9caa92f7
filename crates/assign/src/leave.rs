//! What is on its way out: of an object that is deleted, of its Assignment, and whom that waits for.

use std::collections::{BTreeSet, HashMap};

use api::assignment::{Algorithm, Assignment, FINALIZER, Propagation, Reference, Target};
use machinery::{Draft, Object, object::ObjectError};
use serde_json::{Value, json};
use server::space::Space;
use store::{Change, Commit, Expect, Key, WorkspaceId, Write};

use crate::{
    events::{self, News},
    place::{Step, is_going, is_pod, keeps_copies, metadata, put, refuse_illegal, removed, replaced, tell},
    queue::Id,
    record::{self, Left},
    world::World,
};

/// What the deletion of an object that waits for its dependents has among the finalizers.
const FOREGROUND: &str = "foregroundDeletion";

/// Assignments that are being deleted, each with the clusters that it was told to wait for though they cannot be used.
/// `None`: what was told is not known here; it was another server, or the one before.
#[derive(Debug, Default)]
pub struct Leaving(HashMap<Id, Option<BTreeSet<String>>>);

impl Leaving {
    /// Whether an Assignment is being deleted.
    pub fn observe(&mut self, id: &Id, is_deleting: bool) {
        match is_deleting {
            true => _ = self.0.entry(id.clone()).or_default(),
            false => _ = self.0.remove(id),
        }
    }

    pub fn contains(&self, id: &Id) -> bool {
        self.0.contains_key(id)
    }

    /// These are waited for now. Answers what was told before.
    fn waits_for(&mut self, id: &Id, silent: BTreeSet<String>) -> Option<BTreeSet<String>> {
        self.0.insert(id.clone(), Some(silent)).flatten()
    }

    /// What was to be told was not written down.
    pub fn untold(&mut self, id: &Id) {
        if let Some(told) = self.0.get_mut(id) {
            *told = Some(BTreeSet::new());
        }
    }

    pub fn forget_workspace(&mut self, workspace: &WorkspaceId) {
        self.0.retain(|id, _| id.workspace != *workspace);
    }
}

/// A pod that is being deleted has time to end where it runs, and goes when it did: nobody else would say so.
pub fn dismiss(world: &World, id: &Id, stored: &Object) -> Step {
    let mut assignment = Assignment::read(stored)?;
    assignment.spec.propagation = Some(Propagation::Background);
    let_go(world, id, stored, &assignment)
}

/// Whether all clusters that had it were unjoined.
pub fn is_lost(world: &World, stored: &Object) -> Result<bool, ObjectError> {
    let assignment = world.hub.assignments.read(stored)?;
    let clusters = &assignment.spec.clusters;
    Ok(!clusters.is_empty() && clusters.iter().all(|target| !world.clusters.is_joined(&target.uid)))
}

/// A pod goes with its cluster, as with a node that was deleted: nobody runs it a second time, and whoever made it makes
/// another one.
pub fn lose(world: &World, id: &Id, pod: &Object, stored: &Object) -> Step {
    let mut tree = pod.tree()?;
    let now = world.hub.now_text();
    let status = tree.entry("status").or_insert_with(|| json!({}));
    if !matches!(status["phase"].as_str(), Some("Succeeded" | "Failed")) {
        status["phase"] = json!("Failed");
        let why = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
            "message": "its cluster was unjoined", "lastTransitionTime": now,
        });
        match status.get_mut("conditions").and_then(Value::as_array_mut) {
            Some(conditions) => {
                conditions.retain(|it| it["type"] != why["type"]);
                conditions.push(why);
            }
            None => status["conditions"] = json!([why]),
        }
    }
    metadata(&mut tree).insert("deletionTimestamp".into(), json!(now));
    metadata(&mut tree).insert("deletionGracePeriodSeconds".into(), json!(0));
    let Some(mut commit) = replaced(pod, &id.key, &tree)? else { return Ok(None) };
    let old = world.hub.assignments.read(stored)?;
    tell(world, id, &old.spec.object, [events::lost(&old)], &mut commit)?;
    Ok(Some(commit))
}

/// An Assignment that is being deleted goes when nothing is left in any cluster.
pub fn take_leave(world: &mut World, space: &Space, id: &Id, stored: &Object) -> Step {
    let old = world.hub.assignments.read(stored)?;
    let returned = world.holds.dropped(id, |_| false);
    world.give_back(returned);
    world.waiting.forget(id);
    let mut new = Assignment::clone(&old);
    let workspace_goes = is_going(world, space);
    let is_left = |target: &Target| {
        // A workspace does not wait for clusters that cannot be asked; what they have stays there, hidden.
        let is_awaited = !workspace_goes || world.clusters.is_ready(space.id(), &target.name);
        let is_gone = old.report(&target.uid).is_some_and(|report| report.is_gone());
        world.clusters.is_joined(&target.uid) && is_awaited && !is_gone
    };
    new.spec.clusters.retain(is_left);
    let names: BTreeSet<String> = new.spec.clusters.iter().map(|target| target.uid.clone()).collect();
    new.status.clusters.retain(|report| names.contains(&report.uid));
    refuse_illegal(Some(&old), &new, true, |target| {
        match world.clusters.is_ready(space.id(), &target.name) {
            false if workspace_goes => Left::Nobodys,
            _ => record::left(&old, target, world.clusters.is_joined(&target.uid)),
        }
    })?;
    let is_first = new.spec.propagation.is_none();
    if is_first {
        let owner = space.get(&id.key).filter(|owner| owner.head.uid == old.spec.object.uid.as_str());
        let waits =
            owner.as_ref().is_some_and(|owner| owner.head.finalizers.iter().any(|it| it == FOREGROUND));
        // It may have said so only just before it was deleted, when nobody had looked at it yet.
        let keeps = owner.as_deref().map(keeps_copies).transpose()?.unwrap_or(false);
        new.spec.propagation = Some(match () {
            () if keeps => Propagation::Keep,
            () if waits => Propagation::Foreground,
            () => Propagation::Background,
        });
    }
    if new.spec.clusters.is_empty() {
        let commit = release(stored, &id.assignment())?;
        let ended =
            space.get(&id.key).filter(|it| it.head.uid == old.spec.object.uid.as_str() && has_ended(it));
        let Some(mut commit) = commit else { return Ok(None) };
        commit.writes.extend(ended.into_iter().flat_map(|pod| removed(&pod, &id.key).writes));
        if !workspace_goes && takes_events(space, id) {
            tell(world, id, &old.spec.object, events::removal(&old), &mut commit)?;
        }
        return Ok(Some(commit));
    }
    let mut commit = put(stored, &id.assignment(), &new)?;
    let is_silent = |target: &&Target| !world.clusters.is_ready(space.id(), &target.name);
    let silent = new.spec.clusters.iter().filter(is_silent).map(|target| target.name.clone()).collect();
    // In a namespace that goes as a whole, that tells it once for all: its Event is elsewhere.
    let is_heard = id.is_namespace() || takes_events(space, id);
    if let Some(news) = waits_for(world, id, &old.spec.object, silent, is_first).filter(|_| is_heard) {
        let commit = commit.get_or_insert_with(|| Commit {
            guards: vec![(id.assignment(), Expect::At(stored.revision))],
            writes: Vec::new(),
        });
        tell(world, id, &old.spec.object, [news], commit)?;
    }
    Ok(commit)
}

/// What is to be told of clusters that are waited for and cannot be used: each time that another one cannot.
fn waits_for(
    world: &mut World,
    id: &Id,
    about: &Reference,
    silent: BTreeSet<String>,
    is_first: bool,
) -> Option<News> {
    let names: Vec<&str> = silent.iter().map(String::as_str).collect();
    let news = (!names.is_empty()).then(|| events::waits_for(&names));
    let told = world.leaving.waits_for(id, silent.clone());
    news.filter(|news| match told {
        _ if is_first => true,
        Some(told) => !silent.is_subset(&told),
        None => !events::has_told(&world.hub, &id.workspace, id.namespace(), about, news),
    })
}

/// A namespace that is being deleted takes nothing new.
pub fn takes_events(space: &Space, id: &Id) -> bool {
    let namespace = space.get(&Key::new("", "namespaces", "", id.namespace()));
    namespace.is_some_and(|namespace| !namespace.head.deleting)
}

/// A pod that is being deleted and has no copy any more.
pub fn has_ended(object: &Object) -> bool {
    is_pod(object) && object.head.deleting && object.head.finalizers.is_empty()
}

/// Takes the finalizer off, with which the object goes if there is no other.
fn release(stored: &Object, key: &Key) -> Step {
    let expect = Expect::At(stored.revision);
    let others: Vec<&str> =
        stored.head.finalizers.iter().map(|it| it.as_str()).filter(|it| *it != FINALIZER).collect();
    if others.len() == stored.head.finalizers.len() {
        return Ok(None);
    }
    let change = match others.is_empty() {
        true => Change::Remove,
        false => {
            let mut tree = stored.tree()?;
            metadata(&mut tree).insert("finalizers".into(), json!(others));
            Change::Put { draft: Draft::encode(&tree)?, expires: None }
        }
    };
    Ok(Some(Commit { guards: Vec::new(), writes: vec![Write { key: key.clone(), expect, change }] }))
}

/// The object is gone, and its Assignment was let go of before: copies go, and what they own stays. Of what is placed as
/// by federation v1, the copies stay, as they did there.
pub fn orphan(world: &World, id: &Id, stored: &Object) -> Step {
    // Whoever belongs to somebody is deleted by the garbage collector.
    if !stored.head.owners.is_empty() {
        return Ok(None);
    }
    let mut assignment = Assignment::read(stored)?;
    let decision = &assignment.spec.decision;
    let divides_so = decision.algorithm == Some(Algorithm::Federation);
    let is_of_federation = placement::dialect::is_of_the_first(&decision.policy, divides_so);
    let left = if is_of_federation { Propagation::Keep } else { Propagation::Orphan };
    assignment.spec.propagation = Some(left);
    let_go(world, id, stored, &assignment)
}

/// Has an Assignment deleted, which takes as long as there are copies.
fn let_go(world: &World, id: &Id, stored: &Object, assignment: &Assignment) -> Step {
    let mut tree = stored.tree()?;
    assignment.write(&mut tree)?;
    let now = world.hub.now_text();
    metadata(&mut tree).insert("deletionTimestamp".into(), json!(now));
    metadata(&mut tree).insert("deletionGracePeriodSeconds".into(), json!(0));
    replaced(stored, &id.assignment(), &tree)
}
