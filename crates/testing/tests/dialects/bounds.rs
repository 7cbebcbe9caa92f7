//! How long things take at most, with the settings that hubs are run with, on a clock that jumps.

use std::time::Duration;

use anyhow::{Context, Result};
use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    app::{self, NS},
    jumping::{HUB, Jumping, ask},
    plain::{autoscaler, job},
    scheduling::federation,
    words::{A, B, federated, named, plain, template},
    world::{CLUSTERS, assignment_path, condition, path},
};

fn settings() -> Value {
    federated(
        "ConfigMap",
        "settings",
        json!({"template": {"data": {"key": "value"}}, "placement": named(&[A, B])}),
    )
}

fn namespace(placement: Value) -> Value {
    federated("Namespace", NS, json!({"placement": placement}))
}

/// In a namespace that is in all clusters.
fn everywhere(object: &Value) -> [Value; 4] {
    [federation(true), app::namespace(NS), namespace(json!({"clusterSelector": {}})), object.clone()]
}

fn web() -> Value {
    federated("Deployment", "web", json!({"template": template(2), "placement": named(&[A, B])}))
}

fn is_propagated(object: &Value) -> bool {
    condition(object, "Propagation")["status"] == "True"
        && object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

#[tokio::test(start_paused = true)]
async fn scenario_10_a_part_that_fails_fails_the_whole_in_fifteen_seconds() -> Result<()> {
    let world = Jumping::start(&[A, B]).await?;
    let mut work = job(2, 4, "1h");
    work["spec"]["backoffLimit"] = json!(0);
    work["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    for object in [&app::namespace(NS), &federation(true), &work] {
        world.create(object).await?;
    }
    for name in [A, B] {
        world.until_there(name, &path(&work), |it| it["status"]["active"] == 1).await?;
    }
    let overdue = json!({"spec": {"activeDeadlineSeconds": 1}});
    world.ask_member(A, Method::PATCH, &path(&work), Some(&overdue)).await?;
    let failed = |it: &Value| condition(it, "Failed")["status"] == "True";
    world.until_there(A, &path(&work), failed).await?;
    let since = Instant::now();
    world.until(&path(&work), failed).await?;
    assert!(since.elapsed() <= Duration::from_secs(15), "{:?}", since.elapsed());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn scenario_12_drift_is_repaired_in_fifteen_seconds() -> Result<()> {
    let mut world = Jumping::start(&[A, B]).await?;
    for object in everywhere(&settings()) {
        world.create(&object).await?;
    }
    world.until(&path(&settings()), |it| condition(it, "Propagation")["status"] == "True").await?;
    let copy = path(&plain(&settings()));
    for restarts in [false, true] {
        if restarts {
            world = world.restarted().await?;
        }
        for (method, body) in
            [(Method::PATCH, Some(json!({"data": {"key": "other"}}))), (Method::DELETE, None)]
        {
            let done = world.ask_member(A, method, &copy, body.as_ref()).await?;
            assert!(done["code"].is_null(), "{done}");
            let since = Instant::now();
            world.until_there(A, &copy, |it| it["data"]["key"] == "value").await?;
            assert!(since.elapsed() <= Duration::from_secs(15), "{:?}", since.elapsed());
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn scenario_14_what_a_namespace_allows_is_there_in_ten_seconds() -> Result<()> {
    let world = Jumping::start(&[A, B]).await?;
    for object in [&federation(true), &app::namespace(NS), &namespace(named(&[A])), &settings()] {
        world.create(object).await?;
    }
    world.until(&path(&settings()), |it| condition(it, "Propagation")["status"] == "True").await?;
    let copy = path(&plain(&settings()));
    assert_eq!(world.ask_member(B, Method::GET, &copy, None).await?["code"], 404);
    world.patch(&path(&namespace(json!({}))), &json!({"spec": {"placement": named(&[A, B])}})).await?;
    let since = Instant::now();
    world.until_there(B, &copy, |it| it["data"]["key"] == "value").await?;
    assert!(since.elapsed() <= Duration::from_secs(10), "{:?}", since.elapsed());
    Ok(())
}

/// What is new has come to the clusters, which is an update; that all is well has not changed.
#[tokio::test(start_paused = true)]
async fn an_update_of_copies_is_told_with_its_time() -> Result<()> {
    let world = Jumping::start(&[A, B]).await?;
    for object in everywhere(&web()) {
        world.create(&object).await?;
    }
    let times = |it: &Value| {
        let told = condition(it, "Propagation");
        (told["lastUpdateTime"].to_string(), told["lastTransitionTime"].to_string())
    };
    let first = times(&world.until(&path(&web()), is_propagated).await?);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(times(&world.until(&path(&web()), is_propagated).await?), first, "nothing is new");

    world.patch(&path(&web()), &json!({"spec": {"template": {"spec": {"replicas": 3}}}})).await?;
    let next = times(&world.until(&path(&web()), is_propagated).await?);
    for name in [A, B] {
        let copy = world.ask_member(name, Method::GET, &path(&plain(&web())), None).await?;
        assert_eq!(copy["spec"]["replicas"], 3, "{name}");
    }
    assert!(next.0 > first.0, "{next:?}, {first:?}");
    assert_eq!(next.1, first.1);
    Ok(())
}

/// Not before, and soon after; a hub that is started anew meanwhile waits for what is left of it.
#[tokio::test(start_paused = true)]
async fn scenario_16_a_cluster_that_does_not_answer_is_waited_for_a_minute() -> Result<()> {
    let world = Jumping::start(&[A, B]).await?;
    for object in everywhere(&web()) {
        world.create(&object).await?;
    }
    world.until(&path(&web()), is_propagated).await?;
    world.net.partition(HUB, B);
    world.until(&format!("{CLUSTERS}/{B}"), |it| condition(it, "Ready")["status"] != "True").await?;

    ask(&world.peer.hub, Method::DELETE, &path(&web()), None).await?;
    let since = Instant::now();
    let copy = path(&plain(&web()));
    world.until_there(A, &copy, |it| it["code"] == 404).await?;
    tokio::time::sleep(Duration::from_secs(30).saturating_sub(since.elapsed())).await;
    let world = world.restarted_with(&[A]).await?;
    tokio::time::sleep(Duration::from_secs(55).saturating_sub(since.elapsed())).await;
    assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
    let waits = ask(&world.peer.hub, Method::GET, &path(&web()), None).await?;
    assert!(waits["metadata"]["deletionTimestamp"].is_string(), "{waits}");
    world.until(&path(&web()), |it| it["code"] == 404).await?;
    let waited = since.elapsed().as_secs();
    assert!((59..=90).contains(&waited), "{waited}");

    // It has not heard of that, and its copy goes when it does.
    let left = world.ask_member(B, Method::GET, &copy, None).await?;
    assert!(left["metadata"]["uid"].is_string(), "{left}");
    world.net.heal(HUB, B);
    world.until_there(B, &copy, |it| it["code"] == 404).await.map(drop)
}

/// One unit in two minutes, and never more in all than there are.
#[tokio::test(start_paused = true)]
async fn scenario_11_one_unit_moves_in_each_window() -> Result<()> {
    const WINDOW: u64 = 120;
    let world = Jumping::start(&[A, B]).await?;
    let mut web = app::deployment("web", 2);
    web["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    let scaler = autoscaler(1, 10);
    for object in [&federation(true), &app::namespace(NS), &web, &scaler] {
        world.create(object).await?;
    }
    for name in [A, B] {
        world.until_there(name, &path(&scaler), |it| it["spec"]["maxReplicas"] == 5).await?;
    }
    for (name, usage) in [(A, "100m"), (B, "1m")] {
        let usage = json!({"metadata": {"annotations": {"sim.hanse.io/usage-cpu": usage}}});
        world.until_there(name, &path(&web), |it| it["metadata"]["uid"].is_string()).await?;
        world.ask_member(name, Method::PATCH, &path(&web), Some(&usage)).await?;
    }
    let most = async |name: &str| -> Result<u64> {
        let copy = world.ask_member(name, Method::GET, &path(&scaler), None).await?;
        assert_eq!(copy["spec"]["minReplicas"], 1, "{copy}");
        copy["spec"]["maxReplicas"].as_u64().context("no maximum")
    };
    // What A may have at most, and since when.
    let (mut moves, began, mut was_short) = (vec![(5, 0)], Instant::now(), false);
    while moves.len() < 3 && began.elapsed().as_secs() < 10 * WINDOW {
        let (of_a, of_b) = (most(A).await?, most(B).await?);
        let assigned = ask(&world.peer.hub, Method::GET, &assignment_path(&scaler), None).await?;
        let targets = assigned["spec"]["clusters"].as_array().into_iter().flatten();
        assert_eq!(targets.filter_map(|it| it["max"].as_u64()).sum::<u64>(), 10, "{assigned}");
        // One cluster may have heard of it and the other not yet, and that is over at the next look.
        let is_short = of_a + of_b < 10;
        assert!(of_a + of_b <= 10 && !(was_short && is_short), "{of_a} and {of_b}");
        was_short = is_short;
        if moves.last().is_some_and(|(last, _)| *last != of_a) {
            moves.push((of_a, began.elapsed().as_secs()));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let maxima: Vec<u64> = moves.iter().map(|(most, _)| *most).collect();
    assert_eq!(maxima, [5, 6, 7]);
    assert!(moves[2].1 - moves[1].1 >= WINDOW - 2, "{moves:?}");
    Ok(())
}
