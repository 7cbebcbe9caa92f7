//! Each way in which a policy has an object run, from the policy to the members (S3.2).

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::{Value, json};
use sim::{ClusterOptions, NodeShape};

use crate::{
    app::{self, NS},
    removal::WORKSPACES,
    world::{
        CLUSTERS, World, apply, assignment_path, condition, deployment_path, is_rolled_out, path, shares,
        text, until,
    },
};

/// Federation's annotation by which an object says in which clusters it is.
const SELECTOR: &str = "federation.alpha.kubernetes.io/cluster-selector";

/// A hub whose Deployments of `shop` run so.
async fn with_policy(policy: Value) -> Result<World> {
    let world = World::start(&["m1", "m2"]).await?;
    world.namespace(NS).await?;
    let mut placement = json!({
        "apiVersion": "hanse.io/v1alpha1", "kind": "Placement", "metadata": {"name": "rule"},
        "spec": {"select": [{"kinds": ["Deployment"], "namespaces": [NS]}]},
    });
    if let (Some(spec), Value::Object(policy)) = (placement["spec"].as_object_mut(), policy) {
        spec.extend(policy);
    }
    world.apply(&placement).await?;
    Ok(world)
}

/// Six replicas are so many here and there, by the Assignment and by the members themselves; 0: nothing is there.
async fn until_divided(world: &World, name: &str, expected: [u64; 2]) -> Result<()> {
    until_divided_between(world, name, &[("m1", expected[0]), ("m2", expected[1])]).await
}

async fn until_divided_between(world: &World, name: &str, expected: &[(&str, u64)]) -> Result<()> {
    until_applied_between(world, &app::deployment(name, 6), expected).await
}

async fn until_applied_between(world: &World, object: &Value, expected: &[(&str, u64)]) -> Result<()> {
    world.apply(object).await?;
    let some = expected.iter().filter(|(_, count)| *count > 0);
    let wanted: Vec<(String, u64)> = some.map(|(name, count)| ((*name).to_owned(), *count)).collect();
    let is_so = |it: &Value| shares(it) == wanted && it["spec"]["decision"]["policy"] == "rule";
    world.until(&assignment_path(object), &format!("its shares are {wanted:?}"), is_so).await?;
    for (member, count) in expected {
        let (member, count) = (world.member(member).await?, *count);
        if count == 0 {
            assert!(!member.has(&path(object)).await?, "{object}");
            continue;
        }
        let runs = |it: &Value| it["spec"]["replicas"] == count && is_rolled_out(it, count);
        member.until(&path(object), &format!("{count} run"), runs).await?;
    }
    Ok(())
}

async fn put_in(world: &World, cluster: &str, region: &str) -> Result<()> {
    let labels = json!({"metadata": {"labels": {api::REGION_LABEL: region}}});
    world.patch(&format!("{CLUSTERS}/{cluster}"), labels).await.map(drop)
}

/// Joins one more. Its nodes say where it is as well: pods that ask for it look there.
async fn join_in(world: &World, cluster: &str, region: &str) -> Result<()> {
    let labels = BTreeMap::from([(api::REGION_LABEL.to_owned(), region.to_owned())]);
    let nodes = NodeShape { labels, ..NodeShape::default() };
    world.clusters.simulation.add(cluster, ClusterOptions { nodes, ..ClusterOptions::default() }).await?;
    world.join(cluster).await?;
    put_in(world, cluster, region).await
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_2_single_has_all_of_it_in_one_cluster() -> Result<()> {
    let world = with_policy(json!({"strategy": "Single", "clusters": {"names": ["m2"]}})).await?;
    until_divided(&world, "web", [0, 6]).await?;
    // Of several that may, it is one all the same.
    let world = with_policy(json!({"strategy": "Single"})).await?;
    world.apply(&app::deployment("web", 6)).await?;
    world.until_rolled_out("web", 6).await?;
    let assignment = world.assignment(&app::deployment("web", 6)).await?;
    assert_eq!(shares(&assignment).iter().map(|it| it.1).collect::<Vec<_>>(), [6], "{assignment}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_2_duplicate_has_all_of_it_in_each_cluster() -> Result<()> {
    let world = with_policy(json!({"strategy": "Duplicate"})).await?;
    until_divided(&world, "web", [6, 6]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_2_divide_is_even_unless_there_are_weights() -> Result<()> {
    let world = with_policy(json!({"strategy": "Divide"})).await?;
    until_divided(&world, "web", [3, 3]).await?;
    let weights = json!([{"cluster": "m1", "weight": 1}, {"cluster": "m2", "weight": 2}]);
    let world =
        with_policy(json!({"strategy": "Divide", "divide": {"by": "Weight", "shares": weights}})).await?;
    until_divided(&world, "web", [2, 4]).await?;
    // At least, and at most.
    let limits = json!([{"cluster": "m1", "min": 1, "max": 1}, {"cluster": "m2"}]);
    let world = with_policy(json!({"strategy": "Divide", "divide": {"shares": limits}})).await?;
    until_divided(&world, "web", [1, 5]).await
}

/// One cluster has half as many nodes as the other: it has room for half as many.
#[tokio::test(flavor = "multi_thread")]
async fn s3_2_divide_by_capacity_follows_what_is_free() -> Result<()> {
    let among = json!({"names": ["m1", "m3"]});
    let world =
        with_policy(json!({"strategy": "Divide", "clusters": among, "divide": {"by": "Capacity"}})).await?;
    let nodes = NodeShape { count: 1, ..NodeShape::default() };
    assert_eq!(NodeShape::default().count, 2);
    world.clusters.simulation.add("m3", ClusterOptions { nodes, ..ClusterOptions::default() }).await?;
    world.join("m3").await?;
    until_divided_between(&world, "web", &[("m1", 4), ("m2", 0), ("m3", 2)]).await
}

/// One of two regions has three clusters: they have as much together as the other one alone.
#[tokio::test(flavor = "multi_thread")]
async fn s3_2_spread_divides_over_regions_before_clusters() -> Result<()> {
    let spread = json!([{"topologyKey": api::REGION_LABEL}]);
    let world = with_policy(json!({"strategy": "Divide", "spread": spread})).await?;
    join_in(&world, "m3", "eu").await?;
    join_in(&world, "m4", "us").await?;
    until_divided_between(&world, "web", &[("m1", 1), ("m2", 1), ("m3", 1), ("m4", 3)]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_2_spread_waits_for_as_many_regions_as_it_asks_for() -> Result<()> {
    let spread = json!([{"topologyKey": api::REGION_LABEL, "minDomains": 3}]);
    let world = with_policy(json!({"strategy": "Divide", "spread": spread})).await?;
    put_in(&world, "m2", "us").await?;
    until_divided(&world, "web", [1, 1]).await?;
    let says_why = |it: &Value| {
        let synced = condition(it, "Synced");
        synced["reason"] == "Pending"
            && text(&synced, "/message").contains("spreading over topology.kubernetes.io/region")
    };
    world.until(&deployment_path("web"), "it says why the rest waits", says_why).await?;
    join_in(&world, "m3", "ap").await?;
    until_divided_between(&world, "web", &[("m1", 2), ("m2", 2), ("m3", 2)]).await
}

/// Each cluster is a place of its own by the label that has its name.
#[tokio::test(flavor = "multi_thread")]
async fn s3_2_spread_says_in_how_many_clusters_it_is_at_most() -> Result<()> {
    let most = json!([{"topologyKey": api::CLUSTER_LABEL, "maxDomains": 2}]);
    for (strategy, each) in [("Divide", 3_u64), ("Duplicate", 6)] {
        let world = with_policy(json!({"strategy": strategy, "spread": most})).await?;
        join_in(&world, "m3", "eu").await?;
        world.apply(&app::deployment("web", 6)).await?;
        world.until_rolled_out("web", 6).await?;
        let assignment = world.assignment(&app::deployment("web", 6)).await?;
        assert_eq!(shares(&assignment).iter().map(|it| it.1).collect::<Vec<_>>(), [each, each], "{strategy}");
    }
    Ok(())
}

fn in_region(region: &str) -> Value {
    json!({"matchExpressions": [{"key": api::REGION_LABEL, "operator": "In", "values": [region]}]})
}

fn with_affinity(name: &str, how: &str, terms: Value) -> Value {
    let mut object = app::deployment(name, 6);
    object["spec"]["template"]["spec"]["affinity"] = json!({"nodeAffinity": {how: terms}});
    object
}

fn only_in(name: &str, region: &str) -> Value {
    let terms = json!({"nodeSelectorTerms": [in_region(region)]});
    with_affinity(name, "requiredDuringSchedulingIgnoredDuringExecution", terms)
}

fn rather_in(name: &str, region: &str) -> Value {
    let terms = json!([{"weight": 100, "preference": in_region(region)}]);
    with_affinity(name, "preferredDuringSchedulingIgnoredDuringExecution", terms)
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_2_what_pods_require_of_nodes_is_required_of_clusters() -> Result<()> {
    let world = with_policy(json!({"strategy": "Divide"})).await?;
    join_in(&world, "m3", "us").await?;
    let mut selected = app::deployment("selected", 6);
    selected["spec"]["template"]["spec"]["nodeSelector"] = json!({api::REGION_LABEL: "us"});
    for object in [selected, only_in("required", "us")] {
        until_applied_between(&world, &object, &[("m1", 0), ("m2", 0), ("m3", 6)]).await?;
    }
    let nowhere = only_in("nowhere", "ap");
    world.apply(&nowhere).await?;
    let says_why = |it: &Value| {
        let mut verdicts = it["spec"]["decision"]["verdicts"].as_array().into_iter().flatten();
        shares(it).is_empty() && verdicts.any(|it| text(it, "/message").contains("node affinity"))
    };
    world.until(&assignment_path(&nowhere), "it is said why it is nowhere", says_why).await?;
    join_in(&world, "m4", "ap").await?;
    until_applied_between(&world, &nowhere, &[("m1", 0), ("m2", 0), ("m3", 0), ("m4", 6)]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_2_what_pods_prefer_decides_between_clusters_that_may_have_them() -> Result<()> {
    let world = with_policy(json!({"strategy": "Single"})).await?;
    put_in(&world, "m2", "us").await?;
    for (name, region, expected) in [("over-there", "us", [0, 6]), ("here", "eu", [6, 0])] {
        let [m1, m2] = expected;
        until_applied_between(&world, &rather_in(name, region), &[("m1", m1), ("m2", m2)]).await?;
    }
    // A wish that nobody can fulfil is no demand.
    world.apply(&rather_in("anywhere", "ap")).await?;
    world.until_rolled_out("anywhere", 6).await.map(drop)
}

fn tainted(effect: &str) -> Value {
    json!({"spec": {"taints": [{"key": "dedicated", "value": "gpu", "effect": effect}]}})
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_2_a_tainted_cluster_is_for_what_tolerates_it() -> Result<()> {
    let (m2, tolerations) = (format!("{CLUSTERS}/m2"), json!([{"key": "dedicated", "operator": "Exists"}]));
    let world = with_policy(json!({"strategy": "Divide"})).await?;
    until_divided(&world, "early", [3, 3]).await?;
    world.patch(&m2, tainted("NoSchedule")).await?;
    until_divided(&world, "late", [6, 0]).await?;
    let mut tolerant = app::deployment("tolerant", 6);
    tolerant["spec"]["template"]["spec"]["tolerations"] = tolerations.clone();
    until_applied_between(&world, &tolerant, &[("m1", 3), ("m2", 3)]).await?;
    // Who was there before stays, until it is driven out.
    assert_eq!(shares(&world.assignment(&app::deployment("early", 6)).await?).len(), 2);
    world.patch(&m2, tainted("NoExecute")).await?;
    until_divided(&world, "early", [6, 0]).await?;
    until_applied_between(&world, &tolerant, &[("m1", 3), ("m2", 3)]).await?;

    // A policy tolerates it for all that it selects.
    let world = with_policy(json!({"strategy": "Divide", "tolerations": tolerations})).await?;
    world.patch(&m2, tainted("NoSchedule")).await?;
    until_divided(&world, "web", [3, 3]).await
}

/// As docs/placement.md has it: what is to be nowhere is in the hub alone, and waits for nothing.
#[tokio::test(flavor = "multi_thread")]
async fn s3_2_none_is_a_selector_that_no_cluster_matches() -> Result<()> {
    let world = World::start(&["m1"]).await?;
    world.namespace(NS).await?;
    let nowhere = r#"[{"key": "hanse.io/cluster", "operator": "DoesNotExist"}]"#;
    let mut web = app::deployment("web", 2);
    web["metadata"]["annotations"] = json!({SELECTOR: nowhere});
    world.apply(&web).await?;
    world.barrier(NS, 0, &["m1"]).await?;
    let m1 = world.member("m1").await?;
    assert!(!m1.has(&path(&web)).await?);
    assert_eq!(world.assignment(&web).await?["code"], 404);
    assert_eq!(condition(&world.get(&path(&web)).await?, "Synced"), Value::Null);

    world.annotate(&path(&web), json!({SELECTOR: null})).await?;
    world.until_rolled_out("web", 2).await?;
    world.annotate(&path(&web), json!({SELECTOR: nowhere})).await?;
    m1.until_gone(&path(&web)).await?;
    world.until_gone(&assignment_path(&web)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_2_a_placement_that_means_no_cluster_waits_for_one_and_takes_nothing_away() -> Result<()> {
    let world = World::start(&["m1"]).await?;
    world.namespace(NS).await?;
    let old = app::deployment("old", 2);
    world.apply(&old).await?;
    world.until_rolled_out("old", 2).await?;
    let no_cluster = json!([{"key": api::CLUSTER_LABEL, "operator": "DoesNotExist"}]);
    let nowhere = json!({
        "apiVersion": "hanse.io/v1alpha1", "kind": "Placement", "metadata": {"name": "nowhere"},
        "spec": {
            "select": [{"kinds": ["Deployment"], "namespaces": [NS]}],
            "clusters": {"selector": {"matchExpressions": no_cluster}},
        },
    });
    world.apply(&nowhere).await?;
    world.apply(&app::deployment("new", 2)).await?;
    let waits = |it: &Value| condition(it, "Synced")["reason"] == "Unplaced";
    world.until(&deployment_path("new"), "it waits", waits).await?;
    let is_decided = |it: &Value| it["spec"]["decision"]["policy"] == "nowhere";
    world.until(&assignment_path(&old), "the other one is to be nowhere, too", is_decided).await?;
    world.barrier(NS, 0, &["m1"]).await?;
    let m1 = world.member("m1").await?;
    assert_eq!(m1.pods(NS).await?.len(), 2, "it stays until it has another place");
    assert!(!m1.has(&deployment_path("new")).await?);
    Ok(())
}

/// What one object says of itself takes it to another cluster as well, and nothing else but what it needs; and no cluster
/// is opened by it that is closed to whoever says so.
#[tokio::test(flavor = "multi_thread")]
async fn s3_4_what_an_object_says_is_additive_and_limited() -> Result<()> {
    let world = World::start(&["m1", "m2", "m3"]).await?;
    world.namespace(NS).await?;
    world.annotate(&format!("/api/v1/namespaces/{NS}"), json!({"hanse.io/clusters": "m1"})).await?;
    for name in ["web", "other"] {
        world.apply(&app::deployment(name, 2)).await?;
        world.until_rolled_out(name, 2).await?;
    }
    let m1 = world.member("m1").await?;
    let before = m1.pods(NS).await?;
    assert_eq!(before.len(), 4);

    // In one step: what is there is divided between all that are named.
    let grow = |clusters: &str, replicas: u64| json!({"metadata": {"annotations": {"hanse.io/clusters": clusters}}, "spec": {"replicas": replicas}});
    world.patch(&deployment_path("web"), grow("m1,m2", 4)).await?;
    world.until_rolled_out("web", 4).await?;
    let is_there = |it: &Value| is_rolled_out(it, 2);
    world.member("m2").await?.until(&deployment_path("web"), "it is there as well", is_there).await?;
    assert_eq!(m1.pods(NS).await?, before, "nothing moved");
    assert!(!world.member("m2").await?.has(&deployment_path("other")).await?);

    // One who has an account is given what is open to it, whatever it says.
    world.patch(&format!("{CLUSTERS}/m3"), json!({"spec": {"accounts": ["others"]}})).await?;
    let made = world.client.post(WORKSPACES, &json!({"metadata": {"name": "team"}})).await?;
    anyhow::ensure!(made.code == 201, "{}", made.text());
    let mut web = app::deployment("web", 2);
    web["metadata"]["annotations"] = json!({"hanse.io/clusters": "m1,m3"});
    for object in [&app::namespace(NS), &web] {
        let answer = apply(&world.client, "/clusters/team", object).await?;
        anyhow::ensure!(answer.code.is_success(), "{}", answer.text());
    }
    let path = format!("/clusters/team{}", deployment_path("web"));
    until(&world.client, &path, "all of it runs", |it| it["status"]["readyReplicas"] == 2).await?;
    let path = format!("/clusters/team{}", assignment_path(&web));
    let assignment =
        until(&world.client, &path, "it is told", |it| it["spec"]["clusters"].is_array()).await?;
    assert_eq!(shares(&assignment), [("m1".to_owned(), 2)], "{assignment}");
    let refused = |it: &&Value| it["cluster"] == "m3" && it["feasible"] == false;
    let verdicts = assignment["spec"]["decision"]["verdicts"].as_array().into_iter().flatten();
    let why = verdicts.clone().find(refused).map(|it| it["message"].to_string()).unwrap_or_default();
    assert!(why.contains("team may not use it"), "{assignment}");
    assert!(world.member("m3").await?.items("/apis/apps/v1/deployments").await?.is_empty());
    Ok(())
}
