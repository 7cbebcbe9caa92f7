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

/// The extension that says which workspace a certificate is good in; without it, in all of the installation. It is
/// never taken over from a request. (An arc below 2.25, which needs no registration; Go reads none of 2³¹ or more.)
pub const WORKSPACE_EXTENSION: &[u64] = &[2, 25, 609_432_170];

/// One block of PEM.
pub fn pem(label: &str, bytes: &[u8]) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let text = STANDARD.encode(bytes);
    let mut block = format!("-----BEGIN {label}-----\n");
    for line in text.as_bytes().chunks(64) {
        block.extend(line.iter().map(|byte| char::from(*byte)));
        block.push('\n');
    }
    block + &format!("-----END {label}-----\n")
}
