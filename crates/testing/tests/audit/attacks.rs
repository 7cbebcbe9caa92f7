//! Whatever is tried and refused is on record, with who tried it, also where no policy was written.

use anyhow::Result;
use http::Method;
use serde_json::{Value, json};
use testing::client::Client;

use crate::{Audited, CONFIG_MAPS, SECRETS};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";

struct Attempt {
    /// As the record names them; nobody if they were not let in.
    who: &'static str,
    method: Method,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Value,
    code: u16,
}

fn post(path: String, body: Value, code: u16) -> Attempt {
    Attempt { who: "mallory", method: Method::POST, path, headers: Vec::new(), body, code }
}

fn get(who: &'static str, path: &str, headers: &[(&'static str, &str)], code: u16) -> Attempt {
    let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Attempt { who, method: Method::GET, path: path.to_owned(), headers, body: Value::Null, code }
}

/// Lets mallory write roles, bindings, secrets and config maps, and nothing else; sets limits that she runs into.
async fn prepare(admin: &Client) -> Result<()> {
    let rules = json!([
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["create"]},
    ]);
    let subjects = json!([{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "mallory"}]);
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "writer"});
    let policy = json!({"metadata": {"name": "none"}, "spec": {
        "matchConstraints": {"resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
        }]},
        "validations": [{"expression": "object.metadata.name != 'refused'"}],
    }});
    let binding =
        json!({"metadata": {"name": "none"}, "spec": {"policyName": "none", "validationActions": ["Deny"]}});
    for (path, object) in [
        (format!("{RBAC}/clusterroles"), json!({"metadata": {"name": "writer"}, "rules": rules})),
        (
            format!("{RBAC}/clusterrolebindings"),
            json!({"metadata": {"name": "writer"}, "roleRef": role, "subjects": subjects}),
        ),
        (
            "/api/v1/namespaces/default/resourcequotas".to_owned(),
            json!({"metadata": {"name": "q"}, "spec": {"hard": {"secrets": "0"}}}),
        ),
        (format!("{REGISTRATION}/validatingadmissionpolicies"), policy),
        (format!("{REGISTRATION}/validatingadmissionpolicybindings"), binding),
    ] {
        let made = admin.post(&path, &object).await?;
        assert_eq!(made.code, 201, "{}", made.text());
    }
    Ok(())
}

fn attempts(token: &str) -> Vec<Attempt> {
    let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let all =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
    let subjects = json!([{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "mallory"}]);
    let bearer = format!("Bearer {token}");
    vec![
        post(format!("{RBAC}/clusterroles"), json!({"metadata": {"name": "all"}, "rules": everything}), 403),
        post(
            format!("{RBAC}/clusterrolebindings"),
            json!({"metadata": {"name": "all"}, "roleRef": all, "subjects": subjects}),
            403,
        ),
        get(
            "mallory",
            CONFIG_MAPS,
            &[("impersonate-user", "mallory"), ("impersonate-group", "system:masters")],
            403,
        ),
        get("mallory", CONFIG_MAPS, &[("impersonate-user", "system:kube-controller-manager")], 403),
        get("", CONFIG_MAPS, &[("authorization", "Bearer eyJhbGciOiJub25lIn0.e30.")], 401),
        get("", "/clusters/root/api/v1/namespaces", &[("authorization", &bearer)], 401),
        post(SECRETS.to_owned(), json!({"metadata": {"name": "one-too-many"}}), 403),
        post(CONFIG_MAPS.to_owned(), json!({"metadata": {"name": "refused"}}), 422),
    ]
}

#[tokio::test]
async fn what_is_tried_and_refused_is_on_record() -> Result<()> {
    // Given somebody with few rights, and a good token of another workspace
    let audited = Audited::start(None).await?;
    let admin = audited.hub.admin().await?;
    prepare(&admin).await?;
    let account = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let issued = admin.post(account, &json!({"spec": {"expirationSeconds": 600}})).await?;
    assert_eq!(issued.code, 201, "{}", issued.text());
    let token = issued.json()["status"]["token"].as_str().unwrap_or_default().to_owned();
    let (mallory, nobody) = (audited.hub.user("mallory", &[]).await?, audited.hub.nobody().await?);
    // When they try
    for Attempt { who, method, path, headers, body, code } in attempts(&token) {
        let before = audited.events()?.len();
        let client = if who.is_empty() { &nobody } else { &mallory };
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = client.call(method, &path, &headers, body).await?;
        assert_eq!(answer.code.as_u16(), code, "{path}: {}", answer.text());
        // Then it is on record who did and what came of it
        let events = audited.events()?;
        let found = events[before..].iter().find(|event| event["requestURI"] == path.as_str());
        let event = found.unwrap_or_else(|| panic!("no record of {path}"));
        assert_eq!(event["responseStatus"]["code"], code, "{event}");
        assert_eq!(event["user"]["username"].as_str().unwrap_or_default(), who, "{event}");
    }
    // And no credential is
    assert!(!audited.text()?.contains(&token));
    Ok(())
}
