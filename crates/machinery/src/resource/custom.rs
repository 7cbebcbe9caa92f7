//! A kind that a definition makes.

use std::sync::OnceLock;

use serde_json::Value;

use super::Tree;
use crate::{
    apply::{Schema, SchemaBuilder, TypeId, TypeRef},
    field_error::Cause,
    revision::Revision,
    structural::{Malformed, Structural},
};

/// What the definition says about objects of one version.
#[derive(Debug)]
pub struct Custom {
    pub schema: Structural,
    /// Unknown fields are dropped.
    pub prunes: bool,
    /// The name of the definition.
    pub definition: String,
    /// The revision of the definition. What was written after it, in this version, needs no second look.
    pub since: Revision,
    pub conversion: CustomConversion,
    /// `openAPIV3Schema`, as it is written.
    pub source: Value,
    pub merge: OnceLock<(Schema, TypeId)>,
}

/// How objects get from one version to another.
#[derive(Clone, Debug, PartialEq)]
pub enum CustomConversion {
    /// Only `apiVersion` differs.
    None,
    /// Somebody is asked: its `clientConfig`.
    Webhook(Value),
}

impl Custom {
    /// How its objects merge.
    pub fn merge_type(&self) -> TypeRef<'_> {
        let (schema, id) = self.merge.get_or_init(|| {
            let mut builder = SchemaBuilder::new();
            // Without a schema that can be used objects are merged by what they look like, as upstream does.
            let id = builder.custom_resource(&self.source, !self.prunes).unwrap_or(builder.deduced());
            (builder.build(), id)
        });
        schema.get(*id)
    }

    /// Makes of an object that was stored under an earlier definition, or converted, what this one makes of it.
    pub fn renew(&self, tree: &mut Tree) {
        // With `Drop` nothing is refused.
        let _ = self.schema.accept(tree, self.prunes, Malformed::Drop);
        self.schema.fill_defaults(tree);
    }

    /// What is wrong with an object.
    pub fn check(&self, new: &mut Tree, old: Option<&Tree>, subresource: &str) -> Vec<Cause> {
        // The schema looks at values; the tree is lent to it as one.
        let value = Value::Object(std::mem::take(new));
        let old = old.map(|old| Value::Object(old.clone()));
        let causes = match (&old, subresource) {
            (None, _) => self.schema.check_create(&value),
            (Some(old), "status") => self.schema.check_status(&value, old),
            (Some(old), _) => self.schema.check_update(&value, old),
        };
        if let Value::Object(tree) = value {
            *new = tree;
        }
        causes
    }
}
