//! What reviews say, and which answers count.

use std::collections::BTreeMap;

use super::*;

fn answered(version: &str, mutating: bool, body: Value) -> Result<Answer, String> {
    answer(version, "u-1", mutating, body.to_string().as_bytes()).map_err(|error| error.to_string())
}

fn response(response: Value) -> Value {
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response})
}

#[test]
fn a_review_names_what_was_sent_and_what_is_seen() {
    let target = |version: &str| Target {
        group: "apps".into(),
        version: version.into(),
        resource: "deployments".into(),
        kind_group: "autoscaling".into(),
        kind_version: "v1".into(),
        kind: "Scale".into(),
    };
    let (groups, extra) = (vec!["dev".to_owned()], BTreeMap::new());
    let object = Tree::from_iter([("kind".to_owned(), json!("Scale"))]);
    let request = Request {
        operation: Operation::Update,
        seen: &target("v1beta1"),
        sent: &target("v1"),
        subresource: "scale",
        name: "web",
        namespace: "shop",
        user: Author { name: "ann", uid: "", groups: &groups, extra: &extra },
        object: Some(&object),
        old: None,
        dry_run: true,
        options: &Tree::from_iter([("kind".to_owned(), json!("UpdateOptions"))]),
    };
    let scale = json!({"group": "autoscaling", "version": "v1", "kind": "Scale"});
    let expected = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1",
        "request": {
            "uid": "u-1", "kind": scale, "requestKind": scale,
            "resource": {"group": "apps", "version": "v1beta1", "resource": "deployments"},
            "requestResource": {"group": "apps", "version": "v1", "resource": "deployments"},
            "subResource": "scale", "requestSubResource": "scale", "name": "web", "namespace": "shop",
            "operation": "UPDATE", "userInfo": {"username": "ann", "groups": ["dev"]},
            "object": {"kind": "Scale"}, "oldObject": null, "dryRun": true, "options": {"kind": "UpdateOptions"},
        },
    });
    assert_eq!(review("v1beta1", "u-1", &request), expected);
}

#[test]
fn answers_that_do_not_fit_do_not_count() {
    let invalid = [
        (
            true,
            json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}),
            "webhook response was absent",
        ),
        (
            true,
            response(json!({"uid": "other", "allowed": true})),
            "expected response.uid=\"u-1\", got \"other\"",
        ),
        (
            true,
            json!({"response": {"uid": "u-1", "allowed": true}}),
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=",
        ),
        (
            true,
            response(json!({"uid": "u-1", "allowed": true, "patch": "W10="})),
            "webhook returned response.patch but not response.patchType",
        ),
        (
            true,
            response(json!({"uid": "u-1", "allowed": true, "patchType": "JSONPatch"})),
            "webhook returned response.patchType but not response.patch",
        ),
        (
            false,
            response(json!({"uid": "u-1", "allowed": true, "patch": "W10=", "patchType": "JSONPatch"})),
            "validating webhook may not return response.patch",
        ),
        (
            false,
            response(json!({"uid": "u-1", "allowed": true, "patchType": "JSONPatch"})),
            "validating webhook may not return response.patchType",
        ),
        (
            true,
            json!({"kind": "Pod", "apiVersion": "v1", "response": {}}),
            "no kind \"Pod\" is registered for version \"v1\" in scheme \"pkg/runtime/scheme.go:111\"",
        ),
        (
            true,
            json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1", "response": {}}),
            "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
        ),
    ];
    for (mutating, body, why) in invalid {
        assert_eq!(answered("v1", mutating, body.clone()), Err(why.to_owned()), "{body}");
    }
    assert!(answer("v1", "u-1", true, b"<html>").is_err());
    assert!(answer("v1", "u-1", true, b"").is_err());
}

#[test]
fn of_the_older_version_everything_is_believed() {
    let body =
        json!({"response": {"uid": "other", "allowed": true, "patch": "W10=", "patchType": "Nonsense"}});
    let answer = answered("v1beta1", true, body.clone()).expect("it is believed");
    assert_eq!((answer.patch.as_slice(), answer.patch_type.as_str()), (&b"[]"[..], "JSONPatch"));
    let answer = answered("v1beta1", false, body).expect("it is believed");
    assert!(answer.allowed && answer.patch.is_empty());
}

#[test]
fn a_denial_says_who_and_why() {
    let denied = "admission webhook \"w.x.io\" denied the request";
    for (said, code, status, message) in [
        (None, 400, "Failure", format!("{denied} without explanation")),
        (Some(json!({"message": "no"})), 400, "Failure", format!("{denied}: no")),
        (Some(json!({"reason": "Forbidden"})), 400, "Failure", format!("{denied}: Forbidden")),
        (
            Some(json!({"message": "no", "reason": "Odd", "code": 418})),
            418,
            "Failure",
            format!("{denied}: no"),
        ),
        (
            Some(json!({"code": 200, "status": "Success"})),
            400,
            "Failure",
            format!("{denied} without explanation"),
        ),
        (Some(json!({"code": 503, "status": "odd"})), 503, "odd", format!("{denied} without explanation")),
    ] {
        let said = said.and_then(|it: Value| it.as_object().cloned());
        let refusal = denial("w.x.io", said);
        let shown = refusal.to_json();
        assert_eq!((refusal.code(), refusal.message()), (code, message.as_str()));
        assert_eq!((&shown["status"], &shown["code"]), (&json!(status), &json!(code)));
    }
}

#[test]
fn patches_are_lists_of_operations() {
    assert_eq!(operations(b"[]"), Ok(0));
    assert_eq!(operations(b"null"), Ok(0));
    assert_eq!(operations(b"[{}, {}]"), Ok(2));
    assert!(operations(b"{}").is_err_and(|why| why.ends_with("jsonpatch.Patch")));
    assert!(operations(b"[1]").is_err_and(|why| why.ends_with("jsonpatch.Operation")));
    assert!(operations(b"[").is_err());
}
