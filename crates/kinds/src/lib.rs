//! What placement and sync know of each kind: its replicas and where they stand, what its pods need, what it refers
//! to, how it is divided over clusters, what of it belongs to the member, how it does, and the status of the whole.
//!
//! ```text
//!              subject ──► placement ──► shares
//!  object ──┤                              │
//!              split ◄─────────────────────┘
//!                │ copies                        ┌─► status of the whole
//!                ▼                               │
//!             members ──► what is known of the copies ──► health
//! ```
//!
//! Kinds are rows of one table ([`of`]); whatever has no row has the generic one ([`generic`]). Nothing here reads a
//! clock, a network or a store.

mod aggregate;
pub mod divide;
mod fields;
mod health;
mod kind;
pub mod overrides;
pub mod propagation;
pub mod running;
pub mod split;
mod subject;
mod types;

pub use aggregate::{aggregate, stamp};
pub use health::health;
pub use kind::{Kind, Pods, Row, generic, known, of};
pub use split::split;
pub use subject::subject;
pub use types::{
    ClassKind, Extent, HUB_CREDENTIALS, Health, MemberStatus, NodeTerm, PreferredTerm, Problem, References,
    Resources, Share, Split, SpreadConstraint, Subject, Target, Toleration, Travel,
};
