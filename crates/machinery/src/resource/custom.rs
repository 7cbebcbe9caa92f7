//! A kind that a definition makes.

use serde_json::Value;

use super::Tree;
use crate::{
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
