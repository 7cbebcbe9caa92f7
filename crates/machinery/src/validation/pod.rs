//! Pods and pod templates.

use crate::{field_error::Cause, resource::Tree};

/// Fills in what a pod template's author left open.
pub fn default_template(_template: &mut Tree) {}

/// What is wrong with a template at `path`; `old` is the one it replaces.
pub fn template(_template: &Tree, _old: Option<&Tree>, _path: &str) -> Vec<Cause> {
    Vec::new()
}
