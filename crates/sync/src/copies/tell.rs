//! Events on users' objects: that a member refused them, and why.

use std::{collections::HashMap, time::Duration};

use api::assignment::Report;
use http::Method;
use machinery::fnv::hash;
use parking_lot::Mutex;
use serde_json::json;
use server::space::Space;
use store::Key;

use super::{errand::Case, work::Errand};
use crate::{
    client::{JSON, MERGE},
    session::Session,
};

/// The same is not said again before.
const AGAIN_AFTER: Duration = Duration::from_secs(600);
/// More are forgotten, and said once more.
const MOST: usize = 10_000;

/// What members say when something of their own stands in the way, and what can be done about it. The first that is said
/// counts.
const ADVICE: [(&str, &str); 4] = [
    (
        "exceeded quota",
        "raise the ResourceQuota in the cluster or free some of it there, or have it run elsewhere by hanse.io/clusters",
    ),
    (
        "failed calling webhook",
        "the webhook does not answer: repair or remove it in the cluster, or have it run elsewhere by hanse.io/clusters",
    ),
    (
        "admission webhook",
        "change the object as the webhook of the cluster asks, or have it run elsewhere by hanse.io/clusters",
    ),
    (
        "ValidatingAdmissionPolicy",
        "change the object as the policy of the cluster asks, or have it run elsewhere by hanse.io/clusters",
    ),
];

/// What to do about a refusal, by the member's words; `None`: they say it themselves.
pub fn advice(said: &str) -> Option<&'static str> {
    ADVICE.iter().find(|(words, _)| said.contains(words)).map(|(_, advice)| *advice)
}

/// What was said, and when.
#[derive(Default)]
pub struct Told(Mutex<HashMap<Errand, (u64, Duration)>>);

impl Told {
    fn is_news(&self, errand: &Errand, said: &str, now: Duration) -> bool {
        let mut told = self.0.lock();
        let said = hash(said.as_bytes());
        if told.get(errand).is_some_and(|(before, at)| *before == said && now < *at + AGAIN_AFTER) {
            return false;
        }
        if told.len() >= MOST {
            told.retain(|_, (_, at)| now < *at + AGAIN_AFTER);
        }
        if told.len() >= MOST {
            told.clear();
        }
        told.insert(errand.clone(), (said, now));
        true
    }

    pub fn forget(&self, errand: &Errand) {
        self.0.lock().remove(errand);
    }
}

impl Session {
    /// Events are for people, who can do without: that one cannot be written holds up nothing.
    pub(super) async fn tell_refusal(&self, case: &Case, report: &Report) {
        let hub = &self.shared.hub;
        let said = format!("{}: {}", report.reason, report.message);
        if !self.copies.told.is_news(&case.errand, &said, hub.env.clock.elapsed()) {
            return;
        }
        let now = hub.now_text();
        let object = &case.assignment.spec.object;
        // Events about what is in no namespace are in this one.
        let (of_object, namespace) = match case.is_namespace || case.is_shared {
            true => ("", "default"),
            false => (case.namespace(), case.namespace()),
        };
        let short: String = object.name.chars().take(200).collect();
        // What is said again has the same name, so that it is counted.
        let said = hash(format!("{} {} {said}", object.uid, report.name).as_bytes());
        let name = format!("{short}.{said:016x}");
        let event = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": object.api_version, "kind": object.kind, "name": object.name,
                "namespace": of_object, "uid": object.uid,
            },
            "type": "Warning",
            "reason": report.reason,
            "message": format!("cluster {}: {}", report.name, report.message).chars().take(1000).collect::<String>(),
            "firstTimestamp": now, "lastTimestamp": now, "count": 1,
            "source": {"component": "hanse-sync", "host": report.name},
        });
        let path = format!("/api/v1/namespaces/{namespace}/events");
        let desk = &self.shared.desk;
        let mut told = desk.call(case.space.name(), Method::POST, &path, JSON, &event).await;
        if told.as_ref().is_err_and(|refused| refused.code == 409) {
            let path = format!("{path}/{name}");
            let key = Key::new("", "events", namespace, &name);
            let again = json!({"count": times_told(&case.space, &key) + 1, "lastTimestamp": now});
            told = desk.call(case.space.name(), Method::PATCH, &path, MERGE, &again).await;
        }
        if let Err(refused) = told {
            tracing::info!(cluster = %self.name(), %refused, "cannot write an event");
        }
    }
}

fn times_told(space: &Space, event: &Key) -> u64 {
    let told = space.get(event).and_then(|event| event.tree().ok()?.get("count")?.as_u64());
    told.unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use store::WorkspaceId;

    use super::*;

    #[test]
    fn what_stands_in_the_way_comes_with_what_to_do() {
        // As kube-apiserver words them.
        let rows = [
            (
                "deployments.apps \"web\" is forbidden: exceeded quota: strict, requested: count/deployments.apps=1",
                "ResourceQuota",
            ),
            (
                "admission webhook \"mondays.example.com\" denied the request: not on a Monday",
                "as the webhook",
            ),
            (
                "Internal error occurred: failed calling webhook \"mondays.example.com\": connection refused",
                "does not answer",
            ),
            (
                "ValidatingAdmissionPolicy 'few' with binding 'few' denied request: at most two replicas here",
                "as the policy",
            ),
        ];
        for (said, expected) in rows {
            assert!(advice(said).is_some_and(|it| it.contains(expected)), "{said}");
        }
        assert_eq!(advice("Deployment.apps \"web\" is invalid: spec.replicas: must not be negative"), None);
    }

    #[test]
    fn the_same_is_said_again_only_after_a_while() {
        let told = Told::default();
        let errand = Errand::new(&WorkspaceId("w".into()), "n", "a");
        let at = Duration::from_secs;
        assert!(told.is_news(&errand, "no", at(0)));
        assert!(!told.is_news(&errand, "no", at(10)));
        assert!(told.is_news(&errand, "never", at(20)), "it is something else");
        assert!(told.is_news(&errand, "never", at(20) + AGAIN_AFTER));
        told.forget(&errand);
        assert!(told.is_news(&errand, "never", at(30) + AGAIN_AFTER));
    }
}
