//! What is to be looked at, each once; what is being looked at waits until that is done. What somebody has just changed
//! goes before what is looked at because a cluster or a policy changed, of which there may be very much.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

use store::{Key, WorkspaceId};

/// An object that may go to members.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    pub workspace: WorkspaceId,
    pub key: Key,
}

impl Id {
    pub fn new(workspace: &WorkspaceId, key: &Key) -> Id {
        Id { workspace: workspace.clone(), key: key.clone() }
    }

    pub fn is_namespace(&self) -> bool {
        self.key.collection.parts() == ("", "namespaces")
    }

    /// Whether it is in no namespace, and not one itself.
    pub fn is_shared(&self) -> bool {
        self.key.item.namespace().is_empty() && !self.is_namespace()
    }

    /// The namespace that it is in; empty: none. A namespace is in itself.
    pub fn realm(&self) -> &str {
        if self.is_namespace() { self.key.item.name() } else { self.key.item.namespace() }
    }

    /// The namespace of its Assignment and of Events about it: of what is in none, as Kubernetes has it.
    pub fn namespace(&self) -> &str {
        if self.is_shared() { api::assignment::NAMESPACE_OF_SHARED } else { self.realm() }
    }

    /// Where its Assignment is.
    pub fn assignment(&self) -> Key {
        let (group, resource) = self.key.collection.parts();
        let name = api::assignment::name_of(group, resource, self.key.item.name());
        Key::new(api::GROUP, api::assignment::PLURAL, self.namespace(), &name)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Aspect {
    /// Where it is to be.
    Place,
    /// What its clusters say of it.
    Status,
    /// Of an autoscaler: how many replicas its target is to have.
    Scale,
}

/// When it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Haste {
    /// Somebody has just changed it, and may be waiting.
    Now,
    /// After all that were there before.
    InTurn,
}

pub type Task = (Id, Aspect);

/// Of so many, one is of those that wait for their turn, however many others there are.
const TURN: u32 = 8;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Of what failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// For [`Queue::rested`]: another one may have begun by then.
    pub number: u64,
    /// How often it has failed in a row.
    pub failures: u32,
    pub pause: Duration,
}

#[derive(Debug, Default)]
pub struct Queue {
    now: VecDeque<Task>,
    in_turn: VecDeque<Task>,
    /// Those that wait, and where. One that was hurried is in both places, and counts where it is said to be.
    known: HashMap<Task, Haste>,
    busy: HashSet<Task>,
    /// Asked for while it was being looked at.
    again: HashMap<Task, Haste>,
    failures: HashMap<Task, u32>,
    /// Those of the busy that failed and are let be for a while, each with the number of that rest.
    resting: HashMap<Task, u64>,
    rests: u64,
    taken: u32,
}

impl Queue {
    pub fn add(&mut self, id: Id, aspect: Aspect, haste: Haste) {
        let task = (id, aspect);
        // Whoever has just changed it may have mended what was wrong with it.
        let is_mended = haste == Haste::Now && aspect == Aspect::Place;
        if is_mended && self.resting.remove(&task).is_some() {
            self.again.remove(&task);
            self.busy.remove(&task);
        }
        self.put(task, haste);
    }

    /// As [`Queue::add`], because of what clusters say of it, which mends nothing: what rests is let be.
    pub fn add_heard(&mut self, id: Id, aspect: Aspect, haste: Haste) {
        self.put((id, aspect), haste);
    }

    fn put(&mut self, task: Task, haste: Haste) {
        if self.busy.contains(&task) {
            let again = self.again.entry(task).or_insert(haste);
            *again = if haste == Haste::Now { haste } else { *again };
            return;
        }
        match (self.known.get(&task), haste) {
            (None, _) | (Some(Haste::InTurn), Haste::Now) => {
                self.known.insert(task.clone(), haste);
                self.lane(haste).push_back(task);
            }
            _ => {}
        }
    }

    fn lane(&mut self, haste: Haste) -> &mut VecDeque<Task> {
        match haste {
            Haste::Now => &mut self.now,
            Haste::InTurn => &mut self.in_turn,
        }
    }

    /// Whether it is being looked at.
    pub fn is_busy(&self, id: &Id, aspect: Aspect) -> bool {
        self.busy.contains(&(id.clone(), aspect))
    }

    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// The next; it is busy until [`Queue::done`] or [`Queue::failed`].
    pub fn take(&mut self) -> Option<Task> {
        self.taken = self.taken.wrapping_add(1);
        let lanes = match self.taken % TURN {
            0 => [Haste::InTurn, Haste::Now],
            _ => [Haste::Now, Haste::InTurn],
        };
        let task = lanes.into_iter().find_map(|haste| self.next_of(haste))?;
        self.known.remove(&task);
        self.busy.insert(task.clone());
        Some(task)
    }

    fn next_of(&mut self, haste: Haste) -> Option<Task> {
        loop {
            let task = self.lane(haste).pop_front()?;
            if self.known.get(&task) == Some(&haste) {
                return Some(task);
            }
        }
    }

    /// Whether it had failed before.
    pub fn done(&mut self, task: Task) -> bool {
        let had_failed = self.failures.remove(&task).is_some();
        self.resume(task);
        had_failed
    }

    /// It is let be for a while.
    pub fn failed(&mut self, task: &Task) -> Rest {
        self.rests += 1;
        self.resting.insert(task.clone(), self.rests);
        let failures = self.failures.entry(task.clone()).or_default();
        *failures = failures.saturating_add(1);
        let pause = FIRST_PAUSE.saturating_mul(1 << (*failures - 1).min(16)).min(LONGEST_PAUSE);
        Rest { number: self.rests, failures: *failures, pause }
    }

    /// What failed has been let be for long enough, unless somebody has changed it since: then it was looked at at once.
    pub fn rested(&mut self, task: Task, number: u64) {
        if self.resting.get(&task) == Some(&number) {
            self.resting.remove(&task);
            self.retry(task);
        }
    }

    /// It is looked at again.
    pub fn retry(&mut self, task: Task) {
        self.again.insert(task.clone(), Haste::Now);
        self.resume(task);
    }

    fn resume(&mut self, task: Task) {
        self.busy.remove(&task);
        if let Some(haste) = self.again.remove(&task) {
            self.add(task.0, task.1, haste);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_looked_at_once_and_again_if_asked_meanwhile() {
        let id =
            |name: &str| Id::new(&WorkspaceId("w".into()), &Key::new("apps", "deployments", "shop", name));
        let mut queue = Queue::default();
        queue.add(id("a"), Aspect::Place, Haste::Now);
        queue.add(id("a"), Aspect::Place, Haste::Now);
        queue.add(id("a"), Aspect::Status, Haste::Now);
        let first = queue.take().unwrap();
        assert_eq!((first.1, queue.len()), (Aspect::Place, 1));
        queue.add(id("a"), Aspect::Place, Haste::Now);
        assert_eq!(queue.len(), 1, "it is being looked at");
        queue.done(first.clone());
        assert_eq!(queue.len(), 2);
        assert_eq!(queue.take().unwrap().1, Aspect::Status);
        let task = queue.take().unwrap();
        assert_eq!(queue.failed(&task), Rest { number: 1, failures: 1, pause: FIRST_PAUSE });
        assert_eq!(queue.failed(&task), Rest { number: 2, failures: 2, pause: FIRST_PAUSE * 2 });
        queue.rested(task.clone(), 2);
        assert_eq!(queue.take(), Some(task));
    }

    #[test]
    fn what_failed_rests_until_somebody_changes_it() {
        let id = Id::new(&WorkspaceId("w".into()), &Key::new("apps", "deployments", "shop", "web"));
        let mut queue = Queue::default();
        queue.add(id.clone(), Aspect::Place, Haste::Now);
        let task = queue.take().unwrap();
        let first = queue.failed(&task).number;
        queue.add(id.clone(), Aspect::Place, Haste::InTurn);
        queue.add_heard(id.clone(), Aspect::Place, Haste::Now);
        assert_eq!(queue.take(), None, "what others did, and clusters say, mends nothing of it");
        queue.add(id.clone(), Aspect::Place, Haste::Now);
        assert_eq!(queue.take(), Some(task.clone()));
        queue.rested(task.clone(), first);
        assert_eq!(queue.take(), None, "it is being looked at");
        let second = queue.failed(&task).number;
        queue.rested(task.clone(), first);
        assert_eq!(queue.take(), None, "each rest has its own end");
        queue.rested(task.clone(), second);
        assert_eq!(queue.take(), Some(task.clone()));
        assert!(queue.done(task.clone()), "it had failed");
        assert_eq!(queue.take(), None);
    }

    #[test]
    fn what_clusters_say_does_not_hurry_what_cannot_be_written_down() {
        let id = Id::new(&WorkspaceId("w".into()), &Key::new("apps", "deployments", "shop", "web"));
        let mut queue = Queue::default();
        queue.add(id.clone(), Aspect::Status, Haste::Now);
        let task = queue.take().unwrap();
        let rest = queue.failed(&task);
        queue.add(id, Aspect::Status, Haste::Now);
        assert_eq!(queue.take(), None);
        queue.rested(task.clone(), rest.number);
        assert_eq!(queue.take(), Some(task));
    }

    #[test]
    fn what_was_just_changed_goes_first_and_nobody_waits_for_ever() {
        let id = |name: &str| Id::new(&WorkspaceId("w".into()), &Key::new("", "configmaps", "shop", name));
        let mut queue = Queue::default();
        for number in 0..100 {
            queue.add(id(&format!("old-{number}")), Aspect::Place, Haste::InTurn);
        }
        queue.add(id("old-70"), Aspect::Place, Haste::Now);
        queue.add(id("new"), Aspect::Place, Haste::Now);
        queue.add(id("new"), Aspect::Place, Haste::InTurn);
        assert_eq!(queue.len(), 101);
        let mut taken = || queue.take().map(|task| task.0.key.item.name().to_owned());
        assert_eq!([taken(), taken(), taken()], ["old-70", "new", "old-0"].map(|it| Some(it.to_owned())));
        let rest: HashSet<String> = std::iter::from_fn(taken).collect();
        assert_eq!(rest.len(), 98, "each once");

        let mut queue = Queue::default();
        queue.add(id("old"), Aspect::Place, Haste::InTurn);
        for number in 0..100 {
            queue.add(id(&format!("new-{number}")), Aspect::Place, Haste::Now);
        }
        let first: Vec<Task> = std::iter::from_fn(|| queue.take()).take(TURN as usize).collect();
        assert!(first.contains(&(id("old"), Aspect::Place)));
    }

    #[test]
    fn a_namespace_has_its_assignment_inside() {
        let id = Id::new(&WorkspaceId("w".into()), &Key::new("", "namespaces", "", "shop"));
        let key = id.assignment();
        assert_eq!((key.item.namespace(), key.item.name()), ("shop", "namespaces.shop"));
        let id = Id::new(&WorkspaceId("w".into()), &Key::new("storage.k8s.io", "storageclasses", "", "fast"));
        let key = id.assignment();
        assert_eq!(
            (key.item.namespace(), key.item.name()),
            ("default", "storageclasses.storage.k8s.io.fast")
        );
    }
}
