//! Asking for tokens, and what they say.

use anyhow::Result;
use http::StatusCode;
use serde_json::{Value, json};

use crate::{CORE, Place, claims, header};

#[tokio::test]
async fn a_token_is_its_accounts_identity() -> Result<()> {
    // Given an account and a token for it
    let place = Place::with_robot().await?;
    let answer = place.request("", "robot", json!({})).await?;
    assert_eq!(answer.code, StatusCode::CREATED, "{}", answer.text());
    let request = answer.json();
    let token = request["status"]["token"].as_str().unwrap_or_default();
    let account = place.admin.get(&format!("{CORE}/serviceaccounts/robot")).await?.json();
    // Then the request answers what it came to
    let issuer = place.issuer("default");
    assert_eq!(request["kind"], "TokenRequest");
    assert_eq!(request["apiVersion"], "authentication.k8s.io/v1");
    assert_eq!(request["metadata"]["uid"], account["metadata"]["uid"]);
    assert_eq!(
        request["spec"],
        json!({"audiences": [issuer], "expirationSeconds": 3600, "boundObjectRef": null})
    );
    // And the token says who it is for, from when and until when
    let said = claims(token);
    assert_eq!(header(token)["alg"], "RS256");
    assert_eq!(said["iss"], json!(issuer));
    assert_eq!(said["aud"], json!([issuer]));
    assert_eq!(said["sub"], "system:serviceaccount:default:robot");
    assert_eq!(said["exp"].as_i64().unwrap() - said["iat"].as_i64().unwrap(), 3600);
    assert_eq!(said["nbf"], said["iat"]);
    let own = json!({
        "namespace": "default",
        "serviceaccount": {"name": "robot", "uid": account["metadata"]["uid"]},
    });
    assert_eq!(said["kubernetes.io"], own);
    // And whoever sends it is that account, with or without the workspace in the path
    for prefix in ["", "/clusters/default"] {
        let who = place.who(prefix, token).await?;
        assert_eq!(who.code, StatusCode::CREATED, "{}", who.text());
        let expected = json!({
            "username": "system:serviceaccount:default:robot",
            "uid": account["metadata"]["uid"],
            "groups": ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"],
            "extra": {"authentication.kubernetes.io/credential-id": [format!("JTI={}", said["jti"].as_str().unwrap())]},
        });
        assert_eq!(who.json()["status"]["userInfo"], expected);
    }
    Ok(())
}

#[tokio::test]
async fn a_certificate_counts_before_a_token() -> Result<()> {
    let place = Place::with_robot().await?;
    let headers = [("authorization", "Bearer nonsense"), ("content-type", "application/json")];
    let who = place.admin.call(http::Method::POST, crate::WHO, &headers, "{}").await?;
    assert_eq!(who.json()["status"]["userInfo"]["username"], "admin");
    Ok(())
}

#[tokio::test]
async fn requests_are_checked_as_upstream_does() -> Result<()> {
    let place = Place::with_robot().await?;
    let uid = "11111111-2222-3333-4444-555555555555";
    place.create("", &format!("{CORE}/secrets"), json!({"metadata": {"name": "s"}})).await?;
    let bound =
        |kind: &str, name: &str| json!({"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": name}});
    let rows: Vec<(Value, u16, &str)> = vec![
        (json!({"spec": {"expirationSeconds": 599}}), 422, "may not specify a duration less than 10 minutes"),
        (json!({"spec": {"expirationSeconds": 0}}), 422, "may not specify a duration less than 10 minutes"),
        (
            json!({"spec": {"expirationSeconds": (1i64 << 32) + 1}}),
            422,
            "may not specify a duration larger than 2^32 seconds",
        ),
        (json!({"spec": {"expirationSeconds": 1i64 << 32}}), 201, ""),
        (json!({"metadata": {"name": "other"}}), 422, "must match the service account name if specified"),
        (json!({"metadata": {"namespace": "kube-system"}}), 400, "does not match the namespace"),
        (json!({"metadata": {"uid": uid}}), 409, "does not match the UID of the service account"),
        (json!({"spec": bound("Pod", "p")}), 404, "pods \\\"p\\\" not found"),
        (json!({"spec": bound("Node", "n")}), 404, "nodes \\\"n\\\" not found"),
        (json!({"spec": bound("Secret", "t")}), 404, "secrets \\\"t\\\" not found"),
        (json!({"spec": bound("Secret", "s")}), 201, ""),
        (
            json!({"spec": {"boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "s", "uid": uid}}}),
            409,
            "The object might have been deleted and then recreated",
        ),
        (
            json!({"spec": bound("ConfigMap", "c")}),
            400,
            "cannot bind token to object of type /v1, Kind=ConfigMap",
        ),
        (
            json!({"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "apps/v1", "name": "p"}}}),
            400,
            "cannot bind token to object of type apps/v1, Kind=Pod",
        ),
        (json!({"kind": "TokenReview"}), 400, ""),
        (json!({"spec": {"audiences": "x"}}), 400, ""),
    ];
    for (body, code, message) in rows {
        let answer = place.admin.post(&format!("{CORE}/serviceaccounts/robot/token"), &body).await?;
        assert_eq!(answer.code, code, "{body}: {}", answer.text());
        assert!(answer.text().contains(message), "{body}: {}", answer.text());
    }
    let missing = place.admin.post(&format!("{CORE}/serviceaccounts/none/token"), &json!({})).await?;
    assert_eq!(missing.code, 404);
    assert!(missing.text().contains("serviceaccounts \\\"none\\\" not found"), "{}", missing.text());
    let read = place.admin.get(&format!("{CORE}/serviceaccounts/robot/token")).await?;
    assert_eq!(read.code, 405, "{}", read.text());
    Ok(())
}

#[tokio::test]
async fn asking_for_tokens_is_a_right_of_its_own() -> Result<()> {
    let place = Place::with_robot().await?;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let grant = async |name: &str, resource: &str| -> Result<()> {
        let rules = json!([{"apiGroups": [""], "resources": [resource], "verbs": ["create", "update"]}]);
        let roles = format!("{rbac}/namespaces/default/roles");
        place.create("", &roles, json!({"metadata": {"name": name}, "rules": rules})).await?;
        let binding = json!({
            "metadata": {"name": name},
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        });
        place.create("", &format!("{rbac}/namespaces/default/rolebindings"), binding).await?;
        Ok(())
    };
    grant("editor", "serviceaccounts").await?;
    grant("asker", "serviceaccounts/token").await?;
    for (name, code) in [("editor", 403), ("asker", 201), ("stranger", 403)] {
        let user = place.hub.user(name, &[]).await?;
        let answer = user.post(&format!("{CORE}/serviceaccounts/robot/token"), &json!({})).await?;
        assert_eq!(answer.code, code, "{name}: {}", answer.text());
    }
    Ok(())
}

/// A pod's token names the pod and its node, lives longer than asked for, and says when it should be read again.
#[tokio::test]
async fn a_token_is_bound_to_a_pod_and_knows_its_node() -> Result<()> {
    let place = Place::with_robot().await?;
    let node = place.create("", "/api/v1/nodes", json!({"metadata": {"name": "n1"}})).await?;
    let spec = json!({
        "serviceAccountName": "robot", "nodeName": "n1", "containers": [{"name": "c", "image": "i"}],
    });
    let pod = json!({"metadata": {"name": "p"}, "spec": spec});
    let pod = place.create("", &format!("{CORE}/pods"), pod).await?;
    let reference = json!({"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": pod["metadata"]["uid"]});
    let spec = json!({"boundObjectRef": reference, "expirationSeconds": 3607});
    let token = place.token("", "robot", spec.clone()).await?;
    let said = claims(&token);
    let own = &said["kubernetes.io"];
    assert_eq!(own["pod"], json!({"name": "p", "uid": pod["metadata"]["uid"]}));
    assert_eq!(own["node"], json!({"name": "n1", "uid": node["metadata"]["uid"]}));
    let issued = said["iat"].as_i64().unwrap();
    assert_eq!(own["warnafter"], json!(issued + 3607));
    assert_eq!(said["exp"], json!(issued + 365 * 24 * 3600));
    let extra = place.who("", &token).await?.json()["status"]["userInfo"]["extra"].clone();
    assert_eq!(extra["authentication.kubernetes.io/pod-name"], json!(["p"]));
    assert_eq!(extra["authentication.kubernetes.io/pod-uid"], json!([pod["metadata"]["uid"]]));
    assert_eq!(extra["authentication.kubernetes.io/node-name"], json!(["n1"]));
    assert_eq!(extra["authentication.kubernetes.io/node-uid"], json!([node["metadata"]["uid"]]));
    // Another audience, or another time: nothing is extended
    for spec in [
        json!({"boundObjectRef": reference, "expirationSeconds": 3607, "audiences": ["vault"]}),
        json!({"boundObjectRef": reference, "expirationSeconds": 3600}),
        json!({"expirationSeconds": 3607}),
    ] {
        let said = claims(&place.token("", "robot", spec.clone()).await?);
        assert_eq!(said["kubernetes.io"]["warnafter"], Value::Null, "{spec}");
        assert!(said["exp"].as_i64().unwrap() - said["iat"].as_i64().unwrap() <= 3607);
    }
    // Not to a pod of somebody else
    let other = place.request("", "default", spec).await?;
    assert_eq!(other.code, 400);
    assert!(other.text().contains("to pod running with different serviceaccount name."), "{}", other.text());
    Ok(())
}

#[tokio::test]
async fn audiences_are_bounded() -> Result<()> {
    let place = Place::with_robot().await?;
    let many = |count: usize, bytes: usize| -> Vec<String> {
        (0..count).map(|number| format!("{number:0bytes$}")).collect()
    };
    for (audiences, code, told) in [
        (many(64, 60), 201, ""),
        (many(65, 2), 422, "spec.audiences: Too many: 65: must have at most 64 items"),
        (many(2, 3000), 422, "spec.audiences: Too long: may not be more than 4096 bytes"),
    ] {
        let answer = place.request("", "robot", json!({"audiences": audiences})).await?;
        assert_eq!(answer.code.as_u16(), code, "{}", answer.text());
        assert!(answer.text().contains(told), "{}", answer.text());
    }
    Ok(())
}
