//! What is left over in a member goes when somebody says so, and not before (scenario 11).

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sync::{
    clear::{self, Cleared, Fate},
    client::{Client, Error},
};

use crate::{
    app::{self, NS},
    world::{CLUSTERS, World, access, path, sync_client, text},
};

/// A copy as a session would have made it, of an object that is no more.
fn copy(name: &str, workspace: &str) -> Value {
    let mut copy = app::config_map(name, "old");
    copy["metadata"]["labels"] = json!({api::WORKSPACE_LABEL: workspace});
    copy["metadata"]["annotations"] = json!({api::SOURCE_ANNOTATION: format!("gone-{name}")});
    copy
}

fn listed(cluster: &Value) -> Vec<&str> {
    let items = cluster["status"]["leftovers"]["items"].as_array().into_iter().flatten();
    items.map(|it| text(it, "/name")).collect()
}

async fn clear(world: &World, dry_run: bool) -> Result<Vec<Cleared>> {
    let hub = sync_client(&access(&world.hub, api::DEFAULT));
    let workspace = |name: &str| -> Result<Client, Error> { Ok(sync_client(&access(&world.hub, name))) };
    let request = clear::Request { name: "m1", hub: &hub, workspace: &workspace, member: None, dry_run };
    Ok(clear::clear(&request).await?)
}

fn fate<'a>(cleared: &'a [Cleared], name: &str) -> Result<&'a Fate> {
    Ok(&cleared.iter().find(|it| it.name == name).context("it is not listed")?.fate)
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_11_leftovers_go_by_command_only_and_never_what_is_wanted() -> Result<()> {
    let world = World::start(&["m1"]).await?;
    world.namespace(NS).await?;
    world.apply(&app::deployment("web", 1)).await?;
    world.until_rolled_out("web", 1).await?;
    let member = world.member("m1").await?;
    for object in [copy("old", "default"), copy("taken", "default"), copy("theirs", "former")] {
        member.create(&object).await?;
    }
    let cluster = format!("{CLUSTERS}/m1");
    let all = |it: &Value| listed(it) == ["old", "taken", "theirs"];
    world.until(&cluster, "three are left over", all).await?;

    // Told what would go, nothing goes.
    let would = clear(&world, true).await?;
    assert!(would.iter().all(|it| it.fate == Fate::Goes), "{would:?}");
    world.barrier(NS, 0, &["m1"]).await?;
    for name in ["old", "taken", "theirs"] {
        assert!(member.has(&path(&copy(name, ""))).await?, "{name}");
    }

    // The object is applied again before the list follows: its copy is taken over, and stays.
    let taken = app::config_map("taken", "new");
    let before = member.get(&path(&taken)).await?["metadata"]["uid"].clone();
    world.apply(&taken).await?;
    member.until(&path(&taken), "it is taken over", |it| it["data"]["key"] == "new").await?;
    let cleared = clear(&world, false).await?;
    for name in ["old", "theirs"] {
        assert_eq!(fate(&cleared, name)?, &Fate::Goes);
        member.until_gone(&path(&copy(name, ""))).await?;
    }
    // Unless the list has followed already, it is looked at, and stays.
    if let Ok(fate) = fate(&cleared, "taken") {
        assert_eq!(fate, &Fate::Stays("the hub wants it by now".to_owned()));
    }
    world.barrier(NS, 1, &["m1"]).await?;
    assert_eq!(member.get(&path(&taken)).await?["metadata"]["uid"], before);
    world.until(&cluster, "nothing is left over", |it| listed(it).is_empty()).await.map(drop)
}
