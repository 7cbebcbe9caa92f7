//! Sends a transaction until it is known what became of it.

use std::time::Duration;

use ::etcd::{Compare, Etcd, Keys, Op, Revision as EtcdRevision, Txn, TxnAnswer};
use bytes::Bytes;

use super::{
    super::{
        layout::Head,
        shared::{Flight, Shared, State, Verdict},
    },
    Done, Failure, Request, Writer, store_error,
};
use crate::{Error, WorkspaceId, live::Live};

/// How long to wait before a member is asked again that did not answer.
const PAUSE: Duration = Duration::from_millis(200);

/// What became of a transaction.
pub(super) enum Outcome {
    Landed(EtcdRevision),
    /// It has had no effect and will have none: somebody else leads one of its workspaces.
    NotLanded,
    Refused(Error),
    Unknown,
}

/// What a transaction compares of a workspace: that it is still led as it was, and that nothing was written since.
#[derive(Clone)]
pub(super) struct Fence {
    pub workspace: WorkspaceId,
    pub created: EtcdRevision,
    pub modified: EtcdRevision,
}

/// One transaction while it is put together.
pub(super) struct Draft {
    pub by: String,
    /// Without a head, the workspace goes.
    pub heads: Vec<(Fence, Option<Head>)>,
    pub ops: Vec<Op>,
    /// Where large objects are that it refers to: they must be there.
    pub parts: Vec<Bytes>,
}

/// By what a transaction is known when it is met again.
struct Named {
    by: String,
    /// It removes a workspace, and leaves no head.
    removes: bool,
}

impl Writer {
    /// Sends a transaction until its outcome is known, and shows it if it took effect. Whoever waits is told when it
    /// takes too long.
    pub(super) async fn transact(
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
                Outcome::NotLanded => {
                    // Which of them is led by somebody else will be seen when one is claimed again.
                    for workspace in &workspaces {
                        state.led.remove(workspace);
                    }
                }
                Outcome::Unknown => {
                    // An attempt may still be on its way, and takes effect for as long as the leader's keys are there.
                    for (fence, _) in &draft.heads {
                        state.led.remove(&fence.workspace);
                        state.doubtful.insert(fence.workspace.clone(), fence.created);
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
            let sent = shared.etcd.txn(txn.clone());
            let answer = async {
                tokio::select! {
                    biased;
                    answer = sent => Ok(answer),
                    verdict = verdict => Err(verdict),
                }
            };
            let answer = match self.meanwhile(answer, |shared| give_up(shared, pending)).await {
                Ok(answer) => answer,
                Err(verdict) => return verdict.into(),
            };
            match answer {
                Ok(answer) if answer.held => return Outcome::Landed(answer.revision),
                Ok(answer) => match read_refusal(&answer, txn, flight, uncertain) {
                    Some(outcome) => return outcome,
                    // Only the follower can tell.
                    None => return self.await_verdict(answer.revision, pending).await,
                },
                Err(::etcd::Error::Uncertain(_)) => uncertain = true,
                Err(::etcd::Error::Unreachable(_)) => {}
                // What it was sent to is not what it was made from.
                Err(::etcd::Error::Replaced(_)) => return Outcome::Unknown,
                Err(error) => {
                    if let Some(outcome) = self.look_after_refusal(txn, flight, uncertain, error).await {
                        return outcome;
                    }
                    uncertain = true;
                }
            }
            let late = shared.is_hopeless(began);
            if late && !uncertain {
                let why = shared.why_hopeless("etcd does not answer");
                return Outcome::Refused(Error::Unavailable(why));
            }
            if late && shared.is_closing() {
                return Outcome::Unknown;
            }
            give_up(&shared, pending);
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

    /// What the follower saw of a transaction that etcd refused at `refused_at`, and will not carry out after that. If by then
    /// nothing of it was seen, there was nothing.
    async fn await_verdict(
        &mut self,
        refused_at: EtcdRevision,
        pending: &mut Vec<(Request, Result<Done, Error>)>,
    ) -> Outcome {
        let shared = self.shared.clone();
        let began = shared.now();
        shared.await_revision(refused_at);
        loop {
            let verdict = |state: &State| {
                let seen = state.flight.as_ref().and_then(|flight| flight.verdict);
                seen.or_else(|| (state.followed >= refused_at).then_some(Verdict::Lost))
            };
            if let Some(verdict) = shared.until_or(PAUSE, verdict).await {
                return verdict.into();
            }
            if shared.etcd.replaced().is_some() || (shared.is_hopeless(began) && shared.is_closing()) {
                return Outcome::Unknown;
            }
            give_up(&shared, pending);
            self.refuse_late();
        }
    }

    /// Waits for `work`. While that takes, whoever has waited for long enough is told.
    pub(super) async fn meanwhile<T>(
        &mut self,
        work: impl Future<Output = T>,
        mut tell: impl FnMut(&Shared),
    ) -> T {
        tokio::pin!(work);
        let clock = self.shared.env.clock.clone();
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = clock.sleep(PAUSE) => {}
            }
            tell(&self.shared);
            self.refuse_late();
        }
    }

    /// While nothing can be written, what has waited too long is refused; nothing was done about it.
    fn refuse_late(&mut self) {
        self.waiting.let_in(&mut self.requests);
        for request in self.waiting.take_out(|request| self.shared.is_hopeless(request.arrived)) {
            let error = Error::Unavailable(self.shared.why_hopeless("etcd does not answer"));
            let _ = request.reply.send(Err(Failure::Error(error)));
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

/// Tells those who have waited for long enough that it is not known what will come of it.
fn give_up(shared: &Shared, pending: &mut Vec<(Request, Result<Done, Error>)>) {
    for (request, result) in pending.extract_if(.., |(request, _)| shared.is_hopeless(request.arrived)) {
        let _ = request.reply.send(Err(Failure::Error(unknown(result.is_ok()))));
    }
}

/// A refusal may rest on a commit of the same transaction, so it does not stand either.
pub(super) fn unknown(accepted: bool) -> Error {
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
