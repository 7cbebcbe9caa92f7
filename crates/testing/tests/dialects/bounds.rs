//! How long things take at most, and how autoscalers share what they may do while hubs go and come back, with the settings
//! that hubs are run with, on a clock that jumps.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    app::{self, NS},
    jumping::{HUB, Jumping, ask},
    plain::{autoscaler, job},
    scheduling::federation,
    words::{A, B, C, federated, named, plain, template},
    world::{CLUSTERS, assignment_path, condition, path, text},
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

/// Kinds that have no generation to tell by, and what differs in one cluster only: nothing is said to have come to a cluster
/// that has not heard of it.
#[tokio::test(start_paused = true)]
async fn an_edit_is_not_observed_before_it_has_come_to_all_clusters() -> Result<()> {
    let world = Jumping::start(&[A, B]).await?;
    let mut set = app::stateful_set("set", 1);
    let set = json!({"template": {"spec": set["spec"].take()}, "placement": named(&[A, B])});
    let set = federated("StatefulSet", "set", set);
    for object in everywhere(&settings()).iter().chain([&set]) {
        world.create(object).await?;
    }
    for object in [&settings(), &set] {
        world.until(&path(object), is_propagated).await?;
    }
    for value in ["first", "second"] {
        world.net.partition(HUB, B);
        let edited = json!({"spec": {"template": {"data": {"key": value}}}});
        world.patch(&path(&settings()), &edited).await?;
        let annotated = json!([{"clusterName": B, "clusterOverrides": [
            {"op": "add", "path": "/metadata/annotations", "value": {"said": value}},
        ]}]);
        world.patch(&path(&set), &json!({"spec": {"overrides": annotated}})).await?;
        let has_it = |it: &Value| it["data"]["key"] == value;
        world.until_there(A, &path(&plain(&settings())), has_it).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        for object in [&settings(), &set] {
            let told = ask(&world.peer.hub, Method::GET, &path(object), None).await?;
            let clusters = &told["status"]["clusters"];
            let is_lost = clusters.to_string().contains("ClusterNotReady");
            assert!(
                is_lost || told["status"]["observedGeneration"] != told["metadata"]["generation"],
                "{told}"
            );
        }
        world.net.heal(HUB, B);
        world.until(&path(&settings()), is_propagated).await?;
        let copy = world.ask_member(B, Method::GET, &path(&plain(&settings())), None).await?;
        assert_eq!(copy["data"]["key"], value);
        world.until(&path(&set), is_propagated).await?;
        let copy = world.ask_member(B, Method::GET, &path(&plain(&set)), None).await?;
        assert_eq!(copy["metadata"]["annotations"]["said"], value);
    }
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

/// Something whose use of cpu can be measured.
fn measured() -> Value {
    let mut web = app::deployment("web", 2);
    web["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    web
}

/// That each of its pods uses so much.
fn usage(amount: &str) -> Value {
    json!({"metadata": {"annotations": {"sim.hanse.io/usage-cpu": amount}}})
}

async fn use_cpu(world: &Jumping, name: &str, amount: &str) -> Result<()> {
    let web = path(&measured());
    world.until_there(name, &web, |it| it["metadata"]["uid"].is_string()).await?;
    let done = world.ask_member(name, Method::PATCH, &web, Some(&usage(amount))).await?;
    ensure!(done["metadata"]["uid"].is_string(), "{done}");
    Ok(())
}

/// The autoscaler of each cluster that has one, in the order in which they joined.
async fn autoscalers(world: &Jumping) -> Result<Vec<(&'static str, Value)>> {
    let mut found = Vec::new();
    for (name, _) in &world.members {
        let copy = world.ask_member(name, Method::GET, &path(&autoscaler(1, 1)), None).await?;
        if copy["metadata"]["uid"].is_string() {
            found.push((*name, copy));
        }
    }
    Ok(found)
}

/// The least and the most of each.
fn bounds(copies: &[(&'static str, Value)]) -> Vec<(u64, u64)> {
    let of = |copy: &Value, field: &str| copy["spec"][field].as_u64().unwrap_or(0);
    copies.iter().map(|(_, copy)| (of(copy, "minReplicas"), of(copy, "maxReplicas"))).collect()
}

/// Which copies there are, and what they say.
fn identities(copies: &[(&'static str, Value)]) -> Vec<(&'static str, Value, Value)> {
    let uid = |copy: &Value| copy["metadata"]["uid"].clone();
    copies.iter().map(|(name, copy)| (*name, uid(copy), copy["spec"].clone())).collect()
}

async fn until_bounded(
    world: &Jumping,
    holds: impl Fn(&[(u64, u64)]) -> bool,
) -> Result<Vec<(&'static str, Value)>> {
    let mut copies = Vec::new();
    for _ in 0..120 {
        copies = autoscalers(world).await?;
        if holds(&bounds(&copies)) {
            return Ok(copies);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    bail!("their bounds stay {:?}", bounds(&copies))
}

/// When it scaled last, in seconds since 1970.
fn scaled_at(copy: &Value) -> Option<i64> {
    let time: jiff::Timestamp = text(copy, "/status/lastScaleTime").parse().ok()?;
    Some(time.as_second())
}

/// One unit in two minutes, and never more in all than there are. Whoever needs more gets it when its own window is over:
/// not before, and soon after, though the hub is started anew in the middle of each.
#[tokio::test(start_paused = true)]
async fn scenario_11_one_unit_moves_in_each_window() -> Result<()> {
    const WINDOW: i64 = 120;
    const SOON: i64 = 15;
    let mut world = Jumping::start(&[A, B]).await?;
    let scaler = autoscaler(1, 10);
    for object in [&federation(true), &app::namespace(NS), &measured(), &scaler] {
        world.create(object).await?;
    }
    until_bounded(&world, |found| found == [(1, 5), (1, 5)]).await?;
    use_cpu(&world, A, "100m").await?;
    use_cpu(&world, B, "1m").await?;

    // What both may have at most, and how long before that A had scaled.
    let (mut moves, mut last) = (vec![((5, 5), 0)], None);
    let (mut restarts, mut was_short) = (0, false);
    let began = Instant::now();
    while moves.len() < 3 && began.elapsed() < Duration::from_secs(1200) {
        let copies = autoscalers(&world).await?;
        let found = bounds(&copies);
        let [(1, of_a), (1, of_b)] = found[..] else { bail!("{found:?}") };
        let assigned = ask(&world.peer.hub, Method::GET, &assignment_path(&scaler), None).await?;
        let targets = assigned["spec"]["clusters"].as_array().into_iter().flatten();
        assert_eq!(targets.filter_map(|it| it["max"].as_u64()).sum::<u64>(), 10, "{assigned}");
        // One cluster may have heard of it and the other not yet, and that is over at the next look.
        let is_short = of_a + of_b < 10;
        assert!(of_a + of_b <= 10 && !(was_short && is_short), "{of_a} and {of_b}");
        was_short = is_short;

        let now = world.peer.hub.now().as_second();
        let waited = last.map_or(0, |last: i64| now - last);
        if moves.last().is_some_and(|((most, _), _)| *most != of_a) {
            moves.push(((of_a, of_b), waited));
        }
        last = scaled_at(&copies[0].1);
        let is_midway = (WINDOW / 2..WINDOW / 2 + 5).contains(&waited);
        if is_midway && restarts < moves.len() {
            world = world.restarted().await?;
            restarts += 1;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let maxima: Vec<(u64, u64)> = moves.iter().map(|(most, _)| *most).collect();
    assert_eq!(maxima, [(5, 5), (6, 4), (7, 3)]);
    assert!(moves[1..].iter().all(|(_, waited)| (WINDOW..=WINDOW + SOON).contains(waited)), "{moves:?}");
    assert_eq!(restarts, 2, "{moves:?}");
    Ok(())
}

/// One to five each, two between three, which leave one without, and one cluster with one choice. A hub that is started
/// anew changes none of them, and goes on from there.
#[tokio::test(start_paused = true)]
async fn scenario_11_a_restart_changes_no_bounds() -> Result<()> {
    type Case = (&'static [&'static str], (u64, u64), &'static [(u64, u64)]);
    let cases: [Case; 3] = [
        (&[A, B], (1, 10), &[(1, 5), (1, 5)]),
        (&[A, B, C], (1, 2), &[(1, 1), (1, 1)]),
        (&[A], (2, 2), &[(2, 2)]),
    ];
    for (members, (min, max), wanted) in cases {
        let world = Jumping::start(members).await?;
        let scaler = autoscaler(min, max);
        for object in [&federation(true), &app::namespace(NS), &app::deployment("web", 3), &scaler] {
            world.create(object).await?;
        }
        let before = until_bounded(&world, |found| found == wanted).await?;

        let world = world.restarted().await?;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(identities(&autoscalers(&world).await?), identities(&before), "nothing is new");
        world.patch(&path(&scaler), &json!({"spec": {"maxReplicas": max + 1}})).await?;
        let is_one_more = |found: &[(u64, u64)]| {
            found.iter().all(|(least, most)| 1 <= *least && least <= most)
                && found.iter().map(|(_, most)| *most).sum::<u64>() == max + 1
        };
        until_bounded(&world, is_one_more).await?;
    }
    Ok(())
}

/// Members need no hub to scale: there is none when one of them has more to do, and none when it has scaled. The hub comes
/// back to that, and what is needed there is taken from where it is not.
#[tokio::test(start_paused = true)]
async fn scenario_11_members_scale_while_there_is_no_hub() -> Result<()> {
    const AWAY: Duration = Duration::from_secs(600);
    let world = Jumping::start(&[A, B]).await?;
    for object in [&federation(true), &app::namespace(NS), &measured(), &autoscaler(1, 10)] {
        world.create(object).await?;
    }
    until_bounded(&world, |found| found == [(1, 5), (1, 5)]).await?;
    use_cpu(&world, A, "1m").await?;
    use_cpu(&world, B, "1m").await?;

    let (_, member) = world.members.first().cloned().context("a member")?;
    let place = format!("/clusters/{A}{}", path(&measured()));
    let gets_busy = async {
        tokio::time::sleep(AWAY / 2).await;
        ask(member.hub(), Method::PATCH, &place, Some(&usage("100m"))).await
    };
    let (world, busy) = tokio::join!(world.restarted_after(AWAY), gets_busy);
    let (world, busy) = (world?, busy?);
    assert_eq!(busy["spec"]["replicas"], 1, "{busy}");
    let scaled = ask(member.hub(), Method::GET, &place, None).await?;
    let replicas = (&scaled["spec"]["replicas"], &scaled["status"]["readyReplicas"]);
    assert_eq!(replicas, (&json!(5), &json!(5)), "{scaled}");

    for name in [A, B] {
        world.until_ready(name).await?;
    }
    until_bounded(&world, |found| found == [(1, 6), (1, 4)]).await.map(drop)
}
