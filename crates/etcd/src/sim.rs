//! etcd in memory: the same rules, on a clock that a test holds, with faults that follow from a seed.
//!
//! ```text
//!   client "a" ── link (open, cut, faulty) ──┐
//!   client "b" ── link ──────────────────────┼── Mvcc: keys with history, leases, what each revision did
//!   client "c" ── link ──────────────────────┘
//! ```
//!
//! A link that is cut carries nothing. What was under way waits; after [`SimEtcd::set_timeout`] the caller is told that
//! there is no answer, and the link counts as broken: watches end, and new calls find nobody. There are no tasks
//! of its own but for calls on faulty links: leases run out when somebody looks.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use env::{BoxFuture, Env, random::SeededRandom};
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use crate::{Error, Etcd, LeaseId, Range, Ranged, Revision, Txn, TxnAnswer, WatchFrom, Watcher};

mod faults;
mod mvcc;
mod watcher;

pub use faults::Faults;
use faults::{Fate, Plan};
use mvcc::Mvcc;
use watcher::SimWatcher;

/// A simulated cluster. Clones are the same one.
#[derive(Clone)]
pub struct SimEtcd {
    shared: Arc<Shared>,
}

struct Shared {
    env: Env,
    random: SeededRandom,
    state: Mutex<State>,
    /// Stirs whoever waits for something to happen.
    stirred: watch::Sender<()>,
}

struct State {
    mvcc: Mvcc,
    links: BTreeMap<Arc<str>, Link>,
    timeout: Duration,
}

/// What a cluster held.
#[derive(Clone)]
pub struct Backup(Mvcc);

/// What lies between one client and the cluster.
#[derive(Clone, Copy, Default)]
struct Link {
    cut_since: Option<Duration>,
    /// Counts how often everything on it broke off; watches do not outlive that.
    breaks: u64,
    faults: Faults,
}

impl Link {
    fn is_broken(&self, now: Duration, timeout: Duration) -> bool {
        self.cut_since.is_some_and(|since| now >= since + timeout)
    }
}

impl SimEtcd {
    /// An empty cluster on the clock of `env`. What goes wrong on faulty links follows from `seed` alone.
    pub fn new(env: &Env, seed: u64) -> Self {
        let state = State { mvcc: Mvcc::new(), links: BTreeMap::new(), timeout: Duration::from_secs(2) };
        let shared = Shared {
            env: env.clone(),
            random: SeededRandom::new(seed),
            state: Mutex::new(state),
            stirred: watch::Sender::new(()),
        };
        Self { shared: Arc::new(shared) }
    }

    /// A client of its own name and link; the same name shares the link.
    pub fn client(&self, name: &str) -> Arc<dyn Etcd> {
        Arc::new(SimClient { sim: self.clone(), name: name.into() })
    }

    /// Nothing passes between this client and the cluster until [`SimEtcd::heal`].
    pub fn cut(&self, name: &str) {
        let now = self.now();
        self.change_link(name, |link, _| {
            link.cut_since.get_or_insert(now);
        });
    }

    pub fn heal(&self, name: &str) {
        let now = self.now();
        self.change_link(name, |link, timeout| {
            link.breaks += u64::from(link.is_broken(now, timeout));
            link.cut_since = None;
        });
    }

    /// From now on this befalls the calls of this client.
    pub fn set_faults(&self, name: &str, faults: Faults) {
        self.change_link(name, |link, _| link.faults = faults);
    }

    /// Ends all watches of this client, as a member does that stops.
    pub fn end_watches(&self, name: &str) {
        self.change_link(name, |link, _| link.breaks += 1);
    }

    /// Another member leads: watches end, and leases run from now on, because it does not know when they were last
    /// kept alive.
    pub fn change_leader(&self) {
        let now = self.now();
        let mut state = self.state();
        state.mvcc.extend_leases(now);
        state.links.values_mut().for_each(|link| link.breaks += 1);
        drop(state);
        self.shared.stirred.send_replace(());
    }

    /// The quota is used up, or no longer: nothing can be put, or granted.
    pub fn set_full(&self, full: bool) {
        self.state().mvcc.full = full;
    }

    /// The next transaction that puts something uses the quota up: it is carried out, and answered with
    /// [`Error::NoSpace`].
    pub fn fill_with_next(&self) {
        self.state().mvcc.fills_next = true;
    }

    /// All that it holds now.
    pub fn back_up(&self) -> Backup {
        Backup(self.state().mvcc.clone())
    }

    /// Takes the place of all that it holds, as when members are stopped and started on a backup.
    pub fn restore(&self, backup: Backup) {
        let now = self.now();
        let mut state = self.state();
        state.mvcc = backup.0;
        state.mvcc.extend_leases(now);
        state.links.values_mut().for_each(|link| link.breaks += 1);
        drop(state);
        self.shared.stirred.send_replace(());
    }

    /// How long callers wait for an answer.
    pub fn set_timeout(&self, timeout: Duration) {
        self.state().timeout = timeout;
    }

    /// The revision that the store is at.
    pub fn revision(&self) -> Revision {
        self.state().mvcc.revision()
    }

    fn now(&self) -> Duration {
        self.shared.env.clock.elapsed()
    }

    /// The state, with the leases gone that have run out.
    fn state(&self) -> parking_lot::MutexGuard<'_, State> {
        let mut state = self.shared.state.lock();
        if state.mvcc.expire(self.now()) {
            self.shared.stirred.send_replace(());
        }
        state
    }

    fn change_link(&self, name: &str, change: impl FnOnce(&mut Link, Duration)) {
        let mut state = self.state();
        let timeout = state.timeout;
        change(state.links.entry(name.into()).or_default(), timeout);
        drop(state);
        self.shared.stirred.send_replace(());
    }

    fn act<T>(&self, act: impl FnOnce(&mut Mvcc, Duration) -> Result<T, Error>) -> Result<T, Error> {
        let now = self.now();
        let mut state = self.state();
        let before = state.mvcc.revision();
        let done = act(&mut state.mvcc, now);
        let wrote = state.mvcc.revision() != before;
        drop(state);
        if wrote {
            self.shared.stirred.send_replace(());
        }
        done
    }
}

#[derive(Clone)]
struct SimClient {
    sim: SimEtcd,
    name: Arc<str>,
}

impl SimClient {
    fn link(&self) -> (Link, Duration) {
        let mut state = self.sim.state();
        (*state.links.entry(self.name.clone()).or_default(), state.timeout)
    }

    /// Makes a call. It goes on if the caller stops waiting for it, as one that was sent does.
    fn call<T: Send + 'static>(
        &self,
        is_beat: bool,
        act: impl FnOnce(&mut Mvcc, Duration) -> Result<T, Error> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, Error>> {
        let client = self.clone();
        Box::pin(async move {
            let (link, timeout) = client.link();
            if link.cut_since.is_none() && link.faults == Faults::NONE {
                // Others get their turn, as they do whenever something goes over a wire.
                tokio::task::yield_now().await;
                return client.sim.act(act);
            }
            let env = client.sim.shared.env.clone();
            if link.is_broken(env.clock.elapsed(), timeout) {
                env.clock.sleep(timeout).await;
                return Err(Error::Unreachable("dialling took too long".into()));
            }
            let plan = link.faults.plan(&client.sim.shared.random, is_beat);
            let (sender, answer) = oneshot::channel();
            env.tasks.spawn(Box::pin(client.travel(plan, act, sender)));
            tokio::select! {
                biased;
                Ok(answer) = answer => answer,
                () = env.clock.sleep(timeout) => Err(Error::Uncertain("the call took too long".into())),
            }
        })
    }

    async fn travel<T>(
        self,
        plan: Plan,
        act: impl FnOnce(&mut Mvcc, Duration) -> Result<T, Error>,
        answer: oneshot::Sender<Result<T, Error>>,
    ) {
        let clock = self.sim.shared.env.clock.clone();
        if !self.passes(plan.there).await {
            // Held so long: the caller is to run into its timeout.
            clock.sleep(self.link().1).await;
            return;
        }
        let broken = || Err(Error::Uncertain("the connection was closed".into()));
        let told = match plan.fate {
            Fate::Answered => self.sim.act(act),
            Fate::Filling => self.sim.act(|mvcc, now| mvcc.filled_by(|mvcc| act(mvcc, now))),
            Fate::Unreachable => Err(Error::Unreachable("the connection was refused".into())),
            Fate::Lost => broken(),
            Fate::Unanswered => {
                let _ = self.sim.act(act);
                broken()
            }
            Fate::Late(by) => {
                let _ = answer.send(broken());
                clock.sleep(by).await;
                let _ = self.sim.act(act);
                return;
            }
        };
        if self.passes(plan.back).await {
            let _ = answer.send(told);
        } else {
            clock.sleep(self.link().1).await;
        }
    }

    /// Waits until something has come over the link; `false` if the link broke before.
    async fn passes(&self, delay: Duration) -> bool {
        let clock = self.sim.shared.env.clock.clone();
        let mut stirred = self.sim.shared.stirred.subscribe();
        let breaks = self.link().0.breaks;
        clock.sleep(delay).await;
        loop {
            let (link, timeout) = self.link();
            let Some(since) = link.cut_since else { return link.breaks == breaks };
            let broken_at = since + timeout;
            let Some(left) = broken_at.checked_sub(clock.elapsed()).filter(|left| !left.is_zero()) else {
                return false;
            };
            tokio::select! {
                biased;
                _ = stirred.changed() => {}
                () = clock.sleep(left) => {}
            }
        }
    }
}

impl Etcd for SimClient {
    fn range(&self, range: Range) -> BoxFuture<'static, Result<Ranged, Error>> {
        self.call(false, move |mvcc, _| mvcc.range(&range))
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'static, Result<TxnAnswer, Error>> {
        self.call(false, move |mvcc, _| mvcc.txn(&txn))
    }

    fn watch(&self, watch: WatchFrom) -> BoxFuture<'static, Result<Box<dyn Watcher>, Error>> {
        let client = self.clone();
        let is_empty = watch.keys.bounds().is_none();
        let accepted = self.call(false, move |mvcc, _| match is_empty {
            true => Err(Error::Refused("watcher range is empty".into())),
            false => Ok(mvcc.revision()),
        });
        Box::pin(async move {
            // It has no effect whether or not the answer arrives.
            let revision = accepted.await?;
            let from = if watch.from == 0 { revision + 1 } else { watch.from };
            Ok(Box::new(SimWatcher::new(client, watch.keys, from)) as Box<dyn Watcher>)
        })
    }

    fn grant(&self, ttl: Duration) -> BoxFuture<'static, Result<LeaseId, Error>> {
        let lease = LeaseId(faults::lease_id(&self.sim.shared.random));
        self.call(false, move |mvcc, now| mvcc.grant(lease, ttl, now).map(|()| lease))
    }

    fn keep_alive(&self, lease: LeaseId) -> BoxFuture<'static, Result<Duration, Error>> {
        self.call(true, move |mvcc, now| mvcc.keep_alive(lease, now))
    }

    fn revoke(&self, lease: LeaseId) -> BoxFuture<'static, Result<(), Error>> {
        self.call(false, move |mvcc, _| mvcc.revoke(lease))
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'static, Result<(), Error>> {
        self.call(false, move |mvcc, _| mvcc.compact(revision))
    }
}

#[cfg(test)]
mod tests;
