//! How long tests wait. A busy machine may take any time for anything, so what a test waits for may take as long as it
//! likes while something moves; only a standstill is a failure.

use std::{ops::ControlFlow, time::Duration};

use anyhow::Result;
use tokio::time::Instant;

/// How long nothing may move before a wait is given up. A promise of nobody's: it is there so that tests end.
pub const STANDSTILL: Duration = Duration::from_secs(120);

/// Of one wait: what was seen last, and since when it is the same.
pub struct Patience<P> {
    seen: Option<P>,
    since: Instant,
}

impl<P> Default for Patience<P> {
    fn default() -> Self {
        Self { seen: None, since: Instant::now() }
    }
}

impl<P: PartialEq> Patience<P> {
    /// Whether to wait on, now that this is how far it is.
    pub fn lasts(&mut self, progress: P) -> bool {
        if self.seen.as_ref() != Some(&progress) {
            *self = Self { seen: Some(progress), since: Instant::now() };
        }
        self.since.elapsed() < STANDSTILL
    }
}

/// Asks until the answer is yes; gives up when it has been no for too long.
///
/// # Errors
/// What went wrong in asking, or that it did not come to pass.
pub async fn eventually<F, T>(what: &str, mut ask: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
{
    while_it_moves(what, || {
        let asked = ask();
        async move { Ok(asked.await?.map_or(ControlFlow::Continue(()), ControlFlow::Break)) }
    })
    .await
}

/// Asks until the answer is yes, for as long as it gets any further: an answer that is not yes says how far it is.
///
/// # Errors
/// What went wrong in asking, or that it came to a standstill.
pub async fn while_it_moves<F, T, P: PartialEq>(what: &str, mut ask: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<ControlFlow<T, P>>>,
{
    let mut patience = Patience::default();
    loop {
        match ask().await? {
            ControlFlow::Break(found) => return Ok(found),
            ControlFlow::Continue(progress) => {
                anyhow::ensure!(patience.lasts(progress), "it did not come to pass: {what}");
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wait_lasts_while_something_moves() {
        let (start, mut steps) = (Instant::now(), 0);
        let slow = while_it_moves("slow", || {
            steps += 1;
            let step = steps;
            async move {
                tokio::time::sleep(STANDSTILL / 2).await;
                Ok(if step < 10 { ControlFlow::Continue(step) } else { ControlFlow::Break(step) })
            }
        });
        assert_eq!(slow.await.expect("it moved"), 10);
        assert!(start.elapsed() > 4 * STANDSTILL);
    }

    #[tokio::test(start_paused = true)]
    async fn a_standstill_ends_it_and_says_what_was_waited_for() {
        let never = eventually("the impossible", || async { Ok(None::<()>) }).await;
        assert_eq!(never.expect_err("it stood still").to_string(), "it did not come to pass: the impossible");
    }
}
