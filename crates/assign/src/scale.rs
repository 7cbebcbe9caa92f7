//! Replicas that autoscalers of members decide, on the object itself.
//!
//! A member's autoscaler scales the copy beside it. The object says the sum of what they want, written as an autoscaler
//! would write it: by the subresource `scale`, with a field manager of its own.
//!
//! That does not go round in circles. Replicas are sent to a copy when it is made and not after that, and the bounds of the
//! members' autoscalers come from the autoscaler of the workspace: so what is written here changes nothing that is summed up
//! here. Only a cluster that is new to the object does, and those it has already keep what they have.

use std::collections::{BTreeMap, BTreeSet};

use api::assignment::{Assignment, State, Strategy, Target};
use kinds::split::bounds::Local;
use machinery::{Object, object::ObjectError};
use serde_json::{Value, json};
use server::{
    desk::{Desk, Refused},
    space::Space,
};
use store::{Collection, Key};

use crate::{queue::Id, world::World};

/// Whose the replicas are.
pub const MANAGER: &str = "hanse-autoscaler";
const MERGE: &str = "application/merge-patch+json";

/// What is to be written.
#[derive(Debug, PartialEq, Eq)]
pub struct Scale {
    workspace: String,
    path: String,
    revision: String,
    replicas: u64,
}

pub fn is_autoscaler(key: &Key) -> bool {
    key.collection == Collection::new("autoscaling", "horizontalpodautoscalers")
}

/// `None`: the target is as its autoscalers want it, or not all of them have said what they want.
pub fn wanted(world: &World, id: &Id) -> Result<Option<Scale>, ObjectError> {
    let Some(space) = world.hub.space_by_id(&id.workspace) else { return Ok(None) };
    let Some(autoscaler) = space.get(&id.key).filter(|it| !it.head.deleting) else { return Ok(None) };
    let Some(stored) = space.get(&id.assignment()) else { return Ok(None) };
    let reference =
        autoscaler.tree()?.get("spec").map(|spec| spec["scaleTargetRef"].clone()).unwrap_or_default();
    let Some((key, path)) = target_of(world, &space, id.realm(), &reference) else { return Ok(None) };
    let Some(target) = space.get(&key).filter(|it| !it.head.deleting) else { return Ok(None) };
    let Some(of_target) = space.get(&Id::new(&id.workspace, &key).assignment()) else { return Ok(None) };
    let readings = &world.hub.assignments;
    let (own, of_target) = (readings.read(&stored)?, readings.read(&of_target)?);
    let Some(replicas) = sum(&autoscaler, &own, &of_target) else { return Ok(None) };
    let kind = reference["kind"].as_str().unwrap_or_default();
    let kind = world.kind(&space, &key.collection, key.collection.parts().0, kind);
    let now = kind.wanted(&Value::Object(target.tree()?));
    // As in Kubernetes, what was scaled to nothing is not autoscaled.
    let is_due = now.is_some_and(|now| now != 0 && now != replicas);
    let (workspace, revision) = (space.name().to_owned(), target.revision.to_string());
    Ok(is_due.then_some(Scale { workspace, path, revision, replicas }))
}

/// What the autoscalers of those clusters do that can be asked, by which their bounds move; `now` is in seconds since 1970.
pub fn locals(assignment: &Assignment, is_ready: impl Fn(&str) -> bool, now: i64) -> BTreeMap<String, Local> {
    let read = |target: &Target| {
        let report = assignment.report(&target.uid).filter(|it| it.applied)?;
        let spec = json!({"minReplicas": target.min?, "maxReplicas": target.max?});
        let local = Local::read(&json!({"spec": spec, "status": report.status}), now);
        Some((target.name.clone(), local))
    };
    let staying = assignment.spec.clusters.iter().filter(|it| it.state != State::Draining);
    staying.filter(|it| is_ready(&it.name)).filter_map(read).collect()
}

/// Where the target of an autoscaler is, and where it is scaled.
fn target_of(world: &World, space: &Space, namespace: &str, reference: &Value) -> Option<(Key, String)> {
    let served = world.hub.served(space);
    let (version, name) = (reference["apiVersion"].as_str()?, reference["name"].as_str()?);
    let resource = served.registry.find_kind(version, reference["kind"].as_str()?)?;
    let root = if version.contains('/') { "/apis" } else { "/api" };
    let path = format!("{root}/{version}/namespaces/{namespace}/{}/{name}/scale", resource.plural);
    Some((Key::new(&resource.stored_group, &resource.plural, namespace, name), path))
}

/// What the autoscalers of all clusters that have the target want together; `None`: it is not known of all of them.
fn sum(autoscaler: &Object, own: &Assignment, of_target: &Assignment) -> Option<u64> {
    let staying = |it: &Assignment| -> Vec<Target> {
        it.spec.clusters.iter().filter(|it| it.state != State::Draining).cloned().collect()
    };
    let uids = |targets: &[Target]| targets.iter().map(|it| it.uid.clone()).collect::<BTreeSet<String>>();
    let clusters = staying(own);
    if clusters.is_empty() || uids(&clusters) != uids(&staying(of_target)) {
        return None;
    }
    let wishes: Option<Vec<u64>> = clusters.iter().map(|target| wish(autoscaler, own, target)).collect();
    let wishes = wishes?;
    match of_target.spec.decision.strategy {
        // Each cluster has all of it: they agree, or there is nothing to say.
        Some(Strategy::Duplicate) if clusters.len() > 1 => {
            wishes.iter().all(|it| *it == wishes[0]).then_some(wishes[0])
        }
        _ => Some(wishes.into_iter().fold(0, u64::saturating_add)),
    }
}

/// What the autoscaler of a cluster wants, once it has looked at what it is now.
fn wish(autoscaler: &Object, own: &Assignment, target: &Target) -> Option<u64> {
    let report = own.report(&target.uid).filter(|it| it.applied)?;
    let status = &report.status;
    let has_looked = status["observedGeneration"].as_i64().is_none_or(|it| it >= report.copy_generation);
    let is_current = report.generation >= autoscaler.head.generation;
    status["desiredReplicas"].as_u64().filter(|it| *it > 0 && has_looked && is_current)
}

impl Scale {
    /// Writes it, if the object is still what was looked at.
    pub async fn write(&self, desk: &Desk) -> Result<Value, Refused> {
        let body =
            json!({"metadata": {"resourceVersion": self.revision}, "spec": {"replicas": self.replicas}});
        desk.call(&self.workspace, http::Method::PATCH, &self.path, MERGE, &body).await
    }
}

#[cfg(test)]
mod tests {
    use api::assignment::{Report, Spec, Status};
    use kinds::split::bounds::Bounds;
    use machinery::{Draft, EventType, Revision};

    use super::*;

    fn autoscaler(generation: i64) -> Object {
        let tree = json!({
            "kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2",
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "generation": generation},
        });
        let tree = tree.as_object().cloned().unwrap_or_default();
        Draft::encode(&tree).unwrap().seal(Revision::default(), EventType::Added)
    }

    fn assigned(clusters: &[&str]) -> Assignment {
        let target = |name: &&str| Target { name: (*name).into(), uid: (*name).into(), ..Target::default() };
        Assignment {
            spec: Spec { clusters: clusters.iter().map(target).collect(), ..Spec::default() },
            ..Assignment::default()
        }
    }

    fn reported(mut assignment: Assignment, wishes: &[(&str, u64)]) -> Assignment {
        let report = |(name, desired): &(&str, u64)| Report {
            name: (*name).into(),
            uid: (*name).into(),
            generation: 2,
            copy_generation: 5,
            applied: true,
            status: json!({"observedGeneration": 5, "desiredReplicas": desired}),
            ..Report::default()
        };
        assignment.status = Status { clusters: wishes.iter().map(report).collect() };
        assignment
    }

    #[test]
    fn the_object_says_what_all_autoscalers_want_once_all_have_spoken() {
        let of_target = assigned(&["eu", "us"]);
        let own = |wishes: &[(&str, u64)]| reported(assigned(&["eu", "us"]), wishes);
        assert_eq!(sum(&autoscaler(2), &own(&[("eu", 3), ("us", 4)]), &of_target), Some(7));
        assert_eq!(sum(&autoscaler(2), &own(&[("eu", 3)]), &of_target), None, "one has not spoken");
        assert_eq!(
            sum(&autoscaler(2), &own(&[("eu", 3), ("us", 0)]), &of_target),
            None,
            "nor has who wants nothing"
        );
        assert_eq!(
            sum(&autoscaler(3), &own(&[("eu", 3), ("us", 4)]), &of_target),
            None,
            "it was changed since"
        );
        let alone = reported(assigned(&["eu"]), &[("eu", 3)]);
        assert_eq!(sum(&autoscaler(2), &alone, &of_target), None, "one cluster has no autoscaler yet");
        let mut leaving = of_target.clone();
        leaving.spec.clusters[1].state = State::Draining;
        assert_eq!(sum(&autoscaler(2), &alone, &leaving), Some(3), "what leaves does not count");
    }

    #[test]
    fn bounds_move_by_what_clusters_say_that_can_be_asked() {
        let mut own = reported(assigned(&["eu", "us", "far"]), &[("eu", 5), ("us", 1), ("far", 1)]);
        for target in &mut own.spec.clusters {
            (target.min, target.max) = (Some(1), Some(5));
        }
        own.spec.clusters[1].state = State::Draining;
        own.status.clusters[0].status =
            json!({"currentReplicas": 5, "desiredReplicas": 5, "lastScaleTime": "1970-01-01T00:01:40Z"});
        let found = locals(&own, |name| name != "far", 130);
        let expected = Local { bounds: Bounds { min: 1, max: 5 }, current: 5, desired: 5, scaled: Some(30) };
        assert_eq!(found, BTreeMap::from([("eu".to_owned(), expected)]));
        assert_eq!((expected.settles_in(120), expected.settles_in(30)), (Some(90), None));
    }

    #[test]
    fn what_is_duplicated_is_scaled_where_all_agree() {
        let mut of_target = assigned(&["eu", "us"]);
        of_target.spec.decision.strategy = Some(Strategy::Duplicate);
        let own = |wishes: &[(&str, u64)]| reported(assigned(&["eu", "us"]), wishes);
        assert_eq!(sum(&autoscaler(2), &own(&[("eu", 3), ("us", 3)]), &of_target), Some(3));
        assert_eq!(sum(&autoscaler(2), &own(&[("eu", 3), ("us", 4)]), &of_target), None);
    }
}
