//! A batch: writes that are charged and committed together.
//!
//! They are judged in the order in which they came, each as if those before it were committed already. Whoever does not
//! fit is told when that is so; until then it may turn out that one before it was not committed at all.

use std::{borrow::Borrow, collections::VecDeque, sync::Arc};

use machinery::{
    Object,
    admission::quota::{self, Quota},
    status::Status,
};
use store::{Commit, Committed, Error, Key};
use tokio::sync::oneshot;

use super::Charge;
use crate::{
    hub::Hub,
    space::Space,
    write::{ATTEMPTS, refused_by_store},
};

/// One write that is to be charged, and who waits for it.
pub struct Waiting {
    pub charge: Charge,
    /// Without the quotas.
    pub commit: Commit,
    pub reply: oneshot::Sender<Outcome>,
}

/// What became of a write.
pub enum Outcome {
    Committed(Committed),
    /// Something was not as expected; nothing was changed. Read again and decide again.
    Overtaken,
    /// It does not fit into a quota, which says why.
    Over(String),
    Refused(Status),
}

impl Waiting {
    /// Nobody hears it who does not wait any more.
    fn answer(self, outcome: Outcome) {
        let _ = self.reply.send(outcome);
    }

    /// Whether it depends on what is at `key`.
    fn minds(&self, key: &Key) -> bool {
        let Commit { guards, writes } = &self.commit;
        guards.iter().any(|(guard, _)| guard == key) || writes.iter().any(|write| write.key == *key)
    }
}

/// A write, and why it does not fit, if it does not.
type Judged = (Waiting, Option<String>);

/// What is to be done after an attempt.
enum After {
    Nothing,
    /// Something was not as expected: these are judged again.
    Again(Vec<Waiting>),
    /// They cannot be committed together, but some may be by themselves.
    Each(Vec<Waiting>),
}

/// Commits all that fit, and answers everybody.
pub async fn write(hub: &Hub, space: &Space, namespace: &str, batch: Vec<Waiting>) {
    // Every time one is overtaken there is one less, and quotas change as often as for a write by itself.
    let mut attempts = ATTEMPTS + batch.len();
    let mut groups = VecDeque::from([batch]);
    while let Some(group) = groups.pop_front() {
        match attempt(hub, space, namespace, group).await {
            After::Nothing => {}
            After::Again(rest) if attempts == 0 => answer_all(rest, || Outcome::Overtaken),
            After::Again(rest) => {
                attempts -= 1;
                groups.push_front(rest);
            }
            After::Each(rest) => groups.extend(rest.into_iter().map(|one| vec![one])),
        }
    }
}

fn answer_all(group: Vec<Waiting>, outcome: impl Fn() -> Outcome) {
    group.into_iter().for_each(|waiting| waiting.answer(outcome()));
}

async fn attempt(hub: &Hub, space: &Space, namespace: &str, group: Vec<Waiting>) -> After {
    let mut ledger = Ledger::read(hub, space, namespace);
    let judged = ledger.judge(group);
    if judged.iter().all(|(_, over)| over.is_some()) {
        settle(judged, Vec::new());
        return After::Nothing;
    }
    let commit = match ledger.commit(&judged) {
        Ok(commit) => commit,
        Err(status) => {
            refuse(judged, &status);
            return After::Nothing;
        }
    };
    let waiting = |judged: Vec<Judged>| judged.into_iter().map(|(waiting, _)| waiting).collect();
    match space.store().commit(space.id(), commit).await {
        Ok(committed) => {
            let fitting = judged.iter().filter(|(_, over)| over.is_none()).count();
            hub.metrics.quota.charged.inc_by(fitting as u64);
            hub.metrics.quota.commits.inc();
            settle(judged, committed);
            After::Nothing
        }
        Err(Error::Conflict { key, .. }) => {
            let (overtaken, rest): (Vec<Judged>, Vec<Judged>) =
                judged.into_iter().partition(|(waiting, over)| over.is_none() && waiting.minds(&key));
            answer_all(waiting(overtaken), || Outcome::Overtaken);
            After::Again(waiting(rest))
        }
        Err(Error::Full { .. } | Error::Invalid(_)) if judged.len() > 1 => After::Each(waiting(judged)),
        Err(error) => {
            refuse(judged, &refused_by_store(hub, error));
            After::Nothing
        }
    }
}

/// Tells everybody what became of it, once that is so.
fn settle(judged: Vec<Judged>, committed: Vec<Committed>) {
    let mut committed = committed.into_iter();
    for (waiting, over) in judged {
        let outcome = match over {
            Some(why) => Outcome::Over(why),
            None => {
                // The first is the object itself.
                let own = committed.by_ref().take(waiting.commit.writes.len()).collect::<Vec<_>>();
                own.into_iter().next().map_or(Outcome::Overtaken, Outcome::Committed)
            }
        };
        waiting.answer(outcome);
    }
}

/// The store took nothing of it, or it is not known whether it did.
fn refuse(judged: Vec<Judged>, status: &Status) {
    for (waiting, over) in judged {
        waiting.answer(match over {
            None => Outcome::Refused(status.clone()),
            // Whether it fits depends on those who were refused.
            Some(_) => Outcome::Overtaken,
        });
    }
}

/// The quotas of a namespace while a batch is charged to them.
struct Ledger(Vec<Line>);

struct Line {
    object: Arc<Object>,
    quota: Quota,
    is_charged: bool,
}

impl Borrow<Quota> for Line {
    fn borrow(&self) -> &Quota {
        &self.quota
    }
}

impl Ledger {
    fn read(hub: &Hub, space: &Space, namespace: &str) -> Ledger {
        let line = |(object, quota): (Arc<Object>, Arc<Quota>)| Line {
            object,
            quota: Arc::unwrap_or_clone(quota),
            is_charged: false,
        };
        Ledger(hub.quotas.of(space, namespace).into_iter().map(line).collect())
    }

    /// Charges all that fit. Those whose quotas are others by now are told to look again.
    fn judge(&mut self, group: Vec<Waiting>) -> Vec<Judged> {
        let mut judged = Vec::with_capacity(group.len());
        for waiting in group {
            if !self.is_as(&waiting.charge.seen) {
                waiting.answer(Outcome::Overtaken);
                continue;
            }
            let over = self.charge(&waiting.charge).err();
            judged.push((waiting, over));
        }
        judged
    }

    fn is_as(&self, seen: &[Arc<Quota>]) -> bool {
        seen.len() == self.0.len() && self.0.iter().zip(seen).all(|(line, seen)| line.quota.is_as(seen))
    }

    fn charge(&mut self, charge: &Charge) -> Result<(), String> {
        let used = charge.demand.charge(&self.0)?;
        for (line, used) in self.0.iter_mut().zip(used) {
            if let Some(used) = used {
                line.quota.used = used;
                line.is_charged = true;
            }
        }
        Ok(())
    }

    /// The objects that fit, in their order, and then the quotas.
    fn commit(&self, judged: &[Judged]) -> Result<Commit, Status> {
        let mut commit = Commit::default();
        for (waiting, _) in judged.iter().filter(|(_, over)| over.is_none()) {
            for guard in &waiting.commit.guards {
                // Most are the same: that the namespace is there.
                if !commit.guards.contains(guard) {
                    commit.guards.push(guard.clone());
                }
            }
            commit.writes.extend_from_slice(&waiting.commit.writes);
        }
        for line in self.0.iter().filter(|line| line.is_charged) {
            let mut tree = line.object.tree().map_err(Status::internal)?;
            quota::set_status(&mut tree, "used", &line.quota.used);
            commit.writes.push(super::write(&line.object, &tree)?);
        }
        Ok(commit)
    }
}
