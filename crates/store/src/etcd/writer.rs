//! The one writer of a server: puts what waits for it into one transaction, each workspace in turn, and shows it when
//! etcd has it.
//!
//! # Why a transaction takes effect once or never
//!
//! A transaction compares, for each workspace it writes to, the leader's key (created when this server began to lead)
//! and the head (written by the transaction before). Both change with every other writer, so it can only take effect
//! directly after the state that it was made from, by the leader. It names itself in the heads that it writes. If no
//! answer comes it is sent again, unchanged: it takes effect if it has not yet, and otherwise finds its own name in
//! the head. If another leader has written meanwhile, the follower, which meets every head in order, says whether this
//! one was among them. Until the outcome is known, nothing else is written to these workspaces and nothing of them is
//! shown; so what a reader sees is always a state that etcd had.

mod rare;
mod send;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use ::etcd::{Keys, Op};
use bytes::Bytes;
use machinery::Revision;
use tokio::sync::{mpsc, oneshot};

use self::{
    rare::plan,
    send::{Draft, Fence, Outcome, unknown},
};
use super::{
    blob::{self, Blobs},
    layout::Head,
    shared::Shared,
};
use crate::{
    Change, Commit, Committed, Error, Event, Key, WorkspaceId, Write,
    live::{Expiry, Item, Journal, Live, Place, Stage},
    turns::{Turns, Waits},
};

/// What a workspace can be asked for.
#[derive(Clone, Debug)]
pub(super) enum Deed {
    Commit(Commit),
    CommitAt(Revision, Vec<(Revision, Write)>),
    BeginEpoch(u32),
    Compact(Revision),
    Remove,
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Done {
    Committed(Vec<Committed>),
    Nothing,
    Epoch(Revision),
}

pub(super) struct Request {
    pub workspace: WorkspaceId,
    pub deed: Deed,
    pub reply: oneshot::Sender<Result<Done, Failure>>,
    /// When it came, on the monotonic clock.
    pub arrived: Duration,
    /// It comes from another server, which took this one for the leader: it goes no further.
    pub forwarded: bool,
}

impl Waits for Request {
    fn workspace(&self) -> Option<&WorkspaceId> {
        Some(&self.workspace)
    }
}

/// Why a deed was not done.
#[derive(Debug)]
pub(super) enum Failure {
    Error(Error),
    /// Nothing happened; ask somebody else.
    NotLeader,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Error(error)
    }
}

/// Of what etcd takes by default: 128 operations and 1.5 MiB in one transaction.
const MAX_OPS: usize = 120;
const MAX_BYTES: usize = 1 << 20;

pub(super) struct Writer {
    shared: Arc<Shared>,
    requests: mpsc::Receiver<Request>,
    /// Taken off the queue, and not looked at yet.
    waiting: Turns<Request>,
    count: u64,
}

/// Writes down what a stage takes in.
struct Log<'a> {
    shared: &'a Shared,
    ops: Vec<Op>,
    keys: HashSet<Bytes>,
    removed: HashMap<WorkspaceId, Vec<(u64, String)>>,
    blobs: Blobs,
}

impl Journal for Log<'_> {
    fn record(&mut self, event: &Event, expires: Expiry, previous: Option<&Item>) -> Place {
        let key = self.shared.layout.object(&event.workspace, &event.key);
        self.keys.insert(key.clone());
        if let Some(old) = previous.and_then(|item| blob::id_of(item.place)) {
            let parts = self.shared.layout.blob(&old);
            self.ops.push(Op::Delete(Keys::with_prefix(&parts)));
        }
        let Some(object) = event.after() else {
            let name = format!("{}/{}", event.key.collection.0, event.key.item.0);
            let removed = self.removed.entry(event.workspace.clone()).or_default();
            removed.push((event.revision.as_u64(), name));
            self.ops.push(Op::Delete(Keys::one(key)));
            return Place::default();
        };
        let (stored, place) = self.blobs.place(&self.shared.env, object.body(), expires);
        self.ops.push(Op::Put { key, value: stored.encode(), lease: None });
        place
    }
}

/// What a commit adds to a transaction.
struct Size {
    ops: usize,
    bytes: usize,
}

fn writes_of(deed: &Deed) -> Vec<&Write> {
    match deed {
        Deed::Commit(commit) => commit.writes.iter().collect(),
        Deed::CommitAt(_, records) => records.iter().map(|(_, write)| write).collect(),
        Deed::BeginEpoch(_) | Deed::Compact(_) | Deed::Remove => Vec::new(),
    }
}

fn size_of(deed: &Deed) -> Size {
    let writes = writes_of(deed);
    let bytes = |write: &&Write| match &write.change {
        Change::Put { draft, .. } => draft.body().len().min(blob::WHOLE) + 256,
        Change::Remove => 256,
    };
    // Each may also have to delete a blob.
    Size { ops: 2 * writes.len(), bytes: writes.iter().map(bytes).sum() }
}

impl Writer {
    pub fn new(shared: Arc<Shared>, requests: mpsc::Receiver<Request>) -> Self {
        Self { shared, requests, waiting: Turns::default(), count: 0 }
    }

    pub async fn run(mut self) {
        loop {
            let request = match self.next_waiting() {
                Some(request) => request,
                None => match self.requests.recv().await {
                    Some(request) => request,
                    None => return,
                },
            };
            match request.deed {
                Deed::Commit(_) | Deed::CommitAt(..) => self.batch(request).await,
                Deed::BeginEpoch(_) | Deed::Compact(_) | Deed::Remove => self.alone(request).await,
            }
        }
    }

    /// Of whichever workspace's turn it is.
    fn next_waiting(&mut self) -> Option<Request> {
        self.waiting.let_in(&mut self.requests);
        self.waiting.pop()
    }

    fn name_of_next(&mut self) -> String {
        self.count += 1;
        format!("{}/{}", self.shared.name, self.count)
    }

    /// What must not change until `request` is written, if this server leads its workspace; if not, somebody else is
    /// looked for. Taken before the state is read that the request is judged by.
    fn led(&self, request: Request) -> Option<(Request, Fence)> {
        let fence = {
            let state = self.shared.state();
            state.led.get(&request.workspace).map(|created| Fence {
                workspace: request.workspace.clone(),
                created: *created,
                modified: state.applied.get(&request.workspace).copied().unwrap_or(0),
            })
        };
        if let Some(fence) = fence {
            return Some((request, fence));
        }
        super::route::again(&self.shared, request);
        None
    }

    /// Takes in `first` and what else waits, as long as it fits into one transaction.
    async fn batch(&mut self, first: Request) {
        let by = self.name_of_next();
        let shared = self.shared.clone();
        let mut stage = Stage::new(&shared.live);
        let mut log = Log {
            shared: &shared,
            ops: Vec::new(),
            keys: HashSet::new(),
            removed: HashMap::new(),
            blobs: Blobs::default(),
        };
        let mut pending: Vec<(Request, Result<Done, Error>)> = Vec::new();
        let mut workspaces: Vec<(Fence, Revision)> = Vec::new();
        let mut ends: HashMap<WorkspaceId, Vec<u64>> = HashMap::new();
        let mut bytes = 0;
        let mut next = Some(first);
        while let Some(request) = next.take() {
            let size = size_of(&request.deed);
            let known = workspaces.iter().any(|(fence, _)| fence.workspace == request.workspace);
            let ops = log.ops.len() + size.ops + 2 * (workspaces.len() + 1);
            let fits = ops <= MAX_OPS && bytes + size.bytes <= MAX_BYTES;
            let twice = writes_of(&request.deed)
                .iter()
                .any(|write| log.keys.contains(&shared.layout.object(&request.workspace, &write.key)));
            let is_commit = matches!(request.deed, Deed::Commit(_) | Deed::CommitAt(..));
            if !pending.is_empty() && (!fits || twice || !is_commit) {
                self.waiting.put_back(request);
                break;
            }
            if let Some((request, fence)) = self.led(request) {
                let (before, _) = stage.position(&request.workspace);
                let result = take_in(&request, &mut stage, &mut log);
                if result.is_ok() {
                    if !known {
                        workspaces.push((fence, before));
                    }
                    let (end, _) = stage.position(&request.workspace);
                    ends.entry(request.workspace.clone()).or_default().push(end.as_u64());
                    bytes += size.bytes;
                }
                pending.push((request, result));
            }
            next = self.next_waiting();
        }
        if stage.is_empty() {
            self.answer_refusals(pending);
            return;
        }
        let mut heads = Vec::with_capacity(workspaces.len());
        for (fence, before) in workspaces {
            let workspace = fence.workspace.clone();
            let (head, epochs) = stage.position(&workspace);
            let forgotten = self.forgotten(&workspace);
            let head = Head {
                revision: head.as_u64(),
                forgotten: forgotten.as_u64(),
                past: Vec::new(),
                epoch: 0,
                after: before.as_u64(),
                ends: ends.remove(&workspace).unwrap_or_default(),
                removed: log.removed.remove(&workspace).unwrap_or_default(),
                by: by.clone(),
            };
            heads.push((fence, Some(head.with_epochs(&epochs))));
        }
        let Log { ops, blobs, .. } = log;
        let draft = Draft { by, heads, ops, parts: blobs.first_parts(&shared.layout) };
        let written = self.meanwhile(blobs.write(&*shared.etcd, &shared.layout), |_| {}).await;
        let outcome = match written {
            Ok(()) => self.transact(draft, &mut pending, |live| live.publish(stage)).await,
            Err(error) => Outcome::Refused(error),
        };
        if !matches!(outcome, Outcome::Landed(_) | Outcome::Unknown) {
            blobs.discard(&shared).await;
        }
        self.answer(pending, &outcome);
    }

    fn forgotten(&self, workspace: &WorkspaceId) -> Revision {
        let position = self.shared.live.position(workspace);
        position.map_or_else(|| self.shared.live.origin(), |(_, forgotten, _)| forgotten)
    }

    /// Nothing was written: what was refused is answered, if this server still knows that it leads.
    fn answer_refusals(&self, pending: Vec<(Request, Result<Done, Error>)>) {
        let holds = self.shared.lease_holds(&self.shared.state());
        for (request, result) in pending {
            if holds || matches!(result, Err(Error::Invalid(_))) {
                let _ = request.reply.send(result.map_err(Failure::from));
            } else {
                super::route::again(&self.shared, request);
            }
        }
    }

    fn answer(&self, pending: Vec<(Request, Result<Done, Error>)>, outcome: &Outcome) {
        match outcome {
            Outcome::Landed(_) => {
                for (request, result) in pending {
                    let _ = request.reply.send(result.map_err(Failure::from));
                }
            }
            Outcome::NotLanded => {
                for (request, _) in pending {
                    super::route::again(&self.shared, request);
                }
            }
            Outcome::Refused(error) => {
                for (request, _) in pending {
                    let _ = request.reply.send(Err(Failure::Error(again(error))));
                }
            }
            Outcome::Unknown => {
                for (request, result) in pending {
                    let _ = request.reply.send(Err(Failure::Error(unknown(result.is_ok()))));
                }
            }
        }
    }

    /// Carries out what is rare, as many of the same kind as wait, in one transaction.
    async fn alone(&mut self, first: Request) {
        let by = self.name_of_next();
        let layout = self.shared.layout.clone();
        let mut draft = Draft { by: by.clone(), heads: Vec::new(), ops: Vec::new(), parts: Vec::new() };
        let (mut pending, mut shows) = (Vec::new(), Vec::new());
        let (mut next, mut is_first) = (Some(first), true);
        while let Some(request) = next.take() {
            let taken = draft.heads.iter().any(|(fence, _)| fence.workspace == request.workspace);
            let only = !matches!(request.deed, Deed::Compact(_));
            // What comes after the first may be a commit, which is not for here, also if the first came to nothing.
            if taken || (only && !is_first) || draft.heads.len() >= MAX_OPS / 3 {
                self.waiting.put_back(request);
                break;
            }
            is_first = false;
            if let Some((request, fence)) = self.led(request) {
                match plan(&self.shared, &request.workspace, &request.deed) {
                    Ok(Some(plan)) => {
                        if plan.head.is_none() {
                            let objects = layout.objects_of(&request.workspace);
                            draft.ops.push(Op::Delete(Keys::with_prefix(&objects)));
                            draft.ops.push(Op::Delete(Keys::one(layout.head(&request.workspace))));
                            // Nobody leads what is not there: else a key stays for each that ever was.
                            draft.ops.push(Op::Delete(Keys::one(layout.leader(&request.workspace))));
                        }
                        let head = plan.head.map(|head| Head { by: by.clone(), ..head });
                        draft.heads.push((fence, head));
                        shows.push(plan.show);
                        pending.push((request, Ok(plan.done)));
                    }
                    Ok(None) => self.answer_refusals(vec![(request, Ok(Done::Nothing))]),
                    Err(error) => self.answer_refusals(vec![(request, Err(error))]),
                }
            }
            if only {
                break;
            }
            next = self.next_waiting();
        }
        if draft.heads.is_empty() {
            return;
        }
        let show = |live: &Live| shows.into_iter().for_each(|show| show(live));
        let outcome = self.transact(draft, &mut pending, show).await;
        self.answer(pending, &outcome);
    }
}

fn take_in(request: &Request, stage: &mut Stage, log: &mut Log<'_>) -> Result<Done, Error> {
    let size = size_of(&request.deed);
    if size.ops + 2 > MAX_OPS {
        return Err(Error::Invalid("more writes at once than etcd takes"));
    }
    if size.bytes > MAX_BYTES {
        return Err(Error::Invalid("larger than etcd takes at once"));
    }
    for write in writes_of(&request.deed) {
        check_key(&write.key)?;
    }
    match &request.deed {
        Deed::Commit(commit) => stage.commit(&request.workspace, commit, log).map(Done::Committed),
        Deed::CommitAt(after, records) => {
            stage.commit_at(&request.workspace, *after, records, log).map(|()| Done::Nothing)
        }
        Deed::BeginEpoch(_) | Deed::Compact(_) | Deed::Remove => Err(Error::Invalid("not a commit")),
    }
}

/// A key must be readable back from etcd's.
fn check_key(key: &Key) -> Result<(), Error> {
    let parts = key.collection.0.split('/').count();
    let item = key.item.0.split('/').count();
    if parts == 2 && item >= 2 { Ok(()) } else { Err(Error::Invalid("a key that cannot be kept in etcd")) }
}

/// What a store's caller is told of etcd's refusal.
pub(super) fn store_error(error: ::etcd::Error) -> Error {
    match error {
        ::etcd::Error::NoSpace(why) => Error::NoSpace(why),
        ::etcd::Error::TooLarge(_) => Error::Invalid("larger than etcd takes"),
        ::etcd::Error::Uncertain(why) => Error::Unknown(why),
        ::etcd::Error::Replaced(why) => Error::Unavailable(super::shared::replaced(&why)),
        other => Error::Unavailable(other.to_string()),
    }
}

fn again(error: &Error) -> Error {
    match error {
        Error::NoSpace(why) => Error::NoSpace(why.clone()),
        Error::Invalid(why) => Error::Invalid(why),
        Error::Unavailable(why) => Error::Unavailable(why.clone()),
        other => Error::Unavailable(other.to_string()),
    }
}
