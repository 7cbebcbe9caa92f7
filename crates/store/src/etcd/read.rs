//! Most-recent reads: when what this server shows is as new as what was acknowledged anywhere.
//!
//! A leader whose lease holds knows: nobody else can have written, and what it wrote itself it shows before it says so.
//! Only a transaction under way may have been seen elsewhere already, so it is waited for. Everybody else asks etcd for
//! the head, all who ask at the same time together, and waits until that has been followed.
//!
//! So a workspace that nobody leads, because nobody has written to it since its last leader went, costs a question per
//! read. Whoever is asked often for such a one begins to lead it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use ::etcd::{Etcd, Keys, Op, Revision as EtcdRevision, Txn, TxnAnswer};
use env::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{
    lead,
    shared::{BEHIND, Shared, Standing, State},
    writer::store_error,
};
use crate::{Error, WorkspaceId};

/// How many heads are asked for at once.
const AT_ONCE: usize = 100;
/// After so many questions about a workspace that nobody leads, this server does. A few cost less than a leader's key.
const ENOUGH_TO_LEAD: u32 = 8;
/// Of so many workspaces, questions are counted.
const MOST_COUNTED: usize = 1024;

/// When the head was written, or 0, and how new that is.
type Answer = Result<(EtcdRevision, EtcdRevision), String>;

/// Those who ask for heads.
#[derive(Default)]
pub(super) struct Heads(Mutex<Asking>);

#[derive(Default)]
struct Asking {
    /// By what they ask for, which is asked once for all.
    waiting: BTreeMap<WorkspaceId, Vec<oneshot::Sender<Answer>>>,
    /// Somebody is asking etcd.
    busy: bool,
    /// How often was asked about workspaces that nobody leads.
    leaderless: HashMap<WorkspaceId, u32>,
}

impl Asking {
    /// Counts a question about a workspace that nobody leads; true if that was enough of them.
    fn is_enough(&mut self, workspace: &WorkspaceId) -> bool {
        if self.leaderless.len() >= MOST_COUNTED && !self.leaderless.contains_key(workspace) {
            self.leaderless.clear();
        }
        let count = self.leaderless.entry(workspace.clone()).or_default();
        *count += 1;
        let is_enough = *count >= ENOUGH_TO_LEAD;
        if is_enough {
            self.leaderless.remove(workspace);
        }
        is_enough
    }
}

/// `None`: it is level now.
pub(super) fn level(
    shared: &Arc<Shared>,
    workspace: &WorkspaceId,
) -> Option<BoxFuture<'static, Result<(), Error>>> {
    let under_way = {
        let state = shared.state();
        let knows = state.led.contains_key(workspace) && shared.lease_holds(&state);
        match &state.flight {
            Some(flight) if knows && flight.workspaces.contains(workspace) => Some(state.landed),
            _ if knows => return None,
            _ => None,
        }
    };
    let (shared, workspace, arrived) = (shared.clone(), workspace.clone(), shared.now());
    Some(Box::pin(async move {
        tokio::select! {
            biased;
            level = until_level(&shared, &workspace, under_way) => level,
            () = shared.until_hopeless(arrived) => Err(Error::Unavailable(shared.why_hopeless(BEHIND))),
        }
    }))
}

/// `under_way`: it is led here, and this many transactions had ended when one on it was sent.
async fn until_level(
    shared: &Arc<Shared>,
    workspace: &WorkspaceId,
    under_way: Option<u64>,
) -> Result<(), Error> {
    if let Some(before) = under_way {
        shared.until(|state| (state.landed > before).then_some(())).await;
        let state = shared.state();
        if state.led.contains_key(workspace) && shared.lease_holds(&state) {
            return Ok(());
        }
    }
    lead_if_asked_often(shared, workspace);
    match ask(shared, workspace).await? {
        (0, at) => until_gone(shared, workspace, at).await,
        (head, _) => shared.until_applied(workspace, head).await,
    }
}

/// Begins to lead a workspace that is read often and that nobody leads. Nobody waits for it: those who ask meanwhile are
/// answered by etcd.
fn lead_if_asked_often(shared: &Arc<Shared>, workspace: &WorkspaceId) {
    let may_lead = {
        let state = shared.state();
        state.applied.contains_key(workspace)
            && shared.lease_holds(&state)
            && !state.resyncing
            && !state.closing
            && !state.claiming.contains(workspace)
    };
    let is_vacant = || matches!(shared.standing(workspace), Standing::Nobody);
    if !may_lead || !is_vacant() || !shared.heads.0.lock().is_enough(workspace) {
        return;
    }
    let (own, workspace) = (shared.clone(), workspace.clone());
    shared.env.tasks.spawn(Box::pin(async move {
        if let Err(error) = lead::claim(&own, &workspace).await {
            tracing::debug!(%error, %workspace, "cannot lead what is read");
        }
    }));
}

/// There was no head at revision `at`: what is known of the workspace is older, or newer.
async fn until_gone(shared: &Shared, workspace: &WorkspaceId, at: EtcdRevision) -> Result<(), Error> {
    let gone = |state: &State| state.applied.get(workspace).is_none_or(|applied| *applied > at).then_some(());
    let found = shared.until_or(shared.options.patience, gone).await;
    found.ok_or_else(|| Error::Unavailable(BEHIND.to_owned()))
}

/// The etcd revision of a workspace's head, or 0: as it was after the call at the earliest.
async fn ask(shared: &Arc<Shared>, workspace: &WorkspaceId) -> Result<(EtcdRevision, EtcdRevision), Error> {
    let (reply, answer) = oneshot::channel();
    let begin = {
        let mut asking = shared.heads.0.lock();
        asking.waiting.entry(workspace.clone()).or_default().push(reply);
        !std::mem::replace(&mut asking.busy, true)
    };
    if begin {
        shared.env.tasks.spawn(Box::pin(ask_for_all(shared.clone())));
    }
    match answer.await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(why)) => Err(Error::Unavailable(why)),
        Err(_) => Err(Error::Unavailable("this server is stopping".to_owned())),
    }
}

/// Asks until nobody waits; whoever comes while it asks is answered by the next question, not by this one.
async fn ask_for_all(shared: Arc<Shared>) {
    loop {
        let batch: Vec<(WorkspaceId, Vec<oneshot::Sender<Answer>>)> = {
            let mut asking = shared.heads.0.lock();
            let batch: Vec<_> = std::iter::from_fn(|| asking.waiting.pop_first()).take(AT_ONCE).collect();
            if batch.is_empty() {
                asking.busy = false;
                return;
            }
            batch
        };
        let reads = batch.iter().map(|(name, _)| Op::Range(Keys::one(shared.layout.head(name)))).collect();
        let answer = retried(&shared, Txn { then: reads, ..Txn::default() }).await;
        for (index, (_, waiting)) in batch.into_iter().enumerate() {
            let found = answer.as_ref().map_err(Clone::clone).map(|answer| {
                let head = answer.ranges.get(index).and_then(|found| found.first());
                (head.map_or(0, |head| head.modified), answer.revision)
            });
            for reply in waiting {
                let _ = reply.send(found.clone());
            }
        }
    }
}

/// A read may be asked again, of another member.
async fn retried(shared: &Shared, txn: Txn) -> Result<TxnAnswer, String> {
    let began = shared.now();
    loop {
        let error = match shared.etcd.txn(txn.clone()).await {
            Ok(answer) => return Ok(answer),
            Err(error @ (::etcd::Error::Unreachable(_) | ::etcd::Error::Uncertain(_))) => error,
            Err(error) => return Err(store_error(error).to_string()),
        };
        if shared.is_hopeless(began) {
            return Err(error.to_string());
        }
        shared.env.clock.sleep(std::time::Duration::from_millis(100)).await;
    }
}
