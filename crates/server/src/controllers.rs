//! What the hub does by itself: empties namespaces and workspaces, collects garbage, lets events expire, forgets old
//! history, gives namespaces their service account.
//!
//! ```text
//!   store's feed ──> index (who belongs to whom) ──> queue, keyed ──> workers ──> ordinary writes
//! ```
//!
//! One feed and one queue serve all workspaces. Work is named by what it is about and may be done twice without
//! harm; what fails is tried again later, and so is what panics. Whoever reads the feed holds up all workspaces, so it
//! notes and queues, and leaves all that takes time to the workers.

mod accounts;
mod certificates;
mod definitions;
mod federation;
mod finished;
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

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use futures_util::FutureExt;
use machinery::status::Status;
use parking_lot::Mutex;
use store::{Collection, Event, FeedItem, Key, WorkspaceId};
use tokio::sync::watch;

use crate::{
    base,
    context::Context,
    duty::{self, during},
    hub::{self, Hub, root_id},
    space::Space,
};
pub use queue::KINDS as KINDS_OF_WORK;
use queue::{Queue, Work};

/// Most of them wait, for the store or for somebody who is asked; the queue lets no workspace have all.
const WORKERS: usize = 16;
const EXPIRE_EVERY: Duration = Duration::from_secs(5);

/// The index that all workers share, and their queue.
struct Controllers {
    hub: Arc<Hub>,
    /// Turns true when they are to end.
    ended: watch::Receiver<bool>,
    queue: Queue,
    owners: Mutex<garbage::Owners>,
    current: Mutex<quotas::Current>,
    finished: finished::Finished,
    federation: Mutex<federation::Federation>,
}

/// Starts them; they end when the hub stops. Of several servers on one store, the one on duty has them.
pub fn start(hub: &Arc<Hub>) {
    hub.env.tasks.spawn(Box::pin(forget_removed(hub.clone(), hub.store.feed())));
    let own = hub.clone();
    duty::serve(hub, "controllers", move |ended| begin(&own, ended));
}

/// Lets go of what is kept about workspaces that are gone, whoever removed them.
async fn forget_removed(hub: Arc<Hub>, mut feed: store::Feed) {
    let mut stopping = hub.stopping.clone();
    loop {
        let item = tokio::select! {
            item = feed.next() => item,
            () = hub::stopped(&mut stopping) => return,
        };
        match item {
            FeedItem::Event(_) => {}
            FeedItem::WorkspaceRemoved(workspace) => hub.forget_space(&workspace),
            FeedItem::Lagged => hub.forget_missing(),
        }
    }
}

fn begin(hub: &Arc<Hub>, ended: watch::Receiver<bool>) {
    let feed = hub.store.feed();
    let controllers = Arc::new(Controllers {
        hub: hub.clone(),
        ended,
        queue: Queue::new(hub.env.clock.clone(), hub.metrics.work.clone()),
        owners: Mutex::default(),
        current: Mutex::default(),
        finished: Default::default(),
        federation: Mutex::default(),
    });
    controllers.spawn(follow(controllers.clone(), feed));
    for _ in 0..WORKERS {
        controllers.spawn(work(controllers.clone()));
    }
    controllers.spawn(quotas::resync(controllers.clone()));
    controllers.spawn(certificates::clean(controllers.clone()));
    controllers.spawn(finished::watch(controllers.clone()));
    controllers.spawn(follow_views(controllers.clone(), hub.views.feed()));
    controllers.spawn(expire(controllers.clone()));
    controllers.spawn(history::keep(controllers.clone()));
}

/// Reads the feed for ever; after a gap, looks at everything.
async fn follow(controllers: Arc<Controllers>, mut feed: store::Feed) {
    // The feed began before this look, so nothing falls between them.
    controllers.look_at_everything().await;
    loop {
        match feed.next().await {
            FeedItem::Event(event) => controllers.guarded(|| controllers.observe(&event)),
            FeedItem::WorkspaceRemoved(workspace) => {
                controllers.owners.lock().forget(&workspace);
                controllers.finished.forget(&workspace);
                controllers.federation.lock().forget(&workspace);
            }
            FeedItem::Lagged => controllers.look_at_everything().await,
        }
    }
}

/// What belongs to a member's object is looked at when that goes, and quotas count what members make.
async fn follow_views(controllers: Arc<Controllers>, mut feed: store::Feed) {
    loop {
        match feed.next().await {
            FeedItem::Event(event) => {
                if event.after().is_none() {
                    let uid = &event.object().head.uid;
                    controllers.owners.lock().gone(&event.workspace, uid, &controllers.queue);
                }
                controllers.guarded(|| quotas::observe_view(&controllers, &event));
            }
            FeedItem::WorkspaceRemoved(_) => {}
            FeedItem::Lagged => controllers.look_at_everything().await,
        }
    }
}

async fn work(controllers: Arc<Controllers>) {
    loop {
        let work = controllers.queue.take().await;
        let began = controllers.hub.env.clock.elapsed();
        let outcome = controllers.attempt(&work).await;
        if let Some(measured) = controllers.hub.metrics.work.of(work.kind()) {
            measured.took(controllers.hub.env.clock.elapsed().saturating_sub(began));
        }
        // A full queue must not keep others of this thread from their turn.
        tokio::task::yield_now().await;
        let pause = match outcome {
            Ok(After::Done) => {
                controllers.queue.done(&work);
                continue;
            }
            Ok(After::Rest) => controllers.queue.rest(&work),
            Err(status) => {
                let pause = controllers.queue.failed(&work);
                tracing::debug!(?work, %status, ?pause, "will try again");
                pause
            }
        };
        let again = controllers.clone();
        controllers.spawn(async move {
            again.hub.env.clock.sleep(pause).await;
            again.queue.resume(work);
        });
    }
}

/// What becomes of work that was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Done,
    /// It changed what it may be asked for again because of; that must wait a little.
    Rest,
}

/// The outcome of work; one that panics has failed. `panicked` is told.
async fn caught(
    work: impl Future<Output = Result<After, Status>>,
    panicked: impl FnOnce(),
) -> Result<After, Status> {
    // What is shared is locked only for single steps, and locks are not poisoned.
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
        panicked();
        Err(Status::internal("it panicked; the log says where"))
    })
}

async fn expire(controllers: Arc<Controllers>) {
    let hub = &controllers.hub;
    loop {
        hub.env.clock.sleep(EXPIRE_EVERY).await;
        if let Err(error) = hub.store.expire(hub.now()).await {
            tracing::warn!(%error, "cannot remove expired objects");
        }
    }
}

impl Controllers {
    /// Has `work` done until the term ends.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.hub.env.tasks.spawn(Box::pin(during(self.ended.clone(), work)));
    }

    /// Does a step of reading the feed. One that panics is given up, and the next is done: whatever is wrong with one
    /// object must not keep the hub from looking after all others.
    fn guarded(&self, step: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(step)).is_err() {
            self.hub.metrics.controller_panics.inc();
            tracing::error!("a controller panicked at a change; what that asks for waits for the next one");
        }
    }

    async fn attempt(&self, work: &Work) -> Result<After, Status> {
        caught(self.perform(work), || {
            self.hub.metrics.controller_panics.inc();
            tracing::error!(?work, "a controller panicked; will try again");
        })
        .await
    }

    async fn look_at_everything(&self) {
        for workspace in self.hub.store.workspaces() {
            // There may be many, and others of this thread have their turn.
            tokio::task::yield_now().await;
            self.guarded(|| quotas::queue_all(self, &workspace));
            for collection in self.hub.store.collections(&workspace) {
                let Ok(listing) = self.hub.store.list(&workspace, &collection, None) else { continue };
                for (item, object) in listing.iter(None, None) {
                    let key = Key { collection: collection.clone(), item: item.clone() };
                    self.guarded(|| self.look_at(&workspace, &key, None, Some(object)));
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
        for owner in released {
            self.queue.add(Work::Released(workspace.clone(), key.clone(), owner));
        }
        definitions::observe(self, workspace, key, old, new);
        protection::observe(self, workspace, key, old, new);
        accounts::observe(self, workspace, key, old, new);
        policies::observe(self, workspace, key, new);
        certificates::observe(self, workspace, key, new);
        roles::observe(self, workspace, key);
        federation::observe(self, workspace, key, old, new);
        flows::observe(self, workspace, key);
        finished::observe(self, workspace, key, new);
        let deleting = new.is_some_and(|object| object.head.deleting);
        if key.collection == namespaces_collection() && deleting {
            self.queue.add(Work::Namespace(workspace.clone(), key.item.name().into()));
        }
        if *workspace == root_id() && key.collection == workspaces_collection() && deleting {
            self.queue.add(Work::Workspace(key.item.name().into()));
        }
        // Something left a namespace: it may be the last thing that held it.
        let is_told = namespaces::is_told_by(key, old, new);
        if (new.is_none() || is_told) && !key.item.namespace().is_empty() {
            let namespace = key.item.namespace();
            let namespace_key = Key::new("", "namespaces", "", namespace);
            let emptied =
                self.hub.store.get(workspace, &namespace_key).is_some_and(|object| object.head.deleting);
            if emptied {
                self.queue.add(Work::Namespace(workspace.clone(), namespace.into()));
            }
        }
    }

    async fn perform(&self, work: &Work) -> Result<After, Status> {
        if let Work::Workspace(name) = work {
            return workspaces::remove(self, name).await.map(|()| After::Done);
        }
        let space = work.place().and_then(|workspace| self.hub.space_by_id(&workspace));
        let Some(space) = space else { return Ok(After::Done) };
        match work {
            Work::Workspace(_) => Ok(()),
            Work::Namespace(_, name) => namespaces::empty(self, &space, name).await,
            Work::Definition(_, name) => definitions::settle(self, &space, name).await,
            Work::Outfit(_, namespace) => accounts::outfit(self, &space, namespace).await,
            Work::TokenSecret(_, key) => accounts::fill(self, &space, key).await,
            Work::TokenSecrets(_, namespace) => {
                accounts::queue_secrets(self, &space, namespace).await;
                Ok(())
            }
            Work::SigningRequest(_, name) => certificates::settle(self, &space, name).await,
            Work::OldSigningRequests(_) => {
                certificates::delete_old(self, &space).await;
                Ok(())
            }
            Work::Roles(_) => return Ok(roles::aggregate(self, &space).await),
            Work::Federated(_, key) => return federation::settle(self, &space, key).await,
            Work::Registered(_, key) => return federation::settle_registered(self, &space, key).await,
            Work::Policy(_, name) => policies::settle(self, &space, name).await,
            Work::Flows(_) => flows::settle(self, &space).await,
            Work::Owner(_, key) => garbage::finish_owner(self, &space, key).await,
            Work::Released(_, key, owner) => {
                garbage::wake(self, &space, key, owner);
                Ok(())
            }
            Work::Protected(_, collection, namespace) => {
                protection::release(self, &space, collection, namespace).await
            }
            Work::Finished(_, key) => finished::settle(self, &space, key).await,
            Work::Quota(_, key) => return quotas::recount(self, &space, key).await,
            Work::Dependent(_, key) => garbage::check_dependent(self, &space, key).await,
        }
        .map(|()| After::Done)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_that_panics_has_failed() {
        let mut panics = 0;
        let outcome = caught(async { panic!("on purpose") }, || panics += 1).await;
        assert_eq!(outcome.map_err(|status| status.code()), Err(500));
        let outcome = caught(async { Ok(After::Done) }, || panics += 1).await;
        assert_eq!(outcome.map_err(|status| status.code()), Ok(After::Done));
        assert_eq!(panics, 1);
    }
}
