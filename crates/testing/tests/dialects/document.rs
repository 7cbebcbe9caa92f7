//! The YAML of the notes on multicluster Kubernetes, as it stands there.

use anyhow::Result;
use serde_json::json;

use crate::{
    words::{begin, create, delete_whole, documents, label_cluster, restart, until_told, until_warned},
    world::{World, assignment_path, condition, path, text},
};

#[tokio::test(flavor = "multi_thread")]
async fn template_placement_and_override_make_five_replicas_here_and_ten_there() -> Result<()> {
    let mut world = begin(&["cluster1", "cluster2", "cluster3"]).await?;
    let documents = documents(include_str!("data/federated-replica-set.yaml"))?;
    for object in &documents {
        create(&world, object).await?;
    }

    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "frontend", "namespace": "default"},
    });
    for (name, replicas) in [("cluster1", 5), ("cluster2", 10)] {
        let member = world.member(name).await?;
        let runs = |it: &serde_json::Value| it["status"]["readyReplicas"] == replicas;
        let copy = member.until(&path(&set), "its replicas run", runs).await?;
        assert_eq!(copy["spec"]["replicas"], replicas);
        assert_eq!(copy["metadata"]["labels"]["app"], "nginx");
    }
    until_told(&world, &documents[0], &[("cluster1", ""), ("cluster2", "")], "True").await?;
    assert!(!world.member("cluster3").await?.has(&path(&set)).await?);

    restart(&mut world, &["cluster1", "cluster2", "cluster3"]).await?;
    // Without its placement it is nowhere, and without its override as the template says.
    let overrides = path(&documents[2]);
    world.client.delete(&overrides).await?;
    let member = world.member("cluster2").await?;
    member.until(&path(&set), "it is as the template", |it| it["spec"]["replicas"] == 5).await?;
    world.client.delete(&path(&documents[1])).await?;
    member.until_gone(&path(&set)).await?;
    until_told(&world, &documents[0], &[], "True").await.map(drop)
}

/// Of federated services: it says by which name they are looked up, and is for the DNS server of each cluster. In its own
/// namespace there it goes where a policy sends ConfigMaps, and nowhere by itself.
#[tokio::test(flavor = "multi_thread")]
async fn the_settings_of_kube_dns_are_taken_as_they_stand_and_go_where_config_maps_go() -> Result<()> {
    let settings = documents(include_str!("data/kube-dns.yaml"))?.remove(0);
    let data = json!({"federations": "federation=${DNS_ZONE_NAME}"});
    let world = World::start(&["a", "b"]).await?;
    create(&world, &settings).await?;
    assert_eq!(world.get(&path(&settings)).await?["data"], data);
    world.namespace("shop").await?;
    world.barrier("shop", 0, &["a", "b"]).await?;
    for name in ["a", "b"] {
        assert!(!world.member(name).await?.has(&path(&settings)).await?, "nothing selects it");
    }

    world.apply(&crate::scheduling::federation(true)).await?;
    for name in ["a", "b"] {
        let copy = world.member(name).await?.until_there(&path(&settings)).await?;
        assert_eq!(copy["data"], data, "{name}");
    }
    delete_whole(&world, &path(&settings)).await?;
    for name in ["a", "b"] {
        let member = world.member(name).await?;
        member.until_gone(&path(&settings)).await?;
        assert!(member.has("/api/v1/namespaces/kube-system").await?, "the namespace is the cluster's own");
    }
    Ok(())
}

/// `kubectl get clusters` takes the first group that has them.
#[tokio::test(flavor = "multi_thread")]
async fn kinds_of_dialects_are_served_everywhere_and_come_last() -> Result<()> {
    let hub = testing::hub::TestHub::start().await?;
    let groups = hub.admin().await?.get("/apis").await?.json();
    let names: Vec<&str> =
        groups["groups"].as_array().into_iter().flatten().filter_map(|it| it["name"].as_str()).collect();
    // A bare name that several of them have means the form that is in use.
    let dialects = [
        "types.kubefed.io",
        "clusterregistry.k8s.io",
        "core.federation.k8s.io",
        "core.kubefed.io",
        "primitives.federation.k8s.io",
        "scheduling.kubefed.io",
    ];
    assert!(names.ends_with(&dialects), "{names:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_03_a_cluster_selector_is_followed_as_labels_change() -> Result<()> {
    let mut world = begin(&["a", "b"]).await?;
    label_cluster(&world, "a", json!({"location": "europe", "environment": "prod"})).await?;
    label_cluster(&world, "b", json!({"location": "usa"})).await?;
    let mut config = documents(include_str!("data/cluster-selector.yaml"))?.remove(0);
    create(&world, &config).await?;
    config["metadata"]["namespace"] = json!("default");

    let (a, b) = (world.member("a").await?, world.member("b").await?);
    a.until(&path(&config), "it is there", |it| it["data"]["myconfigkey"] == "myconfigdata").await?;
    // Had it been sent to the other one as well, it would be there by now.
    world.barrier("default", 0, &["a", "b"]).await?;
    assert!(!b.has(&path(&config)).await?);

    restart(&mut world, &["a", "b"]).await?;
    label_cluster(&world, "a", json!({"environment": "test"})).await?;
    a.until_gone(&path(&config)).await?;
    label_cluster(&world, "b", json!({"location": "europe", "environment": "prod"})).await?;
    b.until_there(&path(&config)).await.map(drop)
}

fn bad_selector() -> serde_json::Value {
    json!({"federation.alpha.kubernetes.io/cluster-selector": r#"[{"key": "location", "operator": "~", "values": ["x"]}]"#})
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_04_a_bad_selector_is_harmless() -> Result<()> {
    let mut world = begin(&["a", "b"]).await?;
    label_cluster(&world, "a", json!({"location": "europe", "environment": "prod"})).await?;
    let mut config = documents(include_str!("data/cluster-selector.yaml"))?.remove(0);
    create(&world, &config).await?;
    config["metadata"]["namespace"] = json!("default");
    let a = world.member("a").await?;
    let copy = a.until_there(&path(&config)).await?;

    let edited = json!({"metadata": {"annotations": bad_selector()}, "data": {"myconfigkey": "edited"}});
    world.patch(&path(&config), edited).await?;
    until_warned(&world, &config, "not a valid operator").await?;
    // What has no conditions of its own has them in its Assignment.
    let failed = |it: &serde_json::Value| {
        let message = it["spec"]["decision"]["message"].as_str().unwrap_or_default();
        message.contains("not a valid operator")
    };
    world.until(&assignment_path(&config), "its Assignment says so", failed).await?;
    restart(&mut world, &["a", "b"]).await?;
    world.barrier("default", 0, &["a", "b"]).await?;
    world.until(&assignment_path(&config), "its Assignment says so still", failed).await?;
    let kept = a.get(&path(&config)).await?;
    assert_eq!(kept["metadata"]["resourceVersion"], copy["metadata"]["resourceVersion"], "{kept}");

    // What has conditions has a failed one.
    let mut web = crate::app::deployment("web", 1);
    web["metadata"]["namespace"] = json!("default");
    web["metadata"]["annotations"] = bad_selector();
    world.apply(&web).await?;
    let failed = |it: &serde_json::Value| {
        let synced = condition(it, "Synced");
        synced["status"] == "False" && text(&synced, "/message").contains("not a valid operator")
    };
    world.until(&path(&web), "it has a failed condition", failed).await?;

    // Fixing it resumes.
    let all = json!({"federation.alpha.kubernetes.io/cluster-selector": "[]"});
    world.annotate(&path(&config), all).await?;
    let edited = |it: &serde_json::Value| it["data"]["myconfigkey"] == "edited";
    world.member("b").await?.until(&path(&config), "it is there", edited).await?;
    a.until(&path(&config), "it is changed", edited).await.map(drop)
}
