//! Work that one server does for all: of several on one store, the one on duty.

use std::sync::Arc;

use tokio::sync::watch;

use crate::hub::{self, Hub};

/// Calls `begin` whenever this server comes on duty, with what turns true when the work is to end: with the term, or
/// with the hub. All that knows of it is gone before the next term begins.
pub fn serve(
    hub: &Arc<Hub>,
    what: &'static str,
    begin: impl Fn(watch::Receiver<bool>) + Send + Sync + 'static,
) {
    match hub.store.duty() {
        None => begin(hub.stopping.clone()),
        Some(duty) => hub.env.tasks.spawn(Box::pin(serve_terms(hub.clone(), what, begin, duty))),
    }
}

/// Has the work done for as long as this server is on duty, each time anew: what others did meanwhile it never saw.
async fn serve_terms(
    hub: Arc<Hub>,
    what: &'static str,
    begin: impl Fn(watch::Receiver<bool>) + Send + Sync + 'static,
    mut duty: watch::Receiver<bool>,
) {
    let mut stopping = hub.stopping.clone();
    loop {
        let begins = async { duty.wait_for(|on_duty| *on_duty).await.is_ok() };
        tokio::select! {
            true = begins => {}
            () = hub::stopped(&mut stopping) => return,
            else => return,
        }
        tracing::info!(what, "on duty: they run here");
        let (end, ended) = watch::channel(false);
        begin(ended);
        let ends = async { duty.wait_for(|on_duty| !*on_duty).await.is_ok() };
        tokio::select! {
            _ = ends => tracing::info!(what, "off duty: they run elsewhere"),
            // They end as `end` is dropped.
            () = hub::stopped(&mut stopping) => return,
        }
        end_term(end).await;
    }
}

/// Resolves when all that knew of `end` is gone.
async fn end_term(end: watch::Sender<bool>) {
    let _ = end.send(true);
    end.closed().await;
}

/// Does `work` until it is done or the term has ended. What is given up in the middle may be done again, by others: a
/// commit under way is made or not, and says what it expects.
pub async fn during(mut ended: watch::Receiver<bool>, work: impl Future<Output = ()>) {
    tokio::select! {
        () = work => {}
        () = hub::stopped(&mut ended) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Counts who is at work.
    struct AtWork(Arc<AtomicUsize>);

    impl AtWork {
        fn begin(count: &Arc<AtomicUsize>) -> AtWork {
            count.fetch_add(1, Ordering::SeqCst);
            AtWork(count.clone())
        }
    }

    impl Drop for AtWork {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    #[tokio::test]
    async fn a_term_has_ended_when_nobody_is_at_work_any_more() {
        const WORKERS: usize = 16;
        let count = Arc::new(AtomicUsize::new(0));
        for _ in 0..3 {
            let (end, ended) = watch::channel(false);
            for _ in 0..WORKERS {
                let count = count.clone();
                // It waits for what never comes, as work does for a store out of reach.
                let work = async move {
                    let _at_work = AtWork::begin(&count);
                    std::future::pending::<()>().await;
                };
                env::Env::real().tasks.spawn(Box::pin(during(ended.clone(), work)));
            }
            drop(ended);
            while count.load(Ordering::SeqCst) < WORKERS {
                tokio::task::yield_now().await;
            }
            end_term(end).await;
            assert_eq!(count.load(Ordering::SeqCst), 0);
        }
    }
}
