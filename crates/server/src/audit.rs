//! Who did what: a record of requests, as far as the audit policy asks for one.
//!
//! ```text
//!   request ──> Auditor: does the policy want it? ──> Recorder ──> a stage is reached ──> Outlets: log, webhook
//!                                                     ^  what authorization, admission and the answer add
//! ```
//!
//! What is matched and what a record looks like is in `machinery::audit`; here are the places that records go to, and
//! the recorder that a request carries with it. Without an outlet there is no auditor, and requests pay nothing.

mod auditor;
mod deed;
mod log;
mod outlet;
mod receiver;
mod recorder;
mod webhook;

pub use auditor::Auditor;
pub use deed::Deed;
pub use log::LogOptions;
pub use outlet::Mode;
pub use recorder::{Arrival, Recorder, Trail};
pub use webhook::{Throttle, WebhookOptions};

use std::{path::PathBuf, time::Duration};

/// What is audited, and where that goes.
#[derive(Clone, Debug)]
pub struct AuditOptions {
    /// An `audit.k8s.io/v1` Policy; without one, writes and refusals are recorded.
    pub policy_file: Option<PathBuf>,
    /// How often the policy's file is looked at.
    pub reload_every: Duration,
    pub log: Option<LogOptions>,
    pub webhook: Option<WebhookOptions>,
}

impl Default for AuditOptions {
    fn default() -> Self {
        Self { policy_file: None, reload_every: Duration::from_secs(5), log: None, webhook: None }
    }
}

/// Why there can be no audit as it is wanted.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error("audit policy {}: {why}", file.display())]
    Policy { file: PathBuf, why: String },
    #[error("audit log {}: {source}", file.display())]
    Log { file: PathBuf, source: std::io::Error },
    #[error("audit webhook {}: {why}", file.display())]
    Webhook { file: PathBuf, why: String },
}
