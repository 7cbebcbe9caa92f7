//! Each way in which a policy has an object run, from the policy to the members (S3.2).

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    app::{self, NS},
    world::{World, assignment_path, deployment_path, is_rolled_out, shares},
};

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
    world.apply(&app::deployment(name, 6)).await?;
    let wanted: Vec<(String, u64)> = ["m1", "m2"]
        .into_iter()
        .zip(expected)
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| (name.to_owned(), count))
        .collect();
    let path = assignment_path(&app::deployment(name, 6));
    let is_so = |it: &Value| shares(it) == wanted && it["spec"]["decision"]["policy"] == "rule";
    world.until(&path, &format!("its shares are {wanted:?}"), is_so).await?;
    for (member, count) in ["m1", "m2"].into_iter().zip(expected) {
        let member = world.member(member).await?;
        if count == 0 {
            assert!(!member.has(&deployment_path(name)).await?);
            continue;
        }
        let runs = |it: &Value| it["spec"]["replicas"] == count && is_rolled_out(it, count);
        member.until(&deployment_path(name), &format!("{count} run"), runs).await?;
    }
    Ok(())
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
