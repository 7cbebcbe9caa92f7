//! What a schema in a definition may be, beyond being structural.

mod lists;
mod rules;

use super::{internal, validate::Leniency};
use crate::{
    field_error::Cause,
    structural::{Additional, Path, Structural},
};

pub use lists::{is_loose_set, is_unsound_map};
use rules::{RuleCauses, RuleScope};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Whether a type is none or one that OpenAPI has.
pub fn is_valid_type(type_name: &str) -> bool {
    type_name.is_empty() || TYPES.contains(&type_name)
}

/// The check of one schema.
pub struct SchemaCheck<'l> {
    leniency: &'l Leniency,
    /// The schema is what it was: costs of rules are not asked again.
    unchanged: bool,
}

/// What is wrong: with the schema, and then with its rules.
struct Found {
    causes: Vec<Cause>,
    rules: RuleCauses,
}

/// What the place of a schema says about it.
#[derive(Clone, Copy)]
struct Place<'p> {
    /// Why there may be no defaults.
    no_defaults: Option<&'p str>,
    /// Inside of metadata or type of a resource.
    in_meta: bool,
    /// The schema whose parts cannot be told apart from one update to the next.
    uncorrelatable: Option<&'p Path<'p>>,
}

impl<'l> SchemaCheck<'l> {
    pub fn new(leniency: &'l Leniency, unchanged: bool) -> Self {
        Self { leniency, unchanged }
    }

    /// What is wrong with the schema of a version; `path` is its own.
    pub fn run(&self, schema: &Structural, has_status: bool, path: &Path<'_>) -> Vec<Cause> {
        let mut causes = Vec::new();
        if has_status {
            causes.extend(root_mistake(schema, path));
        }
        if schema.nullable {
            let field = format!("{path}.nullable");
            causes.push(Cause::forbidden(field, "nullable cannot be true at the root"));
        }
        let mut unsupported = None;
        let mut is_sound = false;
        if self.leniency.require_structural {
            unsupported = schema.unsupported_member();
            if unsupported.is_none() {
                let found = schema.violations(path);
                let found = match found.is_empty() {
                    true => schema.default_mistakes(path, self.leniency.require_pruned_defaults),
                    false => found,
                };
                is_sound = found.is_empty();
                causes.extend(found);
            }
        }
        let place = Place { no_defaults: None, in_meta: false, uncorrelatable: None };
        let mut found = Found { causes, rules: RuleCauses::new(self.unchanged) };
        // Rules are compiled only for a schema that can be relied upon.
        let scope = is_sound.then(RuleScope::root);
        self.node(schema, true, place, scope, path, &mut found);
        let Found { mut causes, rules } = found;
        causes.extend(rules.causes);
        if causes.is_empty()
            && let Some(why) = unsupported
        {
            causes.push(Cause::invalid(path.to_string(), &"".into(), &why));
        }
        causes.extend(rules.costs.mistakes(path));
        causes
    }

    fn node(
        &self,
        schema: &Structural,
        is_root: bool,
        place: Place<'_>,
        scope: Option<RuleScope>,
        path: &Path<'_>,
        found: &mut Found,
    ) {
        let before = found.causes.len();
        let below_scope = scope.map(|scope| scope.below(schema));
        self.members(schema, place, path, &mut found.causes);
        if schema.unique_items {
            let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            found.causes.push(Cause::forbidden(path.child("uniqueItems").to_string(), why));
        }
        self.additional(schema, place, below_scope, path, found);
        for (key, property) in &schema.properties {
            let forbidden = format!("in top-level {key}");
            let mut place = place;
            if !is_correlatable(schema) {
                place.uncorrelatable = place.uncorrelatable.or(Some(path));
            }
            if (is_root || schema.embedded_resource)
                && matches!(key.as_str(), "metadata" | "kind" | "apiVersion")
            {
                place.in_meta = true;
                if is_root {
                    place.no_defaults = Some(&forbidden);
                }
            }
            let scope = below_scope.map(|scope| scope.of(property));
            self.node(property, false, place, scope, &path.child("properties").key(key), found);
        }
        self.junctors(schema, place, path, found);
        let mut below = place;
        if schema.list_type.as_deref() != Some("map") {
            below.uncorrelatable = below.uncorrelatable.or(Some(path));
        }
        if let Some(items) = &schema.items {
            let scope = below_scope.map(|scope| scope.of(items));
            self.node(items, false, below, scope, &path.child("items"), found);
        }
        if schema.preserve_unknown_fields == Some(false) {
            let field = path.child("x-kubernetes-preserve-unknown-fields").to_string();
            found.causes.push(Cause::invalid(field, &false.into(), "must be true or undefined"));
        }
        lists::topology(schema, self.leniency.require_atomic_sets, path, &mut found.causes);
        if self.leniency.require_sound_maps {
            lists::sound_map(schema, path, &mut found.causes);
        }
        for (at, rule) in schema.rules.iter().enumerate() {
            let path = path.child("x-kubernetes-validations");
            rules::mistakes(rule, schema, &path.index(at), &mut found.causes);
        }
        if let Some(scope) = scope.filter(|_| !schema.rules.is_empty() && found.causes.len() == before) {
            let within = place.uncorrelatable;
            found.rules.compile(schema, scope, within, &path.child("x-kubernetes-validations"));
        }
    }

    /// Members that are refused wherever they are.
    fn members(&self, schema: &Structural, place: Place<'_>, path: &Path<'_>, causes: &mut Vec<Cause>) {
        let type_name = schema.type_name.as_str();
        if self.leniency.require_valid_types && !is_valid_type(type_name) {
            causes.push(Cause::not_supported(path.child("type").to_string(), &type_name.into(), &TYPES));
        }
        if schema.default.is_some()
            && let Some(reason) = place.no_defaults
        {
            let why = format!("must not be set {reason}");
            causes.push(Cause::forbidden(path.child("default").to_string(), &why));
        }
        let unsupported = schema.unsupported.as_deref();
        let has = |test: fn(&crate::structural::Unsupported) -> bool| unsupported.is_some_and(test);
        for (is_set, name, why) in [
            (has(|it| !it.id.is_empty()), "id", "id is not supported"),
            (has(|it| it.additional_items.is_some()), "additionalItems", "additionalItems is not supported"),
            (
                has(|it| !it.pattern_properties.is_empty()),
                "patternProperties",
                "patternProperties is not supported",
            ),
            (has(|it| !it.definitions.is_empty()), "definitions", "definitions is not supported"),
            (has(|it| it.dependencies.is_some()), "dependencies", "dependencies is not supported"),
            (has(|it| it.reference.is_some()), "$ref", "$ref is not supported"),
            (type_name == "null", "type", "type cannot be set to null, use nullable as an alternative"),
            (
                has(|it| !it.item_schemas.is_empty()),
                "items",
                "items must be a schema object and not an array",
            ),
            (
                place.in_meta && schema.embedded_resource,
                "x-kubernetes-embedded-resource",
                "must not be used inside of resource meta",
            ),
        ] {
            if is_set {
                causes.push(Cause::forbidden(path.child(name).to_string(), why));
            }
        }
    }

    fn additional(
        &self,
        schema: &Structural,
        place: Place<'_>,
        scope: Option<RuleScope>,
        path: &Path<'_>,
        found: &mut Found,
    ) {
        let Some(additional) = &schema.additional else { return };
        let path = path.child("additionalProperties");
        if !schema.properties.is_empty() && *additional != Additional::Allowed(true) {
            let why = "additionalProperties and properties are mutual exclusive";
            found.causes.push(Cause::forbidden(path.to_string(), why));
        }
        let Additional::Schema(schema) = additional else { return };
        let mut place = place;
        if place.in_meta {
            place.no_defaults = Some("inside additionalProperties applying to object metadata");
        }
        let scope = scope.map(|scope| scope.of(schema));
        self.node(schema, false, place, scope, &path, found);
    }

    /// Rules below junctors are refused elsewhere, and so never compiled.
    fn junctors(&self, schema: &Structural, place: Place<'_>, path: &Path<'_>, found: &mut Found) {
        if let Some(not) = &schema.not {
            self.node(not, false, place, None, &path.child("not"), found);
        }
        for (name, branches) in
            [("allOf", &schema.all_of), ("oneOf", &schema.one_of), ("anyOf", &schema.any_of)]
        {
            for (at, branch) in branches.iter().enumerate() {
                self.node(branch, false, place, None, &path.child(name).index(at), found);
            }
        }
        let Some(unsupported) = schema.unsupported.as_deref() else { return };
        for (key, definition) in &unsupported.definitions {
            self.node(definition, false, place, None, &path.child("definitions").key(key), found);
        }
        for (at, item) in unsupported.item_schemas.iter().enumerate() {
            self.node(item, false, place, None, &path.child("items").index(at), found);
        }
        for (key, dependency) in unsupported.dependencies.iter().flatten() {
            if let Some(dependency) = dependency.schema() {
                self.node(dependency, false, place, None, &path.child("dependencies").key(key), found);
            }
        }
    }
}

/// Granular is what maps are where nothing is said.
fn is_correlatable(schema: &Structural) -> bool {
    matches!(schema.map_type.as_deref(), None | Some("granular" | "atomic"))
}

/// Where a status is checked alone, the root may only say what does not concern it.
fn root_mistake(schema: &Structural, path: &Path<'_>) -> Option<Cause> {
    const ALLOWED: &str = "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations";
    let unsupported = schema.unsupported.as_deref();
    let before_type =
        unsupported.is_some_and(|it| !it.id.is_empty() || !it.schema.is_empty() || it.reference.is_some());
    if !before_type && !schema.type_name.is_empty() && schema.type_name != "object" {
        let why = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        return Some(Cause::invalid(format!("{path}.type"), &schema.type_name.as_str().into(), why));
    }
    let after_type = schema.nullable
        || schema.default.is_some()
        || !schema.enumeration.is_empty()
        || schema.max_properties.is_some()
        || schema.min_properties.is_some()
        || !schema.all_of.is_empty()
        || !schema.one_of.is_empty()
        || !schema.any_of.is_empty()
        || schema.not.is_some()
        || schema.additional.is_some()
        || unsupported.is_some_and(|it| {
            !it.pattern_properties.is_empty()
                || it.dependencies.is_some()
                || it.additional_items.is_some()
                || !it.definitions.is_empty()
        })
        || schema.embedded_resource
        || schema.int_or_string
        || !schema.list_map_keys.is_empty()
        || schema.list_type.is_some()
        || schema.map_type.is_some();
    if !before_type && !after_type {
        return None;
    }
    let why = format!(
        "only [{ALLOWED}] fields are allowed at the root of the schema if the status subresource is enabled"
    );
    Some(Cause::invalid_text(path.to_string(), &internal::schema(schema), &why))
}
