//! Jobs and autoscalers, divided as federation v1 did and as it meant to.

use std::{cell::RefCell, ops::ControlFlow};

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    app::{self, NS},
    words::{A, B, C, federated, label_cluster, named, plain, start, until_told},
    world::{Member, World, condition, path},
};

fn federation() -> Value {
    json!({
        "apiVersion": "hanse.io/v1alpha1", "kind": "Placement", "metadata": {"name": "federation"},
        "spec": {
            "select": [{"kinds": ["Deployment", "Job", "HorizontalPodAutoscaler"]}],
            "strategy": "Divide",
            "divide": {"algorithm": "Federation", "rebalance": false},
        },
    })
}

pub async fn divided(members: &[&str]) -> Result<World> {
    let world = World::start(members).await?;
    world.namespace(NS).await?;
    world.apply(&federation()).await?;
    Ok(world)
}

pub fn job(parallelism: u64, completions: u64, ends_after: &str) -> Value {
    let mut job = app::job("work");
    job["spec"]["parallelism"] = json!(parallelism);
    job["spec"]["completions"] = json!(completions);
    job["spec"]["template"]["metadata"]["annotations"] = json!({"sim.hanse.io/exit-after": ends_after});
    job
}

pub async fn counts(member: &Member) -> Result<(u64, u64)> {
    let copy = member.until_there(&path(&job(1, 1, "1s"))).await?;
    let of = |field: &str| copy["spec"][field].as_u64().unwrap_or(0);
    Ok((of("parallelism"), of("completions")))
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_10_a_job_is_divided_and_complete_when_all_of_it_is() -> Result<()> {
    let world = divided(&[A, B]).await?;
    world.apply(&job(2, 7, "1s")).await?;
    let mut parts = vec![counts(&world.member(A).await?).await?, counts(&world.member(B).await?).await?];
    parts.sort_unstable();
    assert_eq!(parts, [(1, 3), (1, 4)]);
    let done = |it: &Value| condition(it, "Complete")["status"] == "True";
    let whole = world.until(&path(&job(2, 7, "1s")), "it is complete", done).await?;
    assert_eq!(whole["status"]["succeeded"], 7);
    for name in [A, B] {
        assert!(done(&world.member(name).await?.get(&path(&job(2, 7, "1s"))).await?), "{name}");
    }
    Ok(())
}

/// Federation left Jobs out.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_obeys_a_cluster_selector_too() -> Result<()> {
    let world = divided(&[A, B]).await?;
    label_cluster(&world, A, json!({"location": "europe"})).await?;
    label_cluster(&world, B, json!({"location": "usa"})).await?;
    let mut job = job(2, 7, "1s");
    let selector = r#"[{"key": "location", "operator": "in", "values": ["usa"]}]"#;
    job["metadata"]["annotations"]["federation.alpha.kubernetes.io/cluster-selector"] = json!(selector);
    world.apply(&job).await?;
    let done = |it: &Value| condition(it, "Complete")["status"] == "True";
    let whole = world.until(&path(&job), "it is complete", done).await?;
    assert_eq!(whole["status"]["succeeded"], 7);
    assert_eq!(counts(&world.member(B).await?).await?, (2, 7));
    assert!(!world.member(A).await?.has(&path(&job)).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_10_one_at_a_time_runs_in_one_cluster() -> Result<()> {
    let world = divided(&[A, B]).await?;
    world.apply(&job(1, 7, "0s")).await?;
    let done = |it: &Value| condition(it, "Complete")["status"] == "True";
    let whole = world.until(&path(&job(1, 7, "0s")), "it is complete", done).await?;
    assert_eq!(whole["status"]["succeeded"], 7);
    let mut there = 0;
    for name in [A, B] {
        there += usize::from(world.member(name).await?.has(&path(&job(1, 7, "0s"))).await?);
    }
    assert_eq!(there, 1);
    Ok(())
}

/// What fails in one cluster is failing: the others stop, and it has failed when no pod of it runs any more.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_10_a_part_that_fails_fails_the_whole() -> Result<()> {
    let world = divided(&[A, B]).await?;
    let mut object = job(2, 4, "1h");
    object["spec"]["backoffLimit"] = json!(0);
    object["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    world.apply(&object).await?;
    let a = world.member(A).await?;
    counts(&a).await?;
    counts(&world.member(B).await?).await?;
    // Its own cluster finds that it may not run any longer.
    a.client.merge_patch(&path(&object), &json!({"spec": {"activeDeadlineSeconds": 1}})).await?;
    let failed = |it: &Value| condition(it, "Failed")["status"] == "True";
    a.until(&path(&object), "it failed there", failed).await?;
    let whole = world.until(&path(&object), "it failed", failed).await?;
    assert_ne!(condition(&whole, "Complete")["status"], "True");
    assert_eq!(whole["status"]["active"].as_u64().unwrap_or(0), 0, "{whole}");
    // What is left of it stops, and runs no pod.
    let rest = world.member(B).await?.get(&path(&object)).await?;
    assert_eq!(rest["spec"]["suspend"], true, "{rest}");
    assert!(!a.get(&path(&object)).await?["spec"]["suspend"].as_bool().unwrap_or(false));
    Ok(())
}

/// Members need no hub to scale.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_11_members_scale_while_the_hub_is_away() -> Result<()> {
    let mut world = divided(&[A, B]).await?;
    world.apply(&app::deployment("web", 2)).await?;
    world.apply(&autoscaler(1, 10)).await?;
    until_bounds(&world, &[A, B], &[(1, 5), (1, 5)]).await?;
    let a = world.member(A).await?;
    world.cut(A)?;
    world.cut(B)?;
    world.restart_hub(true).await?;
    a.client.merge_patch(&path(&autoscaler(1, 10)), &json!({"spec": {"minReplicas": 4}})).await?;
    let web = path(&app::deployment("web", 2));
    a.until(&web, "it is scaled", |it| it["status"]["readyReplicas"].as_u64() >= Some(4)).await?;
    // With the hub, the bounds are its own again, and there are as many, wherever they are needed now.
    world.heal(A)?;
    world.heal(B)?;
    let b = world.member(B).await?;
    testing::hub::eventually("its bounds are the hub's", || async {
        let found = bounds(&a).await?.zip(bounds(&b).await?);
        Ok(found.filter(|((least, of_a), (_, of_b))| *least == 1 && of_a + of_b == 10).map(drop))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_10_joining_a_cluster_leaves_jobs_as_they_run() -> Result<()> {
    let world = divided(&[A, B]).await?;
    world.apply(&job(2, 7, "1h")).await?;
    let (a, b) = (world.member(A).await?, world.member(B).await?);
    let before = [counts(&a).await?, counts(&b).await?];
    world.clusters.simulation.add(C, sim::ClusterOptions::default()).await?;
    world.join(C).await?;
    world.barrier(NS, 0, &[A, B, C]).await?;
    assert_eq!([counts(&a).await?, counts(&b).await?], before);
    let third = world.member(C).await?.get(&path(&job(2, 7, "1h"))).await?;
    let runs_nothing = third["spec"]["parallelism"] == 0 || third["spec"]["completions"] == 0;
    assert!(third["code"] == 404 || runs_nothing, "{third}");
    Ok(())
}

pub fn autoscaler(min: u64, max: u64) -> Value {
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": NS},
        "spec": {
            "minReplicas": min, "maxReplicas": max,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}],
        },
    })
}

/// Also where a cluster-selector says in which clusters: what they may do together stays what was written.
#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaler_that_selects_clusters_is_divided_between_them() -> Result<()> {
    let world = divided(&[A, B, C]).await?;
    for (name, location) in [(A, "europe"), (B, "europe"), (C, "usa")] {
        label_cluster(&world, name, json!({"location": location})).await?;
    }
    let selector = json!({
        "federation.alpha.kubernetes.io/cluster-selector":
            r#"[{"key": "location", "operator": "in", "values": ["europe"]}]"#,
    });
    let mut web = app::deployment("web", 2);
    web["metadata"]["annotations"] = selector.clone();
    world.apply(&web).await?;
    let mut scaler = autoscaler(2, 10);
    scaler["metadata"]["annotations"] = selector;
    world.apply(&scaler).await?;
    until_bounds(&world, &[A, B], &[(1, 5), (1, 5)]).await?;
    assert!(!world.member(C).await?.has(&path(&scaler)).await?);
    Ok(())
}

async fn bounds(member: &Member) -> Result<Option<(u64, u64)>> {
    let copy = member.get(&path(&autoscaler(1, 1))).await?;
    let of = |field: &str| copy["spec"][field].as_u64();
    Ok(of("minReplicas").zip(of("maxReplicas")))
}

/// In a cluster whose pods have too much to do, and in one whose pods have nothing.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_11_bounds_go_where_they_are_needed() -> Result<()> {
    let world = divided(&[A, B]).await?;
    let mut web = app::deployment("web", 2);
    web["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    world.apply(&web).await?;
    world.apply(&autoscaler(1, 10)).await?;
    until_bounds(&world, &[A, B], &[(1, 5), (1, 5)]).await?;
    for (name, usage) in [(A, "100m"), (B, "1m")] {
        let usage = json!({"metadata": {"annotations": {"sim.hanse.io/usage-cpu": usage}}});
        world.member(name).await?.client.merge_patch(&path(&web), &usage).await?;
    }
    // One after the other, and never more than there are.
    let (a, b) = (world.member(A).await?, world.member(B).await?);
    let seen = RefCell::new(Vec::new());
    let ask = || async {
        let found = bounds(&a).await?.zip(bounds(&b).await?);
        let Some(((1, of_a), (1, of_b))) = found else { anyhow::bail!("{found:?}") };
        if seen.borrow().last() != Some(&of_a) {
            seen.borrow_mut().push(of_a);
        }
        let assigned = world.assignment(&autoscaler(1, 10)).await?;
        let targets = assigned["spec"]["clusters"].as_array().into_iter().flatten();
        let sum: u64 = targets.filter_map(|it| it["max"].as_u64()).sum();
        assert_eq!(sum, 10, "{assigned}");
        Ok(match (of_a, of_b) {
            (7.., ..=3) => ControlFlow::Break(()),
            (of_a, of_b) => ControlFlow::Continue((of_a, of_b)),
        })
    };
    testing::patience::while_it_moves("it has what it needs", ask).await?;
    assert_eq!(seen.take().get(..3), Some([5, 6, 7].as_slice()));
    Ok(())
}

async fn until_bounds(world: &World, names: &[&str], wanted: &[(u64, u64)]) -> Result<()> {
    testing::hub::eventually(&format!("its bounds are {wanted:?}"), || async {
        let mut found = Vec::new();
        for name in names {
            found.extend(bounds(&world.member(name).await?).await?);
        }
        found.sort_unstable();
        Ok((found == wanted).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_11_an_autoscaler_is_divided_and_never_invalid() -> Result<()> {
    let world = divided(&[A, B, C]).await?;
    world.apply(&app::deployment("web", 3)).await?;
    world.apply(&autoscaler(1, 12)).await?;
    until_bounds(&world, &[A, B, C], &[(1, 4), (1, 4), (1, 4)]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_11_two_between_three_leave_one_without() -> Result<()> {
    let world = divided(&[A, B, C]).await?;
    world.apply(&app::deployment("web", 3)).await?;
    world.apply(&autoscaler(1, 2)).await?;
    until_bounds(&world, &[A, B, C], &[(1, 1), (1, 1)]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_11_one_cluster_with_one_choice_keeps_the_hub_responsive() -> Result<()> {
    let world = divided(&[A]).await?;
    world.apply(&app::deployment("web", 2)).await?;
    world.apply(&autoscaler(2, 2)).await?;
    until_bounds(&world, &[A], &[(2, 2)]).await?;
    world.apply(&app::deployment("other", 1)).await?;
    world.until_rolled_out("other", 1).await.map(drop)
}

/// As in KubeFed: each cluster has the template's Job, whole.
#[tokio::test(flavor = "multi_thread")]
async fn a_federated_job_is_in_each_cluster_as_its_template_says() -> Result<()> {
    let world = start(&[A, B]).await?;
    let template = json!({"spec": job(1, 2, "0s")["spec"]});
    let whole = federated("Job", "work", json!({"template": template, "placement": named(&[A, B])}));
    world.apply(&whole).await?;
    until_told(&world, &whole, &[(A, ""), (B, "")], "True").await?;
    for name in [A, B] {
        assert_eq!(counts(&world.member(name).await?).await?, (1, 2));
    }
    let done = |it: &Value| condition(it, "Complete")["status"] == "True";
    world.until(&path(&plain(&whole)), "both are complete", done).await.map(drop)
}
