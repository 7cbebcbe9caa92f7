//! Simulated clusters: members that run inside this process.
//!
//! ```text
//!   clients ──> listener of a cluster ──> API server (one for all, a workspace per cluster, on a memory store)
//!                                                │ change feed
//!                                                v
//!                engine: index of pods, queue ──> controllers · scheduler · kubelet ──> plans ──> API server
//! ```
//!
//! A cluster is a workspace, so it costs kilobytes; to its clients it is a Kubernetes API server with nodes. Controllers
//! are pure: they see a [`World`] and answer with a [`Plan`]; the engine carries it out as requests to the API server,
//! so that what a plan makes is defaulted, admitted and checked like anything else.

pub mod controllers;
pub mod kind;
pub mod plan;
pub mod pod;
pub mod tree;
pub mod world;

pub use kind::Kind;
pub use plan::{Action, Plan, Propagation};
pub use pod::Pod;
pub use world::{Refusal, World};
