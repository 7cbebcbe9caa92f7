//! What became of an object is on record: Events for its user, and the audit log for whoever asks later (S1.2).

use std::path::Path;

use anyhow::{Context, Result};
use http::Method;
use serde_json::{Value, json};

use crate::{
    app::{self, NS},
    world::{World, assignment_path, deployment_path, items, text},
};

const NAMESPACE: &str = "/api/v1/namespaces/shop";

/// `reason: message` of what placement told of an object, in the order of its beginning.
async fn told(world: &World, name: &str) -> Result<Vec<String>> {
    let mut events = items(&world.client, "/api/v1/namespaces/shop/events").await?;
    events
        .retain(|it| it["involvedObject"]["name"] == name && it["source"]["component"] == "hanse-placement");
    // They are listed by name; revisions of a view are one sequence.
    events.sort_by_key(|it| text(it, "/metadata/resourceVersion").parse::<u64>().unwrap_or(0));
    Ok(events.iter().map(|it| format!("{}: {}", text(it, "/reason"), text(it, "/message"))).collect())
}

async fn until_told(world: &World, name: &str, expected: &str) -> Result<()> {
    let path = "/api/v1/namespaces/shop/events";
    let says = |it: &Value| format!("{}: {}", text(it, "/reason"), text(it, "/message")) == expected;
    let is_told = |list: &Value| {
        let events = list["items"].as_array().into_iter().flatten();
        events.into_iter().any(|it| it["involvedObject"]["name"] == name && says(it))
    };
    world.until(path, &format!("{name}: {expected}"), is_told).await.map(drop)
}

/// `verb transition` of what is recorded of an Assignment.
fn recorded(log: &Path, assignment: &str) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(log)?;
    let events = text.lines().map(|line| serde_json::from_str(line).context("a line that is no JSON"));
    let events: Vec<Value> = events.collect::<Result<_>>()?;
    let is_meant = |it: &&Value| {
        it["objectRef"]["resource"] == "assignments"
            && it["objectRef"]["name"] == assignment
            && it["user"]["username"] == "system:hanse:placement"
    };
    let words = |it: &Value| {
        let transition = it["annotations"]["hanse.io/transition"].as_str().unwrap_or_default();
        format!("{} {transition}", it["verb"].as_str().unwrap_or_default())
    };
    Ok(events.iter().filter(is_meant).map(words).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_2_every_transition_is_told_and_recorded() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let log = directory.path().join("audit.log");
    let world = World::start_audited(&["m1", "m2"], &log).await?;
    world.namespace(NS).await?;
    world.annotate(NAMESPACE, json!({"hanse.io/clusters": "m1"})).await?;
    let web = app::deployment("web", 3);
    world.apply(&web).await?;
    world.until_rolled_out("web", 3).await?;
    world.annotate(NAMESPACE, json!({"hanse.io/clusters": "m2"})).await?;
    until_told(&world, "web", "Drained: nothing of it is left in m1").await?;
    world.patch(&deployment_path("web"), json!({"spec": {"replicas": 2}})).await?;
    world.until_rolled_out("web", 2).await?;
    world.client.call(Method::DELETE, &deployment_path("web"), &[], "").await?;
    world.until_gone(&assignment_path(&web)).await?;
    let expected = [
        "Placed: on m1 (3)",
        "Moved: from m1 to m2 (3)",
        "Drained: nothing of it is left in m1",
        "Placed: on m2 (2)",
        "Removed: nothing of it is left in any cluster; last in m2",
    ];
    assert_eq!(told(&world, "web").await?, expected);
    world.hub.peer.hub.auditor.as_ref().context("it records")?.close().await;
    let recorded = recorded(&log, "deployments.apps.web")?;
    assert_eq!(recorded.first().map(String::as_str), Some("create Placed: on m1 (3)"));
    assert_eq!(recorded.last().map(|it| it.starts_with("delete Removed")), Some(true), "{recorded:?}");
    let of_transitions: Vec<&str> = recorded
        .iter()
        .filter_map(|it| it.split_once(' '))
        .map(|it| it.1)
        .filter(|it| !it.is_empty())
        .collect();
    assert_eq!(of_transitions, expected);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_told_again_is_counted() -> Result<()> {
    let world = World::start(&["m1", "m2"]).await?;
    world.namespace(NS).await?;
    world.annotate(NAMESPACE, json!({"hanse.io/clusters": "m1"})).await?;
    world.apply(&app::deployment("web", 1)).await?;
    world.until_rolled_out("web", 1).await?;
    for replicas in [2, 1, 2] {
        world.patch(&deployment_path("web"), json!({"spec": {"replicas": replicas}})).await?;
        world.until_rolled_out("web", replicas).await?;
    }
    assert_eq!(told(&world, "web").await?, ["Placed: on m1 (1)", "Placed: on m1 (2)"]);
    let events = items(&world.client, "/api/v1/namespaces/shop/events").await?;
    let placed: Vec<&Value> = events.iter().filter(|it| it["reason"] == "Placed").collect();
    assert!(placed.iter().all(|it| it["count"] == 2), "{placed:?}");
    Ok(())
}
