//! Work to do, each piece once: adding what is waiting already changes nothing.

use std::{
    collections::{HashMap, HashSet, VecDeque, hash_map::Entry},
    sync::Arc,
    time::Duration,
};

use compact_str::CompactString;
use env::Clock;
use machinery::Owner;
use parking_lot::Mutex;
use store::{Collection, Key, WorkspaceId};
use tokio::sync::Notify;

use crate::metrics::WorkMetrics;

/// Something to look at. It says what, never what to do: that is decided from the state when its turn comes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// A namespace that is to be emptied.
    Namespace(WorkspaceId, CompactString),
    /// A definition of a kind, whose status may have to follow.
    Definition(WorkspaceId, CompactString),
    /// A namespace that is to have its service account and the authority's certificate.
    Outfit(WorkspaceId, CompactString),
    /// A secret that is to hold a token of a service account.
    TokenSecret(WorkspaceId, Key),
    /// The secrets of a namespace that hold tokens, of which some may be of an account that is gone.
    TokenSecrets(WorkspaceId, CompactString),
    /// A request for a certificate, which may be approved.
    SigningRequest(WorkspaceId, CompactString),
    /// The requests for certificates of a workspace, some of which may be old.
    OldSigningRequests(WorkspaceId),
    /// The flow schemas of a workspace, whose levels may be there or not.
    Flows(WorkspaceId),
    /// The cluster roles of a workspace, some of which may collect others.
    Roles(WorkspaceId),
    /// A policy, whose status may have to follow.
    Policy(WorkspaceId, CompactString),
    /// A federated object, of which another is to be made.
    Federated(WorkspaceId, Key),
    /// A cluster that is written down in another's words.
    Registered(WorkspaceId, Key),
    /// A workspace that is to be removed.
    Workspace(CompactString),
    /// An object that is being deleted and waits for what becomes of its dependents.
    Owner(WorkspaceId, Key),
    /// An owner that an object, the first, belonged to or held up, and does no more.
    Released(WorkspaceId, Key, Owner),
    /// An object whose owners may be gone.
    Dependent(WorkspaceId, Key),
    /// A quota that may say something else than what is used.
    Quota(WorkspaceId, Key),
    /// A Job that is over, and whose time has come.
    Finished(WorkspaceId, Key),
    /// Storage of a kind in a namespace, some of which is being deleted and may not be in use any more.
    Protected(WorkspaceId, Collection, CompactString),
}

/// So much of one workspace is done at once. Some of it waits for somebody there, such as a webhook, which must not keep
/// other workspaces from their turn.
const PER_WORKSPACE: usize = 2;

/// Workspaces themselves are removed so many at once: they wait for one write together.
const WORKSPACES_AT_ONCE: usize = 8;

fn most_at_once(place: &Place) -> usize {
    if place.is_some() { PER_WORKSPACE } else { WORKSPACES_AT_ONCE }
}

/// Whose work it is; what is about workspaces themselves is nobody's.
pub type Place = Option<WorkspaceId>;

/// What metrics call each kind of work.
pub const KINDS: &[&str] = &[
    "namespace",
    "definition",
    "outfit",
    "token_secret",
    "token_secrets",
    "signing_request",
    "old_signing_requests",
    "flows",
    "roles",
    "policy",
    "federated",
    "registered",
    "workspace",
    "owner",
    "released",
    "dependent",
    "quota",
    "protected",
    "finished",
];

impl Work {
    /// One of [`KINDS`].
    pub fn kind(&self) -> &'static str {
        match self {
            Work::Namespace(..) => "namespace",
            Work::Definition(..) => "definition",
            Work::Outfit(..) => "outfit",
            Work::TokenSecret(..) => "token_secret",
            Work::TokenSecrets(..) => "token_secrets",
            Work::SigningRequest(..) => "signing_request",
            Work::OldSigningRequests(..) => "old_signing_requests",
            Work::Flows(..) => "flows",
            Work::Roles(..) => "roles",
            Work::Policy(..) => "policy",
            Work::Federated(..) => "federated",
            Work::Registered(..) => "registered",
            Work::Workspace(..) => "workspace",
            Work::Owner(..) => "owner",
            Work::Released(..) => "released",
            Work::Dependent(..) => "dependent",
            Work::Quota(..) => "quota",
            Work::Protected(..) => "protected",
            Work::Finished(..) => "finished",
        }
    }

    pub fn place(&self) -> Place {
        match self {
            Work::Namespace(workspace, _)
            | Work::Definition(workspace, _)
            | Work::Outfit(workspace, _)
            | Work::TokenSecret(workspace, _)
            | Work::TokenSecrets(workspace, _)
            | Work::SigningRequest(workspace, _)
            | Work::OldSigningRequests(workspace)
            | Work::Flows(workspace)
            | Work::Roles(workspace)
            | Work::Policy(workspace, _)
            | Work::Federated(workspace, _)
            | Work::Registered(workspace, _)
            | Work::Owner(workspace, _)
            | Work::Released(workspace, ..)
            | Work::Dependent(workspace, _)
            | Work::Quota(workspace, _)
            | Work::Finished(workspace, _)
            | Work::Protected(workspace, ..) => Some(workspace.clone()),
            Work::Workspace(_) => None,
        }
    }
}

pub struct Queue {
    clock: Arc<dyn Clock>,
    metrics: WorkMetrics,
    state: Mutex<State>,
    filled: Notify,
}

#[derive(Default)]
struct State {
    /// Who has something to do and may do it, in the order of their turns.
    turns: VecDeque<Place>,
    /// Whoever has something to do or does it.
    places: HashMap<Place, Waiting>,
    /// Since when.
    waiting: HashMap<Work, Duration>,
    /// Being done now; what is added meanwhile is queued when it is finished, so that no two do the same.
    active: HashSet<Work>,
    again: HashSet<Work>,
    /// Not to be done before it was rested; what is added meanwhile is done then.
    resting: HashSet<Work>,
    failures: HashMap<Work, u32>,
}

#[derive(Default)]
struct Waiting {
    order: VecDeque<Work>,
    active: usize,
    has_turn: bool,
}

impl State {
    /// With the time since when it waits.
    fn next(&mut self) -> Option<(Work, Duration)> {
        let place = self.turns.pop_front()?;
        let waiting = self.places.get_mut(&place)?;
        waiting.has_turn = false;
        let work = waiting.order.pop_front()?;
        waiting.active += 1;
        self.settle(place);
        let since = self.waiting.remove(&work).unwrap_or_default();
        self.active.insert(work.clone());
        Some((work, since))
    }

    /// Gives a workspace its next turn if it has something to do and may, and forgets one that has nothing.
    fn settle(&mut self, place: Place) {
        let Some(waiting) = self.places.get_mut(&place) else { return };
        if waiting.order.is_empty() && waiting.active == 0 {
            self.places.remove(&place);
        } else if !waiting.has_turn && !waiting.order.is_empty() && waiting.active < most_at_once(&place) {
            waiting.has_turn = true;
            self.turns.push_back(place);
        }
    }
}

impl Queue {
    pub fn new(clock: Arc<dyn Clock>, metrics: WorkMetrics) -> Self {
        Self { clock, metrics, state: Mutex::default(), filled: Notify::new() }
    }

    pub fn add(&self, work: Work) {
        let now = self.clock.elapsed();
        let mut state = self.state.lock();
        if state.resting.contains(&work) {
            return;
        }
        if state.active.contains(&work) {
            state.again.insert(work);
        } else if let Entry::Vacant(vacant) = state.waiting.entry(work) {
            let work = vacant.key().clone();
            vacant.insert(now);
            if let Some(measured) = self.metrics.of(work.kind()) {
                measured.adds.inc();
                measured.depth.inc();
            }
            let place = work.place();
            state.places.entry(place.clone()).or_default().order.push_back(work);
            state.settle(place);
            self.filled.notify_one();
        }
    }

    pub async fn take(&self) -> Work {
        loop {
            let filled = self.filled.notified();
            {
                let mut state = self.state.lock();
                if let Some((work, since)) = state.next() {
                    if !state.turns.is_empty() {
                        self.filled.notify_one();
                    }
                    drop(state);
                    if let Some(measured) = self.metrics.of(work.kind()) {
                        measured.depth.dec();
                        measured.waited(self.clock.elapsed().saturating_sub(since));
                    }
                    return work;
                }
            }
            filled.await;
        }
    }

    pub fn done(&self, work: &Work) {
        self.state.lock().failures.remove(work);
        self.finish(work);
    }

    /// How long to wait before trying again: doubling, up to half a minute.
    pub fn failed(&self, work: &Work) -> Duration {
        let failures = {
            let mut state = self.state.lock();
            let count = state.failures.entry(work.clone()).or_insert(0);
            *count = (*count + 1).min(13);
            *count
        };
        if let Some(measured) = self.metrics.of(work.kind()) {
            measured.retries.inc();
        }
        self.finish(work);
        Duration::from_millis(5 << failures).min(Duration::from_secs(30))
    }

    /// It was done, and what it did may ask for it again. How long to wait before that: as after a failure, so that
    /// what never comes to rest costs little.
    pub fn rest(&self, work: &Work) -> Duration {
        self.state.lock().resting.insert(work.clone());
        self.failed(work)
    }

    /// The time to wait is over.
    pub fn resume(&self, work: Work) {
        self.state.lock().resting.remove(&work);
        self.add(work);
    }

    fn finish(&self, work: &Work) {
        let again = {
            let mut state = self.state.lock();
            let place = work.place();
            if state.active.remove(work)
                && let Some(waiting) = state.places.get_mut(&place)
            {
                waiting.active -= 1;
            }
            state.settle(place);
            if !state.turns.is_empty() {
                self.filled.notify_one();
            }
            state.again.remove(work)
        };
        if again {
            self.add(work.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_queue() -> Queue {
        let metrics = crate::metrics::Metrics::default().work;
        Queue::new(Arc::new(env::clock::SimClock::new()), metrics)
    }

    fn mk_work(name: &str) -> Work {
        Work::Workspace(name.into())
    }

    #[tokio::test]
    async fn work_waits_once_and_is_never_done_twice_at_once() {
        let queue = mk_queue();
        queue.add(mk_work("a"));
        queue.add(mk_work("a"));
        queue.add(mk_work("b"));
        assert_eq!(queue.take().await, mk_work("a"));
        queue.add(mk_work("a"));
        assert_eq!(queue.take().await, mk_work("b"), "a is being done");
        queue.done(&mk_work("a"));
        assert_eq!(queue.take().await, mk_work("a"), "it was asked for again meanwhile");
    }

    #[tokio::test]
    async fn a_workspace_that_waits_does_not_keep_others_from_their_turn() {
        let of = |workspace: &str, name: &str| Work::Namespace(WorkspaceId(workspace.into()), name.into());
        let queue = mk_queue();
        for name in ["1", "2", "3", "4"] {
            queue.add(of("slow", name));
        }
        queue.add(of("other", "1"));
        let mut taken = Vec::new();
        for _ in 0..3 {
            taken.push(queue.take().await);
        }
        assert_eq!(taken, [of("slow", "1"), of("other", "1"), of("slow", "2")], "in turn");
        queue.add(of("other", "2"));
        assert_eq!(queue.take().await, of("other", "2"), "slow does enough already");
        queue.done(&of("slow", "1"));
        assert_eq!(queue.take().await, of("slow", "3"));
        for (workspace, name) in [("slow", "2"), ("slow", "3"), ("other", "1"), ("other", "2")] {
            queue.done(&of(workspace, name));
        }
        assert_eq!(queue.take().await, of("slow", "4"));
        queue.done(&of("slow", "4"));
        assert!(queue.state.lock().places.is_empty(), "who has nothing to do is forgotten");
    }

    #[tokio::test]
    async fn what_asks_for_itself_rests_longer_and_longer() {
        let queue = mk_queue();
        let mut last = Duration::ZERO;
        for _ in 0..10 {
            queue.add(mk_work("a"));
            assert_eq!(queue.take().await, mk_work("a"));
            queue.add(mk_work("a"));
            let pause = queue.rest(&mk_work("a"));
            assert!(pause > last);
            last = pause;
            queue.add(mk_work("a"));
            queue.add(mk_work("b"));
            assert_eq!(queue.take().await, mk_work("b"), "a rests, whoever asks for it");
            queue.done(&mk_work("b"));
            assert!(queue.state.lock().turns.is_empty());
            queue.resume(mk_work("a"));
        }
        assert_eq!(queue.take().await, mk_work("a"));
        queue.done(&mk_work("a"));
        queue.add(mk_work("a"));
        assert_eq!(queue.take().await, mk_work("a"), "it had nothing more to do, so it does not rest");
        assert!(queue.rest(&mk_work("a")) < last, "and begins anew");
    }

    #[tokio::test]
    async fn every_kind_of_work_is_counted_under_its_name() {
        let id = || WorkspaceId("w".into());
        let key = || Key::new("", "things", "ns", "a");
        let owner = || Owner {
            api_version: "v1".into(),
            kind: "Thing".into(),
            name: "a".into(),
            uid: "u".into(),
            controller: false,
            block_owner_deletion: false,
        };
        let all = [
            Work::Namespace(id(), "a".into()),
            Work::Definition(id(), "a".into()),
            Work::Outfit(id(), "a".into()),
            Work::TokenSecret(id(), key()),
            Work::TokenSecrets(id(), "a".into()),
            Work::SigningRequest(id(), "a".into()),
            Work::OldSigningRequests(id()),
            Work::Flows(id()),
            Work::Roles(id()),
            Work::Policy(id(), "a".into()),
            Work::Federated(id(), key()),
            Work::Registered(id(), key()),
            Work::Workspace("a".into()),
            Work::Owner(id(), key()),
            Work::Released(id(), key(), owner()),
            Work::Dependent(id(), key()),
            Work::Quota(id(), key()),
            Work::Protected(id(), Collection::new("", "things"), "a".into()),
            Work::Finished(id(), key()),
        ];
        let kinds: Vec<&str> = all.iter().map(Work::kind).collect();
        assert_eq!(kinds, KINDS);
        let queue = mk_queue();
        for work in all {
            let measured = queue.metrics.of(work.kind()).unwrap().clone();
            queue.add(work.clone());
            queue.add(work.clone());
            assert_eq!((measured.adds.get(), measured.depth.get()), (1, 1), "{work:?}");
            assert_eq!(queue.take().await, work);
            assert_eq!(measured.depth.get(), 0);
            queue.failed(&work);
            assert_eq!(measured.retries.get(), 1);
        }
    }

    #[test]
    fn failures_wait_longer_and_longer() {
        let queue = mk_queue();
        let first = queue.failed(&mk_work("a"));
        assert!(queue.failed(&mk_work("a")) > first);
        for _ in 0..40 {
            assert!(queue.failed(&mk_work("a")) <= Duration::from_secs(30));
        }
    }
}
