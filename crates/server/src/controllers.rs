//! What the hub does by itself: empties namespaces and workspaces, collects garbage, lets events expire, forgets old
//! history, gives namespaces their service account.
//!
//! ```text
//!   store's feed ──> index (who belongs to whom) ──> queue, keyed ──> workers ──> ordinary writes
//! ```
//!
//! One feed and one queue serve all workspaces. Work is named by what it is about and may be done twice without
//! harm; what fails is tried again later.

mod accounts;
mod certificates;
mod definitions;
mod flows;
mod garbage;
mod history;
mod namespaces;
mod policies;
mod protection;
mod queue;
mod quotas;
mod roles;
mod workspaces;

use std::{sync::Arc, time::Duration};

use machinery::status::Status;
use parking_lot::Mutex;
use store::{Collection, Event, FeedItem, Key, WorkspaceId};

use crate::{
    base,
    context::Context,
    hub::{self, Hub, root_id},
    space::Space,
};
use queue::{Queue, Work};

/// Most of them wait, for the store or for somebody who is asked; the queue lets no workspace have all.
const WORKERS: usize = 16;
const EXPIRE_EVERY: Duration = Duration::from_secs(5);

/// The index that all workers share, and their queue.
struct Controllers {
    hub: Arc<Hub>,
    queue: Queue,
    owners: Mutex<garbage::Owners>,
    uncharged: Mutex<quotas::Uncharged>,
}

/// Starts them; they end when the hub stops.
pub fn start(hub: &Arc<Hub>) {
    let feed = hub.store.feed();
    let controllers = Arc::new(Controllers {
        hub: hub.clone(),
        queue: Queue::default(),
        owners: Mutex::default(),
        uncharged: Mutex::default(),
    });
    hub.env.tasks.spawn(Box::pin(follow(controllers.clone(), feed)));
    for _ in 0..WORKERS {
        hub.env.tasks.spawn(Box::pin(work(controllers.clone())));
    }
    hub.env.tasks.spawn(Box::pin(quotas::resync(controllers)));
    hub.env.tasks.spawn(Box::pin(expire(hub.clone())));
    hub.env.tasks.spawn(Box::pin(history::keep(hub.clone())));
    hub.env.tasks.spawn(Box::pin(certificates::clean(hub.clone())));
}

/// Reads the feed for ever; after a gap, looks at everything.
async fn follow(controllers: Arc<Controllers>, mut feed: store::Feed) {
    // The feed began before this look, so nothing falls between them.
    controllers.look_at_everything();
    let mut stopping = controllers.hub.stopping.clone();
    loop {
        let item = tokio::select! {
            item = feed.next() => item,
            () = hub::stopped(&mut stopping) => return,
        };
        match item {
            FeedItem::Event(event) => controllers.observe(&event),
            FeedItem::WorkspaceRemoved(workspace) => controllers.owners.lock().forget(&workspace),
            FeedItem::Lagged => controllers.look_at_everything(),
        }
    }
}

async fn work(controllers: Arc<Controllers>) {
    let mut stopping = controllers.hub.stopping.clone();
    loop {
        let work = tokio::select! {
            work = controllers.queue.take() => work,
            () = hub::stopped(&mut stopping) => return,
        };
        let outcome = controllers.perform(&work).await;
        // A full queue must not keep others of this thread from their turn.
        tokio::task::yield_now().await;
        match outcome {
            Ok(()) => controllers.queue.done(&work),
            Err(status) => {
                let pause = controllers.queue.failed(&work);
                tracing::debug!(?work, %status, ?pause, "will try again");
                let again = controllers.clone();
                let work = work.clone();
                controllers.hub.env.tasks.spawn(Box::pin(async move {
                    again.hub.env.clock.sleep(pause).await;
                    again.queue.add(work);
                }));
            }
        }
    }
}

async fn expire(hub: Arc<Hub>) {
    let mut stopping = hub.stopping.clone();
    loop {
        tokio::select! {
            () = hub.env.clock.sleep(EXPIRE_EVERY) => {}
            () = hub::stopped(&mut stopping) => return,
        }
        if let Err(error) = hub.store.expire(hub.now()).await {
            tracing::warn!(%error, "cannot remove expired objects");
        }
    }
}

impl Controllers {
    fn look_at_everything(&self) {
        for workspace in self.hub.store.workspaces() {
            quotas::queue_all(self, &workspace);
            for collection in self.hub.store.collections(&workspace) {
                let Ok(listing) = self.hub.store.list(&workspace, &collection, None) else { continue };
                for (item, object) in listing.iter(None, None) {
                    let key = Key { collection: collection.clone(), item: item.clone() };
                    self.look_at(&workspace, &key, None, Some(object));
                }
            }
        }
    }

    fn observe(&self, event: &Event) {
        quotas::observe(self, event);
        self.look_at(&event.workspace, &event.key, event.old.as_deref(), event.after().map(AsRef::as_ref));
    }

    /// Notes what a change means for the index, and queues what it asks for.
    fn look_at(
        &self,
        workspace: &WorkspaceId,
        key: &Key,
        old: Option<&machinery::Object>,
        new: Option<&machinery::Object>,
    ) {
        // An object of the shared base that was deleted shows as a put of its whiteout, which carries its UID.
        let whiteout = new.filter(|object| base::is_whiteout(object));
        let (old, new) = (old.filter(|it| !base::is_whiteout(it)), new.filter(|it| !base::is_whiteout(it)));
        if let Some(whiteout) = whiteout {
            self.owners.lock().gone(workspace, &whiteout.head.uid, &self.queue);
        }
        let released = self.owners.lock().observe(workspace, key, old, new, &self.queue);
        if !released.is_empty() {
            let Some(space) = self.hub.space_by_id(workspace) else { return };
            let served = self.hub.served(&space);
            for owner in released.iter().filter_map(|owner| garbage::key_of(&served.registry, owner, key)) {
                self.queue.add(Work::Owner(workspace.clone(), owner));
            }
        }
        definitions::observe(self, workspace, key, old, new);
        protection::observe(self, workspace, key, old, new);
        accounts::observe(self, workspace, key, old, new);
        policies::observe(self, workspace, key, new);
        certificates::observe(self, workspace, key, new);
        roles::observe(self, workspace, key);
        flows::observe(self, workspace, key);
        let deleting = new.is_some_and(|object| object.head.deleting);
        if key.collection == namespaces_collection() && deleting {
            self.queue.add(Work::Namespace(workspace.clone(), key.item.name().into()));
        }
        if *workspace == root_id() && key.collection == workspaces_collection() && deleting {
            self.queue.add(Work::Workspace(key.item.name().into()));
        }
        // Something left a namespace: it may be the last thing that held it.
        if new.is_none() && !key.item.namespace().is_empty() {
            let namespace = key.item.namespace();
            let namespace_key = Key::new("", "namespaces", "", namespace);
            let emptied =
                self.hub.store.get(workspace, &namespace_key).is_some_and(|object| object.head.deleting);
            if emptied {
                self.queue.add(Work::Namespace(workspace.clone(), namespace.into()));
            }
        }
    }

    async fn perform(&self, work: &Work) -> Result<(), Status> {
        match work {
            Work::Namespace(workspace, name) => match self.hub.space_by_id(workspace) {
                Some(space) => namespaces::empty(self, &space, name).await,
                None => Ok(()),
            },
            Work::Definition(workspace, name) => match self.hub.space_by_id(workspace) {
                Some(space) => definitions::settle(self, &space, name).await,
                None => Ok(()),
            },
            Work::Outfit(workspace, namespace) => match self.hub.space_by_id(workspace) {
                Some(space) => accounts::outfit(self, &space, namespace).await,
                None => Ok(()),
            },
            Work::TokenSecret(workspace, key) => match self.hub.space_by_id(workspace) {
                Some(space) => accounts::fill(self, &space, key).await,
                None => Ok(()),
            },
            Work::SigningRequest(workspace, name) => match self.hub.space_by_id(workspace) {
                Some(space) => certificates::settle(self, &space, name).await,
                None => Ok(()),
            },
            Work::Roles(workspace) => match self.hub.space_by_id(workspace) {
                Some(space) => roles::aggregate(self, &space).await,
                None => Ok(()),
            },
            Work::Policy(workspace, name) => match self.hub.space_by_id(workspace) {
                Some(space) => policies::settle(self, &space, name).await,
                None => Ok(()),
            },
            Work::Flows(workspace) => match self.hub.space_by_id(workspace) {
                Some(space) => flows::settle(self, &space).await,
                None => Ok(()),
            },
            Work::Workspace(name) => workspaces::remove(self, name).await,
            Work::Owner(workspace, key) => match self.hub.space_by_id(workspace) {
                Some(space) => garbage::finish_owner(self, &space, key).await,
                None => Ok(()),
            },
            Work::Protected(workspace, key) => match self.hub.space_by_id(workspace) {
                Some(space) => protection::release(self, &space, key).await,
                None => Ok(()),
            },
            Work::Quota(workspace, key) => match self.hub.space_by_id(workspace) {
                Some(space) => quotas::recount(self, &space, key).await,
                None => Ok(()),
            },
            Work::Dependent(workspace, key) => match self.hub.space_by_id(workspace) {
                Some(space) => garbage::check_dependent(self, &space, key).await,
                None => Ok(()),
            },
        }
    }

    /// A request of the hub's own, about objects of `collection`.
    fn context(
        &self,
        space: &Space,
        collection: &Collection,
        namespace: &str,
        name: &str,
    ) -> Option<Context> {
        Context::own(&self.hub, space, collection, namespace, name)
    }

    fn context_for(&self, space: &Space, key: &Key) -> Option<Context> {
        self.context(space, &key.collection, key.item.namespace(), key.item.name())
    }
}

fn namespaces_collection() -> Collection {
    Collection::new("", "namespaces")
}

fn workspaces_collection() -> Collection {
    Collection::new(api::GROUP, "workspaces")
}
