//! Pods get their account's identity.

use anyhow::Result;
use serde_json::{Value, json};

use crate::{CORE, Place};

const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

fn mk_pod(name: &str, spec: Value) -> Value {
    let mut whole = json!({"containers": [{"name": "c", "image": "i"}]});
    for (key, value) in spec.as_object().into_iter().flatten() {
        whole[key] = value.clone();
    }
    json!({"metadata": {"name": name}, "spec": whole})
}

#[tokio::test]
async fn a_pod_gets_the_default_account_and_its_token() -> Result<()> {
    let place = Place::mk().await?;
    // Also at once in a new namespace
    place.create("", "/api/v1/namespaces", json!({"metadata": {"name": "new"}})).await?;
    let init = json!({"initContainers": [{"name": "i", "image": "i"}]});
    let pod = place.create("", "/api/v1/namespaces/new/pods", mk_pod("p", init)).await?;
    let spec = &pod["spec"];
    assert_eq!(spec["serviceAccountName"], "default");
    assert_eq!(spec["serviceAccount"], "default");
    let volume = &spec["volumes"][0];
    let name = volume["name"].as_str().unwrap_or_default();
    assert!(name.starts_with("kube-api-access-") && name.len() == 21, "{name}");
    let field = json!({"apiVersion": "v1", "fieldPath": "metadata.namespace"});
    assert_eq!(
        volume["projected"],
        json!({
            "defaultMode": 420,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}},
            ],
        })
    );
    let mount = json!([{"name": name, "readOnly": true, "mountPath": MOUNT}]);
    for container in [&spec["containers"][0], &spec["initContainers"][0]] {
        assert_eq!(container["volumeMounts"], mount);
    }
    Ok(())
}

#[tokio::test]
async fn the_pod_decides_before_its_account() -> Result<()> {
    let place = Place::with_robot().await?;
    let quiet = json!({
        "metadata": {"name": "quiet"}, "automountServiceAccountToken": false,
        "imagePullSecrets": [{"name": "pull"}],
    });
    place.create("", &format!("{CORE}/serviceaccounts"), quiet).await?;
    let volumes = |pod: &Value| pod["spec"]["volumes"].as_array().map_or(0, Vec::len);
    for (spec, expected) in [
        (json!({"serviceAccountName": "robot"}), 1),
        (json!({"serviceAccountName": "robot", "automountServiceAccountToken": false}), 0),
        (json!({"serviceAccountName": "quiet"}), 0),
        (json!({"serviceAccountName": "quiet", "automountServiceAccountToken": true}), 1),
        // Something else is mounted there
        (
            json!({"volumes": [{"name": "v", "emptyDir": {}}], "containers": [
                {"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": MOUNT}]},
            ]}),
            1,
        ),
        // It was prepared already
        (json!({"volumes": [{"name": "kube-api-access-mine", "emptyDir": {}}]}), 1),
    ] {
        let made = place.create("", &format!("{CORE}/pods?dryRun=All"), mk_pod("p", spec.clone())).await?;
        assert_eq!(volumes(&made), expected, "{spec}: {made}");
    }
    let pulls = place
        .create("", &format!("{CORE}/pods?dryRun=All"), mk_pod("p", json!({"serviceAccountName": "quiet"})))
        .await?;
    assert_eq!(pulls["spec"]["imagePullSecrets"], json!([{"name": "pull"}]));
    let own = json!({"serviceAccountName": "quiet", "imagePullSecrets": [{"name": "own"}]});
    let pulls = place.create("", &format!("{CORE}/pods?dryRun=All"), mk_pod("p", own)).await?;
    assert_eq!(pulls["spec"]["imagePullSecrets"], json!([{"name": "own"}]));
    Ok(())
}

#[tokio::test]
async fn pods_are_refused_as_upstream_does() -> Result<()> {
    let place = Place::mk().await?;
    let strict = json!({
        "metadata": {"name": "strict", "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}},
        "secrets": [{"name": "mine"}],
    });
    place.create("", &format!("{CORE}/serviceaccounts"), strict).await?;
    let strict = |more: Value| {
        let mut spec = json!({"serviceAccountName": "strict"});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        mk_pod("p", spec)
    };
    let with_env = |env: Value| json!({"containers": [{"name": "c", "image": "i", "env": [env]}]});
    let mirror = |spec: Value| {
        let mut pod = mk_pod("p", spec);
        pod["spec"]["nodeName"] = json!("n");
        pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        pod
    };
    let projected =
        json!([{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]);
    let secret = |name: &str| json!({"volumes": [{"name": "v", "secret": {"secretName": name}}]});
    let rows = [
        (
            mk_pod("p", json!({"serviceAccountName": "none"})),
            "error looking up service account default/none: serviceaccount \"none\" not found",
        ),
        (strict(secret("mine")), ""),
        (
            strict(secret("other")),
            "volume with secret.secretName=\"other\" is not allowed because service account strict does not reference \
             that secret",
        ),
        (
            strict(with_env(
                json!({"name": "E", "valueFrom": {"secretKeyRef": {"name": "other", "key": "k"}}}),
            )),
            "container c with envVar E referencing secret.secretName=\"other\" is not allowed because service account \
             strict does not reference that secret",
        ),
        (
            strict(json!({"imagePullSecrets": [{"name": "pull"}]})),
            "imagePullSecrets[0].name=\"pull\" is not allowed because service account strict does not reference that \
             imagePullSecret",
        ),
        (mirror(json!({"serviceAccountName": "default"})), "a mirror pod may not reference service accounts"),
        (mirror(secret("s")), "a mirror pod may not reference secrets"),
        (
            mirror(json!({"volumes": projected})),
            "a mirror pod may not use ServiceAccountToken volume projections",
        ),
        (mirror(json!({})), ""),
    ];
    for (pod, why) in rows {
        let answer = place.admin.post(&format!("{CORE}/pods?dryRun=All"), &pod).await?;
        let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
        match why {
            "" => assert_eq!(answer.code, 201, "{pod}: {}", answer.text()),
            why => {
                assert_eq!(answer.code, 403, "{pod}: {}", answer.text());
                assert_eq!(message, format!("pods \"p\" is forbidden: {why}"));
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn containers_that_are_added_use_only_what_the_account_lists() -> Result<()> {
    let place = Place::mk().await?;
    let strict = json!({
        "metadata": {"name": "strict", "annotations": {"kubernetes.io/enforce-mountable-secrets": "1"}},
        "secrets": [{"name": "mine"}],
    });
    place.create("", &format!("{CORE}/serviceaccounts"), strict).await?;
    place.create("", &format!("{CORE}/pods"), mk_pod("p", json!({"serviceAccountName": "strict"}))).await?;
    let path = format!("{CORE}/pods/p/ephemeralcontainers");
    for (secret, code) in [("other", 403), ("mine", 200)] {
        let container = json!({
            "name": "e", "image": "i", "terminationMessagePolicy": "File", "imagePullPolicy": "Always",
            "envFrom": [{"secretRef": {"name": secret}}],
        });
        let headers = [("content-type", "application/strategic-merge-patch+json")];
        let body = json!({"spec": {"ephemeralContainers": [container]}}).to_string();
        let answer = place.admin.call(http::Method::PATCH, &path, &headers, body).await?;
        assert_eq!(answer.code, code, "{secret}: {}", answer.text());
        if code == 403 {
            let why = "ephemeral container e with envFrom referencing secret.secretName=\\\"other\\\" is not allowed";
            assert!(answer.text().contains(why), "{}", answer.text());
        }
    }
    Ok(())
}
