//! Simulated clusters: members that run inside this process.
//!
//! ```text
//!   clients ──> listener of a cluster ──> API server (one for all, a workspace per cluster, on a memory store)
//!               (gate: slow, cut)                │ change feed
//!                                                v
//!                engine: index of pods, queue ──> controllers · scheduler · kubelet ──> plans ──> API server
//!                                                                              └──> runtime: ports, logs, exec
//! ```
//!
//! A cluster is a workspace, so it costs kilobytes; to its clients it is a Kubernetes API server with nodes. Controllers
//! are pure: they see a [`World`] and answer with a [`Plan`]; the engine carries it out as requests to the API server,
//! so that what a plan makes is defaulted, admitted and checked like anything else.

mod addresses;
mod api;
pub mod controllers;
mod engine;
mod gate;
mod index;
pub mod kind;
pub mod kubelet;
mod node;
pub mod plan;
pub mod pod;
mod queue;
mod runtime;
mod scheduler;
mod script;
mod simulation;
#[cfg(test)]
mod testing;
pub mod tree;
pub mod world;

pub use api::Refused;
pub use kind::Kind;
pub use kubelet::Pace;
pub use plan::{Action, Plan, Propagation};
pub use pod::Pod;
pub use simulation::{ClusterOptions, NodeShape, SimCluster, SimError, Simulation};
pub use world::{Refusal, World};
