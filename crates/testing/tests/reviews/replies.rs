//! What webhooks answer, by their path.

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};
use testing::webhook::{Asked, Reply};

fn reviewed(asked: &Asked, mut response: Value) -> Reply {
    response["uid"] = asked.body["request"]["uid"].clone();
    Reply::Json(json!({
        "kind": "AdmissionReview", "apiVersion": asked.body["apiVersion"], "response": response,
    }))
}

fn allowed(asked: &Asked) -> Reply {
    reviewed(asked, json!({"allowed": true}))
}

fn denied(asked: &Asked, status: Value) -> Reply {
    reviewed(asked, json!({"allowed": false, "status": status}))
}

fn patched(asked: &Asked, patch: Value) -> Reply {
    let patch = BASE64_STANDARD.encode(patch.to_string());
    reviewed(asked, json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
}

pub fn reply(asked: &Asked) -> Reply {
    let path = asked.path.split('?').next().unwrap_or_default();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts[..] {
        ["marker"] => denied(asked, json!({"message": "it counts"})),
        ["deny", how] => deny(asked, how),
        ["bad", how] => bad(asked, how),
        ["patch", how] => patch(asked, how),
        ["warn", how] => warn(asked, how),
        _ => allowed(asked),
    }
}

fn deny(asked: &Asked, how: &str) -> Reply {
    match how {
        "message" => denied(asked, json!({"message": "not today"})),
        "teapot" => denied(asked, json!({"message": "short and stout", "code": 418, "reason": "Teapot"})),
        "reason" => denied(asked, json!({"reason": "Forbidden"})),
        "success" => denied(asked, json!({"status": "Success", "code": 200})),
        "missing" => denied(asked, json!({"reason": "NotFound", "code": 404, "message": "nowhere"})),
        "details" => denied(
            asked,
            json!({
                "message": "look here", "code": 422, "reason": "Invalid", "extra": "dropped",
                "metadata": {"resourceVersion": "7"},
                "details": {
                    "name": "n", "group": "g", "kind": "k", "uid": "u", "retryAfterSeconds": 3,
                    "causes": [{"reason": "FieldValueInvalid", "message": "m", "field": "spec.x"}],
                },
            }),
        ),
        _ => reviewed(asked, json!({"allowed": false})),
    }
}

fn bad(asked: &Asked, how: &str) -> Reply {
    let (code, text) = (StatusCode::OK, "application/json");
    match how {
        "uid" => Reply::Json(json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "response": {"uid": "11111111-2222-3333-4444-555555555555", "allowed": true},
        })),
        "untyped" => Reply::Json(json!({"response": {"uid": asked.body["request"]["uid"], "allowed": true}})),
        "kind" => Reply::Json(json!({"kind": "Pod", "apiVersion": "v1"})),
        "version" => Reply::Json(json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1",
            "response": {"uid": asked.body["request"]["uid"], "allowed": true},
        })),
        "absent" => Reply::Json(json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"})),
        "types" => reviewed(asked, json!({"allowed": "yes"})),
        "cut" => Reply::Raw(code, text, Bytes::from_static(b"{\"kind\": \"AdmissionReview\", \"respo")),
        "empty" => Reply::Raw(code, text, Bytes::new()),
        "500" => Reply::Raw(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", Bytes::from_static(b"broken\n")),
        "502" => Reply::Raw(StatusCode::BAD_GATEWAY, "application/octet-stream", Bytes::from_static(b"x")),
        "404" => Reply::Raw(StatusCode::NOT_FOUND, "text/plain", Bytes::from_static(b"404 page not found")),
        "403" => Reply::Raw(StatusCode::FORBIDDEN, "text/plain", Bytes::from_static(b"go away")),
        "503" => Reply::Raw(StatusCode::SERVICE_UNAVAILABLE, "text/plain", Bytes::from_static(b"later")),
        "status" => {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "own words", "code": 409});
            Reply::Raw(StatusCode::CONFLICT, "application/json", status.to_string().into())
        }
        "patch-only" => reviewed(asked, json!({"allowed": true, "patch": "W10="})),
        "type-only" => reviewed(asked, json!({"allowed": true, "patchType": "JSONPatch"})),
        "both" => reviewed(asked, json!({"allowed": true, "patchType": "JSONPatch", "patch": "W10="})),
        "merge" => {
            let patch = BASE64_STANDARD.encode("[{\"op\": \"remove\", \"path\": \"/data\"}]");
            reviewed(asked, json!({"allowed": true, "patchType": "MergePatch", "patch": patch}))
        }
        "object" => {
            let patch = BASE64_STANDARD.encode("{\"data\": null}");
            reviewed(asked, json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
        }
        "text" => {
            let patch = BASE64_STANDARD.encode("[1]");
            reviewed(asked, json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
        }
        "close" => Reply::Close,
        _ => Reply::Nothing,
    }
}

fn patch(asked: &Asked, how: &str) -> Reply {
    let object = &asked.body["request"]["object"];
    // Counts how often it was here.
    let here = |key: &str| {
        let value = object["metadata"]["annotations"][key].as_str().unwrap_or_default();
        let (op, value) = match object["metadata"]["annotations"].is_object() {
            true => (format!("/metadata/annotations/{key}"), json!(format!("{value}x"))),
            false => ("/metadata/annotations".to_owned(), json!({key: "x"})),
        };
        json!([{"op": "add", "path": op, "value": value}])
    };
    let set = |path: &str, value: Value| json!([{"op": "add", "path": path, "value": value}]);
    let patch = match how {
        "first" | "second" | "third" => here(how),
        "labels" => set("/metadata/labels", json!({"added": "yes"})),
        "data" => set("/data", json!({"by": "webhook"})),
        "same" => json!([{"op": "test", "path": "/kind", "value": object["kind"]}]),
        "unknown" => set("/unknown", json!({"nobody": "knows"})),
        "types" => set("/data", json!(["no", "map"])),
        "invalid" => set("/metadata/labels", json!({"bad label!": "x y"})),
        "test" => json!([{"op": "test", "path": "/kind", "value": "Other"}]),
        "nowhere" => json!([{"op": "remove", "path": "/spec/nothing/here"}]),
        "name" => set("/metadata/name", json!("renamed")),
        "uid" => set("/metadata/uid", json!("11111111-2222-3333-4444-555555555555")),
        "namespace" => set("/metadata/namespace", json!("default")),
        "managers" => set("/metadata/managedFields", json!([{"manager": "me", "operation": "Nonsense"}])),
        "owners" => {
            let owner = json!({"apiVersion": "nowhere.io/v1", "kind": "Thing", "name": "o", "uid": "11111111-2222-3333-4444-555555555555"});
            set("/metadata/ownerReferences", json!([owner, owner]))
        }
        "replicas" => set("/spec/replicas", json!(5)),
        "node" => set("/metadata/annotations", json!({"bound": "yes"})),
        "kind" => set("/kind", json!("Secret")),
        "status" => set("/status", json!({"replicas": 7})),
        "spec" => set("/spec/added", json!("yes")),
        "empty" => json!([]),
        _ => json!([]),
    };
    patched(asked, patch)
}

fn warn(asked: &Asked, how: &str) -> Reply {
    let warnings = match how {
        "many" => (0..40).map(|at| format!("{at} {}", "w".repeat(290))).collect(),
        "odd" => vec![
            "quoted \" and \\ back".to_owned(),
            String::new(),
            "ümlaut".to_owned(),
            "twice".to_owned(),
            "twice".to_owned(),
        ],
        _ => vec!["mind the gap".to_owned()],
    };
    let allowed = how != "deny";
    reviewed(asked, json!({"allowed": allowed, "warnings": warnings, "auditAnnotations": {"seen": "yes"}}))
}
