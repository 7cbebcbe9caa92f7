//! Kinds that make pods: deployments and other sets, jobs, their autoscalers and their disruption budgets.

mod autoscaling;
mod autoscaling_v1;
mod defaults;
mod stubs;

pub use autoscaling::*;
pub use autoscaling_v1::{autoscaler_from_v1, autoscaler_to_v1, drop_autoscaler_annotations};
pub use defaults::*;
pub use stubs::*;
