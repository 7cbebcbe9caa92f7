//! What expressions may spend: each by itself, those that are evaluated together, and all of one request.
//!
//! ```text
//!   RequestBudget ──> Allowance of a policy's expressions with one set of parameters ──> cel::Budget of one expression
//!                     (upstream's bound)                                                 (upstream's bound)
//! ```
//!
//! Upstream looks at what was spent when an expression has ended. Here an expression ends when what is left for all is
//! spent; what it answered would not count any more.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use cel::{Budget, MAX_STEPS, PER_CALL_LIMIT};

/// What all expressions of one binding may cost together for one set of parameters.
pub const BUDGET: u64 = 10_000_000;
/// What all match conditions may cost together.
pub const CONDITIONS_BUDGET: u64 = 2_500_000;
/// What all policies may cost together for one request: as much as ten bindings that spend all they may.
pub const REQUEST_BUDGET: u64 = 10 * BUDGET;
const REQUEST_STEPS: u64 = 5 * MAX_STEPS;

/// What is left for a request, whichever policies it concerns and however many parameters they have.
#[derive(Debug)]
pub struct RequestBudget {
    cost: AtomicU64,
    steps: AtomicU64,
}

impl Default for RequestBudget {
    fn default() -> Self {
        RequestBudget::new(REQUEST_BUDGET)
    }
}

impl RequestBudget {
    pub fn new(cost: u64) -> Self {
        RequestBudget { cost: AtomicU64::new(cost), steps: AtomicU64::new(REQUEST_STEPS) }
    }

    fn take(&self, budget: &Budget) {
        let take =
            |from: &AtomicU64, spent: u64| from.store(from.load(Relaxed).saturating_sub(spent), Relaxed);
        take(&self.cost, budget.spent());
        take(&self.steps, budget.steps());
    }
}

/// What is left for expressions that are evaluated together, with the variables that they look at.
#[derive(Debug)]
pub struct Allowance<'a> {
    cost: Cell<u64>,
    steps: Cell<u64>,
    is_overdrawn: Cell<bool>,
    request: &'a RequestBudget,
}

impl<'a> Allowance<'a> {
    pub fn new(cost: u64, request: &'a RequestBudget) -> Self {
        Allowance {
            cost: Cell::new(cost.min(request.cost.load(Relaxed))),
            steps: Cell::new(MAX_STEPS.min(request.steps.load(Relaxed))),
            is_overdrawn: Cell::new(false),
            request,
        }
    }

    /// For one expression.
    pub fn budget(&self) -> Budget {
        Budget::within(PER_CALL_LIMIT.min(self.cost.get()), self.steps.get())
    }

    /// Takes off what an expression has spent.
    pub fn charge(&self, spent: &Budget) {
        let rest = self.cost.get().checked_sub(spent.spent());
        self.is_overdrawn.set(self.is_overdrawn.get() || rest.is_none());
        self.cost.set(rest.unwrap_or(0));
        self.steps.set(self.steps.get().saturating_sub(spent.steps()));
        self.request.take(spent);
    }

    /// Whether more was spent than there was.
    pub fn is_overdrawn(&self) -> bool {
        self.is_overdrawn.get()
    }
}
