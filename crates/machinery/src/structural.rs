//! Schemas of custom resources.
//!
//! A [`Structural`] is a node of the `openAPIV3Schema` of a definition's version. Upstream tells the spine of a schema
//! (`properties`, `items`, `additionalProperties`) from value validations below `allOf`, `anyOf`, `oneOf` and `not`;
//! here one type serves for both, and [`Structural::violations`] says where a schema breaks the rules for them.
//!
//! ```text
//!   client's tree ──accept──> known fields only ──fill_defaults──> complete ──check──> causes
//!                     └─> unknown fields                                        (values, embedded metadata, lists)
//! ```

mod declare;
mod default_check;
mod defaults;
mod embedded;
pub mod fieldpath;
mod format;
mod invariants;
mod lists;
mod objects;
mod path;
mod pattern;
mod prune;
mod ratchet;
mod read;
pub mod rules;
mod value;

use std::collections::BTreeMap;

use serde_json::Value;

pub use default_check::aggregate;
pub use format::is_known_format;
pub use objects::Malformed;
pub use path::Path;
pub use pattern::Pattern;
pub use rules::{Findings, RuleSet};

/// A node of a schema.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Structural {
    /// `object`, `array`, `string`, `integer`, `number` or `boolean`; empty: not said.
    pub type_name: String,
    pub title: String,
    pub description: String,
    pub nullable: bool,
    pub default: Option<Value>,
    pub example: Option<Value>,
    /// Description and URL.
    pub external_docs: Option<(String, String)>,
    pub properties: BTreeMap<String, Structural>,
    pub additional: Option<Additional>,
    pub items: Option<Box<Structural>>,

    pub format: String,
    /// As it is written, and ready to be matched.
    pub pattern: Option<Pattern>,
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub multiple_of: Option<f64>,
    pub max_length: Option<i64>,
    pub min_length: Option<i64>,
    pub max_items: Option<i64>,
    pub min_items: Option<i64>,
    pub unique_items: bool,
    pub max_properties: Option<i64>,
    pub min_properties: Option<i64>,
    pub required: Vec<String>,
    pub enumeration: Vec<Value>,
    pub all_of: Vec<Structural>,
    pub any_of: Vec<Structural>,
    pub one_of: Vec<Structural>,
    pub not: Option<Box<Structural>>,

    pub preserve_unknown_fields: Option<bool>,
    pub embedded_resource: bool,
    pub int_or_string: bool,
    pub list_type: Option<String>,
    pub list_map_keys: Vec<String>,
    pub map_type: Option<String>,
    /// `x-kubernetes-validations`
    pub rules: Vec<Rule>,

    /// What no structural schema has; kept so that it can be refused.
    pub unsupported: Option<Box<Unsupported>>,
}

/// `additionalProperties`
#[derive(Clone, Debug, PartialEq)]
pub enum Additional {
    Allowed(bool),
    Schema(Box<Structural>),
}

impl Additional {
    pub fn schema(&self) -> Option<&Structural> {
        match self {
            Additional::Allowed(_) => None,
            Additional::Schema(schema) => Some(schema),
        }
    }

    fn schema_mut(&mut self) -> Option<&mut Structural> {
        match self {
            Additional::Allowed(_) => None,
            Additional::Schema(schema) => Some(schema),
        }
    }
}

/// A rule in CEL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    pub rule: String,
    pub message: String,
    pub message_expression: String,
    pub reason: Option<String>,
    pub field_path: String,
    pub optional_old_self: Option<bool>,
}

/// Members of JSON schema that upstream knows and refuses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unsupported {
    pub id: String,
    pub schema: String,
    pub reference: Option<String>,
    pub pattern_properties: BTreeMap<String, Structural>,
    pub dependencies: Option<BTreeMap<String, Dependency>>,
    pub additional_items: Option<Additional>,
    pub definitions: BTreeMap<String, Structural>,
    /// `items` as a list.
    pub item_schemas: Vec<Structural>,
}

/// What the presence of a property asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Dependency {
    Schema(Box<Structural>),
    Properties(Vec<String>),
}

impl Dependency {
    pub fn schema(&self) -> Option<&Structural> {
        match self {
            Dependency::Schema(schema) => Some(schema),
            Dependency::Properties(_) => None,
        }
    }
}

impl Structural {
    /// Whether fields that are not mentioned stay.
    pub fn preserves_unknown_fields(&self) -> bool {
        self.preserve_unknown_fields == Some(true)
    }

    /// The schema of a member of an object.
    pub fn member(&self, key: &str) -> Option<&Structural> {
        match self.properties.get(key) {
            Some(property) => Some(property),
            None => self.additional.as_ref().and_then(|additional| additional.schema()),
        }
    }

    fn additional_schema(&self) -> Option<&Structural> {
        self.additional.as_ref().and_then(|additional| additional.schema())
    }

    /// Every schema directly below this one, wherever it stands.
    pub fn children(&self) -> impl Iterator<Item = &Structural> {
        let junctors = self.all_of.iter().chain(&self.any_of).chain(&self.one_of).chain(self.not.as_deref());
        let unsupported = self.unsupported.as_deref().into_iter().flat_map(|it| {
            let dependencies =
                it.dependencies.iter().flat_map(|all| all.values().filter_map(Dependency::schema));
            it.item_schemas
                .iter()
                .chain(it.pattern_properties.values())
                .chain(it.additional_items.as_ref().and_then(Additional::schema))
                .chain(it.definitions.values())
                .chain(dependencies)
        });
        self.items
            .as_deref()
            .into_iter()
            .chain(junctors)
            .chain(self.properties.values())
            .chain(self.additional_schema().into_iter().chain(unsupported))
    }

    /// Whether `test` holds for this schema or any below it.
    pub fn any(&self, test: &impl Fn(&Structural) -> bool) -> bool {
        test(self) || self.children().any(|child| child.any(test))
    }
}

#[cfg(test)]
mod tests;
