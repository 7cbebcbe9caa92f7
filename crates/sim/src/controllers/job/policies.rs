//! Policies: which failures count, which end the Job, and which successes are enough.

use serde_json::Value;

use super::{Verdict, Work, indexes::Indexes};
use crate::{Pod, tree};

const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";

/// What a failure policy says of a failed pod.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Counts,
    Ignored,
    FailsIndex,
    FailsJob(String),
}

impl Work<'_> {
    fn outcome(&self, pod: &Pod) -> Outcome {
        match self.job.pointer("/spec/podFailurePolicy") {
            Some(policy) => outcome(policy, &self.tree(pod)),
            None => Outcome::Counts,
        }
    }

    pub(super) fn failure_counts(&self, pod: &Pod) -> bool {
        self.outcome(pod) != Outcome::Ignored
    }

    /// The failure that ends the Job, if there is one.
    pub(super) fn failure_by_policy(&self) -> Option<String> {
        self.job.pointer("/spec/podFailurePolicy")?;
        let failed = self.pods.iter().filter(|pod| self.has_failed(pod));
        failed.map(|pod| self.outcome(pod)).find_map(|outcome| match outcome {
            Outcome::FailsJob(message) => Some(message),
            _ => None,
        })
    }

    /// This failure is the last that its index has.
    pub(super) fn index_fails(&self, pod: &Pod, limit: i64) -> bool {
        if !self.has_failed(pod) {
            return false;
        }
        match self.outcome(pod) {
            Outcome::FailsIndex => true,
            Outcome::Ignored => false,
            _ => tree::annotation(&self.tree(pod), FAILURES).parse::<i64>().unwrap_or(0) >= limit,
        }
    }

    pub(super) fn success_by_policy(&self, completions: i64) -> Option<Verdict> {
        if self.succeeded.is_empty() {
            return None;
        }
        let holds = |rule: &Value| {
            let count = tree::number(rule, "/succeededCount");
            let Some(text) = rule.get("succeededIndexes").and_then(Value::as_str) else {
                return count.is_some_and(|count| self.succeeded.total() >= count);
            };
            let required = Indexes::parse(text, completions);
            let done = required.common(&self.succeeded);
            !required.is_empty() && (done == required.total() || count.is_some_and(|count| done >= count))
        };
        let at = tree::items(self.job, "/spec/successPolicy/rules").position(holds)?;
        Some(Verdict::success("SuccessPolicy", format!("Matched rules at index {at}")))
    }
}

fn outcome(policy: &Value, pod: &Value) -> Outcome {
    for (at, rule) in tree::items(policy, "/rules").enumerate() {
        let action = tree::text(rule, "/action");
        let why = match (rule.get("onExitCodes"), rule.get("onPodConditions")) {
            (Some(codes), _) => by_exit_code(codes, pod),
            (None, Some(_)) => by_condition(rule, pod),
            _ => None,
        };
        let Some(why) = why else { continue };
        match action {
            "Ignore" => return Outcome::Ignored,
            "FailIndex" => return Outcome::FailsIndex,
            "Count" => return Outcome::Counts,
            "FailJob" => return Outcome::FailsJob(format!("{why} matching FailJob rule at index {at}")),
            _ => {}
        }
    }
    Outcome::Counts
}

fn by_exit_code(codes: &Value, pod: &Value) -> Option<String> {
    let named = codes.get("containerName").and_then(Value::as_str);
    let containers = tree::items(pod, "/status/containerStatuses");
    let mut ended =
        containers.chain(tree::items(pod, "/status/initContainerStatuses")).filter_map(|status| {
            let code = tree::number(status, "/state/terminated/exitCode").filter(|code| *code != 0)?;
            Some((tree::text(status, "/name"), code))
        });
    let matches = |(name, code): &(&str, i64)| {
        let is_listed = tree::items(codes, "/values").any(|value| value.as_i64() == Some(*code));
        let fits = match tree::text(codes, "/operator") {
            "In" => is_listed,
            "NotIn" => !is_listed,
            _ => false,
        };
        fits && named.is_none_or(|named| named == *name)
    };
    let (container, code) = ended.find(matches)?;
    let (namespace, name) = (tree::namespace(pod), tree::name(pod));
    Some(format!("Container {container} for pod {namespace}/{name} failed with exit code {code}"))
}

fn by_condition(rule: &Value, pod: &Value) -> Option<String> {
    let condition = tree::items(pod, "/status/conditions").find(|condition| {
        tree::items(rule, "/onPodConditions").any(|pattern| {
            let same = |at: &str| tree::text(pattern, at) == tree::text(condition, at);
            same("/type") && same("/status")
        })
    })?;
    let (namespace, name) = (tree::namespace(pod), tree::name(pod));
    Some(format!("Pod {namespace}/{name} has condition {}", tree::text(condition, "/type")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_rule_that_fits_decides() {
        let policy = json!({ "rules": [
            { "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] },
            { "action": "FailJob", "onExitCodes": { "containerName": "main", "operator": "In", "values": [42] } },
            { "action": "FailIndex", "onExitCodes": { "operator": "In", "values": [7] } },
            { "action": "Count", "onExitCodes": { "operator": "NotIn", "values": [1] } },
        ] });
        let exits = |container: &str, code: i64| {
            json!({
                "metadata": { "namespace": "n", "name": "p" },
                "status": { "containerStatuses": [
                    { "name": container, "state": { "terminated": { "exitCode": code } } }] },
            })
        };
        let disrupted =
            json!({ "status": { "conditions": [{ "type": "DisruptionTarget", "status": "True" }] } });
        let message = "Container main for pod n/p failed with exit code 42 matching FailJob rule at index 1";
        let table = [
            (disrupted, Outcome::Ignored),
            (exits("main", 42), Outcome::FailsJob(message.to_owned())),
            (exits("other", 42), Outcome::Counts),
            (exits("main", 7), Outcome::FailsIndex),
            (exits("main", 1), Outcome::Counts),
            (exits("main", 0), Outcome::Counts),
        ];
        for (pod, expected) in table {
            assert_eq!(outcome(&policy, &pod), expected, "{pod}");
        }
    }
}
