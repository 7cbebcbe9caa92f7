//! Events on objects: where they were placed, or why not. They are committed with what they tell of.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use api::assignment::{Assignment, Reference, State, Target};
use jiff::{SignedDuration, Timestamp};
use kinds::Travel;
use machinery::{Draft, Object, object::ObjectError};
use serde_json::{Value, json};
use server::Hub;
use store::{Change, Expect, Key, WorkspaceId, Write};

/// As long as events are kept.
const KEPT: SignedDuration = SignedDuration::from_hours(1);
/// What goes on is told again after so long.
const REPEATED_AFTER: SignedDuration = SignedDuration::from_mins(10);
/// So many clusters are named.
const NAMED: usize = 8;
/// The longest message that the API takes.
const LONGEST: usize = 1000;

/// Type, reason and message of an Event.
pub type News = (&'static str, &'static str, String);

/// What is to be told of a decision; nothing, if there is nothing new in it.
pub fn news(old: Option<&Assignment>, new: &Assignment, is_joined: impl Fn(&str) -> bool) -> Vec<News> {
    let mut told: Vec<News> = trouble(old, new).into_iter().collect();
    if !is_told(new) {
        return told;
    }
    if told.is_empty() {
        told.extend(transition(old, new));
    }
    if let Some(old) = old {
        told.extend(left(old, new, is_joined));
    }
    told
}

/// Only what decides where others are: those go with it.
fn is_told(assignment: &Assignment) -> bool {
    let object = &assignment.spec.object;
    let travel = kinds::of(object.group(), &object.kind).travel(&object.name);
    let is_counted = assignment.spec.clusters.iter().any(|target| target.replicas.is_some());
    let goes_along =
        matches!(travel, Travel::Follows | Travel::WithNamespace | Travel::Named) || is_namespace(object);
    is_counted || !goes_along
}

fn trouble(old: Option<&Assignment>, new: &Assignment) -> Option<News> {
    let decision = &new.spec.decision;
    let before = old.map_or("", |old| old.spec.decision.message.as_str());
    if decision.message.is_empty() || decision.message == before {
        return None;
    }
    let reason = if new.spec.clusters.is_empty() { "Unplaced" } else { "Pending" };
    let refused = decision.verdicts.iter().filter(|it| !it.feasible && !it.message.is_empty());
    let found: Vec<String> =
        refused.take(NAMED).map(|it| format!("{}: {}", it.cluster, it.message)).collect();
    let about = if found.is_empty() { String::new() } else { format!(" ({})", found.join("; ")) };
    Some(("Warning", reason, format!("{}{about}", decision.message)))
}

/// It is to be somewhere else, or there is to be more or less of it.
fn transition(old: Option<&Assignment>, new: &Assignment) -> Option<News> {
    let (was, is) = (old.map(staying).unwrap_or_default(), staying(new));
    if is.is_empty() {
        // What finds no place stays where it is until it has one.
        let goes = !was.is_empty() && new.spec.decision.message.is_empty();
        return goes
            .then(|| ("Normal", "Draining", format!("it is to be nowhere, and goes from {}", names(&was))));
    }
    let given_up: Vec<&Target> =
        was.iter().filter(|was| !is.iter().any(|is| is.uid == was.uid)).copied().collect();
    if !given_up.is_empty() {
        return Some(("Normal", "Moved", format!("from {} to {}", names(&given_up), shares(&is))));
    }
    (shares(&is) != shares(&was)).then(|| ("Normal", "Placed", format!("on {}", shares(&is))))
}

/// Clusters that have nothing of it any more.
fn left(old: &Assignment, new: &Assignment, is_joined: impl Fn(&str) -> bool) -> Vec<News> {
    let targets = old.spec.clusters.iter();
    let (drained, unjoined): (Vec<&Target>, Vec<&Target>) = targets
        .filter(|was| !new.spec.clusters.iter().any(|is| is.uid == was.uid))
        .partition(|was| is_joined(&was.uid));
    let mut told = Vec::new();
    if !drained.is_empty() {
        told.push(("Normal", "Drained", format!("nothing of it is left in {}", names(&drained))));
    }
    if !unjoined.is_empty() {
        let message = format!("{} is unjoined: what is left of it there is nobody's", names(&unjoined));
        told.push(("Normal", "Unjoined", message));
    }
    told
}

/// A pod is not made a second time.
pub fn lost(old: &Assignment) -> News {
    let clusters: Vec<&Target> = old.spec.clusters.iter().collect();
    ("Warning", "Lost", format!("{} was unjoined, and it is lost with it", names(&clusters)))
}

/// The last that is told of an object that was deleted, or is not to be in any cluster.
pub fn removal(old: &Assignment) -> Option<News> {
    let last: Vec<&Target> = old.spec.clusters.iter().collect();
    let is_news = !last.is_empty() && is_told(old);
    is_news.then(|| {
        ("Normal", "Removed", format!("nothing of it is left in any cluster; last in {}", names(&last)))
    })
}

/// A deletion cannot come to its end while clusters do not answer.
pub fn waits_for(clusters: &[&str]) -> News {
    let names = clusters.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    let message = format!(
        "it is deleted when nothing of it is left in {names}, which cannot be used now; if that is gone for good, \
         `hanse unjoin {} --forget` lets go of it",
        clusters.first().copied().unwrap_or("NAME")
    );
    ("Warning", "WaitingForCluster", message)
}

/// Those that are not to lose it.
fn staying(assignment: &Assignment) -> Vec<&Target> {
    assignment.spec.clusters.iter().filter(|it| it.state != State::Draining).collect()
}

fn names(targets: &[&Target]) -> String {
    listed(targets, |target| target.name.clone())
}

fn shares(targets: &[&Target]) -> String {
    listed(targets, |target| match target.replicas {
        Some(replicas) => format!("{} ({replicas})", target.name),
        None => target.name.clone(),
    })
}

fn listed(targets: &[&Target], name: impl Fn(&Target) -> String) -> String {
    let mut text = targets.iter().take(NAMED).map(|it| name(it)).collect::<Vec<_>>().join(", ");
    if targets.len() > NAMED {
        text.push_str(&format!(" and {} more", targets.len() - NAMED));
    }
    text
}

fn is_namespace(object: &Reference) -> bool {
    object.kind == "Namespace" && object.group().is_empty()
}

/// What says the same of the same object has one name, so that it is counted.
fn name_of(about: &Reference, news: &News) -> String {
    let mut hasher = DefaultHasher::new();
    (&about.uid, news).hash(&mut hasher);
    short_name(about, &hasher)
}

fn short_name(about: &Reference, hasher: &DefaultHasher) -> String {
    let short: String = about.name.chars().take(200).collect();
    format!("{short}.{:016x}", hasher.finish())
}

/// Where the Event is.
fn key_of(namespace: &str, about: &Reference, news: &News) -> Key {
    // Events about what is in no namespace are in this one.
    let namespace = if about.is_in_namespace() { namespace } else { "default" };
    Key::new("", "events", namespace, &name_of(about, news))
}

/// Whether it was told, and is not forgotten yet.
pub fn has_told(hub: &Hub, workspace: &WorkspaceId, namespace: &str, about: &Reference, news: &News) -> bool {
    hub.store.get(workspace, &key_of(namespace, about, news)).is_some()
}

/// The Event; one that was told before, and is not forgotten yet, counts up.
pub fn event(
    hub: &Hub,
    workspace: &WorkspaceId,
    namespace: &str,
    about: &Reference,
    news: &News,
) -> Result<Write, ObjectError> {
    let key = key_of(namespace, about, news);
    let before = hub.store.get(workspace, &key);
    written(hub, key, namespace, about, news, before)
}

/// The Event that pods of an object do not run in a cluster: one for each reason, whichever pod it is. `None`: it was told
/// lately.
pub fn stuck(
    hub: &Hub,
    workspace: &WorkspaceId,
    namespace: &str,
    about: &Reference,
    cluster: &str,
    news: &News,
) -> Result<Option<Write>, ObjectError> {
    let mut hasher = DefaultHasher::new();
    (&about.uid, cluster, news.1).hash(&mut hasher);
    let key = Key::new("", "events", namespace, &short_name(about, &hasher));
    let before = hub.store.get(workspace, &key);
    let last = before.as_ref().and_then(|before| {
        let tree = before.tree().ok()?;
        tree.get("lastTimestamp")?.as_str()?.parse::<Timestamp>().ok()
    });
    if last.is_some_and(|last| hub.now().duration_since(last) < REPEATED_AFTER) {
        return Ok(None);
    }
    written(hub, key, namespace, about, news, before).map(Some)
}

fn written(
    hub: &Hub,
    key: Key,
    namespace: &str,
    about: &Reference,
    news: &News,
    before: Option<Arc<Object>>,
) -> Result<Write, ObjectError> {
    let now = hub.now_text();
    let (kind, reason, message) = news;
    let message = &message[..message.floor_char_boundary(LONGEST)];
    let tree = match &before {
        Some(before) => {
            let mut tree = before.tree()?;
            let count = tree.get("count").and_then(Value::as_u64).unwrap_or(1);
            tree.insert("count".into(), json!(count.saturating_add(1)));
            tree.insert("message".into(), json!(message));
            tree.insert("lastTimestamp".into(), json!(now));
            tree
        }
        None => {
            let event = json!({
                "kind": "Event", "apiVersion": "v1",
                "metadata": {
                    "name": key.item.name(), "namespace": key.item.namespace(), "uid": hub.new_uid(),
                    "creationTimestamp": now,
                },
                "involvedObject": {
                    "kind": about.kind, "apiVersion": about.api_version,
                    "namespace": if about.is_in_namespace() { namespace } else { "" }, "name": about.name,
                    "uid": about.uid,
                },
                "reason": reason, "message": message, "type": kind, "count": 1,
                "firstTimestamp": now, "lastTimestamp": now, "eventTime": null,
                "source": {"component": "hanse-placement"}, "reportingComponent": "hanse-placement",
                "reportingInstance": "",
            });
            let Value::Object(tree) = event else { return Err(ObjectError::Missing("metadata")) };
            tree
        }
    };
    let change = Change::Put { draft: Draft::encode(&tree)?, expires: hub.now().checked_add(KEPT).ok() };
    Ok(Write { key, expect: before.map_or(Expect::Absent, |it| Expect::At(it.revision)), change })
}

#[cfg(test)]
mod tests {
    use api::assignment::{Spec, Status};

    use super::*;

    /// A Deployment in these clusters; a name that begins with `-` is draining.
    fn assignment(clusters: &[(&str, u64)], message: &str) -> Assignment {
        let targets = clusters.iter().map(|(name, replicas)| Target {
            name: name.trim_start_matches('-').into(),
            uid: name.trim_start_matches('-').into(),
            state: if name.starts_with('-') { State::Draining } else { State::Assigned },
            replicas: Some(*replicas),
            ..Target::default()
        });
        let object =
            Reference { api_version: "apps/v1".into(), kind: "Deployment".into(), ..Reference::default() };
        let mut spec = Spec { object, clusters: targets.collect(), ..Spec::default() };
        spec.decision.message = message.into();
        Assignment { spec, status: Status::default() }
    }

    fn told(old: &Assignment, new: &Assignment) -> Vec<String> {
        let told = news(Some(old), new, |uid| uid != "gone-1");
        told.into_iter().map(|(_, reason, message)| format!("{reason}: {message}")).collect()
    }

    #[test]
    fn only_news_is_told() {
        let first = assignment(&[("eu-1", 3)], "");
        assert_eq!(news(None, &first, |_| true), [("Normal", "Placed", "on eu-1 (3)".into())]);
        assert_eq!(told(&first, &first), [""; 0]);
        let nowhere = assignment(&[], "no cluster can have it");
        let unplaced = ("Warning", "Unplaced", "no cluster can have it".into());
        assert_eq!(news(None, &nowhere, |_| true), [unplaced]);
        assert_eq!(told(&nowhere, &nowhere), [""; 0]);
    }

    #[test]
    fn every_transition_has_its_reason() {
        let none: &[(&str, u64)] = &[];
        type Places<'a> = &'a [(&'a str, u64)];
        let rows: [(Places<'_>, Places<'_>, &[&str]); 8] = [
            (none, &[("eu-1", 3)], &["Placed: on eu-1 (3)"]),
            (&[("eu-1", 3)], &[("eu-1", 2), ("us-1", 1)], &["Placed: on eu-1 (2), us-1 (1)"]),
            (&[("eu-1", 3)], &[("-eu-1", 3), ("us-1", 3)], &["Moved: from eu-1 to us-1 (3)"]),
            (&[("-eu-1", 3), ("us-1", 3)], &[("us-1", 3)], &["Drained: nothing of it is left in eu-1"]),
            (&[("-eu-1", 3), ("us-1", 3)], &[("eu-1", 3), ("-us-1", 3)], &["Moved: from us-1 to eu-1 (3)"]),
            (&[("eu-1", 3)], &[("-eu-1", 3)], &["Draining: it is to be nowhere, and goes from eu-1"]),
            (&[("-eu-1", 3), ("us-1", 3)], &[("-eu-1", 3), ("us-1", 3)], &[]),
            (
                &[("gone-1", 3)],
                &[("us-1", 3)],
                &[
                    "Moved: from gone-1 to us-1 (3)",
                    "Unjoined: gone-1 is unjoined: what is left of it there is nobody's",
                ],
            ),
        ];
        for (old, new, expected) in rows {
            assert_eq!(told(&assignment(old, ""), &assignment(new, "")), expected, "{old:?} {new:?}");
        }
        let removed = removal(&assignment(&[("eu-1", 3)], "")).unwrap();
        assert_eq!(removed.1, "Removed");
        assert_eq!(removal(&assignment(none, "no cluster can have it")), None);
    }

    #[test]
    fn of_what_goes_along_only_trouble_is_told() {
        let along = |clusters: &[(&str, u64)], message: &str| {
            let mut assignment = assignment(clusters, message);
            (assignment.spec.object.api_version, assignment.spec.object.kind) =
                ("v1".into(), "ConfigMap".into());
            assignment.spec.clusters.iter_mut().for_each(|it| it.replicas = None);
            assignment
        };
        assert_eq!(told(&along(&[], ""), &along(&[("eu-1", 0)], "")), [""; 0]);
        assert_eq!(removal(&along(&[("eu-1", 0)], "")), None);
        assert_eq!(told(&along(&[], ""), &along(&[], "no")), ["Unplaced: no"]);
    }

    #[test]
    fn what_is_said_again_has_the_same_name() {
        let about = assignment(&[], "").spec.object;
        let placed: News = ("Normal", "Placed", "on eu-1 (3)".into());
        assert_eq!(name_of(&about, &placed), name_of(&about, &placed));
        assert_ne!(name_of(&about, &placed), name_of(&about, &("Normal", "Placed", "on eu-1 (2)".into())));
        let another = Reference { uid: "another".into(), ..about.clone() };
        assert_ne!(name_of(&about, &placed), name_of(&another, &placed));
    }
}
