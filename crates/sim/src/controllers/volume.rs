//! PersistentVolumes and the claims to them.
//!
//! ```text
//!   claim ─> fitting volume? ─────────────────────────> bind both
//!              └─ no: its class has a provisioner? ─> make a volume, then bind
//!   pod ─> ephemeral volume? ─> make its claim
//!   volume ─> its claim is gone? ─> Released ─> deleted, recycled or retained
//! ```

mod claims;
mod ephemeral;
mod volumes;

use serde_json::Value;

use crate::tree;

pub use claims::Claims;
pub use ephemeral::Ephemeral;
pub use volumes::Volumes;

const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// The annotation is older than the field.
fn class(object: &Value) -> &str {
    match tree::annotation(object, "volume.beta.kubernetes.io/storage-class") {
        "" => tree::text(object, "/spec/storageClassName"),
        class => class,
    }
}

/// The volume is meant for this claim: by name, and by UID if it says one.
fn is_for(volume: &Value, claim: &Value) -> bool {
    let Some(reference) = volume.pointer("/spec/claimRef") else { return false };
    let uid = tree::text(reference, "/uid");
    tree::text(reference, "/namespace") == tree::namespace(claim)
        && tree::text(reference, "/name") == tree::name(claim)
        && (uid.is_empty() || uid == tree::uid(claim))
}
