//! Most-recent reads: when what this server shows is as new as what was acknowledged anywhere.
//!
//! A leader whose lease holds knows: nobody else can have written, and what it wrote itself it shows before it says so.
//! Only a transaction under way may have been seen elsewhere already, so it is waited for. Everybody else asks etcd for
//! the head, all who ask at the same time together, and waits until that has been followed.

use std::sync::Arc;

use ::etcd::{Keys, Op, Revision as EtcdRevision, Txn};
use env::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{
    shared::{Shared, State},
    writer::store_error,
};
use crate::{Error, WorkspaceId};

/// How many heads are asked for at once.
const AT_ONCE: usize = 100;

type Answer = Result<EtcdRevision, String>;

/// Those who ask for heads.
#[derive(Default)]
pub(super) struct Heads(Mutex<Asking>);

#[derive(Default)]
struct Asking {
    waiting: Vec<(WorkspaceId, oneshot::Sender<Answer>)>,
    /// Somebody is asking etcd.
    busy: bool,
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
    let (shared, workspace) = (shared.clone(), workspace.clone());
    Some(Box::pin(async move {
        if let Some(before) = under_way {
            let ended = |state: &State| (state.landed > before).then_some(());
            if shared.until_or(shared.options.patience, ended).await.is_some() {
                let state = shared.state();
                if state.led.contains_key(&workspace) && shared.lease_holds(&state) {
                    return Ok(());
                }
            }
        }
        match ask(&shared, &workspace).await? {
            0 => until_gone(&shared, &workspace).await,
            head => shared.until_applied(&workspace, head).await,
        }
    }))
}

/// There was no head: whatever is known of the workspace is old, unless it is newer than that answer.
async fn until_gone(shared: &Shared, workspace: &WorkspaceId) -> Result<(), Error> {
    let before = shared.state().applied.get(workspace).copied();
    let gone = |state: &State| {
        let applied = state.applied.get(workspace);
        (applied.is_none() || applied != before.as_ref()).then_some(())
    };
    let found = shared.until_or(shared.options.patience, gone).await;
    found.ok_or_else(|| Error::Unavailable("this server does not keep up with etcd".to_owned()))
}

/// The etcd revision of a workspace's head, or 0: as it was after the call at the earliest.
async fn ask(shared: &Arc<Shared>, workspace: &WorkspaceId) -> Result<EtcdRevision, Error> {
    let (reply, answer) = oneshot::channel();
    let begin = {
        let mut asking = shared.heads.0.lock();
        asking.waiting.push((workspace.clone(), reply));
        !std::mem::replace(&mut asking.busy, true)
    };
    if begin {
        shared.env.tasks.spawn(Box::pin(ask_for_all(shared.clone())));
    }
    match answer.await {
        Ok(Ok(revision)) => Ok(revision),
        Ok(Err(why)) => Err(Error::Unavailable(why)),
        Err(_) => Err(Error::Unavailable("this server is stopping".to_owned())),
    }
}

/// Asks until nobody waits; whoever comes while it asks is answered by the next question, not by this one.
async fn ask_for_all(shared: Arc<Shared>) {
    loop {
        let batch: Vec<_> = {
            let mut asking = shared.heads.0.lock();
            if asking.waiting.is_empty() {
                asking.busy = false;
                return;
            }
            let count = asking.waiting.len().min(AT_ONCE);
            asking.waiting.drain(..count).collect()
        };
        let mut names: Vec<&WorkspaceId> = batch.iter().map(|(workspace, _)| workspace).collect();
        names.sort();
        names.dedup();
        let reads = names.iter().map(|name| Op::Range(Keys::one(shared.layout.head(name)))).collect();
        let answer = retried(&shared, Txn { then: reads, ..Txn::default() }).await;
        let found = |workspace: &WorkspaceId| {
            let ranges = answer.as_ref().map_err(Clone::clone)?;
            let at = names.binary_search(&workspace).ok();
            let head = at.and_then(|at| ranges.get(at)).and_then(|found| found.first());
            Ok(head.map_or(0, |head| head.modified))
        };
        let answers: Vec<Answer> = batch.iter().map(|(workspace, _)| found(workspace)).collect();
        for ((_, reply), answer) in batch.into_iter().zip(answers) {
            let _ = reply.send(answer);
        }
    }
}

/// A read may be asked again, of another member.
async fn retried(shared: &Shared, txn: Txn) -> Result<Vec<Vec<::etcd::KeyValue>>, String> {
    let began = shared.now();
    loop {
        let error = match shared.etcd.txn(txn.clone()).await {
            Ok(answer) => return Ok(answer.ranges),
            Err(error @ (::etcd::Error::Unreachable(_) | ::etcd::Error::Uncertain(_))) => error,
            Err(error) => return Err(store_error(error).to_string()),
        };
        if shared.now().saturating_sub(began) > shared.options.patience {
            return Err(error.to_string());
        }
        shared.env.clock.sleep(std::time::Duration::from_millis(100)).await;
    }
}
