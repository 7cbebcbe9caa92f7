//! What a `Cluster` and its Secret ask of a session.

use std::collections::BTreeSet;

use base64::{Engine, engine::general_purpose::STANDARD};
use machinery::{
    Object,
    resource::Tree,
    validation::parts::{flag, object, text},
};
use serde_json::Value;
use server::space::Space;
use store::Key;

use crate::{
    client::{Access, Identity},
    health::Trouble,
};

/// All of it.
#[derive(Clone, PartialEq)]
pub struct Wanted {
    pub uid: String,
    /// How to reach the member; `Err`: what is wrong with that.
    pub link: Result<Access, Trouble>,
    pub labels: Tree,
    pub taints: Value,
    pub unschedulable: bool,
    /// Namespaces have the workspace before their name there.
    pub prefixed: bool,
    /// Kinds in no namespace that it takes from workspaces which do not have it.
    pub admits: BTreeSet<String>,
    /// As `namespace/name` in the workspace.
    pub secret: (String, String),
}

impl Wanted {
    pub fn read(space: &Space, cluster: &Object) -> Option<Wanted> {
        let tree = cluster.tree().ok()?;
        let spec = object(&tree, "spec")?;
        let reference = object(spec, "secretRef");
        let named = |key: &str| reference.map_or("", |it| text(it, key)).to_owned();
        let secret = (named("namespace"), named("name"));
        let labels = object(&tree, "metadata").and_then(|it| object(it, "labels")).cloned();
        Some(Wanted {
            uid: cluster.head.uid.to_string(),
            link: access(space, spec, &secret),
            labels: labels.unwrap_or_default(),
            taints: spec.get("taints").cloned().unwrap_or_else(|| Value::Array(Vec::new())),
            unschedulable: flag(spec, "unschedulable"),
            prefixed: text(spec, "namespaces") == "Prefixed",
            admits: texts(spec.get("admits")),
            secret,
        })
    }
}

fn texts(list: Option<&Value>) -> BTreeSet<String> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn access(space: &Space, spec: &Tree, secret: &(String, String)) -> Result<Access, Trouble> {
    let wrong = |reason, message: String| Trouble { reachable: false, ..Trouble::definite(reason, message) };
    let bundle = text(spec, "caBundle");
    let authority = STANDARD
        .decode(bundle.split_whitespace().collect::<String>())
        .map_err(|error| wrong("AccessInvalid", format!("spec.caBundle: {error}")))?;
    let server_name = text(spec, "tlsServerName");
    let (namespace, name) = secret;
    let found = space.get(&Key::new("", "secrets", namespace, name));
    let found = found.ok_or_else(|| {
        wrong("CredentialMissing", format!("there is no Secret {namespace}/{name} in the workspace"))
    })?;
    let tree = found.tree().map_err(|error| wrong("CredentialInvalid", error.to_string()))?;
    let identity = identity(&tree)
        .map_err(|why| wrong("CredentialInvalid", format!("Secret {namespace}/{name}: {why}")))?;
    Ok(Access {
        server: text(spec, "endpoint").trim_end_matches('/').to_owned(),
        authority,
        server_name: (!server_name.is_empty()).then(|| server_name.to_owned()),
        identity,
    })
}

/// The credential in a Secret: `token`, or `tls.crt` with `tls.key`.
fn identity(secret: &Tree) -> Result<Identity, String> {
    let data = |key: &str| -> Result<Option<Vec<u8>>, String> {
        let value = object(secret, "data").and_then(|data| data.get(key)).and_then(Value::as_str);
        value.map(|it| STANDARD.decode(it).map_err(|error| format!("{key}: {error}"))).transpose()
    };
    if let Some(token) = data("token")? {
        let token = String::from_utf8(token).map_err(|_| "token: not UTF-8".to_owned())?;
        return match token.trim() {
            "" => Err("token is empty".to_owned()),
            token => Ok(Identity::Token(token.to_owned())),
        };
    }
    match (data("tls.crt")?, data("tls.key")?) {
        (Some(certificate), Some(key)) => Ok(Identity::Certificate { certificate, key }),
        _ => Err("it has neither token nor tls.crt and tls.key".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_holds_a_token_or_a_certificate() {
        let read = |data: Value| {
            let secret = json!({"data": data});
            identity(secret.as_object().unwrap()).map_err(|why| why.to_string())
        };
        assert!(read(json!({"token": "YQo="})) == Ok(Identity::Token("a".into())));
        let pair = Identity::Certificate { certificate: b"c".into(), key: b"k".into() };
        assert!(read(json!({"tls.crt": "Yw==", "tls.key": "aw=="})) == Ok(pair));
        for data in
            [json!({}), json!({"token": ""}), json!({"token": "!"}), json!({"tls.crt": "Yw=="}), json!(null)]
        {
            assert!(read(data.clone()).is_err(), "{data}");
        }
    }
}
