//! What evaluation costs: counted while it runs, and estimated before.

mod estimate;
mod rules;

pub use estimate::{Cost, NoSizes, Node, Size, SizeEstimator, estimate};
pub(crate) use rules::{Rule, rule};

/// The cost of looking at one character of a string.
pub(crate) const STRING_FACTOR: f64 = 0.1;
/// The cost of one character of a regular expression for each character it is matched with.
pub(crate) const REGEX_FACTOR: f64 = 0.25;
