//! A namespace at rest, without what clusters choose by themselves.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde_json::{Value, json};

/// By kind, name and place: the value there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    pub leaves: BTreeMap<String, String>,
}

pub struct Difference {
    pub place: String,
    real: Option<String>,
    simulated: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
        write!(f, "{}: {} on the real cluster, {} here", self.place, text(&self.real), text(&self.simulated))
    }
}

/// In what a client can see at rest.
pub fn differences(real: &Snapshot, simulated: &Snapshot) -> Vec<Difference> {
    let places: BTreeSet<&String> = real.leaves.keys().chain(simulated.leaves.keys()).collect();
    let of = |snapshot: &Snapshot, place: &str| snapshot.leaves.get(place).cloned();
    places
        .into_iter()
        .filter(|place| of(real, place) != of(simulated, place))
        .map(|place| Difference {
            place: place.clone(),
            real: of(real, place),
            simulated: of(simulated, place),
        })
        .collect()
}

/// `*` stands for anything.
pub fn fits(pattern: &str, place: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = place.strip_prefix(first) else { return false };
    let mut last = first;
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
        last = part;
    }
    rest.is_empty() || last.is_empty()
}

/// Made by the server, or not for comparing.
const LEFT_OUT: [&str; 9] = [
    "uid",
    "resourceVersion",
    "generation",
    "managedFields",
    "selfLink",
    "deletionGracePeriodSeconds",
    "clusterIP",
    "clusterIPs",
    "nodeName",
];

/// What kube-apiserver says when it looks through all addresses, as it does when it starts and every few minutes, and a Service
/// is made just then whose address it has not noted yet.
const OF_ADDRESSES: [&str; 1] = ["ClusterIPNotAllocated"];

impl Snapshot {
    /// Of objects by plural name, and of what was said about them.
    pub fn of(objects: &BTreeMap<&'static str, Vec<Value>>, events: &[Value]) -> Snapshot {
        let words = Words::of(objects);
        let mut snapshot = Snapshot::default();
        for (plural, objects) in objects {
            let mut texts: Vec<(String, Value)> = objects
                .iter()
                .map(|object| (words.replace(text(object, "/metadata/name")), words.normal(object)))
                .collect();
            texts.sort_by_cached_key(|(name, object)| (name.clone(), object.to_string()));
            let mut count: BTreeMap<String, usize> = BTreeMap::new();
            for (name, object) in texts {
                let number = count.entry(name.clone()).and_modify(|it| *it += 1).or_default();
                snapshot.add(&format!("{plural}/{name}#{number}"), &object);
            }
        }
        let mut said: BTreeSet<String> = BTreeSet::new();
        for event in events {
            let of = |at: &str| text(event, at);
            // What is said about pods is the kubelet's and the scheduler's.
            let is_others = of("/involvedObject/kind") == "Pod";
            if is_others || OF_ADDRESSES.contains(&of("/reason")) {
                continue;
            }
            let subject =
                format!("{}/{}", of("/involvedObject/kind"), words.replace(of("/involvedObject/name")));
            said.insert(format!("{subject} {} {}", of("/type"), of("/reason")));
        }
        for line in said {
            snapshot.leaves.insert(format!("events/{line}"), "said".to_owned());
        }
        snapshot
    }

    pub fn has(&self, place: &str) -> bool {
        self.leaves.contains_key(place)
    }

    /// Whether an event of the same kind of object, type and reason as `place` is there.
    pub fn says_such(&self, place: &str) -> bool {
        let sort = |place: &str| -> Option<(String, String)> {
            let (kind, rest) = place.strip_prefix("events/")?.split_once('/')?;
            Some((kind.to_owned(), rest.split_once(' ')?.1.to_owned()))
        };
        sort(place).is_some_and(|wanted| self.leaves.keys().any(|it| sort(it).as_ref() == Some(&wanted)))
    }

    fn add(&mut self, place: &str, value: &Value) {
        match value {
            Value::Object(members) if !members.is_empty() => {
                members.iter().for_each(|(key, value)| self.add(&format!("{place}/{key}"), value));
            }
            Value::Array(items) if !items.is_empty() => {
                items.iter().enumerate().for_each(|(at, value)| self.add(&format!("{place}/{at}"), value));
            }
            other => {
                self.leaves.insert(place.to_owned(), other.to_string());
            }
        }
    }
}

/// Words that stand for what a cluster chose: hashes and ends of names.
struct Words(Vec<(String, String)>);

impl Words {
    fn of(objects: &BTreeMap<&'static str, Vec<Value>>) -> Words {
        let mut words = Vec::new();
        let all = |plural: &str| objects.get(plural).map(Vec::as_slice).unwrap_or_default();
        for set in all("replicasets") {
            let hash = text(set, "/metadata/labels/pod-template-hash");
            let revision = text(set, "/metadata/annotations/deployment.kubernetes.io~1revision");
            words.push((hash.to_owned(), format!("HASH{revision}")));
        }
        for revision in all("controllerrevisions") {
            let name = text(revision, "/metadata/name");
            let hash = name.rsplit_once('-').map_or("", |(_, hash)| hash);
            words.push((hash.to_owned(), format!("HASH{}", revision["revision"])));
        }
        for plural in ["pods", "endpointslices", "jobs", "replicasets"] {
            for object in all(plural) {
                let prefix = text(object, "/metadata/generateName");
                let name = text(object, "/metadata/name");
                if let Some(end) = name.strip_prefix(prefix).filter(|_| !prefix.is_empty() && prefix != name)
                {
                    // The end of a numbered pod's name is no accident.
                    if !end.bytes().all(|byte| byte.is_ascii_digit()) {
                        words.push((end.to_owned(), "END".to_owned()));
                    }
                }
            }
        }
        for job in all("jobs") {
            // Jobs of a CronJob are called by their minute.
            let minute = text(job, "/metadata/name").rsplit_once('-').map_or("", |(_, end)| end);
            if minute.bytes().all(|byte| byte.is_ascii_digit()) {
                words.push((minute.to_owned(), "MINUTE".to_owned()));
            }
        }
        words.retain(|(word, _)| word.len() >= 4);
        Words(words)
    }

    fn replace(&self, text: &str) -> String {
        without_ends(&self.0.iter().fold(text.to_owned(), |text, (word, stands)| text.replace(word, stands)))
    }

    fn normal(&self, value: &Value) -> Value {
        match value {
            Value::Object(members) => {
                let kept = members.iter().filter(|(key, _)| !LEFT_OUT.contains(&key.as_str()));
                kept.map(|(key, value)| (key.clone(), self.member(key, value))).collect()
            }
            Value::Array(items) => {
                let mut items: Vec<Value> = items.iter().map(|item| self.normal(item)).collect();
                // In sets of endpoints the order is by chance.
                if items.iter().any(|item| item.get("targetRef").is_some()) {
                    items.sort_by_key(Value::to_string);
                }
                // So it is with conditions that are set at the same time.
                if items.iter().all(|item| item.get("lastTransitionTime").is_some()) {
                    items.sort_by_key(|item| text(item, "/type").to_owned());
                }
                items.into()
            }
            Value::String(text) if text.parse::<jiff::Timestamp>().is_ok() => "TIME".into(),
            Value::String(text) if text.parse::<std::net::IpAddr>().is_ok() => "ADDRESS".into(),
            Value::String(text) if is_uid(text) => "UID".into(),
            Value::String(text) => self.replace(text).into(),
            other => other.clone(),
        }
    }

    fn member(&self, key: &str, value: &Value) -> Value {
        match key {
            "observedGeneration" => "OBSERVED".into(),
            "annotations" => {
                let mut annotations = self.normal(value);
                if let Some(all) = annotations.as_object_mut() {
                    all.remove("kubectl.kubernetes.io/last-applied-configuration");
                }
                annotations
            }
            _ => self.normal(value),
        }
    }
}

/// Ends of names that a server chose stand for each other, also of objects that are gone.
fn without_ends(text: &str) -> String {
    let is_chosen =
        |end: &str| end.len() == 5 && end.bytes().all(|byte| b"bcdfghjklmnpqrstvwxz2456789".contains(&byte));
    let word = |word: &str| match word.rsplit_once('-') {
        Some((start, end)) if is_chosen(end) => format!("{start}-END"),
        _ => word.to_owned(),
    };
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    let mut done = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(is_part) {
        let end = rest[start..].find(|letter| !is_part(letter)).map_or(rest.len(), |end| start + end);
        done.push_str(&rest[..start]);
        done.push_str(&word(&rest[start..end]));
        rest = &rest[end..];
    }
    done + rest
}

fn is_uid(text: &str) -> bool {
    text.len() == 36 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

pub fn text<'a>(value: &'a Value, at: &str) -> &'a str {
    value.pointer(at).and_then(Value::as_str).unwrap_or_default()
}

/// What of a pod its controller decides: how it runs is the kubelet's.
pub fn bare_pod(pod: &Value) -> Value {
    json!({
        "metadata": {
            "name": pod["metadata"]["name"], "generateName": pod["metadata"]["generateName"],
            "labels": pod["metadata"]["labels"], "annotations": pod["metadata"]["annotations"],
            "ownerReferences": pod["metadata"]["ownerReferences"], "finalizers": pod["metadata"]["finalizers"],
        },
        "spec": {
            "hostname": pod["spec"]["hostname"], "subdomain": pod["spec"]["subdomain"],
            "affinity": pod["spec"]["affinity"], "tolerations": pod["spec"]["tolerations"],
            "image": pod["spec"]["containers"][0]["image"], "env": pod["spec"]["containers"][0]["env"],
        },
        "status": { "phase": pod["status"]["phase"] },
    })
}
