//! The custom resource.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(CustomResource, Serialize, Deserialize, Debug, Clone, PartialEq, KubeSchema)]
#[kube(
    group = "clients-rust.hanse.test",
    version = "v1",
    kind = "Lamp",
    namespaced,
    category = "lights",
    shortname = "lp",
    status = "LampStatus",
    validation = Rule::new("self.spec.bulbs <= 100").message("a lamp has at most 100 bulbs"),
    printcolumn(json_path = ".spec.colour", name = "Colour", type_ = "string"),
    scale(spec_replicas_path = ".spec.bulbs", status_replicas_path = ".status.bulbs")
)]
#[serde(rename_all = "camelCase")]
pub struct LampSpec {
    pub bulbs: i32,
    #[serde(default)]
    pub colour: Colour,
}

#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Colour {
    #[default]
    White,
    Green,
}

#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LampStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    #[serde(default)]
    pub bulbs: i32,
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, JsonSchema)]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
}

impl Lamp {
    /// The operator has seen the newest generation.
    pub fn is_seen(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.observed_generation == self.metadata.generation)
    }
}
