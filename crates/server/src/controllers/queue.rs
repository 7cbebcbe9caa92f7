//! Work to do, each piece once: adding what is waiting already changes nothing.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

use compact_str::CompactString;
use parking_lot::Mutex;
use store::{Key, WorkspaceId};
use tokio::sync::Notify;

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
    /// A request for a certificate, which may be approved.
    SigningRequest(WorkspaceId, CompactString),
    /// The flow schemas of a workspace, whose levels may be there or not.
    Flows(WorkspaceId),
    /// The cluster roles of a workspace, some of which may collect others.
    Roles(WorkspaceId),
    /// A policy, whose status may have to follow.
    Policy(WorkspaceId, CompactString),
    /// A workspace that is to be removed.
    Workspace(CompactString),
    /// An object that is being deleted and waits for what becomes of its dependents.
    Owner(WorkspaceId, Key),
    /// An object whose owners may be gone.
    Dependent(WorkspaceId, Key),
    /// A quota that may say something else than what is used.
    Quota(WorkspaceId, Key),
    /// Storage that is being deleted and may not be in use any more.
    Protected(WorkspaceId, Key),
}

#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    filled: Notify,
}

#[derive(Default)]
struct State {
    order: VecDeque<Work>,
    waiting: HashSet<Work>,
    /// Being done now; what is added meanwhile is queued when it is finished, so that no two do the same.
    active: HashSet<Work>,
    again: HashSet<Work>,
    failures: HashMap<Work, u32>,
}

impl Queue {
    pub fn add(&self, work: Work) {
        let mut state = self.state.lock();
        if state.active.contains(&work) {
            state.again.insert(work);
        } else if state.waiting.insert(work.clone()) {
            state.order.push_back(work);
            self.filled.notify_one();
        }
    }

    pub async fn take(&self) -> Work {
        loop {
            let filled = self.filled.notified();
            {
                let mut state = self.state.lock();
                if let Some(work) = state.order.pop_front() {
                    state.waiting.remove(&work);
                    state.active.insert(work.clone());
                    if !state.order.is_empty() {
                        self.filled.notify_one();
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
        self.finish(work);
        Duration::from_millis(5 << failures).min(Duration::from_secs(30))
    }

    fn finish(&self, work: &Work) {
        let again = {
            let mut state = self.state.lock();
            state.active.remove(work);
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

    fn mk_work(name: &str) -> Work {
        Work::Workspace(name.into())
    }

    #[tokio::test]
    async fn work_waits_once_and_is_never_done_twice_at_once() {
        let queue = Queue::default();
        queue.add(mk_work("a"));
        queue.add(mk_work("a"));
        queue.add(mk_work("b"));
        assert_eq!(queue.take().await, mk_work("a"));
        queue.add(mk_work("a"));
        assert_eq!(queue.take().await, mk_work("b"), "a is being done");
        queue.done(&mk_work("a"));
        assert_eq!(queue.take().await, mk_work("a"), "it was asked for again meanwhile");
    }

    #[test]
    fn failures_wait_longer_and_longer() {
        let queue = Queue::default();
        let first = queue.failed(&mk_work("a"));
        assert!(queue.failed(&mk_work("a")) > first);
        for _ in 0..40 {
            assert!(queue.failed(&mk_work("a")) <= Duration::from_secs(30));
        }
    }
}
