//! Counting what namespaces use, where charging alone does not tell: when something goes or shrinks, when a quota is
//! new or changed, and now and then to be sure.

use std::{sync::Arc, time::Duration};

use machinery::{
    Object, Revision,
    admission::{
        amounts::Amounts,
        quota::{self, Measure, Quota, Recount},
    },
    resource::Tree,
    status::Status,
};
use store::{Collection, Commit, Error, Event, ItemKey, Key, Listing, WorkspaceId};

use super::{After, Controllers, queue::Work};
use crate::{
    admission::quota::{collection, write},
    hub::store_refusal,
    registry::Registry,
    served,
    space::Space,
    write::ATTEMPTS,
};

/// How often everything is counted anyway; as upstream.
const RECOUNT_EVERY: Duration = Duration::from_secs(300);
/// After so many objects others of this thread have their turn.
const AT_ONCE: usize = 256;

/// The commit that the feed is in the middle of.
#[derive(Default)]
pub struct Current {
    commit: Option<(WorkspaceId, Revision)>,
    /// Quotas that it writes: what its objects add is in them.
    charged: Vec<Key>,
    /// Quotas that its objects use more of.
    grown: Vec<Key>,
    /// Its new objects. What they use need not be found out where all quotas are charged.
    created: Vec<(Key, Arc<Object>)>,
}

pub fn queue_all(controllers: &Controllers, workspace: &WorkspaceId) {
    let Ok(listing) = controllers.hub.store.list(workspace, collection(), None) else { return };
    for (item, _) in listing.iter(None, None) {
        let key = Key { collection: collection().clone(), item: item.clone() };
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
    let mut current = controllers.current.lock();
    let commit = (event.workspace.clone(), event.commit_start);
    if current.commit.as_ref() != Some(&commit) {
        *current = Current { commit: Some(commit), ..Current::default() };
    }
    if event.key.collection == *collection() {
        observe_quota(controllers, event, &mut current);
    }
    if event.key.collection == *served::definitions() {
        queue_all(controllers, &event.workspace);
    }
    observe_object(controllers, event, &mut current);
    if event.revision == event.commit_end {
        let Current { charged, mut grown, created, .. } = std::mem::take(&mut *current);
        for (key, object) in created {
            grown.extend(uncharged(controllers, &event.workspace, &key, &object, &charged));
        }
        for key in grown.into_iter().filter(|key| !charged.contains(key)) {
            controllers.queue.add(Work::Quota(event.workspace.clone(), key));
        }
    }
}

/// Queues the quotas that a change in a member makes wrong. Nobody was asked for what members make, so nothing is charged
/// for it.
pub fn observe_view(controllers: &Controllers, event: &Event) {
    let (old, new) = (event.old.as_ref(), event.after());
    let is_kept = old.is_some() && new.is_some();
    if is_kept && is_counted_only(&event.key.collection) {
        return;
    }
    let store = &controllers.hub.store;
    let Ok(quotas) = store.list(&event.workspace, collection(), None) else { return };
    if quotas.iter(Some(event.key.item.namespace()), None).next().is_none() {
        return;
    }
    // What is stored shows as well, and was observed where it is.
    let uid = &event.object().head.uid;
    if store.get(&event.workspace, &event.key).is_some_and(|stored| stored.head.uid == *uid) {
        return;
    }
    let changed = compare(controllers, &event.workspace, &event.key, old, new);
    for key in changed.shrunk.into_iter().chain(changed.grown) {
        controllers.queue.add(Work::Quota(event.workspace.clone(), key));
    }
}

fn observe_quota(controllers: &Controllers, event: &Event, current: &mut Current) {
    let Some(object) = event.after() else { return };
    let Some(quota) = controllers.hub.quotas.read(&event.workspace, &event.key.item, object) else { return };
    current.charged.push(event.key.clone());
    if quota.wanted != quota.hard || quota.wanted.keys().any(|name| !quota.used.contains_key(name)) {
        controllers.queue.add(Work::Quota(event.workspace.clone(), event.key.clone()));
    }
}

/// Of what is only counted, it does not matter what it says.
fn is_counted_only(collection: &Collection) -> bool {
    !matches!(collection.parts(), ("", "pods" | "services" | "persistentvolumeclaims"))
}

fn observe_object(controllers: &Controllers, event: &Event, current: &mut Current) {
    let namespace = event.key.item.namespace();
    let (old, new) = (event.old.as_ref(), event.after());
    let is_kept = old.is_some() && new.is_some();
    if namespace.is_empty() || (is_kept && is_counted_only(&event.key.collection)) {
        return;
    }
    let Ok(quotas) = controllers.hub.store.list(&event.workspace, collection(), None) else { return };
    if quotas.iter(Some(namespace), None).next().is_none() {
        return;
    }
    match (old, new) {
        (None, Some(new)) => current.created.push((event.key.clone(), new.clone())),
        (old, new) => {
            let changed = compare(controllers, &event.workspace, &event.key, old, new);
            for key in changed.shrunk {
                controllers.queue.add(Work::Quota(event.workspace.clone(), key));
            }
            current.grown.extend(changed.grown);
        }
    }
}

/// The quotas that a new object uses something of, unless all were charged with it.
fn uncharged(
    controllers: &Controllers,
    workspace: &WorkspaceId,
    key: &Key,
    object: &Arc<Object>,
    charged: &[Key],
) -> Vec<Key> {
    let Ok(quotas) = controllers.hub.store.list(workspace, collection(), None) else { return Vec::new() };
    let is_charged = |item: &ItemKey| charged.iter().any(|key| key.item == *item);
    if quotas.iter(Some(key.item.namespace()), None).all(|(item, _)| is_charged(item)) {
        return Vec::new();
    }
    compare(controllers, workspace, key, None, Some(object)).grown
}

/// The quotas of which an object uses less, and more, than before.
#[derive(Default)]
struct Changed {
    shrunk: Vec<Key>,
    grown: Vec<Key>,
}

fn compare(
    controllers: &Controllers,
    workspace: &WorkspaceId,
    key: &Key,
    old: Option<&Arc<Object>>,
    new: Option<&Arc<Object>>,
) -> Changed {
    let mut changed = Changed::default();
    let (group, resource) = key.collection.parts();
    let Some(measure) = Measure::of(group, resource) else { return changed };
    let Ok(quotas) = controllers.hub.store.list(workspace, collection(), None) else { return changed };
    let read = |object: &Arc<Object>| match is_counted_only(&key.collection) {
        true => Some(Tree::new()),
        false => object.tree().ok(),
    };
    let (old, new) = (old.and_then(read), new.and_then(read));
    let now = controllers.hub.now().as_second();
    for (item, object) in quotas.iter(Some(key.item.namespace()), None) {
        let Some(quota) = controllers.hub.quotas.read(workspace, item, object) else { continue };
        let key = Key { collection: collection().clone(), item: item.clone() };
        if quota.wanted != quota.hard {
            // It is charged with nothing before it was counted, and the count that is under way may have looked earlier.
            if quota.wanted.keys().any(|name| measure.has(name)) {
                changed.grown.push(key);
            }
            continue;
        }
        let before = quota.usage(&measure, old.as_ref(), now);
        let after = quota.usage(&measure, new.as_ref(), now);
        if has_more(&before, &after) {
            changed.shrunk.push(key);
        } else if has_more(&after, &before) {
            changed.grown.push(key);
        }
    }
    changed
}

/// Whether there is more of anything in `these` than in `those`.
fn has_more(these: &Amounts, those: &Amounts) -> bool {
    these.iter().any(|(name, amount)| those.get(name).is_none_or(|other| other < amount) && !amount.is_zero())
}

/// Counts what a quota is about and writes it down, unless it was charged meanwhile: then once more, in turn with
/// those who charge.
pub async fn recount(controllers: &Controllers, space: &Space, key: &Key) -> Result<After, Status> {
    if let Some(after) = try_recount(controllers, space, key).await? {
        return Ok(after);
    }
    let hub = &controllers.hub;
    let _turn = hub.quotas.turns.take_in(hub, space, key.item.namespace()).await?;
    for _ in 0..ATTEMPTS {
        if let Some(after) = try_recount(controllers, space, key).await? {
            return Ok(after);
        }
    }
    Err(Status::internal(format!("the quota {key:?} keeps changing")))
}

/// `None`: the quota changed meanwhile, so that the count may be old.
async fn try_recount(controllers: &Controllers, space: &Space, key: &Key) -> Result<Option<After>, Status> {
    let hub = &controllers.hub;
    // First the quota, then what it counts: whatever is charged in between changes the quota.
    let Some(object) = space.get(key) else { return Ok(Some(After::Done)) };
    let namespace = key.item.namespace();
    let place = space.get(&Key::new("", "namespaces", "", namespace));
    if place.is_none_or(|place| place.head.deleting) {
        return Ok(Some(After::Done));
    }
    let mut tree = object.tree().map_err(Status::internal)?;
    let quota = Quota::read(&tree);
    hub.metrics.quota.recounts.inc();
    let mut recount = Recount::new(&quota);
    let served = hub.served(space);
    let (mut counted, mut unseen) = (0, false);
    for (measure, collection) in kinds(&quota, &served.registry) {
        // What nobody has seen yet is not gone: what was counted of it before stays.
        if recount.is_known(&measure)
            && may_be_elsewhere(controllers, space, &served.registry, &collection, namespace)
        {
            unseen |= quota.wanted.keys().any(|name| measure.has(name));
            continue;
        }
        if recount.begin(&measure) {
            let listing = all_of(controllers, space, &collection);
            counted += count(&mut recount, &measure, &listing, namespace, hub.now().as_second()).await;
        }
    }
    let again = |later: bool| if later || unseen { After::Rest } else { After::Done };
    let Some(used) = recount.finish() else {
        // What was charged while this was counted is in the count, and not in the quota it was compared with.
        let is_level = space.get(key).is_none_or(|now| now.revision == object.revision);
        return Ok(is_level.then_some(again(false)));
    };
    quota::set_status(&mut tree, "hard", &quota.wanted);
    quota::set_status(&mut tree, "used", &used);
    let commit = Commit { guards: Vec::new(), writes: vec![write(&object, &tree)?] };
    match space.store().commit(space.id(), commit).await {
        // Where members make many pods, each of them asks for a count of all.
        Ok(_) => Ok(Some(again(counted > AT_ONCE))),
        Err(Error::Conflict { .. }) => Ok(None),
        Err(error) => Err(store_refusal(error)),
    }
}

/// What is stored, and what members made of it.
fn all_of(controllers: &Controllers, space: &Space, collection: &Collection) -> Listing {
    let (group, plural) = collection.parts();
    let view = controllers.hub.views.for_kind(space.id(), group, plural);
    view.and_then(|view| view.list(collection, None).ok()).unwrap_or_else(|| space.latest(collection))
}

/// Whether members may have more of a kind in a namespace than they have told here, as after a start or a change of duty.
fn may_be_elsewhere(
    controllers: &Controllers,
    space: &Space,
    registry: &Registry,
    collection: &Collection,
    namespace: &str,
) -> bool {
    let (hub, (group, plural)) = (&controllers.hub, collection.parts());
    let Some(resource) = registry.stored(collection) else { return false };
    let view = hub.views.for_kind(space.id(), group, plural);
    let Some(sight) = hub.views.sight(space, view.as_deref(), resource) else { return false };
    // A cluster that has nothing of the namespace hides nothing of it, however long it is away.
    let is_of_unseen = |stored: &Object| match hub.assignments.read(stored) {
        Ok(assignment) => assignment.spec.clusters.iter().any(|target| sight.unseen.contains(&target.name)),
        Err(_) => true,
    };
    let assignments = space.latest(&Collection::new(api::GROUP, api::assignment::PLURAL));
    sight.damaged.is_some()
        || (!sight.unseen.is_empty()
            && assignments.iter(Some(namespace), None).any(|(_, stored)| is_of_unseen(stored)))
}

/// How many objects had to be read for it.
async fn count(
    recount: &mut Recount<'_>,
    measure: &Measure,
    listing: &Listing,
    namespace: &str,
    now: i64,
) -> usize {
    if let Measure::Count(_) = measure {
        recount.add_many(measure, listing.iter(Some(namespace), None).count());
        return 0;
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
    objects.len()
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
