//! A cluster of the platform that something of a workspace is assigned to, before it was seen there.

use std::sync::Arc;

use anyhow::Result;
use http::StatusCode;
use parking_lot::Mutex;
use serde_json::json;
use server::views::Host;
use store::WorkspaceId;
use testing::assignments::assign;

use crate::{Cluster, World, create, warnings};

const CLUSTERS: &str = "/apis/hanse.io/v1alpha1/clusters";
const TEAM: &str = "/clusters/team";

/// A `Cluster` in a workspace, with no session; its UID.
async fn mk_cluster(world: &World, workspace: &str, name: &str) -> Result<String> {
    let cluster = json!({
        "apiVersion": api::API_VERSION, "kind": "Cluster", "metadata": {"name": name},
        "spec": {
            "endpoint": "https://192.0.2.1", "caBundle": "", "secretRef": {"namespace": "default", "name": name},
        },
    });
    let made = create(&world.client, &format!("/clusters/{workspace}{CLUSTERS}"), &cluster).await?;
    Ok(made["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
}

async fn team(world: &World) -> Result<WorkspaceId> {
    let workspace = json!({"metadata": {"name": "team"}});
    create(&world.client, "/clusters/root/apis/hanse.io/v1alpha1/workspaces", &workspace).await?;
    let hub = &world.hub.peer.hub;
    hub.space("team")
        .map(|space| space.id().clone())
        .map_err(|status| anyhow::anyhow!("{}", status.message()))
}

#[tokio::test]
async fn who_has_something_assigned_and_was_not_seen_is_waited_for() -> Result<()> {
    let world = World::start().await?;
    let (hub, id) = (world.hub.peer.hub.clone(), team(&world).await?);
    let uid = mk_cluster(&world, "default", "eu-1").await?;
    let pods = format!("{TEAM}/api/v1/pods");
    assert_eq!(world.client.get(&pods).await?.code, StatusCode::OK, "nothing is assigned to anybody");
    // One that is gone has nothing.
    assign(&hub, "team", "default", "a", &[("eu-1", "another"), ("us-1", "gone")]).await?;
    assert_eq!(world.client.get(&pods).await?.code, StatusCode::OK);

    assign(&hub, "team", "default", "b", &[("eu-1", &uid)]).await?;

    for path in ["/api/v1/pods", "/apis/apps/v1/replicasets", "/api/v1/namespaces/default/pods/nobody"] {
        let refused = world.client.get(&format!("{TEAM}{path}")).await?;
        assert_eq!(refused.code, StatusCode::SERVICE_UNAVAILABLE, "{path}: {}", refused.text());
        assert!(refused.text().contains("not seen yet: cluster eu-1"), "{}", refused.text());
        assert_eq!(refused.headers["retry-after"], "1");
    }
    assert_eq!(world.client.get(&format!("{TEAM}/api/v1/configmaps")).await?.code, StatusCode::OK);
    let partial = world.client.get(&format!("{pods}?partial=true")).await?;
    assert_eq!(partial.code, StatusCode::OK);
    assert!(warnings(&partial)[0].contains("eu-1 was not seen yet"), "{:?}", warnings(&partial));
    let elsewhere = world.client.get("/api/v1/pods").await?;
    assert_eq!(elsewhere.code, StatusCode::OK, "other workspaces are not concerned");
    // It is seen.
    let eu = Cluster::start("eu-1").await?;
    assert!(world.views().join(&id, eu.session.clone(), "identity"));
    assert_eq!(world.client.get(&pods).await?.code, StatusCode::SERVICE_UNAVAILABLE);
    world.views().replace(&id, "eu-1", &crate::pods(), Vec::new());
    assert_eq!(world.client.get(&pods).await?.code, StatusCode::OK);
    Ok(())
}

#[tokio::test]
async fn nobody_waits_for_a_cluster_that_has_nothing_any_more_or_is_gone() -> Result<()> {
    let world = World::start().await?;
    let hub = world.hub.peer.hub.clone();
    team(&world).await?;
    let uid = mk_cluster(&world, "default", "eu-1").await?;
    let pods = format!("{TEAM}/api/v1/pods");
    assign(&hub, "team", "default", "a", &[("eu-1", &uid)]).await?;
    assert_eq!(world.client.get(&pods).await?.code, StatusCode::SERVICE_UNAVAILABLE);
    assign(&hub, "team", "default", "a", &[]).await?;
    assert_eq!(world.client.get(&pods).await?.code, StatusCode::OK);
    assign(&hub, "team", "default", "a", &[("eu-1", &uid)]).await?;
    assert_eq!(world.client.get(&pods).await?.code, StatusCode::SERVICE_UNAVAILABLE);
    world.client.delete(&format!("{CLUSTERS}/eu-1")).await?;
    assert_eq!(world.client.get(&pods).await?.code, StatusCode::OK);
    Ok(())
}

/// A session that shows its cluster wherever it is asked to, and has nothing there.
struct Eager {
    views: server::views::Views,
    cluster: Cluster,
    asked: Mutex<Vec<WorkspaceId>>,
}

impl Host for Eager {
    fn show_in(&self, workspace: &WorkspaceId) {
        self.asked.lock().push(workspace.clone());
        assert!(self.views.join(workspace, self.cluster.session.clone(), "identity"));
        for collection in server::views::collections() {
            self.views.replace(workspace, self.cluster.name(), &collection, Vec::new());
        }
    }
}

#[tokio::test]
async fn a_cluster_that_is_there_is_asked_and_nobody_waits() -> Result<()> {
    let world = World::start().await?;
    let (hub, id) = (world.hub.peer.hub.clone(), team(&world).await?);
    let uid = mk_cluster(&world, "default", "eu-1").await?;
    let cluster = Cluster::start("eu-1").await?;
    let eager = Arc::new(Eager { views: world.views().clone(), cluster, asked: Mutex::default() });
    let host: Arc<dyn Host> = eager.clone();
    world.views().host(&uid, Arc::downgrade(&host));
    let pods = format!("{TEAM}/api/v1/pods");
    world.client.get(&pods).await?;
    assert!(eager.asked.lock().is_empty(), "nothing of the workspace is assigned to it");
    assign(&hub, "team", "default", "a", &[("eu-1", &uid)]).await?;
    for _ in 0..3 {
        let list = world.client.get(&pods).await?;
        assert_eq!((list.code, warnings(&list).len()), (StatusCode::OK, 0), "{}", list.text());
    }
    assert_eq!(*eager.asked.lock(), [id], "once");
    // A watch from that list goes on.
    let revision = world.get(&pods).await?["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let mut watch = world.client.watch(&format!("{pods}?watch=true&resourceVersion={revision}")).await?;
    let pod = json!({"metadata": {"name": "web", "namespace": "default", "uid": "u"}, "spec": {}});
    let object = bytes::Bytes::from(pod.to_string());
    world.views().put(&eager.asked.lock()[0].clone(), "eu-1", &crate::pods(), object.into());
    assert_eq!(watch.expect().await?["type"], "ADDED");
    Ok(())
}

#[tokio::test]
async fn a_cluster_whose_name_the_workspace_has_itself_is_named() -> Result<()> {
    let world = World::start().await?;
    let (hub, id) = (world.hub.peer.hub.clone(), team(&world).await?);
    let uid = mk_cluster(&world, "default", "eu-1").await?;
    let own = Cluster::start("eu-1").await?;
    let session = own.session.as_another(&id);
    assert!(world.views().join(&id, Arc::new(session), "its own"));
    world.views().replace(&id, "eu-1", &crate::pods(), Vec::new());
    assign(&hub, "team", "default", "a", &[("eu-1", &uid)]).await?;
    let list = world.client.get(&format!("{TEAM}/api/v1/pods")).await?;
    assert_eq!(list.code, StatusCode::OK);
    assert!(warnings(&list)[0].contains("eu-1 of the platform does not show"), "{:?}", warnings(&list));
    Ok(())
}
