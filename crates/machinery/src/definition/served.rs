//! What the server needs to serve each version of a definition.

use std::{cmp::Ordering, sync::Arc};

use serde_json::{Map, Value};

use super::{Column, Conversion, Definition, Names, Scale, Subresources, Version, status};
use crate::{
    field_error::Cause,
    gotext,
    jsonpath::JsonPath,
    names,
    resource::{ScalePaths, Tree},
    structural::{Findings, Malformed, Path, RuleSet, Structural, rules},
};

/// A version of a custom resource.
#[derive(Clone, Debug)]
pub struct CustomVersion {
    pub group: String,
    pub version: String,
    /// As accepted, which may be fewer than asked for.
    pub names: Names,
    pub namespaced: bool,
    /// Answers requests. A version that does not may still be the one that is stored.
    pub served: bool,
    pub storage: bool,
    /// What to tell everybody who uses this version.
    pub deprecation: Option<String>,
    /// None: nothing is known of the objects.
    pub schema: Option<Arc<Structural>>,
    /// The rules of the schema, compiled.
    pub rules: Option<Arc<RuleSet>>,
    /// Whether unknown fields go.
    pub prunes: bool,
    pub has_status: bool,
    pub scale: Option<ScalePaths>,
    /// Beside the name.
    pub columns: Vec<CustomColumn>,
    pub selectable: Vec<SelectablePath>,
    pub conversion: Conversion,
}

/// A column of `kubectl get`.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomColumn {
    pub name: String,
    pub type_name: String,
    pub format: String,
    pub description: String,
    pub priority: i32,
    pub path: JsonPath,
}

/// A field that selectors know.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectablePath {
    /// `spec.color`
    pub name: String,
    path: JsonPath,
}

impl SelectablePath {
    /// The value that selectors compare; empty if there is none.
    pub fn value(&self, object: &Value) -> String {
        self.path.first(object).filter(|value| !value.is_null()).map(gotext::plain).unwrap_or_default()
    }
}

/// Whether requests for custom resources of a definition are answered: its names were accepted at least once.
pub fn is_served(definition: &Tree) -> bool {
    status::is_true(definition, "NamesAccepted") || status::is_true(definition, "Established")
}

/// What is served or stored of a definition, the preferred version first.
pub fn served(definition: &Tree) -> Vec<CustomVersion> {
    let read = Definition::read(definition);
    let names = Names::read(definition.get("status").and_then(|status| status.get("acceptedNames")));
    let in_use = read.versions.iter().filter(|version| version.served || version.storage);
    let mut versions: Vec<CustomVersion> =
        in_use.map(|version| custom_version(&read, version, &names)).collect();
    versions.sort_by(|one, other| compare_versions(&other.version, &one.version));
    versions
}

/// The one version of a kind that is there without a definition, given what its definition would say.
pub(crate) fn own(definition: &Tree) -> CustomVersion {
    let read = Definition::read(definition);
    let version = read.versions.first().cloned().unwrap_or_default();
    custom_version(&read, &version, &read.names)
}

fn custom_version(definition: &Definition, version: &Version, names: &Names) -> CustomVersion {
    let schema = version.structural().cloned().map(Structural::with_pruned_defaults);
    let subresources = version.subresources.clone().unwrap_or_default();
    CustomVersion {
        group: definition.group.clone(),
        version: version.name.clone(),
        names: names.clone(),
        namespaced: definition.scope == "Namespaced",
        served: version.served,
        storage: version.storage,
        deprecation: deprecation(definition, version),
        rules: schema.as_ref().and_then(|schema| RuleSet::of(schema, true)).map(Arc::new),
        schema: schema.map(Arc::new),
        prunes: !definition.preserve_unknown_fields,
        has_status: subresources.status,
        scale: scale_paths(&subresources),
        columns: columns(&version.columns),
        selectable: version.selectable.iter().filter_map(|path| selectable(path)).collect(),
        conversion: definition.conversion.clone().unwrap_or_default(),
    }
}

fn scale_paths(subresources: &Subresources) -> Option<ScalePaths> {
    let Scale { spec_replicas, status_replicas, label_selector } = subresources.scale.clone()?;
    Some(ScalePaths { spec_replicas, status_replicas, selector: label_selector.unwrap_or_default() })
}

fn columns(declared: &[Column]) -> Vec<CustomColumn> {
    let age = [Column {
        name: "Age".to_owned(),
        type_name: "date".to_owned(),
        description: "How long ago the object was created.".to_owned(),
        json_path: ".metadata.creationTimestamp".to_owned(),
        ..Column::default()
    }];
    let declared = if declared.is_empty() { &age } else { declared };
    // A path that cannot be read hides its column and those after it.
    declared.iter().map_while(column).collect()
}

fn column(column: &Column) -> Option<CustomColumn> {
    let by_path = || format!("Custom resource definition column (in JSONPath format): {}", column.json_path);
    Some(CustomColumn {
        name: column.name.clone(),
        type_name: column.type_name.clone(),
        format: column.format.clone(),
        description: Some(column.description.clone()).filter(|text| !text.is_empty()).unwrap_or_else(by_path),
        priority: column.priority,
        path: JsonPath::parse(&column.json_path).ok()?,
    })
}

fn selectable(path: &str) -> Option<SelectablePath> {
    let name = path.strip_prefix('.').unwrap_or(path).to_owned();
    Some(SelectablePath { name, path: JsonPath::parse(path).ok()? })
}

fn deprecation(definition: &Definition, version: &Version) -> Option<String> {
    if !version.deprecated {
        return None;
    }
    if let Some(warning) = &version.deprecation_warning {
        return Some(warning.clone());
    }
    let (group, kind) = (&definition.group, &definition.names.kind);
    let told = format!("{group}/{} {kind} is deprecated", version.name);
    let better = definition.versions.iter().filter(|other| {
        other.served && !other.deprecated && compare_versions(&version.name, &other.name).is_lt()
    });
    match better.max_by(|one, other| compare_versions(&one.name, &other.name)) {
        Some(better) => Some(format!("{told}; use {group}/{} {kind}", better.name)),
        None => Some(told),
    }
}

/// How stable a version is, and its numbers.
type Rank = (u8, u64, u64);

/// `v2` before `v1` before `v1beta2` before `v1alpha1` before anything else, of which the alphabetically first is the
/// greatest.
pub fn compare_versions(one: &str, other: &str) -> Ordering {
    match (rank(one), rank(other)) {
        (Some(one), Some(other)) => one.cmp(&other),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        (None, None) => other.cmp(one),
    }
}

fn rank(version: &str) -> Option<Rank> {
    let rest = version.strip_prefix('v')?;
    let (major, minor, stability) = match (rest.split_once("alpha"), rest.split_once("beta")) {
        (Some((major, minor)), _) => (major, Some(minor), 0),
        (None, Some((major, minor))) => (major, Some(minor), 1),
        (None, None) => (rest, None, 2),
    };
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<i64>().ok().filter(|_| is_number).and_then(|number| u64::try_from(number).ok())
    };
    let minor = minor.map_or(Some(0), number)?;
    Some((stability, number(major)?, minor))
}

impl CustomVersion {
    /// `example.com/v1`
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// Makes of a decoded object what is known of it; see [`Structural::accept`].
    pub fn accept(&self, tree: &mut Tree, malformed: Malformed) -> Result<Vec<String>, String> {
        match &self.schema {
            Some(schema) => schema.accept(tree, self.prunes, malformed),
            None => Structural::default().accept(tree, self.prunes, malformed),
        }
    }

    /// Fills in defaults; also when an object is read from storage.
    pub fn fill_defaults(&self, tree: &mut Tree) {
        if let Some(schema) = &self.schema {
            schema.fill_defaults(tree);
        }
    }

    /// What is wrong with a new object, its own metadata apart.
    pub fn check_create(&self, new: &Value) -> Findings {
        let mut causes = self.schema.as_ref().map(|schema| schema.check_create(new)).unwrap_or_default();
        causes.extend(self.scale_mistakes(new, true));
        self.with_rules(causes, new, None)
    }

    /// What is wrong with an object that replaces another, its own metadata apart.
    pub fn check_update(&self, new: &Value, old: &Value) -> Findings {
        let mut causes = self.schema.as_ref().map(|schema| schema.check_update(new, old)).unwrap_or_default();
        causes.extend(self.scale_mistakes(new, true));
        self.with_rules(causes, new, Some(old))
    }

    /// What is wrong with a change of `status`.
    pub fn check_status(&self, new: &Value, old: &Value) -> Findings {
        let mut causes = self.schema.as_ref().map(|schema| schema.check_status(new, old)).unwrap_or_default();
        causes.extend(self.scale_mistakes(new, false));
        self.with_rules(causes, new, Some(old))
    }

    /// Rules are asked only of an object whose shape they can rely on.
    fn with_rules(&self, mut causes: Vec<Cause>, new: &Value, old: Option<&Value>) -> Findings {
        let (Some(schema), Some(rules)) = (&self.schema, &self.rules) else {
            return Findings { causes, warnings: Vec::new() };
        };
        if causes.iter().any(rules::is_blocked_by) {
            let why = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
            causes.push(Cause::invalid("<nil>", &Value::Null, why));
            return Findings { causes, warnings: Vec::new() };
        }
        let mut budget = rules::REQUEST_BUDGET;
        let found = rules.check(new, old, schema, true, &Path::Root, &mut budget);
        causes.extend(found.causes);
        Findings { causes, warnings: found.warnings }
    }

    fn scale_mistakes(&self, object: &Value, with_spec: bool) -> Vec<Cause> {
        let Some(scale) = &self.scale else { return Vec::new() };
        let mut causes = Vec::new();
        if with_spec {
            causes.extend(replicas_mistake(object, &scale.spec_replicas));
        }
        causes.extend(replicas_mistake(object, &scale.status_replicas));
        if !scale.selector.is_empty() {
            causes.extend(selector_mistake(object, &scale.selector));
        }
        causes
    }
}

/// Follows a path in dots: the value, or that what should hold it is no object.
fn nested<'a>(object: &'a Value, path: &str) -> Result<Option<&'a Value>, String> {
    let keys: Vec<&str> = path.strip_prefix('.').unwrap_or(path).split('.').collect();
    let mut value = object;
    for (at, key) in keys.iter().enumerate() {
        let Some(members) = value.as_object() else {
            // Nothing is below a null.
            if value.is_null() {
                return Ok(None);
            }
            return Err(wrong_type(&keys[..=at].join("."), value, "map[string]interface{}"));
        };
        match members.get(*key) {
            Some(below) => value = below,
            None => return Ok(None),
        }
    }
    Ok(Some(value))
}

fn wrong_type(path: &str, value: &Value, expected: &str) -> String {
    let path = path.strip_prefix('.').unwrap_or(path);
    format!(
        ".{path} accessor error: {} is of the type {}, expected {expected}",
        gotext::plain(value),
        if value.is_null() { "<nil>" } else { gotext::type_of(value) }
    )
}

fn replicas_mistake(object: &Value, path: &str) -> Option<Cause> {
    let found = match nested(object, path) {
        Ok(None) => return None,
        Ok(Some(value)) => value.as_i64().ok_or_else(|| wrong_type(path, value, "int64")),
        Err(error) => Err(error),
    };
    match found {
        Err(error) => Some(Cause::invalid(path, &0.into(), &error)),
        Ok(replicas @ ..0) => {
            Some(Cause::invalid(path, &replicas.into(), "should be a non-negative integer"))
        }
        Ok(replicas) if replicas > i64::from(i32::MAX) => {
            Some(Cause::invalid(path, &replicas.into(), "should be less than or equal to 2147483647"))
        }
        Ok(_) => None,
    }
}

fn selector_mistake(object: &Value, path: &str) -> Option<Cause> {
    let error = match nested(object, path) {
        Ok(None) | Ok(Some(Value::String(_))) => return None,
        Ok(Some(value)) => wrong_type(path, value, "string"),
        Err(error) => error,
    };
    Some(Cause::invalid(path, &"".into(), &error))
}

/// Finalizers that a custom resource should better not have.
pub fn finalizer_warnings(new: &Map<String, Value>, old: Option<&Map<String, Value>>) -> Vec<String> {
    let finalizers = |tree: &Map<String, Value>| -> Vec<String> {
        let list =
            tree.get("metadata").and_then(|metadata| metadata.get("finalizers")).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let known = old.map(finalizers).unwrap_or_default();
    let mut added = finalizers(new);
    added.retain(|finalizer| !known.contains(finalizer));
    added.sort();
    added.dedup();
    added.iter().flat_map(|finalizer| finalizer_warning(finalizer)).collect()
}

fn finalizer_warning(finalizer: &str) -> Vec<String> {
    let told = |what: &str| format!("metadata.finalizers: {}: {what}", gotext::quote(finalizer));
    let mut warnings: Vec<String> =
        names::is_qualified_name(finalizer).iter().map(|what| told(what)).collect();
    if !finalizer.contains('/') && !matches!(finalizer, "orphan" | "foregroundDeletion" | "kubernetes") {
        let better = if finalizer.contains('.') {
            "prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers"
        } else {
            "prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
        };
        warnings.push(told(better));
    }
    warnings
}
