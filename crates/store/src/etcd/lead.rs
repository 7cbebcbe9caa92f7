//! Who leads: a lease that says that this server is alive, and a key per workspace that goes with it.
//!
//! A server leads a workspace from when its key is created until the key is gone. The lease counts for this server
//! from when it *sent* its last renewal, on a clock that also runs while the machine sleeps, and for etcd from when it
//! got it; so this server stops believing before anybody else can begin. That decides only what it may answer from
//! memory: what it writes is checked by etcd.

use std::{collections::HashSet, sync::Arc, time::Duration};

use ::etcd::{Compare, Error as EtcdError, Etcd, Keys, LeaseId, Op, Range, Revision as EtcdRevision, Txn};
use bytes::Bytes;
use compact_str::CompactString;

use super::{
    blob,
    shared::{Lease, Shared},
    writer::store_error,
};
use crate::{Error, WorkspaceId};

/// After an error, so long until the next attempt.
const PAUSE: Duration = Duration::from_millis(300);
/// Of a lease's time, what is not counted on: clocks do not run equally fast.
const MARGIN: u32 = 10;
/// How often the one on duty looks for what may be forgotten.
const TIDY_EVERY: Duration = Duration::from_secs(30);

/// What was opened is something else now: it was moved away.
const CLOSED: &str = "the store was closed while this server had it open; start it again to be told why";

/// Gets a lease, and registers this server under it if it is known how it is reached.
pub(super) async fn register(shared: &Shared) -> Result<(), EtcdError> {
    let asked = shared.now();
    let lease = shared.etcd.grant(shared.options.lease).await?;
    announce(shared, lease).await?;
    let until = asked + shared.options.lease - shared.options.lease / MARGIN;
    shared.change(|state| {
        state.lease = Some(Lease { id: lease, until });
        state.no_lease = None;
    });
    Ok(())
}

/// Says how this server is reached, for as long as `lease` lasts.
pub(super) async fn announce(shared: &Shared, lease: LeaseId) -> Result<(), EtcdError> {
    let registration = shared.registration.lock().clone();
    let Some(registration) = registration else { return Ok(()) };
    let value = serde_json::to_vec(&registration).unwrap_or_default();
    let put = Op::Put { key: shared.layout.server(&shared.name), value: value.into(), lease: Some(lease) };
    let open = Compare::Modified(shared.layout.meta(), shared.state().meta);
    let answer = shared.etcd.txn(Txn { when: vec![open], then: vec![put], ..Txn::default() }).await?;
    if answer.held { Ok(()) } else { Err(EtcdError::Refused(CLOSED.to_owned())) }
}

/// How long to wait until a lease is asked for again. Why there is none is said once.
pub(super) fn pause_without_lease(shared: &Shared, error: &EtcdError) -> Duration {
    let last = shared.change(|state| state.no_lease.replace(error.clone()));
    if last.is_none_or(|last| last.to_string() != error.to_string()) {
        tracing::warn!(%error, "cannot register with etcd: this server takes no writes until it can");
    }
    match error {
        // Somebody has to make room, which takes a while.
        EtcdError::NoSpace(_) => PAUSE * 10,
        _ => PAUSE,
    }
}

/// Keeps the lease for as long as the server runs; when it is lost, gets another one and leads nothing.
pub(super) async fn keep(shared: Arc<Shared>) {
    while !shared.is_closing() {
        let lease = shared.state().lease;
        let Some(lease) = lease else {
            if let Err(error) = register(&shared).await {
                if shared.etcd.replaced().is_some() {
                    return;
                }
                shared.env.clock.sleep(pause_without_lease(&shared, &error)).await;
            }
            continue;
        };
        let asked = shared.now();
        let pause = match shared.etcd.keep_alive(lease.id).await {
            Ok(left) => {
                let until = asked + left - left / MARGIN;
                shared.change(|state| {
                    if let Some(current) = &mut state.lease {
                        current.until = current.until.max(until);
                    }
                });
                shared.options.lease / 3
            }
            Err(EtcdError::LeaseGone) => {
                tracing::warn!(
                    "the lease is gone: this server was not heard of for too long, and leads nothing now"
                );
                shared.change(|state| {
                    state.lease = None;
                    state.led.clear();
                });
                continue;
            }
            Err(EtcdError::Replaced(_)) => {
                shared.change(|state| state.led.clear());
                return;
            }
            Err(error) => {
                tracing::debug!(%error, "cannot renew the lease");
                // Whoever is on duty only while it holds looks again.
                shared.change(|_| ());
                PAUSE
            }
        };
        tokio::select! {
            biased;
            () = shared.env.clock.sleep(pause) => {}
            () = shared.until(|state| state.closing.then_some(())) => return,
        }
    }
}

/// What is known of a leader's key.
struct Claimed {
    created: EtcdRevision,
    /// When the head was written, as far as this server must have followed to lead.
    head: EtcdRevision,
}

enum Claim {
    Mine(Claimed),
    /// As it was at this revision.
    Theirs(CompactString, EtcdRevision),
}

/// Makes this server the leader of `workspace`, unless somebody else is or is faster.
pub(super) async fn claim(shared: &Shared, workspace: &WorkspaceId) -> Result<(), Error> {
    let begun = shared.change(|state| state.claiming.insert(workspace.clone()));
    if !begun {
        let settled = |state: &super::shared::State| (!state.claiming.contains(workspace)).then_some(());
        let _ = shared.until_or(shared.options.patience, settled).await;
        return Ok(());
    }
    // However it ends, also if nobody waits for it any more.
    let _done = OnDrop(|| {
        shared.change(|state| state.claiming.remove(workspace));
    });
    let lease = shared.state().lease.filter(|lease| shared.now() < lease.until);
    let lease = lease.ok_or_else(|| shared.state().why_not_leading())?;
    let claimed = match try_claim(shared, workspace, lease.id).await.map_err(store_error)? {
        Claim::Mine(claimed) => claimed,
        Claim::Theirs(name, at) => {
            shared.change(|state| {
                // What was followed since is newer.
                if state.followed < at {
                    state.leaders.insert(workspace.clone(), name);
                }
            });
            return Ok(());
        }
    };
    // Also that there is no head may be news here.
    shared.until_followed(claimed.created).await?;
    shared.until_applied(workspace, claimed.head).await?;
    shared.change(|state| {
        let holds = state.lease.is_some_and(|current| current.id == lease.id) && !state.resyncing;
        // It may have come into doubt since it was claimed.
        if holds && state.doubtful.get(workspace) != Some(&claimed.created) {
            state.doubtful.remove(workspace);
            state.led.insert(workspace.clone(), claimed.created);
            state.leaders.insert(workspace.clone(), shared.name.clone());
        }
    });
    Ok(())
}

/// As [`claim_once`], but never under a key under which an earlier transaction may still take effect.
async fn try_claim(shared: &Shared, workspace: &WorkspaceId, lease: LeaseId) -> Result<Claim, EtcdError> {
    let claim = claim_once(shared, workspace, lease).await?;
    let doubtful = shared.state().doubtful.get(workspace).copied();
    match claim {
        Claim::Mine(Claimed { created, .. }) if doubtful == Some(created) => {
            give_up_key(shared, workspace, created).await?;
            claim_once(shared, workspace, lease).await
        }
        claim => Ok(claim),
    }
}

/// Deletes the leader's key that was created then: what compares it never takes effect after that.
async fn give_up_key(
    shared: &Shared,
    workspace: &WorkspaceId,
    created: EtcdRevision,
) -> Result<(), EtcdError> {
    let leader = shared.layout.leader(workspace);
    let when = vec![Compare::Created(leader.clone(), created)];
    let then = vec![Op::Delete(Keys::one(leader))];
    // If it does not hold, it is gone already.
    shared.etcd.txn(Txn { when, then, ..Txn::default() }).await?;
    Ok(())
}

async fn claim_once(shared: &Shared, workspace: &WorkspaceId, lease: LeaseId) -> Result<Claim, EtcdError> {
    let (leader, head) = (shared.layout.leader(workspace), shared.layout.head(workspace));
    let name = Bytes::copy_from_slice(shared.name.as_bytes());
    let txn = Txn {
        when: vec![
            Compare::Created(leader.clone(), 0),
            Compare::Modified(shared.layout.meta(), shared.state().meta),
        ],
        then: vec![
            Op::Put { key: leader.clone(), value: name.clone(), lease: Some(lease) },
            Op::Range(Keys::one(head.clone())),
        ],
        otherwise: vec![Op::Range(Keys::one(leader)), Op::Range(Keys::one(head))],
    };
    let answer = shared.etcd.txn(txn).await?;
    let mut ranges = answer.ranges.into_iter();
    let leader = if answer.held { None } else { ranges.next().and_then(|found| found.into_iter().next()) };
    let head = ranges.next().and_then(|found| found.into_iter().next());
    let head = head.map_or(0, |head| head.modified);
    let leader = match (answer.held, leader) {
        (true, _) => return Ok(Claim::Mine(Claimed { created: answer.revision, head })),
        (false, None) => return Err(EtcdError::Refused(CLOSED.to_owned())),
        (false, Some(leader)) => leader,
    };
    // An attempt whose answer was lost may have made it this server's.
    if leader.value == name && leader.lease == Some(lease) {
        return Ok(Claim::Mine(Claimed { created: leader.created, head }));
    }
    Ok(Claim::Theirs(String::from_utf8_lossy(&leader.value).into(), answer.revision))
}

/// Gives up what this server leads, so that others need not wait for its lease to run out.
pub(super) async fn resign(shared: &Shared) {
    let lease = shared.change(|state| {
        state.led.clear();
        state.lease.take()
    });
    if let Some(lease) = lease
        && let Err(error) = shared.etcd.revoke(lease.id).await
    {
        tracing::debug!(%error, "cannot give up the lease; it runs out by itself");
    }
}

/// Sees to it that somebody is on duty: whoever leads the workspace that the duty comes with.
pub(super) async fn stand_by(shared: Arc<Shared>) {
    let duty = shared.options.duty.clone();
    loop {
        let vacant = |state: &super::shared::State| {
            if state.closing {
                return Some(false);
            }
            let may = shared.lease_holds(state) && !state.led.contains_key(&duty);
            (may && !state.leaders.contains_key(&duty)).then_some(true)
        };
        // Now and then without a sign, too: what is known of leaders may be old.
        match shared.until_or(shared.options.lease, vacant).await {
            Some(false) => return,
            Some(true) => {}
            None if shared.state().led.contains_key(&duty) => continue,
            None => {}
        }
        if let Err(error) = claim(&shared, &duty).await {
            tracing::debug!(%error, "cannot take over");
        }
        shared.env.clock.sleep(PAUSE).await;
    }
}

/// While on duty: lets etcd forget history that is older than what is kept, and parts that nothing refers to.
pub(super) async fn tidy(shared: Arc<Shared>) {
    let mut suspects = HashSet::new();
    let mut noted_at = 0;
    loop {
        tokio::select! {
            biased;
            () = shared.env.clock.sleep(TIDY_EVERY) => {}
            () = shared.until(|state| state.closing.then_some(())) => return,
        }
        let old = shared.change(|state| {
            let now = shared.now();
            state.passed.push_back((now, state.followed));
            let kept = shared.options.history;
            let mut old = None;
            while state.passed.front().is_some_and(|(at, _)| now.saturating_sub(*at) > kept) {
                old = state.passed.pop_front();
            }
            old
        });
        if !shared.on_duty() {
            continue;
        }
        if let Some((_, revision)) = old {
            if let Err(error) = shared.etcd.compact(revision).await
                && !matches!(error, EtcdError::Compacted(_))
            {
                // It grows until somebody notices, so this says so.
                tracing::warn!(%error, "cannot let etcd forget history");
            }
            // Not if nothing was written since the last note but that.
            if revision > noted_at {
                noted_at = note(&shared, revision).await.unwrap_or(noted_at);
            }
        }
        match sweep(&shared, &mut suspects).await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "removed parts of objects that nothing refers to"),
            Err(error) => tracing::debug!(%error, "cannot look for parts that nothing refers to"),
        }
    }
}

/// Tells those who start how far back the history goes that is kept; when that was written.
async fn note(shared: &Shared, revision: EtcdRevision) -> Result<EtcdRevision, EtcdError> {
    let value = revision.to_string().into();
    let put = Op::Put { key: shared.layout.history(), value, lease: None };
    let answer = shared.etcd.txn(Txn { then: vec![put], ..Txn::default() }).await?;
    Ok(answer.revision)
}

/// Removes blobs that nothing referred to, twice in a row: a server that died between writing parts and referring to
/// them left them.
pub(super) async fn sweep(shared: &Shared, suspects: &mut HashSet<String>) -> Result<usize, EtcdError> {
    let keys = Keys::with_prefix(&shared.layout.blobs());
    let found = shared.etcd.range(Range { keys, at: None, limit: 0, keys_only: true }).await?;
    let blobs = found.kvs.iter().filter_map(|kv| shared.layout.blob_of(&kv.key).map(str::to_owned));
    let mut unused: HashSet<String> = blobs.collect();
    if unused.is_empty() {
        suspects.clear();
        return Ok(0);
    }
    // What is referred to at `found.revision` or before is known here once that has been followed.
    if shared.until_followed(found.revision).await.is_err() {
        return Ok(0);
    }
    let snapshots = {
        let _order = shared.order.lock();
        shared.live.snapshots()
    };
    for snapshot in snapshots {
        for (_, items) in snapshot.collections() {
            for id in items.values().filter_map(|item| blob::id_of(item.place)) {
                unused.remove(id.as_str());
            }
        }
    }
    let old: Vec<String> = unused.intersection(suspects).cloned().collect();
    for blob in &old {
        let delete = Op::Delete(Keys::with_prefix(&shared.layout.blob(blob)));
        shared.etcd.txn(Txn { then: vec![delete], ..Txn::default() }).await?;
        unused.remove(blob);
    }
    *suspects = unused;
    Ok(old.len())
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
