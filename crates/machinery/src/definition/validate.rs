//! What a definition may be, when it is made and when it is changed.
//!
//! Upstream checks an older form of a definition, in which schema, subresources, columns and selectable fields that
//! all versions share stand once, at the top; its messages name fields by that form.

mod ratchet;
mod webhook;

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    Column, Conversion, Definition, Names, Subresources, Version, approval, internal,
    schema_check::SchemaCheck,
};
use crate::{
    field_error::Cause,
    gotext, names as rules,
    resource::Tree,
    structural::{Path, Structural, fieldpath},
};

pub use ratchet::Leniency;

const MAX_SELECTABLE_FIELDS: usize = 8;

/// What is the same in every version, and so stands at the top.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shared {
    pub schema: bool,
    pub subresources: bool,
    pub columns: bool,
    pub selectable: bool,
}

impl Shared {
    fn of(definition: &Definition) -> Self {
        let Some((first, rest)) = definition.versions.split_first() else { return Self::default() };
        Self {
            schema: rest.iter().all(|version| version.schema == first.schema),
            subresources: rest.iter().all(|version| version.subresources == first.subresources),
            columns: rest.iter().all(|version| version.columns == first.columns),
            selectable: rest.iter().all(|version| version.selectable == first.selectable),
        }
    }
}

/// What is wrong with a definition; `old` is the one that it replaces. Its metadata is checked elsewhere, except that
/// its name follows from its spec.
pub fn validate(new: &Tree, old: Option<&Tree>) -> Vec<Cause> {
    let definition = Definition::read(new);
    let leniency = old.map_or_else(Leniency::none, |old| Leniency::of(&definition, old));
    let mut causes = Vec::new();
    if old.is_none() && definition.name != format!("{}.{}", definition.names.plural, definition.group) {
        let why = r#"must be spec.names.plural+"."+spec.group"#;
        causes.push(Cause::invalid("metadata.name", &definition.name.as_str().into(), why));
    }
    let root = Path::Root;
    let spec = root.child("spec");
    let mut check = Check { definition: &definition, shared: Shared::of(&definition), leniency, causes };
    check.spec(&spec);
    if let Some(old) = old {
        check.immutable(&Definition::read(old), &spec);
    }
    check.status(new);
    let mut causes = check.causes;
    causes.extend(approval::mistake(new, old, &definition.group));
    let was_preserving = old.is_some_and(|old| Definition::read(old).preserve_unknown_fields);
    if definition.preserve_unknown_fields && !was_preserving {
        let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        causes.push(Cause::invalid("spec.preserveUnknownFields", &true.into(), why));
    }
    causes
}

struct Check<'d> {
    definition: &'d Definition,
    shared: Shared,
    leniency: Leniency,
    causes: Vec<Cause>,
}

impl Check<'_> {
    fn invalid(&mut self, path: &Path<'_>, value: &str, why: &str) {
        self.causes.push(Cause::invalid(path.to_string(), &value.into(), why));
    }

    fn label(&mut self, path: &Path<'_>, value: &str) {
        let problems = rules::is_dns1035_label(value);
        if !problems.is_empty() {
            self.invalid(path, value, &problems.join(","));
        }
    }

    fn spec(&mut self, path: &Path<'_>) {
        let definition = self.definition;
        self.group(&path.child("group"));
        self.causes.extend(one_of(&path.child("scope"), &definition.scope, &["Cluster", "Namespaced"]));
        self.schemas_are_given(path);
        let has_defaults = definition.schemas().any(|schema| schema.any(&|schema| schema.default.is_some()));
        if has_defaults && definition.preserve_unknown_fields {
            let why = "must be false in order to use defaults in the schema";
            let field = path.child("preserveUnknownFields").to_string();
            self.causes.push(Cause::invalid(field, &true.into(), why));
        }
        if !definition.preserve_unknown_fields
            || has_defaults
            || definition.schemas().any(|schema| schema.any(&has_extension))
        {
            self.leniency.require_structural = true;
        }
        for (at, version) in definition.versions.iter().enumerate() {
            self.version(version, &path.child("versions").index(at));
        }
        self.version_set(path);
        self.required_names(&path.child("names"));
        self.causes.extend(names(&definition.names, &path.child("names")));
        self.shared_parts(path);
        if let Some(conversion) = &definition.conversion {
            self.conversion(conversion, &path.child("conversion"));
        }
    }

    fn group(&mut self, path: &Path<'_>) {
        let group = self.definition.group.as_str();
        let problems = rules::is_dns1123_subdomain(group);
        if group.is_empty() {
            self.causes.push(Cause::required(path.to_string(), ""));
        } else if !problems.is_empty() {
            self.invalid(path, group, &problems.join(","));
        } else if !group.contains('.') {
            self.invalid(path, group, "should be a domain with at least one dot");
        }
    }

    fn schemas_are_given(&mut self, path: &Path<'_>) {
        let (strict, definition) = (self.leniency.require_schema, self.definition);
        if !strict && definition.preserve_unknown_fields {
            return;
        }
        let why = if strict { "" } else { "because otherwise all fields are pruned" };
        for (at, version) in definition.versions.iter().enumerate() {
            if version.structural().is_none() && (strict || version.served) {
                let version = path.child("versions");
                let version = version.index(at);
                let field = version.child("schema").child("openAPIV3Schema").to_string();
                self.causes.push(Cause::required(field, why));
            }
        }
    }

    fn version(&mut self, version: &Version, path: &Path<'_>) {
        self.label(&path.child("name"), &version.name);
        if let Some(warning) = &version.deprecation_warning {
            let shown = gotext::json(warning);
            for why in deprecation_mistakes(version.deprecated, warning) {
                let field = path.child("deprecationWarning").to_string();
                self.causes.push(Cause::invalid_text(field, &shown, &why));
            }
        }
        if let Some(schema) = version.schema.as_ref().filter(|_| !self.shared.schema) {
            // Upstream looks subresources up by name, though names may stand twice until that is refused.
            let named = self.definition.versions.iter().find(|other| other.name == version.name);
            let has_status = named.and_then(|named| named.subresources.as_ref()).is_some_and(|it| it.status);
            self.schema(schema.as_ref(), has_status, Some(&version.name), &path.child("schema"));
        }
        if let Some(subresources) = version.subresources.as_ref().filter(|_| !self.shared.subresources) {
            self.subresources(subresources, &path.child("subresources"));
        }
        if !self.shared.columns {
            self.columns(&version.columns, &path.child("additionalPrinterColumns"));
        }
        if !self.shared.selectable && !version.selectable.is_empty() {
            // Upstream looks for the schema of the version even where it stands at the top.
            let schema = version.structural().filter(|_| !self.shared.schema);
            let version_path = path;
            let path = path.child("selectableFields");
            match schema {
                None => {
                    let why = "may only be set when `version.schema.openAPIV3Schema` is not included";
                    self.invalid(&path, "", why);
                }
                Some(schema) => {
                    self.unsupported(schema, &version_path.child("schema.openAPIV3Schema"));
                    self.selectable(&version.selectable, schema, &version.name, &path);
                }
            }
        }
    }

    /// Fields can only be selected of a schema that can be read.
    fn unsupported(&mut self, schema: &Structural, path: &Path<'_>) {
        if let Some(why) = schema.unsupported_member() {
            self.invalid(path, "", &why);
        }
    }

    /// What versions must be together.
    fn version_set(&mut self, path: &Path<'_>) {
        let versions = &self.definition.versions;
        let mut names: Vec<&str> = versions.iter().map(|version| version.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let field = path.child("versions").to_string();
        let shown = || internal::versions(self.definition, &self.shared);
        if names.len() != versions.len() {
            self.causes.push(Cause::invalid_text(
                field.clone(),
                &shown(),
                "must contain unique version names",
            ));
        }
        if versions.iter().filter(|version| version.storage).count() != 1 {
            let why = "must have exactly one version marked as storage version";
            self.causes.push(Cause::invalid_text(field, &shown(), why));
        }
        if let Some(first) = versions.first().filter(|first| !first.name.is_empty()) {
            self.label(&path.child("version"), &first.name);
        }
    }

    fn required_names(&mut self, path: &Path<'_>) {
        let names = &self.definition.names;
        for (name, value) in [
            ("plural", &names.plural),
            ("singular", &names.singular),
            ("kind", &names.kind),
            ("listKind", &names.list_kind),
        ] {
            if value.is_empty() {
                self.causes.push(Cause::required(path.child(name).to_string(), ""));
            }
        }
    }

    /// What all versions share.
    fn shared_parts(&mut self, path: &Path<'_>) {
        let Some(first) = self.definition.versions.first() else { return };
        let any_status = self
            .definition
            .versions
            .iter()
            .any(|version| version.subresources.as_ref().is_some_and(|it| it.status));
        if let Some(schema) = first.schema.as_ref().filter(|_| self.shared.schema) {
            self.schema(schema.as_ref(), any_status, Some(&first.name), &path.child("validation"));
        }
        if let Some(subresources) = first.subresources.as_ref().filter(|_| self.shared.subresources) {
            self.subresources(subresources, &path.child("subresources"));
        }
        if self.shared.columns {
            self.columns(&first.columns, &path.child("additionalPrinterColumns"));
        }
        if self.shared.selectable && !first.selectable.is_empty() {
            let (spec_path, path) = (path, path.child("selectableFields"));
            match first.schema.as_ref().filter(|_| self.shared.schema) {
                None => self.invalid(&path, "", "may only be set when validations.schema is included"),
                Some(schema) => {
                    let none = Structural::default();
                    let schema = schema.as_ref().unwrap_or(&none);
                    self.unsupported(schema, &spec_path.child("schema.openAPIV3Schema"));
                    self.selectable(&first.selectable, schema, "", &path);
                }
            }
        }
    }

    fn schema(
        &mut self,
        schema: Option<&Structural>,
        has_status: bool,
        version: Option<&str>,
        path: &Path<'_>,
    ) {
        let Some(schema) = schema else { return };
        let unchanged = version.is_some_and(|version| self.leniency.unchanged_schemas.contains(version));
        let check = SchemaCheck::new(&self.leniency, unchanged);
        self.causes.extend(check.run(schema, has_status, &path.child("openAPIV3Schema")));
    }

    fn subresources(&mut self, subresources: &Subresources, path: &Path<'_>) {
        let Some(scale) = &subresources.scale else { return };
        for (name, value, place) in [
            ("scale.specReplicasPath", &scale.spec_replicas, ".spec"),
            ("scale.statusReplicasPath", &scale.status_replicas, ".status"),
        ] {
            let path = path.child(name);
            if value.is_empty() {
                self.causes.push(Cause::required(path.to_string(), ""));
            } else if !self.simple_path(value, &path) && !value.starts_with(&format!("{place}.")) {
                self.invalid(&path, value, &format!("should be a json path under {place}"));
            }
        }
        if let Some(selector) = scale.label_selector.as_ref().filter(|selector| !selector.is_empty()) {
            let path = path.child("scale.labelSelectorPath");
            let is_under = selector.starts_with(".spec.") || selector.starts_with(".status.");
            if !self.simple_path(selector, &path) && !is_under {
                let why = "should be a json path under either .spec or .status";
                self.causes.push(Cause::invalid_text(path.to_string(), &gotext::json(selector), why));
            }
        }
    }

    /// Says whether a path was refused.
    fn simple_path(&mut self, value: &str, path: &Path<'_>) -> bool {
        let refused = !value.starts_with('.');
        if refused {
            self.invalid(path, value, "must be a simple json path starting with .");
        }
        refused
    }

    fn columns(&mut self, columns: &[Column], path: &Path<'_>) {
        const TYPES: &str = "boolean,date,integer,number,string";
        const FORMATS: &str = "byte,date,date-time,double,float,int32,int64,password";
        let is_one_of = |value: &str, list: &str| list.split(',').any(|known| known == value);
        for (at, column) in columns.iter().enumerate() {
            let path = path.index(at);
            if column.name.is_empty() {
                self.causes.push(Cause::required(path.child("name").to_string(), ""));
            }
            let why = format!("must be one of {TYPES}");
            if column.type_name.is_empty() {
                self.causes.push(Cause::required(path.child("type").to_string(), &why));
            } else if !is_one_of(&column.type_name, TYPES) {
                self.invalid(&path.child("type"), &column.type_name, &why);
            }
            if !column.format.is_empty() && !is_one_of(&column.format, FORMATS) {
                self.invalid(&path.child("format"), &column.format, &format!("must be one of {FORMATS}"));
            }
            let path = path.child("JSONPath");
            if column.json_path.is_empty() {
                self.causes.push(Cause::required(path.to_string(), ""));
            } else {
                self.simple_path(&column.json_path, &path);
            }
        }
    }

    fn selectable(&mut self, paths: &[String], schema: &Structural, version: &str, path: &Path<'_>) {
        let mut unique: Vec<String> = Vec::new();
        for (at, json_path) in paths.iter().enumerate() {
            let item = path.index(at);
            let item = item.child("jsonPath");
            if json_path.is_empty() {
                self.causes.push(Cause::required(item.to_string(), ""));
                continue;
            }
            let found = match fieldpath::follow(json_path, schema, false) {
                Ok(found) => found,
                Err(error) => {
                    self.invalid(&item, json_path, &format!("is an invalid path: {error}"));
                    continue;
                }
            };
            if found.root == "metadata" {
                self.invalid(&item, json_path, "must not point to fields in metadata");
            }
            let is_plain = found
                .schema
                .is_some_and(|schema| matches!(schema.type_name.as_str(), "string" | "boolean" | "integer"));
            if !is_plain {
                let why = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
                self.invalid(&item, json_path, why);
            }
            if unique.contains(&found.text) {
                self.causes.push(Cause::duplicate(item.to_string(), &json_path.as_str().into()));
            } else {
                unique.push(found.text);
            }
        }
        if unique.len() > MAX_SELECTABLE_FIELDS && !self.leniency.many_selectable.contains(version) {
            self.causes.push(Cause::too_many(path.to_string(), unique.len(), MAX_SELECTABLE_FIELDS));
        }
    }

    fn conversion(&mut self, conversion: &Conversion, path: &Path<'_>) {
        let strategy = path.child("strategy");
        if conversion.strategy != "None" && self.definition.preserve_unknown_fields {
            let why = "must be None if spec.preserveUnknownFields is true";
            self.invalid(&strategy, &conversion.strategy, why);
        }
        self.causes.extend(one_of(&strategy, &conversion.strategy, &["None", "Webhook"]));
        let (client, versions) = (path.child("webhookClientConfig"), path.child("conversionReviewVersions"));
        if conversion.strategy != "Webhook" {
            let why = "should not be set when strategy is not set to Webhook";
            if conversion.client.is_some() {
                self.causes.push(Cause::forbidden(client.to_string(), why));
            }
            if !conversion.review_versions.is_empty() {
                self.causes.push(Cause::forbidden(versions.to_string(), why));
            }
            return;
        }
        match &conversion.client {
            None => {
                let why = "required when strategy is set to Webhook";
                self.causes.push(Cause::required(client.to_string(), why));
            }
            Some(config) => {
                self.causes.extend(webhook::client(config, self.leniency.allow_bad_bundle, &client));
            }
        }
        let required = self.leniency.require_known_review;
        self.causes.extend(webhook::review_versions(&conversion.review_versions, required, &versions));
    }

    fn immutable(&mut self, old: &Definition, path: &Path<'_>) {
        let definition = self.definition;
        let (group, plural, names) = (path.child("group"), path.child("names"), path.child("names"));
        let mut fields = Vec::new();
        if self.leniency.names_are_final {
            fields.push((path.child("scope"), &definition.scope, &old.scope));
            fields.push((names.child("kind"), &definition.names.kind, &old.names.kind));
        }
        fields.push((group, &definition.group, &old.group));
        fields.push((plural.child("plural"), &definition.names.plural, &old.names.plural));
        for (path, new, old) in fields {
            if new != old {
                self.invalid(&path, new, "field is immutable");
            }
        }
    }

    fn status(&mut self, new: &Tree) {
        let root = Path::Root;
        let path = root.child("status");
        let status = new.get("status");
        let accepted = Names::read(status.and_then(|status| status.get("acceptedNames")));
        self.causes.extend(names(&accepted, &path.child("acceptedNames")));
        let path = path.child("storedVersions");
        let stored = status.and_then(|status| status.get("storedVersions")).and_then(Value::as_array);
        let Some(stored) = stored.filter(|stored| !stored.is_empty()) else {
            let why = "must have at least one stored version";
            self.causes.push(Cause::invalid(path.to_string(), &Value::Null, why));
            return;
        };
        let mut missing: BTreeMap<&str, usize> = BTreeMap::new();
        missing.extend(stored.iter().enumerate().filter_map(|(at, name)| Some((name.as_str()?, at))));
        for version in &self.definition.versions {
            let is_stored = missing.remove(version.name.as_str()).is_some();
            if version.storage && !is_stored {
                let why = format!("must have the storage version {}", version.name);
                self.causes.push(Cause::invalid(path.to_string(), &Value::Array(stored.clone()), &why));
            }
        }
        for (name, at) in missing {
            let why = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            self.invalid(&path.index(at), name, &why);
        }
    }
}

fn has_extension(schema: &Structural) -> bool {
    schema.embedded_resource
        || schema.preserve_unknown_fields.is_some()
        || schema.int_or_string
        || !schema.list_map_keys.is_empty()
        || schema.list_type.is_some()
        || !schema.rules.is_empty()
}

fn one_of(path: &Path<'_>, value: &str, known: &[&str]) -> Option<Cause> {
    match value {
        "" => Some(Cause::required(path.to_string(), "")),
        value if known.contains(&value) => None,
        value => Some(Cause::not_supported(path.to_string(), &value.into(), known)),
    }
}

fn deprecation_mistakes(deprecated: bool, warning: &str) -> Vec<String> {
    if !deprecated {
        return vec!["can only be set for deprecated versions".to_owned()];
    }
    let mut mistakes = Vec::new();
    if warning.len() > 256 {
        mistakes.push("must be <= 256 characters long".to_owned());
    }
    if warning.is_empty() {
        mistakes.push("must not be an empty string".to_owned());
    }
    if let Some((at, _)) = warning.char_indices().find(|(_, c)| !gotext::is_print(*c)) {
        let why = "must only contain printable UTF-8 characters; non-printable character found at index";
        mistakes.push(format!("{why} {at}"));
    }
    mistakes
}

/// What is wrong with the names of a resource, asked for or accepted. A name that is not there is not wrong.
pub fn names(names: &Names, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut check = |path: Path<'_>, value: &str, is_kind: bool| {
        let lower = if is_kind { value.to_lowercase() } else { value.to_owned() };
        let problems = rules::is_dns1035_label(&lower).join(",");
        if !problems.is_empty() {
            let mixed = if is_kind { "may have mixed case, but should otherwise match: " } else { "" };
            causes.push(Cause::invalid(path.to_string(), &value.into(), &format!("{mixed}{problems}")));
        }
    };
    for (name, value, is_kind) in [
        ("plural", &names.plural, false),
        ("singular", &names.singular, false),
        ("kind", &names.kind, true),
        ("listKind", &names.list_kind, true),
    ] {
        if !value.is_empty() {
            check(path.child(name), value, is_kind);
        }
    }
    for (at, name) in names.short_names.iter().enumerate() {
        check(path.child("shortNames").index(at), name, false);
    }
    for (at, category) in names.categories.iter().enumerate() {
        check(path.child("categories").index(at), category, false);
    }
    if !names.kind.is_empty() && names.kind == names.list_kind {
        let why = "kind and listKind may not be the same";
        causes.push(Cause::invalid(
            path.child("listKind").to_string(),
            &names.list_kind.as_str().into(),
            why,
        ));
    }
    causes
}
