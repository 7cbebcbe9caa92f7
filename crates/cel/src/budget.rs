//! What an evaluation may spend.

use crate::error::{Eval, EvalError};

/// The most an evaluation of one expression costs in Kubernetes.
pub const PER_CALL_LIMIT: u64 = 1_000_000;

/// Comparing two values costs as much as their outermost lists are long, however deep they share parts of each other.
/// This many steps of such work are allowed beside the cost, so that no expression runs for ever.
pub const MAX_STEPS: u64 = 20_000_000;
/// The longest string and the longest list one function makes; more would cost more memory than the cost counts.
const MAX_MADE: u64 = 32 << 20;

/// Counts the cost of an evaluation and ends it at the limit.
#[derive(Debug, Clone)]
pub struct Budget {
    limit: u64,
    spent: u64,
    steps: u64,
    max_steps: u64,
}

impl Budget {
    pub fn new(limit: u64) -> Self {
        Budget::within(limit, MAX_STEPS)
    }

    /// With so many steps of work that cost does not count.
    pub fn within(limit: u64, max_steps: u64) -> Self {
        Budget { limit, spent: 0, steps: 0, max_steps }
    }

    /// What was spent so far.
    pub fn spent(&self) -> u64 {
        self.spent
    }

    /// The steps of work that were done beside the cost.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    pub(crate) fn charge(&mut self, cost: u64) -> Eval<()> {
        self.spent = self.spent.saturating_add(cost);
        if self.spent > self.limit { Err(EvalError::cost_limit()) } else { Ok(()) }
    }

    /// A step of work that cost does not count.
    pub(crate) fn step(&mut self) -> Eval<()> {
        self.steps += 1;
        if self.steps > self.max_steps { Err(EvalError::cost_limit()) } else { Ok(()) }
    }

    /// Ends the evaluation now if a cost that is charged later would end it then.
    pub(crate) fn affords(&mut self, cost: u64) -> Eval<()> {
        let spent = self.spent.saturating_add(cost);
        if spent <= self.limit {
            return Ok(());
        }
        self.spent = spent;
        Err(EvalError::cost_limit())
    }

    /// Whether something so large may be made.
    pub(crate) fn room(&self, size: u64) -> Eval<()> {
        if size > MAX_MADE { Err(EvalError::cost_limit()) } else { Ok(()) }
    }
}

impl Default for Budget {
    fn default() -> Self {
        Budget::new(PER_CALL_LIMIT)
    }
}
