//! Pods of a member that none of its nodes takes: what a workload has no room for, however much there is by the sums.

use std::{
    collections::{BTreeSet, HashMap},
    convert::Infallible,
    time::Duration,
};

use compact_str::CompactString;
use kinds::running;
use machinery::selector::LabelSelector;
use serde_json::Value;

use crate::session::Session;

/// Between two looks, however many pods come and go.
const LEAST_PAUSE: Duration = Duration::from_millis(500);
/// A sleep when nothing waits to come of age.
const NO_PAUSE: Duration = Duration::from_secs(3600);

/// Those pods, by namespace and name.
#[derive(Default)]
pub struct Unscheduled {
    pods: HashMap<CompactString, HashMap<CompactString, Pod>>,
    /// All of them were listed.
    is_known: bool,
    /// Namespaces in which fewer wait than were counted.
    relieved: BTreeSet<CompactString>,
}

struct Pod {
    labels: Vec<(CompactString, CompactString)>,
    /// In seconds since 1970.
    since: i64,
    /// It has waited for long.
    counts: bool,
}

impl Unscheduled {
    /// All pods that there are, now that it is `now`: those that have waited for `after` seconds count at once, or it would
    /// seem for a moment that none does.
    pub fn replace(&mut self, mut listed: Unscheduled, now: i64, after: i64) {
        let before = std::mem::take(&mut self.pods);
        let counted = before.into_iter().filter(|(_, pods)| pods.values().any(|pod| pod.counts));
        let mut turned: BTreeSet<CompactString> = counted.map(|(namespace, _)| namespace).collect();
        turned.append(&mut listed.turn(now, after));
        turned.append(&mut self.relieved);
        *self = Unscheduled { is_known: true, relieved: turned, ..listed };
    }

    /// Whether something else waits than before.
    pub fn put(&mut self, namespace: &str, name: &str, object: &[u8]) -> bool {
        // Most pods have a node, and are not read for this.
        if memchr::memmem::find(object, b"\"Unschedulable\"").is_none() {
            return self.remove(namespace, name);
        }
        let Ok(pod) = serde_json::from_slice::<Value>(object) else { return false };
        let is_over = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let is_leaving = pod["metadata"]["deletionTimestamp"].is_string();
        let since = running::unschedulable_since(&pod).filter(|_| !is_over && !is_leaving);
        let Some(since) = since.filter(|_| pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty)) else {
            return self.remove(namespace, name);
        };
        let here = self.pods.entry(namespace.into()).or_default();
        if here.get(name).is_some_and(|known| known.since == since) {
            return false;
        }
        let labels = pod["metadata"]["labels"].as_object().into_iter().flatten();
        let labels = labels.map(|(key, value)| (key.into(), value.as_str().unwrap_or_default().into()));
        let pod = Pod { labels: labels.collect(), since, counts: false };
        if here.insert(name.into(), pod).is_some_and(|known| known.counts) {
            self.relieved.insert(namespace.into());
        }
        true
    }

    pub fn remove(&mut self, namespace: &str, name: &str) -> bool {
        let Some(here) = self.pods.get_mut(namespace) else { return false };
        let Some(removed) = here.remove(name) else { return false };
        if here.is_empty() {
            self.pods.remove(namespace);
        }
        if removed.counts {
            self.relieved.insert(namespace.into());
        }
        removed.counts
    }

    pub fn is_known_to_be_none(&self) -> bool {
        self.is_known && self.pods.is_empty()
    }

    /// The namespaces in which others count than before, now that it is `now`.
    fn turn(&mut self, now: i64, after: i64) -> BTreeSet<CompactString> {
        let mut turned = std::mem::take(&mut self.relieved);
        for (namespace, pods) in &mut self.pods {
            for pod in pods.values_mut().filter(|it| !it.counts && now.saturating_sub(it.since) > after) {
                pod.counts = true;
                turned.insert(namespace.clone());
            }
        }
        turned
    }

    /// In so many seconds the next of them will have waited for long.
    fn due_in(&self, now: i64, after: i64) -> Option<u64> {
        let young = self.pods.values().flat_map(HashMap::values).filter(|it| !it.counts);
        let left = |pod: &Pod| pod.since.saturating_add(after).saturating_add(1).saturating_sub(now);
        young.map(|pod| u64::try_from(left(pod)).unwrap_or(0)).min()
    }

    /// How many of a workload have waited for long; `None`: not known yet.
    pub fn count(&self, namespace: &str, selector: &LabelSelector) -> Option<u64> {
        let here = self.pods.get(namespace).into_iter().flat_map(HashMap::values);
        let waiting = here.filter(|pod| pod.counts && selector.matches(&pod.labels)).count();
        self.is_known.then_some(waiting as u64)
    }
}

impl Session {
    /// What time it is, and for how long pods may wait, in seconds.
    pub fn age(&self) -> (i64, i64) {
        let after = i64::try_from(self.shared.options.unschedulable_after.as_secs()).unwrap_or(i64::MAX);
        (self.shared.hub.now().as_second(), after)
    }

    /// Has workloads looked at whose pods have waited for long, or wait no longer.
    pub async fn watch_unscheduled(&self) -> Infallible {
        let clock = self.shared.hub.env.clock.clone();
        loop {
            let (now, after) = self.age();
            let turned = self.unscheduled.lock().turn(now, after);
            for namespace in turned {
                self.copies.look_in(&namespace);
            }
            let due = self.unscheduled.lock().due_in(now, after);
            let due = due.map_or(NO_PAUSE, Duration::from_secs);
            tokio::select! {
                () = self.waiting.notified() => {}
                () = clock.sleep(due) => {}
            }
            clock.sleep(LEAST_PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, node: &str, since: &str) -> Vec<u8> {
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": since,
        });
        json!({
            "metadata": {"namespace": "shop", "name": name, "labels": {"app": "web"}}, "spec": {"nodeName": node},
            "status": {"phase": "Pending", "conditions": if node.is_empty() { json!([condition]) } else { json!([]) }},
        })
        .to_string()
        .into_bytes()
    }

    #[test]
    fn pods_count_when_they_have_waited_for_long() {
        let web = LabelSelector::from_object(&json!({"matchLabels": {"app": "web"}})).unwrap();
        let other = LabelSelector::from_object(&json!({"matchLabels": {"app": "other"}})).unwrap();
        let mut waiting = Unscheduled::default();
        assert!(waiting.put("shop", "a", &pod("a", "", "1970-01-01T00:00:10Z")));
        assert!(!waiting.put("shop", "a", &pod("a", "", "1970-01-01T00:00:10Z")), "it is known");
        assert!(!waiting.put("shop", "b", &pod("b", "node", "")));
        assert_eq!(waiting.count("shop", &web), None, "there may be others");
        let mut listed = Unscheduled::default();
        listed.put("shop", "a", &pod("a", "", "1970-01-01T00:00:10Z"));
        waiting.replace(listed, 20, 60);
        assert_eq!((waiting.due_in(20, 60), waiting.turn(70, 60).len()), (Some(51), 0));
        assert_eq!(waiting.count("shop", &web), Some(0));
        assert_eq!(waiting.turn(71, 60).into_iter().collect::<Vec<_>>(), ["shop"]);
        assert_eq!((waiting.count("shop", &web), waiting.count("shop", &other)), (Some(1), Some(0)));
        assert_eq!(waiting.due_in(71, 60), None);
        assert!(waiting.put("shop", "a", &pod("a", "node", "")), "it has found one");
        assert_eq!(waiting.turn(72, 60).len(), 1);
        assert_eq!((waiting.count("shop", &web), waiting.is_known_to_be_none()), (Some(0), true));
        let mut listed = Unscheduled::default();
        listed.put("shop", "a", &pod("a", "", "1970-01-01T00:00:10Z"));
        waiting.replace(listed, 90, 60);
        assert_eq!(waiting.count("shop", &web), Some(1), "it has waited before");
    }

    /// Cases of federation and KubeFed: whether pods are waited for still, and what a cluster can hold by those that are not.
    #[test]
    fn capacity_is_found_as_in_federation() {
        const NOW: i64 = 4000;
        let web = LabelSelector::from_object(&json!({"matchLabels": {"app": "web"}})).unwrap();
        let ready = || pod("ready", "node", "");
        let pending =
            || br#"{"metadata": {"labels": {"app": "web"}}, "status": {"phase": "Pending"}}"#.to_vec();
        let (young, old) =
            (|| pod("young", "", "1970-01-01T01:06:30Z"), || pod("old", "", "1970-01-01T00:06:40Z"));
        let rows = [
            ("three ready, two for long", vec![ready(), ready(), ready(), old(), old()], 5, 2, Some(3)),
            ("pending without conditions", vec![pending()], 1, 0, None),
            ("ten seconds are not long", vec![young()], 1, 0, None),
            ("all ready", vec![ready(), ready()], 2, 0, None),
            ("one pending", vec![ready(), pending()], 2, 0, None),
            ("one without a node", vec![ready(), old()], 2, 1, Some(1)),
            ("more without a node than are wanted by now", vec![old(), old()], 1, 2, Some(0)),
        ];
        for (name, pods, wanted, waiting, capacity) in rows {
            let mut listed = Unscheduled::default();
            for (number, pod) in pods.iter().enumerate() {
                listed.put("shop", &number.to_string(), pod);
            }
            let mut unscheduled = Unscheduled::default();
            unscheduled.replace(listed, NOW, running::UNSCHEDULABLE_AFTER);
            let found = unscheduled.count("shop", &web);
            assert_eq!(found, Some(waiting), "{name}");
            let due = unscheduled.due_in(NOW, running::UNSCHEDULABLE_AFTER);
            assert_eq!(due.is_some(), name.starts_with("ten"), "{name}: it is looked at again");
            assert_eq!(running::capacity(wanted, waiting), capacity, "{name}");
        }
    }
}
