//! The annotations of federation v1 that say how a plain object is divided, with something in them.

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    app::{self, NS},
    plain::{counts, job},
    scheduling::{federation, until_divided},
    words::{A, B, C, restart, until_replicas, until_warned},
    world::{World, assignment_path, condition, path},
};

const OF_SETS: &str = "federation.kubernetes.io/replica-set-preferences";
const OF_DEPLOYMENTS: &str = "federation.kubernetes.io/deployment-preferences";
const OF_JOBS: &str = "federation.kubernetes.io/job-preferences";

/// Three members, where all is divided evenly that says nothing else.
async fn workspace() -> Result<World> {
    let world = World::start(&[A, B, C]).await?;
    world.namespace(NS).await?;
    world.apply(&federation(true)).await?;
    Ok(world)
}

fn preferring(mut object: Value, annotation: &str, preferences: &str) -> Value {
    object["metadata"]["annotations"] = json!({annotation: preferences});
    object
}

/// What cannot be read moves nothing, changes nothing, and is told; put right, it goes on from there.
async fn a_value_that_cannot_be_read_is_harmless(
    world: &World,
    object: &Value,
    annotation: &str,
    change: Value,
) -> Result<()> {
    let members = [world.member(A).await?, world.member(B).await?];
    let before = [members[0].get(&path(object)).await?, members[1].get(&path(object)).await?];
    let decided = world.assignment(object).await?["spec"]["clusters"].clone();
    let mut broken = change;
    broken["metadata"]["annotations"] = json!({annotation: r#"{"clusters": {"a": {"weight": "much"}}}"#});
    world.patch(&path(object), broken).await?;
    until_warned(world, object, annotation).await?;
    world.barrier(NS, 7, &[A, B, C]).await?;
    assert_eq!(world.assignment(object).await?["spec"]["clusters"], decided);
    for (member, before) in members.iter().zip(before) {
        let spec = member.get(&path(object)).await?["spec"].clone();
        assert_eq!(spec, before["spec"], "{spec}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_set_is_divided_by_its_preferences() -> Result<()> {
    let mut world = workspace().await?;
    let weighted = r#"{"rebalance": true, "clusters": {"a": {"weight": 1}, "b": {"weight": 2}}}"#;
    let set = |replicas: u32, preferences: &str| {
        preferring(app::replica_set("set", replicas), OF_SETS, preferences)
    };
    world.apply(&set(9, weighted)).await?;
    // Who is not named takes no part.
    until_divided(&world, &set(9, weighted), &[(A, 3), (B, 6)]).await?;
    let (a, b, c) = (world.member(A).await?, world.member(B).await?, world.member(C).await?);
    until_replicas(&a, &set(9, weighted), 3).await?;
    until_replicas(&b, &set(9, weighted), 6).await?;
    assert!(c.pods(NS).await?.is_empty());

    restart(&mut world, &[A, B, C]).await?;
    let bounded =
        r#"{"rebalance": true, "clusters": {"a": {"weight": 1, "maxReplicas": 2}, "b": {"weight": 2}}}"#;
    world.apply(&set(9, bounded)).await?;
    until_divided(&world, &set(9, bounded), &[(A, 2), (B, 7)]).await?;
    until_replicas(&a, &set(9, bounded), 2).await?;
    until_replicas(&b, &set(9, bounded), 7).await?;

    let more = json!({"spec": {"replicas": 12}});
    a_value_that_cannot_be_read_is_harmless(&world, &set(9, bounded), OF_SETS, more).await?;
    world.apply(&set(12, bounded)).await?;
    until_divided(&world, &set(12, bounded), &[(A, 2), (B, 10)]).await?;
    until_replicas(&b, &set(12, bounded), 10).await?;
    assert!(c.pods(NS).await?.is_empty());
    Ok(())
}

/// Names of fields are Go's, in any case.
#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_is_divided_by_its_preferences() -> Result<()> {
    let mut world = workspace().await?;
    let all_bounded =
        r#"{"Clusters": {"a": {"Weight": 1, "MaxReplicas": 2}, "b": {"Weight": 1, "MaxReplicas": 3}}}"#;
    let web = |replicas: u32, preferences: &str| {
        preferring(app::deployment("web", replicas), OF_DEPLOYMENTS, preferences)
    };
    world.apply(&web(9, all_bounded)).await?;
    let divided = until_divided(&world, &web(9, all_bounded), &[(A, 2), (B, 3)]).await?;
    assert_eq!(divided["spec"]["decision"]["pending"], 4, "{divided}");

    restart(&mut world, &[A, B, C]).await?;
    let least = r#"{"rebalance": true, "clusters": {"a": {"weight": 1, "minReplicas": 4, "maxReplicas": 6}, "b": {"weight": 2, "minReplicas": 4, "maxReplicas": 8}}}"#;
    world.apply(&web(9, least)).await?;
    until_divided(&world, &web(9, least), &[(A, 4), (B, 5)]).await?;
    world.until_rolled_out("web", 9).await?;

    let more = json!({"spec": {"replicas": 12}});
    a_value_that_cannot_be_read_is_harmless(&world, &web(9, least), OF_DEPLOYMENTS, more).await?;
    let the_rest =
        r#"{"rebalance": true, "clusters": {"a": {"maxReplicas": 2, "weight": 1}, "*": {"weight": 1}}}"#;
    world.apply(&web(12, the_rest)).await?;
    until_divided(&world, &web(12, the_rest), &[(A, 2), (B, 5), (C, 5)]).await?;
    world.until_rolled_out("web", 12).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_divided_by_its_preferences() -> Result<()> {
    let mut world = workspace().await?;
    let weighted = r#"{"clusters": {"a": {"weight": 1}, "b": {"weight": 2}}}"#;
    let work = preferring(job(3, 9, "1h"), OF_JOBS, weighted);
    world.apply(&work).await?;
    let (a, b) = (world.member(A).await?, world.member(B).await?);
    assert_eq!((counts(&a).await?, counts(&b).await?), ((1, 3), (2, 6)));
    let runs = |it: &Value| it["status"]["active"] == 3;
    world.until(&path(&work), "three of it run", runs).await?;

    let change = json!({"metadata": {"labels": {"tier": "new"}}});
    a_value_that_cannot_be_read_is_harmless(&world, &work, OF_JOBS, change).await?;
    restart(&mut world, &[A, B, C]).await?;
    world.barrier(NS, 8, &[A, B, C]).await?;
    assert_eq!((counts(&a).await?, counts(&b).await?), ((1, 3), (2, 6)));
    assert!(!world.member(C).await?.has(&path(&work)).await?);
    // As kubectl says it; unsaid, copies would stay.
    let (json, options) =
        ([("content-type", "application/json")], json!({"propagationPolicy": "Background"}));
    world.client.call(http::Method::DELETE, &path(&work), &json, options.to_string()).await?;
    world.until_gone(&assignment_path(&work)).await?;

    // A maximum is for how many run at a time: whatever there is to be done is.
    let bounded =
        r#"{"clusters": {"a": {"weight": 1, "maxReplicas": 1}, "b": {"weight": 1, "maxReplicas": 1}}}"#;
    let work = preferring(job(4, 6, "0s"), OF_JOBS, bounded);
    world.apply(&work).await?;
    let done = |it: &Value| condition(it, "Complete")["status"] == "True";
    let whole = world.until(&path(&work), "it is complete", done).await?;
    assert_eq!(whole["status"]["succeeded"], 6);
    assert_eq!((counts(&a).await?, counts(&b).await?), ((1, 3), (1, 3)));
    Ok(())
}
