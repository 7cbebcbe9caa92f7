//! Whose turn it is to have a key made. That takes long, and a processor for itself: one is made at a time, by whoever
//! waits longest; a workspace has one turn at a time, so that none of them makes the others wait for many; and when too
//! many wait, the next is told to come again.

use std::{collections::HashMap, sync::Arc};

use env::Tasks;
use machinery::status::{Reason, Status};
use parking_lot::Mutex;
use store::WorkspaceId;
use tokio::sync::{Mutex as Lock, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore, oneshot};

/// So many workspaces wait for keys at once.
const MOST_WAITING: usize = 256;

pub struct Making {
    locks: Mutex<HashMap<WorkspaceId, Arc<Lock<()>>>>,
    /// One at a time.
    turns: Arc<Semaphore>,
    waiting: Semaphore,
}

impl Default for Making {
    fn default() -> Self {
        Making {
            locks: Mutex::default(),
            turns: Arc::new(Semaphore::new(1)),
            waiting: Semaphore::new(MOST_WAITING),
        }
    }
}

/// The keys of one workspace are nobody else's to change.
pub struct Alone(#[allow(dead_code, reason = "it is held")] OwnedMutexGuard<()>);

/// Nobody else has a key made.
pub struct Turn {
    alone: Alone,
    _turn: OwnedSemaphorePermit,
}

impl Turn {
    pub fn end(self) -> Alone {
        self.alone
    }
}

fn busy(message: &str) -> Status {
    Status::new(Reason::TooManyRequests, message).retry_after(1)
}

impl Making {
    fn lock(&self, workspace: &WorkspaceId) -> Arc<Lock<()>> {
        let mut locks = self.locks.lock();
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        locks.entry(workspace.clone()).or_default().clone()
    }

    /// When those before have finished.
    pub async fn alone(&self, workspace: &WorkspaceId) -> Alone {
        Alone(self.lock(workspace).lock_owned().await)
    }

    /// 429 if somebody is at it.
    pub fn alone_now(&self, workspace: &WorkspaceId) -> Result<Alone, Status> {
        let lock = self.lock(workspace).try_lock_owned();
        lock.map(Alone).map_err(|_| busy("a key of the workspace is being made; try again when it is"))
    }

    /// Waits for the others, unless they are too many.
    pub async fn turn(&self, alone: Alone) -> Result<Turn, Status> {
        let _waiting =
            self.waiting.try_acquire().map_err(|_| busy("too many workspaces wait for keys; try again"))?;
        let turn = self.turns.clone().acquire_owned().await.map_err(Status::internal)?;
        Ok(Turn { alone, _turn: turn })
    }
}

/// Does `work` on a thread of its own. The turn is with the work: whoever waits may go away, and the next begins
/// when the work is done all the same.
pub async fn on_a_thread<T: Send + 'static>(
    tasks: &dyn Tasks,
    turn: Turn,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<(T, Turn)> {
    let (done, outcome) = oneshot::channel();
    let work = async move {
        let made = work();
        // Whoever asked may have gone.
        let _ = done.send((made, turn));
    };
    tasks.spawn_blocking_loop("make-key", Box::pin(work));
    outcome.await.ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures_util::FutureExt;

    use super::*;

    fn workspace(name: &str) -> WorkspaceId {
        WorkspaceId(name.into())
    }

    #[tokio::test]
    async fn a_workspace_has_one_turn_and_the_next_is_anothers() {
        let making = Making::default();
        let first = making.alone_now(&workspace("a")).unwrap();
        let refusal = making.alone_now(&workspace("a")).err().unwrap();
        assert_eq!((refusal.code(), refusal.retry_after_seconds()), (429, Some(1)));
        assert!(making.alone(&workspace("a")).now_or_never().is_none());
        let first = making.turn(first).await.unwrap();
        let second = making.alone_now(&workspace("b")).unwrap();
        let mut second = Box::pin(making.turn(second));
        assert!((&mut second).now_or_never().is_none(), "one key is made at a time");
        let alone = first.end();
        assert!((&mut second).now_or_never().is_some());
        drop((alone, second));
        assert!(making.alone_now(&workspace("a")).is_ok());
        assert_eq!(making.locks.lock().len(), 1, "the others are forgotten");
    }

    #[tokio::test]
    async fn who_goes_away_keeps_the_turn_until_the_work_is_done() {
        let making = Making::default();
        let (finish, wait) = mpsc::channel::<()>();
        let turn = making.turn(making.alone_now(&workspace("a")).unwrap()).await.unwrap();
        let tasks = env::Env::real().tasks;
        let mut asking = Box::pin(on_a_thread(&*tasks, turn, move || wait.recv()));
        assert!((&mut asking).now_or_never().is_none());
        drop(asking);
        assert!(making.alone_now(&workspace("a")).is_err());
        let other = making.alone_now(&workspace("b")).unwrap();
        let mut other = Box::pin(making.turn(other));
        assert!((&mut other).now_or_never().is_none());
        finish.send(()).unwrap();
        assert!(other.await.is_ok());
        making.alone(&workspace("a")).await;
    }

    #[tokio::test]
    async fn too_many_are_told_to_come_again() {
        let making = Making::default();
        let _first = making.turn(making.alone(&workspace("first")).await).await.unwrap();
        let mut waiting = Vec::new();
        for number in 0..MOST_WAITING {
            let alone = making.alone(&workspace(&number.to_string())).await;
            let mut turn = Box::pin(making.turn(alone));
            assert!((&mut turn).now_or_never().is_none());
            waiting.push(turn);
        }
        let refusal = making.turn(making.alone(&workspace("last")).await).await.err().unwrap();
        assert_eq!(refusal.code(), 429);
        waiting.pop();
        assert!(making.turn(making.alone(&workspace("last")).await).now_or_never().is_none());
    }
}
