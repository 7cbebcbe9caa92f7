//! Watches: a cursor into the history of a collection.

use std::sync::{Arc, atomic::Ordering};

use machinery::Revision;

use super::{Shared, Topic, Workspace};
use crate::{Error, Event, Span};

/// What a watch has for its reader now.
#[derive(Debug)]
pub struct Batch {
    pub events: Vec<Arc<Event>>,
    /// Everything of the span up to here has been delivered; the end of a commit if nothing is left to take. A
    /// watch after it continues this one.
    pub complete_to: Revision,
}

/// The records of a span after a revision, in order, each once. Holds a position and no queue: a reader that stops
/// taking costs nothing, and finds [`Error::Expired`] when the history has moved past it.
pub struct Watch {
    shared: Arc<Shared>,
    workspace: Arc<Workspace>,
    topic: Arc<Topic>,
    span: Span,
    /// Everything of the span up to here has been delivered.
    position: Revision,
}

/// What lies ahead of a watch.
enum Ahead {
    /// Events of the span, or the end of the watch.
    Something,
    Nothing,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.topic.watches.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Watch {
    pub(super) fn new(
        shared: Arc<Shared>,
        workspace: Arc<Workspace>,
        topic: Arc<Topic>,
        span: Span,
        after: Revision,
    ) -> Result<Self, Error> {
        let position = workspace.state.read().resume(after)?;
        topic.watches.fetch_add(1, Ordering::AcqRel);
        let watch = Self { shared, workspace, topic, span, position };
        let dropped = watch.topic.ring.read().dropped;
        if position < dropped {
            let archive = watch.shared.archive.as_ref().ok_or(Error::Expired { oldest: dropped })?;
            match archive.floor(&watch.workspace.id) {
                Some(floor) if position < floor => return Err(Error::Expired { oldest: floor }),
                _ => {}
            }
        }
        Ok(watch)
    }

    /// Up to `max` events, possibly none; does not wait for more. Reads from disk when it has fallen out of memory.
    pub fn take(&mut self, max: usize) -> Result<Batch, Error> {
        let mut events = Vec::new();
        let mut left = max.max(1);
        loop {
            let head = self.head()?;
            let Err(dropped) = self.take_from_memory(head, left, &mut events) else { break };
            match self.take_from_archive(dropped, left, &mut events) {
                Ok(read) if read < left => left -= read,
                Ok(_) => break,
                // What was taken so far is good; the next call says what is wrong.
                Err(_) if !events.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(Batch { events, complete_to: self.position })
    }

    /// Moves on to `head`, or to the last event there was room for. `Err`: events up to there have left memory.
    fn take_from_memory(
        &mut self,
        head: Revision,
        max: usize,
        events: &mut Vec<Arc<Event>>,
    ) -> Result<(), Revision> {
        let ring = self.topic.ring.read();
        if self.position < ring.dropped {
            return Err(ring.dropped);
        }
        let mut room = max;
        for event in ring.events.range(ring.after(self.position)..) {
            if event.revision > head {
                break;
            }
            if !self.span.contains(&event.key.item) {
                continue;
            }
            if room == 0 {
                return Ok(());
            }
            room -= 1;
            self.position = event.revision;
            events.push(event.clone());
        }
        self.position = self.position.max(head);
        Ok(())
    }

    /// Moves on to `upto`, or as far as `max` events of the collection reach; says how many were read.
    fn take_from_archive(
        &mut self,
        upto: Revision,
        max: usize,
        events: &mut Vec<Arc<Event>>,
    ) -> Result<usize, Error> {
        let forgotten = self.workspace.state.read().forgotten;
        if self.position < forgotten {
            return Err(Error::Expired { oldest: forgotten });
        }
        let archive = self.shared.archive.as_ref().ok_or(Error::Expired { oldest: upto })?;
        let read = archive.read(&self.workspace.id, &self.topic.collection, self.position, upto, max)?;
        let count = read.len();
        self.position = match read.last() {
            Some(last) if count == max => last.revision,
            _ => upto,
        };
        events.extend(read.into_iter().filter(|event| self.span.contains(&event.key.item)));
        Ok(count)
    }

    /// Resolves when [`Watch::take`] has something new: events, or the reason why there will be none.
    pub async fn changed(&mut self) {
        let topic = self.topic.clone();
        loop {
            // Registered before looking, so that what is published in between wakes it.
            let woken = topic.changed.notified();
            if let Ahead::Something = self.look_ahead() {
                return;
            }
            woken.await;
        }
    }

    /// Moves past events of other namespaces, so that nobody looks at them twice.
    fn look_ahead(&mut self) -> Ahead {
        let Ok(head) = self.head() else { return Ahead::Something };
        let ring = self.topic.ring.read();
        if self.position < ring.dropped {
            return Ahead::Something;
        }
        for event in ring.events.range(ring.after(self.position)..) {
            if event.revision > head {
                break;
            }
            if self.span.contains(&event.key.item) {
                return Ahead::Something;
            }
            self.position = event.revision;
        }
        Ahead::Nothing
    }

    /// The newest revision that readers may see.
    fn head(&self) -> Result<Revision, Error> {
        let head = self.workspace.state.read().head;
        if self.workspace.removed.load(Ordering::Acquire) {
            return Err(Error::Expired { oldest: head });
        }
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Collection, WorkspaceId, memory::MemoryStore};

    #[test]
    fn it_is_known_who_watches() {
        let (store, id) = (MemoryStore::new(), WorkspaceId("default".into()));
        let [pods, others] = ["pods", "secrets"].map(|plural| Collection::new("", plural));
        let watch = || {
            crate::Store::watch(
                &store,
                &id,
                Span { collection: pods.clone(), namespace: None },
                Revision::BASE,
            )
        };
        assert!(!store.is_watched(&id, &pods));
        let (one, two) = (watch(), watch());
        assert!(one.is_ok() && store.is_watched(&id, &pods) && !store.is_watched(&id, &others));
        drop(one);
        assert!(store.is_watched(&id, &pods));
        drop(two);
        assert!(!store.is_watched(&id, &pods));
    }
}
