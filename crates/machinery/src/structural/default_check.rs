//! Whether the defaults of a schema are values that it would accept.

use serde_json::{Map, Value};

use super::{
    Structural,
    defaults::{Step, surround},
    embedded,
    path::Path,
    prune,
    rules::{REQUEST_BUDGET, RuleSet},
    value::{self, Reading},
};
use crate::field_error::Cause;

impl Structural {
    /// What is wrong with the defaults in the schema of a resource; `path` is that of the schema. With
    /// `require_pruned`, a default may not have fields that the schema does not know.
    pub fn default_mistakes(&self, path: &Path<'_>, require_pruned: bool) -> Vec<Cause> {
        let mut check = DefaultCheck { require_pruned, budget: REQUEST_BUDGET, causes: Vec::new() };
        let place = Place { root: self, steps: Vec::new(), in_meta: false };
        check.node(self, true, &place, path);
        check.causes
    }
}

/// The resource around a default.
#[derive(Clone)]
struct Place<'s> {
    root: &'s Structural,
    steps: Vec<Step>,
    /// Inside of metadata or type.
    in_meta: bool,
}

struct DefaultCheck {
    require_pruned: bool,
    /// What rules may still cost.
    budget: i64,
    causes: Vec<Cause>,
}

impl DefaultCheck {
    /// `is_root`: this is the schema of the whole resource, whatever it says itself.
    fn node(&mut self, schema: &Structural, is_root: bool, place: &Place<'_>, path: &Path<'_>) {
        if self.budget < 0 {
            return;
        }
        let is_resource = is_root || schema.embedded_resource;
        let own = Place { root: schema, steps: Vec::new(), in_meta: false };
        let place = if is_resource { &own } else { place };
        if let Some(default) = &schema.default {
            let path = path.child("default");
            if place.in_meta {
                self.in_metadata(default, schema, place, &path);
            } else {
                self.plain(default, schema, is_resource, &path);
            }
        }
        if let Some(items) = &schema.items {
            self.below(items, place, Step::Index, place.in_meta, &path.child("items"));
        }
        for (key, property) in &schema.properties {
            let in_meta =
                place.in_meta || is_resource && matches!(key.as_str(), "metadata" | "apiVersion" | "kind");
            self.below(property, place, Step::Key(key.clone()), in_meta, &path.child("properties").key(key));
        }
    }

    fn below(&mut self, schema: &Structural, place: &Place<'_>, step: Step, in_meta: bool, path: &Path<'_>) {
        let mut place = place.clone();
        place.steps.push(step);
        place.in_meta = in_meta;
        self.node(schema, false, &place, path);
    }

    fn plain(&mut self, default: &Value, schema: &Structural, is_resource: bool, path: &Path<'_>) {
        let mut coerced = default.clone();
        let refused = embedded::coerce_value(&mut coerced, schema, is_resource, path);
        if self.require_pruned {
            let mut pruned = default.clone();
            prune::prune_value(&mut pruned, schema, is_resource);
            if &pruned != default {
                self.causes.push(Cause::invalid(path.to_string(), &coerced, "must not have unknown fields"));
            }
        }
        if let Err(cause) = refused {
            self.causes.push(cause);
            return;
        }
        let wrong = embedded::check_value(&coerced, schema, is_resource, path);
        if !wrong.is_empty() {
            self.causes.extend(wrong);
            return;
        }
        self.values(&coerced, schema, is_resource, path);
    }

    fn values(&mut self, default: &Value, schema: &Structural, is_resource: bool, path: &Path<'_>) {
        let wrong = value::check(default, schema, path, Reading::Defaults, None);
        if wrong.is_empty() {
            self.rules(default, schema, is_resource, path);
        }
        self.causes.extend(wrong);
    }

    /// Rules must hold when the default stays, and when it is new.
    fn rules(&mut self, default: &Value, schema: &Structural, is_resource: bool, path: &Path<'_>) {
        let Some(rules) = RuleSet::of(schema, is_resource) else { return };
        let (mut kept, mut fresh) = (self.budget, self.budget);
        let found = rules.check(default, Some(default), schema, false, path, &mut kept).causes;
        if found.is_empty() {
            self.causes.extend(rules.check(default, None, schema, false, path, &mut fresh).causes);
        }
        self.causes.extend(found);
        self.budget = kept.min(fresh);
    }

    /// A default of a part of metadata is judged by the metadata that it results in.
    fn in_metadata(&mut self, default: &Value, schema: &Structural, place: &Place<'_>, path: &Path<'_>) {
        let mut object = surround(default.clone(), &place.steps);
        if let Some(members) = object.as_object_mut() {
            set_type(members);
        }
        let root = Path::Root;
        let wrong = match embedded::coerce_value(&mut object, place.root, true, &root) {
            Err(cause) => Some(format!("{}: {}", cause.field, cause.message)),
            Ok(()) => aggregate(&embedded::check_value(&object, place.root, true, &root)),
        };
        match wrong {
            Some(wrong) => {
                let why = format!("must result in valid metadata: {wrong}");
                self.causes.push(Cause::invalid(path.to_string(), default, &why));
            }
            None => self.values(default, schema, false, path),
        }
    }
}

fn set_type(members: &mut Map<String, Value>) {
    members.entry("kind").or_insert_with(|| "Validation".into());
    members.entry("apiVersion").or_insert_with(|| "validation/v1".into());
}

/// Several causes as Go prints a list of errors: each once, in brackets unless it is the only one.
pub fn aggregate(causes: &[Cause]) -> Option<String> {
    let mut texts: Vec<String> = Vec::new();
    for cause in causes {
        let text = format!("{}: {}", cause.field, cause.message);
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [] => None,
        [only] => Some(only.clone()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}
