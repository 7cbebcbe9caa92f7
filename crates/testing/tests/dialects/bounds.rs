//! How long things take at most, with the settings that hubs are run with, on a clock that jumps.

use std::time::Duration;

use anyhow::Result;
use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    app::{self, NS},
    clock::Jumping,
    plain::job,
    scheduling::federation,
    words::{A, B, federated, named, plain},
    world::{condition, path},
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

#[tokio::test(start_paused = true)]
async fn scenario_10_a_part_that_fails_fails_the_whole_in_fifteen_seconds() -> Result<()> {
    let world = Jumping::start().await?;
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
    let mut world = Jumping::start().await?;
    for object in [&app::namespace(NS), &namespace(json!({"clusterSelector": {}})), &settings()] {
        world.create(object).await?;
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
    let world = Jumping::start().await?;
    for object in [&app::namespace(NS), &namespace(named(&[A])), &settings()] {
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
