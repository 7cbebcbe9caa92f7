//! Life cycles of workloads on a cluster of trees: no server, no clock, no threads.

mod autoscaler;
mod budget;
mod cluster;
mod cron_job;
mod daemon_set;
mod deployment;
mod job;
mod node;
mod replica_set;
mod service;
mod stateful_set;
mod volume;
