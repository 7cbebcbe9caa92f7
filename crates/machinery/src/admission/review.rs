//! `AdmissionReview`: what a webhook is asked about a request, and what it may answer.
//!
//! The call is the server's. `v1` answers are checked; of `v1beta1` everything is believed, as upstream does.

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use serde_json::{Map, Value, json};

use super::rules::{Operation, Target};
use crate::{
    gojson, gotext,
    resource::{Author, Tree, group_version},
    schema::{self, Types},
    status::Status,
};

const GROUP: &str = "admission.k8s.io";

/// The version of the review that a webhook is sent: the first that it names and the server knows.
pub fn version(offered: &[String]) -> Result<&str, String> {
    let known = offered.iter().find(|version| matches!(version.as_str(), "v1" | "v1beta1"));
    let why = "webhook does not accept known AdmissionReview versions (v1, v1beta1)";
    known.map(String::as_str).ok_or_else(|| why.to_owned())
}

/// A request, as a webhook is told of it.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub operation: Operation,
    /// As what the webhook wants to see it.
    pub seen: &'a Target,
    /// What it was sent as.
    pub sent: &'a Target,
    pub subresource: &'a str,
    pub name: &'a str,
    pub namespace: &'a str,
    pub user: Author<'a>,
    /// Both as `seen`.
    pub object: Option<&'a Tree>,
    pub old: Option<&'a Tree>,
    pub dry_run: bool,
    /// With their kind.
    pub options: &'a Tree,
}

/// The `AdmissionReview` to send.
pub fn review(version: &str, uid: &str, request: &Request<'_>) -> Value {
    let kind = |it: &Target| json!({"group": it.kind_group, "version": it.kind_version, "kind": it.kind});
    let resource = |it: &Target| json!({"group": it.group, "version": it.version, "resource": it.resource});
    let mut asked = json!({
        "uid": uid,
        "kind": kind(request.seen),
        "resource": resource(request.seen),
        "requestKind": kind(request.sent),
        "requestResource": resource(request.sent),
        "operation": request.operation.as_str(),
        "userInfo": user_info(&request.user),
        "object": request.object,
        "oldObject": request.old,
        "dryRun": request.dry_run,
        "options": request.options,
    });
    let texts = [
        ("subResource", request.subresource),
        ("requestSubResource", request.subresource),
        ("name", request.name),
        ("namespace", request.namespace),
    ];
    for (key, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        asked[key] = json!(text);
    }
    json!({"kind": "AdmissionReview", "apiVersion": group_version(GROUP, version), "request": asked})
}

fn user_info(user: &Author<'_>) -> Value {
    let mut info = Map::new();
    for (key, text) in [("username", user.name), ("uid", user.uid)] {
        if !text.is_empty() {
            info.insert(key.into(), json!(text));
        }
    }
    if !user.groups.is_empty() {
        info.insert("groups".into(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        info.insert("extra".into(), json!(user.extra));
    }
    Value::Object(info)
}

/// What a webhook answered, as far as it counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    pub allowed: bool,
    /// A JSON Patch; empty: nothing is to be changed.
    pub patch: Vec<u8>,
    pub patch_type: String,
    pub status: Option<Tree>,
    pub warnings: Vec<String>,
    pub audit_annotations: Vec<(String, String)>,
}

/// Why an answer does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It is no review.
    #[error("{0}")]
    Unreadable(String),
    /// It is one, but not to what was asked.
    #[error("{0}")]
    Invalid(String),
}

/// Reads what a webhook sent back to the review `uid` of `version`.
pub fn answer(version: &str, uid: &str, mutating: bool, body: &[u8]) -> Result<Answer, Malformed> {
    let mut review = read(version, body).map_err(Malformed::Unreadable)?;
    let (kind, api_version) = (text(&review, "kind").to_owned(), text(&review, "apiVersion").to_owned());
    let invalid = |why: String| Err(Malformed::Invalid(why));
    let Some(Value::Object(mut response)) = review.remove("response") else {
        return invalid("webhook response was absent".to_owned());
    };
    let given_type = response.get("patchType").and_then(Value::as_str).map(str::to_owned);
    let patch = BASE64.decode(text(&response, "patch")).unwrap_or_default();
    if version == "v1" {
        let answered = text(&response, "uid");
        if answered != uid {
            let (expected, got) = (gotext::quote(uid), gotext::quote(answered));
            return invalid(format!("expected response.uid={expected}, got {got}"));
        }
        if kind != "AdmissionReview" || api_version != group_version(GROUP, version) {
            let expected = format!("{GROUP}/v1, Kind=AdmissionReview");
            let api_version = if api_version.is_empty() { "/".to_owned() } else { api_version };
            return invalid(format!(
                "expected webhook response of {expected}, got {api_version}, Kind={kind}"
            ));
        }
        if let Some(why) = patch_mistake(mutating, &patch, given_type.as_deref()) {
            return invalid(why);
        }
    }
    let patch_type = match (version, patch.is_empty()) {
        ("v1", _) => given_type.unwrap_or_default(),
        // There is but one, and nobody asked.
        (_, false) => "JSONPatch".to_owned(),
        (_, true) => String::new(),
    };
    let pairs = response.get("auditAnnotations").and_then(Value::as_object).into_iter().flatten();
    let texts = response.get("warnings").and_then(Value::as_array).into_iter().flatten();
    Ok(Answer {
        allowed: response.get("allowed").and_then(Value::as_bool).unwrap_or(false),
        audit_annotations: pairs
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect(),
        warnings: texts.filter_map(|text| text.as_str().map(str::to_owned)).collect(),
        patch: if mutating { patch } else { Vec::new() },
        patch_type,
        status: match response.remove("status") {
            Some(Value::Object(status)) => Some(status),
            _ => None,
        },
    })
}

/// The review in `body`, of the right types.
fn read(version: &str, body: &[u8]) -> Result<Tree, String> {
    let mut value = gojson::parse(body)
        .map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))?;
    let of = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let (kind, api_version) = (of("kind"), of("apiVersion"));
    let wanted = group_version(GROUP, version);
    let known = matches!(kind, "" | "AdmissionReview") && api_version.starts_with(GROUP);
    if !(kind.is_empty() && api_version.is_empty()) && api_version != wanted {
        return Err(match known {
            true => format!(
                "converting ({}.AdmissionReview) to ({version}.AdmissionReview): unknown conversion",
                api_version.rsplit('/').next().unwrap_or_default()
            ),
            false => unregistered(kind, api_version),
        });
    }
    if !matches!(kind, "" | "AdmissionReview") {
        return Err(unregistered(kind, api_version));
    }
    let types = Types::builtin();
    if let Some(message) = types.get("admission/v1.AdmissionReview") {
        schema::conform(types, message, &mut value, schema::Options::default())
            .map_err(|error| error.to_string())?;
    }
    match value {
        Value::Object(review) => Ok(review),
        other => Err(format!("a review is an object, not {}", gojson::type_name(&other))),
    }
}

fn unregistered(kind: &str, api_version: &str) -> String {
    let (kind, version) = (gotext::quote(kind), gotext::quote(api_version));
    format!("no kind {kind} is registered for version {version} in scheme \"pkg/runtime/scheme.go:111\"")
}

fn text<'t>(tree: &'t Tree, key: &str) -> &'t str {
    tree.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// A patch and its type come together, and from those who may change something.
fn patch_mistake(mutating: bool, patch: &[u8], patch_type: Option<&str>) -> Option<String> {
    let why = match (mutating, patch.is_empty(), patch_type) {
        (true, false, None) => "webhook returned response.patch but not response.patchType",
        (true, true, Some(_)) => "webhook returned response.patchType but not response.patch",
        (true, false, Some("")) => "webhook returned invalid response.patchType of \"\"",
        (false, false, _) => "validating webhook may not return response.patch",
        (false, true, Some(_)) => "validating webhook may not return response.patchType",
        _ => return None,
    };
    Some(why.to_owned())
}

/// How many operations a patch has, and whether it is one.
pub fn operations(patch: &[u8]) -> Result<usize, String> {
    let unfit = |value: &Value, of: &str| {
        let found = gojson::type_name(value);
        format!("json: cannot unmarshal {found} into Go value of type jsonpatch.{of}")
    };
    match gojson::parse(patch)? {
        Value::Null => Ok(0),
        Value::Array(items) => match items.iter().find(|item| !item.is_object() && !item.is_null()) {
            Some(item) => Err(unfit(item, "Operation")),
            None => Ok(items.len()),
        },
        other => Err(unfit(&other, "Patch")),
    }
}

/// The refusal of a request that the webhook `name` does not allow, with what it said about it.
pub fn denial(name: &str, said: Option<Tree>) -> Status {
    let denied = format!("admission webhook {} denied the request", gotext::quote(name));
    let mut status = said.unwrap_or_default();
    if status.get("code").and_then(Value::as_i64).unwrap_or(0) < 400 {
        status.insert("code".into(), json!(400));
    }
    if matches!(text(&status, "status"), "" | "Success") {
        status.insert("status".into(), json!("Failure"));
    }
    let message = match (text(&status, "message"), text(&status, "reason")) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    status.insert("message".into(), json!(message));
    Status::said(status)
}

/// A webhook that may have side effects is not asked about what is only tried.
pub fn dry_run_unsupported(name: &str) -> Status {
    Status::bad_request(format!("admission webhook {} does not support dry run", gotext::quote(name)))
}

#[cfg(test)]
#[path = "review_tests.rs"]
mod tests;
