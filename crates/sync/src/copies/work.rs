//! What a session has to do, each thing once: now, or later if it failed.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    time::Duration,
};

use parking_lot::Mutex;
use store::{ItemKey, WorkspaceId};
use tokio::sync::Notify;

/// Something to do in a member: what the Assignment at this place asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Errand {
    pub workspace: WorkspaceId,
    pub item: ItemKey,
}

impl Errand {
    pub fn new(workspace: &WorkspaceId, namespace: &str, assignment: &str) -> Errand {
        Errand { workspace: workspace.clone(), item: ItemKey::new(namespace, assignment) }
    }

    /// The errand of the namespace that this one's object is in.
    pub fn of_namespace(&self) -> Errand {
        let namespace = self.item.namespace();
        Errand::new(&self.workspace, namespace, &api::assignment::name_of("", "namespaces", namespace))
    }
}

/// The pause after the first failure; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What came of an errand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// It cannot be done before something else is known, and is asked for again then.
    Waits,
    /// It failed, and is tried again after a while.
    Retry,
}

/// An errand that somebody may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    pub errand: Errand,
    /// When it was asked for what is to be done now, if anybody asked.
    pub since: Option<Duration>,
    /// How often it failed, one time after the other.
    pub failures: u32,
}

/// The errands of one session.
#[derive(Default)]
pub struct Work {
    state: Mutex<State>,
    pub wake: Notify,
}

#[derive(Default)]
struct State {
    entries: HashMap<Errand, Entry>,
    ready: VecDeque<Errand>,
    later: BTreeSet<(Duration, Errand)>,
}

#[derive(Default)]
struct Entry {
    standing: Standing,
    failures: u32,
    since: Option<Duration>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Standing {
    #[default]
    Idle,
    Ready,
    Later(Duration),
    UnderWay,
    /// Under way, and the member has told something since it began.
    Again,
    /// Under way, and what it depends on is another since it began.
    Renewed,
}

impl Work {
    /// Something it depends on is another: it is done now, whatever failed before. `since`: when somebody wanted it.
    pub fn renew(&self, errand: &Errand, since: Option<Duration>) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let entry = state.entries.entry(errand.clone()).or_default();
        entry.failures = 0;
        entry.since = entry.since.or(since);
        match entry.standing {
            Standing::Later(due) => {
                state.later.remove(&(due, errand.clone()));
                entry.standing = Standing::Idle;
            }
            Standing::UnderWay | Standing::Again => entry.standing = Standing::Renewed,
            Standing::Idle | Standing::Ready | Standing::Renewed => {}
        }
        state.queue(errand);
        self.wake.notify_one();
    }

    /// The member has told something: it is looked at now, unless it waits because it failed.
    pub fn look(&self, errand: &Errand) {
        self.state.lock().queue(errand);
        self.wake.notify_one();
    }

    pub fn take(&self, now: Duration) -> Option<Taken> {
        let mut state = self.state.lock();
        let state = &mut *state;
        while state.later.first().is_some_and(|(due, _)| *due <= now) {
            let Some((_, errand)) = state.later.pop_first() else { break };
            state.entries.entry(errand.clone()).or_default().standing = Standing::Ready;
            state.ready.push_back(errand);
        }
        let errand = state.ready.pop_front()?;
        let entry = state.entries.entry(errand.clone()).or_default();
        entry.standing = Standing::UnderWay;
        Some(Taken { since: entry.since, failures: entry.failures, errand })
    }

    pub fn finish(&self, errand: &Errand, outcome: Outcome, now: Duration) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(entry) = state.entries.get_mut(errand) else { return };
        let renewed = entry.standing == Standing::Renewed;
        let again = match entry.standing {
            Standing::Renewed => true,
            // Where somebody writes it as fast as this does, that would go on without a pause.
            Standing::Again => outcome != Outcome::Retry,
            _ => false,
        };
        entry.standing = Standing::Idle;
        match outcome {
            // What the member tells meanwhile is nobody's wish.
            Outcome::Done => (entry.failures, entry.since) = (0, entry.since.filter(|_| renewed)),
            Outcome::Retry if !again => {
                let pause = FIRST_PAUSE.saturating_mul(1 << entry.failures.min(16)).min(LONGEST_PAUSE);
                entry.failures = entry.failures.saturating_add(1);
                entry.standing = Standing::Later(now + pause);
                state.later.insert((now + pause, errand.clone()));
            }
            // Whoever asked for it still waits.
            Outcome::Waits => entry.failures = 0,
            Outcome::Retry => {}
        }
        match again {
            true => state.queue(errand),
            false if outcome == Outcome::Done => drop(state.entries.remove(errand)),
            false => {}
        }
    }

    /// When the next one is due that waits.
    pub fn next_due(&self) -> Option<Duration> {
        self.state.lock().later.first().map(|(due, _)| *due)
    }

    pub fn len(&self) -> usize {
        let state = self.state.lock();
        state.ready.len() + state.later.len()
    }

    /// Those that were given up in the middle are done again.
    pub fn resume(&self) {
        let mut state = self.state.lock();
        let state = &mut *state;
        for (errand, entry) in &mut state.entries {
            if matches!(entry.standing, Standing::UnderWay | Standing::Again | Standing::Renewed) {
                entry.standing = Standing::Ready;
                state.ready.push_back(errand.clone());
            }
        }
    }
}

impl State {
    fn queue(&mut self, errand: &Errand) {
        let entry = self.entries.entry(errand.clone()).or_default();
        match entry.standing {
            Standing::Idle => {
                entry.standing = Standing::Ready;
                self.ready.push_back(errand.clone());
            }
            Standing::UnderWay => entry.standing = Standing::Again,
            Standing::Ready | Standing::Later(_) | Standing::Again | Standing::Renewed => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errand(name: &str) -> Errand {
        Errand::new(&WorkspaceId("w".into()), "n", name)
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn each_is_done_once_however_often_it_is_asked_for() {
        let work = Work::default();
        work.renew(&errand("a"), Some(seconds(1)));
        work.renew(&errand("a"), Some(seconds(2)));
        work.look(&errand("a"));
        let taken = work.take(seconds(3)).expect("one");
        assert_eq!(taken, Taken { errand: errand("a"), since: Some(seconds(1)), failures: 0 });
        assert_eq!(work.take(seconds(3)), None, "it is under way");
        work.look(&errand("a"));
        assert_eq!(work.take(seconds(3)), None, "it is still under way");
        work.finish(&errand("a"), Outcome::Done, seconds(3));
        assert!(work.take(seconds(3)).is_some(), "something changed meanwhile");
        work.finish(&errand("a"), Outcome::Done, seconds(3));
        assert_eq!((work.take(seconds(3)), work.len()), (None, 0));
    }

    #[test]
    fn what_waits_for_something_else_was_wanted_since_it_was_asked_for_first() {
        let work = Work::default();
        work.renew(&errand("a"), Some(seconds(1)));
        work.take(seconds(1));
        work.finish(&errand("a"), Outcome::Waits, seconds(1));
        assert_eq!((work.take(seconds(2)), work.len()), (None, 0), "nobody asks");
        work.renew(&errand("a"), None);
        assert_eq!(work.take(seconds(3)).and_then(|taken| taken.since), Some(seconds(1)));
        work.finish(&errand("a"), Outcome::Done, seconds(3));
        work.renew(&errand("a"), None);
        assert_eq!(work.take(seconds(4)).and_then(|taken| taken.since), None, "that is done");
    }

    #[test]
    fn what_failed_waits_longer_each_time_until_something_changes() {
        let work = Work::default();
        work.renew(&errand("a"), None);
        let mut now = seconds(0);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let taken = work.take(now).expect("it is due");
            work.finish(&taken.errand, Outcome::Retry, now);
            let due = work.next_due().expect("it waits");
            pauses.push((due - now).as_millis());
            work.look(&errand("a"));
            assert_eq!(work.take(now), None, "what the member tells does not hurry it");
            now = due;
        }
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
        work.take(now);
        work.finish(&errand("a"), Outcome::Retry, now);
        work.renew(&errand("a"), None);
        assert_eq!(work.take(now).map(|taken| taken.failures), Some(0));
    }

    #[test]
    fn what_the_member_tells_meanwhile_is_nobodys_wish() {
        let work = Work::default();
        work.renew(&errand("a"), Some(seconds(1)));
        work.take(seconds(1));
        work.look(&errand("a"));
        work.finish(&errand("a"), Outcome::Done, seconds(1));
        assert_eq!(work.take(seconds(1)).map(|taken| taken.since), Some(None));
        work.renew(&errand("a"), Some(seconds(2)));
        work.finish(&errand("a"), Outcome::Done, seconds(2));
        assert_eq!(work.take(seconds(2)).map(|taken| taken.since), Some(Some(seconds(2))));
    }

    #[test]
    fn what_failed_waits_although_the_member_told_something_meanwhile() {
        let work = Work::default();
        work.look(&errand("a"));
        work.take(seconds(0));
        work.look(&errand("a"));
        work.finish(&errand("a"), Outcome::Retry, seconds(0));
        assert_eq!((work.take(seconds(0)), work.next_due()), (None, Some(FIRST_PAUSE)));
        work.take(FIRST_PAUSE);
        work.look(&errand("a"));
        work.renew(&errand("a"), None);
        work.finish(&errand("a"), Outcome::Retry, FIRST_PAUSE);
        assert!(work.take(FIRST_PAUSE).is_some(), "what is to be done is another");
    }

    #[test]
    fn what_was_given_up_in_the_middle_is_done_again() {
        let work = Work::default();
        work.look(&errand("a"));
        work.take(seconds(0));
        work.resume();
        assert!(work.take(seconds(0)).is_some());
    }
}
