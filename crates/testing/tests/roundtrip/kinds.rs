//! Every kind that a workspace keeps in namespaces goes to clusters, or is on the page's list of those that do not (U1.2).

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use kinds::Travel;
use machinery::builtin;
use serde_json::{Value, json};
use testing::{client::Client, hub::TestHub};

use crate::{
    app::{self, NS},
    world::{World, assignment_path, collection, path, text},
};

const PAGE: &str = include_str!("../../../../docs/placement.md");
/// Hanse's own kinds and those of dialects are in these groups, or below them.
const WORDS: [&str; 4] = [api::GROUP, "kubefed.io", "federation.k8s.io", "clusterregistry.k8s.io"];

/// Group and kind of all that is served and kept in namespaces.
async fn kept(client: &Client) -> Result<BTreeSet<(String, String)>> {
    let groups = client.get("/apis").await?.json();
    let versions = groups["groups"].as_array().into_iter().flatten().flat_map(|it| it["versions"].as_array());
    let mut roots = vec!["/api/v1".to_owned()];
    roots.extend(versions.flatten().map(|it| format!("/apis/{}", text(it, "/groupVersion"))));
    let mut kept = BTreeSet::new();
    for root in roots {
        let answer = client.get(&root).await?;
        ensure!(answer.code == 200, "{root}: {}", answer.text());
        let served = answer.json();
        let group = text(&served, "/groupVersion").split_once('/').map_or("", |(group, _)| group);
        for resource in served["resources"].as_array().into_iter().flatten() {
            let verbs: Vec<&str> =
                resource["verbs"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let is_kept = verbs.contains(&"create") && verbs.contains(&"list");
            if is_kept && resource["namespaced"] == true && !text(resource, "/name").contains('/') {
                kept.insert((group.to_owned(), text(resource, "/kind").to_owned()));
            }
        }
    }
    Ok(kept)
}

/// The kinds of the first column.
fn listed() -> Result<BTreeSet<String>> {
    let (_, rest) = PAGE.split_once("\n## What stays in the hub\n").context("the page has no such list")?;
    let section = rest.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once(" | "));
    Ok(rows.flat_map(|(cell, _)| cell.split('`').step_by(2)).map(str::to_owned).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn u1_2_the_page_lists_the_kinds_that_stay_in_the_hub() -> Result<()> {
    let hub = TestHub::start().await?;
    let groups: BTreeSet<&str> = builtin::rows().map(|row| row.group).collect();
    let (mut travels, mut stays) = (BTreeSet::new(), BTreeSet::new());
    for (group, kind) in kept(&hub.admin().await?).await? {
        if !groups.contains(group.as_str()) {
            ensure!(WORDS.iter().any(|own| group.ends_with(own)), "nobody knows the group {group} of {kind}");
            continue;
        }
        match kinds::of(&group, &kind).travel {
            Travel::Placed | Travel::Follows | Travel::WithNamespace => travels.insert(kind),
            // What no row is about goes only if it is selected: of the kinds of Kubernetes that would go unsaid.
            Travel::Named | Travel::IfSelected | Travel::Stays => stays.insert(kind),
        };
    }
    assert_eq!(stays, listed()?);
    assert!(travels.contains("Deployment") && travels.is_disjoint(&stays), "{travels:?}");
    Ok(())
}

/// Those of the list that people write themselves.
fn staying() -> Vec<Value> {
    let mk = |api_version: &str, kind: &str, field: &str, value: Value| {
        let metadata = json!({"name": "stays", "namespace": NS});
        json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, field: value})
    };
    let mut revision = mk("apps/v1", "ControllerRevision", "data", json!({}));
    revision["revision"] = json!(1);
    vec![
        app::role("stays"),
        app::role_binding("stays"),
        mk("v1", "ResourceQuota", "spec", json!({"hard": {"pods": "100"}})),
        mk("v1", "PodTemplate", "template", app::template("stays")),
        mk("coordination.k8s.io/v1", "Lease", "spec", json!({"holderIdentity": "somebody"})),
        revision,
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn u1_2_what_is_listed_stays_in_the_hub_whatever_selects_it() -> Result<()> {
    let world = World::start(&["m1"]).await?;
    world.namespace(NS).await?;
    let all = json!({
        "apiVersion": "hanse.io/v1alpha1", "kind": "Placement", "metadata": {"name": "all"},
        "spec": {"select": [{"namespaces": [NS]}], "clusters": {"names": ["m1"]}},
    });
    world.apply(&all).await?;
    for object in staying() {
        let made = world.client.post(&collection(&object), &object).await?;
        ensure!(made.code == 201, "{}: {}", path(&object), made.text());
    }
    world.barrier(NS, 0, &["m1"]).await?;
    let (member, listed) = (world.member("m1").await?, listed()?);
    for object in staying() {
        assert!(listed.contains(text(&object, "/kind")), "{object}");
        assert!(!member.has(&path(&object)).await?, "{object}");
        assert_eq!(world.get(&assignment_path(&object)).await?["code"], 404, "{object}");
    }
    Ok(())
}
