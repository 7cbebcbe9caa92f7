//! Custom resource definitions: the kind itself, and what the server makes of its objects.
//!
//! ```text
//!   tree ──default──> validate ──> stored ──status──> names accepted, established ──served──> one CustomVersion each
//! ```

mod approval;
pub mod conversion;
mod hooks;
mod internal;
mod read;
mod schema_check;
mod served;
mod status;
mod validate;

use crate::structural::Structural;

pub use hooks::{
    CLEANUP_FINALIZER, default, mark_deleted, only_status, prepare_create, prepare_update, validate_status,
    warnings,
};
pub(crate) use served::own;
pub use served::{
    CustomColumn, CustomVersion, SelectablePath, compare_versions, finalizer_warnings, is_served, served,
};
pub use status::{Condition, conditions_of, is_true, next_status, remove_condition, set_condition};
pub use validate::validate;

/// A definition as rules look at it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Definition {
    pub name: String,
    pub group: String,
    pub names: Names,
    pub scope: String,
    pub versions: Vec<Version>,
    pub conversion: Option<Conversion>,
    pub preserve_unknown_fields: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    pub plural: String,
    pub singular: String,
    pub kind: String,
    pub list_kind: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Version {
    pub name: String,
    pub served: bool,
    pub storage: bool,
    pub deprecated: bool,
    pub deprecation_warning: Option<String>,
    /// The member `schema`; inside of it the schema, if there is one.
    pub schema: Option<Option<Structural>>,
    pub subresources: Option<Subresources>,
    pub columns: Vec<Column>,
    pub selectable: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subresources {
    pub status: bool,
    pub scale: Option<Scale>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scale {
    pub spec_replicas: String,
    pub status_replicas: String,
    pub label_selector: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub type_name: String,
    pub format: String,
    pub description: String,
    pub priority: i32,
    pub json_path: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversion {
    pub strategy: String,
    pub client: Option<WebhookClient>,
    pub review_versions: Vec<String>,
}

/// Where a webhook is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookClient {
    pub url: Option<String>,
    pub service: Option<ServiceReference>,
    /// In base 64, as JSON has it.
    pub ca_bundle: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceReference {
    pub namespace: String,
    pub name: String,
    pub path: Option<String>,
    pub port: i64,
}

impl Version {
    pub fn structural(&self) -> Option<&Structural> {
        self.schema.as_ref().and_then(Option::as_ref)
    }
}

impl Definition {
    /// Every schema, version by version.
    fn schemas(&self) -> impl Iterator<Item = &Structural> {
        self.versions.iter().filter_map(Version::structural)
    }
}

#[cfg(test)]
mod tests;
