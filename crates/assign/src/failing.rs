//! What fails again and again is told: on the object, by an Event and the condition `Synced`, and by a metric. It is tried
//! for ever, but not in silence.

use std::collections::HashMap;

use machinery::object::ObjectError;
use store::Commit;

use crate::{
    events::{self, News},
    leave::takes_events,
    place::reference,
    queue::{Aspect, Id, Task},
    world::World,
};

/// The first failures pass unsaid: with the pauses between them they are over within two seconds.
pub const TOLD_AFTER: u32 = 5;
/// What is said of it, as a reason.
const REASON: &str = "Failing";

/// What has failed so often that it is told, until it does not any more.
#[derive(Debug, Default)]
pub struct Failing(HashMap<Task, String>);

impl Failing {
    /// Whether that is new. What is said of it stays as it was said first: nothing is written because it is worded otherwise.
    pub fn note(&mut self, task: &Task, message: &str) -> bool {
        let is_new = !self.0.contains_key(task);
        if is_new {
            self.0.insert(task.clone(), message.to_owned());
        }
        is_new
    }

    /// Whether it had been told.
    pub fn is_over(&mut self, task: &Task) -> bool {
        self.0.remove(task).is_some()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// What is to be said on an object: reason and message.
    pub fn of(&self, id: &Id) -> Option<(String, String)> {
        let told = |aspect: Aspect| self.0.get(&(id.clone(), aspect));
        let first = [Aspect::Place, Aspect::Status, Aspect::Scale].into_iter().find_map(told)?;
        Some((REASON.to_owned(), first.clone()))
    }
}

/// In words for the user of the object.
pub fn news(aspect: Aspect, why: &str) -> News {
    let what = match aspect {
        Aspect::Place => "it cannot be placed",
        Aspect::Status => "what its clusters say of it cannot be written down",
        Aspect::Scale => "its target cannot be scaled",
    };
    let message = format!("{what}: {why}. It is tried again every 30 seconds; the log of the hub says more");
    ("Warning", REASON, message)
}

/// The Event; `None`: it was told lately, or there is nothing left to tell it of.
pub fn event(world: &World, id: &Id, news: &News) -> Result<Option<Commit>, ObjectError> {
    let Some(space) = world.hub.space_by_id(&id.workspace) else { return Ok(None) };
    let about = match (space.get(&id.key), space.get(&id.assignment())) {
        (Some(object), _) => reference(id, &object),
        (None, Some(stored)) => Some(world.hub.assignments.read(&stored)?.spec.object.clone()),
        (None, None) => None,
    };
    let Some(about) = about.filter(|_| takes_events(&space, id)) else { return Ok(None) };
    // Events about what is in no namespace are in this one.
    let namespace = if about.is_in_namespace() { id.namespace() } else { "default" };
    let write = events::stuck(&world.hub, &id.workspace, namespace, &about, "", news)?;
    Ok(write.map(|write| Commit { guards: Vec::new(), writes: vec![write] }))
}

#[cfg(test)]
mod tests {
    use store::{Key, WorkspaceId};

    use super::*;

    #[test]
    fn what_fails_is_said_until_it_is_over() {
        let id = Id::new(&WorkspaceId("w".into()), &Key::new("apps", "deployments", "shop", "web"));
        let (place, status) = ((id.clone(), Aspect::Place), (id.clone(), Aspect::Status));
        let mut failing = Failing::default();
        assert_eq!(failing.of(&id), None);
        assert!(failing.note(&status, "second"));
        assert!(failing.note(&place, "first"));
        assert!(!failing.note(&place, "the same in other words"));
        assert_eq!((failing.of(&id).unwrap().1, failing.len()), ("first".to_owned(), 2));
        assert!(failing.is_over(&place) && !failing.is_over(&place));
        assert_eq!(failing.of(&id).unwrap().1, "second");
    }
}
