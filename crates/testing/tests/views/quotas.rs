//! Quotas of a namespace count what runs in it, wherever that is.

use anyhow::Result;
use http::StatusCode;
use serde_json::{Value, json};
use testing::hub::eventually;

use crate::{Cluster, PODS, SETS, World, create, pods};

const QUOTAS: &str = "/api/v1/namespaces/shop/resourcequotas";

fn mk_pod(name: &str, cpu: &str) -> Value {
    let resources = json!({"requests": {"cpu": cpu}});
    json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "example.com/main", "resources": resources}]},
    })
}

async fn until_used(world: &World, wanted: Value) -> Result<()> {
    let used = async || {
        Ok::<_, anyhow::Error>(world.get(&format!("{QUOTAS}/team")).await?["status"]["used"].clone())
    };
    let what = format!("{wanted} is used");
    let found = eventually(&what, async || Ok((used().await? == wanted).then_some(())));
    match found.await {
        Ok(()) => Ok(()),
        Err(error) => Err(error.context(format!("it is {}", used().await?))),
    }
}

async fn mk_quota(world: &World) -> Result<()> {
    let hard = json!({"pods": "3", "requests.cpu": "2", "count/replicasets.apps": "5"});
    create(&world.client, QUOTAS, &json!({"metadata": {"name": "team"}, "spec": {"hard": hard}})).await?;
    Ok(())
}

fn used(pods: &str, cpu: &str, sets: &str) -> Value {
    json!({"pods": pods, "requests.cpu": cpu, "count/replicasets.apps": sets})
}

#[tokio::test]
async fn what_members_made_counts_from_when_it_shows_until_it_is_gone() -> Result<()> {
    // Given a quota in a namespace that a member has a pod and a ReplicaSet in,
    let world = World::start().await?;
    let eu = Cluster::start("eu-1").await?;
    create(&eu.client, PODS, &mk_pod("web", "500m")).await?;
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": mk_pod("web", "1")["spec"]});
    let set = json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    });
    create(&eu.client, SETS, &set).await?;
    eu.join(&world);
    eu.report_all(&world).await?;
    // when it is made, then it says what is there;
    mk_quota(&world).await?;
    until_used(&world, used("1", "500m", "1")).await?;
    // when a member tells of another, then that is added;
    let api = create(&eu.client, PODS, &mk_pod("api", "250m")).await?;
    eu.put(&world, &pods(), &api);
    until_used(&world, used("2", "750m", "1")).await?;
    // when one has ended it needs nothing any more;
    let mut over = api.clone();
    over["status"]["phase"] = json!("Succeeded");
    eu.put(&world, &pods(), &over);
    until_used(&world, used("1", "500m", "1")).await?;
    eu.put(&world, &pods(), &api);
    until_used(&world, used("2", "750m", "1")).await?;
    // when it is gone it does not count; and with its cluster all of it goes.
    eu.remove(&world, &pods(), &api);
    until_used(&world, used("1", "500m", "1")).await?;
    world.views().leave(&world.workspace(), "eu-1");
    until_used(&world, used("0", "0", "0")).await
}

#[tokio::test]
async fn what_a_lost_cluster_had_goes_on_counting() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    mk_quota(&world).await?;
    until_used(&world, used("1", "0", "0")).await?;
    eu.lose(&world);
    create(&world.client, PODS, &mk_pod("mine", "1")).await?;
    until_used(&world, used("2", "1", "0")).await
}

#[tokio::test]
async fn a_pod_of_the_workspace_is_refused_what_pods_of_members_have_used_up() -> Result<()> {
    // Given two pods in a member, and a quota of three,
    let world = World::start().await?;
    let _eu = Cluster::joined(&world, "eu-1", &["web", "api"]).await?;
    mk_quota(&world).await?;
    until_used(&world, used("2", "0", "0")).await?;
    // when two more are made in the workspace, then the first is charged along with them, and the second does not fit.
    create(&world.client, PODS, &mk_pod("mine", "1")).await?;
    until_used(&world, used("3", "1", "0")).await?;
    let refused = world.client.post(PODS, &mk_pod("more", "1")).await?;
    assert_eq!(refused.code, StatusCode::FORBIDDEN, "{}", refused.text());
    assert!(refused.text().contains("used: pods=3, limited: pods=3"), "{}", refused.text());
    Ok(())
}
