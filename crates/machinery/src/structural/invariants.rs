//! What makes a schema structural: its spine says of every field what it is, and value validations below `allOf`,
//! `anyOf`, `oneOf` and `not` only narrow that.

use super::{Additional, Path, Structural};
use crate::field_error::Cause;

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

impl Structural {
    /// Why no structural schema can be made of this one at all.
    pub fn unsupported_member(&self) -> Option<String> {
        if let Some(found) = self.unsupported.as_deref() {
            let members = [
                (!found.id.is_empty(), "id"),
                (!found.schema.is_empty(), "schema"),
                (found.reference.as_ref().is_some_and(|it| !it.is_empty()), "$ref"),
                (!found.pattern_properties.is_empty(), "patternProperties"),
                (found.dependencies.as_ref().is_some_and(|it| !it.is_empty()), "dependencies"),
                (found.additional_items.is_some(), "additionalItems"),
                (!found.definitions.is_empty(), "definitions"),
            ];
            if let Some((_, name)) = members.into_iter().find(|(is_set, _)| *is_set) {
                return Some(format!("OpenAPIV3Schema '{name}' is not supported"));
            }
        }
        let narrowing =
            self.not.as_deref().into_iter().chain(&self.all_of).chain(&self.any_of).chain(&self.one_of);
        let below_junctors = narrowing.filter_map(Structural::unsupported_member).next();
        if below_junctors.is_some() {
            return below_junctors;
        }
        if self.preserve_unknown_fields == Some(false) {
            let why = "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined";
            return Some(why.to_owned());
        }
        if self.unsupported.as_ref().is_some_and(|found| !found.item_schemas.is_empty()) {
            return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
        }
        let spine =
            self.items.as_deref().into_iter().chain(self.properties.values()).chain(self.additional_schema());
        spine.filter_map(Structural::unsupported_member).next()
    }

    /// Where the rules for structural schemas are broken, sorted by what is told. `path` is that of the schema.
    pub fn violations(&self, path: &Path<'_>) -> Vec<Cause> {
        let mut causes = Vec::new();
        node(self, Level::Root, path, &mut causes);
        Completeness { causes: &mut causes }.junctors(self, Some(self), path, path);
        causes.sort_by_cached_key(|cause| format!("{}: {}", cause.field, cause.message));
        causes
    }

    /// Whether this is a structural schema.
    pub fn is_structural(&self) -> bool {
        self.unsupported_member().is_none() && self.violations(&Path::Root).is_empty()
    }
}

fn node(schema: &Structural, level: Level, path: &Path<'_>, causes: &mut Vec<Cause>) {
    if schema.type_name == "array" && schema.items.is_none() {
        causes.push(Cause::required(path.child("items").to_string(), "must be specified"));
    }
    if let Some(items) = &schema.items {
        node(items, Level::Item, &path.child("items"), causes);
    }
    for (key, property) in &schema.properties {
        node(property, Level::Field, &path.child("properties").key(key), causes);
    }
    if let Some(additional) = &schema.additional {
        let path = path.child("additionalProperties");
        if level == Level::Root {
            causes.push(Cause::forbidden(path.to_string(), "must not be used at the root"));
        }
        if let Additional::Schema(additional) = additional {
            node(additional, Level::Field, &path, causes);
        }
    }
    extensions(schema, path, causes);
    let skips = Skips {
        any_of: is_int_or_string(&schema.any_of),
        first_all_of: schema.all_of.first().is_some_and(|first| is_int_or_string(&first.any_of)),
    };
    value_validation(schema, skips, path, causes);
    types(schema, level, path, causes);
    resource_fields(schema, level, path, causes);
}

fn extensions(schema: &Structural, path: &Path<'_>, causes: &mut Vec<Cause>) {
    if !schema.int_or_string {
        return;
    }
    let why = "must be false if x-kubernetes-int-or-string is true";
    for (is_set, name) in [
        (schema.preserves_unknown_fields(), "x-kubernetes-preserve-unknown-fields"),
        (schema.embedded_resource, "x-kubernetes-embedded-resource"),
    ] {
        if is_set {
            causes.push(Cause::invalid(path.child(name).to_string(), &true.into(), why));
        }
    }
}

fn types(schema: &Structural, level: Level, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let type_name = schema.type_name.as_str();
    let field = || path.child("type").to_string();
    if schema.embedded_resource && type_name != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        causes.push(match type_name {
            "" => Cause::required(field(), why),
            _ => Cause::invalid(field(), &type_name.into(), why),
        });
    } else if type_name.is_empty() && !schema.int_or_string && !schema.preserves_unknown_fields() {
        let why = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        causes.push(Cause::required(field(), why));
    }
    if schema.embedded_resource && schema.additional.is_some() {
        let why = "must not be used if x-kubernetes-embedded-resource is set";
        causes.push(Cause::forbidden(path.child("additionalProperties").to_string(), why));
    }
    if level == Level::Root && !type_name.is_empty() && type_name != "object" {
        causes.push(Cause::invalid(field(), &type_name.into(), "must be object at the root"));
    }
}

/// Type and metadata of resources are not the schema's to say.
fn resource_fields(schema: &Structural, level: Level, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let properties = path.child("properties");
    let is_resource = level == Level::Root || schema.embedded_resource;
    for key in ["kind", "apiVersion"] {
        let property = schema.properties.get(key).filter(|property| property.type_name != "string");
        if let Some(property) = property.filter(|_| is_resource) {
            let field = properties.key(key).child("type").to_string();
            causes.push(Cause::invalid(field, &property.type_name.as_str().into(), "must be string"));
        }
    }
    if let Some(metadata) = schema.properties.get("metadata") {
        let path = properties.key("metadata");
        if is_resource && metadata.type_name != "object" {
            let field = path.child("type").to_string();
            causes.push(Cause::invalid(field, &metadata.type_name.as_str().into(), "must be object"));
        }
        if level == Level::Root && !restricts_names_only(metadata) {
            let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
            causes.push(Cause::forbidden(path.to_string(), why));
        }
    }
    if schema.embedded_resource && !schema.preserves_unknown_fields() && schema.properties.is_empty() {
        let why = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        causes.push(Cause::required(properties.to_string(), why));
    }
}

fn restricts_names_only(metadata: &Structural) -> bool {
    let mut rest = metadata.clone();
    if rest.properties.keys().all(|key| matches!(key.as_str(), "name" | "generateName")) {
        rest.properties.clear();
    }
    rest.type_name.clear();
    rest.default = None;
    rest == Structural::default()
}

/// The one use of `type` below a junctor: what an int-or-string is spelled out as.
fn is_int_or_string(branches: &[Structural]) -> bool {
    let of_type = |name: &str| Structural { type_name: name.to_owned(), ..Structural::default() };
    branches.len() == 2 && branches == [of_type("integer"), of_type("string")]
}

#[derive(Clone, Copy, Default)]
struct Skips {
    any_of: bool,
    first_all_of: bool,
}

fn value_validation(schema: &Structural, skips: Skips, path: &Path<'_>, causes: &mut Vec<Cause>) {
    if !skips.any_of {
        for (at, branch) in schema.any_of.iter().enumerate() {
            nested(branch, Skips::default(), &path.child("anyOf").index(at), causes);
        }
    }
    for (at, branch) in schema.all_of.iter().enumerate() {
        let skips = Skips { any_of: skips.first_all_of && at == 0, first_all_of: false };
        nested(branch, skips, &path.child("allOf").index(at), causes);
    }
    for (at, branch) in schema.one_of.iter().enumerate() {
        nested(branch, Skips::default(), &path.child("oneOf").index(at), causes);
    }
    if let Some(not) = &schema.not {
        nested(not, Skips::default(), &path.child("not"), causes);
    }
    if let Some(pattern) = &schema.pattern
        && let Some(error) = pattern.error()
    {
        let why = format!("must be a valid regular expression, but isn't: {error}");
        causes.push(Cause::invalid(path.child("pattern").to_string(), &pattern.text.as_str().into(), &why));
    }
}

/// A schema below a junctor: it may only narrow.
fn nested(schema: &Structural, skips: Skips, path: &Path<'_>, causes: &mut Vec<Cause>) {
    value_validation(schema, skips, path, causes);
    if let Some(items) = &schema.items {
        nested(items, Skips::default(), &path.child("items"), causes);
    }
    for (key, property) in &schema.properties {
        nested(property, Skips::default(), &path.child("properties").key(key), causes);
    }
    let has_additional = !matches!(schema.additional, None | Some(Additional::Allowed(false)));
    let (empty, undefined, negative) = (
        "must be empty to be structural",
        "must be undefined to be structural",
        "must be false to be structural",
    );
    for (is_set, name, why) in [
        (!schema.type_name.is_empty(), "type", empty),
        (has_additional, "additionalProperties", undefined),
        (schema.default.is_some(), "default", undefined),
        (!schema.title.is_empty(), "title", empty),
        (!schema.description.is_empty(), "description", empty),
        (schema.nullable, "nullable", negative),
        (schema.preserves_unknown_fields(), "x-kubernetes-preserve-unknown-fields", negative),
        (schema.embedded_resource, "x-kubernetes-embedded-resource", negative),
        (schema.int_or_string, "x-kubernetes-int-or-string", negative),
        (!schema.list_map_keys.is_empty(), "x-kubernetes-list-map-keys", empty),
        (schema.list_type.is_some(), "x-kubernetes-list-type", undefined),
        (schema.map_type.is_some(), "x-kubernetes-map-type", undefined),
        (!schema.rules.is_empty(), "x-kubernetes-validations", empty),
    ] {
        if is_set {
            causes.push(Cause::forbidden(path.child(name).to_string(), why));
        }
    }
    if schema.properties.contains_key("metadata") {
        let field = path.child("properties").key("metadata").to_string();
        causes.push(Cause::forbidden(field, "must not be specified in a nested context"));
    }
}

/// Whatever is narrowed must be on the spine.
struct Completeness<'c> {
    causes: &'c mut Vec<Cause>,
}

impl Completeness<'_> {
    fn junctors(
        &mut self,
        narrowing: &Structural,
        spine: Option<&Structural>,
        at: &Path<'_>,
        from: &Path<'_>,
    ) {
        if let Some(not) = &narrowing.not {
            self.nested(not, spine, at, &from.child("not"));
        }
        for (name, branches) in
            [("allOf", &narrowing.all_of), ("anyOf", &narrowing.any_of), ("oneOf", &narrowing.one_of)]
        {
            for (index, branch) in branches.iter().enumerate() {
                self.nested(branch, spine, at, &from.child(name).index(index));
            }
        }
    }

    fn nested(&mut self, narrowing: &Structural, spine: Option<&Structural>, at: &Path<'_>, from: &Path<'_>) {
        let Some(schema) = spine else { return self.missing(at, from) };
        self.junctors(narrowing, spine, at, from);
        if let Some(items) = &narrowing.items {
            self.nested(items, schema.items.as_deref(), &at.child("items"), &from.child("items"));
        }
        for (key, property) in &narrowing.properties {
            let (at, from) = (at.child("properties"), from.child("properties"));
            self.nested(property, schema.properties.get(key), &at.key(key), &from.key(key));
        }
    }

    fn missing(&mut self, at: &Path<'_>, from: &Path<'_>) {
        self.causes.push(Cause::required(at.to_string(), &format!("because it is defined in {from}")));
    }
}
