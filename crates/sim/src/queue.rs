//! What is to be looked at, in which cluster: each thing once, one thing of a cluster at a time, some of it later.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use compact_str::CompactString;
use env::Clock;
use parking_lot::Mutex;
use store::WorkspaceId;
use tokio::sync::Notify;

/// An object that a controller is to look at.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Work {
    pub cluster: WorkspaceId,
    /// Its number among the controllers.
    pub controller: u8,
    pub namespace: CompactString,
    pub name: CompactString,
}

pub struct Queue {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    filled: Notify,
}

#[derive(Default)]
struct State {
    /// Clusters that have something to do and do nothing, in the order of their turns.
    turns: VecDeque<WorkspaceId>,
    clusters: HashMap<WorkspaceId, Waiting>,
    /// By when; there may be several for one thing, of which the first counts.
    later: BinaryHeap<Reverse<(Duration, Work)>>,
    failures: HashMap<Work, u32>,
}

#[derive(Default)]
struct Waiting {
    order: VecDeque<Work>,
    waiting: HashSet<Work>,
    busy: bool,
}

impl State {
    fn add(&mut self, work: Work) -> bool {
        let place = self.clusters.entry(work.cluster.clone()).or_default();
        if !place.waiting.insert(work.clone()) {
            return false;
        }
        if place.order.is_empty() && !place.busy {
            self.turns.push_back(work.cluster.clone());
        }
        place.order.push_back(work);
        true
    }

    fn next(&mut self) -> Option<Work> {
        let cluster = self.turns.pop_front()?;
        let place = self.clusters.get_mut(&cluster)?;
        let work = place.order.pop_front()?;
        place.waiting.remove(&work);
        place.busy = true;
        Some(work)
    }

    /// Adds what is due, and says when the next is.
    fn ripen(&mut self, now: Duration) -> Option<Duration> {
        while let Some(Reverse((due, _))) = self.later.peek() {
            if *due > now {
                return Some(*due - now);
            }
            if let Some(Reverse((_, work))) = self.later.pop() {
                self.add(work);
            }
        }
        None
    }
}

impl Queue {
    pub fn new(clock: Arc<dyn Clock>) -> Queue {
        Queue { clock, state: Mutex::default(), filled: Notify::new() }
    }

    pub fn add(&self, work: Work) {
        if self.state.lock().add(work) {
            self.filled.notify_one();
        }
    }

    pub fn add_after(&self, work: Work, after: Duration) {
        let due = self.clock.elapsed() + after;
        self.state.lock().later.push(Reverse((due, work)));
        // Whoever sleeps may have to wake earlier.
        self.filled.notify_one();
    }

    /// The next thing; its cluster has no other turn until [`Queue::done`].
    pub async fn take(&self) -> Work {
        loop {
            let filled = self.filled.notified();
            let next_due = {
                let mut state = self.state.lock();
                let next_due = state.ripen(self.clock.elapsed());
                if let Some(work) = state.next() {
                    if !state.turns.is_empty() || next_due.is_some() {
                        self.filled.notify_one();
                    }
                    return work;
                }
                next_due
            };
            match next_due {
                Some(pause) => tokio::select! {
                    () = filled => {}
                    () = self.clock.sleep(pause) => {}
                },
                None => filled.await,
            }
        }
    }

    pub fn done(&self, work: &Work) {
        let mut state = self.state.lock();
        state.failures.remove(work);
        self.release(&mut state, work);
    }

    /// It did not come to its end: it is tried again after a while, longer each time.
    pub fn failed(&self, work: &Work) {
        let due = {
            let mut state = self.state.lock();
            let count = state.failures.entry(work.clone()).or_insert(0);
            *count = (*count + 1).min(12);
            let pause = Duration::from_millis(5 << *count).min(Duration::from_secs(10));
            self.release(&mut state, work);
            pause
        };
        self.add_after(work.clone(), due);
    }

    fn release(&self, state: &mut State, work: &Work) {
        let Some(place) = state.clusters.get_mut(&work.cluster) else { return };
        place.busy = false;
        if place.order.is_empty() {
            state.clusters.remove(&work.cluster);
        } else {
            state.turns.push_back(work.cluster.clone());
            self.filled.notify_one();
        }
    }

    /// Nothing is waiting or being done now; what is due later does not count.
    pub fn is_idle(&self) -> bool {
        self.state.lock().clusters.is_empty()
    }

    /// The cluster is gone.
    pub fn forget(&self, cluster: &WorkspaceId) {
        let mut state = self.state.lock();
        if let Some(place) = state.clusters.get_mut(cluster) {
            place.order.clear();
            place.waiting.clear();
            if !place.busy {
                state.clusters.remove(cluster);
            }
        }
        state.turns.retain(|it| it != cluster);
        state.failures.retain(|work, _| work.cluster != *cluster);
        state.later.retain(|Reverse((_, work))| work.cluster != *cluster);
    }
}

#[cfg(test)]
mod tests {
    use env::clock::SimClock;

    use super::*;

    fn work(cluster: &str, name: &str) -> Work {
        Work {
            cluster: WorkspaceId(cluster.into()),
            controller: 0,
            namespace: "default".into(),
            name: name.into(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_does_one_thing_at_a_time_and_others_go_on() {
        let queue = Queue::new(Arc::new(SimClock::new()));
        for name in ["a", "b", "a"] {
            queue.add(work("one", name));
        }
        queue.add(work("two", "a"));
        assert_eq!(queue.take().await, work("one", "a"));
        assert_eq!(queue.take().await, work("two", "a"));
        queue.add(work("one", "a"));
        queue.done(&work("two", "a"));
        queue.done(&work("one", "a"));
        assert_eq!(queue.take().await, work("one", "b"));
        queue.done(&work("one", "b"));
        assert_eq!(queue.take().await, work("one", "a"), "it was asked for again meanwhile");
        queue.done(&work("one", "a"));
        assert!(queue.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_for_later_comes_in_its_time_and_failures_wait() {
        let clock = Arc::new(SimClock::new());
        let queue = Queue::new(clock.clone());
        queue.add_after(work("one", "late"), Duration::from_secs(60));
        queue.add_after(work("one", "soon"), Duration::from_secs(1));
        assert_eq!(queue.take().await, work("one", "soon"));
        assert_eq!(clock.elapsed().as_secs(), 1);
        queue.failed(&work("one", "soon"));
        assert_eq!(queue.take().await, work("one", "soon"));
        queue.done(&work("one", "soon"));
        assert_eq!(queue.take().await, work("one", "late"));
        assert_eq!(clock.elapsed().as_secs(), 60);
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_cluster_that_is_gone_nothing_is_left() {
        let queue = Queue::new(Arc::new(SimClock::new()));
        queue.add(work("one", "a"));
        queue.add_after(work("one", "b"), Duration::from_secs(1));
        queue.forget(&work("one", "a").cluster);
        assert!(queue.is_idle());
        queue.add_after(work("two", "c"), Duration::from_secs(2));
        assert_eq!(queue.take().await, work("two", "c"));
    }
}
