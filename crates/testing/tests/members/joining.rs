//! `hanse join` and `hanse unjoin`: each may be cut off anywhere and done again, and no cluster is joined twice.

use anyhow::Result;
use serde_json::json;
use sync::{NAMESPACE, join::Refusal, unjoin};
use testing::hub::eventually;

use crate::{
    hand::{CONFIG_MAP, Hand},
    world::{CLUSTERS, Members, World, join, sync_client},
};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/hanse:session";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/hanse:session";

fn refused(outcome: Result<impl std::fmt::Debug, Refusal>) -> String {
    match outcome {
        Err(Refusal::No(why)) => why,
        other => panic!("it should be refused: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_joined_is_there_once_however_often_it_is_joined() -> Result<()> {
    let (world, members) = (World::start().await?, Members::start(&["one"]).await?);
    let first = world.join("eu-1", &members.access("one")).await?;
    assert!(!first.again);
    let before = world.until("eu-1", "Ready").await?;
    let second = world.join("eu-1", &members.access("one")).await?;
    assert!(second.again && second.identity == first.identity);
    let after = world.cluster("eu-1").await?;
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
    assert_eq!(before["spec"], after["spec"]);
    assert_eq!(after["metadata"]["labels"][api::REGION_LABEL], "eu");
    assert!(after["spec"].get("token").is_none(), "the credential is in a Secret");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_not_joined_twice_by_whatever_name() -> Result<()> {
    let (world, members) = (World::start().await?, Members::start(&["one", "two"]).await?);
    world.join("eu-1", &members.access("one")).await?;
    world.until("eu-1", "Ready").await?;
    let why = refused(world.join("eu-2", &members.access("one")).await);
    assert!(why.contains("joined already, as eu-1"), "{why}");
    // Before the hub knew its identity, the member itself says so.
    let hidden = world.admin.delete(&format!("{CLUSTERS}/eu-1")).await?;
    assert_eq!(hidden.code, 200);
    let why = refused(world.join("eu-2", &members.access("one")).await);
    assert!(why.contains("as eu-1"), "{why}");
    // Another hub finds it taken.
    let other = World::start().await?;
    let why = refused(other.join("eu-1", &members.access("one")).await);
    assert!(why.contains("another workspace or hub"), "{why}");
    // A name that stands for one cluster does not come to stand for another.
    world.join("eu-1", &members.access("one")).await?;
    let why = refused(world.join("eu-1", &members.access("two")).await);
    assert!(why.contains("stands for another cluster"), "{why}");
    // A hub is no member of itself.
    let why = refused(world.join("self", &world.access()).await);
    assert!(why.contains("member of itself"), "{why}");
    let why = refused(world.join("Not a name", &members.access("two")).await);
    assert!(why.contains("no name for a cluster"), "{why}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_two_objects_stand_for_is_used_by_the_first() -> Result<()> {
    let (world, members) = (World::start().await?, Members::start(&["one"]).await?);
    world.join("first", &members.access("one")).await?;
    let first = world.until("first", "Ready").await?;
    let mut second =
        json!({"apiVersion": api::API_VERSION, "kind": "Cluster", "metadata": {"name": "second"}});
    second["spec"] = first["spec"].clone();
    assert_eq!(world.admin.post(CLUSTERS, &second).await?.code, 201);
    let second = world.until("second", "AlreadyJoined").await?;
    assert_eq!(second["status"]["identity"].as_str().unwrap_or_default(), "");
    assert_eq!(world.admin.get("/api/v1/nodes/second").await?.code, 404);
    // When the first one leaves, the second is what stands for it.
    world.admin.delete(&format!("{CLUSTERS}/first")).await?;
    world.until("second", "Ready").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_that_was_cut_off_is_finished_by_the_same_command() -> Result<()> {
    let (world, members) = (World::start().await?, Members::start(&["one"]).await?);
    world.join("eu-1", &members.access("one")).await?;
    // Whatever is missing of it, it is there afterwards.
    let of_member = [
        format!("/api/v1/namespaces/{NAMESPACE}/secrets/hanse-session-token"),
        format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/hanse-session"),
        ROLES.to_owned(),
        BINDINGS.to_owned(),
    ];
    for path in of_member {
        members.admin.delete(&format!("/clusters/one{path}")).await?;
        world.join("eu-1", &members.access("one")).await?;
        assert_eq!(members.get("one", &path).await?.code, 200, "{path}");
    }
    for path in [format!("/api/v1/namespaces/{NAMESPACE}/secrets/cluster-eu-1"), format!("{CLUSTERS}/eu-1")] {
        world.admin.delete(&path).await?;
        world.join("eu-1", &members.access("one")).await?;
        assert_eq!(world.admin.get(&path).await?.code, 200, "{path}");
    }
    world.until("eu-1", "Ready").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_account_may_do_what_sessions_do_and_nothing_else() -> Result<()> {
    let (world, members) = (World::start().await?, Members::start(&["one"]).await?);
    world.join("eu-1", &members.access("one")).await?;
    let user = format!("system:serviceaccount:{NAMESPACE}:hanse-session");
    let cases = [
        ("list", "", "pods", "", true),
        ("create", "", "pods", "eviction", true),
        ("patch", "apps", "deployments", "", true),
        ("watch", "", "nodes", "", true),
        ("delete", "", "nodes", "", false),
        ("create", "rbac.authorization.k8s.io", "clusterroles", "", false),
        ("create", "rbac.authorization.k8s.io", "rolebindings", "", false),
        ("create", "certificates.k8s.io", "certificatesigningrequests", "", false),
        ("create", "", "serviceaccounts", "token", false),
        ("impersonate", "", "users", "", false),
        ("delete", "apiextensions.k8s.io", "customresourcedefinitions", "", false),
    ];
    for (verb, group, resource, subresource, allowed) in cases {
        let attributes = json!({
            "verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": "default",
        });
        let review = json!({"spec": {"user": user, "resourceAttributes": attributes}});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let answer = members.post("one", path, review).await?;
        assert_eq!(answer["status"]["allowed"], allowed, "{verb} {group}/{resource}/{subresource}: {answer}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unjoining_takes_back_what_joining_made_and_nothing_else() -> Result<()> {
    let (world, members) = (World::start().await?, Members::start(&["one"]).await?);
    members.mk_node("one", "node").await?;
    members.mk_pod("one", "default", "running", "node").await?;
    world.join("eu-1", &members.access("one")).await?;
    world.until("eu-1", "Ready").await?;
    eventually("its node is there", || async {
        Ok((world.admin.get("/api/v1/nodes/eu-1").await?.code == 200).then_some(()))
    })
    .await?;
    let unjoined = world.unjoin("eu-1").await?;
    assert!(unjoined.was_joined && unjoined.left_behind.is_none(), "{unjoined:?}");
    for path in [
        format!("{CLUSTERS}/eu-1"),
        format!("/api/v1/namespaces/{NAMESPACE}/secrets/cluster-eu-1"),
        "/api/v1/nodes/eu-1".into(),
    ] {
        eventually(&format!("{path} is gone"), || async {
            Ok((world.admin.get(&path).await?.code == 404).then_some(()))
        })
        .await?;
    }
    for path in [&format!("/api/v1/namespaces/{NAMESPACE}"), ROLES, BINDINGS] {
        eventually(&format!("{path} is gone from the member"), || async {
            Ok((members.get("one", path).await?.code == 404).then_some(()))
        })
        .await?;
    }
    assert_eq!(members.get("one", "/api/v1/namespaces/default/pods/running").await?.code, 200);
    assert!(!world.unjoin("eu-1").await?.was_joined, "once more is no harm");
    // It may come back, to anybody.
    join(&World::start().await?.access(), "again", &members.access("one")).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unjoining_leaves_a_namespace_that_others_use() -> Result<()> {
    let (world, members) = (World::start().await?, Members::start(&["one", "two"]).await?);
    let client = members.hub.admin().await?;
    let below = |member: &str| format!("/clusters/{member}/api/v1/namespaces");
    // One was there before; into the other something is put after.
    let made = client.post(&below("one"), &json!({"metadata": {"name": NAMESPACE}})).await?;
    assert_eq!(made.code, 201, "{}", made.text());
    for (name, member) in [("first", "one"), ("second", "two")] {
        world.join(name, &members.access(member)).await?;
        world.until(name, "Ready").await?;
    }
    let secret = json!({"metadata": {"name": "precious"}});
    let kept = client.post(&format!("{}/{NAMESPACE}/secrets", below("two")), &secret).await?;
    assert_eq!(kept.code, 201, "{}", kept.text());
    for (name, member) in [("first", "one"), ("second", "two")] {
        let unjoined = world.unjoin(name).await?;
        assert!(unjoined.left_behind.is_some_and(|why| why.contains("used by others")), "{name}");
        let place = format!("/api/v1/namespaces/{NAMESPACE}");
        assert_eq!(members.get(member, &place).await?.code, 200);
        assert_eq!(members.get(member, &format!("{place}/serviceaccounts/hanse-session")).await?.code, 404);
    }
    let precious = format!("/api/v1/namespaces/{NAMESPACE}/secrets/precious");
    assert_eq!(members.get("two", &precious).await?.code, 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_out_of_reach_is_forgotten_only_when_told_so() -> Result<()> {
    let (world, members) = (World::start().await?, Members::start(&["one"]).await?);
    world.join("eu-1", &members.access("one")).await?;
    members.hub.stop().await;
    let why = refused(world.unjoin("eu-1").await);
    assert!(why.contains("--forget"), "{why}");
    assert_eq!(world.admin.get(&format!("{CLUSTERS}/eu-1")).await?.code, 200);
    let hub = sync_client(&world.access());
    let request =
        unjoin::Request { name: "eu-1", hub: &hub, member: None, forget: true, delete_namespaces: false };
    assert!(unjoin::unjoin(&request).await?.was_joined);
    assert_eq!(world.admin.get(&format!("{CLUSTERS}/eu-1")).await?.code, 404);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_made_for_workspaces_go_only_when_asked() -> Result<()> {
    let (world, members) = (World::start().await?, Members::start(&["one"]).await?);
    // Given one that is made by placing something, and others of the cluster's own, one of which shows in the workspace,
    for (name, labels) in [("labelled", json!({api::WORKSPACE_LABEL: "default"})), ("own", json!({}))] {
        members
            .post("one", "/api/v1/namespaces", json!({"metadata": {"name": name, "labels": labels}}))
            .await?;
    }
    world.join("eu-1", &members.access("one")).await?;
    let hand = Hand::new(&world);
    for namespace in ["placed", "labelled"] {
        hand.namespace(namespace, &["eu-1"]).await?;
        hand.config_map(namespace, "settings", json!({}), &["eu-1"]).await?;
        hand.until_applied(&CONFIG_MAP, namespace, "settings", "eu-1").await?;
    }
    members
        .post("one", "/api/v1/namespaces/labelled/configmaps", json!({"metadata": {"name": "theirs"}}))
        .await?;
    // when it is unjoined with what was placed there,
    let hub = sync_client(&world.access());
    let request =
        unjoin::Request { name: "eu-1", hub: &hub, member: None, forget: false, delete_namespaces: true };
    let unjoined = unjoin::unjoin(&request).await?;
    assert_eq!((unjoined.deleted, unjoined.kept), (vec!["placed".to_owned()], vec!["labelled".to_owned()]));
    // then the first goes, and of the others what was placed there.
    eventually("the namespace is gone", || async {
        Ok((members.get("one", "/api/v1/namespaces/placed").await?.code == 404).then_some(()))
    })
    .await?;
    for namespace in ["own", "labelled"] {
        let found = members.get("one", &format!("/api/v1/namespaces/{namespace}")).await?.json();
        assert!(found["metadata"]["deletionTimestamp"].is_null() && found["kind"] == "Namespace", "{found}");
    }
    for (name, code) in [("settings", 404), ("theirs", 200)] {
        assert_eq!(members.get("one", &CONFIG_MAP.path("labelled", name)).await?.code, code, "{name}");
    }
    Ok(())
}
