//! An update as the real server is sent it, for an object that Hanse has created: each has chosen values of its own.

use serde_json::{Map, Value};

/// What the real server calls a thing, and what Hanse does.
#[derive(Clone, Default)]
pub struct Translation {
    /// Values that may stand in several places of an object.
    texts: Vec<(String, String)>,
    /// Members of `metadata` that only Hanse's own object has right.
    metadata: Map<String, Value>,
    /// Ports of nodes, which tables show.
    ports: Vec<(String, String)>,
}

const TEXTS: [&str; 2] = ["/metadata/uid", "/spec/clusterIP"];
const METADATA: [&str; 2] = ["creationTimestamp", "resourceVersion"];

impl Translation {
    /// Between the same object as each has stored it.
    pub fn between(kube: &Value, hanse: &Value) -> Translation {
        let text = |object: &Value, at: &str| object.pointer(at).and_then(Value::as_str).map(String::from);
        let texts = TEXTS.into_iter().filter_map(|at| Some((text(kube, at)?, text(hanse, at)?)));
        let own = |key: &str| Some((key.to_owned(), hanse.pointer("/metadata")?.get(key)?.clone()));
        Translation {
            texts: texts.filter(|(kube, hanse)| kube != hanse).collect(),
            metadata: METADATA.into_iter().filter_map(own).collect(),
            ports: node_ports(kube).into_iter().zip(node_ports(hanse)).collect(),
        }
    }

    /// What is sent to the real server, as it is sent to Hanse.
    pub fn there(&self, object: &Value) -> Value {
        let mut object = substitute(object, &|text| {
            self.texts.iter().find(|(kube, _)| kube == text).map(|(_, hanse)| hanse.as_str())
        });
        for (key, own) in &self.metadata {
            if let Some(value) = object.pointer_mut(&format!("/metadata/{key}")) {
                *value = own.clone();
            }
        }
        object
    }

    /// A cell of a table of Hanse's, as the real server would have put it.
    pub fn cell_back(&self, cell: &Value) -> Value {
        match self.back(cell) {
            Value::String(text) => {
                let ports = self.ports.iter();
                Value::from(ports.fold(text, |text, (kube, hanse)| text.replace(hanse, kube)))
            }
            other => other,
        }
    }

    /// What Hanse answers, as the real server would have put it.
    pub fn back(&self, answer: &Value) -> Value {
        substitute(answer, &|text| {
            self.texts.iter().find(|(_, hanse)| hanse == text).map(|(kube, _)| kube.as_str())
        })
    }
}

/// As tables have them: `80:30080/TCP`.
fn node_ports(service: &Value) -> Vec<String> {
    let ports = service.pointer("/spec/ports").and_then(Value::as_array);
    let number = |port: &Value| Some(format!(":{}/", port.get("nodePort")?));
    ports.into_iter().flatten().filter_map(number).collect()
}

/// Replaces texts as a whole.
fn substitute<'a>(value: &Value, other: &impl Fn(&str) -> Option<&'a str>) -> Value {
    match value {
        Value::String(text) => Value::from(other(text).unwrap_or(text)),
        Value::Array(items) => items.iter().map(|item| substitute(item, other)).collect(),
        Value::Object(members) => Value::Object(
            members.iter().map(|(key, value)| (key.clone(), substitute(value, other))).collect(),
        ),
        plain => plain.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_goes_there_and_back() {
        let stored =
            |uid: &str, revision: &str| json!({"metadata": {"uid": uid, "resourceVersion": revision}});
        let translation = Translation::between(&stored("k", "700"), &stored("h", "7"));
        let sent = json!({"metadata": {"uid": "k", "resourceVersion": "700"}, "label": "k", "number": "7"});
        let there = translation.there(&sent);
        assert_eq!(
            there,
            json!({"metadata": {"uid": "h", "resourceVersion": "7"}, "label": "h", "number": "7"})
        );
        assert_eq!(translation.back(&there)["label"], "k");
        assert_eq!(translation.back(&there)["number"], "7");
        assert_eq!(translation.there(&json!({"spec": 1})), json!({"spec": 1}));
    }
}
