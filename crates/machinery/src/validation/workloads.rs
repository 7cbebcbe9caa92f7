//! Kinds that make pods: deployments and other sets, jobs, their autoscalers and their disruption budgets.

mod apps;
mod autoscaling;
mod autoscaling_v1;
mod cron;
mod defaults;
mod disruption;
mod indexes;
mod job_status;
mod jobs;
mod schedule;
mod sets;
mod shared;
mod warnings;

pub use apps::{
    deployment, deployment_status, replica_set, replica_set_status, replication_controller,
    replication_controller_status,
};
pub use autoscaling::{
    autoscaler, autoscaler_status, default_autoscaler, only_autoscaler_status, prepare_autoscaler,
};
pub use autoscaling_v1::{autoscaler_from_v1, autoscaler_to_v1, drop_autoscaler_annotations};
pub use cron::cron_job;
pub use defaults::*;
pub use disruption::{disruption_budget, disruption_budget_status};
pub use job_status::job_status;
pub use jobs::job;
pub use sets::{controller_revision, daemon_set, daemon_set_status, stateful_set, stateful_set_status};
pub use warnings::*;

#[cfg(test)]
mod tests;
