//! Kinds that direct the API server itself: admission, priority and fairness, aggregation and certificates.

mod defaults;
mod stubs;

pub use defaults::*;
pub use stubs::*;
