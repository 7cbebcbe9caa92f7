//! Counting what namespaces use, where charging alone does not tell: when something goes or shrinks, when a quota is
//! new or changed, and now and then to be sure.

use std::{sync::Arc, time::Duration};

use machinery::{
    Object, Revision,
    admission::quota::{self, Measure, Quota, Recount},
    resource::Tree,
    status::Status,
};
use store::{Collection, Commit, Error, Event, Key, WorkspaceId};

use super::{Controllers, queue::Work};
use crate::{
    admission::quota::{collection, write},
    hub::store_refusal,
    registry::Registry,
    space::Space,
    write::ATTEMPTS,
};

/// How often everything is counted anyway; as upstream.
const RECOUNT_EVERY: Duration = Duration::from_secs(300);
/// After so many objects others of this thread have their turn.
const AT_ONCE: usize = 256;

/// The commit that the feed is in the middle of: quotas that its objects use more of and that it has not charged yet.
#[derive(Default)]
pub struct Uncharged {
    commit: Option<(WorkspaceId, Revision)>,
    quotas: Vec<Key>,
}

pub fn queue_all(controllers: &Controllers, workspace: &WorkspaceId) {
    let Ok(listing) = controllers.hub.store.list(workspace, &collection(), None) else { return };
    for (item, _) in listing.iter(None, None) {
        let key = Key { collection: collection(), item: item.clone() };
        controllers.queue.add(Work::Quota(workspace.clone(), key));
    }
}

/// Counts everything now and then, whatever charging and feed missed.
pub async fn resync(controllers: Arc<Controllers>) {
    loop {
        controllers.hub.env.clock.sleep(RECOUNT_EVERY).await;
        for workspace in controllers.hub.store.workspaces() {
            queue_all(&controllers, &workspace);
        }
    }
}

/// Queues the quotas that a change makes wrong.
pub fn observe(controllers: &Controllers, event: &Event) {
    let mut uncharged = controllers.uncharged.lock();
    let commit = (event.workspace.clone(), event.commit_start);
    if uncharged.commit.as_ref() != Some(&commit) {
        *uncharged = Uncharged { commit: Some(commit), quotas: Vec::new() };
    }
    if event.key.collection == collection() {
        observe_quota(controllers, event, &mut uncharged);
    }
    if event.key.collection == Collection::new("apiextensions.k8s.io", "customresourcedefinitions") {
        queue_all(controllers, &event.workspace);
    }
    observe_object(controllers, event, &mut uncharged);
    if event.revision == event.commit_end {
        for key in std::mem::take(&mut uncharged.quotas) {
            controllers.queue.add(Work::Quota(event.workspace.clone(), key));
        }
    }
}

fn observe_quota(controllers: &Controllers, event: &Event, uncharged: &mut Uncharged) {
    let Some(tree) = event.after().and_then(|object| object.tree().ok()) else { return };
    uncharged.quotas.retain(|key| *key != event.key);
    let quota = Quota::read(&tree);
    if quota.wanted != quota.hard || quota.wanted.keys().any(|name| !quota.used.contains_key(name)) {
        controllers.queue.add(Work::Quota(event.workspace.clone(), event.key.clone()));
    }
}

fn observe_object(controllers: &Controllers, event: &Event, uncharged: &mut Uncharged) {
    let namespace = event.key.item.namespace();
    let (group, resource) = event.key.collection.parts();
    let is_counted_only = !matches!((group, resource), ("", "pods" | "services" | "persistentvolumeclaims"));
    if namespace.is_empty() || (is_counted_only && event.old.is_some() && event.after().is_some()) {
        return;
    }
    let Ok(quotas) = controllers.hub.store.list(&event.workspace, &collection(), None) else { return };
    let mut quotas = quotas.iter(Some(namespace), None).peekable();
    if quotas.peek().is_none() {
        return;
    }
    let Some(measure) = Measure::of(group, resource) else { return };
    // Of what is only counted, it does not matter what it says.
    let read = |object: &Arc<Object>| match is_counted_only {
        true => Some(Tree::new()),
        false => object.tree().ok(),
    };
    let (old, new) = (event.old.as_ref().and_then(read), event.after().and_then(read));
    let now = controllers.hub.now().as_second();
    for (item, object) in quotas {
        let Ok(tree) = object.tree() else { continue };
        let quota = Quota::read(&tree);
        let before = quota.usage(&measure, old.as_ref(), now);
        let after = quota.usage(&measure, new.as_ref(), now);
        let key = Key { collection: collection(), item: item.clone() };
        let shrank =
            before.iter().any(|(name, was)| after.get(name).is_none_or(|is| is < was) && !was.is_zero());
        let grew =
            after.iter().any(|(name, is)| before.get(name).is_none_or(|was| is > was) && !is.is_zero());
        if shrank {
            controllers.queue.add(Work::Quota(event.workspace.clone(), key));
        } else if grew {
            uncharged.quotas.push(key);
        }
    }
}

/// Counts what a quota is about and writes it down, unless it was charged meanwhile: then once more, in turn with
/// those who charge.
pub async fn recount(controllers: &Controllers, space: &Space, key: &Key) -> Result<(), Status> {
    if try_recount(controllers, space, key).await? {
        return Ok(());
    }
    let hub = &controllers.hub;
    let _turn = hub.quota_turns.take_in(hub, space, key.item.namespace()).await?;
    for _ in 0..ATTEMPTS {
        if try_recount(controllers, space, key).await? {
            return Ok(());
        }
    }
    Err(Status::internal(format!("the quota {key:?} keeps changing")))
}

/// False: the quota changed meanwhile, so that the count may be old.
async fn try_recount(controllers: &Controllers, space: &Space, key: &Key) -> Result<bool, Status> {
    let hub = &controllers.hub;
    // First the quota, then what it counts: whatever is charged in between changes the quota.
    let Some(object) = space.get(key) else { return Ok(true) };
    let namespace = key.item.namespace();
    let place = space.get(&Key::new("", "namespaces", "", namespace));
    if place.is_none_or(|place| place.head.deleting) {
        return Ok(true);
    }
    let mut tree = object.tree().map_err(Status::internal)?;
    let quota = Quota::read(&tree);
    hub.metrics.quota_recounts.inc();
    let mut recount = Recount::new(&quota);
    let served = hub.served(space);
    for (measure, collection) in kinds(&quota, &served.registry) {
        if recount.begin(&measure) {
            count(&mut recount, &measure, space, &collection, namespace, hub.now().as_second()).await;
        }
    }
    let Some(used) = recount.finish() else {
        // What was charged while this was counted is in the count, and not in the quota it was compared with.
        return Ok(space.get(key).is_none_or(|now| now.revision == object.revision));
    };
    quota::set_status(&mut tree, "hard", &quota.wanted);
    quota::set_status(&mut tree, "used", &used);
    let commit = Commit { guards: Vec::new(), writes: vec![write(&object, &tree)?] };
    match space.store().commit(space.id(), commit).await {
        Ok(_) => Ok(true),
        Err(Error::Conflict { .. }) => Ok(false),
        Err(error) => Err(store_refusal(error)),
    }
}

async fn count(
    recount: &mut Recount<'_>,
    measure: &Measure,
    space: &Space,
    collection: &Collection,
    namespace: &str,
    now: i64,
) {
    let listing = space.latest(collection);
    if let Measure::Count(_) = measure {
        recount.add_many(measure, listing.iter(Some(namespace), None).count());
        return;
    }
    let objects: Vec<Arc<Object>> =
        listing.iter(Some(namespace), None).map(|(_, object)| object.clone()).collect();
    for some in objects.chunks(AT_ONCE) {
        for object in some {
            if let Ok(tree) = object.tree() {
                recount.add(measure, &tree, now);
            }
        }
        tokio::task::yield_now().await;
    }
}

/// The kinds that a quota may be about: those with a measure of their own, and those it names.
fn kinds(quota: &Quota, registry: &Registry) -> Vec<(Measure, Collection)> {
    let named = quota.wanted.keys().map(|name| {
        let name = name.strip_prefix("count/").unwrap_or(name);
        name.split_once('.')
            .map_or((String::new(), name.to_owned()), |(resource, group)| (group.into(), resource.into()))
    });
    let measured = ["pods", "services", "persistentvolumeclaims"].map(|it| (String::new(), it.to_owned()));
    let mut kinds: Vec<(Measure, Collection)> = Vec::new();
    for (group, resource) in measured.into_iter().chain(named) {
        let collection = Collection::new(&group, &resource);
        let is_known = kinds.iter().any(|(_, known)| *known == collection);
        let served = registry.stored(&collection).is_some_and(|it| it.namespaced);
        if let Some(measure) = Measure::of(&group, &resource).filter(|_| served && !is_known) {
            kinds.push((measure, collection));
        }
    }
    kinds
}
