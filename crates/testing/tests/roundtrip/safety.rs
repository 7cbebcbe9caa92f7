//! Nothing in a member ends because somebody does not see, know or remember something.

use std::{path::Path, sync::Arc};

use anyhow::Result;
use env::Env;
use serde_json::{Value, json};
use store::embedded::{EmbeddedStore, Options};

use crate::{
    app::{self, NS},
    history::{Deed, Mark},
    world::{CLUSTERS, World, deployment_path, path},
};

const NAMESPACE: &str = "/api/v1/namespaces/shop";

/// `web` runs in m1.
async fn running_in_m1(world: &World) -> Result<()> {
    world.namespace(NS).await?;
    world.annotate(NAMESPACE, json!({"hanse.io/clusters": "m1"})).await?;
    world.apply_all(&app::web()).await?;
    world.until_rolled_out("web", 3).await.map(drop)
}

fn ends(world: &World, member: &str, since: Mark) -> Result<Vec<Deed>> {
    Ok(world.deeds(member, since)?.into_iter().filter(Deed::is_end).collect())
}

async fn until_lost(world: &World, cluster: &str) -> Result<()> {
    let is_lost = |it: &Value| api::cluster::condition(it, "Ready").is_some_and(|it| it["status"] != "True");
    world.until(&format!("{CLUSTERS}/{cluster}"), "it is known to be lost", is_lost).await.map(drop)
}

/// X1 too: a session that begins with nothing, and without a word from the other side.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_12_a_partition_with_restarts_changes_nothing_in_the_member() -> Result<()> {
    let mut world = World::start(&["m1", "m2"]).await?;
    running_in_m1(&world).await?;
    let pods = world.member("m1").await?.pods(NS).await?;
    world.barrier(NS, 0, &["m1"]).await?;
    let mark = world.there.mark();

    world.cut("m1")?;
    until_lost(&world, "m1").await?;
    world.restart_hub(true).await?;
    until_lost(&world, "m1").await?;
    world.restart_hub(true).await?;
    world.restart_hub(false).await?;
    // It is known what there should be, and nobody claims that it is.
    let web = world.get(&deployment_path("web")).await?;
    assert_eq!(web["spec"]["replicas"], 3);
    world.heal("m1")?;
    world.until_ready("m1").await?;
    world.barrier(NS, 1, &["m1"]).await?;

    assert_eq!(ends(&world, "m1", mark)?, []);
    let mut writes = world.writes_to_copies(mark);
    writes.retain(|deed| !deed.name.starts_with("barrier-"));
    assert_eq!(writes, [], "what is as it should be is left alone");
    assert_eq!(world.member("m1").await?.pods(NS).await?, pods);
    world.until_rolled_out("web", 3).await?;
    Ok(())
}

/// A cold start, with a member that answers: what a session has not seen yet is not absent (X1).
#[tokio::test(flavor = "multi_thread")]
async fn d01_a_cold_start_deletes_nothing() -> Result<()> {
    let mut world = World::start(&["m1", "m2"]).await?;
    running_in_m1(&world).await?;
    world.barrier(NS, 0, &["m1"]).await?;
    let mark = world.there.mark();
    for round in 1..4 {
        world.restart_hub(true).await?;
        world.until_ready("m1").await?;
        world.barrier(NS, round, &["m1"]).await?;
    }
    let mut deeds = world.deeds("m1", mark)?;
    deeds.retain(|deed| !deed.name.starts_with("barrier-"));
    // The session's own account is looked after by whoever joins; copies and their pods are left alone.
    assert_eq!(deeds, []);
    Ok(())
}

/// The member refuses to be read for a while: that is no list without items.
#[tokio::test(flavor = "multi_thread")]
async fn x1_a_list_that_fails_is_no_empty_list() -> Result<()> {
    let mut world = World::start(&["m1"]).await?;
    running_in_m1(&world).await?;
    world.barrier(NS, 0, &["m1"]).await?;
    let member = world.member("m1").await?;
    let binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/hanse:session";
    let kept = member.get(binding).await?;
    let mark = world.there.mark();
    member.client.delete(binding).await?;
    until_lost(&world, "m1").await?;
    world.restart_hub(true).await?;
    until_lost(&world, "m1").await?;
    let mut again = kept.clone();
    again["metadata"] = json!({"name": kept["metadata"]["name"], "labels": kept["metadata"]["labels"]});
    member.create(&again).await?;
    world.until_ready("m1").await?;
    world.barrier(NS, 1, &["m1"]).await?;
    let mut deeds = ends(&world, "m1", mark)?;
    deeds.retain(|deed| deed.resource != "clusterrolebindings");
    assert_eq!(deeds, []);
    Ok(())
}

fn copy_directory(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_directory(&entry.path(), &target)?,
            false => std::fs::copy(entry.path(), target).map(drop)?,
        }
    }
    Ok(())
}

async fn open(directory: &Path) -> Result<Arc<EmbeddedStore>> {
    let mut patience = 0;
    loop {
        match EmbeddedStore::open(&Env::real(), directory, Options::default()) {
            Ok(store) => return Ok(Arc::new(store)),
            // Who had it before lets go of it in a moment.
            Err(error) if patience > 500 => return Err(error.into()),
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
        }
        patience += 1;
    }
}

/// The hub comes back as it was before something was applied: what it does not remember goes on (D1).
#[tokio::test(flavor = "multi_thread")]
async fn x1_an_older_backup_of_the_hub_deletes_nothing() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (first, old) = (directory.path().join("first"), directory.path().join("old"));
    let store = open(&first).await?;
    let mut world = World::start_on(store, &["m1", "m2"]).await?;
    running_in_m1(&world).await?;
    copy_directory(&first, &old)?;
    world.apply(&app::deployment("later", 2)).await?;
    world.until_rolled_out("later", 2).await?;
    world.patch(&format!("{}/scale", deployment_path("web")), json!({"spec": {"replicas": 5}})).await?;
    world.until_rolled_out("web", 5).await?;
    world.barrier(NS, 0, &["m1"]).await?;
    let pods = world.member("m1").await?.pods(NS).await?;
    let mark = world.there.mark();

    let backup = open(&old).await?;
    world.restart_hub_on(backup, true).await?;
    world.until_ready("m1").await?;
    world.barrier(NS, 1, &["m1"]).await?;

    let member = world.member("m1").await?;
    let is_of_later = |deed: &Deed| deed.name.starts_with("later");
    let deeds: Vec<Deed> = ends(&world, "m1", mark)?.into_iter().filter(is_of_later).collect();
    assert_eq!(deeds, [], "what the hub does not know any more goes on");
    assert!(member.has(&deployment_path("later")).await?);
    // What it knows is as it says: three of five.
    world.until_rolled_out("web", 3).await?;
    let now = member.pods(NS).await?;
    assert!(now.is_subset(&pods), "nothing was restarted: {now:?}, {pods:?}");
    assert_eq!(now.len(), 5);

    // Applied again, it is what runs already.
    world.apply(&app::deployment("later", 2)).await?;
    world.until_rolled_out("later", 2).await?;
    assert_eq!(member.pods(NS).await?, now);
    Ok(())
}

/// The hub is away; members go on and heal themselves; when it is back nothing is restarted.
#[tokio::test(flavor = "multi_thread")]
async fn x6_members_go_on_without_the_hub() -> Result<()> {
    let mut world = World::start(&["m1"]).await?;
    running_in_m1(&world).await?;
    let member = world.member("m1").await?;
    // The hub is as good as away to its member when it cannot be reached.
    world.cut("m1")?;
    until_lost(&world, "m1").await?;
    let pods = member.items(&format!("{NAMESPACE}/pods")).await?;
    let victim = pods.iter().map(path_of_pod).next().unwrap_or_default();
    member.client.delete(&format!("{victim}?gracePeriodSeconds=0")).await?;
    let heals = |list: &Value| {
        let items = list["items"].as_array().into_iter().flatten();
        items.filter(|it| it["status"]["phase"] == "Running").count() == 3
    };
    member.until(&format!("{NAMESPACE}/pods"), "the member heals itself", heals).await?;
    member.until_gone(&victim).await?;
    world.clusters.settled().await?;
    let pods = member.pods(NS).await?;
    let mark = world.there.mark();
    world.restart_hub(true).await?;
    world.heal("m1")?;
    world.until_ready("m1").await?;
    world.barrier(NS, 1, &["m1"]).await?;
    assert_eq!(member.pods(NS).await?, pods);
    assert_eq!(ends(&world, "m1", mark)?, []);
    world.until_rolled_out("web", 3).await?;
    Ok(())
}

fn path_of_pod(pod: &Value) -> String {
    let mut pod = pod.clone();
    (pod["apiVersion"], pod["kind"]) = (json!("v1"), json!("Pod"));
    path(&pod)
}
