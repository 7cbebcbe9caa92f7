//! One region on real etcd: the store's contract, servers that share it, and moving to it and back.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

mod contract;
mod members;
mod moving;
mod servers;
mod unfinished;
