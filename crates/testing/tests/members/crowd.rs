//! Many members at once, in one process.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use testing::hub::eventually;

use crate::world::{CLUSTERS, Members, World};

/// `HANSE_MEMBERS` and `HANSE_MEMBER_PODS` make it larger.
fn from_environment(name: &str, otherwise: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_one_of_many_members_is_seen_whole() -> Result<()> {
    let (count, pods) = (from_environment("HANSE_MEMBERS", 12), from_environment("HANSE_MEMBER_PODS", 30));
    let names: Vec<String> = (0..count).map(|at| format!("m{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let members = Members::start(&names).await?;
    // At the usual pace: so many that hurry are another load than that of a fleet.
    let options = sync::Options { report_every: Duration::from_secs(1), ..sync::Options::default() };
    let world = World::start_with(options).await?;
    for name in &names {
        members.mk_node(name, "node").await?;
        testing::hub::outfitted(&members.admin, &format!("/clusters/{name}/api/v1/namespaces/default"))
            .await?;
        let made = (0..pods).map(|pod| members.post_pod(name, "default", format!("p{pod}"), "node"));
        futures_util::future::try_join_all(made).await?;
        world.join(name, &members.access(name)).await?;
    }
    // A connection without a request is closed after a while.
    let admin = world.hub.admin().await?;
    for name in &names {
        let path = format!("{CLUSTERS}/{name}");
        eventually(&format!("{name} is counted"), || async {
            let cluster = admin.get(&path).await?.json();
            Ok((cluster["status"]["requested"]["pods"] == json!(pods.to_string())).then_some(()))
        })
        .await?;
    }
    Ok(())
}
