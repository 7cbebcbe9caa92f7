//! Requests for certificates (PKCS #10) and what is signed for them (X.509), by Kubernetes' rules.
//!
//! ```text
//!   spec.request ──> Request ──> Signer's rules ──> to_be_signed ──> the authority's key
//!        PEM         verified     subject, usages     DER, no I/O      (not here)
//! ```

pub mod der;
mod issue;
mod request;
mod signer;

pub use issue::{Template, certificate, lifetime, to_be_signed};
pub use request::{AlternativeNames, Request, Subject};
pub use signer::{Signer, usages_of};

/// Whose certificates are for whom: of an authority's whole installation, or of one workspace in it.
///
/// The extension that says which workspace. It is never taken over from a request. (An arc below 2.25, which
/// anybody may use without registration.)
pub const WORKSPACE_EXTENSION: &[u64] = &[2, 25, 6_094_321_705_811_774_213];
