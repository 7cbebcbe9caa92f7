//! A cluster whose nodes are full: what it has no room for runs elsewhere, and comes back when it has.

use std::{collections::HashSet, sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sim::{ClusterOptions, NodeShape};
use store::{EventChange, Feed, FeedItem};
use tokio::time::Instant;

use crate::{
    app::{self, NS},
    jumping::{Jumping, ask},
    scheduling::{federation, until_divided},
    words::{A, B, C},
    world::{CLUSTERS, World, assignment_path, is_rolled_out, path, shares, text},
};

/// How many pods ran at once at most, by the members' own records.
struct Peak {
    feed: Mutex<Feed>,
    running: Mutex<(HashSet<String>, usize)>,
}

impl Peak {
    fn begin(members: &sim::Simulation) -> Arc<Peak> {
        Arc::new(Peak { feed: Mutex::new(members.hub().store.feed()), running: Mutex::default() })
    }

    fn most(&self) -> Result<usize> {
        let (mut feed, mut running) = (self.feed.lock(), self.running.lock());
        let (running, most) = &mut *running;
        while let Some(item) = feed.try_next() {
            let event = match item {
                FeedItem::Event(event) => event,
                FeedItem::WorkspaceRemoved(_) => continue,
                FeedItem::Lagged => anyhow::bail!("there is a gap, which proves nothing"),
            };
            if event.key.collection.parts() != ("", "pods") || event.key.item.namespace() != NS {
                continue;
            }
            let object = event.object();
            let is_there = !matches!(event.change, EventChange::Removed(_)) && !object.head.deleting;
            let status = object.tree()?.remove("status").unwrap_or_default();
            match is_there && status["phase"] == "Running" {
                true => drop(running.insert(object.head.uid.to_string())),
                false => drop(running.remove(object.head.uid.as_str())),
            }
            *most = (*most).max(running.len());
        }
        Ok(*most)
    }
}

/// Each of these needs most of a node.
fn web() -> Value {
    let mut web = app::deployment("web", 50);
    web["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "600m"}});
    web
}

async fn cordon(world: &Jumping, nodes: usize, cordoned: bool) -> Result<()> {
    let list = world.ask_member(C, Method::GET, "/api/v1/nodes", None).await?;
    for node in list["items"].as_array().into_iter().flatten().take(nodes) {
        let path = format!("/api/v1/nodes/{}", text(node, "/metadata/name"));
        let patch = json!({"spec": {"unschedulable": cordoned}});
        let done = world.ask_member(C, Method::PATCH, &path, Some(&patch)).await?;
        ensure!(done["metadata"]["uid"].is_string(), "{done}");
    }
    let seen = |it: &Value| it["status"]["nodes"]["unschedulable"] == if cordoned { nodes } else { 0 };
    world.until(&format!("{CLUSTERS}/{C}"), seen).await.map(drop)
}

fn overflow(assignment: &Value) -> u64 {
    let clusters = assignment["spec"]["clusters"].as_array().into_iter().flatten();
    clusters.filter_map(|it| it["overflow"].as_u64()).sum()
}

/// Evenly, whichever has one less, and nothing asked for beyond that.
fn is_even(assignment: &Value) -> bool {
    let mut counts: Vec<u64> = shares(assignment).into_iter().map(|(_, count)| count).collect();
    counts.sort_unstable();
    counts == [16, 17, 17] && overflow(assignment) == 0
}

/// Ten nodes take one of these each, though there would be room for sixteen by the sums: only the pods tell. Others run
/// them after they have waited for long; and the cluster is asked for them still, which is how it is noticed that it
/// can have them again. So many more may run for a moment then, and not one more.
#[tokio::test(start_paused = true)]
async fn scenario_07_overflow_and_return() -> Result<()> {
    const BEYOND: u64 = 7;
    let nodes = NodeShape { count: 20, cpu: "1".into(), ..NodeShape::default() };
    let small = ClusterOptions { nodes, ..ClusterOptions::default() };
    let members = vec![(A, ClusterOptions::default()), (B, ClusterOptions::default()), (C, small)];
    let world = Jumping::start_together(members).await?;
    for object in [&app::namespace(NS), &federation(true)] {
        world.create(object).await?;
    }
    let peak = Peak::begin(world.member(C)?);
    cordon(&world, 10, true).await?;

    world.create(&web()).await?;
    let place = assignment_path(&web());
    world.until(&place, is_even).await?;
    let began = Instant::now();
    let counts = |it: &Value| shares(it).into_iter().map(|(_, count)| count).collect::<Vec<u64>>();
    world.until(&place, |it| counts(it) == [20, 20, 10]).await?;
    let waited = began.elapsed();
    assert!((59..=75).contains(&waited.as_secs()), "{waited:?}");
    // What nodes and what pods say of the room comes at different times, and what was reserved for pods that found no
    // node is free again after a while: only then it is asked for more than it can hold.
    tokio::time::sleep(Duration::from_secs(120)).await;
    let asks_for_more = |it: &Value| counts(it) == [20, 20, 10] && (1..=BEYOND).contains(&overflow(it));
    let asks = world.until(&place, asks_for_more).await?;
    let copy = path(&web());
    let runs_ten =
        |it: &Value| it["spec"]["replicas"] == 10 + overflow(&asks) && it["status"]["readyReplicas"] == 10;
    world.until_there(C, &copy, runs_ten).await?;
    let all_run = |it: &Value| is_rolled_out(it, 50);
    world.until(&copy, all_run).await?;

    // A hub that is started anew finds it so, however long that lasts.
    let world = world.restarted().await?;
    world.until(&copy, all_run).await?;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(shares(&ask(&world.peer.hub, Method::GET, &place, None).await?), shares(&asks));
    world.until(&copy, all_run).await?;

    // Nobody edits anything.
    cordon(&world, 10, false).await?;
    let freed = Instant::now();
    world.until(&place, is_even).await?;
    world.until(&copy, all_run).await?;
    assert!(freed.elapsed() <= Duration::from_secs(120), "{:?}", freed.elapsed());
    let most = peak.most()?;
    assert!((50..=50 + BEYOND as usize).contains(&most), "{most} ran at once");
    Ok(())
}

/// What the hub itself knows to have no room is not asked for.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_07_a_bound_is_kept_to() -> Result<()> {
    let world = World::start(&[A, B, C]).await?;
    world.namespace(NS).await?;
    world.apply(&federation(true)).await?;
    let peak = Peak::begin(&world.clusters.simulation);
    let cluster = format!("{CLUSTERS}/{C}");
    world.patch(&cluster, json!({"spec": {"capacity": {"bounds": {"cpu": "100m"}}}})).await?;
    let mut object = app::deployment("web", 50);
    object["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "10m"}});
    world.apply(&object).await?;
    let assignment = until_divided(&world, &object, &[(A, 20), (B, 20), (C, 10)]).await?;
    assert_eq!(overflow(&assignment), 0);
    world.until_rolled_out("web", 50).await?;
    assert_eq!(peak.most()?, 50);

    world.patch(&cluster, json!({"spec": {"capacity": null}})).await?;
    let assignment = world.until(&assignment_path(&object), "it is divided evenly again", is_even).await?;
    assert_eq!(text(&assignment, "/spec/decision/policy"), "federation");
    world.until_rolled_out("web", 50).await.map(drop)
}
