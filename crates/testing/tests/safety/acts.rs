//! What users do, chosen by chance.

use env::random::SeededRandom;
use http::Method;
use serde_json::{Value, json};

use crate::{members::NAMES, wanted::KINDS};

/// The first has its clusters in an annotation, the second by a Placement.
const NAMESPACES: [&str; 2] = ["shop", "mill"];
const OBJECTS: [&str; 2] = ["one", "two"];
const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json";

/// One request.
#[derive(Clone, Debug)]
pub struct Act {
    pub method: Method,
    pub path: String,
    pub content_type: &'static str,
    pub body: Option<Value>,
}

fn post(path: String, body: Value) -> Act {
    Act { method: Method::POST, path, content_type: JSON, body: Some(body) }
}

fn patch(path: String, body: Value) -> Act {
    Act { method: Method::PATCH, path, content_type: MERGE, body: Some(body) }
}

fn delete(path: String, propagation: &str) -> Act {
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation});
    Act { method: Method::DELETE, path, content_type: JSON, body: Some(options) }
}

pub struct Chance(pub SeededRandom);

impl Chance {
    pub fn below(&self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    pub fn of<T: Copy>(&self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    fn one(&self) -> Vec<&'static str> {
        vec![self.of(&NAMES)]
    }

    /// At least one of them.
    fn some(&self) -> Vec<&'static str> {
        let mask = 1 + self.below((1 << NAMES.len()) - 1);
        NAMES.iter().enumerate().filter(|(at, _)| mask >> at & 1 == 1).map(|(_, name)| *name).collect()
    }
}

pub fn path(plural: &str, namespace: &str, name: &str) -> String {
    let group = KINDS.iter().find(|it| it.1 == plural).map_or("", |it| it.0);
    let root = if group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{group}/v1") };
    let below = if name.is_empty() { String::new() } else { format!("/{name}") };
    format!("{root}/namespaces/{namespace}/{plural}{below}")
}

fn template(app: &str, image: &str, restarts: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"restartPolicy": restarts, "containers": [{"name": "c", "image": image}]},
    })
}

fn object(chance: &Chance, plural: &str, name: &str) -> Value {
    let version = format!("web:{}", chance.below(1000));
    // Each selects its own pods only: what one of them leaves behind is not another's to take up.
    let app = format!("{plural}-{name}");
    let selector = json!({"matchLabels": {"app": app}});
    let replicas = 1 + chance.below(6);
    let mut object = match plural {
        "configmaps" => json!({"data": {"version": version}}),
        "deployments" => json!({"spec": {
            "replicas": replicas, "selector": selector, "template": template(&app, &version, "Always"),
        }}),
        "statefulsets" => json!({"spec": {
            "replicas": 1 + replicas % 3, "selector": selector, "serviceName": name,
            "template": template(&app, &version, "Always"),
        }}),
        "jobs" => json!({"spec": {
            "parallelism": 1 + replicas % 2, "completions": 2, "template": template(&app, &version, "Never"),
        }}),
        _ => json!({"spec": template(&app, &version, "Always")["spec"]}),
    };
    object["metadata"] = json!({"name": name});
    // What is in one place only is told where, so that it is known.
    let clusters = match plural {
        "pods" | "jobs" => Some(chance.one()),
        _ if chance.below(3) == 0 => Some(chance.some()),
        _ => None,
    };
    if let Some(clusters) = clusters {
        object["metadata"]["annotations"] = json!({"hanse.io/clusters": clusters.join(",")});
    }
    object
}

fn change(chance: &Chance, plural: &str) -> Value {
    let version = format!("web:{}", chance.below(1000));
    match plural {
        "configmaps" => json!({"data": {"version": version}}),
        "deployments" | "statefulsets" if chance.below(2) == 0 => {
            json!({"spec": {"replicas": 1 + chance.below(6)}})
        }
        "deployments" | "statefulsets" => {
            json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": version}]}}}})
        }
        _ => json!({"metadata": {"labels": {"version": version.replace(':', "-")}}}),
    }
}

/// What a namespace is made with.
fn namespace(chance: &Chance, name: &str) -> Act {
    let annotations = match name == NAMESPACES[0] {
        true => json!({"hanse.io/clusters": chance.some().join(",")}),
        false => json!({}),
    };
    post("/api/v1/namespaces".to_owned(), json!({"metadata": {"name": name, "annotations": annotations}}))
}

/// The Placement of the second namespace.
fn policy(chance: &Chance) -> Value {
    let kinds = ["ConfigMap", "Deployment", "StatefulSet", "Job", "Pod"];
    json!({
        "metadata": {"name": "mill"},
        "spec": {
            "select": [{"namespaces": [NAMESPACES[1]], "kinds": kinds}],
            "clusters": {"names": chance.some()},
        },
    })
}

pub const POLICIES: &str = "/apis/hanse.io/v1alpha1/placements";

/// A namespace of this name with workloads, some in one cluster and some in all, that nobody else knows of.
pub fn kept(space: &str) -> Vec<Act> {
    let mut acts = vec![post("/api/v1/namespaces".to_owned(), json!({"metadata": {"name": space}}))];
    for (at, (_, plural)) in KINDS.iter().enumerate() {
        for (name, clusters) in [("one", vec![NAMES[at % NAMES.len()]]), ("all", NAMES.to_vec())] {
            if name == "all" && matches!(*plural, "jobs" | "pods") {
                continue;
            }
            let mut object = object(&Chance(SeededRandom::new(at as u64)), plural, name);
            object["metadata"]["annotations"] = json!({"hanse.io/clusters": clusters.join(",")});
            acts.push(post(path(plural, space, ""), object));
        }
    }
    acts
}

/// What most users have from the beginning.
pub fn population(chance: &Chance) -> Vec<Act> {
    let mut acts: Vec<Act> = NAMESPACES.iter().map(|name| namespace(chance, name)).collect();
    acts.push(post(POLICIES.to_owned(), policy(chance)));
    for space in NAMESPACES {
        for (_, plural) in KINDS {
            for name in OBJECTS.into_iter().filter(|_| chance.below(4) > 0) {
                acts.push(post(path(plural, space, ""), object(chance, plural, name)));
            }
        }
    }
    acts
}

/// Something that a user may do next; whether the hub finds it possible is another question.
pub fn act(chance: &Chance) -> Act {
    let space = chance.of(&NAMESPACES);
    let plural = chance.of(&KINDS).1;
    let name = chance.of(&OBJECTS);
    match chance.below(20) {
        0..6 => post(path(plural, space, ""), object(chance, plural, name)),
        6..10 => patch(path(plural, space, name), change(chance, plural)),
        10..13 => {
            // A pod or a job stays where it began.
            let plural = chance.of(&["configmaps", "deployments", "statefulsets"]);
            let clusters = match chance.below(4) {
                0 => Value::Null,
                _ => json!(chance.some().join(",")),
            };
            patch(
                path(plural, space, name),
                json!({"metadata": {"annotations": {"hanse.io/clusters": clusters}}}),
            )
        }
        13..16 => delete(
            path(plural, space, name),
            chance.of(&["Background", "Background", "Foreground", "Orphan"]),
        ),
        16 if chance.below(3) == 0 => delete(format!("/api/v1/namespaces/{space}"), "Background"),
        17 => {
            let clusters = json!({"hanse.io/clusters": chance.some().join(",")});
            patch(
                format!("/api/v1/namespaces/{}", NAMESPACES[0]),
                json!({"metadata": {"annotations": clusters}}),
            )
        }
        18 => match chance.below(6) {
            0 => delete(format!("{POLICIES}/mill"), "Background"),
            1 | 2 => post(POLICIES.to_owned(), policy(chance)),
            _ => patch(format!("{POLICIES}/mill"), json!({"spec": policy(chance)["spec"]})),
        },
        _ => namespace(chance, space),
    }
}
