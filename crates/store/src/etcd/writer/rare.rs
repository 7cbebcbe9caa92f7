//! What is asked for rarely: epochs that begin, history that is forgotten, workspaces that go.

use machinery::Revision;

use super::{
    super::{layout::Head, shared::Shared},
    Deed, Done,
};
use crate::{
    Error, WorkspaceId,
    live::{Epochs, Live},
};

/// What a rare deed writes, and how it is shown.
pub(super) struct Plan {
    /// `None`: the workspace goes.
    pub head: Option<Head>,
    pub done: Done,
    pub show: Box<dyn FnOnce(&Live) + Send>,
}

/// What a deed writes that is no commit; `None`: nothing.
pub(super) fn plan(shared: &Shared, workspace: &WorkspaceId, deed: &Deed) -> Result<Option<Plan>, Error> {
    let live = &shared.live;
    let id = workspace.clone();
    let origin = live.origin();
    let (head, forgotten, epochs) =
        live.position(workspace).unwrap_or_else(|| (origin, origin, Epochs::starting_at(origin)));
    let bare = |head: Revision, forgotten: Revision, epochs: &Epochs| {
        let head = head.as_u64();
        let bare = Head {
            revision: head,
            forgotten: forgotten.as_u64(),
            past: Vec::new(),
            epoch: 0,
            after: head,
            ends: Vec::new(),
            removed: Vec::new(),
            by: String::new(),
        };
        bare.with_epochs(epochs)
    };
    match deed {
        Deed::BeginEpoch(epoch) => {
            let start = live.epoch_start(workspace, *epoch)?;
            let epochs = epochs.followed_by(head, start);
            Ok(Some(Plan {
                head: Some(bare(start, forgotten, &epochs)),
                done: Done::Epoch(start),
                show: Box::new(move |live| live.begin_epoch(&id, start)),
            }))
        }
        Deed::Compact(upto) => {
            let Some(upto) = live.compaction(workspace, *upto)? else { return Ok(None) };
            Ok(Some(Plan {
                head: Some(bare(head, upto, &epochs)),
                done: Done::Nothing,
                show: Box::new(move |live| {
                    live.compact(&id, upto);
                    live.sweep();
                }),
            }))
        }
        Deed::Remove if !live.knows(workspace) => Ok(None),
        Deed::Remove => Ok(Some(Plan {
            head: None,
            done: Done::Nothing,
            show: Box::new(move |live| {
                live.remove_workspace(&id);
                live.sweep();
            }),
        })),
        Deed::Commit(_) | Deed::CommitAt(..) => Err(Error::Invalid("a commit is not planned")),
    }
}
