//! Where a write spends its time.

use std::time::Duration;

use env::Clock;
use prometheus_client::encoding::EncodeLabelSet;

use super::Metrics;

/// A part of answering a write, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// From bytes to a checked tree; for a patch, up to the patched object.
    Decode,
    /// Defaults, and what only the server sets.
    Prepare,
    /// Who set which field.
    Track,
    /// Validation.
    Check,
    /// What others say about it: policies, webhooks, quotas.
    Admit,
    Encode,
    /// Until it is durable and visible.
    Commit,
}

impl Stage {
    pub(super) const ALL: [Stage; 7] = [
        Stage::Decode,
        Stage::Prepare,
        Stage::Track,
        Stage::Check,
        Stage::Admit,
        Stage::Encode,
        Stage::Commit,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Stage::Decode => "decode",
            Stage::Prepare => "prepare",
            Stage::Track => "track",
            Stage::Check => "check",
            Stage::Admit => "admit",
            Stage::Encode => "encode",
            Stage::Commit => "commit",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct StageLabels {
    pub stage: &'static str,
}

/// Times the stages of one write.
pub struct Stopwatch<'a> {
    clock: &'a dyn Clock,
    metrics: &'a Metrics,
    last: Duration,
}

impl<'a> Stopwatch<'a> {
    pub fn start(clock: &'a dyn Clock, metrics: &'a Metrics) -> Self {
        metrics.writes.inc();
        Self { clock, metrics, last: clock.elapsed() }
    }

    /// What was done since the last call was `stage`.
    pub fn lap(&mut self, stage: Stage) {
        let now = self.clock.elapsed();
        self.metrics.stages[stage as usize].inc_by(now.saturating_sub(self.last).as_secs_f64());
        self.last = now;
    }
}
