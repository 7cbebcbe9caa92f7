//! Jobs in the middle of which something happens: the hub goes and comes back, a cluster joins, or one is lost with a part
//! of it and given up by its operator.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{
    app::NS,
    clusters::leave,
    plain::{counts, divided, job},
    scheduling,
    words::{A, B, C, restart},
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

/// Which copy there is, and what it is to do; how far it is, is not among it.
async fn copy(member: &Member, work: &Value) -> Result<[Value; 3]> {
    let copy = member.get(&path(work)).await?;
    ensure!(copy["metadata"]["uid"].is_string(), "{copy}");
    let of = |field: &str| copy["metadata"][field].clone();
    Ok([of("uid"), of("generation"), copy["spec"].clone()])
}

/// Some of it is done in each cluster when the hub is started anew.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_10_a_divided_job_goes_on_after_a_restart() -> Result<()> {
    let mut world = divided(&[A, B]).await?;
    world.apply(&work()).await?;
    let (a, b) = (world.member(A).await?, world.member(B).await?);
    let (of_a, of_b) = (counts(&a).await?, counts(&b).await?);
    let mut parts = [of_a, of_b];
    parts.sort_unstable();
    assert_eq!(parts, [(1, 3), (1, 4)]);
    finish(&a, 1).await?;
    finish(&b, 1).await?;
    world.until(&path(&work()), "two are done", |it| succeeded(it) == 2).await?;
    let before = [copy(&a, &work()).await?, copy(&b, &work()).await?];

    restart(&mut world, &[A, B]).await?;
    world.barrier(NS, 0, &[A, B]).await?;
    assert_eq!([copy(&a, &work()).await?, copy(&b, &work()).await?], before);

    // One has done its part, which is not all of it.
    finish(&a, usize::try_from(of_a.1 - 1)?).await?;
    a.until(&path(&work()), "its part is done", is_complete).await?;
    let some = world.until(&path(&work()), "its part counts", |it| succeeded(it) == of_a.1 + 1).await?;
    assert!(!is_complete(&some), "{some}");
    finish(&b, usize::try_from(of_b.1 - 1)?).await?;
    let whole = world.until(&path(&work()), "it is complete", is_complete).await?;
    assert_eq!(succeeded(&whole), 7);
    for member in [&a, &b] {
        assert!(is_complete(&member.get(&path(&work())).await?));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_10_one_at_a_time_goes_on_where_it_is_after_a_restart() -> Result<()> {
    let mut world = divided(&[A, B]).await?;
    let single = job(1, 7, "1h");
    world.apply(&single).await?;
    world.until(&path(&single), "one of it runs", |it| it["status"]["active"] == 1).await?;
    let (a, b) = (world.member(A).await?, world.member(B).await?);
    let (here, elsewhere) = match (a.has(&path(&single)).await?, b.has(&path(&single)).await?) {
        (true, false) => (a, b),
        (false, true) => (b, a),
        other => anyhow::bail!("whether it is there: {other:?}"),
    };
    finish(&here, 3).await?;
    world.until(&path(&single), "three are done", |it| succeeded(it) == 3).await?;
    let before = copy(&here, &single).await?;

    restart(&mut world, &[A, B]).await?;
    world.barrier(NS, 0, &[A, B]).await?;
    assert_eq!(copy(&here, &single).await?, before);
    finish(&here, 4).await?;
    let whole = world.until(&path(&single), "it is complete", is_complete).await?;
    assert_eq!(succeeded(&whole), 7);
    assert!(!elsewhere.has(&path(&single)).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_10_neither_joining_nor_a_restart_changes_what_runs() -> Result<()> {
    for rebalance in [false, true] {
        let world = World::start(&[A, B]).await?;
        world.namespace(NS).await?;
        world.apply(&scheduling::federation(rebalance)).await?;
        runs_on_where_it_is(world).await?;
    }
    Ok(())
}

async fn runs_on_where_it_is(mut world: World) -> Result<()> {
    world.apply(&work()).await?;
    world.until(&path(&work()), "two of it run", |it| it["status"]["active"] == 2).await?;
    let (a, b) = (world.member(A).await?, world.member(B).await?);
    let before = [copy(&a, &work()).await?, copy(&b, &work()).await?];
    let pods = [a.pods(NS).await?, b.pods(NS).await?];
    assert_eq!(pods.each_ref().map(|it| it.len()), [1, 1]);

    world.clusters.simulation.add(C, sim::ClusterOptions::default()).await?;
    world.join(C).await?;
    for number in 0..2 {
        if number > 0 {
            restart(&mut world, &[A, B, C]).await?;
        }
        world.barrier(NS, number, &[A, B, C]).await?;
        assert_eq!([copy(&a, &work()).await?, copy(&b, &work()).await?], before);
        assert_eq!([a.pods(NS).await?, b.pods(NS).await?], pods);
        let third = world.member(C).await?.get(&path(&work())).await?;
        assert!(third["code"] == 404 || third["spec"]["parallelism"] == 0, "{third}");
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
    let mut world = divided(&[A, B]).await?;
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
    let before = [copy(&old, &work()).await?, copy(&new, &work()).await?];

    // A hub that is started anew counts the same, and has nothing begun once more.
    restart(&mut world, &[stays, C]).await?;
    world.barrier(NS, 0, &[stays, C]).await?;
    let six = world.get(&path(&work())).await?;
    assert_eq!((succeeded(&six), is_complete(&six)), (6, false));
    assert_eq!([copy(&old, &work()).await?, copy(&new, &work()).await?], before);

    finish(&new, 1).await?;
    let whole = world.until(&path(&work()), "it is complete", is_complete).await?;
    assert_eq!(succeeded(&whole), 7);
    Ok(())
}
