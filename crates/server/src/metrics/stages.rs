//! Where a write spends its time.

use std::time::Duration;

use env::Clock;
use prometheus_client::encoding::EncodeLabelSet;

use super::Metrics;
use crate::trace;

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

    /// What a request's span calls it.
    pub fn field(self) -> &'static str {
        match self {
            Stage::Decode => "stage.decode",
            Stage::Prepare => "stage.prepare",
            Stage::Track => "stage.track",
            Stage::Check => "stage.check",
            Stage::Admit => "stage.admit",
            Stage::Encode => "stage.encode",
            Stage::Commit => "stage.commit",
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
    /// How long each stage took in all.
    spent: [Duration; Stage::ALL.len()],
}

impl<'a> Stopwatch<'a> {
    pub fn start(clock: &'a dyn Clock, metrics: &'a Metrics) -> Self {
        metrics.writes.inc();
        Self { clock, metrics, last: clock.elapsed(), spent: Default::default() }
    }

    /// What was done since the last call was `stage`.
    pub fn lap(&mut self, stage: Stage) {
        let now = self.clock.elapsed();
        let took = now.saturating_sub(self.last);
        self.metrics.stages[stage as usize].inc_by(took.as_secs_f64());
        self.spent[stage as usize] += took;
        self.last = now;
    }
}

impl Drop for Stopwatch<'_> {
    /// A stage can come more than once; the request's span has the sums.
    fn drop(&mut self) {
        if trace::is_on() {
            for stage in Stage::ALL {
                trace::record_micros(stage.field(), self.spent[stage as usize]);
            }
        }
    }
}
