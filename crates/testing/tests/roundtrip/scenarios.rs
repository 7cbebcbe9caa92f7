//! Somebody applies something.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{
    app::{self, NS},
    history::Deed,
    world::{Member, World, condition, deployment_path, is_rolled_out, items, path, pods_path, shares, text},
};

#[tokio::test(flavor = "multi_thread")]
async fn scenario_01_first_apply_without_placement_objects() -> Result<()> {
    let world = World::start(&["m1", "m2"]).await?;
    world.namespace(NS).await?;
    world.apply_all(&app::web()).await?;

    let web = world.until_rolled_out("web", 3).await?;

    assert_eq!(web["status"]["observedGeneration"], web["metadata"]["generation"]);
    let pods = world.until(&pods_path(), "three pods run", |list| running(list) == 3).await?;
    let mut names: Vec<&str> = pods["items"].as_array().into_iter().flatten().map(name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 3, "{names:?}");
    let (m1, m2) = (world.member("m1").await?, world.member("m2").await?);
    let counts = [m1.pods(NS).await?.len(), m2.pods(NS).await?.len()];
    assert!(counts == [3, 0] || counts == [0, 3], "one of them runs all: {counts:?}");
    // What it needs is where it runs, and nothing of it is where it does not.
    let (runs, idles) = if counts == [3, 0] { (m1, m2) } else { (m2, m1) };
    for object in app::web() {
        runs.until_there(&path(&object)).await?;
        assert!(!idles.has(&path(&object)).await?, "{object}");
    }
    Ok(())
}

/// A hub without clusters is an API server like any other.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_for_placement_where_there_are_no_clusters() -> Result<()> {
    let world = World::start(&[]).await?;
    let mark = world.here.mark();
    world.namespace(NS).await?;
    testing::hub::outfitted(&world.client, "/api/v1/namespaces/shop").await?;
    world.apply_all(&app::everything()).await?;
    world.apply(&app::pod("bare")).await?;
    // Whatever is to be done because of that has begun when a namespace that comes later has what every one has.
    world.namespace("later").await?;
    testing::hub::outfitted(&world.client, "/api/v1/namespaces/later").await?;
    let deeds = world.here.since(mark);
    let by_others =
        |it: &&crate::history::Deed| it.resource == "assignments" || it.what != crate::history::What::Made;
    assert_eq!(deeds.iter().filter(by_others).collect::<Vec<_>>(), Vec::<&crate::history::Deed>::new());
    let events = items(&world.client, &format!("/api/v1/namespaces/{NS}/events")).await?;
    assert_eq!(events, Vec::<Value>::new());
    Ok(())
}

fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

fn running(list: &Value) -> usize {
    let items = list["items"].as_array().into_iter().flatten();
    items
        .filter(|pod| pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null())
        .count()
}

/// C95.4 too, but for the hour.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_02_applying_the_same_again_writes_nothing() -> Result<()> {
    let world = World::start(&["m1", "m2"]).await?;
    world.namespace(NS).await?;
    world.apply_all(&app::web()).await?;
    world.until_rolled_out("web", 3).await?;
    let home = home_of(&world, "web").await?;
    world.barrier(NS, 0, &["m1", "m2"]).await?;
    let (here, there) = (world.here.mark(), world.there.mark());
    let versions = versions(&world, &home).await?;

    for _ in 0..20 {
        world.apply_all(&app::web()).await?;
    }
    world.barrier(NS, 1, &["m1", "m2"]).await?;

    let of_barrier = |name: &str| name.contains("barrier-");
    let mut deeds = world.there.since(there);
    deeds.retain(|deed| !of_barrier(&deed.name));
    assert!(deeds.is_empty(), "in members: {deeds:?}");
    let mut deeds = world.here.since(here);
    // Members are heard of, the bookkeeping of the barrier is its own, and tokens of the first pods need an issuer some time.
    let of_others = |deed: &Deed| ["clusters", "_issuers"].contains(&&*deed.resource);
    deeds.retain(|deed| !of_barrier(&deed.name) && !of_others(deed));
    assert!(deeds.is_empty(), "in the hub: {deeds:?}");
    assert_eq!(self::versions(&world, &home).await?, versions);
    Ok(())
}

/// The resourceVersions of the Deployment, in the hub and in its member.
async fn versions(world: &World, member: &Member) -> Result<[Value; 2]> {
    let of = |object: Value| object["metadata"]["resourceVersion"].clone();
    Ok([of(world.get(&deployment_path("web")).await?), of(member.get(&deployment_path("web")).await?)])
}

/// The member that a Deployment is in.
async fn home_of(world: &World, name: &str) -> Result<Member> {
    let assignment = world.assignment(&app::deployment(name, 1)).await?;
    let shares = shares(&assignment);
    let [(cluster, _)] = shares.as_slice() else { anyhow::bail!("it is in several: {shares:?}") };
    world.member(cluster).await
}

/// A Placement that divides the namespace's Deployments two to one.
fn two_to_one() -> Value {
    json!({
        "apiVersion": "hanse.io/v1alpha1", "kind": "Placement", "metadata": {"name": "two-to-one"},
        "spec": {
            "select": [{"kinds": ["Deployment"], "namespaces": [NS]}],
            "clusters": {"names": ["m1", "m2"]},
            "strategy": "Divide",
            "divide": {"by": "Weight", "rebalance": true, "shares": [
                {"cluster": "m1", "weight": 2}, {"cluster": "m2", "weight": 1},
            ]},
        },
    })
}

async fn until_shares(world: &World, name: &str, expected: &[(&str, u64)]) -> Result<()> {
    let expected: Vec<(String, u64)> =
        expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    let path = crate::world::assignment_path(&app::deployment(name, 1));
    world.until(&path, &format!("its shares are {expected:?}"), |it| shares(it) == expected).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_06_spread_two_to_one_and_scale() -> Result<()> {
    let world = World::start(&["m1", "m2"]).await?;
    world.namespace(NS).await?;
    world.apply(&two_to_one()).await?;
    world.apply(&app::deployment("web", 3)).await?;
    world.until_rolled_out("web", 3).await?;
    until_shares(&world, "web", &[("m1", 2), ("m2", 1)]).await?;

    world.patch(&format!("{}/scale", deployment_path("web")), json!({"spec": {"replicas": 7}})).await?;

    let web = world.until_rolled_out("web", 7).await?;
    assert_eq!(web["status"]["readyReplicas"], 7);
    until_shares(&world, "web", &[("m1", 5), ("m2", 2)]).await?;
    let (m1, m2) = (world.member("m1").await?, world.member("m2").await?);
    for (member, share) in [(&m1, 5), (&m2, 2)] {
        let copy =
            member.until(&deployment_path("web"), "its share runs", |it| is_rolled_out(it, share)).await?;
        assert_eq!(copy["spec"]["replicas"], share);
    }
    // The same each time.
    for round in 0..10 {
        let name = format!("again-{round}");
        world.apply(&app::deployment(&name, 7)).await?;
        until_shares(&world, &name, &[("m1", 5), ("m2", 2)]).await?;
    }
    Ok(())
}

/// There is much to do in both clusters: each has more pods, and those that were there go on.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_06_load_changes_only_the_total() -> Result<()> {
    let world = World::start(&["m1", "m2"]).await?;
    world.namespace(NS).await?;
    world.apply(&two_to_one()).await?;
    let mut web = app::deployment("web", 3);
    web["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    world.apply(&web).await?;
    world.until_rolled_out("web", 3).await?;
    let (m1, m2) = (world.member("m1").await?, world.member("m2").await?);
    let before = [m1.pods(NS).await?, m2.pods(NS).await?];
    assert_eq!(before.each_ref().map(|it| it.len()), [2, 1]);

    world
        .apply(&json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "web", "namespace": NS},
            "spec": {
                "minReplicas": 2, "maxReplicas": 12,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "metrics": [{"type": "Resource", "resource": {
                    "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50},
                }}],
            },
        }))
        .await?;
    let busy = json!({"metadata": {"annotations": {"sim.hanse.io/usage-cpu": "100m"}}});
    for member in [&m1, &m2] {
        let patched = member.client.merge_patch(&deployment_path("web"), &busy).await?;
        anyhow::ensure!(patched.code == 200, "{}", patched.text());
    }

    let all = |it: &Value| it["status"]["readyReplicas"] == 12;
    world.until(&deployment_path("web"), "there are as many as there may be", all).await?;
    let after = [m1.pods(NS).await?, m2.pods(NS).await?];
    assert_eq!(after[0].len() + after[1].len(), 12);
    for (before, after) in before.iter().zip(&after) {
        assert!(before.is_subset(after) && after.len() > before.len(), "{before:?} {after:?}");
    }
    let assignment = world.assignment(&web).await?;
    let names: Vec<String> = shares(&assignment).into_iter().map(|it| it.0).collect();
    assert_eq!(names, ["m1", "m2"], "{assignment}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_06_one_annotation_spreads_a_namespace() -> Result<()> {
    let world = World::start(&["m1", "m2"]).await?;
    world.namespace(NS).await?;
    world.apply_all(&app::web()).await?;
    world.until_rolled_out("web", 3).await?;

    world.annotate(&format!("/api/v1/namespaces/{NS}"), json!({"hanse.io/clusters": "m1,m2"})).await?;
    world.patch(&format!("{}/scale", deployment_path("web")), json!({"spec": {"replicas": 8}})).await?;

    world.until_rolled_out("web", 8).await?;
    for member in ["m1", "m2"] {
        let member = world.member(member).await?;
        for object in app::web() {
            member.until_there(&path(&object)).await?;
        }
        let copy = member.until(&deployment_path("web"), "it runs", |it| is_rolled_out(it, 4)).await?;
        assert_eq!(copy["spec"]["replicas"], 4, "evenly");
    }
    assert_eq!(items(&world.client, &pods_path()).await?.len(), 8);
    Ok(())
}

/// The image cannot be had in one of two clusters.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_07_honest_status() -> Result<()> {
    let world = World::start(&["m1", "m2"]).await?;
    world.namespace(NS).await?;
    world.apply(&two_to_one()).await?;
    world
        .apply(&json!({
            "apiVersion": "hanse.io/v1alpha1", "kind": "Override", "metadata": {"name": "bad-image"},
            "spec": {
                "select": [{"kinds": ["Deployment"], "namespaces": [NS]}],
                "clusters": {"names": ["m2"]},
                "patches": [{
                    "path": "/spec/template/spec/containers/0/image", "value": "registry.invalid/main:1",
                }],
            },
        }))
        .await?;
    world.apply(&app::deployment("web", 7)).await?;

    let is_honest = |it: &Value| it["status"]["readyReplicas"] == 5 && it["status"]["replicas"] == 7;
    let web = world.until(&deployment_path("web"), "five of seven are ready", is_honest).await?;

    assert_eq!(web["status"]["unavailableReplicas"], 2, "{}", web["status"]);
    // Two of seven may be unavailable while one of seven (a quarter, rounded down) may be: not enough are there.
    let available = condition(&web, "Available");
    assert_eq!(available["status"], "False", "{}", web["status"]);
    let names_m2 = |it: &Value| text(&condition(it, "Progressing"), "/message").contains("in m2");
    world.until(&deployment_path("web"), "it says where it does not go on", names_m2).await?;
    let pods = items(&world.client, &format!("{}?labelSelector=hanse.io/cluster=m2", pods_path())).await?;
    let stuck = pods.first().context("no pod of m2 shows")?;
    let waiting = &stuck["status"]["containerStatuses"][0]["state"]["waiting"];
    let reason = text(waiting, "/reason");
    assert!(["ErrImagePull", "ImagePullBackOff"].contains(&reason), "{waiting}");
    assert!(text(waiting, "/message").contains("registry.invalid/main:1"), "{waiting}");
    let is_told = |list: &Value| {
        let mut events = list["items"].as_array().into_iter().flatten();
        events.any(|it| {
            text(it, "/message") == "Error: ErrImagePull"
                && it["involvedObject"]["name"] == stuck["metadata"]["name"]
                && it["metadata"]["labels"][api::CLUSTER_LABEL] == "m2"
        })
    };
    let events = format!("/api/v1/namespaces/{NS}/events");
    world.until(&events, "the member's event shows", is_told).await?;
    // And so does `kubectl describe deployment`: one for each cluster and reason, however many pods there are.
    let of_web = |list: &Value| -> Vec<Value> {
        let events = list["items"].as_array().into_iter().flatten();
        let is_it = |it: &&Value| {
            it["involvedObject"]["uid"] == web["metadata"]["uid"] && it["reason"] == "ErrImagePull"
        };
        events.filter(is_it).cloned().collect()
    };
    let told =
        world.until(&events, "so does an event of the Deployment", |it| !of_web(it).is_empty()).await?;
    let told = of_web(&told);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((&told[0]["type"], &told[0]["count"]), (&json!("Warning"), &json!(1)));
    let message = text(&told[0], "/message");
    assert!(message.starts_with("in m2, ") && message.contains("registry.invalid/main:1"), "{message}");
    Ok(())
}
