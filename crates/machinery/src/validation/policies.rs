//! Kinds that direct the API server itself: admission, priority and fairness, aggregation and certificates.

mod admission;
mod api_service;
mod certificates;
mod defaults;
mod expressions;
mod flow;
pub(crate) mod pem;
mod rules;
mod webhooks;

pub use admission::{
    mutating_policy, mutating_policy_binding, validating_policy, validating_policy_binding,
    validating_policy_status, warn_static_name,
};
pub use api_service::{api_service, api_service_status};
pub use certificates::{approval, signer_name, signing_request, signing_status};
pub use defaults::*;
pub use flow::{flow_schema, flow_schema_status, priority_level, priority_level_status};
pub use webhooks::{mutating_webhooks, validating_webhooks};

#[cfg(test)]
mod tests;
