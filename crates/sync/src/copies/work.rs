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
/// So long nobody may tell of something that is awaited before it is looked at all the same; it doubles as well.
const FIRST_DOUBT: Duration = Duration::from_secs(5);

/// When an errand is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Haste {
    /// Somebody has just changed something, here or in the member, and may be waiting.
    Now,
    /// After all that were asked for before: because of a list, a cluster or a policy, of which much may follow.
    InTurn,
}

/// Of so many that are run, one is of those that wait for their turn, however many others there are.
const TURN: u32 = 8;

/// What came of an errand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// It cannot be done before something else is known, and is asked for again then.
    Waits,
    /// All is done that can be, and the member is expected to tell of the rest. It is looked at then, or after a while if nothing
    /// is told: a watch may be broken without anybody knowing.
    Awaits,
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
    /// What it awaits was not told of for so long that it is looked at without.
    pub overdue: bool,
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
    now: VecDeque<Errand>,
    /// One that was hurried since is here, too, and is passed over.
    in_turn: VecDeque<Errand>,
    taken: u32,
    later: BTreeSet<(Duration, Errand)>,
    awaiting: BTreeSet<(Duration, Errand)>,
}

#[derive(Default)]
struct Entry {
    standing: Standing,
    failures: u32,
    /// How often what it awaits was not there yet.
    awaited: u32,
    overdue: bool,
    since: Option<Duration>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Standing {
    #[default]
    Idle,
    Ready(Haste),
    Later(Duration),
    Awaiting(Duration),
    UnderWay,
    /// Under way, and the member has told something since it began.
    Again,
    /// Under way, and what it depends on is another since it began.
    Renewed(Haste),
}

impl Work {
    /// Something it depends on is another: it is done now, whatever failed before. `since`: when somebody wanted it.
    pub fn renew(&self, errand: &Errand, since: Option<Duration>, haste: Haste) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let entry = state.entries.entry(errand.clone()).or_default();
        (entry.failures, entry.awaited) = (0, 0);
        entry.since = entry.since.or(since);
        match entry.standing {
            Standing::Later(due) => {
                state.later.remove(&(due, errand.clone()));
                entry.standing = Standing::Idle;
            }
            Standing::UnderWay | Standing::Again => entry.standing = Standing::Renewed(haste),
            Standing::Idle | Standing::Ready(_) | Standing::Awaiting(_) | Standing::Renewed(_) => {}
        }
        state.queue(errand, haste);
        self.wake.notify_one();
    }

    /// The member has told something: it is looked at now, unless it waits because it failed.
    pub fn look(&self, errand: &Errand) {
        self.state.lock().queue(errand, Haste::Now);
        self.wake.notify_one();
    }

    pub fn take(&self, now: Duration) -> Option<Taken> {
        let mut state = self.state.lock();
        let state = &mut *state;
        while state.later.first().is_some_and(|(due, _)| *due <= now) {
            let Some((_, errand)) = state.later.pop_first() else { break };
            state.make_ready(&errand, Haste::InTurn);
        }
        while state.awaiting.first().is_some_and(|(due, _)| *due <= now) {
            let Some((_, errand)) = state.awaiting.pop_first() else { break };
            state.make_ready(&errand, Haste::InTurn);
            state.entries.entry(errand).or_default().overdue = true;
        }
        let errand = state.next()?;
        let entry = state.entries.entry(errand.clone()).or_default();
        entry.standing = Standing::UnderWay;
        let overdue = std::mem::take(&mut entry.overdue);
        Some(Taken { since: entry.since, failures: entry.failures, overdue, errand })
    }

    pub fn finish(&self, errand: &Errand, outcome: Outcome, now: Duration) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(entry) = state.entries.get_mut(errand) else { return };
        let renewed = matches!(entry.standing, Standing::Renewed(_));
        let asked = match entry.standing {
            Standing::Renewed(haste) => Some(haste),
            // Where somebody writes it as fast as this does, that would go on without a pause.
            Standing::Again => (outcome != Outcome::Retry).then_some(Haste::Now),
            _ => None,
        };
        let again = asked.is_some();
        entry.standing = Standing::Idle;
        match outcome {
            // What the member tells meanwhile is nobody's wish.
            Outcome::Done | Outcome::Awaits => {
                (entry.failures, entry.since) = (0, entry.since.filter(|_| renewed));
                if outcome == Outcome::Awaits && !again {
                    let pause = doubled(FIRST_DOUBT, entry.awaited);
                    entry.awaited = entry.awaited.saturating_add(1);
                    entry.standing = Standing::Awaiting(now + pause);
                    state.awaiting.insert((now + pause, errand.clone()));
                }
            }
            Outcome::Retry if !again => {
                let pause = doubled(FIRST_PAUSE, entry.failures);
                entry.failures = entry.failures.saturating_add(1);
                entry.standing = Standing::Later(now + pause);
                state.later.insert((now + pause, errand.clone()));
            }
            // Whoever asked for it still waits.
            Outcome::Waits => entry.failures = 0,
            Outcome::Retry => {}
        }
        match asked {
            Some(haste) => state.queue(errand, haste),
            None if outcome == Outcome::Done => drop(state.entries.remove(errand)),
            None => {}
        }
    }

    /// When the next one is due of those that wait.
    pub fn next_due(&self) -> Option<Duration> {
        let state = self.state.lock();
        let first = [state.later.first(), state.awaiting.first()];
        first.into_iter().flatten().map(|(due, _)| *due).min()
    }

    /// Those that are not done, under way or waiting for something of the hub's; what is awaited is the member's to do.
    pub fn len(&self) -> usize {
        let state = self.state.lock();
        state.entries.len() - state.awaiting.len()
    }

    /// Those that were given up in the middle are done again.
    pub fn resume(&self) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let is_given_up = |entry: &Entry| {
            matches!(entry.standing, Standing::UnderWay | Standing::Again | Standing::Renewed(_))
        };
        let given_up = state.entries.iter().filter(|(_, entry)| is_given_up(entry));
        let given_up: Vec<Errand> = given_up.map(|(errand, _)| errand.clone()).collect();
        given_up.iter().for_each(|errand| state.make_ready(errand, Haste::InTurn));
    }
}

impl State {
    fn queue(&mut self, errand: &Errand, haste: Haste) {
        let entry = self.entries.entry(errand.clone()).or_default();
        match (entry.standing, haste) {
            (Standing::Idle, _) => self.make_ready(errand, haste),
            (Standing::Awaiting(due), _) => {
                self.awaiting.remove(&(due, errand.clone()));
                self.make_ready(errand, haste);
            }
            (Standing::Ready(Haste::InTurn), Haste::Now) => self.make_ready(errand, haste),
            (Standing::UnderWay, _) => entry.standing = Standing::Again,
            (Standing::Renewed(_), Haste::Now) => entry.standing = Standing::Renewed(haste),
            (Standing::Ready(_) | Standing::Later(_) | Standing::Again | Standing::Renewed(_), _) => {}
        }
    }

    fn make_ready(&mut self, errand: &Errand, haste: Haste) {
        self.entries.entry(errand.clone()).or_default().standing = Standing::Ready(haste);
        self.lane(haste).push_back(errand.clone());
    }

    fn lane(&mut self, haste: Haste) -> &mut VecDeque<Errand> {
        match haste {
            Haste::Now => &mut self.now,
            Haste::InTurn => &mut self.in_turn,
        }
    }

    fn next(&mut self) -> Option<Errand> {
        self.taken = self.taken.wrapping_add(1);
        let lanes = match self.taken % TURN {
            0 => [Haste::InTurn, Haste::Now],
            _ => [Haste::Now, Haste::InTurn],
        };
        lanes.into_iter().find_map(|haste| self.next_of(haste))
    }

    fn next_of(&mut self, haste: Haste) -> Option<Errand> {
        loop {
            let errand = self.lane(haste).pop_front()?;
            let standing = self.entries.get(&errand).map(|entry| entry.standing);
            if standing == Some(Standing::Ready(haste)) {
                return Some(errand);
            }
        }
    }
}

fn doubled(first: Duration, times: u32) -> Duration {
    first.saturating_mul(1 << times.min(16)).min(LONGEST_PAUSE)
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
        work.renew(&errand("a"), Some(seconds(1)), Haste::Now);
        work.renew(&errand("a"), Some(seconds(2)), Haste::Now);
        work.look(&errand("a"));
        let taken = work.take(seconds(3)).expect("one");
        assert_eq!(
            taken,
            Taken { errand: errand("a"), since: Some(seconds(1)), failures: 0, overdue: false }
        );
        assert_eq!(work.take(seconds(3)), None, "it is under way");
        work.look(&errand("a"));
        assert_eq!((work.take(seconds(3)), work.len()), (None, 1), "it is still under way");
        work.finish(&errand("a"), Outcome::Done, seconds(3));
        assert!(work.take(seconds(3)).is_some(), "something changed meanwhile");
        work.finish(&errand("a"), Outcome::Done, seconds(3));
        assert_eq!((work.take(seconds(3)), work.len()), (None, 0));
    }

    #[test]
    fn what_waits_for_something_else_was_wanted_since_it_was_asked_for_first() {
        let work = Work::default();
        work.renew(&errand("a"), Some(seconds(1)), Haste::Now);
        work.take(seconds(1));
        work.finish(&errand("a"), Outcome::Waits, seconds(1));
        assert_eq!((work.take(seconds(2)), work.len()), (None, 1), "nobody asks, and it is not done");
        work.renew(&errand("a"), None, Haste::Now);
        assert_eq!(work.take(seconds(3)).and_then(|taken| taken.since), Some(seconds(1)));
        work.finish(&errand("a"), Outcome::Done, seconds(3));
        work.renew(&errand("a"), None, Haste::Now);
        assert_eq!(work.take(seconds(4)).and_then(|taken| taken.since), None, "that is done");
    }

    #[test]
    fn what_failed_waits_longer_each_time_until_something_changes() {
        let work = Work::default();
        work.renew(&errand("a"), None, Haste::Now);
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
        work.renew(&errand("a"), None, Haste::Now);
        assert_eq!(work.take(now).map(|taken| taken.failures), Some(0));
    }

    #[test]
    fn what_the_member_tells_meanwhile_is_nobodys_wish() {
        let work = Work::default();
        work.renew(&errand("a"), Some(seconds(1)), Haste::Now);
        work.take(seconds(1));
        work.look(&errand("a"));
        work.finish(&errand("a"), Outcome::Done, seconds(1));
        assert_eq!(work.take(seconds(1)).map(|taken| taken.since), Some(None));
        work.renew(&errand("a"), Some(seconds(2)), Haste::Now);
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
        work.renew(&errand("a"), None, Haste::Now);
        work.finish(&errand("a"), Outcome::Retry, FIRST_PAUSE);
        assert!(work.take(FIRST_PAUSE).is_some(), "what is to be done is another");
    }

    #[test]
    fn what_is_awaited_is_looked_at_when_it_is_told_of_and_after_a_while_if_it_is_not() {
        let work = Work::default();
        // Given something that the member is about to tell of,
        work.look(&errand("a"));
        work.take(seconds(0));
        work.finish(&errand("a"), Outcome::Awaits, seconds(0));
        assert_eq!((work.take(seconds(1)), work.len()), (None, 0), "there is nothing to do");
        // when it is told, then it is looked at without a pause;
        work.look(&errand("a"));
        let told = work.take(seconds(1)).expect("one");
        assert!(!told.overdue);
        work.finish(&errand("a"), Outcome::Awaits, seconds(1));
        // when nothing is told, then it is looked at all the same, less and less often.
        let mut now = seconds(1);
        let mut pauses = Vec::new();
        for _ in 0..4 {
            let due = work.next_due().expect("a time");
            assert_eq!(work.take(due - Duration::from_millis(1)), None);
            pauses.push((due - now).as_secs());
            now = due;
            assert!(work.take(now).expect("one").overdue);
            work.finish(&errand("a"), Outcome::Awaits, now);
        }
        assert_eq!(pauses, [10, 20, 40, 60]);
        // What it depends on is another: the next doubt is as early as the first.
        work.renew(&errand("a"), None, Haste::Now);
        assert!(!work.take(now).expect("one").overdue);
        work.finish(&errand("a"), Outcome::Awaits, now);
        assert_eq!(work.next_due(), Some(now + FIRST_DOUBT));
        work.look(&errand("a"));
        work.take(now);
        work.finish(&errand("a"), Outcome::Done, now);
        assert_eq!(work.next_due(), None, "it is over");
    }

    #[test]
    fn what_was_given_up_in_the_middle_is_done_again() {
        let work = Work::default();
        work.look(&errand("a"));
        work.take(seconds(0));
        work.resume();
        assert!(work.take(seconds(0)).is_some());
    }

    #[test]
    fn what_somebody_waits_for_goes_first_and_nothing_waits_for_ever() {
        let work = Work::default();
        for number in 0..20 {
            work.renew(&errand(&format!("old-{number}")), None, Haste::InTurn);
        }
        work.renew(&errand("old-7"), None, Haste::Now);
        work.look(&errand("new"));
        work.renew(&errand("new"), None, Haste::InTurn);
        assert_eq!(work.len(), 21);
        let taken = || work.take(seconds(0)).map(|taken| taken.errand);
        assert_eq!([taken(), taken(), taken()], ["old-7", "new", "old-0"].map(|it| Some(errand(it))));
        let rest: BTreeSet<Errand> = std::iter::from_fn(taken).collect();
        assert_eq!(rest.len(), 18, "each once");

        let work = Work::default();
        work.renew(&errand("old"), None, Haste::InTurn);
        (0..20).for_each(|number| work.look(&errand(&format!("new-{number}"))));
        let taken = || work.take(seconds(0)).map(|taken| taken.errand);
        let first: Vec<Errand> = std::iter::from_fn(taken).take(TURN as usize).collect();
        assert!(first.contains(&errand("old")));
    }
}
