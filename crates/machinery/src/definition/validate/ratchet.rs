//! What an update may leave as it was, though it would not be accepted anew.

use std::collections::BTreeSet;

use super::{MAX_SELECTABLE_FIELDS, webhook};
use crate::{
    definition::{Definition, conversion::ca_bundle_mistake, schema_check, status},
    resource::Tree,
    structural::Structural,
};

/// Which rules count.
#[derive(Clone, Debug)]
pub struct Leniency {
    pub require_schema: bool,
    pub require_known_review: bool,
    pub require_valid_types: bool,
    pub require_structural: bool,
    pub require_pruned_defaults: bool,
    pub require_atomic_sets: bool,
    pub require_sound_maps: bool,
    /// Kind and scope cannot change any more.
    pub names_are_final: bool,
    pub allow_bad_bundle: bool,
    /// Versions whose schema is what it was.
    pub unchanged_schemas: BTreeSet<String>,
    /// Versions that had too many selectable fields and have the same; the empty name stands for all.
    pub many_selectable: BTreeSet<String>,
}

impl Leniency {
    /// For a new definition.
    pub fn none() -> Self {
        Self {
            require_schema: true,
            require_known_review: true,
            require_valid_types: true,
            require_structural: true,
            require_pruned_defaults: true,
            require_atomic_sets: true,
            require_sound_maps: true,
            names_are_final: false,
            // It is not established yet.
            allow_bad_bundle: true,
            unchanged_schemas: BTreeSet::new(),
            many_selectable: BTreeSet::new(),
        }
    }

    /// For a definition that replaces `old_tree`.
    pub fn of(new: &Definition, old_tree: &Tree) -> Self {
        let old = Definition::read(old_tree);
        let none_has = |test: &dyn Fn(&Structural) -> bool| !old.schemas().any(|schema| schema.any(&test));
        let established = status::is_true(old_tree, "Established");
        let reviews = old.conversion.as_ref().map(|conversion| conversion.review_versions.as_slice());
        let bundle = old.conversion.as_ref().and_then(|conversion| conversion.client.as_ref());
        let bad_bundle = bundle.and_then(|client| ca_bundle_mistake(&client.ca_bundle)).is_some();
        let has_unpruned = old
            .schemas()
            .any(|schema| schema.is_structural() && schema.clone().with_pruned_defaults() != *schema);
        Self {
            require_schema: old.versions.iter().all(|version| version.structural().is_some()),
            require_known_review: reviews.is_none_or(|reviews| {
                reviews.is_empty() || reviews.iter().any(|version| webhook::is_known_review(version))
            }),
            require_valid_types: none_has(&|schema| !schema_check::is_valid_type(&schema.type_name)),
            require_structural: old.schemas().all(Structural::is_structural),
            require_pruned_defaults: !has_unpruned,
            require_atomic_sets: none_has(&schema_check::is_loose_set),
            require_sound_maps: none_has(&schema_check::is_unsound_map),
            names_are_final: established,
            allow_bad_bundle: !established || bad_bundle,
            unchanged_schemas: unchanged_schemas(new, &old),
            many_selectable: many_selectable(new, &old),
        }
    }
}

fn unchanged_schemas(new: &Definition, old: &Definition) -> BTreeSet<String> {
    let same = new.versions.iter().filter(|version| {
        old.versions.iter().any(|before| before.name == version.name && before.schema == version.schema)
    });
    same.map(|version| version.name.clone()).collect()
}

fn many_selectable(new: &Definition, old: &Definition) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for version in &new.versions {
        let before = old.versions.iter().find(|before| before.name == version.name);
        let kept = before.is_some_and(|before| {
            before.selectable.len() > MAX_SELECTABLE_FIELDS && before.selectable == version.selectable
        });
        if kept {
            found.insert(version.name.clone());
        }
    }
    if !new.versions.is_empty() && found.len() == new.versions.len() {
        found.insert(String::new());
    }
    found
}
