//! The one writer of a server: puts what waits for it into one transaction, and shows it when etcd has it.
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

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use ::etcd::{Compare, Keys, Op, Revision as EtcdRevision, Txn, TxnAnswer};
use bytes::Bytes;
use machinery::Revision;
use tokio::sync::{mpsc, oneshot};

use super::{
    blob::{self, Blobs},
    layout::Head,
    shared::{Flight, Shared, Verdict},
};
use crate::{
    Change, Commit, Committed, Error, Event, Key, WorkspaceId, Write,
    live::{Epochs, Expiry, Item, Journal, Live, Place, Stage},
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
/// How long to wait before a member is asked again that did not answer.
const PAUSE: Duration = Duration::from_millis(200);

pub(super) struct Writer {
    shared: Arc<Shared>,
    requests: mpsc::Receiver<Request>,
    /// Taken off the queue, and not looked at yet.
    waiting: VecDeque<Request>,
    count: u64,
}

/// What became of a transaction.
enum Outcome {
    Landed(EtcdRevision),
    /// It has had no effect and will have none: somebody else leads one of its workspaces.
    NotLanded,
    Refused(Error),
    Unknown,
}

/// What a transaction compares of a workspace: that it is still led as it was, and that nothing was written since.
#[derive(Clone)]
struct Fence {
    workspace: WorkspaceId,
    created: EtcdRevision,
    modified: EtcdRevision,
}

/// One transaction while it is put together.
struct Draft {
    by: String,
    /// Without a head, the workspace goes.
    heads: Vec<(Fence, Option<Head>)>,
    ops: Vec<Op>,
    /// Where large objects are that it refers to: they must be there.
    parts: Vec<Bytes>,
}

/// By what a transaction is known when it is met again.
struct Named {
    by: String,
    /// It removes a workspace, and leaves no head.
    removes: bool,
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
        Self { shared, requests, waiting: VecDeque::new(), count: 0 }
    }

    pub async fn run(mut self) {
        loop {
            let request = match self.waiting.pop_front() {
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
                self.waiting.push_front(request);
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
            next = self.waiting.pop_front().or_else(|| self.requests.try_recv().ok());
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
        let outcome = match blobs.write(&*shared.etcd, &shared.layout).await {
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
                self.waiting.push_front(request);
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
            next = self.waiting.pop_front().or_else(|| self.requests.try_recv().ok());
        }
        if draft.heads.is_empty() {
            return;
        }
        let show = |live: &Live| shows.into_iter().for_each(|show| show(live));
        let outcome = self.transact(draft, &mut pending, show).await;
        self.answer(pending, &outcome);
    }

    /// Sends a transaction until its outcome is known, and shows it if it took effect. Whoever waits is told when it
    /// takes too long.
    async fn transact(
        &mut self,
        draft: Draft,
        pending: &mut Vec<(Request, Result<Done, Error>)>,
        show: impl FnOnce(&Live) + Send,
    ) -> Outcome {
        let shared = self.shared.clone();
        let removes = draft.heads.iter().all(|(_, head)| head.is_none());
        let workspaces: Vec<WorkspaceId> =
            draft.heads.iter().map(|(fence, _)| fence.workspace.clone()).collect();
        let Some(txn) = self.begin(&draft, removes) else { return Outcome::NotLanded };
        let flight = Named { by: draft.by, removes };
        let outcome = self.settle(&txn, &flight, pending).await;
        let _order = shared.order.lock();
        if let Outcome::Landed(_) = outcome {
            show(&shared.live);
        }
        shared.change(|state| {
            state.flight = None;
            state.landed += 1;
            match outcome {
                Outcome::Landed(revision) if removes => {
                    for workspace in &workspaces {
                        state.forget(workspace, revision);
                    }
                }
                Outcome::Landed(revision) => {
                    for workspace in &workspaces {
                        state.applied.insert(workspace.clone(), revision);
                    }
                }
                Outcome::Refused(_) => {}
                Outcome::NotLanded | Outcome::Unknown => {
                    // Which of them is led by somebody else will be seen when one is claimed again.
                    for workspace in &workspaces {
                        state.led.remove(workspace);
                    }
                }
            }
        });
        outcome
    }

    /// The transaction, if all is led as it was; from now on its workspaces wait for its outcome.
    fn begin(&self, draft: &Draft, removes: bool) -> Option<Txn> {
        let layout = &self.shared.layout;
        let mut txn = Txn { then: draft.ops.clone(), ..Txn::default() };
        for (Fence { workspace, created, modified }, head) in &draft.heads {
            txn.when.push(Compare::Created(layout.leader(workspace), *created));
            txn.when.push(Compare::Modified(layout.head(workspace), *modified));
            txn.otherwise.push(Op::Range(Keys::one(layout.leader(workspace))));
            txn.otherwise.push(Op::Range(Keys::one(layout.head(workspace))));
            if let Some(head) = head {
                txn.then.push(Op::Put { key: layout.head(workspace), value: head.encode(), lease: None });
            }
        }
        txn.when.extend(draft.parts.iter().map(|part| Compare::Exists(part.clone())));
        self.shared.change(|state| {
            let holds = |fence: &Fence| {
                let modified = state.applied.get(&fence.workspace).copied().unwrap_or(0);
                state.led.get(&fence.workspace) == Some(&fence.created) && modified == fence.modified
            };
            if !draft.heads.iter().all(|(fence, _)| holds(fence)) {
                return None;
            }
            state.flight = Some(Flight {
                by: draft.by.clone(),
                removes,
                workspaces: draft.heads.iter().map(|(fence, _)| fence.workspace.clone()).collect(),
                verdict: None,
            });
            Some(txn)
        })
    }

    async fn settle(
        &mut self,
        txn: &Txn,
        flight: &Named,
        pending: &mut Vec<(Request, Result<Done, Error>)>,
    ) -> Outcome {
        let shared = self.shared.clone();
        let began = shared.now();
        let mut uncertain = false;
        loop {
            let verdict = shared.until(|state| state.flight.as_ref().and_then(|flight| flight.verdict));
            let answer = tokio::select! {
                biased;
                answer = shared.etcd.txn(txn.clone()) => answer,
                verdict = verdict => return verdict.into(),
            };
            match answer {
                Ok(answer) if answer.held => return Outcome::Landed(answer.revision),
                Ok(answer) => match read_refusal(&answer, txn, flight, uncertain) {
                    Some(outcome) => return outcome,
                    // Only the follower can tell.
                    None => return self.await_verdict(pending, began).await,
                },
                Err(::etcd::Error::Uncertain(_)) => uncertain = true,
                Err(::etcd::Error::Unreachable(_)) => {}
                Err(error) => {
                    if let Some(outcome) = self.look_after_refusal(txn, flight, uncertain, error).await {
                        return outcome;
                    }
                    uncertain = true;
                }
            }
            let late = shared.now().saturating_sub(began) > shared.options.patience;
            if late && !uncertain {
                return Outcome::Refused(Error::Unavailable("etcd does not answer".to_owned()));
            }
            if late {
                give_up(pending);
            }
            if late && shared.is_closing() {
                return Outcome::Unknown;
            }
            self.refuse_late();
            shared.env.clock.sleep(PAUSE).await;
            tracing::debug!(by = flight.by, uncertain, "sending a transaction again");
        }
    }

    /// What became of a transaction that etcd says it refused. A full etcd may have carried it out before it noticed; an
    /// attempt without an answer may have had its effect, or have it yet. `None`: that is not known now.
    async fn look_after_refusal(
        &self,
        txn: &Txn,
        flight: &Named,
        uncertain: bool,
        error: ::etcd::Error,
    ) -> Option<Outcome> {
        if !uncertain && !matches!(error, ::etcd::Error::NoSpace(_)) {
            return Some(Outcome::Refused(store_error(error)));
        }
        let reads = Txn { then: txn.otherwise.clone(), ..Txn::default() };
        let answer = self.shared.etcd.txn(reads).await.ok()?;
        let seen = read_refusal(&answer, txn, flight, uncertain);
        match seen {
            // Answered, and nothing of it is there.
            Some(Outcome::NotLanded) if !uncertain => Some(Outcome::Refused(store_error(error))),
            // An attempt may still be on its way: as long as this server leads, it can take effect. It leads no more.
            Some(Outcome::NotLanded) => {
                self.give_up_leading(txn).await.then(|| Outcome::Refused(store_error(error)))
            }
            other => other,
        }
    }

    /// Deletes the leader's keys that a transaction compares, so that it can never take effect. This server stops
    /// answering as the leader before anybody else can begin.
    async fn give_up_leading(&self, txn: &Txn) -> bool {
        self.shared.change(|state| {
            let given_up = state.flight.as_ref().map(|flight| flight.workspaces.clone());
            for workspace in given_up.into_iter().flatten() {
                state.led.remove(&workspace);
            }
        });
        let leaders = txn.when.iter().filter_map(|compare| match compare {
            Compare::Created(key, _) => Some(Op::Delete(Keys::one(key.clone()))),
            Compare::Modified(..) | Compare::Exists(_) => None,
        });
        let given_up = Txn { when: txn.when.clone(), then: leaders.collect(), otherwise: Vec::new() };
        matches!(self.shared.etcd.txn(given_up).await, Ok(answer) if answer.held)
    }

    async fn await_verdict(
        &mut self,
        pending: &mut Vec<(Request, Result<Done, Error>)>,
        began: Duration,
    ) -> Outcome {
        let shared = self.shared.clone();
        loop {
            let verdict =
                |state: &super::shared::State| state.flight.as_ref().and_then(|flight| flight.verdict);
            if let Some(verdict) = shared.until_or(PAUSE, verdict).await {
                return verdict.into();
            }
            if shared.now().saturating_sub(began) > shared.options.patience {
                give_up(pending);
                if shared.is_closing() {
                    return Outcome::Unknown;
                }
            }
            self.refuse_late();
        }
    }

    /// While nothing can be written, what has waited too long is refused; nothing was done about it.
    fn refuse_late(&mut self) {
        let (now, patience) = (self.shared.now(), self.shared.options.patience);
        while let Ok(request) = self.requests.try_recv() {
            self.waiting.push_back(request);
        }
        let late = |request: &Request| now.saturating_sub(request.arrived) > patience;
        while self.waiting.front().is_some_and(late) {
            if let Some(request) = self.waiting.pop_front() {
                let error = Error::Unavailable("etcd does not answer".to_owned());
                let _ = request.reply.send(Err(Failure::Error(error)));
            }
        }
    }
}

impl From<Verdict> for Outcome {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Landed(revision) => Outcome::Landed(revision),
            Verdict::Lost => Outcome::NotLanded,
            Verdict::Unknowable => Outcome::Unknown,
        }
    }
}

/// Tells those who wait that it is not known what will come of it.
fn give_up(pending: &mut Vec<(Request, Result<Done, Error>)>) {
    for (request, result) in pending.drain(..) {
        let _ = request.reply.send(Err(Failure::Error(unknown(result.is_ok()))));
    }
}

/// A refusal may rest on a commit of the same transaction, so it does not stand either.
fn unknown(accepted: bool) -> Error {
    match accepted {
        true => Error::Unknown("etcd did not answer".to_owned()),
        false => Error::Unavailable("etcd did not answer".to_owned()),
    }
}

/// What it means that a comparison did not hold. `None`: it cannot be told from this. That it will not take effect
/// later is certain: what a comparison fails on now, a leader's key that is gone or a head that moved on, never comes
/// back.
fn read_refusal(answer: &TxnAnswer, txn: &Txn, flight: &Named, uncertain: bool) -> Option<Outcome> {
    let mut untouched = false;
    for (index, found) in answer.ranges.chunks(2).enumerate() {
        let [_, head] = found else { continue };
        let head = head.first();
        match head {
            Some(head) if Head::decode(&head.value).is_ok_and(|head| head.by == flight.by) => {
                return Some(Outcome::Landed(head.modified));
            }
            // Whoever removed it, it is gone.
            None if flight.removes => return Some(Outcome::Landed(answer.revision)),
            _ => {}
        }
        if let Some(Compare::Modified(_, modified)) = txn.when.get(2 * index + 1) {
            // One that was not there before and is not there now may have been made and removed.
            untouched |= head.map_or(0, |head| head.modified) == *modified && *modified > 0;
        }
    }
    // It writes all its heads: if one is as it was, it has not taken effect.
    (!uncertain || untouched).then_some(Outcome::NotLanded)
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

/// What a rare deed writes, and how it is shown.
struct Plan {
    /// `None`: the workspace goes.
    head: Option<Head>,
    done: Done,
    show: Box<dyn FnOnce(&Live) + Send>,
}

fn plan(shared: &Shared, workspace: &WorkspaceId, deed: &Deed) -> Result<Option<Plan>, Error> {
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

/// What a store's caller is told of etcd's refusal.
pub(super) fn store_error(error: ::etcd::Error) -> Error {
    match error {
        ::etcd::Error::NoSpace(why) => Error::NoSpace(why),
        ::etcd::Error::TooLarge(_) => Error::Invalid("larger than etcd takes"),
        ::etcd::Error::Uncertain(why) => Error::Unknown(why),
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
