//! Pod security levels of namespaces.

use anyhow::Result;
use http::StatusCode;
use serde_json::{Value, json};
use testing::client::Answer;

use crate::{NAMESPACE, mk, mk_hub, refusal};

fn warnings(answer: &Answer) -> Vec<String> {
    let headers = answer.headers.get_all("warning").iter();
    headers.filter_map(|it| it.to_str().ok()).map(str::to_owned).collect()
}

fn mk_pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"hostNetwork": true, "containers": [{"name": "c", "image": "i"}]}})
}

const WHY: &str = "host namespaces (hostNetwork=true)";

#[tokio::test]
async fn a_pod_that_violates_the_level_is_refused_and_whoever_makes_such_is_told() -> Result<()> {
    let (_hub, client) = mk_hub().await?;
    let pods = format!("{NAMESPACE}/pods");
    mk(&client, &pods, mk_pod("before")).await?;
    // When the namespace demands more, then its author hears who does not comply
    let enforce =
        |level: &str| json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}});
    let answer = client.merge_patch(NAMESPACE, &enforce("baseline")).await?;
    assert_eq!(
        warnings(&answer),
        [
            "299 - \"existing pods in namespace \\\"shop\\\" violate the new PodSecurity enforce level \
             \\\"baseline:latest\\\"\"",
            "299 - \"before: host namespaces\"",
        ]
    );
    // Then such pods do not come in any more
    let answer = client.post(&pods, &mk_pod("after")).await?;
    assert_eq!(
        refusal(&answer),
        format!("pods \"after\" is forbidden: violates PodSecurity \"baseline:latest\": {WHY}")
    );
    // And what makes them comes in with a warning
    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": mk_pod("x")["spec"]}}});
    let answer = client.post("/apis/apps/v1/namespaces/shop/deployments", &deployment).await?;
    assert_eq!(answer.code, StatusCode::CREATED);
    assert!(
        warnings(&answer)[0].contains("would violate PodSecurity \\\"baseline:latest\\\": host namespaces")
    );
    // What is there may still be labelled, and may not get another image
    let label =
        client.merge_patch(&format!("{pods}/before"), &json!({"metadata": {"labels": {"x": "y"}}})).await?;
    assert_eq!(label.code, StatusCode::OK);
    let image = json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "j"}]);
    let headers = [("content-type", "application/json-patch+json")];
    let path = format!("{pods}/before");
    let answer = client.call(http::Method::PATCH, &path, &headers, image.to_string()).await?;
    assert!(refusal(&answer).contains(WHY));
    // Labels that cannot be read are refused
    let answer = client.merge_patch(NAMESPACE, &enforce("strict")).await?;
    assert_eq!(answer.code, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(
        answer.json()["message"],
        "Namespace \"shop\" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \
         \"strict\": must be one of privileged, baseline, restricted"
    );
    Ok(())
}

#[tokio::test]
async fn a_level_can_be_of_an_older_version_and_only_warn() -> Result<()> {
    let (_hub, client) = mk_hub().await?;
    let labels = json!({"metadata": {"labels": {
        "pod-security.kubernetes.io/warn": "restricted", "pod-security.kubernetes.io/warn-version": "v1.0"}}});
    client.merge_patch(NAMESPACE, &labels).await?;
    let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let answer = client.post(&format!("{NAMESPACE}/pods"), &pod).await?;
    assert_eq!(answer.code, StatusCode::CREATED);
    assert_eq!(
        warnings(&answer),
        [
            "299 - \"would violate PodSecurity \\\"restricted:v1.0\\\": runAsNonRoot != true (pod or container \\\"c\\\" \
          must set securityContext.runAsNonRoot=true)\""
        ]
    );
    Ok(())
}
