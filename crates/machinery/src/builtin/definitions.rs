//! The kind that defines kinds.

use super::{CREATED_AT, NAME};
use crate::{
    definition,
    resource::{Row, Subresource},
};

pub const ROWS: &[Row] = &[Row {
    group: "apiextensions.k8s.io",
    kind: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
    singular: "customresourcedefinition",
    namespaced: false,
    short_names: &["crd", "crds"],
    categories: &["api-extensions"],
    subresources: &[Subresource {
        prepare: definition::only_status,
        validate: definition::validate_status,
        ..Subresource::status("CustomResourceDefinition", "apiextensions.k8s.io", "v1")
    }],
    type_name: "apiextensions/v1.CustomResourceDefinition",
    columns: &[NAME, CREATED_AT],
    generation: true,
    unconditional_update: false,
    prepare_create: definition::prepare_create,
    prepare_update: definition::prepare_update,
    default: definition::default,
    validate: definition::validate,
    warn: definition::warnings,
    mark_deleted: Some(definition::mark_deleted),
    ..Row::PLAIN
}];
