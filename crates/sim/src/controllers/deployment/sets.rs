//! The ReplicaSets of a Deployment, and the numbers between which a rollout moves.

use std::cmp::Ordering;

use serde_json::Value;

use crate::{
    controllers::{replica_set::replicas, share::share, template},
    tree,
};

pub const REVISION: &str = "deployment.kubernetes.io/revision";
pub const HISTORY: &str = "deployment.kubernetes.io/revision-history";
pub const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
pub const MOST: &str = "deployment.kubernetes.io/max-replicas";
pub const HASH: &str = "pod-template-hash";

/// How many pods there should be, and how far a rollout may go above and below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    pub replicas: i64,
    pub surge: i64,
    pub unavailable: i64,
}

impl Fence {
    pub fn of(deployment: &Value) -> Fence {
        let replicas = replicas(deployment);
        if !is_rolling(deployment) {
            return Fence { replicas, surge: 0, unavailable: 0 };
        }
        let of = |field: &str, up: bool| {
            let value =
                deployment.pointer("/spec/strategy/rollingUpdate").and_then(|rolling| rolling.get(field));
            share(value, replicas, up).unwrap_or(0)
        };
        let (surge, mut unavailable) = (of("maxSurge", true), of("maxUnavailable", false));
        // Both may round to none: surging may be impossible because of a quota, so one is given up.
        if surge == 0 && unavailable == 0 {
            unavailable = 1;
        }
        Fence { replicas, surge, unavailable: unavailable.min(replicas) }
    }

    pub fn least_available(&self) -> i64 {
        self.replicas - self.unavailable
    }

    pub fn most(&self) -> i64 {
        self.replicas + self.surge
    }
}

pub fn is_rolling(deployment: &Value) -> bool {
    tree::text(deployment, "/spec/strategy/type") != "Recreate"
}

/// The set with the Deployment's template, and all others, oldest first.
pub struct Sets {
    pub new: Option<Value>,
    pub old: Vec<Value>,
}

impl Sets {
    pub fn of(deployment: &Value, mut sets: Vec<Value>) -> Sets {
        sets.sort_by(by_age);
        let template = bare_template(deployment);
        let new = sets.iter().position(|set| bare_template(set) == template);
        let new = new.map(|at| sets.remove(at));
        Sets { new, old: sets }
    }

    /// All, the new one last.
    pub fn all(&self) -> impl Iterator<Item = &Value> {
        self.old.iter().chain(&self.new)
    }

    /// Of all sets together.
    pub fn total(&self, pointer: &str) -> i64 {
        self.all().map(|set| tree::number(set, pointer).unwrap_or(0)).sum()
    }

    /// Some set that has pods was last sized for another number of replicas.
    pub fn were_scaled(&self, to: i64) -> bool {
        let sized_for = |set: &Value| tree::annotation(set, DESIRED).parse::<u32>().ok().map(i64::from);
        self.all().filter(|set| is_active(set)).any(|set| sized_for(set).is_some_and(|size| size != to))
    }

    /// The one set that has pods; if none has, the new one or the youngest.
    pub fn active_or_latest(&self) -> Option<&Value> {
        let mut active = self.all().filter(|set| is_active(set));
        match (active.next(), active.next()) {
            (None, _) => self.new.as_ref().or(self.old.last()),
            (only, None) => only,
            _ => None,
        }
    }
}

/// It has pods, or should.
pub fn is_active(set: &Value) -> bool {
    replicas(set) > 0
}

pub fn bare_template(object: &Value) -> Value {
    let mut template = object.pointer("/spec/template").cloned().unwrap_or_default();
    if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(HASH);
    }
    template::pruned(&template)
}

pub fn revision(object: &Value) -> Option<i64> {
    match tree::annotation(object, REVISION) {
        "" => Some(0),
        text => text.parse().ok(),
    }
}

/// Oldest first.
pub fn by_age(one: &Value, other: &Value) -> Ordering {
    let key = |set: &Value| tree::time(set, "/metadata/creationTimestamp");
    key(one).cmp(&key(other)).then_with(|| tree::name(one).cmp(tree::name(other)))
}

pub fn by_revision(one: &Value, other: &Value) -> Ordering {
    // What has no readable revision is as old as the first one.
    let key = |set: &Value| revision(set).unwrap_or(0);
    key(one).cmp(&key(other)).then_with(|| by_age(one, other))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_fences_never_are_at_the_same_place() {
        let table = [
            (10, json!("25%"), json!("25%"), (3, 2)),
            (1, json!("25%"), json!("25%"), (1, 0)),
            (2, json!(0), json!("1%"), (0, 1)),
            (3, json!(0), json!(5), (0, 3)),
            (0, json!("25%"), json!("25%"), (0, 0)),
        ];
        for (replicas, surge, unavailable, expected) in table {
            let rolling = json!({ "maxSurge": surge, "maxUnavailable": unavailable });
            let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": rolling });
            let fence = Fence::of(&json!({ "spec": { "replicas": replicas, "strategy": strategy } }));
            assert_eq!((fence.surge, fence.unavailable), expected, "{replicas} {strategy}");
        }
    }
}
