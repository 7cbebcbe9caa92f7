//! Compactions and removals of workspaces: records that are about a workspace and not about an object.

use std::collections::HashSet;

use machinery::Revision;
use tokio::sync::mpsc;

use super::{
    frame::{Kind, RECORD_HEADER, Record},
    writer::{Reply, Request, Writer, again, check_text, refuse},
};
use crate::{
    Error, WorkspaceId,
    live::Live,
    turns::{Turns, Waits},
};

/// A compaction or a removal that changes something.
struct Forgetting {
    workspace: WorkspaceId,
    /// `None`: all of it.
    upto: Option<Revision>,
    reply: Reply<()>,
}

impl Forgetting {
    /// `None`: there is nothing to write, and it is answered.
    fn of(request: Request, live: &Live) -> Option<Forgetting> {
        let (workspace, wanted, reply) = match request {
            Request::Compact { workspace, upto, reply } => {
                let wanted = live.compaction(&workspace, upto).map(|upto| upto.map(Some));
                (workspace, wanted, reply)
            }
            Request::RemoveWorkspace { workspace, reply } => {
                let wanted = Ok(live.knows(&workspace).then_some(None));
                (workspace, wanted, reply)
            }
            other => {
                refuse(other, &Error::Invalid("not a compaction or a removal"));
                return None;
            }
        };
        let wanted = wanted.and_then(|upto| check_text(&workspace.0).map(|()| upto));
        match wanted {
            Ok(Some(upto)) => Some(Forgetting { workspace, upto, reply }),
            Ok(None) => {
                let _ = reply.send(Ok(()));
                None
            }
            Err(error) => {
                let _ = reply.send(Err(error));
                None
            }
        }
    }

    fn fail(self, error: &Error) {
        let error = match error {
            Error::Unknown(reason) => Error::Unknown(reason.clone()),
            other => again(other),
        };
        let _ = self.reply.send(Err(error));
    }
}

impl Writer {
    /// Compactions and removals come for many workspaces at once: those that wait are one write.
    pub(super) async fn forget(
        &mut self,
        first: Request,
        turns: &mut Turns<Request>,
        requests: &mut mpsc::Receiver<Request>,
    ) {
        let mut several = vec![first];
        let mut workspaces = HashSet::new();
        workspaces.extend(several.iter().filter_map(|request| request.workspace().cloned()));
        turns.let_in(requests);
        while several.len() < self.options.batch_commits {
            let Some(next) = turns.pop() else { break };
            let is_like = matches!(next, Request::Compact { .. } | Request::RemoveWorkspace { .. });
            // What is asked of a workspace depends on what was done to it before.
            if !is_like || !next.workspace().is_some_and(|id| workspaces.insert(id.clone())) {
                turns.put_back(next);
                break;
            }
            several.push(next);
        }
        if let Err(error) = self.check_running() {
            return several.into_iter().for_each(|request| refuse(request, &error));
        }
        let wanted: Vec<Forgetting> =
            several.into_iter().filter_map(|request| Forgetting::of(request, &self.live)).collect();
        if let Err(error) = self.write_forgotten(&wanted).await {
            return wanted.into_iter().for_each(|it| it.fail(&error));
        }
        let mut replies = Vec::with_capacity(wanted.len());
        for Forgetting { workspace, upto, reply } in wanted {
            match upto {
                Some(upto) => self.live.compact(&workspace, upto),
                None => {
                    self.history.remove_workspace(&workspace, self.tail.sequence);
                    self.live.remove_workspace(&workspace);
                }
            }
            replies.push(reply);
        }
        self.live.sweep();
        for reply in replies {
            let _ = reply.send(Ok(()));
        }
        self.look_after_log();
    }

    async fn write_forgotten(&mut self, wanted: &[Forgetting]) -> Result<(), Error> {
        if wanted.is_empty() {
            return Ok(());
        }
        self.make_room(wanted.iter().map(|it| RECORD_HEADER + it.workspace.0.len()).sum()).await?;
        self.frame.begin(self.tail.sequence + 1, self.tail.segment, self.tail.offset);
        for it in wanted {
            let (kind, revision) = match it.upto {
                Some(upto) => (Kind::Compact, upto),
                None => (Kind::RemoveWorkspace, Revision::ZERO),
            };
            self.frame.add(Record::about(&it.workspace, kind, revision));
        }
        self.write_frame().map_err(Error::Unknown)
    }
}
