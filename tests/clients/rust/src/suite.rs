//! Runs named checks and reports each on a line of its own.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};

/// No check may take longer, however slow the machine. The real garbage collector looks for new kinds only twice a
/// minute.
const LIMIT: Duration = Duration::from_secs(80);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Default)]
pub struct Suite {
    passed: usize,
    failed: usize,
}

impl Suite {
    pub async fn run(&mut self, name: &str, check: impl Future<Output = Result<()>>) {
        let outcome = tokio::time::timeout(LIMIT, check)
            .await
            .unwrap_or_else(|_| Err(anyhow::anyhow!("took longer than {LIMIT:?}")));
        match outcome {
            Ok(()) => {
                self.passed += 1;
                println!("ok {name}");
            }
            Err(error) => {
                self.failed += 1;
                println!("FAILED {name}: {error:#}");
            }
        }
    }

    /// Prints the counts and ends the program.
    pub fn finish(self) -> ! {
        println!("{} passed, {} failed", self.passed, self.failed);
        std::process::exit(i32::from(self.failed > 0 || self.passed == 0));
    }
}

/// Asks until the answer is yes.
pub async fn eventually(otherwise: &str, mut holds: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let deadline = tokio::time::Instant::now() + LIMIT - Duration::from_secs(10);
    while !holds().await? {
        if tokio::time::Instant::now() > deadline {
            bail!("{otherwise}");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// A name that no earlier run has used, whose namespace may still be going away.
pub fn unique(prefix: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{prefix}-{:08x}", now.as_millis() & 0xffff_ffff)
}
