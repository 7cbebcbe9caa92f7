//! One region on real etcd: the store's contract, servers that share it, and moving to it and back.

mod contract;
mod moving;
mod servers;
