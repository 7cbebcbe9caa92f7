//! What placement and sync know of each kind: its replicas and where they stand, what its pods need, what it refers
//! to, how it is divided over clusters, what of it belongs to the member, how it does, and the status of the whole.
//!
//! Kinds are rows of one table; whatever has no row has the generic one.

pub mod divide;
mod types;

pub use types::{
    ClassKind, Extent, Health, MemberStatus, NodeTerm, PreferredTerm, Problem, References, Resources, Share,
    Split, SpreadConstraint, Subject, Target, Toleration,
};
