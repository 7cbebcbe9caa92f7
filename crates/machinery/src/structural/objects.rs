//! What happens to a custom resource on its way in.

use serde_json::{Map, Value};

use super::{
    Structural, embedded, lists,
    path::Path,
    prune,
    ratchet::Counterpart,
    value::{self, Reading},
};
use crate::field_error::Cause;

pub use super::embedded::Malformed;

type Tree = Map<String, Value>;

impl Structural {
    /// Makes of a decoded object what the schema knows of it, as decoding into Go's types does for built-in kinds:
    /// metadata gets its type, unknown fields and forbidden nulls go. Without `prunes`, unknown fields stay.
    ///
    /// The paths of the unknown fields, to be told as `unknown field "…"`. The error is the reason why the object
    /// cannot be decoded, a refusal with 400.
    pub fn accept(&self, tree: &mut Tree, prunes: bool, malformed: Malformed) -> Result<Vec<String>, String> {
        let mut unknown = embedded::conform_metadata(tree, malformed)?;
        if prunes {
            unknown.extend(prune::prune(tree, self));
            self.drop_nulls(tree);
        }
        let coerced = embedded::coerce(tree, self, malformed);
        unknown.extend(coerced.map_err(|cause| format!("{}: {}", cause.field, cause.message))?);
        Ok(unknown)
    }

    /// What is wrong with a new object, rules apart.
    pub fn check_create(&self, new: &Value) -> Vec<Cause> {
        let mut causes = value::check(new, self, &Path::Root, Reading::Objects, None);
        causes.extend(self.check_shape(new));
        causes
    }

    /// What is wrong with an object that replaces another, rules apart. What was wrong before and did not change is
    /// forgiven.
    pub fn check_update(&self, new: &Value, old: &Value) -> Vec<Cause> {
        let counterpart = Counterpart { new, old, schema: self };
        let mut causes = value::check(new, self, &Path::Root, Reading::Objects, Some(counterpart));
        let Some(members) = new.as_object() else { return causes };
        causes.extend(embedded::check(members, self, false, &Path::Root));
        causes.extend(self.new_duplicates(new, old));
        causes
    }

    /// What is wrong with an object that differs from the old one in `status`.
    pub fn check_status(&self, new: &Value, old: &Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        if let (Some(status), Some(schema)) = (new.get("status"), self.properties.get("status")) {
            let counterpart = Counterpart { new, old, schema: self }.key("status");
            causes.extend(value::check_status(status, schema, counterpart));
        }
        causes.extend(self.new_duplicates(new, old));
        causes
    }

    /// What is wrong beside values: embedded resources, and what stands twice in sets and maps.
    fn check_shape(&self, new: &Value) -> Vec<Cause> {
        let Some(members) = new.as_object() else { return Vec::new() };
        let mut causes = embedded::check(members, self, false, &Path::Root);
        causes.extend(lists::duplicates(members, self));
        causes
    }

    /// Duplicates are forgiven where there were some before.
    fn new_duplicates(&self, new: &Value, old: &Value) -> Vec<Cause> {
        let duplicates = |object: &Value| {
            object.as_object().map_or_else(Vec::new, |members| lists::duplicates(members, self))
        };
        let found = duplicates(new);
        if found.is_empty() || duplicates(old).is_empty() { found } else { Vec::new() }
    }
}
