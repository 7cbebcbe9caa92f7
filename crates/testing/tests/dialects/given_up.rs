//! A cluster that is lost with a part of a Job, and given up by its operator.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{
    app::NS,
    clusters::leave,
    plain::{counts, divided, job},
    words::{A, B, C},
    world::{CLUSTERS, Member, World, condition, path, text},
};

/// None of its pods ends by itself.
fn work() -> Value {
    job(2, 7, "1h")
}

fn succeeded(job: &Value) -> u64 {
    job["status"]["succeeded"].as_u64().unwrap_or(0)
}

fn is_complete(job: &Value) -> bool {
    condition(job, "Complete")["status"] == "True"
}

/// Has so many pods of it end there, one after the other.
async fn finish(member: &Member, count: usize) -> Result<()> {
    const ENDS: &str = "sim.hanse.io/exit-after";
    let pods = format!("/api/v1/namespaces/{NS}/pods");
    let runs = |it: &Value| it["status"]["phase"] == "Running" && it["metadata"]["annotations"][ENDS] != "0s";
    for _ in 0..count {
        let some = |list: &Value| list["items"].as_array().is_some_and(|it| it.iter().any(runs));
        let list = member.until(&pods, "a pod of it runs", some).await?;
        let pod = list["items"].as_array().and_then(|it| it.iter().find(|it| runs(it))).context("a pod")?;
        let pod = format!("{pods}/{}", text(pod, "/metadata/name"));
        let patched =
            member.client.merge_patch(&pod, &json!({"metadata": {"annotations": {ENDS: "0s"}}})).await?;
        ensure!(patched.code == 200, "{}", patched.text());
        // It may be gone already, with the copy that it was of.
        let has_ended = |it: &Value| it["status"]["phase"] == "Succeeded" || it["code"] == 404;
        member.until(&pod, "it has ended", has_ended).await?;
    }
    Ok(())
}

/// Two of the three completions of one cluster are done when it is lost; the name of the other is answered, and of it.
async fn lost_with_two_of_three(world: &World) -> Result<(&'static str, &'static str)> {
    world.apply(&work()).await?;
    let of_a = counts(&world.member(A).await?).await?;
    let of_b = counts(&world.member(B).await?).await?;
    let (stays, lost) = match (of_a, of_b) {
        ((1, 4), (1, 3)) => (A, B),
        ((1, 3), (1, 4)) => (B, A),
        other => anyhow::bail!("it is divided as {other:?}"),
    };
    finish(&world.member(lost).await?, 2).await?;
    world.until(&path(&work()), "two are done", |it| succeeded(it) == 2).await?;
    world.cut(lost)?;
    let is_lost = |it: &Value| condition(it, "Ready")["status"] != "True";
    world.until(&format!("{CLUSTERS}/{lost}"), "it is lost", is_lost).await?;
    Ok((stays, lost))
}

/// Completions cannot be changed where it has begun: the cluster that is left has a second copy of it when the first one is
/// done.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_10_what_a_lost_cluster_left_is_done_by_the_one_that_stays() -> Result<()> {
    let mut world = divided(&[A, B]).await?;
    let (stays, lost) = lost_with_two_of_three(&world).await?;
    leave(&world, lost, true).await?;

    let member = world.member(stays).await?;
    let first = text(&member.get(&path(&work())).await?, "/metadata/uid").to_owned();
    finish(&member, 4).await?;
    let is_next = |it: &Value| it["spec"]["completions"] == 1 && text(it, "/metadata/uid") != first;
    let next = member.until(&path(&work()), "it has another copy", is_next).await?;
    assert_eq!(succeeded(&next), 0);
    let six = world.until(&path(&work()), "six are done", |it| succeeded(it) == 6).await?;
    assert!(!is_complete(&six), "{six}");

    // A hub that is started anew counts the same.
    world.restart_hub(true).await?;
    world.until_ready(stays).await?;
    world.barrier(NS, 0, &[stays]).await?;
    let six = world.get(&path(&work())).await?;
    assert_eq!((succeeded(&six), is_complete(&six)), (6, false));
    assert_eq!(member.get(&path(&work())).await?["metadata"]["uid"], next["metadata"]["uid"]);

    finish(&member, 1).await?;
    let whole = world.until(&path(&work()), "it is complete", is_complete).await?;
    assert_eq!(succeeded(&whole), 7);
    world.barrier(NS, 1, &[stays]).await?;
    let uid = member.get(&path(&work())).await?["metadata"]["uid"].clone();
    assert_eq!(uid, next["metadata"]["uid"], "nothing is done once more");
    Ok(())
}

/// Where a cluster has nothing of it yet, that one does what was left.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_10_what_a_lost_cluster_left_is_done_by_a_new_one() -> Result<()> {
    let world = divided(&[A, B]).await?;
    let (stays, lost) = lost_with_two_of_three(&world).await?;
    world.clusters.simulation.add(C, sim::ClusterOptions::default()).await?;
    world.join(C).await?;
    leave(&world, lost, true).await?;

    let (old, new) = (world.member(stays).await?, world.member(C).await?);
    assert_eq!(counts(&new).await?, (1, 1));
    assert_eq!(counts(&old).await?, (1, 4));
    finish(&old, 4).await?;
    let six = world.until(&path(&work()), "six are done", |it| succeeded(it) == 6).await?;
    assert!(!is_complete(&six), "{six}");
    finish(&new, 1).await?;
    let whole = world.until(&path(&work()), "it is complete", is_complete).await?;
    assert_eq!(succeeded(&whole), 7);
    Ok(())
}
