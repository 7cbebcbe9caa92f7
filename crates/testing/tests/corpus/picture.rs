//! What can be seen of an application at rest, one line for each object, without what each cluster chooses by itself.
//!
//! Every kind is judged in the same way: how it does by the rules of crate `kinds`, and what its status says.

use std::{collections::BTreeMap, fmt};

use kinds::Health;
use serde_json::Value;

use super::api::text;

/// What, and how it does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture(pub BTreeMap<String, String>);

/// Not compared: words for people, and what is different in every cluster.
const LEFT_OUT: [&str; 5] =
    ["message", "collisionCount", "currentRevision", "updateRevision", "observedGeneration"];

impl Picture {
    /// An object of the bundle whose namespace is `home`; nothing, if it is not there.
    pub fn add(&mut self, wanted: &Value, found: Option<&Value>, home: &str) {
        let state = found.map_or_else(|| "absent".to_owned(), state);
        self.0.insert(title(wanted, home), state);
    }

    /// Objects that controllers made: counted by who is behind them, or by name if nobody is. `between`: those that may
    /// stand between.
    pub fn add_made(&mut self, made: &[Value], between: &[Value], home: &str) {
        let mut counts: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
        for object in made {
            let Some(owner) = owner(object, between) else {
                self.add(object, Some(object), home);
                continue;
            };
            let place = place(object, home);
            let group = format!("{}s of {owner}{place}", text(object, "/kind"));
            let state = if object["kind"] == "Pod" { state(object) } else { health(object).to_owned() };
            *counts.entry(group).or_default().entry(state).or_default() += 1;
        }
        for (group, states) in counts {
            let states: Vec<String> =
                states.iter().map(|(state, count)| format!("{count} × {state}")).collect();
            self.0.insert(group, states.join(", "));
        }
    }

    /// What an object holds, where that is what it is for. Of secrets only what they are secrets of.
    pub fn add_content(&mut self, object: &Value, home: &str) {
        let content = match text(object, "/kind") {
            "ConfigMap" => told(&object["data"]),
            "Secret" => {
                let keys = object["data"].as_object().map(|it| it.keys());
                keys.map(|keys| keys.map(|it| without_uids(it)).collect::<Vec<_>>().join(" "))
            }
            "Service" => told(&object["spec"]["selector"]),
            _ => None,
        };
        if let (Some(content), Some(line)) = (content, self.0.get_mut(&title(object, home))) {
            *line = format!("{line}; {content}");
        }
    }

    /// How many endpoints the Services have, by all of their slices.
    pub fn add_endpoints(&mut self, slices: &[Value], home: &str) {
        let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for slice in slices {
            let service = text(slice, "/metadata/labels/kubernetes.io~1service-name");
            let (ready, others) =
                counts.entry(format!("endpoints of Service {service}{}", place(slice, home))).or_default();
            for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
                match endpoint["conditions"]["ready"] == false {
                    true => *others += 1,
                    false => *ready += 1,
                }
            }
        }
        for (title, (ready, others)) in counts.into_iter().filter(|(_, count)| *count != (0, 0)) {
            self.0.insert(title, format!("{ready} ready, {others} not"));
        }
    }

    /// Where this differs from what is expected, one line each.
    pub fn differences(&self, expected: &Picture) -> Vec<String> {
        let absent = "absent".to_owned();
        let keys: std::collections::BTreeSet<&String> = self.0.keys().chain(expected.0.keys()).collect();
        let pair =
            |key: &String| (self.0.get(key).unwrap_or(&absent), expected.0.get(key).unwrap_or(&absent));
        keys.into_iter()
            .map(|key| (key, pair(key)))
            .filter(|(_, (here, plain))| here != plain)
            .map(|(key, (here, plain))| format!("{key}: {here} (on the plain cluster: {plain})"))
            .collect()
    }

    /// Whether anything may still come by itself.
    pub fn is_done(&self) -> bool {
        // Deployments have a condition of that name, too.
        let is_on_its_way = |it: &String| it.starts_with("Progressing") || it.contains("× Progressing");
        !self.0.values().any(|state| is_on_its_way(state) || state.contains("absent"))
    }
}

impl fmt::Display for Picture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(what, state)| writeln!(f, "{what}: {state}"))
    }
}

/// `Deployment web`, and where it is unless that is the bundle's own namespace.
pub fn title(object: &Value, home: &str) -> String {
    let name = without_uids(text(object, "/metadata/name"));
    format!("{} {name}{}", text(object, "/kind"), place(object, home))
}

fn place(object: &Value, home: &str) -> String {
    match text(object, "/metadata/namespace") {
        namespace if namespace.is_empty() || namespace == home => String::new(),
        namespace => format!(" in {namespace}"),
    }
}

/// Who is behind it: of a pod of a Deployment, and of that pod's claim, the Deployment.
fn owner(object: &Value, between: &[Value]) -> Option<String> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|it| it["controller"] == true)?;
    let (kind, name) = (text(owner, "/kind"), text(owner, "/name"));
    let made = between.iter().find(|it| {
        it["kind"] == kind
            && it["metadata"]["name"] == name
            && it["metadata"]["namespace"] == object["metadata"]["namespace"]
    });
    let behind = made.and_then(|made| self::owner(made, between));
    Some(behind.unwrap_or_else(|| format!("{kind} {}", without_minute(name))))
}

/// Jobs of a CronJob are called by their minute.
fn without_minute(name: &str) -> String {
    match name.rsplit_once('-') {
        Some((start, end)) if end.len() >= 8 && end.bytes().all(|it| it.is_ascii_digit()) => {
            format!("{start}-MINUTE")
        }
        _ => name.to_owned(),
    }
}

fn health(object: &Value) -> &'static str {
    match kinds::health(object) {
        Health::Healthy => "Healthy",
        Health::Progressing(_) => "Progressing",
        Health::Degraded(_) => "Degraded",
        Health::Suspended => "Suspended",
        Health::Unknown(_) => "Unknown",
    }
}

/// How an object does, and what its status says. Of pods only whether they are ready: nothing runs them here, and what
/// else is said of their containers is made up.
fn state(object: &Value) -> String {
    let health = health(object);
    let mut parts = vec![health.to_owned()];
    let status = &object["status"];
    if object["kind"] == "Pod" {
        parts.push(text(object, "/status/phase").to_owned());
        return parts.join(" ");
    }
    if let Some(observed) = status["observedGeneration"].as_i64() {
        let is_behind = object["metadata"]["generation"].as_i64().is_some_and(|it| it > observed);
        parts.extend(is_behind.then(|| "behind".to_owned()));
    }
    parts.extend(members(status));
    parts.join("; ")
}

/// The members of an object that say anything: zero and empty is as good as absent.
fn members(value: &Value) -> Vec<String> {
    let Some(all) = value.as_object() else { return Vec::new() };
    let kept = all.iter().filter(|(key, _)| !LEFT_OUT.contains(&key.as_str()));
    let told = kept.filter_map(|(key, value)| Some((key, told(value)?)));
    told.map(|(key, told)| format!("{}={told}", without_uids(key))).collect()
}

fn told(value: &Value) -> Option<String> {
    match value {
        Value::Null | Value::Bool(false) => None,
        Value::Bool(true) => Some("true".to_owned()),
        Value::Number(number) => (number.as_f64() != Some(0.0)).then(|| number.to_string()),
        Value::String(text) => plain(text),
        Value::Array(items) => {
            let mut all: Vec<String> = items.iter().filter_map(told).collect();
            // Every cluster has its own addresses, and all of them in its own order.
            all.sort();
            all.dedup();
            (!all.is_empty()).then(|| format!("[{}]", all.join(" ")))
        }
        Value::Object(_) if value["type"].is_string() && value["status"].is_string() => {
            Some(format!("{}={}({})", text(value, "/type"), text(value, "/status"), text(value, "/reason")))
        }
        Value::Object(_) => {
            let all = members(value);
            (!all.is_empty()).then(|| format!("{{{}}}", all.join(" ")))
        }
    }
}

fn plain(text: &str) -> Option<String> {
    if text.parse::<jiff::Timestamp>().is_ok() {
        return Some("TIME".to_owned());
    }
    if text.parse::<std::net::IpAddr>().is_ok() {
        return Some("ADDRESS".to_owned());
    }
    // What is recorded has a line for each object.
    (!text.is_empty()).then(|| without_uids(text).replace('\n', "\\n"))
}

/// Every cluster gives its own, and controllers call things by them.
fn without_uids(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let taken = match rest.get(..UID_LENGTH).filter(|it| is_uid(it)) {
            Some(uid) => {
                out.push_str("UID");
                uid.len()
            }
            None => {
                out.push(letter);
                letter.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    out
}

const UID_LENGTH: usize = 36;

fn is_uid(text: &str) -> bool {
    text.bytes().enumerate().all(|(at, it)| match at {
        8 | 13 | 18 | 23 => it == b'-',
        _ => it.is_ascii_digit() || (b'a'..=b'f').contains(&it),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_picture_has_what_counts_and_nothing_that_a_cluster_chose() {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "other", "generation": 2},
            "spec": {"replicas": 2},
            "status": {
                "observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2, "terminatingReplicas": 0,
                "conditions": [{"type": "Available", "status": "True", "reason": "Enough", "message": "words", "lastUpdateTime": "2026-01-01T00:00:00Z"}],
            },
        });
        let mut picture = Picture::default();
        picture.add(&object, Some(&object), "home");
        let line = "Deployment web in other: Healthy; availableReplicas=2; \
                    conditions=[Available=True(Enough)]; replicas=2; updatedReplicas=2\n";
        assert_eq!(picture.to_string(), line);
    }

    #[test]
    fn uids_in_names_and_contents_are_all_the_same() {
        let uid = "0f4f4d8e-3a0b-4c1d-9e2f-00112233aabb";
        let object = json!({
            "kind": "ConfigMap", "metadata": {"name": "rules"},
            "data": {format!("shop-{uid}.yaml"): format!("of {uid}\nand 0f4f4d8e-3a0b-4c1d-9e2f"), "é": "ü"},
        });
        let mut picture = Picture::default();
        picture.add(&object, Some(&object), "home");
        picture.add_content(&object, "home");
        let line = "ConfigMap rules: Healthy; {shop-UID.yaml=of UID\\nand 0f4f4d8e-3a0b-4c1d-9e2f é=ü}\n";
        assert_eq!(picture.to_string(), line);
    }

    #[test]
    fn what_is_missing_or_new_differs() {
        let of = |rows: &[(&str, &str)]| {
            Picture(rows.iter().map(|(what, state)| ((*what).to_owned(), (*state).to_owned())).collect())
        };
        let (here, plain) = (of(&[("a", "1"), ("b", "1")]), of(&[("a", "1"), ("c", "1")]));
        assert_eq!(
            here.differences(&plain),
            ["b: 1 (on the plain cluster: absent)", "c: absent (on the plain cluster: 1)"]
        );
    }

    #[test]
    fn pods_are_counted_by_who_made_them() {
        let owned = |kind: &str, name: &str, by: &str, owner: &str| {
            json!({
                "kind": kind, "metadata": {"name": name, "namespace": "n", "ownerReferences": [{"kind": by, "name": owner, "controller": true}]},
                "status": {"phase": "Succeeded"},
            })
        };
        let sets = [owned("ReplicaSet", "web-1", "Deployment", "web")];
        let pods = [owned("Pod", "a", "ReplicaSet", "web-1"), owned("Pod", "b", "Job", "tick-29300000")];
        let mut picture = Picture::default();
        picture.add_made(&pods, &sets, "n");
        let lines =
            "Pods of Deployment web: 1 × Healthy Succeeded\nPods of Job tick-MINUTE: 1 × Healthy Succeeded\n";
        assert_eq!(picture.to_string().replace("Unknown", "Healthy"), lines);
    }
}
