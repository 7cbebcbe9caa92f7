//! What clients see: lists, watches, names, sums.

use anyhow::Result;
use http::StatusCode;
use serde_json::{Value, json};
use server::views::Placed;
use store::Collection;

use crate::{Cluster, PODS, SETS, World, create, mk_pod, names, pods};

#[tokio::test]
async fn members_pods_show_beside_those_that_are_stored() -> Result<()> {
    let world = World::start().await?;
    create(&world.client, PODS, &mk_pod("mine")).await?;
    let eu = Cluster::joined(&world, "eu-1", &["eu-web"]).await?;
    let _us = Cluster::joined(&world, "us-1", &["us-web"]).await?;
    assert_eq!(world.names(PODS).await?, ["eu-web", "mine", "us-web"]);
    assert_eq!(world.names("/api/v1/pods").await?, ["eu-web", "mine", "us-web"]);
    assert_eq!(world.names(&format!("{PODS}?labelSelector=hanse.io/cluster%3Deu-1")).await?, ["eu-web"]);
    assert_eq!(world.names(&format!("{PODS}?fieldSelector=metadata.name%3Dus-web")).await?, ["us-web"]);
    assert_eq!(world.names(&format!("{PODS}?labelSelector=app%3Dmine")).await?, ["mine"]);
    let shown = world.get(&format!("{PODS}/eu-web")).await?;
    let there = eu.pod("eu-web").await?;
    assert_eq!(shown["metadata"]["uid"], there["metadata"]["uid"]);
    assert_eq!(shown["spec"], there["spec"]);
    assert_eq!((&shown["kind"], &shown["apiVersion"]), (&json!("Pod"), &json!("v1")));
    assert!(shown["metadata"]["managedFields"].is_null());
    Ok(())
}

#[tokio::test]
async fn tables_and_metadata_are_of_the_merged_list() -> Result<()> {
    let world = World::start().await?;
    create(&world.client, PODS, &mk_pod("mine")).await?;
    let _eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let accept = ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table = world.client.call(http::Method::GET, PODS, &[accept], "").await?.json();
    assert_eq!(table["kind"], "Table");
    let first: Vec<&Value> = table["rows"].as_array().unwrap().iter().map(|row| &row["cells"][0]).collect();
    assert_eq!(first, ["mine", "web"]);
    let accept = ("accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io");
    let list = world.client.call(http::Method::GET, PODS, &[accept], "").await?.json();
    assert_eq!(names(&list), ["mine", "web"]);
    Ok(())
}

#[tokio::test]
async fn a_name_stays_with_who_had_it_first() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let us = Cluster::joined(&world, "us-1", &["web"]).await?;
    assert_eq!(world.names(PODS).await?, ["web", "web-us-1"]);
    let renamed = world.get(&format!("{PODS}/web-us-1")).await?;
    assert_eq!(renamed["metadata"]["annotations"]["hanse.io/name"], "web");
    assert_eq!(renamed["metadata"]["uid"], us.pod("web").await?["metadata"]["uid"]);
    eu.remove(&world, &pods(), &eu.pod("web").await?);
    us.report(&world, &pods()).await?;
    assert_eq!(world.names(PODS).await?, ["web-us-1"], "it keeps its name though another is free");
    Ok(())
}

#[tokio::test]
async fn what_is_stored_has_its_name_whoever_had_it() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let refused = world.client.post(PODS, &mk_pod("web")).await?;
    assert_eq!(refused.code, StatusCode::CONFLICT, "{}", refused.text());
    // A member's pod that comes by the name of a stored one carries its cluster.
    let mine = create(&world.client, PODS, &mk_pod("api")).await?;
    create(&eu.client, PODS, &mk_pod("api")).await?;
    eu.report(&world, &pods()).await?;
    assert_eq!(world.names(PODS).await?, ["api", "api-eu-1", "web"]);
    assert_eq!(world.get(&format!("{PODS}/api")).await?["metadata"]["uid"], mine["metadata"]["uid"]);
    // One that is written to the store past the view takes its name: the member's moves aside.
    let store = &world.hub.peer.hub.store;
    let stored = store.get(&world.workspace(), &store::Key::new("", "pods", "shop", "api")).unwrap();
    let mut tree = stored.tree()?;
    tree["metadata"]["name"] = json!("web");
    tree["metadata"]["uid"] = json!("of-a-restored-one");
    let write = store::Write {
        key: store::Key::new("", "pods", "shop", "web"),
        expect: store::Expect::Absent,
        change: store::Change::Put { draft: machinery::Draft::encode(&tree)?, expires: None },
    };
    store.commit(&world.workspace(), store::Commit { guards: vec![], writes: vec![write] }).await?;
    assert_eq!(world.names(PODS).await?, ["api", "api-eu-1", "web", "web-eu-1"]);
    assert_eq!(world.get(&format!("{PODS}/web")).await?["metadata"]["uid"], "of-a-restored-one");
    Ok(())
}

#[tokio::test]
async fn a_watch_tells_of_members_and_of_the_store_in_one_order() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let query =
        "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = world.client.watch(&format!("{PODS}?{query}")).await?;
    let first = watch.expect().await?;
    assert_eq!((&first["type"], &first["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("web")));
    let end = watch.expect().await?;
    assert_eq!(end["type"], "BOOKMARK");
    assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    create(&world.client, PODS, &mk_pod("mine")).await?;
    let mut pod = eu.pod("web").await?;
    pod["metadata"]["resourceVersion"] = json!("900000000000");
    pod["status"]["phase"] = json!("Running");
    eu.put(&world, &pods(), &pod);
    eu.put(&world, &pods(), &pod);
    eu.remove(&world, &pods(), &pod);
    world.client.delete(&format!("{PODS}/mine")).await?;
    let mut last = 0;
    let expected = [("ADDED", "mine"), ("MODIFIED", "web"), ("DELETED", "web"), ("DELETED", "mine")];
    for (kind, name) in expected {
        let event = watch.expect().await?;
        assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!(kind), &json!(name)));
        let revision: u64 = event["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse()?;
        assert!(revision > last, "{event}");
        last = revision;
    }
    Ok(())
}

#[tokio::test]
async fn a_list_that_is_read_in_pages_stands_still() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &["a", "b", "c", "d", "e"]).await?;
    let page = world.get(&format!("{PODS}?limit=2")).await?;
    assert_eq!(names(&page), ["a", "b"]);
    assert_eq!(page["metadata"]["remainingItemCount"], 3);
    eu.remove(&world, &pods(), &eu.pod("c").await?);
    let token = page["metadata"]["continue"].as_str().unwrap();
    let rest = world.get(&format!("{PODS}?limit=9&continue={token}")).await?;
    assert_eq!(names(&rest), ["c", "d", "e"]);
    assert_eq!(rest["metadata"]["resourceVersion"], page["metadata"]["resourceVersion"]);
    let at = page["metadata"]["resourceVersion"].as_str().unwrap();
    let past = format!("{PODS}?resourceVersion={at}&resourceVersionMatch=Exact");
    assert_eq!(world.names(&past).await?, ["a", "b", "c", "d", "e"]);
    assert_eq!(world.names(PODS).await?, ["a", "b", "d", "e"]);
    Ok(())
}

#[tokio::test]
async fn revisions_from_before_the_first_member_have_expired_and_so_have_those_after_the_last() -> Result<()>
{
    let world = World::start().await?;
    let before = world.get(PODS).await?["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let exact = |at: &str| format!("{PODS}?resourceVersion={at}&resourceVersionMatch=Exact");
    assert_eq!(world.client.get(&exact(&before)).await?.code, StatusCode::GONE);
    let not_older = format!("{PODS}?resourceVersion={before}&resourceVersionMatch=NotOlderThan");
    assert_eq!(world.client.get(&not_older).await?.code, StatusCode::GONE);
    let mut watch = world.client.watch(&format!("{PODS}?watch=true&resourceVersion={before}")).await?;
    assert_eq!(watch.expect().await?["object"]["code"], 410);
    let during = world.get(PODS).await?["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    // Other kinds go on as they were.
    let others = "/api/v1/namespaces/shop/configmaps";
    assert_eq!(world.client.get(&format!("{others}?resourceVersion={before}")).await?.code, StatusCode::OK);
    // A server that has no view at all does not wait for what will never come.
    let other = World::start().await?;
    assert_eq!(other.client.get(&exact(&during)).await?.code, StatusCode::GONE);
    drop(eu);
    Ok(())
}

#[tokio::test]
async fn replica_sets_of_a_divided_deployment_show_as_one() -> Result<()> {
    let world = World::start().await?;
    let sets = Collection::new("apps", "replicasets");
    let (eu, us) = (Cluster::start("eu-1").await?, Cluster::start("us-1").await?);
    for (cluster, uid, replicas) in [(&eu, "d-eu", 3), (&us, "d-us", 2)] {
        cluster.join(&world);
        cluster.report_all(&world).await?;
        let placed = Placed { uid: "d-hub".into(), duplicated: false };
        world.views().placed(&world.workspace(), cluster.name(), uid, placed);
        let pod = json!({"metadata": {
            "name": format!("web-1-{}", cluster.name()), "namespace": "shop", "uid": format!("pod-{uid}"),
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": format!("set-{uid}")}],
        }, "spec": {"containers": []}});
        cluster.put(&world, &pods(), &pod);
        let set = json!({
            "metadata": {
                "name": "web-1", "namespace": "shop", "uid": format!("set-{uid}"),
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": uid}],
            },
            "spec": {"replicas": replicas}, "status": {"replicas": replicas, "readyReplicas": 1},
        });
        cluster.put(&world, &sets, &set);
    }
    assert_eq!(world.names(SETS).await?, ["web-1"]);
    let one = world.get(&format!("{SETS}/web-1")).await?;
    assert_eq!(one["spec"]["replicas"], 5);
    assert_eq!(one["status"], json!({"replicas": 5, "readyReplicas": 2}));
    assert_eq!(one["metadata"]["ownerReferences"][0]["uid"], "d-hub");
    assert_eq!(one["metadata"]["annotations"]["hanse.io/replicas"], "eu-1=3,us-1=2");
    for pod in ["web-1-eu-1", "web-1-us-1"] {
        let pod = world.get(&format!("{PODS}/{pod}")).await?;
        assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], one["metadata"]["uid"]);
    }
    // One of them goes: what is left is the other's.
    let gone = json!({"metadata": {"name": "web-1", "namespace": "shop", "uid": "set-d-eu"}});
    eu.remove(&world, &sets, &gone);
    let left = world.get(&format!("{SETS}/web-1")).await?;
    assert_eq!((&left["spec"]["replicas"], &left["metadata"]["uid"]), (&json!(2), &json!("set-d-us")));
    let pod = world.get(&format!("{PODS}/web-1-us-1")).await?;
    assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], "set-d-us");
    Ok(())
}

#[tokio::test]
async fn equal_names_of_other_deployments_stay_apart() -> Result<()> {
    let world = World::start().await?;
    let sets = Collection::new("apps", "replicasets");
    for name in ["eu-1", "us-1"] {
        let cluster = Cluster::start(name).await?;
        cluster.join(&world);
        cluster.report_all(&world).await?;
        let set =
            json!({"metadata": {"name": "web-1", "namespace": "shop", "uid": name}, "spec": {"replicas": 1}});
        cluster.put(&world, &sets, &set);
    }
    assert_eq!(world.names(SETS).await?, ["web-1", "web-1-us-1"]);
    Ok(())
}

#[tokio::test]
async fn events_are_read_in_both_groups_and_are_about_what_shows() -> Result<()> {
    let world = World::start().await?;
    let _eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let us = Cluster::joined(&world, "us-1", &["web"]).await?;
    let pod = us.pod("web").await?;
    let event = json!({
        "metadata": {"name": "web.1", "namespace": "shop", "uid": "e1"}, "reason": "Started", "message": "up",
        "type": "Normal", "count": 1,
        "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web", "uid": pod["metadata"]["uid"]},
    });
    us.put(&world, &Collection::new("", "events"), &event);
    let selector = "fieldSelector=involvedObject.name%3Dweb-us-1";
    assert_eq!(world.names(&format!("/api/v1/namespaces/shop/events?{selector}")).await?, ["web.1"]);
    let newer = world.get("/apis/events.k8s.io/v1/namespaces/shop/events/web.1").await?;
    assert_eq!((&newer["regarding"]["name"], &newer["note"]), (&json!("web-us-1"), &json!("up")));
    Ok(())
}
