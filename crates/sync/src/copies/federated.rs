//! What an object says of its copies that was made from a federated one.

use kinds::{
    Problem,
    overrides::{self, Change},
};
use machinery::Object;
use serde_json::Value;

/// Of the copy in one cluster.
#[derive(Debug, Default, PartialEq)]
pub struct Said {
    /// What differs there.
    pub changes: Vec<Change>,
    /// Once it is there, replicas are the member's.
    pub retains_replicas: bool,
    /// Which edition of the federated object this is.
    pub edition: String,
}

impl Said {
    pub fn read(object: &Object, cluster: &str) -> Result<Said, Problem> {
        let name = api::FEDERATED_ANNOTATION;
        // Hardly any has it, and none else need be taken apart.
        if !object.metadata_member().windows(name.len()).any(|window| window == name.as_bytes()) {
            return Ok(Said::default());
        }
        let tree = object.tree().map_err(|_| Problem::Missing("fields that can be read"))?;
        let Some(text) = tree.get("metadata").and_then(|it| it["annotations"][name].as_str()) else {
            return Ok(Said::default());
        };
        let invalid = |reason: String| Problem::Invalid { field: format!("annotation {name}"), reason };
        let said: Value = serde_json::from_str(text).map_err(|error| invalid(error.to_string()))?;
        Ok(Said {
            changes: overrides::read(&said["overrides"])?.remove(cluster).unwrap_or_default(),
            retains_replicas: said["retainReplicas"] == true,
            edition: said["edition"].as_str().unwrap_or_default().to_owned(),
        })
    }
}
