//! How replicas are divided: plain objects under a Placement that divides as federation did, and scheduling preferences.

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    app::{self, NS},
    words::{
        A, B, C, begin, delete_whole, federated, named, plain, restart, start, template, told,
        until_replicas, until_told,
    },
    world::{World, apply, assignment_path, path, shares},
};

/// Divides all that is in the workspace as federation did.
pub fn federation(rebalance: bool) -> Value {
    json!({
        "apiVersion": "hanse.io/v1alpha1", "kind": "Placement", "metadata": {"name": "federation"},
        "spec": {
            "select": [{"kinds": [
                "Deployment", "ReplicaSet", "Job", "HorizontalPodAutoscaler", "ConfigMap", "Secret", "Service",
            ]}],
            "strategy": "Divide",
            "divide": {"algorithm": "Federation", "rebalance": rebalance},
        },
    })
}

pub async fn until_divided(world: &World, object: &Value, wanted: &[(&str, u64)]) -> Result<Value> {
    let wanted: Vec<(String, u64)> =
        wanted.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    let holds = |it: &Value| {
        let had: Vec<(String, u64)> = shares(it).into_iter().filter(|(_, count)| *count > 0).collect();
        had == wanted
    };
    world.until(&assignment_path(object), &format!("it is divided as {wanted:?}"), holds).await
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_05_even_split_and_totals() -> Result<()> {
    let mut world = begin(&[A, B, C]).await?;
    world.namespace(NS).await?;
    world.apply(&app::deployment("web", 9)).await?;
    world.until_rolled_out("web", 9).await?;
    for name in [A, B, C] {
        until_replicas(&world.member(name).await?, &app::deployment("web", 9), 3).await?;
    }
    restart(&mut world, &[A, B, C]).await?;
    world.apply(&app::deployment("web", 50)).await?;
    let web = world.until_rolled_out("web", 50).await?;
    assert_eq!(web["status"]["readyReplicas"], 50);
    let divided = shares(&world.assignment(&app::deployment("web", 50)).await?);
    let mut counts: Vec<u64> = divided.iter().map(|(_, count)| *count).collect();
    counts.sort_unstable();
    assert_eq!(counts, [16, 17, 17]);
    assert_eq!(divided, in_hash_order("shop/web"));
    // The key decides which has sixteen, in every run.
    delete_whole(&world, &path(&app::deployment("web", 50))).await?;
    world.until_gone(&assignment_path(&app::deployment("web", 50))).await?;
    world.apply(&app::deployment("web", 50)).await?;
    world.until_rolled_out("web", 50).await?;
    assert_eq!(shares(&world.assignment(&app::deployment("web", 50)).await?), divided);
    let other = app::deployment("api", 50);
    world.apply(&other).await?;
    world.until_rolled_out("api", 50).await?;
    assert_eq!(shares(&world.assignment(&other).await?), in_hash_order("shop/api"));
    Ok(())
}

/// Who comes last by the hash of its name and the key has sixteen.
fn in_hash_order(key: &str) -> Vec<(String, u64)> {
    let last = [A, B, C].into_iter().max_by_key(|name| kinds::divide::rank(name, key));
    let count = |name: &str| if Some(name) == last { 16 } else { 17 };
    [A, B, C].map(|name| (name.to_owned(), count(name))).to_vec()
}

pub fn preference(spec: Value) -> Value {
    let mut whole = json!({
        "apiVersion": "scheduling.kubefed.io/v1alpha1", "kind": "ReplicaSchedulingPreference",
        "metadata": {"name": "web", "namespace": NS}, "spec": {"targetKind": "FederatedDeployment"},
    });
    if let (Some(own), Some(given)) = (whole["spec"].as_object_mut(), spec.as_object()) {
        own.extend(given.clone());
    }
    whole
}

fn web() -> Value {
    federated("Deployment", "web", json!({"template": template(1), "placement": named(&[A])}))
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_06_weights_minimum_and_maximum() -> Result<()> {
    let mut world = start(&[A, B, C]).await?;
    // The plan says how many there are, and nothing else.
    let mut object = web();
    let kept = json!([{"op": "add", "path": "/spec/revisionHistoryLimit", "value": 3}]);
    object["spec"]["overrides"] = json!([{"clusterName": B, "clusterOverrides": kept}]);
    world.apply(&object).await?;
    let copy = plain(&object);
    let (a, b, c) = (world.member(A).await?, world.member(B).await?, world.member(C).await?);
    until_replicas(&a, &copy, 1).await?;

    let bounds = json!({
        A: {"weight": 1, "minReplicas": 4, "maxReplicas": 6}, B: {"weight": 2, "minReplicas": 4, "maxReplicas": 8},
    });
    world.apply(&preference(json!({"totalReplicas": 9, "rebalance": true, "clusters": bounds}))).await?;
    let of_a = until_replicas(&a, &copy, 4).await?;
    let of_b = until_replicas(&b, &copy, 5).await?;
    let limit = |it: &Value| it["spec"]["revisionHistoryLimit"].clone();
    assert_eq!((limit(&of_a), limit(&of_b)), (json!(10), json!(3)));
    until_told(&world, &object, &[(A, ""), (B, "")], "True").await?;

    restart(&mut world, &[A, B, C]).await?;
    let weights = json!({A: {"weight": 1}, B: {"weight": 2}});
    world.apply(&preference(json!({"totalReplicas": 9, "rebalance": true, "clusters": weights}))).await?;
    until_replicas(&a, &copy, 3).await?;
    until_replicas(&b, &copy, 6).await?;
    assert!(!c.has(&path(&copy)).await? || c.get(&path(&copy)).await?["spec"]["replicas"] == 0);
    until_told(&world, &object, &[(A, ""), (B, "")], "True").await?;

    let most = json!({"*": {"weight": 1, "maxReplicas": 2}});
    let scheduled = preference(json!({"totalReplicas": 50, "rebalance": true, "clusters": most}));
    world.apply(&scheduled).await?;
    for member in [&a, &b, &c] {
        until_replicas(member, &copy, 2).await?;
    }
    let told = world
        .until(&path(&scheduled), "it says what has no place", |it| it["status"]["unplaced"] == 44)
        .await?;
    assert_eq!(told["status"]["clusters"], json!({A: 2, B: 2, C: 2}));
    until_told(&world, &object, &[(A, ""), (B, ""), (C, "")], "True").await?;

    for wrong in [
        json!({"totalReplicas": 9, "clusters": {A: {"minReplicas": 5, "maxReplicas": 4}}}),
        json!({"totalReplicas": -1}),
        json!({"totalReplicas": 9, "clusters": {A: {"weight": -1}}}),
        json!({"totalReplicas": 9, "clusters": {A: {"minReplicas": -1}}}),
        json!({"totalReplicas": 9, "clusters": {A: {"maxReplicas": -1}}}),
    ] {
        let refused = apply(&world.client, "", &preference(wrong)).await?;
        assert_eq!(refused.code, 422, "{}", refused.text());
    }

    // Without it, it is as it says itself.
    world.client.delete(&path(&scheduled)).await?;
    until_replicas(&a, &copy, 1).await?;
    b.until_gone(&path(&copy)).await?;
    c.until_gone(&path(&copy)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_06_only_clusters_that_are_selected() -> Result<()> {
    let mut world = start(&[A, B, C]).await?;
    for name in [A, B] {
        crate::words::label_cluster(&world, name, json!({"size": "big"})).await?;
    }
    let mut selected = web();
    selected["spec"]["placement"] = json!({"clusterSelector": {"matchLabels": {"size": "big"}}});
    world.apply(&selected).await?;
    world.apply(&preference(json!({"totalReplicas": 6, "intersectWithClusterSelector": true}))).await?;
    let copy = plain(&selected);
    restart(&mut world, &[A, B, C]).await?;
    for name in [A, B] {
        until_replicas(&world.member(name).await?, &copy, 3).await?;
    }
    assert!(!world.member(C).await?.has(&path(&copy)).await?);
    until_told(&world, &selected, &[(A, ""), (B, "")], "True").await?;

    // With fewer replicas than clusters one of them has nothing, as it should be.
    let single =
        preference(json!({"totalReplicas": 1, "rebalance": true, "intersectWithClusterSelector": true}));
    world.apply(&single).await?;
    let has_one = |it: &Value| {
        let had = it["status"]["clusters"].as_array().into_iter().flatten();
        had.count() == 1 && told(it).1 == "True"
    };
    world.until(&path(&selected), "one cluster has it and all is well", has_one).await?;

    // Where none is selected nothing has a place.
    selected["spec"]["placement"] = json!({"clusterSelector": {"matchLabels": {"size": "huge"}}});
    world.apply(&selected).await?;
    let is_told = |it: &Value| it["status"]["clusters"] == json!({}) && it["status"]["unplaced"] == 1;
    world.until(&path(&single), "it says that it has no place", is_told).await.map(drop)
}

/// What runs stays where it is, and a cluster that has nothing of it has not failed.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_08_a_cluster_that_joins_does_not_fail_to_have_what_stays_elsewhere() -> Result<()> {
    let mut world = start(&[A, B]).await?;
    let object = web();
    world.apply_all(&[preference(json!({"totalReplicas": 4, "rebalance": false})), object.clone()]).await?;
    until_told(&world, &object, &[(A, ""), (B, "")], "True").await?;

    world.clusters.simulation.add(C, sim::ClusterOptions::default()).await?;
    world.join(C).await?;
    world.barrier(NS, 0, &[A, B, C]).await?;
    until_told(&world, &object, &[(A, ""), (B, "")], "True").await?;
    restart(&mut world, &[A, B, C]).await?;
    until_told(&world, &object, &[(A, ""), (B, "")], "True").await?;
    assert_eq!(shares(&world.assignment(&plain(&object)).await?), [(A.into(), 2), (B.into(), 2)]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_08_no_needless_moves() -> Result<()> {
    let mut world = World::start(&[A, B]).await?;
    world.namespace(NS).await?;
    world.apply(&federation(false)).await?;
    let object = app::deployment("web", 30);
    world.apply(&object).await?;
    world.until_rolled_out("web", 30).await?;
    until_divided(&world, &object, &[(A, 15), (B, 15)]).await?;
    let pods = [world.member(A).await?.pods(NS).await?, world.member(B).await?.pods(NS).await?];

    restart(&mut world, &[A, B]).await?;
    world.clusters.simulation.add(C, sim::ClusterOptions::default()).await?;
    world.join(C).await?;
    world.barrier(NS, 0, &[A, B, C]).await?;
    until_divided(&world, &object, &[(A, 15), (B, 15)]).await?;
    let third = world.member(C).await?.get(&path(&object)).await?;
    assert!(third["code"] == 404 || third["spec"]["replicas"] == 0, "{third}");
    assert_eq!([world.member(A).await?.pods(NS).await?, world.member(B).await?.pods(NS).await?], pods);

    world.apply(&federation(true)).await?;
    until_divided(&world, &object, &[(A, 10), (B, 10), (C, 10)]).await?;
    for name in [A, B, C] {
        until_replicas(&world.member(name).await?, &object, 10).await?;
    }
    Ok(())
}
