//! Sessions with member clusters: one per `Cluster`, inside the peer that looks after it.
//!
//! ```text
//!   Cluster, Secret ──> sessions ──> session ──> client ═══ HTTPS ═══> member
//!   (hub's store)       (who has      │  health     probe: is it there, is it the one that was joined
//!                        one)         │  reflect    lists and watches: namespaces, nodes, pods, …
//!                                     │  apis       what it serves, and which fields it lacks
//!                                     v
//!          status of the Cluster, virtual Node, Events <── report     views: objects of members in workspaces
//! ```
//!
//! A session has its own connection, time limits and backoff, and shares nothing with the others that it could hold up.
//! What a member sends is bounded; what it does not send is never taken for a deletion.

mod apis;
mod capacity;
mod claims;
pub mod clear;
pub mod client;
mod conditions;
mod copies;
mod fields;
mod guests;
mod health;
mod homes;
pub mod join;
pub mod kubeconfig;
mod labels;
mod node;
mod objects;
mod reflect;
mod report;
mod rights;
mod room;
mod session;
mod sessions;
mod shown;
mod sinks;
pub mod tokens;
pub mod unjoin;
mod unscheduled;
mod wanted;

pub use sessions::{Options, start};

/// The namespace, in hubs and in members, that holds what Hanse itself needs there.
pub const NAMESPACE: &str = api::SYSTEM_NAMESPACE;
/// Who writes, as `managedFields` has it.
pub const MANAGER: &str = "hanse";
