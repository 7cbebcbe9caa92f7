//! Pods with numbers.

use std::ops::Range;

use serde_json::{Value, json};

use super::{KIND, REVISION, Work, claims};
use crate::{
    Action, Pod,
    controllers::{history, replica_set::replicas, template},
    kind, tree,
};

const NAME: &str = "statefulset.kubernetes.io/pod-name";
const INDEX: &str = "apps.kubernetes.io/pod-index";

/// The numbers that pods of a set should have.
pub struct Ordinals(Range<i64>);

impl Ordinals {
    pub fn of(set: &Value) -> Ordinals {
        let start = tree::number(set, "/spec/ordinals/start").unwrap_or(0);
        Ordinals(start..start.saturating_add(replicas(set)))
    }

    pub fn all(&self) -> Range<i64> {
        self.0.clone()
    }

    pub fn contain(&self, ordinal: i64) -> bool {
        self.0.contains(&ordinal)
    }
}

pub fn name(set: &Value, ordinal: i64) -> String {
    format!("{}-{ordinal}", tree::name(set))
}

/// The number in a pod's name, if it is one of `set`.
pub fn ordinal_in(set: &Value, pod: &str) -> Option<i64> {
    let digits = pod.strip_prefix(tree::name(set))?.strip_prefix('-')?;
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse::<i32>().ok().filter(|_| all_digits).map(i64::from)
}

impl Work<'_> {
    pub(super) fn make(&mut self, ordinal: i64) {
        let (namespace, set_name) = (tree::namespace(self.set), tree::name(self.set));
        let pod_name = name(self.set, ordinal);
        let refusal = self.world.refusal(KIND, namespace, set_name);
        if let Some(rest) = refusal.as_ref().and_then(|refusal| refusal.rest(self.world.now())) {
            self.plan.look_again(rest);
            if let Some(refusal) = refusal.filter(|refusal| refusal.fresh && !refusal.namespace_ends) {
                let message = format!(
                    "Create Pod {pod_name} in StatefulSet {set_name} failed error: {}",
                    refusal.message
                );
                self.plan.warn(KIND, self.set, "FailedCreate", message);
            }
            return;
        }
        if claims::are_stale(self.world, self.set, ordinal) || !self.make_claims(ordinal, &pod_name) {
            return;
        }
        self.plan.then(Action::create(kind::PODS, self.pod(ordinal, &pod_name)));
        let message = format!("Create Pod {pod_name} in StatefulSet {set_name} successful");
        self.plan.note(KIND, self.set, "SuccessfulCreate", message);
    }

    /// Below the partition pods keep the revision they had.
    fn pod(&self, ordinal: i64, pod_name: &str) -> Value {
        let partition = tree::number(self.set, "/spec/updateStrategy/rollingUpdate/partition");
        let kept = partition.unwrap_or_else(|| match tree::text(self.set, "/spec/updateStrategy/type") {
            "OnDelete" => 0,
            _ => tree::number(self.set, "/status/currentReplicas").unwrap_or(0),
        });
        let is_kept = ordinal < self.ordinals.all().start.saturating_add(kept);
        let revision = if is_kept { &self.revisions.current } else { &self.revisions.update };
        let mut pod = template::pod(&history::template(revision), KIND, self.set);
        if let Some(metadata) = pod["metadata"].as_object_mut() {
            metadata.insert("name".to_owned(), pod_name.into());
        }
        let labels = &mut pod["metadata"]["labels"];
        labels[NAME] = pod_name.into();
        labels[INDEX] = ordinal.to_string().into();
        labels[REVISION] = tree::name(revision).into();
        pod["spec"]["hostname"] = pod_name.into();
        let service = tree::text(self.set, "/spec/serviceName");
        if !service.is_empty() {
            pod["spec"]["subdomain"] = service.into();
        }
        pod["spec"]["volumes"] = claims::volumes(self.set, &pod, ordinal).into();
        pod
    }

    pub(super) fn set_identity(&mut self, ordinal: i64, pod: &Pod) {
        if pod.label(NAME) == Some(pod.name.as_str()) {
            return;
        }
        let labels = json!({ NAME: pod.name.as_str(), INDEX: ordinal.to_string() });
        self.plan.then(Action::Patch {
            kind: kind::PODS,
            namespace: pod.namespace.to_string(),
            name: pod.name.to_string(),
            patch: json!({ "metadata": { "uid": pod.uid.as_str(), "labels": labels } }),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_number_is_what_follows_the_name_of_its_set() {
        let set = json!({ "metadata": { "name": "web" } });
        let table = [
            ("web-0", Some(0)),
            ("web-17", Some(17)),
            ("web", None),
            ("web-", None),
            ("web-a", None),
            ("web-+1", None),
            ("other-1", None),
            ("web-99999999999", None),
        ];
        for (pod, expected) in table {
            assert_eq!(ordinal_in(&set, pod), expected, "{pod}");
        }
    }
}
