//! Which set is the newest: its making, its number, history, and going back.

use serde_json::{Value, json};

use super::{
    KIND, ROLLBACK, Work,
    sets::{DESIRED, HASH, HISTORY, MOST, REVISION, bare_template, by_revision, revision},
    status::Progress,
};
use crate::{
    Action,
    controllers::{
        replica_set::{min_ready, replicas},
        template,
    },
    kind, tree,
};

/// The list of revisions that a set has had may not be longer.
const HISTORY_LIMIT: usize = 2000;
const OWN: [&str; 6] =
    ["kubectl.kubernetes.io/last-applied-configuration", REVISION, HISTORY, DESIRED, MOST, ROLLBACK];

impl Work<'_> {
    /// Brings the newest set and its number in line; makes it if `make`. Says whether something was planned that must
    /// happen before anything else.
    pub(super) fn sync_revision(&mut self, make: bool) -> bool {
        let highest = self.sets.old.iter().filter_map(revision).max().unwrap_or(0);
        let next = highest.saturating_add(1);
        match self.sets.new.clone() {
            Some(set) => self.sync_existing(set, next),
            None if make => self.make_set(next),
            None => false,
        }
    }

    fn sync_existing(&mut self, set: Value, next: i64) -> bool {
        let annotations = annotations(self.deployment, Some(&set), next);
        let same_wait = min_ready(&set) == min_ready(self.deployment);
        if !same_wait || !tree::same(&set["metadata"]["annotations"], &annotations) {
            let mut set = set;
            set["metadata"]["annotations"] = annotations;
            set["spec"]["minReadySeconds"] = min_ready(self.deployment).into();
            self.plan.then(Action::Replace { kind: kind::REPLICA_SETS, object: set });
            return true;
        }
        let number = tree::annotation(&set, REVISION);
        if tree::annotation(self.deployment, REVISION) != number {
            let patch = json!({ "metadata": { "annotations": { REVISION: number } } });
            self.plan.then(Action::patch(KIND, self.deployment, patch));
            return true;
        }
        if self.has_deadline() && tree::condition(self.deployment, "Progressing").is_none() {
            let message = format!("Found new replica set \"{}\"", tree::name(&set));
            self.report_progress(&Progress::new("True", "FoundNewReplicaSet", message));
            return true;
        }
        false
    }

    fn make_set(&mut self, next: i64) -> bool {
        let (namespace, name) = (tree::namespace(self.deployment).to_owned(), self.name().to_owned());
        let refusal = self.world.refusal(KIND, &namespace, &name);
        if let Some(rest) = refusal.as_ref().and_then(|refusal| refusal.rest(self.world.now())) {
            self.plan.look_again(rest);
            if let Some(refusal) = refusal.filter(|refusal| refusal.fresh && !refusal.namespace_ends) {
                let set = self.new_set(next);
                let message =
                    format!("Failed to create new replica set \"{}\": {}", tree::name(&set), refusal.message);
                self.plan.warn(KIND, self.deployment, "ReplicaSetCreateError", message.as_str());
                if self.has_deadline() {
                    self.report_progress(&Progress::new("False", "ReplicaSetCreateError", message));
                }
            }
            return true;
        }
        let set = self.new_set(next);
        let set_name = tree::name(&set).to_owned();
        if self.world.get(kind::REPLICA_SETS, &namespace, &set_name).is_some() {
            self.count_collision();
            return true;
        }
        let size = replicas(&set);
        self.plan.then(Action::create(kind::REPLICA_SETS, set));
        if size > 0 {
            let message = format!("Scaled up replica set {set_name} from 0 to {size}");
            self.plan.note(KIND, self.deployment, "ScalingReplicaSet", message);
        }
        if self.has_deadline() {
            let message = format!("Created new replica set \"{set_name}\"");
            self.report_progress(&Progress::new("True", "NewReplicaSetCreated", message));
        }
        true
    }

    /// Another set has the name that the new one would get.
    fn count_collision(&mut self) {
        let mut status = self.deployment.get("status").cloned().unwrap_or_else(|| json!({}));
        let count = tree::number(self.deployment, "/status/collisionCount").unwrap_or(0);
        status["collisionCount"] = count.saturating_add(1).into();
        self.plan.set_status(KIND, self.deployment, status);
    }

    fn new_set(&self, next: i64) -> Value {
        let deployment = self.deployment;
        let mut template = deployment.pointer("/spec/template").cloned().unwrap_or_else(|| json!({}));
        let collisions = tree::number(deployment, "/status/collisionCount");
        let hash = template::hash(&bare_template(deployment), collisions);
        template["metadata"]["labels"][HASH] = hash.as_str().into();
        let mut selector = deployment.pointer("/spec/selector").cloned().unwrap_or_else(|| json!({}));
        selector["matchLabels"][HASH] = hash.as_str().into();
        json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {
                "name": template::name(tree::name(deployment), &hash),
                "namespace": tree::namespace(deployment),
                "labels": template["metadata"]["labels"],
                "annotations": annotations(deployment, None, next),
                "ownerReferences": [tree::controller_reference(KIND, deployment)],
            },
            "spec": {
                "replicas": self.size_of_new(0),
                "minReadySeconds": min_ready(deployment),
                "selector": selector,
                "template": template,
            },
        })
    }

    /// Deletes the oldest sets without pods beyond the limit of history.
    pub(super) fn clean_up(&mut self) {
        let limit = tree::number(self.deployment, "/spec/revisionHistoryLimit").unwrap_or(10);
        let mut sets: Vec<&Value> = self.sets.old.iter().filter(|set| !tree::is_deleting(set)).collect();
        let surplus = sets.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        sets.sort_by(|one, other| by_revision(one, other));
        let number = |set: &Value, pointer: &str| tree::number(set, pointer).unwrap_or(0);
        let is_idle = |set: &&&Value| {
            replicas(set) == 0
                && number(set, "/status/replicas") == 0
                && number(set, "/metadata/generation") <= number(set, "/status/observedGeneration")
        };
        for set in sets.iter().take(surplus).filter(is_idle) {
            self.plan.then(Action::delete(kind::REPLICA_SETS, set));
        }
    }

    /// Goes back to the template of a revision; 0 is the one before the newest.
    pub(super) fn roll_back(&mut self, to: i64) {
        if self.sync_revision(true) {
            return;
        }
        let mut numbers: Vec<i64> = self.sets.all().filter_map(revision).collect();
        numbers.sort_unstable_by(|one, other| other.cmp(one));
        let to = if to == 0 { numbers.get(1).copied().unwrap_or(0) } else { to };
        if to == 0 {
            return self.give_up_rollback(
                "DeploymentRollbackRevisionNotFound",
                "Unable to find last revision.".into(),
            );
        }
        let Some(set) = self.sets.all().find(|set| revision(set) == Some(to)).cloned() else {
            let message = "Unable to find the revision to rollback to.";
            return self.give_up_rollback("DeploymentRollbackRevisionNotFound", message.into());
        };
        if bare_template(&set) == bare_template(self.deployment) {
            let message = format!(
                "The rollback revision contains the same template as current deployment \"{}\"",
                self.name()
            );
            return self.give_up_rollback("DeploymentRollbackTemplateUnchanged", message);
        }
        let mut deployment = self.deployment.clone();
        deployment["spec"]["template"] = set.pointer("/spec/template").cloned().unwrap_or_default();
        if let Some(labels) =
            deployment.pointer_mut("/spec/template/metadata/labels").and_then(Value::as_object_mut)
        {
            labels.remove(HASH);
        }
        let own =
            tree::members(self.deployment, "/metadata/annotations").filter(|(key, _)| OWN.contains(key));
        let theirs = tree::members(&set, "/metadata/annotations").filter(|(key, _)| !OWN.contains(key));
        let annotations = own.chain(theirs).filter(|(key, _)| *key != ROLLBACK);
        deployment["metadata"]["annotations"] =
            annotations.map(|(key, value)| (key.to_owned(), value.clone())).collect();
        self.plan.then(Action::Replace { kind: KIND, object: deployment });
        let message = format!("Rolled back deployment \"{}\" to revision {to}", self.name());
        self.plan.note(KIND, self.deployment, "DeploymentRollback", message);
    }

    fn give_up_rollback(&mut self, reason: &'static str, message: String) {
        self.plan.warn(KIND, self.deployment, reason, message);
        let patch = json!({ "metadata": { "annotations": { ROLLBACK: null } } });
        self.plan.then(Action::patch(KIND, self.deployment, patch));
    }
}

/// What a set is annotated with: what its Deployment is, its revision and those it had before, and, when it is new,
/// what it is sized for.
fn annotations(deployment: &Value, set: Option<&Value>, next: i64) -> Value {
    let mut all =
        set.and_then(|set| set.pointer("/metadata/annotations")).cloned().unwrap_or_else(|| json!({}));
    for (key, value) in
        tree::members(deployment, "/metadata/annotations").filter(|(key, _)| !OWN.contains(key))
    {
        all[key] = value.clone();
    }
    let before = set.map_or("", |set| tree::annotation(set, REVISION));
    let number = match before {
        "" => 0,
        text => match text.parse::<i64>() {
            Ok(number) => number,
            Err(_) => return all,
        },
    };
    if number < next {
        all[REVISION] = next.to_string().into();
        if !before.is_empty() {
            let history = set.map_or("", |set| tree::annotation(set, HISTORY));
            all[HISTORY] = longer_history(history, before).into();
        }
    }
    if set.is_none() {
        let fence = super::Fence::of(deployment);
        all[DESIRED] = fence.replicas.to_string().into();
        all[MOST] = fence.most().to_string().into();
    }
    all
}

fn longer_history(history: &str, before: &str) -> String {
    if history.is_empty() {
        return before.to_owned();
    }
    let mut numbers: Vec<&str> = history.split(',').collect();
    let mut length = history.len() + before.len() + 1;
    while length > HISTORY_LIMIT && !numbers.is_empty() {
        length -= numbers.remove(0).len() + 1;
    }
    numbers.push(before);
    numbers.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_forgets_its_beginning() {
        assert_eq!(longer_history("", "3"), "3");
        assert_eq!(longer_history("1,3", "5"), "1,3,5");
        let long = (1000..1400).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
        let longer = longer_history(&long, "1400");
        assert!(longer.len() <= HISTORY_LIMIT && longer.starts_with("1001,") && longer.ends_with(",1400"));
    }
}
