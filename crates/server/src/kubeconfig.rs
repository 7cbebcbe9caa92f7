//! Kubeconfig files: how kubectl and every other client find a server and say who they are.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::pki::Credential;

/// A kubeconfig with a context per (context, workspace), all as one user.
pub fn render(
    server: &str,
    authority_pem: &str,
    user: &str,
    credential: &Credential,
    contexts: &[(&str, &str)],
    current: &str,
) -> String {
    let encode = |pem: &str| STANDARD.encode(pem);
    let clusters: Vec<Value> = contexts
        .iter()
        .map(|(context, workspace)| cluster(context, server, workspace, &encode(authority_pem)))
        .collect();
    let entries: Vec<Value> = contexts.iter().map(|(context, _)| context_entry(context, user)).collect();
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": clusters,
        "contexts": entries,
        "current-context": current,
        "users": [{"name": user, "user": {
            "client-certificate-data": encode(&credential.certificate_pem),
            "client-key-data": encode(&credential.key_pem),
        }}],
    });
    to_yaml(&config)
}

/// A kubeconfig for a server that has no workspaces, with one context called `name`.
pub fn render_at(server: &str, authority_pem: &str, name: &str, credential: &Credential) -> String {
    let encode = |pem: &str| STANDARD.encode(pem);
    let user = format!("{name}-admin");
    to_yaml(&json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {
            "server": server, "certificate-authority-data": encode(authority_pem),
        }}],
        "contexts": [context_entry(name, &user)],
        "current-context": name,
        "users": [{"name": user, "user": {
            "client-certificate-data": encode(&credential.certificate_pem),
            "client-key-data": encode(&credential.key_pem),
        }}],
    }))
}

/// The entry of a workspace's API. `authority` is base64.
pub fn cluster(name: &str, server: &str, workspace: &str, authority: &str) -> Value {
    json!({"name": name, "cluster": {
        "server": format!("{server}/clusters/{workspace}"),
        "certificate-authority-data": authority,
    }})
}

pub fn context_entry(name: &str, user: &str) -> Value {
    json!({"name": name, "context": {"cluster": name, "user": user}})
}

/// YAML as people keep it in such files. Every string that could be read as something else is quoted.
pub fn to_yaml(value: &Value) -> String {
    let mut text = String::new();
    write(value, 0, false, &mut text);
    text
}

fn write(value: &Value, indent: usize, in_list: bool, text: &mut String) {
    let pad = |text: &mut String, depth: usize| text.push_str(&"  ".repeat(depth));
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (at, (key, member)) in members.iter().enumerate() {
                if at > 0 || !in_list {
                    pad(text, indent);
                }
                text.push_str(&scalar(key));
                text.push(':');
                nested(member, indent, text);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                pad(text, indent);
                text.push_str("- ");
                match item {
                    Value::Object(members) if !members.is_empty() => write(item, indent + 1, true, text),
                    item => {
                        text.push_str(&item.to_string());
                        text.push('\n');
                    }
                }
            }
        }
        other => {
            text.push_str(&other.to_string());
            text.push('\n');
        }
    }
}

fn nested(member: &Value, indent: usize, text: &mut String) {
    match member {
        Value::Object(members) if !members.is_empty() => {
            text.push('\n');
            write(member, indent + 1, false, text);
        }
        Value::Array(items) if !items.is_empty() => {
            text.push('\n');
            write(member, indent, false, text);
        }
        Value::String(string) => {
            text.push(' ');
            text.push_str(&scalar(string));
            text.push('\n');
        }
        other => {
            text.push(' ');
            text.push_str(&other.to_string());
            text.push('\n');
        }
    }
}

/// Plain where nobody can read it as anything but text, quoted as JSON (which is YAML) elsewhere.
fn scalar(string: &str) -> String {
    let plain = string.starts_with(|it: char| it.is_ascii_alphabetic())
        && string.chars().all(|it| it.is_ascii_alphanumeric() || "-_./+=".contains(it))
        && !matches!(
            string.to_ascii_lowercase().as_str(),
            "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n"
        );
    if plain { string.to_owned() } else { Value::from(string).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let value = json!({
            "a": "x", "b": [{"name": "n", "deep": {"k": "v: w", "list": [1, "two"]}}, {"name": "true"}],
            "empty": {}, "none": [], "n": 1, "t": true, "odd key": "# no comment", "null": null,
        });
        let text = to_yaml(&value);
        let back: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(back, value, "{text}");
    }
}
