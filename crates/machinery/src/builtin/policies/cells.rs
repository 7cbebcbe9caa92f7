//! How the columns of the API server's own kinds are computed.

use serde_json::{Value, json};

use crate::table::human_duration;

pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub fn count(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

pub fn length(object: &Value, pointer: &str) -> usize {
    list(object, pointer).len()
}

fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub fn number_or_none(object: &Value, pointer: &str) -> Value {
    object.pointer(pointer).filter(|value| value.is_number()).cloned().unwrap_or_else(|| json!("<none>"))
}

pub fn param_kind(object: &Value, _: i64) -> Value {
    match object.pointer("/spec/paramKind") {
        Some(kind) if kind.is_object() => {
            json!(format!("{}/{}", text(kind, "/apiVersion"), text(kind, "/kind")))
        }
        _ => json!("<unset>"),
    }
}

pub fn param_ref(object: &Value, _: i64) -> Value {
    let reference = object.pointer("/spec/paramRef").unwrap_or(&Value::Null);
    json!(match (text(reference, "/name"), text(reference, "/namespace"), reference.get("selector")) {
        ("", _, Some(selector)) if selector.is_object() => selector_text(selector),
        ("", _, _) => "<unset>".to_owned(),
        (name, "", _) => format!("*/{name}"),
        (name, namespace, _) => format!("{namespace}/{name}"),
    })
}

/// A selector as Go prints the struct: `&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]…{},}`.
fn selector_text(selector: &Value) -> String {
    let labels = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let labels: String =
        labels.map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default())).collect();
    let expressions: String = list(selector, "/matchExpressions")
        .iter()
        .map(|expression| {
            let values: Vec<&str> =
                list(expression, "/values").iter().map(|value| value.as_str().unwrap_or_default()).collect();
            format!(
                "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
                text(expression, "/key"),
                text(expression, "/operator"),
                values.join(" ")
            )
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

pub fn serving(object: &Value, _: i64) -> Value {
    match object.pointer("/spec/service") {
        Some(service) if service.is_object() => {
            json!(format!("{}/{}", text(service, "/namespace"), text(service, "/name")))
        }
        _ => json!("Local"),
    }
}

pub fn available(object: &Value, _: i64) -> Value {
    let condition =
        list(object, "/status/conditions").iter().find(|condition| condition["type"] == "Available");
    let Some(condition) = condition else { return json!("Unknown") };
    json!(match (text(condition, "/status"), text(condition, "/reason")) {
        ("True", _) => "True".to_owned(),
        (status, "") => status.to_owned(),
        (status, reason) => format!("{status} ({reason})"),
    })
}

pub fn signer(object: &Value, _: i64) -> Value {
    match text(object, "/spec/signerName") {
        "" => json!("<none>"),
        name => json!(name),
    }
}

pub fn requested_duration(object: &Value, _: i64) -> Value {
    match object.pointer("/spec/expirationSeconds").and_then(Value::as_i64) {
        Some(seconds) => json!(human_duration(seconds)),
        None => json!("<none>"),
    }
}

pub fn signing_condition(object: &Value, _: i64) -> Value {
    let has =
        |kind: &str| list(object, "/status/conditions").iter().any(|condition| condition["type"] == kind);
    let mut state = match () {
        _ if has("Denied") => "Denied",
        _ if has("Approved") => "Approved",
        _ => "Pending",
    }
    .to_owned();
    if has("Failed") {
        state.push_str(",Failed");
    }
    if !text(object, "/status/certificate").is_empty() {
        state.push_str(",Issued");
    }
    json!(state)
}

pub fn distinguisher(object: &Value, _: i64) -> Value {
    match object.pointer("/spec/distinguisherMethod") {
        Some(method) if method.is_object() => json!(text(method, "/type")),
        _ => json!("<none>"),
    }
}

pub fn missing_level(object: &Value, _: i64) -> Value {
    let dangling =
        list(object, "/status/conditions").iter().find(|condition| condition["type"] == "Dangling");
    json!(dangling.map_or("?", |condition| text(condition, "/status")))
}
