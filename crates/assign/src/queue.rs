//! What is to be looked at, each once; what is being looked at waits until that is done.

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

    /// The namespace that it is in; a namespace is in itself.
    pub fn namespace(&self) -> &str {
        if self.is_namespace() { self.key.item.name() } else { self.key.item.namespace() }
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
}

pub type Task = (Id, Aspect);

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub struct Queue {
    waiting: VecDeque<Task>,
    known: HashSet<Task>,
    busy: HashSet<Task>,
    /// Asked for while it was being looked at.
    again: HashSet<Task>,
    failures: HashMap<Task, u32>,
}

impl Queue {
    pub fn add(&mut self, id: Id, aspect: Aspect) {
        let task = (id, aspect);
        if self.busy.contains(&task) {
            self.again.insert(task);
        } else if self.known.insert(task.clone()) {
            self.waiting.push_back(task);
        }
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The next; it is busy until [`Queue::done`] or [`Queue::failed`].
    pub fn take(&mut self) -> Option<Task> {
        let task = self.waiting.pop_front()?;
        self.known.remove(&task);
        self.busy.insert(task.clone());
        Some(task)
    }

    pub fn done(&mut self, task: Task) {
        self.failures.remove(&task);
        self.resume(task);
    }

    /// How long to wait before [`Queue::retry`].
    pub fn failed(&mut self, task: &Task) -> Duration {
        let failures = self.failures.entry(task.clone()).or_default();
        *failures = failures.saturating_add(1);
        FIRST_PAUSE.saturating_mul(1 << (*failures - 1).min(16)).min(LONGEST_PAUSE)
    }

    /// What failed is looked at again.
    pub fn retry(&mut self, task: Task) {
        self.again.insert(task.clone());
        self.resume(task);
    }

    fn resume(&mut self, task: Task) {
        self.busy.remove(&task);
        if self.again.remove(&task) {
            self.add(task.0, task.1);
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
        queue.add(id("a"), Aspect::Place);
        queue.add(id("a"), Aspect::Place);
        queue.add(id("a"), Aspect::Status);
        let first = queue.take().unwrap();
        assert_eq!((first.1, queue.len()), (Aspect::Place, 1));
        queue.add(id("a"), Aspect::Place);
        assert_eq!(queue.len(), 1, "it is being looked at");
        queue.done(first.clone());
        assert_eq!(queue.len(), 2);
        assert_eq!(queue.take().unwrap().1, Aspect::Status);
        let task = queue.take().unwrap();
        assert_eq!(queue.failed(&task), FIRST_PAUSE);
        assert_eq!(queue.failed(&task), FIRST_PAUSE * 2);
        queue.retry(task.clone());
        assert_eq!(queue.take(), Some(task));
    }

    #[test]
    fn a_namespace_has_its_assignment_inside() {
        let id = Id::new(&WorkspaceId("w".into()), &Key::new("", "namespaces", "", "shop"));
        let key = id.assignment();
        assert_eq!((key.item.namespace(), key.item.name()), ("shop", "namespaces.shop"));
    }
}
