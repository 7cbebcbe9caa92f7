//! Events on objects: where they were placed, or why not. They are committed with what they tell of.

use api::assignment::{Assignment, Reference, State};
use jiff::SignedDuration;
use machinery::{Draft, object::ObjectError};
use serde_json::{Value, json};
use server::Hub;
use store::{Change, Expect, Key, Write};

/// As long as events are kept.
const KEPT: SignedDuration = SignedDuration::from_hours(1);
/// So many clusters are named.
const NAMED: usize = 8;
/// The longest message that the API takes.
const LONGEST: usize = 1000;

/// What is to be told of a decision, as type, reason and message; `None`: nothing that would be news.
pub fn news(old: Option<&Assignment>, new: &Assignment) -> Option<(&'static str, &'static str, String)> {
    let decision = &new.spec.decision;
    let before = old.map_or("", |old| old.spec.decision.message.as_str());
    if !decision.message.is_empty() && decision.message != before {
        let reason = if new.spec.clusters.is_empty() { "Unplaced" } else { "Pending" };
        let refused = decision.verdicts.iter().filter(|it| !it.feasible && !it.message.is_empty());
        let found: Vec<String> =
            refused.take(NAMED).map(|it| format!("{}: {}", it.cluster, it.message)).collect();
        let about = if found.is_empty() { String::new() } else { format!(" ({})", found.join("; ")) };
        return Some(("Warning", reason, format!("{}{about}", decision.message)));
    }
    // Only what has replicas: others go with them.
    let counted = new.spec.clusters.iter().any(|target| target.replicas.is_some());
    let (was, is) = (old.map(places).unwrap_or_default(), places(new));
    (counted && is != was).then(|| ("Normal", "Placed", format!("on {is}")))
}

/// A deletion cannot come to its end while clusters do not answer.
pub fn waits_for(clusters: &[&str]) -> (&'static str, &'static str, String) {
    let names = clusters.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    let message = format!(
        "it is deleted when nothing of it is left in {names}, which cannot be used now; if that is gone for good, \
         `hanse unjoin {} --forget` lets go of it",
        clusters.first().copied().unwrap_or("NAME")
    );
    ("Warning", "WaitingForCluster", message)
}

fn places(assignment: &Assignment) -> String {
    let staying: Vec<_> = assignment.spec.clusters.iter().filter(|it| it.state != State::Draining).collect();
    let name = |target: &&api::assignment::Target| match target.replicas {
        Some(replicas) => format!("{} ({replicas})", target.name),
        None => target.name.clone(),
    };
    let mut text = staying.iter().take(NAMED).map(name).collect::<Vec<_>>().join(", ");
    if staying.len() > NAMED {
        text.push_str(&format!(" and {} more", staying.len() - NAMED));
    }
    text
}

pub fn event(
    hub: &Hub,
    namespace: &str,
    about: &Reference,
    (kind, reason, message): (&str, &str, String),
) -> Result<Write, ObjectError> {
    let (now, uid) = (hub.now_text(), hub.new_uid());
    let short: String = about.name.chars().take(200).collect();
    let name = format!("{short}.{}", uid.get(..8).unwrap_or("0"));
    let message = &message[..message.floor_char_boundary(LONGEST)];
    // Events about what is in no namespace are in this one.
    let is_namespace = about.kind == "Namespace" && about.group().is_empty();
    let (namespace, of_object) = if is_namespace { ("default", "") } else { (namespace, namespace) };
    let event = json!({
        "kind": "Event", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": now},
        "involvedObject": {
            "kind": about.kind, "apiVersion": about.api_version, "namespace": of_object, "name": about.name,
            "uid": about.uid,
        },
        "reason": reason, "message": message, "type": kind, "count": 1,
        "firstTimestamp": now, "lastTimestamp": now, "eventTime": null,
        "source": {"component": "hanse-placement"}, "reportingComponent": "hanse-placement", "reportingInstance": "",
    });
    let Value::Object(tree) = event else { return Err(ObjectError::Missing("metadata")) };
    let change = Change::Put { draft: Draft::encode(&tree)?, expires: hub.now().checked_add(KEPT).ok() };
    Ok(Write { key: Key::new("", "events", namespace, &name), expect: Expect::Absent, change })
}

#[cfg(test)]
mod tests {
    use api::assignment::{Spec, Status, Target};

    use super::*;

    fn assignment(clusters: &[(&str, u64)], message: &str) -> Assignment {
        let targets = clusters.iter().map(|(name, replicas)| Target {
            name: (*name).into(),
            replicas: Some(*replicas),
            ..Target::default()
        });
        let mut spec = Spec { clusters: targets.collect(), ..Spec::default() };
        spec.decision.message = message.into();
        Assignment { spec, status: Status::default() }
    }

    #[test]
    fn only_news_is_told() {
        let (first, second) = (assignment(&[("eu-1", 3)], ""), assignment(&[("eu-1", 2), ("us-1", 1)], ""));
        assert_eq!(news(None, &first), Some(("Normal", "Placed", "on eu-1 (3)".into())));
        assert_eq!(news(Some(&first), &first), None);
        assert_eq!(news(Some(&first), &second), Some(("Normal", "Placed", "on eu-1 (2), us-1 (1)".into())));
        let nowhere = assignment(&[], "no cluster can have it");
        assert_eq!(news(None, &nowhere), Some(("Warning", "Unplaced", "no cluster can have it".into())));
        assert_eq!(news(Some(&nowhere), &nowhere), None);
    }
}
