//! An object in very many clusters.

use anyhow::Result;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};

use crate::{
    app::{self, NS},
    world::{World, assignment_path, deployment_path, items},
};

const MEMBERS: usize = 120;
/// Bytes that one more cluster may cost the user's object.
const PER_CLUSTER: usize = 64;

fn everywhere() -> Value {
    json!({
        "apiVersion": "hanse.io/v1alpha1", "kind": "Placement", "metadata": {"name": "everywhere"},
        "spec": {"select": [{"kinds": ["Deployment"], "namespaces": [NS]}], "strategy": "Duplicate"},
    })
}

/// What clusters say of it is in its Assignment, which can be found by each of them.
#[tokio::test(flavor = "multi_thread")]
async fn s1_4_in_a_hundred_and_twenty_clusters_the_object_itself_hardly_grows() -> Result<()> {
    let world = World::start(&[]).await?;
    let names: Vec<String> = (1..=MEMBERS).map(|number| format!("m{number:03}")).collect();
    for name in &names {
        world.clusters.simulation.add(name, sim::ClusterOptions::default()).await?;
    }
    stream::iter(&names).map(|name| world.join(name)).buffer_unordered(8).try_collect::<Vec<()>>().await?;
    world.namespace(NS).await?;
    let web = app::deployment("web", 1);
    world.apply(&web).await?;
    let alone = world.until_rolled_out("web", 1).await?;

    world.apply(&everywhere()).await?;

    let is_everywhere = |it: &Value| {
        let reports = it["status"]["clusters"].as_array().map(Vec::as_slice).unwrap_or_default();
        let runs = |it: &&Value| it["applied"] == true && it["status"]["readyReplicas"] == 1;
        reports.iter().filter(runs).count() == MEMBERS
    };
    let assignment = world.until(&assignment_path(&web), "it runs everywhere", is_everywhere).await?;
    let is_summed = |it: &Value| it["status"]["readyReplicas"] == MEMBERS;
    let spread = world.until(&deployment_path("web"), "all are counted", is_summed).await?;
    let bytes = |object: &Value| object.to_string().len();
    println!(
        "the Deployment: {} B in one cluster, {} B in {MEMBERS}; its Assignment: {} B",
        bytes(&alone),
        bytes(&spread),
        bytes(&assignment)
    );
    assert!(bytes(&spread) <= bytes(&alone) + MEMBERS * PER_CLUSTER, "{spread}");
    for name in [&names[0], &names[MEMBERS - 1]] {
        let labelled = format!(
            "/apis/hanse.io/v1alpha1/namespaces/{NS}/assignments?labelSelector=cluster.hanse.io/{name}"
        );
        let found = items(&world.client, &labelled).await?;
        assert!(found.iter().any(|it| it["metadata"]["name"] == assignment["metadata"]["name"]), "{name}");
    }
    Ok(())
}
