//! Forgets old history, so that what a client may go on from is a matter of time and not of how busy a peer is.
//!
//! Now and then the heads of all workspaces are noted; what has been noted for long enough is compacted. A workspace
//! in which nothing happens costs a look at its head.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use machinery::Revision;
use store::WorkspaceId;

use super::Controllers;
use crate::hub::Hub;

/// How many notes back is long enough: history is gone when it is older than one and a half times what is to be kept.
const KEPT_NOTES: usize = 2;
/// However little is to be kept.
const SHORTEST: Duration = Duration::from_millis(100);

/// So many workspaces are compacted at once.
const AT_ONCE: usize = 256;

/// The heads of workspaces that changed since the note before.
type Note = Vec<(WorkspaceId, Revision)>;

#[derive(Default)]
struct Notes {
    heads: HashMap<WorkspaceId, Revision>,
    waiting: VecDeque<Note>,
}

impl Notes {
    /// Takes a note and answers what is to be compacted now.
    fn take(&mut self, heads: HashMap<WorkspaceId, Revision>) -> Note {
        let changed = heads.iter().filter(|(id, head)| self.heads.get(*id) != Some(*head));
        self.waiting.push_back(changed.map(|(id, head)| (id.clone(), *head)).collect());
        self.heads = heads;
        match self.waiting.len() > KEPT_NOTES {
            true => self.waiting.pop_front().unwrap_or_default(),
            false => Note::new(),
        }
    }
}

/// Runs until the hub stops.
pub async fn keep(controllers: Arc<Controllers>) {
    let hub = &controllers.hub;
    let mut notes = Notes::default();
    let note_every = (hub.options.history_kept / KEPT_NOTES as u32).max(SHORTEST);
    loop {
        let heads = hub.store.workspaces().into_iter().map(|id| {
            let head = hub.store.head(&id);
            (id, head)
        });
        for some in notes.take(heads.collect()).chunks(AT_ONCE) {
            compact(hub, some).await;
        }
        hub.env.clock.sleep(note_every).await;
    }
}

/// Those that are asked for together are written together.
async fn compact(hub: &Hub, some: &[(WorkspaceId, Revision)]) {
    let asked: Vec<_> = some.iter().map(|(id, upto)| hub.store.compact(id, *upto)).collect();
    for compacted in asked {
        match compacted.await {
            // A workspace may have begun a new epoch, or be gone, since the note was taken.
            Ok(()) | Err(store::Error::Expired { .. } | store::Error::Ahead { .. }) => {}
            Err(error) => tracing::warn!(%error, "cannot forget old history"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heads(of: &[(&str, u64)]) -> HashMap<WorkspaceId, Revision> {
        let start = Revision::start_of_epoch(1).as_u64();
        of.iter()
            .filter_map(|(id, seq)| Some((WorkspaceId((*id).into()), Revision::from_u64(start + seq)?)))
            .collect()
    }

    #[test]
    fn what_was_noted_twice_before_is_forgotten_and_an_idle_workspace_only_once() {
        let mut notes = Notes::default();
        let mut taken = |of: &[(&str, u64)]| -> HashMap<_, _> { notes.take(heads(of)).into_iter().collect() };
        assert_eq!(taken(&[("busy", 1), ("idle", 7)]), heads(&[]));
        assert_eq!(taken(&[("busy", 2), ("idle", 7)]), heads(&[]));
        assert_eq!(taken(&[("busy", 3), ("idle", 7)]), heads(&[("busy", 1), ("idle", 7)]));
        assert_eq!(taken(&[("busy", 4), ("idle", 7)]), heads(&[("busy", 2)]));
        assert_eq!(taken(&[("busy", 4), ("idle", 7)]), heads(&[("busy", 3)]));
    }
}
