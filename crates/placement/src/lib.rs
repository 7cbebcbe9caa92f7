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
pub mod dialect;
pub mod directory;
pub mod policy;
mod spread;

pub use kinds::divide::{Algorithm, Division, Plan, Preference, Preferences, divide};

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
