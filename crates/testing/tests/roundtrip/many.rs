//! An object in very many clusters.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use testing::patience::Patience;

use crate::{
    app::{self, NS},
    world::{World, assignment_path, items},
};

const MEMBERS: usize = 120;
const LOOK_EVERY: Duration = Duration::from_millis(200);
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
    let world = World::start_calm().await?;
    let names: Vec<String> = (1..=MEMBERS).map(|number| format!("m{number:03}")).collect();
    for name in &names {
        world.clusters.simulation.add(name, sim::ClusterOptions::default()).await?;
    }
    stream::iter(&names).map(|name| world.join(name)).buffer_unordered(4).try_collect::<Vec<()>>().await?;
    world.namespace(NS).await?;
    let web = app::deployment("web", 1);
    world.apply(&web).await?;
    let alone = world.until_rolled_out("web", 1).await?;

    world.apply(&everywhere()).await?;

    let runs = |it: &Value| {
        let reports = it["status"]["clusters"].as_array().map(Vec::as_slice).unwrap_or_default();
        let runs = |it: &&Value| it["applied"] == true && it["status"]["readyReplicas"] == 1;
        reports.iter().filter(runs).count()
    };
    // It takes as long as it takes, as long as there are more and more.
    let mut patience = Patience::default();
    let assignment = loop {
        let assignment = world.get(&assignment_path(&web)).await?;
        if runs(&assignment) == MEMBERS {
            break assignment;
        }
        ensure!(patience.lasts(runs(&assignment)), "it runs in {} clusters", runs(&assignment));
        tokio::time::sleep(LOOK_EVERY).await;
    };
    // Each has all of it, so that it counts as one.
    let spread = world.until_rolled_out("web", 1).await?;
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
