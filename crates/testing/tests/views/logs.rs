//! What pods write, read at the member.

use anyhow::Result;
use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::BodyExt;

use crate::{Cluster, PODS, World, create, mk_pod};

#[tokio::test]
async fn a_log_comes_as_it_is_written() -> Result<()> {
    let world = World::start().await?;
    let _eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let us = Cluster::joined(&world, "us-1", &["web"]).await?;
    let lines = us.session.next_log();
    let path = format!("{PODS}/web-us-1/log?follow=true&container=main&tailLines=5&sinceTime=2026-01-01T00%3A00%3A00Z");
    let mut answer = world.client.send(Method::GET, &path, &[], Bytes::new()).await?;
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()["content-type"], "text/plain");
    let (_, asked, _) = us.last_asked();
    let query = "container=main&follow=true&sinceTime=2026%2D01%2D01T00%3A00%3A00Z&tailLines=5";
    assert_eq!(asked.replace("%2D", "-"), format!("{PODS}/web/log?{}", query.replace("%2D", "-")));
    for line in ["one\n", "two\n"] {
        lines.send(Bytes::from(line)).await?;
        let frame = answer.body_mut().frame().await.unwrap()?;
        assert_eq!(frame.into_data().unwrap(), line, "each line before the next is written");
    }
    // The member's stream is cut: so is the client's.
    drop(lines);
    assert_eq!(answer.into_body().collect().await?.to_bytes(), "");
    Ok(())
}

#[tokio::test]
async fn the_member_is_told_when_nobody_reads_any_more() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let mut dropped = eu.session.log_dropped.subscribe();
    let lines = eu.session.next_log();
    let answer = world.client.send(Method::GET, &format!("{PODS}/web/log?follow=true"), &[], Bytes::new()).await?;
    lines.send(Bytes::from_static(b"one\n")).await?;
    drop(answer);
    tokio::time::timeout(std::time::Duration::from_secs(20), dropped.wait_for(|it| *it)).await??;
    Ok(())
}

#[tokio::test]
async fn what_the_member_refuses_is_refused() -> Result<()> {
    let world = World::start().await?;
    let eu = Cluster::joined(&world, "eu-1", &["web"]).await?;
    let refused = world.client.get(&format!("{PODS}/web/log?container=nobody")).await?;
    assert_eq!((refused.code, refused.text().as_str()), (StatusCode::BAD_REQUEST, "no such container"));
    create(&world.client, PODS, &mk_pod("mine")).await?;
    let refused = world.client.get(&format!("{PODS}/mine/log")).await?;
    assert_eq!(refused.code, StatusCode::BAD_REQUEST, "{}", refused.text());
    assert!(refused.text().contains("does not have a host assigned"), "{}", refused.text());
    assert_eq!(world.client.get(&format!("{PODS}/nobody/log")).await?.code, StatusCode::NOT_FOUND);
    eu.lose(&world);
    assert_eq!(world.client.get(&format!("{PODS}/web/log")).await?.code, StatusCode::SERVICE_UNAVAILABLE);
    Ok(())
}
