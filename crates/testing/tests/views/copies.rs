//! Pods that are stored in the workspace and run as copies in a member.

use anyhow::Result;
use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use store::Collection;

use crate::{Cluster, PODS, SETS, World, create, delete_with, mk_pod, pods};

/// What a member's copy of a stored object looks like.
fn mk_copy(stored: &Value) -> Value {
    let mut copy = mk_pod(stored["metadata"]["name"].as_str().unwrap_or_default());
    copy["metadata"]["labels"][api::WORKSPACE_LABEL] = json!("default");
    copy["metadata"]["annotations"] = json!({api::SOURCE_ANNOTATION: stored["metadata"]["uid"]});
    copy
}

/// A pod that asks for one CPU.
fn mk_sized() -> Value {
    let mut pod = mk_pod("web");
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    pod
}

/// A stored pod, and a member with its copy.
async fn stored(world: &World) -> Result<(Value, Cluster)> {
    let eu = Cluster::joined(world, "eu-1", &[]).await?;
    let stored = create(&world.client, PODS, &mk_sized()).await?;
    let mut copy = mk_copy(&stored);
    copy["spec"] = mk_sized()["spec"].clone();
    create(&eu.client, PODS, &copy).await?;
    eu.report_all(world).await?;
    Ok((stored, eu))
}

fn eviction(options: Value) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}, "deleteOptions": options,
    })
}

#[tokio::test]
async fn the_stored_one_shows_and_its_copy_does_not() -> Result<()> {
    let world = World::start().await?;
    let (stored, eu) = stored(&world).await?;
    assert_eq!(world.names(PODS).await?, ["web"]);
    let shown = world.get(&format!("{PODS}/web")).await?;
    assert_eq!(shown["metadata"]["uid"], stored["metadata"]["uid"]);
    assert!(shown["metadata"]["labels"]["hanse.io/cluster"].is_null());
    // What is told of the copy is told of the stored one.
    let event = json!({
        "metadata": {"name": "web.1", "namespace": "shop", "uid": "e1"}, "reason": "Started", "type": "Normal",
        "involvedObject": {
            "kind": "Pod", "namespace": "shop", "name": "web", "uid": eu.pod("web").await?["metadata"]["uid"],
        },
    });
    eu.put(&world, &Collection::new("", "events"), &event);
    let uid = stored["metadata"]["uid"].as_str().unwrap();
    let events = format!("/api/v1/namespaces/shop/events?fieldSelector=involvedObject.uid%3D{uid}");
    assert_eq!(world.names(&events).await?, ["web.1"]);
    // Writes are the hub's own.
    let asked = eu.was_asked();
    world.client.merge_patch(&format!("{PODS}/web"), &json!({"metadata": {"labels": {"a": "b"}}})).await?;
    let status = json!({"status": {"phase": "Running"}});
    let written = world.client.merge_patch(&format!("{PODS}/web/status"), &status).await?;
    assert_eq!(written.code, StatusCode::OK, "{}", written.text());
    assert_eq!(eu.was_asked(), asked);
    Ok(())
}

#[tokio::test]
async fn a_copy_of_what_is_gone_shows_until_it_is_gone_too() -> Result<()> {
    let world = World::start().await?;
    let (stored, eu) = stored(&world).await?;
    let asked = eu.was_asked();
    let deleted =
        delete_with(&world.client, &format!("{PODS}/web"), json!({"gracePeriodSeconds": 0})).await?;
    assert_eq!(deleted.code, StatusCode::OK, "{}", deleted.text());
    assert_eq!(eu.was_asked(), asked, "a deletion is the hub's own");
    // The name is free for another.
    assert_eq!(world.client.get(&format!("{PODS}/web")).await?.code, StatusCode::NOT_FOUND);
    let left = world.get(&format!("{PODS}/web-eu-1")).await?;
    assert_eq!(left["metadata"]["uid"], eu.pod("web").await?["metadata"]["uid"]);
    assert_eq!(left["metadata"]["labels"]["hanse.io/cluster"], "eu-1");
    assert_eq!(left["metadata"]["annotations"][api::SOURCE_ANNOTATION], stored["metadata"]["uid"]);
    // Whose copy it is, is not for users to say.
    let claim = json!({"metadata": {"annotations": {api::SOURCE_ANNOTATION: "another"}}});
    let refused = world.client.merge_patch(&format!("{PODS}/web-eu-1"), &claim).await?;
    assert_eq!(refused.code, StatusCode::UNPROCESSABLE_ENTITY, "{}", refused.text());
    let copy = eu.pod("web").await?;
    eu.remove(&world, &pods(), &copy);
    assert_eq!(world.names(PODS).await?, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn a_copy_of_something_else_shows_as_any_object_does() -> Result<()> {
    let world = World::start().await?;
    let (stored, eu) = stored(&world).await?;
    let mut copy = eu.pod("web").await?;
    copy["metadata"]["resourceVersion"] = json!(u64::MAX.to_string());
    copy["metadata"]["annotations"][api::SOURCE_ANNOTATION] = json!("of-nothing-here");
    eu.put(&world, &pods(), &copy);
    assert_eq!(world.names(PODS).await?, ["web", "web-eu-1"]);
    // A set is no pod, whatever its UID.
    copy["metadata"]["annotations"][api::SOURCE_ANNOTATION] = stored["metadata"]["uid"].clone();
    eu.put(&world, &Collection::new("apps", "replicasets"), &copy);
    assert_eq!(world.names(SETS).await?, ["web"]);
    eu.put(&world, &pods(), &copy);
    assert_eq!(world.names(PODS).await?, ["web"]);
    Ok(())
}

#[tokio::test]
async fn streams_of_a_stored_pod_are_those_of_its_copy() -> Result<()> {
    let world = World::start().await?;
    let (_, eu) = stored(&world).await?;
    let lines = eu.session.next_log();
    let answer = world.client.send(Method::GET, &format!("{PODS}/web/log"), &[], Bytes::new()).await?;
    assert_eq!(answer.status(), StatusCode::OK);
    lines.send(Bytes::from_static(b"one\n")).await?;
    drop(lines);
    assert_eq!(answer.into_body().collect().await?.to_bytes(), "one\n");
    let refused = world.client.get(&format!("{PODS}/web/exec?command=ls")).await?;
    assert!(refused.text().contains("Upgrade request required"), "{}", refused.text());
    eu.lose(&world);
    let refused = world.client.get(&format!("{PODS}/web/log")).await?;
    assert_eq!(refused.code, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text());
    assert!(refused.text().contains("eu-1 is not connected"), "{}", refused.text());
    Ok(())
}

#[tokio::test]
async fn an_eviction_is_the_members_to_admit_and_then_deletes_the_stored_one() -> Result<()> {
    let world = World::start().await?;
    let (stored, eu) = stored(&world).await?;
    let path = format!("{PODS}/web/eviction");
    // A budget of the member keeps it.
    let status = json!({"status": {"phase": "Running"}});
    eu.client.merge_patch(&format!("{PODS}/web/status"), &status).await?;
    let budgets = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets";
    let budget = json!({
        "metadata": {"name": "all"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    create(&eu.client, budgets, &budget).await?;
    let refused = world.client.post(&path, &eviction(json!({}))).await?;
    assert_eq!(refused.code, StatusCode::TOO_MANY_REQUESTS, "{}", refused.text());
    assert_eq!(world.get(&format!("{PODS}/web")).await?["metadata"]["uid"], stored["metadata"]["uid"]);
    assert!(world.get(&format!("{PODS}/web")).await?["metadata"]["deletionTimestamp"].is_null());
    eu.client.delete(&format!("{budgets}/all")).await?;
    // Not if it is another one, and not if it is not meant.
    let another = json!({"preconditions": {"uid": "another"}});
    assert_eq!(world.client.post(&path, &eviction(another)).await?.code, StatusCode::CONFLICT);
    let dry = world.client.post(&path, &eviction(json!({"dryRun": ["All"]}))).await?;
    assert_eq!(dry.code, StatusCode::CREATED, "{}", dry.text());
    assert_eq!(world.names(PODS).await?, ["web"]);
    assert_eq!(eu.pod("web").await?["kind"], "Pod");

    let revision = &world.get(&format!("{PODS}/web")).await?["metadata"]["resourceVersion"];
    let uid = &stored["metadata"]["uid"];
    let just_this = json!({"preconditions": {"uid": uid, "resourceVersion": revision}});
    let evicted = world.client.post(&path, &eviction(just_this)).await?;
    assert_eq!(evicted.code, StatusCode::CREATED, "{}", evicted.text());
    let (_, asked, sent) = eu.last_asked();
    assert_eq!(asked, format!("{PODS}/web/eviction"));
    assert!(sent["deleteOptions"]["preconditions"]["resourceVersion"].is_null(), "that is the hub's");
    assert_eq!(eu.client.get(&format!("{PODS}/web")).await?.code, StatusCode::NOT_FOUND);
    assert_eq!(world.client.get(&format!("{PODS}/web")).await?.code, StatusCode::NOT_FOUND);
    assert_eq!(world.names(PODS).await?, ["web-eu-1"], "the copy, until it is gone");
    Ok(())
}

#[tokio::test]
async fn an_eviction_needs_the_member() -> Result<()> {
    let world = World::start().await?;
    let (stored, eu) = stored(&world).await?;
    eu.lose(&world);
    let refused = world.client.post(&format!("{PODS}/web/eviction"), &eviction(json!({}))).await?;
    assert_eq!(refused.code, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text());
    assert_eq!(world.get(&format!("{PODS}/web")).await?["metadata"]["uid"], stored["metadata"]["uid"]);
    Ok(())
}

#[tokio::test]
async fn an_eviction_waits_for_clusters_that_may_have_the_copy() -> Result<()> {
    let world = World::start().await?;
    let _eu = Cluster::joined(&world, "eu-1", &[]).await?;
    let stored = create(&world.client, PODS, &mk_pod("web")).await?;
    world.views().expect(&world.workspace(), "us-1");
    let refused = world.client.post(&format!("{PODS}/web/eviction"), &eviction(json!({}))).await?;
    assert_eq!(refused.code, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text());
    assert!(refused.text().contains("not seen yet: cluster us-1"), "{}", refused.text());
    assert_eq!(world.get(&format!("{PODS}/web")).await?["metadata"]["uid"], stored["metadata"]["uid"]);
    // Once all was seen, it is the hub's own to decide.
    world.views().leave(&world.workspace(), "us-1");
    let evicted = world.client.post(&format!("{PODS}/web/eviction"), &eviction(json!({}))).await?;
    assert_eq!(evicted.code, StatusCode::CREATED, "{}", evicted.text());
    Ok(())
}

#[tokio::test]
async fn a_copy_is_debugged_and_resized_before_the_stored_one() -> Result<()> {
    let world = World::start().await?;
    let (_, eu) = stored(&world).await?;
    let path = format!("{PODS}/web");
    let strategic = [("content-type", "application/strategic-merge-patch+json")];
    let debug = json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "example.com/debug"}]}});
    let resize = json!({"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}});
    let refused_here = json!({"spec": {"containers": [{"name": "main", "image": "example.com/other"}]}});
    let containers = "/spec/ephemeralContainers/0/name";
    let requests = "/spec/containers/0/resources/requests/cpu";
    for (below, change, at, value) in
        [("ephemeralcontainers", debug, containers, "debug"), ("resize", resize, requests, "2")]
    {
        let below = format!("{path}/{below}");
        let dry = format!("{below}?dryRun=All");
        let tried = world.client.call(Method::PATCH, &dry, &strategic, change.to_string()).await?;
        assert_eq!(tried.code, StatusCode::OK, "{}", tried.text());
        assert_ne!(eu.pod("web").await?.pointer(at), Some(&json!(value)), "it was only tried");
        let done = world.client.call(Method::PATCH, &below, &strategic, change.to_string()).await?;
        assert_eq!(done.code, StatusCode::OK, "{}", done.text());
        assert_eq!(done.json().pointer(at), Some(&json!(value)));
        assert_eq!(eu.pod("web").await?.pointer(at), Some(&json!(value)));
        // What is not admitted here does not get there.
        let asked = eu.was_asked();
        let refused = world.client.call(Method::PATCH, &below, &strategic, refused_here.to_string()).await?;
        assert!(!refused.code.is_success() || refused.json()["spec"] == done.json()["spec"]);
        assert_eq!(eu.was_asked(), asked);
    }
    // What the member does not take is not stored.
    eu.lose(&world);
    let more = json!({"spec": {"ephemeralContainers": [{"name": "more", "image": "example.com/debug"}]}});
    let below = format!("{path}/ephemeralcontainers");
    let refused = world.client.call(Method::PATCH, &below, &strategic, more.to_string()).await?;
    assert_eq!(refused.code, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text());
    let stored = world.get(&path).await?;
    assert_eq!(stored["spec"]["ephemeralContainers"].as_array().map(Vec::len), Some(1));
    Ok(())
}

#[tokio::test]
async fn what_runs_nowhere_is_resized_and_not_debugged() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &[]).await?;
    create(&world.client, PODS, &mk_sized()).await?;
    let asked = eu.was_asked();
    let strategic = [("content-type", "application/strategic-merge-patch+json")];
    let debug = json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "example.com/debug"}]}});
    let below = format!("{PODS}/web/ephemeralcontainers");
    let refused = world.client.call(Method::PATCH, &below, &strategic, debug.to_string()).await?;
    assert_eq!(refused.code, StatusCode::CONFLICT, "{}", refused.text());
    assert!(refused.text().contains("it runs in no cluster now"), "{}", refused.text());
    let resize = json!({"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}});
    let below = format!("{PODS}/web/resize");
    let done = world.client.call(Method::PATCH, &below, &strategic, resize.to_string()).await?;
    assert_eq!(done.code, StatusCode::OK, "{}", done.text());
    assert_eq!(eu.was_asked(), asked);
    Ok(())
}

#[tokio::test]
async fn pods_that_only_say_to_be_copies_show_and_lead_nobody_astray() -> Result<()> {
    let world = World::start().await?;
    let (stored, eu) = stored(&world).await?;
    let mut pretender = mk_pod("pretender");
    pretender["metadata"]["annotations"] = json!({api::SOURCE_ANNOTATION: stored["metadata"]["uid"]});
    create(&eu.client, PODS, &pretender).await?;
    eu.report_all(&world).await?;
    assert_eq!(world.names(PODS).await?, ["pretender-eu-1", "web"]);
    world.client.get(&format!("{PODS}/web/log")).await?;
    assert!(eu.last_asked().1.starts_with(&format!("{PODS}/web/log")), "{:?}", eu.last_asked());
    Ok(())
}

#[tokio::test]
async fn what_a_copy_owns_is_owned_by_what_is_stored() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &[]).await?;
    let set = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "example.com/main"}]},
            },
        },
    });
    let stored = create(&world.client, SETS, &set).await?;
    let sets = Collection::new("apps", "replicasets");
    let mk_set = |source: &Value| {
        json!({"metadata": {
            "name": "web", "namespace": "shop", "uid": "copy", "annotations": {api::SOURCE_ANNOTATION: source},
        }, "spec": {"replicas": 1}})
    };
    let pod = json!({"metadata": {
        "name": "web-x", "namespace": "shop", "uid": "pod",
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "copy"}],
    }, "spec": {"containers": []}});
    eu.put(&world, &pods(), &pod);
    eu.put(&world, &sets, &mk_set(&stored["metadata"]["uid"]));
    assert_eq!(world.names(SETS).await?, ["web"]);
    let owner = world.get(&format!("{PODS}/web-x")).await?["metadata"]["ownerReferences"][0]["uid"].clone();
    assert_eq!(owner, stored["metadata"]["uid"]);
    world.client.delete(&format!("{SETS}/web")).await?;
    let owner = world.get(&format!("{PODS}/web-x")).await?["metadata"]["ownerReferences"][0]["uid"].clone();
    assert_eq!(owner, "copy");
    Ok(())
}

/// Where the scheduler is another's, and says by a binding where a pod is.
#[tokio::test]
async fn a_stored_pod_says_where_it_is() -> Result<()> {
    let world = World::start().await?;
    let (_, _eu) = stored(&world).await?;
    let binding = json!({"metadata": {"name": "web"}, "target": {"kind": "Node", "name": "eu-1"}});
    let bound = world.client.post(&format!("{PODS}/web/binding"), &binding).await?;
    assert_eq!(bound.code, StatusCode::CREATED, "{}", bound.text());
    let accept = ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table = world.client.call(Method::GET, PODS, &[accept], "").await?.json();
    let columns = table["columnDefinitions"].as_array().cloned().unwrap_or_default();
    let node = columns.iter().position(|column| column["name"] == "Node").unwrap();
    assert_eq!(table["rows"][0]["cells"][node], "eu-1");
    Ok(())
}
