//! What the tasks of one server share: how far it has followed, who leads what, and what it has under way.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use ::etcd::{Error as EtcdError, LeaseId, Revision as EtcdRevision};
use compact_str::CompactString;
use env::Env;
use machinery::Revision;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, mpsc, watch};

use super::{
    Options,
    layout::{Layout, Registration},
    one_cluster::OneCluster,
    route::Courier,
    writer::Request,
};
use crate::{Error, WorkspaceId, live::Live};

/// Why a server cannot answer for the latest.
pub(super) const BEHIND: &str = "this server does not keep up with etcd";

/// One server's part in a store that several share.
pub(super) struct Shared {
    pub env: Env,
    pub etcd: Arc<OneCluster>,
    pub layout: Layout,
    pub options: Options,
    /// This server among the others; new with every start.
    pub name: CompactString,
    /// How this server is reached, once it is.
    pub registration: Mutex<Option<Registration>>,
    pub courier: Arc<dyn Courier>,
    pub live: Live,
    pub requests: mpsc::Sender<Request>,
    /// Held by whoever publishes to the live state.
    pub order: Mutex<()>,
    state: Mutex<State>,
    changed: Notify,
    duty: watch::Sender<bool>,
    pub heads: super::read::Heads,
}

#[derive(Default)]
pub(super) struct State {
    /// Of each workspace, the etcd revision of the head that is published here.
    pub applied: HashMap<WorkspaceId, EtcdRevision>,
    /// When workspaces were removed, until that has been followed.
    pub removed: HashMap<WorkspaceId, EtcdRevision>,
    /// Everything up to this etcd revision has been followed.
    pub followed: EtcdRevision,
    /// Somebody waits until everything up to this etcd revision has been followed. It may be one at which nothing was written
    /// that is followed, so that etcd tells only when it is asked.
    pub awaited: EtcdRevision,
    /// Who leads, as far as it was followed.
    pub leaders: HashMap<WorkspaceId, CompactString>,
    pub servers: HashMap<CompactString, Registration>,
    /// When it was written what this store is. If that changes, nothing more may be led.
    pub meta: EtcdRevision,
    pub lease: Option<Lease>,
    /// What etcd said when it gave none.
    pub no_lease: Option<EtcdError>,
    /// What this server leads, by the revision at which its leader's key was created.
    pub led: HashMap<WorkspaceId, EtcdRevision>,
    /// Under which leader's key a transaction on a workspace was sent of which it will not be known here when, or whether,
    /// it takes effect. Under that key this server must not lead: what it answers from memory could be old.
    pub doubtful: HashMap<WorkspaceId, EtcdRevision>,
    /// Workspaces that this server is about to lead.
    pub claiming: HashSet<WorkspaceId>,
    /// Everything is being read again: nothing may be led meanwhile.
    pub resyncing: bool,
    pub flight: Option<Flight>,
    /// How many transactions have come to their end.
    pub landed: u64,
    pub closing: bool,
    /// How many heads of others were applied.
    pub progress: u64,
    /// Followed revisions and when, oldest first: what is older than the history that is kept may go.
    pub passed: VecDeque<(Duration, EtcdRevision)>,
}

impl State {
    /// A workspace is gone since `revision`.
    pub fn forget(&mut self, workspace: &WorkspaceId, revision: EtcdRevision) {
        self.applied.remove(workspace);
        self.led.remove(workspace);
        self.doubtful.remove(workspace);
        if self.followed < revision {
            self.removed.insert(workspace.clone(), revision);
        }
    }

    /// Why this server may lead nothing now, for whoever asks.
    pub fn why_not_leading(&self) -> Error {
        match &self.no_lease {
            Some(EtcdError::NoSpace(why)) => Error::NoSpace(why.clone()),
            Some(error) => Error::Unavailable(format!("this server has no lease of etcd: {error}")),
            None => Error::Unavailable("etcd was not heard of for too long".to_owned()),
        }
    }

    /// Whether the head that was written, or removed, at `revision` is shown here already.
    pub fn has_seen(&self, workspace: &WorkspaceId, revision: EtcdRevision) -> bool {
        let seen = |at: Option<&EtcdRevision>| at.is_some_and(|at| *at >= revision);
        seen(self.applied.get(workspace)) || seen(self.removed.get(workspace))
    }

    pub fn has_followed(&mut self, revision: EtcdRevision) {
        self.followed = self.followed.max(revision);
        let followed = self.followed;
        self.removed.retain(|_, at| *at > followed);
    }
}

/// What makes this server a leader: others may take over when it has run out.
#[derive(Clone, Copy)]
pub(super) struct Lease {
    pub id: LeaseId,
    /// Until when nobody else can lead what this server leads, on the monotonic clock.
    pub until: Duration,
}

/// A transaction that was sent and whose outcome is not known.
pub(super) struct Flight {
    pub by: String,
    /// It removes the workspace.
    pub removes: bool,
    pub workspaces: HashSet<WorkspaceId>,
    /// What the follower saw of it.
    pub verdict: Option<Verdict>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It took effect at this revision.
    Landed(EtcdRevision),
    /// Another one did in its place; it never will.
    Lost,
    /// The history in which it would be seen is gone.
    Unknowable,
}

/// Who is to be asked to write to a workspace.
pub(super) enum Standing {
    Mine,
    Theirs(Registration),
    /// Somebody who has not said how it is reached, or is about to go.
    Unclear,
    Nobody,
}

/// What a shared state begins with.
pub(super) struct Parts {
    pub env: Env,
    pub etcd: Arc<OneCluster>,
    pub layout: Layout,
    pub options: Options,
    pub name: CompactString,
    pub courier: Arc<dyn Courier>,
    pub live: Live,
    pub requests: mpsc::Sender<Request>,
}

impl Shared {
    pub fn new(parts: Parts) -> Self {
        Self {
            env: parts.env,
            etcd: parts.etcd,
            layout: parts.layout,
            options: parts.options,
            name: parts.name,
            registration: Mutex::default(),
            courier: parts.courier,
            live: parts.live,
            requests: parts.requests,
            order: Mutex::default(),
            state: Mutex::default(),
            changed: Notify::new(),
            duty: watch::channel(false).0,
            heads: super::read::Heads::default(),
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Changes the state and wakes whoever waits for a change.
    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let (result, on_duty) = {
            let mut state = self.state.lock();
            let result = change(&mut state);
            (result, state.led.contains_key(&self.options.duty) && self.lease_holds(&state))
        };
        self.duty.send_if_modified(|duty| std::mem::replace(duty, on_duty) != on_duty);
        self.changed.notify_waiters();
        result
    }

    pub fn duty(&self) -> watch::Receiver<bool> {
        self.duty.subscribe()
    }

    pub fn on_duty(&self) -> bool {
        *self.duty.borrow()
    }

    pub fn is_closing(&self) -> bool {
        self.state().closing
    }

    /// Waits until `look` finds something in the state.
    pub async fn until<T>(&self, mut look: impl FnMut(&State) -> Option<T>) -> T {
        loop {
            // Registered before looking, so that no change falls in between.
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(found) = look(&self.state()) {
                return found;
            }
            changed.await;
        }
    }

    /// As [`Shared::until`], but not longer than `patience`.
    pub async fn until_or<T>(&self, patience: Duration, look: impl FnMut(&State) -> Option<T>) -> Option<T> {
        tokio::select! {
            biased;
            found = self.until(look) => Some(found),
            () = self.env.clock.sleep(patience) => None,
        }
    }

    /// Waits until the head of `workspace` that was written at `revision` is published here.
    pub async fn until_applied(&self, workspace: &WorkspaceId, revision: EtcdRevision) -> Result<(), Error> {
        let applied = |state: &State| {
            let applied = state.applied.get(workspace).is_some_and(|applied| *applied >= revision);
            // One that is gone now has been seen at that revision, too.
            (applied || state.followed >= revision).then_some(())
        };
        let found = self.until_or(self.options.patience, applied).await;
        found.ok_or_else(|| Error::Unavailable(BEHIND.to_owned()))
    }

    /// Has etcd asked how far it is, if nothing else tells that everything up to `revision` has been followed.
    pub fn await_revision(&self, revision: EtcdRevision) {
        let awaits = |state: &State| state.awaited >= revision || state.followed >= revision;
        if !awaits(&self.state()) {
            self.change(|state| state.awaited = state.awaited.max(revision));
        }
    }

    /// Waits until everything up to `revision` has been followed.
    pub async fn until_followed(&self, revision: EtcdRevision) -> Result<(), Error> {
        self.await_revision(revision);
        let followed = |state: &State| (state.followed >= revision).then_some(());
        let found = self.until_or(self.options.patience, followed).await;
        found.ok_or_else(|| Error::Unavailable(BEHIND.to_owned()))
    }

    /// Waits until what another server committed is published here; not for ever.
    pub async fn until_head(&self, workspace: &WorkspaceId, revision: Revision, arrived: Duration) {
        let reached = |_: &State| (self.live.head(workspace) >= revision).then_some(());
        if self.until_found(arrived, reached).await.is_none() {
            tracing::warn!(%workspace, "this server does not keep up with what others commit");
        }
    }

    pub fn now(&self) -> Duration {
        self.env.clock.elapsed()
    }

    pub fn standing(&self, workspace: &WorkspaceId) -> Standing {
        let state = self.state();
        if state.led.contains_key(workspace) {
            return Standing::Mine;
        }
        match state.leaders.get(workspace) {
            None => Standing::Nobody,
            // A key of an earlier lease, or one that is not followed yet.
            Some(name) if *name == self.name => Standing::Nobody,
            Some(name) => match state.servers.get(name) {
                Some(registration) => Standing::Theirs(registration.clone()),
                None => Standing::Unclear,
            },
        }
    }

    /// Whether nobody else can lead what this server leads, now.
    pub fn lease_holds(&self, state: &State) -> bool {
        state.lease.is_some_and(|lease| self.now() < lease.until) && self.etcd.replaced().is_none()
    }

    /// Until when whoever asked at `arrived` is to wait, as far as it is known now. A server that has not heard of etcd for
    /// as long as a lease does not know when it will, and others have taken over: it says so instead of waiting.
    fn hopes_until(&self, arrived: Duration) -> Duration {
        let Options { lease, grace, patience, .. } = self.options;
        let lost = self.etcd.heard() + lease;
        lost.max(arrived + grace).min(arrived + patience)
    }

    /// Whether whoever asked at `arrived` has waited for long enough.
    pub fn is_hopeless(&self, arrived: Duration) -> bool {
        self.now() >= self.hopes_until(arrived) || self.etcd.replaced().is_some()
    }

    pub async fn until_hopeless(&self, arrived: Duration) {
        while !self.is_hopeless(arrived) {
            self.env.clock.sleep(self.hopes_until(arrived).saturating_sub(self.now())).await;
        }
    }

    /// As [`Shared::until`], for as long as there is hope for whoever asked at `arrived`.
    pub async fn until_found<T>(
        &self,
        arrived: Duration,
        look: impl FnMut(&State) -> Option<T>,
    ) -> Option<T> {
        tokio::select! {
            biased;
            found = self.until(look) => Some(found),
            () = self.until_hopeless(arrived) => None,
        }
    }

    /// What whoever has waited for long enough is told; `otherwise`, if it is not etcd that is to blame.
    pub fn why_hopeless(&self, otherwise: &str) -> String {
        if let Some(why) = self.etcd.replaced() {
            return replaced(why);
        }
        let silence = self.now().saturating_sub(self.etcd.heard());
        match silence < self.options.lease {
            true => otherwise.to_owned(),
            false => format!("etcd was not heard of for {} seconds", silence.as_secs()),
        }
    }
}

/// What somebody is told whose etcd is another than it was.
pub(super) fn replaced(why: &str) -> String {
    format!(
        "etcd was replaced or restored while this server ran ({why}): the servers have to be started again"
    )
}
