//! What a session says of its member, and what it does when something changes.

use anyhow::Result;
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use testing::{client::Answer, hub::eventually};

use crate::world::{CLUSTERS, Members, World, cluster, ready};

/// What a hub says it is.
const RELEASE: &str = concat!("v1.36.4+hanse-", env!("CARGO_PKG_VERSION"));

/// Waits until the object at `path` is as it should be; what it is instead is said.
async fn until(world: &World, path: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
    let found = eventually(what, || async {
        let object = world.admin.get(path).await?.json();
        Ok(holds(&object).then_some(object))
    });
    match found.await {
        Ok(found) => Ok(found),
        Err(error) => Err(error.context(world.admin.get(path).await?.text())),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_says_what_it_is_and_what_it_has() -> Result<()> {
    let (world, members) = (World::start().await?, Members::start(&["one"]).await?);
    for node in ["a", "b"] {
        members.mk_node("one", node).await?;
    }
    members.mk_pod("one", "default", "first", "a").await?;
    let class = json!({"metadata": {"name": "fast"}, "provisioner": "example.com/fast"});
    members.post("one", "/apis/storage.k8s.io/v1/storageclasses", class).await?;
    world.join("eu-1", &members.access("one")).await?;
    let path = format!("{CLUSTERS}/eu-1");
    let counted = |cluster: &Value| {
        cluster["status"]["requested"]["cpu"] == "500m" && cluster["status"]["nodes"]["total"] == 2
    };
    let seen = until(&world, &path, "it is counted", counted).await?;
    let status = &seen["status"];
    assert_eq!(status["allocatable"], json!({"cpu": "8", "memory": "16Gi", "pods": "220"}));
    assert_eq!(status["requested"]["memory"], "1Gi");
    assert_eq!(status["nodes"], json!({"total": 2, "ready": 2, "unschedulable": 0}));
    let system = members.get("one", "/api/v1/namespaces/kube-system").await?.json();
    assert_eq!(status["identity"], system["metadata"]["uid"]);
    assert_eq!(ready(&seen)["status"], "True");
    let learned = |cluster: &Value| cluster["status"]["apis"].as_array().is_some_and(|apis| !apis.is_empty());
    let seen = until(&world, &path, "its APIs are known", learned).await?;
    assert_eq!(seen["status"]["version"], RELEASE);
    let apps =
        seen["status"]["apis"].as_array().into_iter().flatten().find(|it| it["groupVersion"] == "apps/v1");
    let resources = apps.map(|it| it["resources"].clone()).unwrap_or_default();
    assert_eq!(
        resources,
        json!(["controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets"])
    );
    assert_eq!(seen["status"]["skew"], json!({"missingFields": {}}), "it is of the same release");
    let classes = &seen["status"]["classes"];
    assert_eq!(classes["StorageClass"], json!(["fast"]));
    assert_eq!(classes["PriorityClass"], json!(["system-cluster-critical", "system-node-critical"]));
    assert_eq!((&classes["IngressClass"], &classes["RuntimeClass"]), (&json!([]), &json!([])));
    // What comes later is counted too.
    members.mk_pod("one", "default", "second", "b").await?;
    until(&world, &path, "the second pod", |it| it["status"]["requested"]["cpu"] == "1").await?;
    members.admin.delete("/clusters/one/api/v1/namespaces/default/pods/first?gracePeriodSeconds=0").await?;
    until(&world, &path, "the first pod went", |it| it["status"]["requested"]["cpu"] == "500m").await?;
    let events = world.admin.get("/api/v1/namespaces/default/events").await?.json();
    let told =
        events["items"].as_array().into_iter().flatten().find(|it| it["involvedObject"]["name"] == "eu-1");
    assert_eq!(told.map(|it| it["reason"].clone()), Some(json!("Ready")), "{events}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_clusters_is_for_people() -> Result<()> {
    let (world, members) = (World::start().await?, Members::start(&["one"]).await?);
    members.mk_node("one", "a").await?;
    world.join("eu-1", &members.access("one")).await?;
    let path = format!("{CLUSTERS}/eu-1");
    until(&world, &path, "all is known", |it| {
        it["status"]["version"] == RELEASE && it["status"]["nodes"]["total"] == 1
    })
    .await?;
    let accept = [("accept", "application/json;as=Table;g=meta.k8s.io;v=v1")];
    let table = world.admin.call(http::Method::GET, CLUSTERS, &accept, "").await?.json();
    let cells = table["rows"][0]["cells"].as_array().cloned().unwrap_or_default();
    let shown: Vec<&Value> = cells.iter().enumerate().filter(|(at, _)| *at != 8).map(|(_, it)| it).collect();
    assert_eq!(json!(shown), json!(["eu-1", "True", RELEASE, "eu", "", 1, "0/4", "0/8Gi", ""]));
    // By its short name too, in every workspace.
    let group = world.admin.get("/apis/hanse.io/v1alpha1").await?.json();
    let found = group["resources"].as_array().into_iter().flatten().find(|it| it["name"] == "clusters");
    assert_eq!(found.map(|it| it["shortNames"].clone()), Some(json!(["cl"])));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_a_node_to_whoever_looks() -> Result<()> {
    let (world, members) = (World::start().await?, Members::start(&["one"]).await?);
    members.mk_node("one", "a").await?;
    world.join("eu-1", &members.access("one")).await?;
    let node = "/api/v1/nodes/eu-1";
    let complete = |it: &Value| {
        it["status"]["allocatable"]["cpu"] == "4" && it["status"]["nodeInfo"]["kubeletVersion"] == RELEASE
    };
    let seen = until(&world, node, "the node is complete", complete).await?;
    assert_eq!(seen["metadata"]["labels"][api::REGION_LABEL], "eu");
    assert_eq!(seen["metadata"]["labels"][api::CLUSTER_LABEL], "eu-1");
    assert_eq!(seen["status"]["conditions"][0]["status"], "True");
    // What is said of the cluster, the node says.
    let path = format!("{CLUSTERS}/eu-1");
    let change = json!({"spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}});
    assert_eq!(world.admin.merge_patch(&path, &change).await?.code, 200);
    until(&world, node, "the taint", |it| it["spec"]["taints"][0]["key"] == "gpu").await?;
    // And cordoning the node is about the cluster.
    let cordon = json!({"spec": {"unschedulable": true}});
    assert_eq!(world.admin.merge_patch(node, &cordon).await?.code, 200);
    until(&world, &path, "the cluster is cordoned", |it| it["spec"]["unschedulable"] == true).await?;
    let tainted = |it: &Value| it["spec"]["taints"].as_array().is_some_and(|taints| taints.len() == 2);
    until(&world, node, "the node is tainted", tainted).await?;
    let uncordon = json!({"spec": {"unschedulable": null}});
    assert_eq!(world.admin.merge_patch(node, &uncordon).await?.code, 200);
    until(&world, &path, "the cluster is let go", |it| it["spec"]["unschedulable"] != true).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_virtual_node_is_written_by_the_hub_alone_whatever_roles_allow() -> Result<()> {
    let (world, members) = (World::start().await?, Members::start(&["one"]).await?);
    world.join("eu-1", &members.access("one")).await?;
    let (nodes, node) = ("/api/v1/nodes", "/api/v1/nodes/eu-1");
    let made = until(&world, node, "the node is there", |it| it["kind"] == "Node").await?;
    let refused = |answer: &Answer, why: &str| {
        assert_eq!(answer.code, 403, "{}", answer.text());
        let message = answer.json()["message"].clone();
        assert!(message.as_str().is_some_and(|it| it.contains(why)), "{message}");
    };
    for change in [
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"metadata": {"labels": {api::CLUSTER_LABEL: null}}}),
        json!({"metadata": {"finalizers": ["example.com/mine"]}}),
        json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}], "unschedulable": true}}),
    ] {
        refused(
            &world.admin.merge_patch(node, &change).await?,
            "stands for cluster eu-1 and is written by Hanse",
        );
    }
    let status = json!({"status": {"capacity": {"cpu": "1000"}}});
    refused(&world.admin.merge_patch(&format!("{node}/status"), &status).await?, "kubectl edit cluster eu-1");
    refused(&world.admin.delete(node).await?, "hanse unjoin eu-1");
    refused(&world.admin.delete(nodes).await?, "hanse unjoin eu-1");
    let impostor = json!({"metadata": {"name": "eu-2", "labels": {api::CLUSTER_LABEL: "eu-2"}}});
    refused(&world.admin.post(nodes, &impostor).await?, "is for nodes that stand for clusters");
    // Whoever may act as anybody may not act as the hub.
    let headers = [
        ("content-type", "application/merge-patch+json"),
        ("impersonate-user", "system:hanse:sync"),
        ("impersonate-group", "system:masters"),
    ];
    let change = json!({"metadata": {"labels": {"a": "b"}}}).to_string();
    refused(&world.admin.call(http::Method::PATCH, node, &headers, change).await?, "is written by Hanse");
    // All others are anybody's.
    let plain = json!({"metadata": {"name": "plain"}});
    assert_eq!(world.admin.post(nodes, &plain).await?.code, 201);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(world.admin.merge_patch(&format!("{nodes}/plain"), &label).await?.code, 200);
    let claim = json!({"metadata": {"labels": {api::CLUSTER_LABEL: "eu-1"}}});
    refused(&world.admin.merge_patch(&format!("{nodes}/plain"), &claim).await?, "stand for clusters");
    assert_eq!(world.admin.delete(&format!("{nodes}/plain")).await?.code, 200);
    // It goes with its cluster.
    assert_eq!(world.admin.get(node).await?.json()["metadata"]["uid"], made["metadata"]["uid"]);
    world.admin.delete(&format!("{CLUSTERS}/eu-1")).await?;
    until(&world, node, "the node is gone", |it| it["code"] == 404).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_lost_is_found_again_and_nothing_is_deleted() -> Result<()> {
    let (world, members) = (World::start().await?, Members::start(&["one"]).await?);
    members.mk_node("one", "a").await?;
    world.join("eu-1", &members.access("one")).await?;
    world.until("eu-1", "Ready").await?;
    let node = "/api/v1/nodes/eu-1";
    until(&world, node, "the node is there", |it| it["kind"] == "Node").await?;
    world.cuts.cut(members.hub.peer.address);
    let lost = world.until("eu-1", "Timeout").await?;
    assert_eq!(
        api::cluster::condition(&lost, "Reachable").map(|it| it["status"].clone()),
        Some(json!("False"))
    );
    let taint = |it: &Value| it["spec"]["taints"][0]["key"] == "node.kubernetes.io/unreachable";
    until(&world, node, "the node is tainted", taint).await?;
    world.cuts.heal(members.hub.peer.address);
    let found = world.until("eu-1", "Ready").await?;
    assert_eq!(found["status"]["identity"], lost["status"]["identity"]);
    until(&world, node, "the taint is gone", |it| it["kind"] == "Node" && it["spec"].get("taints").is_none())
        .await?;
    // And it is followed again.
    members.mk_node("one", "b").await?;
    let path = format!("{CLUSTERS}/eu-1");
    until(&world, &path, "the new node", |it| it["status"]["nodes"]["total"] == 2).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_follows_its_cluster_and_its_secret() -> Result<()> {
    let (world, members) = (World::start().await?, Members::start(&["one"]).await?);
    let access = members.access("one");
    let bundle = BASE64_STANDARD.encode(&access.authority);
    let made = world.admin.post(CLUSTERS, &cluster("eu-1", &access.server, &bundle)).await?;
    assert_eq!(made.code, 201, "{}", made.text());
    let missing = world.until("eu-1", "CredentialMissing").await?;
    assert!(ready(&missing)["message"].as_str().is_some_and(|it| it.contains("default/eu-1")));
    let secret = |data: Value| json!({"metadata": {"name": "eu-1"}, "data": data});
    let secrets = "/api/v1/namespaces/default/secrets";
    assert_eq!(world.admin.post(secrets, &secret(json!({}))).await?.code, 201);
    world.until("eu-1", "CredentialInvalid").await?;
    let wrong = json!({"token": BASE64_STANDARD.encode("nobody's")});
    world.admin.merge_patch(&format!("{secrets}/eu-1"), &json!({"data": wrong})).await?;
    world.until("eu-1", "Unauthorized").await?;
    let sync::client::Identity::Certificate { certificate, key } = &access.identity else {
        unreachable!("an admin has a certificate")
    };
    let pair = json!({
        "token": null, "tls.crt": BASE64_STANDARD.encode(certificate), "tls.key": BASE64_STANDARD.encode(key),
    });
    world.admin.merge_patch(&format!("{secrets}/eu-1"), &json!({"data": pair})).await?;
    world.until("eu-1", "Ready").await?;
    // The address leads nowhere, and back.
    let path = format!("{CLUSTERS}/eu-1");
    let endpoint = |to: &str| json!({"spec": {"endpoint": to}});
    world.admin.merge_patch(&path, &endpoint("https://127.0.0.1:1")).await?;
    world.until("eu-1", "Unreachable").await?;
    world.admin.merge_patch(&path, &endpoint(&access.server)).await?;
    world.until("eu-1", "Ready").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_that_starts_again_goes_on_with_its_clusters() -> Result<()> {
    let members = Members::start(&["one", "two"]).await?;
    let store: std::sync::Arc<dyn store::Store> = std::sync::Arc::new(store::memory::MemoryStore::new());
    let start = || testing::hub::TestHub::start_on(store.clone(), Default::default());
    let first = start().await?;
    sync::start(&first.peer.hub, crate::world::brisk());
    let reach = crate::world::access(&first, "default");
    crate::world::join(&reach, "eu-1", &members.access("one")).await?;
    let admin = first.admin().await?;
    let path = format!("{CLUSTERS}/eu-1");
    let since = eventually("it is ready", || async {
        let cluster = admin.get(&path).await?.json();
        let ready = ready(&cluster);
        Ok((ready["status"] == "True").then(|| ready["lastTransitionTime"].clone()))
    })
    .await?;
    first.stop().await;
    let second = start().await?;
    sync::start(&second.peer.hub, crate::world::brisk());
    let admin = second.admin().await?;
    let before = admin.get(&path).await?.json()["status"]["heartbeat"].clone();
    let after = eventually("it was heard of again", || async {
        let cluster = admin.get(&path).await?.json();
        Ok((cluster["status"]["heartbeat"] != before).then_some(cluster))
    })
    .await?;
    assert_eq!(ready(&after)["lastTransitionTime"], since, "nothing happened to it");
    Ok(())
}
