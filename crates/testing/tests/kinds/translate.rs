//! An update as the real server is sent it, for an object that Hanse has created: each has chosen values of its own.

use serde_json::{Map, Value};

/// What the real server calls a thing, and what Hanse does.
#[derive(Clone, Default)]
pub struct Translation {
    /// Values that may stand in several places of an object.
    texts: Vec<(String, String)>,
    /// Ports of nodes.
    ports: Vec<(Value, Value)>,
    /// Members of `metadata` that only Hanse's own object has right.
    metadata: Map<String, Value>,
}

const TEXTS: [&str; 2] = ["/metadata/uid", "/spec/clusterIP"];
const METADATA: [&str; 2] = ["creationTimestamp", "resourceVersion"];

/// The name of the volume with the pod's token, which ends as each server likes.
fn token_volume(pod: &Value) -> Option<String> {
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array)?;
    let names = volumes.iter().filter_map(|volume| volume["name"].as_str());
    names.into_iter().find(|name| name.starts_with("kube-api-access-")).map(str::to_owned)
}

impl Translation {
    /// Between the same object as each has stored it.
    pub fn between(kube: &Value, hanse: &Value) -> Translation {
        let text = |object: &Value, at: &str| object.pointer(at).and_then(Value::as_str).map(String::from);
        let texts = TEXTS.into_iter().filter_map(|at| Some((text(kube, at)?, text(hanse, at)?)));
        let texts = texts.chain(token_volume(kube).zip(token_volume(hanse)));
        let own = |key: &str| Some((key.to_owned(), hanse.pointer("/metadata")?.get(key)?.clone()));
        let ports =
            |object: &Value| -> Vec<Value> { node_ports(&mut object.clone()).map(|it| it.clone()).collect() };
        Translation {
            texts: texts.filter(|(kube, hanse)| kube != hanse).collect(),
            ports: ports(kube).into_iter().zip(ports(hanse)).collect(),
            metadata: METADATA.into_iter().filter_map(own).collect(),
        }
    }

    /// What is sent to the real server, as it is sent to Hanse.
    pub fn there(&self, object: &Value) -> Value {
        let mut object = substitute(object, &|text| {
            let known = self.texts.iter().find(|(kube, _)| kube == text);
            known.map_or(text, |(_, hanse)| hanse.as_str()).to_owned()
        });
        for port in node_ports(&mut object) {
            if let Some((_, hanse)) = self.ports.iter().find(|(kube, _)| kube == port) {
                *port = hanse.clone();
            }
        }
        for (key, own) in &self.metadata {
            if let Some(value) = object.pointer_mut(&format!("/metadata/{key}")) {
                *value = own.clone();
            }
        }
        object
    }

    /// What Hanse answers, as the real server would have put it.
    pub fn back(&self, answer: &Value) -> Value {
        // Messages have them among other words.
        let mut answer = substitute(answer, &|text| {
            self.texts.iter().fold(text.to_owned(), |text, (kube, hanse)| text.replace(hanse, kube))
        });
        for port in node_ports(&mut answer) {
            if let Some((kube, _)) = self.ports.iter().find(|(_, hanse)| hanse == port) {
                *port = kube.clone();
            }
        }
        answer
    }

    /// A cell of a table of Hanse's, as the real server would have put it: `80:30080/TCP` has a port of nodes.
    pub fn cell_back(&self, cell: &Value) -> Value {
        match self.back(cell) {
            Value::String(text) => {
                let ports = self.ports.iter();
                let replace = |text: String, (kube, hanse): &(Value, Value)| {
                    text.replace(&format!(":{hanse}/"), &format!(":{kube}/"))
                };
                Value::from(ports.fold(text, replace))
            }
            other => other,
        }
    }
}

/// The ports of nodes that a service has.
fn node_ports(service: &mut Value) -> impl Iterator<Item = &mut Value> {
    let spec = service.pointer_mut("/spec").and_then(Value::as_object_mut);
    let members = spec.into_iter().flatten().filter_map(|(key, value)| match key.as_str() {
        "healthCheckNodePort" => Some(vec![value]),
        "ports" => {
            Some(value.as_array_mut()?.iter_mut().filter_map(|port| port.get_mut("nodePort")).collect())
        }
        _ => None,
    });
    members.flatten()
}

fn substitute(value: &Value, other: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::from(other(text)),
        Value::Array(items) => items.iter().map(|item| substitute(item, other)).collect(),
        Value::Object(members) => {
            let members = members.iter().map(|(key, value)| (key.clone(), substitute(value, other)));
            Value::Object(members.collect())
        }
        plain => plain.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ports_of_nodes_are_each_servers_own() {
        let service = |first: u16, second: u16| json!({"spec": {"healthCheckNodePort": first, "ports": [{"port": 80, "nodePort": second}, {"port": 81}]}});
        let translation = Translation::between(&service(31000, 32000), &service(30001, 30002));
        assert_eq!(translation.there(&service(31000, 32000)), service(30001, 30002));
        assert_eq!(translation.back(&service(30001, 30002)), service(31000, 32000));
        assert_eq!(translation.there(&service(7, 8)), service(7, 8));
        assert_eq!(translation.cell_back(&json!("80:30002/TCP,81/TCP")), json!("80:32000/TCP,81/TCP"));
    }

    #[test]
    fn an_object_goes_there_and_back() {
        let stored =
            |uid: &str, revision: &str| json!({"metadata": {"uid": uid, "resourceVersion": revision}});
        let translation = Translation::between(&stored("theirs", "700"), &stored("ours", "7"));
        let object = |uid: &str, revision: &str| json!({"metadata": {"uid": uid, "resourceVersion": revision}, "label": uid, "number": "7"});
        let there = translation.there(&object("theirs", "700"));
        assert_eq!(there, object("ours", "7"));
        assert_eq!(translation.back(&there), object("theirs", "7"));
        assert_eq!(translation.back(&json!("not ours now")), "not theirs now");
        assert_eq!(translation.there(&json!({"spec": 1})), json!({"spec": 1}));
    }
}
