//! What is different in some clusters: JSON patches of the copies, of three operations.

use std::collections::BTreeMap;

use machinery::patch;
use serde_json::{Value, json};

use crate::{
    fields::{at, list, text},
    types::Problem,
};

/// What makes an object the one it is.
const FIXED: [&str; 4] = ["/metadata/namespace", "/metadata/name", "/metadata/generateName", "/kind"];

/// One change of a copy.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// `add`, `remove` or `replace`.
    pub operation: String,
    /// A JSON pointer.
    pub path: String,
    pub value: Value,
}

/// The changes of each cluster.
pub type Overrides = BTreeMap<String, Vec<Change>>;

/// Reads `[{clusterName, clusterOverrides: [{op, path, value}]}]`. An operation that is not said is `replace`.
pub fn read(overrides: &Value) -> Result<Overrides, Problem> {
    let mut read = Overrides::new();
    for (index, entry) in overrides.as_array().into_iter().flatten().enumerate() {
        let cluster = text(entry, "clusterName");
        let changes: Result<Vec<Change>, Problem> =
            list(entry, "clusterOverrides").iter().map(change).collect();
        let changes = changes?;
        check(&changes)?;
        if read.insert(cluster.to_owned(), changes).is_some() {
            let field = format!("overrides[{index}].clusterName");
            return Err(Problem::Invalid { field, reason: format!("cluster {cluster:?} is there twice") });
        }
    }
    Ok(read)
}

fn change(change: &Value) -> Result<Change, Problem> {
    let path = text(change, "path").to_owned();
    let operation = match text(change, "op") {
        "" => "replace",
        known @ ("add" | "remove" | "replace") => known,
        other => {
            return Err(Problem::Invalid { field: path, reason: format!("unknown operation {other:?}") });
        }
    };
    let value = at(change, "value").cloned().unwrap_or_default();
    Ok(Change { operation: operation.to_owned(), path, value })
}

/// No change may make it another object, and none may follow another at the same place.
pub fn check(changes: &[Change]) -> Result<(), Problem> {
    for (index, change) in changes.iter().enumerate() {
        let invalid =
            |reason: &str| Err(Problem::Invalid { field: change.path.clone(), reason: reason.to_owned() });
        if FIXED.contains(&change.path.as_str()) {
            return invalid("cannot be different in a cluster");
        }
        if changes.iter().take(index).any(|other| other.path == change.path) {
            return invalid("is changed twice for one cluster");
        }
    }
    Ok(())
}

/// Changes a copy. All changes are made, or none. What is to be replaced must be there, other than in a patch.
pub fn apply(copy: &mut Value, changes: &[Change]) -> Result<(), Problem> {
    let mut changed = copy.clone();
    for change in changes {
        let invalid = |reason: String| Problem::Invalid { field: change.path.clone(), reason };
        let operation = match change.operation.as_str() {
            "replace" if changed.pointer(&change.path).is_none() => {
                return Err(invalid("there is nothing to replace".to_owned()));
            }
            "remove" => json!([{"op": "remove", "path": change.path}]),
            operation => json!([{"op": operation, "path": change.path, "value": change.value}]),
        };
        patch::json_patch(&mut changed, operation.to_string().as_bytes())
            .map_err(|error| invalid(error.to_string()))?;
    }
    *copy = changed;
    Ok(())
}
