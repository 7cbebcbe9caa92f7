//! The file as it is written.

use serde::Deserialize;
use serde_json::Value;

const GROUP: &str = "apiserver.config.k8s.io";

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Configuration {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    pub jwt: Vec<Jwt>,
    pub anonymous: Option<Anonymous>,
}

/// Whether requests without credentials are answered at all.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Anonymous {
    #[serde(default)]
    pub enabled: bool,
    /// If there are any, only these paths.
    #[serde(default)]
    pub conditions: Vec<AnonymousCondition>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AnonymousCondition {
    #[serde(default)]
    pub path: String,
}

impl Anonymous {
    pub fn allows(&self, path: &str) -> bool {
        self.enabled
            && (self.conditions.is_empty() || self.conditions.iter().any(|condition| condition.path == path))
    }
}

/// One issuer, and how its claims are read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Jwt {
    #[serde(default)]
    pub issuer: Issuer,
    #[serde(default)]
    pub claim_validation_rules: Vec<ClaimRule>,
    #[serde(default)]
    pub claim_mappings: ClaimMappings,
    #[serde(default)]
    pub user_validation_rules: Vec<UserRule>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Issuer {
    #[serde(default)]
    pub url: String,
    #[serde(default, rename = "discoveryURL")]
    pub discovery_url: String,
    #[serde(default)]
    pub certificate_authority: String,
    #[serde(default)]
    pub audiences: Vec<String>,
    #[serde(default)]
    pub audience_match_policy: String,
    #[serde(default)]
    pub egress_selector_type: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClaimRule {
    #[serde(default)]
    pub claim: String,
    #[serde(default)]
    pub required_value: String,
    #[serde(default)]
    pub expression: String,
    #[serde(default)]
    pub message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClaimMappings {
    #[serde(default)]
    pub username: Prefixed,
    #[serde(default)]
    pub groups: Prefixed,
    #[serde(default)]
    pub uid: ClaimOrExpression,
    #[serde(default)]
    pub extra: Vec<ExtraMapping>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Prefixed {
    #[serde(default)]
    pub claim: String,
    pub prefix: Option<String>,
    #[serde(default)]
    pub expression: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClaimOrExpression {
    #[serde(default)]
    pub claim: String,
    #[serde(default)]
    pub expression: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExtraMapping {
    #[serde(default)]
    pub key: String,
    #[serde(default)]
    pub value_expression: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UserRule {
    #[serde(default)]
    pub expression: String,
    #[serde(default)]
    pub message: String,
}

/// Reads what YAML or JSON said. Fields that are not known are refused: a misspelt rule must not be a missing one.
pub fn parse(tree: Value) -> Result<Configuration, String> {
    let text = |key: &str| tree.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let known =
        ["v1", "v1beta1", "v1alpha1"].iter().any(|version| api_version == format!("{GROUP}/{version}"));
    if !known || kind != "AuthenticationConfiguration" {
        return Err(format!("no kind {kind:?} is registered for version {api_version:?}"));
    }
    serde_json::from_value(tree).map_err(|error| format!("strict decoding error: {error}"))
}
