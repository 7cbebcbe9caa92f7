//! What tests stand on: hubs in this process, hubs as processes (for kills), real Kubernetes control planes, a
//! client for all of them, and how their answers compare. Everything listens on free ports of this machine and stops
//! when dropped.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

pub mod accepted;
pub mod assignments;
pub mod client;
pub mod compare;
pub mod cuts;
pub mod etcd;
pub mod hub;
pub mod interposed;
pub mod lasting;
pub mod linear;
pub mod link;
pub mod operator;
pub mod patience;
pub mod process;
pub mod real;
pub mod simulated;
pub mod talking;
pub mod webhook;
pub mod world;
