//! Where things run: which clusters, how divided, and why.
//!
//! Pure: a decision is a function of what it is given, and a value that can be printed.
//!
//! ```text
//!   Input ─► resolve ─► select ─────► divide ─────────► Decision ─► explain
//!            whose      each cluster:  shares within     clusters,    per cluster:
//!            policy     may it, how    bounds, room      shares,      verdict, score,
//!            counts     well, room     and spread        reserved     what would change it
//! ```

pub mod cluster;
mod decide;
pub mod dialect;
mod directory;
mod explain;
mod fields;
pub mod follow;
mod home;
mod input;
mod parts;
mod place;
mod policies;
pub mod policy;
mod resolve;
mod select;
mod spread;

pub use cluster::Cluster;
pub use decide::{Confined, Decision, Outcome, decide};
pub use directory::Directory;
pub use explain::{ClusterExplanation, ClusterVerdict, Explanation, ScoreExplanation};
pub use fields::Fields;
pub use input::{Input, Namespace};
pub use kinds::divide::{Algorithm, Division, Plan, Preference, Preferences, divide};
pub use policies::Policies;
pub use policy::{Choice, Policy, Rule, Strategy};
pub use resolve::{CLUSTERS, Layer, Means, PLACEMENT, Resolved, resolve};
pub use select::{Objection, Score, Stance, Verdict, Verdicts, feasible, select};

/// Says why what a user wrote cannot be followed. Nothing moves because of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("placement {name:?}: {reason}")]
    Policy { name: String, reason: String },
    #[error("annotation {name}: {reason}")]
    Annotation { name: String, reason: String },
    #[error("there is no placement {0:?}")]
    NoPolicy(String),
}
