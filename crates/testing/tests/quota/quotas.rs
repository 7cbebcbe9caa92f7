//! What is charged, what is given back, and who is refused.

use anyhow::Result;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{NAMESPACE, eventually_used, mk, mk_hub, mk_pod, mk_quota, refusal, used};

#[tokio::test]
async fn a_pod_is_charged_when_it_comes_and_given_back_when_it_ends() -> Result<()> {
    // Given a quota for pods and processors
    let (_hub, client) = mk_hub().await?;
    mk_quota(&client, "q", json!({"hard": {"pods": "2", "requests.cpu": "1"}})).await?;
    assert_eq!(used(&client, "q").await?, json!({"pods": "0", "requests.cpu": "0"}));
    let pods = format!("{NAMESPACE}/pods");
    // When a pod is made, then it is charged at once
    mk(&client, &pods, mk_pod("a", "600m")).await?;
    assert_eq!(used(&client, "q").await?, json!({"pods": "1", "requests.cpu": "600m"}));
    // And what does not fit any more is refused, with the numbers
    let answer = client.post(&pods, &mk_pod("b", "500m")).await?;
    assert_eq!(
        refusal(&answer),
        "pods \"b\" is forbidden: exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=600m, \
         limited: requests.cpu=1"
    );
    let answer = client
        .post(
            &pods,
            &json!({"metadata": {"generateName": "b-"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}),
        )
        .await?;
    assert!(refusal(&answer).ends_with("is forbidden: failed quota: q: must specify requests.cpu for: c"));
    // When it has ended, then it takes no place any more, though it is still there
    let patch = json!({"status": {"phase": "Succeeded"}});
    client.merge_patch(&format!("{pods}/a/status"), &patch).await?;
    eventually_used(&client, "q", json!({"pods": "0", "requests.cpu": "0"})).await?;
    mk(&client, &pods, mk_pod("b", "1")).await?;
    client.delete(&format!("{pods}/b")).await?;
    eventually_used(&client, "q", json!({"pods": "0", "requests.cpu": "0"})).await
}

#[tokio::test]
async fn a_trial_is_checked_and_not_charged() -> Result<()> {
    let (_hub, client) = mk_hub().await?;
    mk_quota(&client, "q", json!({"hard": {"secrets": "1"}})).await?;
    let path = format!("{NAMESPACE}/secrets");
    let trial = client.post(&format!("{path}?dryRun=All"), &json!({"metadata": {"name": "a"}})).await?;
    assert_eq!(trial.code, StatusCode::CREATED);
    assert_eq!(used(&client, "q").await?, json!({"secrets": "0"}));
    mk(&client, &path, json!({"metadata": {"name": "a"}})).await?;
    let trial = client.post(&format!("{path}?dryRun=All"), &json!({"metadata": {"name": "b"}})).await?;
    assert!(refusal(&trial).contains("exceeded quota: q"));
    // What is there already is not charged again, whatever is done to it
    let again = client.post(&path, &json!({"metadata": {"name": "a"}})).await?;
    assert_eq!(again.code, StatusCode::FORBIDDEN, "the quota is asked first");
    assert_eq!(used(&client, "q").await?, json!({"secrets": "1"}));
    Ok(())
}

#[tokio::test]
async fn applied_and_custom_objects_are_counted_too() -> Result<()> {
    // Given a custom kind, and quotas that count it and others
    let (_hub, client) = mk_hub().await?;
    let definition = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    mk_quota(&client, "q", json!({"hard": {"count/things.example.com": "1", "count/secrets": "1"}})).await?;
    assert_eq!(used(&client, "q").await?, json!({"count/secrets": "0"}), "things are not known yet");
    mk(&client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await?;
    eventually_used(&client, "q", json!({"count/secrets": "0", "count/things.example.com": "0"})).await?;
    // When one of each is made, one of them by apply
    let things = "/apis/example.com/v1/namespaces/shop/things";
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}});
    mk(&client, things, thing.clone()).await?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
    let apply = async |name: &str| {
        let path = format!("{NAMESPACE}/secrets/{name}?fieldManager=me");
        let headers = [("content-type", "application/apply-patch+yaml")];
        let mut secret = secret.clone();
        secret["metadata"]["name"] = json!(name);
        client.call(Method::PATCH, &path, &headers, secret.to_string()).await
    };
    assert_eq!(apply("a").await?.code, StatusCode::CREATED);
    // Then both are charged, and a second one is refused
    assert_eq!(used(&client, "q").await?, json!({"count/secrets": "1", "count/things.example.com": "1"}));
    assert!(refusal(&apply("b").await?).contains("exceeded quota"));
    assert_eq!(apply("a").await?.code, StatusCode::OK);
    let mut second = thing;
    second["metadata"] = json!({"generateName": "t-"});
    assert!(refusal(&client.post(things, &second).await?).contains("count/things.example.com=1"));
    client.delete(&format!("{things}/a")).await?;
    eventually_used(&client, "q", json!({"count/secrets": "1", "count/things.example.com": "0"})).await
}

#[tokio::test]
async fn every_scope_has_its_own_quota() -> Result<()> {
    let (_hub, client) = mk_hub().await?;
    let rows = [
        ("terminating", json!({"scopes": ["Terminating"]})),
        ("staying", json!({"scopes": ["NotTerminating"]})),
        ("best", json!({"scopes": ["BestEffort", "NotTerminating"]})),
        (
            "high",
            json!({"scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}}),
        ),
    ];
    let class = json!({"metadata": {"name": "high"}, "value": 100});
    mk(&client, "/apis/scheduling.k8s.io/v1/priorityclasses", class).await?;
    for (name, mut spec) in rows {
        spec["hard"] = json!({"pods": "3"});
        mk_quota(&client, name, spec).await?;
    }
    let pods = format!("{NAMESPACE}/pods");
    let with = |name: &str, spec: Value| {
        let mut pod =
            json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        for (key, value) in spec.as_object().into_iter().flatten() {
            pod["spec"][key] = value.clone();
        }
        pod
    };
    mk(&client, &pods, with("plain", json!({}))).await?;
    mk(&client, &pods, with("job", json!({"activeDeadlineSeconds": 600}))).await?;
    mk(&client, &pods, with("important", json!({"priorityClassName": "high"}))).await?;
    let counts = async || -> Result<Vec<String>> {
        let mut counts = Vec::new();
        for name in ["terminating", "staying", "best", "high"] {
            counts.push(used(&client, name).await?["pods"].as_str().unwrap_or_default().to_owned());
        }
        Ok(counts)
    };
    assert_eq!(counts().await?, ["1", "2", "2", "1"]);
    // When a pod gets a deadline, then it changes sides
    let deadline = json!({"spec": {"activeDeadlineSeconds": 60}});
    let answer = client.merge_patch(&format!("{pods}/plain"), &deadline).await?;
    assert_eq!(answer.code, StatusCode::OK, "{}", answer.text());
    assert_eq!(counts().await?[0], "2", "charged at once");
    eventually_used(&client, "staying", json!({"pods": "1"})).await?;
    eventually_used(&client, "best", json!({"pods": "1"})).await
}

#[tokio::test]
async fn services_and_claims_are_charged_for_what_they_grow_by() -> Result<()> {
    let (_hub, client) = mk_hub().await?;
    let hard = json!({"services": "5", "services.nodeports": "2", "requests.storage": "10Gi",
        "persistentvolumeclaims": "5", "gold.storageclass.storage.k8s.io/requests.storage": "3Gi"});
    mk_quota(&client, "q", json!({"hard": hard})).await?;
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    mk(&client, &format!("{NAMESPACE}/services"), service).await?;
    let grow = json!({"spec": {"type": "NodePort"}});
    client.merge_patch(&format!("{NAMESPACE}/services/s"), &grow).await?;
    assert_eq!(used(&client, "q").await?["services.nodeports"], "1");
    let more = json!({"spec": {"ports": [
        {"port": 80, "name": "a"}, {"port": 81, "name": "b"}, {"port": 82, "name": "c"}]}});
    let answer = client.merge_patch(&format!("{NAMESPACE}/services/s"), &more).await?;
    assert_eq!(
        refusal(&answer),
        "services \"s\" is forbidden: exceeded quota: q, requested: services.nodeports=2, used: services.nodeports=1, \
         limited: services.nodeports=2"
    );
    client.merge_patch(&format!("{NAMESPACE}/services/s"), &json!({"spec": {"type": "ClusterIP"}})).await?;
    let claim = |name: &str, size: &str| {
        json!({"metadata": {"name": name}, "spec": {"storageClassName": "gold", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}}}})
    };
    let claims = format!("{NAMESPACE}/persistentvolumeclaims");
    mk(&client, &claims, claim("a", "2Gi")).await?;
    assert!(refusal(&client.post(&claims, &claim("b", "2Gi")).await?).contains("gold.storageclass"));
    let used = json!({"services": "1", "services.nodeports": "0", "requests.storage": "2Gi",
        "persistentvolumeclaims": "1", "gold.storageclass.storage.k8s.io/requests.storage": "2Gi"});
    eventually_used(&client, "q", used).await
}

#[tokio::test]
async fn a_quota_follows_its_spec_and_counts_what_is_there() -> Result<()> {
    // Given objects that were there before
    let (_hub, client) = mk_hub().await?;
    for name in ["a", "b"] {
        mk(&client, &format!("{NAMESPACE}/secrets"), json!({"metadata": {"name": name}})).await?;
    }
    mk_quota(&client, "q", json!({"hard": {"secrets": "2", "resourcequotas": "1"}})).await?;
    assert_eq!(used(&client, "q").await?, json!({"secrets": "2", "resourcequotas": "1"}));
    let other = json!({"metadata": {"name": "other"}, "spec": {"hard": {"pods": "1"}}});
    let answer = client.post(&format!("{NAMESPACE}/resourcequotas"), &other).await?;
    assert!(refusal(&answer).contains("resourcequotas=1"));
    // When more is allowed, then more fits
    let wider = json!({"spec": {"hard": {"secrets": "3", "resourcequotas": null}}});
    client.merge_patch(&format!("{NAMESPACE}/resourcequotas/q"), &wider).await?;
    eventually_used(&client, "q", json!({"secrets": "2"})).await?;
    mk(&client, &format!("{NAMESPACE}/secrets"), json!({"metadata": {"name": "c"}})).await?;
    // When somebody writes nonsense into the status, then it is mended
    let nonsense = json!({"status": {"hard": {"secrets": "100"}}});
    let answer = client.merge_patch(&format!("{NAMESPACE}/resourcequotas/q/status"), &nonsense).await?;
    assert_eq!(answer.json()["status"]["hard"]["secrets"], "100");
    testing::hub::eventually("the status is mended", async || {
        let quota = client.get(&format!("{NAMESPACE}/resourcequotas/q")).await?.json();
        Ok((quota["status"]["hard"]["secrets"] == "3").then_some(()))
    })
    .await?;
    let answer = client.post(&format!("{NAMESPACE}/secrets"), &json!({"metadata": {"name": "d"}})).await?;
    assert!(refusal(&answer).contains("exceeded quota"));
    Ok(())
}
