//! Where a deed is done: by the writer of the server that leads its workspace, here or elsewhere.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use env::BoxFuture;
use machinery::Revision;
use tokio::sync::{mpsc::error::TrySendError, oneshot};

use super::{
    layout::Registration,
    lead,
    shared::{Shared, Standing, State},
    wire::{Letter, Reply},
    writer::{Deed, Done, Failure, Request},
};
use crate::{Error, WorkspaceId};

/// Takes letters to other servers.
pub trait Courier: Send + Sync + 'static {
    /// Delivers `letter` to [`super::EtcdStore::receive`] of the server `to`, with its secret, and brings the answer.
    fn deliver(&self, to: &Registration, letter: Bytes) -> BoxFuture<'static, Result<Bytes, Undelivered>>;
}

/// Why there is no answer to a letter.
#[derive(Debug)]
pub enum Undelivered {
    /// It was not delivered and will not be.
    NotSent(String),
    /// It may have been.
    NoAnswer(String),
}

/// For a server that is alone.
pub struct NoCourier;

impl Courier for NoCourier {
    fn deliver(&self, to: &Registration, _letter: Bytes) -> BoxFuture<'static, Result<Bytes, Undelivered>> {
        let why = format!("there is no way to {}", to.url);
        Box::pin(async move { Err(Undelivered::NotSent(why)) })
    }
}

/// How long to wait for a change of leaders before looking again.
const PAUSE: Duration = Duration::from_millis(200);

/// Asks for a deed, from here.
pub(super) fn ask(
    shared: &Arc<Shared>,
    workspace: &WorkspaceId,
    deed: Deed,
    forwarded: bool,
) -> BoxFuture<'static, Result<Done, Failure>> {
    let (reply, answer) = oneshot::channel();
    let workspace = workspace.clone();
    let request = Request { workspace, deed, reply, arrived: shared.now(), forwarded };
    dispatch(shared, request);
    Box::pin(async move {
        let stopped = || Failure::Error(Error::Unknown("the writer stopped".to_owned()));
        answer.await.unwrap_or_else(|_| Err(stopped()))
    })
}

/// To the writer at once if it is this server's to do, so that what is asked together is written together.
fn dispatch(shared: &Arc<Shared>, request: Request) {
    let here = {
        let state = shared.state();
        state.led.contains_key(&request.workspace) && shared.lease_holds(&state)
    };
    if !here {
        return again(shared, request);
    }
    match shared.requests.try_send(request) {
        Ok(()) => {}
        Err(TrySendError::Full(request) | TrySendError::Closed(request)) => again(shared, request),
    }
}

/// Looks for who does it, in a task of its own: whoever asked may have gone.
pub(super) fn again(shared: &Arc<Shared>, request: Request) {
    let shared = shared.clone();
    let tasks = shared.env.tasks.clone();
    tasks.spawn(Box::pin(async move { route(&shared, request).await }));
}

async fn route(shared: &Arc<Shared>, request: Request) {
    loop {
        if shared.is_closing() {
            return refuse(request, "this server is stopping");
        }
        if shared.is_hopeless(request.arrived) {
            return refuse(request, &shared.why_hopeless("nobody leads the workspace now"));
        }
        match shared.standing(&request.workspace) {
            Standing::Mine if shared.lease_holds(&shared.state()) => {
                let _ = shared.requests.send(request).await;
                return;
            }
            Standing::Mine => wait(shared, &request.workspace).await,
            Standing::Nobody | Standing::Unclear => {
                if let Err(full) = look(shared, &request).await {
                    let _ = request.reply.send(Err(full.into()));
                    return;
                }
            }
            Standing::Theirs(..) if request.forwarded => {
                let _ = request.reply.send(Err(Failure::NotLeader));
                return;
            }
            Standing::Theirs(registration) => match forward(shared, &registration, &request).await {
                Some(result) => {
                    let _ = request.reply.send(result);
                    return;
                }
                None => {
                    let _ = look(shared, &request).await;
                }
            },
        }
    }
}

/// Leads the workspace if nobody does; what is known of leaders here may be old. `Err`: etcd is full, and nobody can begin
/// to lead.
async fn look(shared: &Shared, request: &Request) -> Result<(), Error> {
    let workspace = &request.workspace;
    let claimed = tokio::select! {
        biased;
        claimed = lead::claim(shared, workspace) => claimed,
        () = shared.until_hopeless(request.arrived) => return Ok(()),
    };
    match claimed {
        Err(full @ Error::NoSpace(_)) => return Err(full),
        Err(error) => tracing::debug!(%error, %workspace, "cannot lead"),
        Ok(()) => {}
    }
    if !matches!(shared.standing(workspace), Standing::Mine) {
        wait(shared, workspace).await;
    }
    Ok(())
}

/// Until somebody else leads, or a moment has passed.
async fn wait(shared: &Shared, workspace: &WorkspaceId) {
    let before = shared.state().leaders.get(workspace).cloned();
    let moved = |state: &State| {
        let moved = state.leaders.get(workspace) != before.as_ref() || state.led.contains_key(workspace);
        (moved && shared.lease_holds(state)).then_some(())
    };
    let _ = shared.until_or(PAUSE, moved).await;
}

fn refuse(request: Request, why: &str) {
    let _ = request.reply.send(Err(Failure::Error(Error::Unavailable(why.to_owned()))));
}

/// `None`: nothing was done there; look again.
async fn forward(shared: &Shared, to: &Registration, request: &Request) -> Option<Result<Done, Failure>> {
    let letter = match Letter::encode(&request.workspace, &request.deed) {
        Ok(letter) => letter,
        Err(error) => return Some(Err(error.into())),
    };
    let answer = match shared.courier.deliver(to, letter).await {
        Ok(answer) => answer,
        Err(Undelivered::NotSent(why)) => {
            tracing::debug!(why, to = to.url, "cannot reach the leader");
            return None;
        }
        Err(Undelivered::NoAnswer(why)) => {
            let why = format!("no answer from the leader of the workspace: {why}");
            return Some(Err(Failure::Error(Error::Unknown(why))));
        }
    };
    let reply = match Reply::decode(&answer) {
        Ok(Reply::NotLeader) => return None,
        Ok(reply) => reply,
        Err(error) => return Some(Err(error.into())),
    };
    // What was answered rests on a state that this server must show too, to whoever reads or tries again.
    if let Some(head) = reply.head() {
        shared.until_head(&request.workspace, head, request.arrived).await;
    }
    // These do not move the head.
    if let Reply::Nothing { .. } = &reply {
        let shown = |state: &State| {
            let shown = match &request.deed {
                Deed::Remove => !state.applied.contains_key(&request.workspace),
                Deed::Compact(upto) => {
                    let position = shared.live.position(&request.workspace);
                    position.is_none_or(|(_, forgotten, _)| forgotten >= *upto)
                }
                Deed::Commit(_) | Deed::CommitAt(..) | Deed::BeginEpoch(_) => true,
            };
            shown.then_some(())
        };
        let _ = shared.until_found(request.arrived, shown).await;
    }
    Some(reply.into_result())
}

/// Does what another server asks for.
pub(super) async fn receive(shared: &Arc<Shared>, letter: &[u8]) -> Bytes {
    let (result, head) = match Letter::decode(letter) {
        Ok((workspace, deed)) => {
            let removes = matches!(deed, Deed::Remove);
            let result = ask(shared, &workspace, deed, true).await;
            let head = if removes { Revision::ZERO } else { shared.live.head(&workspace) };
            (result, head)
        }
        Err(error) => (Err(error.into()), Revision::ZERO),
    };
    Reply::of(result, head).encode()
}
