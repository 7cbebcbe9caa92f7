//! How it is when all is mended: copies, sums and status are right, and nobody writes anything any more.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::{Value, json};
use server::hub::default_id;
use store::{Collection, EventChange, Store};

use crate::{
    history::{Note, Side},
    members::NAMES,
    play::World,
    wanted::{Hub, KINDS, Where, source, uid},
};

/// The longest pause after something went wrong is a minute; what was in the way may have been in the way of more.
const LOOKS: usize = 60;
const BETWEEN: Duration = Duration::from_secs(30);

/// Waits until all is as it should be.
pub async fn settle(world: &World) -> Result<()> {
    let mut wrong = Vec::new();
    for _ in 0..LOOKS {
        tokio::time::sleep(BETWEEN).await;
        wrong = what_is_wrong(world)?;
        if wrong.is_empty() {
            return Ok(());
        }
    }
    ensure!(false, "it does not come to rest:\n  {}", wrong.join("\n  "));
    Ok(())
}

/// A copy in a member.
pub struct Copy {
    pub cluster: &'static str,
    pub plural: String,
    pub source: String,
    pub object: Value,
}

fn hub_of(world: &World) -> Result<Hub> {
    let running = world.hub.as_ref().context("the hub is down")?;
    let mut hub = Hub::default();
    for collection in running.store.collections(&default_id()) {
        let listing = running.store.list(&default_id(), &collection, None)?;
        for (item, object) in listing.iter(None, None) {
            let key = store::Key { collection: collection.clone(), item: item.clone() };
            hub.put(&key, Some(object));
        }
    }
    Ok(hub)
}

/// For people who look into a failure: who is assigned to whom, and what was said of it.
pub fn assignments(world: &World) -> Vec<String> {
    let Some(running) = &world.hub else { return vec!["it is down".to_owned()] };
    let mut lines = Vec::new();
    for (group, plural) in [(api::GROUP, api::assignment::PLURAL), ("", "events")] {
        let Ok(listing) = running.store.list(&default_id(), &Collection::new(group, plural), None) else {
            continue;
        };
        for (item, object) in listing.iter(None, None) {
            let tree = Value::Object(object.tree().unwrap_or_default());
            let parts = [
                "/metadata/deletionTimestamp",
                "/spec/object/uid",
                "/spec/clusters",
                "/spec/decision/message",
            ];
            let told = ["/status/clusters", "/reason", "/message", "/lastTimestamp"];
            let shown: Vec<String> =
                parts.iter().chain(&told).filter_map(|it| tree.pointer(it)).map(Value::to_string).collect();
            lines.push(format!("{plural} {item:?} {}", shown.join(" ")));
        }
    }
    lines
}

pub fn copies_of(world: &World) -> Result<Vec<Copy>> {
    let mut copies = Vec::new();
    for member in &world.members {
        for collection in member.store.collections(&member.workspace) {
            let listing = member.store.list(&member.workspace, &collection, None)?;
            for (_, object) in listing.iter(None, None) {
                let Some(source) = source(object) else { continue };
                let plural = collection.parts().1.to_owned();
                let object = Value::Object(object.tree()?);
                copies.push(Copy { cluster: member.name, plural, source, object });
            }
        }
    }
    Ok(copies)
}

/// Whom the hub has assigned what: the UID of an object and the name of a cluster.
fn assigned(world: &World) -> Result<BTreeSet<(String, String)>> {
    let running = world.hub.as_ref().context("the hub is down")?;
    let collection = Collection::new(api::GROUP, api::assignment::PLURAL);
    let mut assigned = BTreeSet::new();
    for (_, object) in running.store.list(&default_id(), &collection, None)?.iter(None, None) {
        let spec = &object.tree()?["spec"];
        let source = spec["object"]["uid"].as_str().unwrap_or_default();
        let clusters = spec["clusters"].as_array().into_iter().flatten();
        let names = clusters.filter_map(|it| it["name"].as_str());
        assigned.extend(names.map(|name| (source.to_owned(), name.to_owned())));
    }
    Ok(assigned)
}

/// What was there when an older backup was restored may be left over: it is kept, and counts for nothing.
fn what_is_wrong(world: &World) -> Result<Vec<String>> {
    let (hub, mut copies) = (hub_of(world)?, copies_of(world)?);
    if !world.there_at_restore.is_empty() {
        let assigned = assigned(world)?;
        let is_known = |copy: &Copy| match copy.plural.as_str() {
            "namespaces" => hub.placed().any(|(_, object)| uid(object) == copy.source),
            _ => assigned.contains(&(copy.source.clone(), copy.cluster.to_owned())),
        };
        copies.retain(|copy| is_known(copy) || !world.there_at_restore.contains(uid(&copy.object)));
    }
    Ok(compare(&hub, &copies))
}

/// Where the hub and its members do not agree.
pub fn compare(hub: &Hub, copies: &[Copy]) -> Vec<String> {
    let mut wrong = Vec::new();
    for copy in copies {
        let name = copy.object["metadata"]["name"].as_str().unwrap_or_default();
        let found = hub.placed().find(|(_, object)| uid(object) == copy.source);
        let Some((place, object)) = found else {
            wrong.push(format!("{} {name} in {} has no source", copy.plural, copy.cluster));
            continue;
        };
        if let Where::In(clusters) = hub.place_of(place, object)
            && !clusters.contains(copy.cluster)
        {
            wrong.push(format!("{} {name} is in {}, not in {clusters:?} only", copy.plural, copy.cluster));
        }
    }
    for (place, object) in hub.placed() {
        let own: Vec<&Copy> = copies.iter().filter(|copy| copy.source == uid(object)).collect();
        if let Some(why) = is_wrong(hub, place, object, &own) {
            wrong.push(format!("{place:?}: {why}"));
        }
    }
    wrong
}

/// What ran once does not run again, though its copy was deleted by hand or is older than a backup.
fn is_over(plural: &str, object: &Value) -> bool {
    let status = &object["status"];
    let ended = |it: &Value| it["status"] == "True" && (it["type"] == "Complete" || it["type"] == "Failed");
    match plural {
        "pods" => status["phase"] == "Failed" || status["phase"] == "Succeeded",
        "jobs" => status["conditions"].as_array().is_some_and(|all| all.iter().any(ended)),
        _ => false,
    }
}

fn is_wrong(hub: &Hub, place: &(String, String, String), object: &Value, copies: &[&Copy]) -> Option<String> {
    let at = hub.place_of(place, object);
    if at == Where::Nowhere {
        return Some("it does not go".to_owned());
    }
    let there: BTreeSet<&str> = copies.iter().map(|copy| copy.cluster).collect();
    let plural = place.0.as_str();
    if !KINDS.iter().any(|it| it.1 == plural) {
        return None;
    }
    if let (Where::In(clusters), "configmaps") = (&at, plural)
        && !clusters.iter().map(String::as_str).eq(there.iter().copied())
    {
        return Some(format!("it is in {there:?}, not in {clusters:?}"));
    }
    if let Where::With(clusters) = &at
        && !clusters.iter().all(|it| there.contains(it.as_str()))
    {
        return Some(format!("it is in {there:?}, and not all of those are that it follows: {clusters:?}"));
    }
    if copies.is_empty() && is_over(plural, object) {
        return None;
    }
    if copies.is_empty() && plural != "configmaps" {
        return Some("it is nowhere".to_owned());
    }
    let sum = |pointer: &str| -> i64 {
        copies.iter().filter_map(|copy| copy.object.pointer(pointer).and_then(Value::as_i64)).sum()
    };
    let own = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let alike = |pointer: &str| copies.iter().all(|it| it.object.pointer(pointer) == object.pointer(pointer));
    let sums: &[&str] = match plural {
        "configmaps" => &[],
        "deployments" | "statefulsets" => {
            &["/spec/replicas", "/status/replicas", "/status/readyReplicas", "/status/updatedReplicas"]
        }
        "jobs" => &["/spec/parallelism", "/spec/completions", "/status/succeeded"],
        _ => &[],
    };
    for pointer in sums {
        if sum(pointer) != own(pointer) {
            return Some(format!(
                "{pointer} is {} and adds up to {} in {there:?}",
                own(pointer),
                sum(pointer)
            ));
        }
    }
    let same: &[&str] = match plural {
        "configmaps" => &["/data"],
        "pods" => &["/spec/containers/0/image", "/status/phase"],
        _ => &["/spec/template/spec/containers/0/image"],
    };
    if let Some(pointer) = same.iter().find(|pointer| !alike(pointer)) {
        return Some(format!("{pointer} is {:?}, not so in {there:?}", object.pointer(pointer)));
    }
    let has_status = matches!(plural, "deployments" | "statefulsets");
    if has_status && own("/status/observedGeneration") != own("/metadata/generation") {
        return Some("its status is of another generation".to_owned());
    }
    if has_status && own("/status/readyReplicas") != own("/spec/replicas") {
        return Some(format!("{} of {} are ready", own("/status/readyReplicas"), own("/spec/replicas")));
    }
    None
}

/// What is written at rest by those whose work that is: leases are renewed, notes expire, and the hub says of each
/// cluster every minute that it is heard of. Whatever else such a write changes is not at rest.
pub fn is_routine(side: Side, event: &store::Event) -> bool {
    let (group, plural) = event.key.collection.parts();
    match (group, plural) {
        ("coordination.k8s.io", "leases") => true,
        ("", "events") | ("events.k8s.io", "events") => matches!(event.change, EventChange::Removed(_)),
        (api::GROUP, api::cluster::PLURAL) => side == Side::Hub && is_heartbeat(event),
        _ => false,
    }
}

fn is_heartbeat(event: &store::Event) -> bool {
    let (Some(old), Some(new)) = (event.old.as_ref(), event.after()) else { return false };
    let plain = |object: &machinery::Object| {
        let mut tree = Value::Object(object.tree().ok()?);
        tree["status"].as_object_mut()?.remove("heartbeat");
        let metadata = tree["metadata"].as_object_mut()?;
        // They tell the time of the last change.
        metadata.retain(|key, _| !matches!(key.as_str(), "resourceVersion" | "managedFields"));
        Some(tree)
    };
    plain(old).is_some_and(|old| plain(new) == Some(old))
}

const QUIET: Duration = Duration::from_secs(3600);
/// In each such part of it the hub is heard of: it writes a heartbeat of each cluster every minute.
const PART: Duration = Duration::from_secs(600);

/// For an hour.
pub async fn is_quiet(world: &World) -> Result<()> {
    // What is written about the last change of all may come a little later.
    tokio::time::sleep(Duration::from_secs(600)).await;
    let (from, began) = (world.history.len(), world.history.now());
    tokio::time::sleep(QUIET).await;
    let to = world.history.len();
    are_heard(world).await?;
    let (written, beats) = world.history.read(|notes| {
        let (mut written, mut beats) = (Vec::new(), BTreeSet::new());
        for (time, note) in &notes[from..to] {
            let Note::Changed(side, event) = note else { continue };
            if !is_routine(*side, event) {
                written.push(format!("{time:?} {}", note.line()));
            } else if event.key.collection.parts().1 == api::cluster::PLURAL {
                let part = time.saturating_sub(began).as_secs() / PART.as_secs();
                beats.insert((event.key.item.name().to_owned(), part));
            }
        }
        (written, beats)
    });
    ensure!(written.is_empty(), "written at rest:\n  {}", written[..written.len().min(20)].join("\n  "));
    for name in NAMES {
        let silent =
            (0..QUIET.as_secs() / PART.as_secs()).find(|part| !beats.contains(&(name.to_owned(), *part)));
        ensure!(silent.is_none(), "the hub has not said of {name} that it is there: {beats:?}");
    }
    world.history.is_whole()?;
    let wrong = what_is_wrong(world)?;
    ensure!(wrong.is_empty(), "not at rest after all:\n  {}", wrong.join("\n  "));
    Ok(())
}

/// Silence is of those that could be heard: something is written in each member, and is noted.
async fn are_heard(world: &World) -> Result<()> {
    const MARK: &str = "mark";
    for member in &world.members {
        let from = world.history.len();
        let path = "/api/v1/namespaces/default/configmaps";
        let (code, said) = member.ask(Method::POST, path, Some(json!({"metadata": {"name": MARK}}))).await?;
        ensure!(code == 201, "{} takes no mark: {said}", member.name);
        // Whoever records it has its turn.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let is_noted = world.history.read(|notes| {
            notes[from..].iter().any(|(_, note)| match note {
                Note::Changed(side, event) => {
                    *side == Side::Member(member.name) && event.key.item.name() == MARK
                }
                _ => false,
            })
        });
        ensure!(is_noted, "{} is quiet because nobody listens", member.name);
    }
    Ok(())
}
