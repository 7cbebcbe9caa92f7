//! Many members at once, in one process.

use anyhow::Result;
use serde_json::json;
use testing::hub::eventually;

use crate::world::{CLUSTERS, Members, World, brisk};

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
    let world =
        World::start_with(sync::Options { request_limit: std::time::Duration::from_secs(20), ..brisk() })
            .await?;
    for name in &names {
        members.mk_node(name, "node").await?;
        for pod in 0..pods {
            members.mk_pod(name, "default", &format!("p{pod}"), "node").await?;
        }
        world.join(name, &members.access(name)).await?;
    }
    for name in &names {
        let path = format!("{CLUSTERS}/{name}");
        eventually(&format!("{name} is counted"), || async {
            let cluster = world.admin.get(&path).await?.json();
            Ok((cluster["status"]["requested"]["pods"] == json!(pods.to_string())).then_some(()))
        })
        .await?;
    }
    Ok(())
}
