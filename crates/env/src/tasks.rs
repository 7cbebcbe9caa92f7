//! Where long-running work runs: beside other tasks, or on a thread of its own because it blocks.

use crate::BoxFuture;

/// Starts work that outlives its caller.
pub trait Tasks: Send + Sync + 'static {
    /// Runs `work` among the other tasks; it must not block.
    fn spawn(&self, work: BoxFuture<'static, ()>);
    /// Runs `work`, which may block in file calls, where it holds nobody up: on a thread of its own. In a
    /// simulation it runs beside everything else, on the one thread there is, because simulated files never block.
    fn spawn_blocking_loop(&self, name: &str, work: BoxFuture<'static, ()>);
}

pub struct RealTasks;

impl Tasks for RealTasks {
    fn spawn(&self, work: BoxFuture<'static, ()>) {
        tokio::spawn(work);
    }

    fn spawn_blocking_loop(&self, name: &str, work: BoxFuture<'static, ()>) {
        let started = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            match tokio::runtime::Builder::new_current_thread().enable_time().build() {
                Ok(runtime) => runtime.block_on(work),
                Err(error) => tracing::error!(%error, "cannot build a runtime for a blocking loop"),
            }
        });
        if let Err(error) = started {
            // The work is dropped; whoever waits for it sees its channel closed and fails with a clear error.
            tracing::error!(%error, name, "cannot start a thread");
        }
    }
}

pub struct SimTasks;

impl Tasks for SimTasks {
    fn spawn(&self, work: BoxFuture<'static, ()>) {
        tokio::spawn(work);
    }

    fn spawn_blocking_loop(&self, _name: &str, work: BoxFuture<'static, ()>) {
        tokio::spawn(work);
    }
}
