//! What takes minutes, and what counts probes, on a clock that jumps.

use std::time::Duration;

use anyhow::{Context, Result};
use http::Method;
use serde_json::{Value, json};

use crate::{
    app::NS,
    jumping::{HUB, Jumping, ask, until},
    words::{A, B, federated, named, plain},
    world::{condition, path},
};

/// One probe that fails is none; three in a row are, and the words of the failure are told.
#[tokio::test(start_paused = true)]
async fn scenario_02_readiness_changes_when_it_is_sure() -> Result<()> {
    const KUBEFED: &str = "kube-federation-system";
    let mut world = Jumping::alone().await?;
    for object in [&crate::app::namespace(KUBEFED), &crate::scheduling::federation(true)] {
        world.create(object).await?;
    }
    let began = tokio::time::Instant::now();
    world.join(&[A, B]).await?;
    let list = format!("/apis/core.kubefed.io/v1beta1/namespaces/{KUBEFED}/kubefedclusters");
    let place = format!("{list}/{B}");
    let ready = |it: &Value| {
        condition(it, "Ready")["status"] == "True" && it["status"]["kubernetesVersion"].is_string()
    };
    let since = |it: &Value| condition(it, "Ready")["lastTransitionTime"].as_str().map(str::to_owned);
    world.until(&format!("{list}/{A}"), ready).await?;
    let first = since(&world.until(&place, ready).await?);
    assert!(first.is_some() && began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());

    let (failed, _) = world.probes().await?;
    world.net.partition(HUB, B);
    world.until_probed(|now, _| now > failed).await?;
    world.net.heal(HUB, B);
    let (failed_once, good) = world.probes().await?;
    assert_eq!(failed_once, failed + 1);
    // Of both clusters: each is probed again and again.
    world.until_probed(|_, now| now >= good + 6).await?;
    assert_eq!(world.probes().await?.0, failed + 1);
    let still = ask(&world.peer.hub, Method::GET, &place, None).await?;
    assert!(ready(&still) && since(&still) == first, "{still}");

    world.net.partition(HUB, B);
    world.until_probed(|now, _| now >= failed + 4).await?;
    let lost = world.until(&place, |it| !ready(it)).await?;
    let told = condition(&lost, "Ready");
    assert_eq!((&told["status"], &told["reason"]), (&json!("False"), &json!("ClusterNotReachable")));
    assert!(!told["message"].as_str().unwrap_or_default().is_empty(), "{told}");

    // One good answer is enough. One that is lost is asked again sooner than KubeFed does, which is every ten seconds. The
    // other one has just been asked, and is cut off: so whose answer it is there can be no doubt.
    let (_, good) = world.probes().await?;
    let (_, asked) = world.until_probed(|_, now| now > good).await?;
    world.net.partition(HUB, A);
    world.net.heal(HUB, B);
    let healed = tokio::time::Instant::now();
    let (_, answered) = world.until_probed(|_, now| now > asked).await?;
    let back = world.until(&place, ready).await?;
    assert!(healed.elapsed() <= Duration::from_secs(10), "{:?}", healed.elapsed());
    assert_eq!((answered, world.probes().await?.1), (asked + 1, asked + 1));
    world.net.heal(HUB, A);
    let times = [first, since(&lost), since(&back)];
    assert!(times.is_sorted() && times[0] != times[1] && times[1] != times[2], "{times:?}");
    let (_, good) = world.probes().await?;
    world.until_probed(|_, now| now >= good + 6).await?;
    let still = ask(&world.peer.hub, Method::GET, &place, None).await?;
    assert_eq!(since(&still), times[2], "it has changed twice, and no more");
    Ok(())
}

/// All the time members are probed, heartbeats are written, and watches end and begin anew.
#[tokio::test(start_paused = true)]
async fn scenario_12_a_copy_that_nobody_touches_is_not_written_for_ten_minutes() -> Result<()> {
    let world = Jumping::start(&[A, B]).await?;
    let settings = federated(
        "ConfigMap",
        "settings",
        json!({"template": {"data": {"key": "value"}}, "placement": named(&[A, B])}),
    );
    let namespace = federated("Namespace", NS, json!({"placement": {"clusterSelector": {}}}));
    let divided = crate::scheduling::federation(true);
    for object in [&divided, &crate::app::namespace(NS), &namespace, &settings] {
        world.create(object).await?;
    }
    world.until(&path(&settings), |it| condition(it, "Propagation")["status"] == "True").await?;

    let copy = path(&plain(&settings));
    let mut before = Vec::new();
    for (name, simulation) in &world.members {
        let there = |it: &Value| it["data"]["key"] == "value";
        before.push(until(simulation.hub(), &format!("/clusters/{name}{copy}"), there).await?);
    }
    let first = before[0]["metadata"]["uid"].clone();
    let (_, probes) = world.probes().await?;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(world.probes().await?.1 >= probes + 100, "the hub was idle");
    for ((name, simulation), before) in world.members.iter().zip(before) {
        let after = ask(simulation.hub(), Method::GET, &format!("/clusters/{name}{copy}"), None).await?;
        assert_eq!(after["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"], "{name}");
        assert_eq!(after, before, "{name}");
    }

    // It was looked after all the time.
    let (name, simulation) = world.members.first().context("a member")?;
    let place = format!("/clusters/{name}{copy}");
    ask(simulation.hub(), Method::DELETE, &place, None).await?;
    let is_new = |it: &Value| it["data"]["key"] == "value" && it["metadata"]["uid"] != first;
    until(simulation.hub(), &place, is_new).await.map(drop)
}
