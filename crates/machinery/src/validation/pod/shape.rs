//! How parts of a pod look inside upstream's server, where its messages show them.
//!
//! There types have other names than in the API, everything that is not set shows as empty, and the pod's sharing of
//! the node's namespaces is part of its security context.

mod diff;

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::super::parts::{list, object};
use crate::{gotext, resource::Tree};

const TYPES: &str = include_str!("shape/types.txt");
/// Fields that are the spec's in the API and the security context's there.
const SHARING: [&str; 5] = ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"];

/// A value as it will be printed: members in order.
enum Node {
    Scalar(String),
    List(Vec<Node>),
    Object(Vec<(String, Node)>),
}

/// The types by name, each as the text of its fields.
struct Shapes(HashMap<&'static str, &'static str>);

impl Shapes {
    fn new() -> Self {
        let lines = TYPES.lines().filter(|line| !line.starts_with('#'));
        Shapes(lines.filter_map(|line| line.split_once(' ')).collect())
    }

    fn node(&self, name: &str, tree: &Tree) -> Node {
        if name == "LabelSelector" {
            return in_order(tree, &["matchLabels", "matchExpressions"]);
        }
        let mut members = Vec::new();
        for field in self.0.get(name).copied().unwrap_or_default().split(' ') {
            self.field(field, tree, &mut members);
        }
        Node::Object(members)
    }

    fn field(&self, field: &str, tree: &Tree, members: &mut Vec<(String, Node)>) {
        if field == "+ObjectMeta" {
            let metadata = object(tree, "metadata").map(|it| in_order(it, &["labels", "annotations"]));
            if let Some(Node::Object(own)) = metadata {
                members.extend(own);
            }
            return;
        }
        if let Some(embedded) = field.strip_prefix('+') {
            if let Node::Object(own) = self.node(embedded, tree) {
                members.extend(own);
            }
            return;
        }
        let names_end = field.find(|c: char| !c.is_ascii_alphanumeric() && c != '/').unwrap_or(field.len());
        let (names, kind) = field.split_at(names_end);
        let (name, key) = match names.split_once('/') {
            Some((name, key)) => (name, key.to_owned()),
            None => (names, camel_case(names)),
        };
        members.push((name.to_owned(), self.value(kind, tree, &key)));
    }

    fn value(&self, kind: &str, tree: &Tree, key: &str) -> Node {
        if let Some(item) = kind.strip_prefix("[]") {
            let items = list(tree, key).iter().filter_map(Value::as_object);
            let items: Vec<Node> = items.map(|it| self.node(item, it)).collect();
            return if items.is_empty() { Node::Scalar("null".to_owned()) } else { Node::List(items) };
        }
        if let Some(part) = kind.strip_prefix('=') {
            return self.node(part, object(tree, key).unwrap_or(&Map::new()));
        }
        if let Some(part) = kind.strip_prefix('*').filter(|part| !part.is_empty()) {
            return object(tree, key).map_or(Node::Scalar("null".to_owned()), |it| self.node(part, it));
        }
        let empty = match kind {
            "#" => json!(0),
            "?" => json!(false),
            "~" => json!("0"),
            "*" => Value::Null,
            _ => json!(""),
        };
        plain(tree.get(key).unwrap_or(&empty))
    }
}

/// `HTTPGet` is `httpGet`, `TTY` is `tty`.
fn camel_case(name: &str) -> String {
    let upper = name.bytes().take_while(u8::is_ascii_uppercase).count();
    let lowered = if upper == name.len() || upper == 1 { upper } else { upper - 1 };
    format!("{}{}", name[..lowered].to_ascii_lowercase(), &name[lowered..])
}

fn plain(value: &Value) -> Node {
    match value {
        Value::Array(items) if !items.is_empty() => Node::List(items.iter().map(plain).collect()),
        Value::Object(members) if !members.is_empty() => {
            Node::Object(members.iter().map(|(key, value)| (key.clone(), plain(value))).collect())
        }
        scalar => Node::Scalar(gotext::json(scalar)),
    }
}

/// A type of the API itself: what is not set does not show.
fn in_order(tree: &Tree, keys: &[&str]) -> Node {
    let set = keys.iter().filter_map(|key| Some(((*key).to_owned(), plain(tree.get(*key)?))));
    Node::Object(set.collect())
}

impl Node {
    /// On one line.
    fn compact(&self) -> String {
        match self {
            Node::Scalar(text) => text.clone(),
            Node::List(items) => {
                let items: Vec<String> = items.iter().map(Node::compact).collect();
                format!("[{}]", items.join(","))
            }
            Node::Object(members) => {
                let members: Vec<String> = members
                    .iter()
                    .map(|(name, value)| format!("{}:{}", gotext::json(name), value.compact()))
                    .collect();
                format!("{{{}}}", members.join(","))
            }
        }
    }

    /// A line for each member, a space deeper each time.
    fn write(&self, depth: usize, out: &mut String) {
        let (open, close, members): (_, _, Vec<(String, &Node)>) = match self {
            Node::Scalar(text) => return out.push_str(text),
            Node::List(items) => ('[', ']', items.iter().map(|item| (String::new(), item)).collect()),
            Node::Object(members) => {
                let named = members.iter().map(|(name, value)| (format!("{}: ", gotext::json(name)), value));
                ('{', '}', named.collect())
            }
        };
        out.push(open);
        for (at, (name, value)) in members.iter().enumerate() {
            out.push_str(if at == 0 { "\n" } else { ",\n" });
            out.push_str(&" ".repeat(depth + 1));
            out.push_str(name);
            value.write(depth + 1, out);
        }
        if !members.is_empty() {
            out.push('\n');
            out.push_str(&" ".repeat(depth));
        }
        out.push(close);
    }
}

/// An object of a type, on one line.
pub fn shown(name: &str, tree: &Tree) -> String {
    Shapes::new().node(name, tree).compact()
}

/// A list of objects of a type, on one line.
pub fn shown_list(name: &str, items: &[Value]) -> String {
    let shapes = Shapes::new();
    if items.is_empty() {
        return "null".to_owned();
    }
    let items: Vec<String> =
        items.iter().filter_map(Value::as_object).map(|item| shapes.node(name, item).compact()).collect();
    format!("[{}]", items.join(","))
}

fn lines(name: &str, tree: &Tree) -> Vec<String> {
    let mut text = String::new();
    Shapes::new().node(name, tree).write(0, &mut text);
    text.split('\n').map(str::to_owned).collect()
}

/// Whether an object has more values than a diff may have lines; each is a line at least.
fn is_too_long(tree: &Tree) -> bool {
    fn take(value: &Value, left: usize) -> Option<usize> {
        let left = left.checked_sub(1)?;
        match value {
            Value::Array(items) => items.iter().try_fold(left, |left, item| take(item, left)),
            Value::Object(members) => members.values().try_fold(left, |left, member| take(member, left)),
            _ => Some(left),
        }
    }
    tree.values().try_fold(diff::TOO_LONG, |left, value| take(value, left)).is_none()
}

/// What changed between two objects of a type, as a unified diff; nothing if it would be too long.
pub fn changes(name: &str, old: &Tree, new: &Tree) -> String {
    if is_too_long(old) || is_too_long(new) {
        return String::new();
    }
    diff::unified(&lines(name, old), &lines(name, new))
}

/// As [`changes`], of the specs of two pods.
pub fn spec_changes(old: &Tree, new: &Tree) -> String {
    changes("PodSpec", &with_sharing(old), &with_sharing(new))
}

fn with_sharing(spec: &Tree) -> Tree {
    let mut spec = spec.clone();
    let shared: Vec<(&str, Value)> =
        SHARING.iter().filter_map(|key| Some((*key, spec.get(*key)?.clone()))).collect();
    if let Some(context) = spec.get_mut("securityContext").and_then(Value::as_object_mut) {
        context.extend(shared.into_iter().map(|(key, value)| (key.to_owned(), value)));
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(value: Value) -> Tree {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn values_show_as_the_server_holds_them() {
        let profile = tree(json!({"type": "Localhost"}));
        assert_eq!(shown("SeccompProfile", &profile), r#"{"Type":"Localhost","LocalhostProfile":null}"#);
        let term = tree(json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]}));
        assert_eq!(
            shown("NodeSelectorTerm", &term),
            r#"{"MatchExpressions":[{"Key":"a","Operator":"Exists","Values":null}],"MatchFields":null}"#
        );
    }

    #[test]
    fn every_named_type_is_there() {
        let shapes = Shapes::new();
        for fields in shapes.0.values() {
            for field in fields.split(' ').filter(|field| !field.starts_with('/')) {
                let name = field.rsplit(['*', ']', '=', '+']).next().unwrap_or_default();
                let refers = field.len() > name.len() && name.starts_with(|c: char| c.is_ascii_uppercase());
                let known = shapes.0.contains_key(name) || matches!(name, "LabelSelector" | "ObjectMeta");
                assert!(!refers || known, "{field}");
            }
        }
    }

    #[test]
    fn a_changed_spec_shows_the_lines_that_changed() {
        let old = tree(json!({"securityContext": {}, "hostPID": true, "nodeName": "a"}));
        let new = tree(json!({"securityContext": {}, "nodeName": "b"}));
        let diff = spec_changes(&old, &new);
        assert!(diff.contains("-  \"HostPID\": true,\n+  \"HostPID\": false,\n"), "{diff}");
    }
}
