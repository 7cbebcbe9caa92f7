//! `AuthenticationConfiguration` of `apiserver.config.k8s.io`: which issuers' tokens are accepted, and whom their
//! claims stand for.
//!
//! ```text
//!   file ──> Configuration ──> validate, compile ──> Mapping ──> claims of a verified token ──> Identity
//! ```

mod config;
mod mapping;
#[cfg(test)]
mod tests;
mod validate;

pub use config::{Anonymous, Configuration, Issuer, Jwt, parse};
pub use mapping::{Identity, Mapping};
pub use validate::compile;
