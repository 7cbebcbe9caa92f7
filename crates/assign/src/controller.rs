//! The task: reads the feed, takes what is to be looked at, and has commits under way.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use env::BoxFuture;
use futures_util::{StreamExt, stream::FuturesUnordered};
use machinery::object::ObjectError;
use serde_json::Value;
use server::{
    Hub,
    desk::Desk,
    duty::{self, during},
};
use store::{Change, Commit, Error, Expect, FeedItem, Write};

use crate::{
    audited, failing,
    place::{self, Problem},
    queue::{Aspect, Haste, Id, Rest, Task},
    scale::{self, Scale},
    status, stuck,
    world::{World, kind_of},
};

/// So many commits are under way at once: they share what a commit waits for.
const MOST_COMMITS: usize = 256;
/// A sleep when nothing is set.
const NO_ALARM: Duration = Duration::from_secs(3600);
/// So many objects are looked at before the feed is read again.
const AT_ONCE: usize = 32;

/// Starts it; it ends when the hub stops. Of several servers on one store, the one on duty has it.
pub fn start(hub: &Arc<Hub>) {
    let own = hub.clone();
    duty::serve(hub, "placement", move |ended| {
        let controller = Controller::new(own.clone());
        let feed = own.store.feed();
        own.env.tasks.spawn(Box::pin(during(ended.clone(), controller.run(feed))));
        let told = stuck::follow(own.clone(), own.views.feed());
        own.env.tasks.spawn(Box::pin(during(ended, told)));
    });
}

/// What came of a commit.
enum Outcome {
    Committed,
    /// Somebody was faster: look again.
    Overtaken,
    Failed(String),
}

type Pending = FuturesUnordered<BoxFuture<'static, (Task, Outcome)>>;

/// What is done because of a look.
enum Deed {
    Commit(Commit),
    Scale(Scale),
}

struct Controller {
    hub: Arc<Hub>,
    desk: Arc<Desk>,
    world: World,
    pending: Pending,
    /// Those that failed, until they are tried again.
    resting: FuturesUnordered<BoxFuture<'static, (Task, u64)>>,
}

impl Controller {
    fn new(hub: Arc<Hub>) -> Controller {
        let world = World::new(hub.clone());
        let desk = Arc::new(Desk::new(hub.clone(), "system:hanse:placement", scale::MANAGER));
        Controller { world, hub, desk, pending: FuturesUnordered::new(), resting: FuturesUnordered::new() }
    }

    async fn run(mut self, mut feed: store::Feed) {
        // The feed began before this look, so nothing falls between them.
        self.world.look_at_everything().await;
        loop {
            while let Some(item) = feed.try_next() {
                self.read(item).await;
            }
            self.ring();
            let busy = self.work();
            if busy {
                // Others of this thread have their turn.
                tokio::task::yield_now().await;
            }
            let alarm = self.hub.env.clock.sleep(self.until_alarm());
            tokio::select! {
                biased;
                Some((task, outcome)) = self.pending.next(), if !self.pending.is_empty() => {
                    self.finish(task, outcome);
                }
                Some((task, number)) = self.resting.next(), if !self.resting.is_empty() => {
                    self.world.queue.rested(task, number);
                }
                item = feed.next(), if !busy => self.read(item).await,
                () = alarm, if !busy => {}
                () = std::future::ready(()), if busy => {}
            }
        }
    }

    /// What was borne for a time is looked at when that is over.
    fn ring(&mut self) {
        for id in self.world.alarms.due(self.hub.now()) {
            self.world.queue.add(id, Aspect::Place, Haste::InTurn);
        }
    }

    fn until_alarm(&self) -> Duration {
        let next = self.world.alarms.next().map(|next| next.duration_since(self.hub.now()));
        next.map_or(NO_ALARM, |next| Duration::try_from(next).unwrap_or_default())
    }

    async fn read(&mut self, item: FeedItem) {
        match item {
            FeedItem::Event(event) => {
                let world = &mut self.world;
                match guarded(|| world.observe(&event)) {
                    Some(false) => {}
                    Some(true) => self.world.look_at_everything().await,
                    None => {
                        tracing::error!(key = ?event.key, workspace = %event.workspace, "a change was not understood");
                    }
                }
            }
            FeedItem::WorkspaceRemoved(workspace) => self.world.forget(&workspace),
            FeedItem::Lagged => self.world.look_at_everything().await,
        }
    }

    /// Looks at some of what waits; true if there is more to be looked at now.
    fn work(&mut self) -> bool {
        let metrics = self.hub.metrics.placement.clone();
        for _ in 0..AT_ONCE {
            if self.pending.len() >= MOST_COMMITS {
                return false;
            }
            let Some(task) = self.world.queue.take() else { break };
            let world = &mut self.world;
            let step = guarded(|| -> Result<Option<Deed>, Problem> {
                match task.1 {
                    Aspect::Place => {
                        metrics.decisions.inc();
                        place::look(world, &task.0).map(|it| it.map(Deed::Commit))
                    }
                    Aspect::Status => Ok(sum(world, &task.0)?.map(Deed::Commit)),
                    Aspect::Scale => Ok(scale::wanted(world, &task.0)?.map(Deed::Scale)),
                }
            });
            match step {
                Some(Ok(None)) => self.idle(task),
                Some(Ok(Some(Deed::Commit(commit)))) => self.commit(task, commit),
                Some(Ok(Some(Deed::Scale(scale)))) => self.scale(task, scale),
                Some(Err(error)) => self.fail(task, &error.to_string()),
                None => self.fail(task, "an error of Hanse's own"),
            }
        }
        metrics.pending.set(self.world.waiting.pending() as i64);
        metrics.waiting.set(self.world.queue.len() as i64);
        metrics.failing.set(self.world.failing.len() as i64);
        self.world.queue.len() > 0
    }

    /// There is nothing to write down; those that waited for what failed to be written wait no longer.
    fn idle(&mut self, task: Task) {
        let (id, aspect) = task.clone();
        if aspect == Aspect::Place {
            self.world.take_back(&id);
        }
        self.settle(&task);
        if self.world.queue.done(task) && aspect == Aspect::Place {
            self.world.wake_waiting_for(&id);
        }
    }

    fn commit(&mut self, task: Task, commit: Commit) {
        let deed = audited::deed(&self.hub, &task.0, &commit);
        let committed = self.hub.store.commit(&task.0.workspace, commit);
        self.pending.push(Box::pin(async move {
            let outcome = match committed.await {
                Ok(_) => {
                    audited::note(deed).await;
                    Outcome::Committed
                }
                Err(Error::Conflict { .. }) => Outcome::Overtaken,
                Err(error) => Outcome::Failed(error.to_string()),
            };
            (task, outcome)
        }));
    }

    fn scale(&mut self, task: Task, scale: Scale) {
        let desk = self.desk.clone();
        self.pending.push(Box::pin(async move {
            let outcome = match scale.write(&desk).await {
                Ok(_) => Outcome::Committed,
                // What cannot be scaled has no autoscaler.
                Err(refused) if refused.code == 404 => Outcome::Committed,
                Err(refused) if refused.code == 409 => Outcome::Overtaken,
                Err(refused) => Outcome::Failed(refused.to_string()),
            };
            (task, outcome)
        }));
    }

    fn finish(&mut self, task: Task, outcome: Outcome) {
        match outcome {
            Outcome::Committed => {
                self.hub.metrics.placement.writes.inc();
                self.keep(&task);
                self.settle(&task);
                self.world.queue.done(task);
            }
            Outcome::Overtaken => {
                self.give_back(&task);
                self.world.queue.retry(task);
            }
            Outcome::Failed(why) => self.fail(task, &why),
        }
    }

    fn fail(&mut self, task: Task, why: &str) {
        self.give_back(&task);
        self.rest(task, why);
    }

    /// What was decided is as it is written down.
    fn keep(&mut self, (id, aspect): &Task) {
        if *aspect == Aspect::Place {
            self.world.holds.keep(id);
        }
    }

    /// What was held for a decision that was not written down is held again with the next. What was promised before, and
    /// is not counted yet, stays held.
    fn give_back(&mut self, (id, aspect): &Task) {
        if *aspect == Aspect::Place {
            let returned = self.world.holds.undo(id);
            self.world.give_back(returned);
            self.world.leaving.untold(id);
            self.world.wake_waiting_for(id);
        }
    }

    fn rest(&mut self, task: Task, why: &str) {
        let Rest { number, failures, pause } = self.world.queue.failed(&task);
        tracing::warn!(key = ?task.0.key, workspace = %task.0.workspace, why, ?pause, "cannot be placed now");
        if failures >= failing::TOLD_AFTER {
            self.tell(&task, why);
        }
        let clock = self.hub.env.clock.clone();
        self.resting.push(Box::pin(async move {
            clock.sleep(pause).await;
            (task, number)
        }));
    }
}

impl Controller {
    /// Says that something fails; the condition is written with whatever else there is to say of the object.
    fn tell(&mut self, task: &Task, why: &str) {
        let (id, aspect) = task;
        let news = failing::news(*aspect, why);
        if self.world.failing.note(task, &news.2) && *aspect != Aspect::Status {
            self.world.queue.add(id.clone(), Aspect::Status, Haste::Now);
        }
        // Whoever cannot be understood may not be told of, either.
        let world = &self.world;
        let Some(Ok(Some(commit))) = guarded(|| failing::event(world, id, &news)) else { return };
        let told = self.hub.store.commit(&id.workspace, commit);
        let key = id.key.clone();
        self.hub.env.tasks.spawn(Box::pin(async move {
            if let Err(error) = told.await {
                tracing::warn!(?key, %error, "cannot tell that something fails");
            }
        }));
    }

    /// It does not fail any more.
    fn settle(&mut self, task: &Task) {
        if self.world.failing.is_over(task) {
            self.world.queue.add(task.0.clone(), Aspect::Status, Haste::Now);
        }
    }
}

/// Whatever is wrong with one object must not keep the hub from looking after all others: one that panics has `None`.
fn guarded<T>(step: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(step)).ok()
}

/// The status of one object.
fn sum(world: &mut World, id: &Id) -> Result<Option<Commit>, ObjectError> {
    let Some(space) = world.hub.space_by_id(&id.workspace).filter(|_| !id.is_namespace()) else {
        return Ok(None);
    };
    let Some(object) = space.get(&id.key) else { return Ok(None) };
    let failing = world.failing.of(id);
    let assignment = match space.get(&id.assignment()) {
        Some(stored) => world.hub.assignments.read(&stored)?,
        // There is something to say all the same, or what was said of it before is not so any more.
        None if failing.is_some() || status::is_told(&object) => Arc::default(),
        None => return Ok(None),
    };
    let source = assignment.spec.object.uid.as_str();
    if !source.is_empty() && source != object.head.uid.as_str() {
        return Ok(None);
    }
    let Some((group, _, name)) = kind_of(&object) else { return Ok(None) };
    let kind = world.kind(&space, &id.key.collection, group, name);
    let tree = Value::Object(object.tree()?);
    let is_ready = |cluster: &str| world.clusters.is_ready(space.id(), cluster);
    let Some(status) = status::of(&kind, &tree, &assignment, failing, is_ready, &world.hub.now_text()) else {
        return Ok(None);
    };
    if tree.get("status") == Some(&status) {
        return Ok(None);
    }
    let change = Change::Put { draft: object.unsealed().with_status(&status)?, expires: None };
    let write = Write { key: id.key.clone(), expect: Expect::At(object.revision), change };
    Ok(Some(Commit { guards: Vec::new(), writes: vec![write] }))
}
