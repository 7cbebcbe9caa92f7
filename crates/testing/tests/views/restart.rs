//! A hub that stops and starts again: what was seen is shown, and nothing is taken for gone.

use std::{path::Path, sync::Arc};

use anyhow::Result;
use http::StatusCode;
use store::{Store, memory::MemoryStore};

use crate::{
    Cluster, PODS, World,
    garbage::{collector_has_looked, exists, goes, mk_owned},
    names, pods, warnings,
};

/// Stops; what was seen is on disk then.
async fn stop(world: World, directory: &Path) -> Result<Vec<u8>> {
    world.hub.stop().await;
    Ok(std::fs::read(directory.join("default"))?)
}

async fn seen_before(store: &Arc<dyn Store>, directory: &Path) -> Result<(Cluster, Vec<u8>)> {
    let world = World::start_on(store.clone(), Some(directory)).await?;
    let eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    mk_owned(&world, "dependent", &eu.pod("web").await?).await?;
    let kept = stop(world, directory).await?;
    Ok((eu, kept))
}

#[tokio::test]
async fn what_was_seen_is_shown_until_it_is_seen_again() -> Result<()> {
    let (store, directory) = (Arc::new(MemoryStore::new()) as Arc<dyn Store>, tempfile::tempdir()?);
    let (eu, _) = seen_before(&store, directory.path()).await?;
    let world = World::start_on(store, Some(directory.path())).await?;
    let list = world.client.get(PODS).await?;
    assert_eq!(names(&list.json()), ["web"]);
    assert!(warnings(&list)[0].contains("eu-1 was not seen since"), "{:?}", warnings(&list));
    let pod = world.get(&format!("{PODS}/web")).await?;
    assert!(pod["metadata"]["annotations"]["hanse.io/stale"].is_string());
    // The member cannot be reached: nothing is collected, however long that takes.
    collector_has_looked(&world).await?;
    assert!(exists(&world, "dependent").await?);
    // It went while nobody looked.
    eu.client.delete(&format!("{PODS}/web")).await?;
    eu.join(&world);
    eu.report_all(&world).await?;
    assert_eq!(world.names(PODS).await?, [""; 0]);
    goes(&world, "dependent").await
}

#[tokio::test]
async fn revisions_of_the_process_before_have_expired() -> Result<()> {
    let (store, directory) = (Arc::new(MemoryStore::new()) as Arc<dyn Store>, tempfile::tempdir()?);
    let world = World::start_on(store.clone(), Some(directory.path())).await?;
    let _eu = Cluster::joined(&world, "eu-1", &["a", "b"]).await?;
    let page = world.get(&format!("{PODS}?limit=1")).await?;
    let before = page["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    stop(world, directory.path()).await?;
    let world = World::start_on(store, Some(directory.path())).await?;
    let after = world.get(PODS).await?["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    assert!(after.parse::<u64>()? > before.parse::<u64>()?, "{before} {after}");
    let exact = format!("{PODS}?resourceVersion={before}&resourceVersionMatch=Exact");
    assert_eq!(world.client.get(&exact).await?.code, StatusCode::GONE);
    let token = page["metadata"]["continue"].as_str().unwrap();
    let rest = world.client.get(&format!("{PODS}?limit=1&continue={token}")).await?;
    assert_eq!(rest.code, StatusCode::GONE);
    let go_on = rest.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    assert_eq!(world.names(&format!("{PODS}?limit=1&continue={go_on}")).await?, ["b"]);
    let mut watch = world.client.watch(&format!("{PODS}?watch=true&resourceVersion={before}")).await?;
    assert_eq!(watch.expect().await?["object"]["code"], 410);
    Ok(())
}

#[tokio::test]
async fn an_older_copy_is_old_and_not_wrong() -> Result<()> {
    let (store, directory) = (Arc::new(MemoryStore::new()) as Arc<dyn Store>, tempfile::tempdir()?);
    let (eu, older) = seen_before(&store, directory.path()).await?;
    // A pod came after the copy was made, and something belongs to it.
    let world = World::start_on(store.clone(), Some(directory.path())).await?;
    eu.join(&world);
    crate::create(&eu.client, PODS, &crate::mk_pod("later")).await?;
    eu.report_all(&world).await?;
    mk_owned(&world, "of-later", &eu.pod("later").await?).await?;
    stop(world, directory.path()).await?;
    std::fs::write(directory.path().join("default"), older)?;
    let world = World::start_on(store, Some(directory.path())).await?;
    assert_eq!(world.names(PODS).await?, ["web"]);
    collector_has_looked(&world).await?;
    assert!(exists(&world, "of-later").await?, "its owner is not known, which is not gone");
    eu.join(&world);
    eu.report_all(&world).await?;
    assert_eq!(world.names(PODS).await?, ["later", "web"]);
    collector_has_looked(&world).await?;
    assert!(exists(&world, "of-later").await? && exists(&world, "dependent").await?);
    Ok(())
}

#[tokio::test]
async fn a_damaged_file_is_as_if_nothing_was_ever_seen() -> Result<()> {
    let (store, directory) = (Arc::new(MemoryStore::new()) as Arc<dyn Store>, tempfile::tempdir()?);
    let (eu, mut kept) = seen_before(&store, directory.path()).await?;
    let middle = kept.len() / 2;
    kept[middle] ^= 1;
    std::fs::write(directory.path().join("default"), &kept)?;
    let world = World::start_on(store, Some(directory.path())).await?;
    let refused = world.client.get(PODS).await?;
    assert_eq!(refused.code, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text());
    assert!(refused.text().contains("checksum"), "{}", refused.text());
    collector_has_looked(&world).await?;
    assert!(exists(&world, "dependent").await?);
    eu.join(&world);
    eu.report(&world, &pods()).await?;
    assert_eq!(world.client.get(PODS).await?.code, StatusCode::SERVICE_UNAVAILABLE, "some kinds are not seen");
    eu.report_all(&world).await?;
    assert_eq!(world.names(PODS).await?, ["web"]);
    collector_has_looked(&world).await?;
    assert!(exists(&world, "dependent").await?);
    Ok(())
}
