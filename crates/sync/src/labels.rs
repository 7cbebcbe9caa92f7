//! What the labels of a member's namespace say: for which workspace it is, and what it is called there.

use std::collections::HashMap;

use compact_str::CompactString;
use machinery::names;
use serde::Deserialize;

/// What one of them says. Whether it counts is for others to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// The name of a workspace.
    pub workspace: Option<CompactString>,
    /// The id of that workspace, which is another one if it was made anew. What others label has none.
    pub id: Option<CompactString>,
    /// What it is called there, if that is something else.
    pub namespace: Option<CompactString>,
    pub deleting: bool,
}

#[derive(Deserialize)]
struct Wire {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: CompactString,
    #[serde(default)]
    labels: HashMap<CompactString, CompactString>,
    deletion_timestamp: Option<CompactString>,
}

impl Claim {
    /// The name of a namespace, and what it says. `None`: it is no object.
    pub fn read(object: &[u8]) -> Option<(CompactString, Claim)> {
        let Metadata { name, mut labels, deletion_timestamp } =
            serde_json::from_slice::<Wire>(object).ok()?.metadata;
        let mut label = |key: &str| labels.remove(key).filter(|value| !value.is_empty());
        let workspace = label(api::WORKSPACE_LABEL);
        // By themselves these say nothing; and what cannot be the name of a namespace is none.
        let is_told = workspace.is_some();
        let id = label(api::WORKSPACE_ID_LABEL).filter(|_| is_told);
        let is_name = |other: &CompactString| *other != name && names::is_dns1123_label(other).is_empty();
        let namespace = label(api::NAMESPACE_LABEL).filter(|other| is_told && is_name(other));
        Some((name, Claim { workspace, id, namespace, deleting: deletion_timestamp.is_some() }))
    }

    /// What the namespace `name` is called in its workspace.
    pub fn name_there(&self, name: &str) -> CompactString {
        self.namespace.clone().unwrap_or_else(|| name.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_namespace_has_another_name_only_in_a_workspace_it_is_labelled_for() {
        let rows = [
            (json!({}), None, None),
            (json!({api::WORKSPACE_LABEL: ""}), None, None),
            (json!({api::WORKSPACE_LABEL: "acme"}), Some("acme"), None),
            (json!({api::WORKSPACE_LABEL: "acme", api::NAMESPACE_LABEL: "shop"}), Some("acme"), Some("shop")),
            (json!({api::WORKSPACE_LABEL: "acme", api::NAMESPACE_LABEL: "n"}), Some("acme"), None),
            (json!({api::WORKSPACE_LABEL: "acme", api::NAMESPACE_LABEL: "No Name"}), Some("acme"), None),
            (json!({api::NAMESPACE_LABEL: "shop"}), None, None),
        ];
        for (labels, workspace, namespace) in rows {
            let object: Value = json!({"metadata": {"name": "n", "labels": labels}});
            let (name, claim) = Claim::read(object.to_string().as_bytes()).unwrap();
            assert_eq!((name.as_str(), claim.workspace.as_deref()), ("n", workspace), "{labels}");
            assert_eq!(claim.namespace.as_deref(), namespace, "{labels}");
            assert_eq!(claim.name_there("n"), namespace.unwrap_or("n"));
        }
        assert_eq!(Claim::read(b"{}"), None);
    }
}
