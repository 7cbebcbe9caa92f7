//! What clients see of managers and of apply.

use super::*;

const NOW: &str = "2024-05-01T10:00:00Z";
const LATER: &str = "2024-05-01T11:00:00Z";

fn tree(value: Value) -> Tree {
    match value {
        Value::Object(tree) => tree,
        other => panic!("no object: {other}"),
    }
}

/// A kind with what a request to it needs.
struct Kind {
    version: BuiltinVersion<'static>,
    kind: &'static str,
    empty: Tree,
    filters: Vec<(&'static str, Filter)>,
}

impl Kind {
    fn new(name: &str, api_version: &'static str, kind: &'static str) -> Self {
        let message = Types::builtin().get(name).unwrap();
        let ty = Schema::of_message(message).unwrap();
        Self {
            version: BuiltinVersion { api_version, ty },
            kind,
            empty: empty_object(message, api_version, kind),
            filters: Vec::new(),
        }
    }

    fn deployment() -> Self {
        Self::new("apps/v1.Deployment", "apps/v1", "Deployment")
    }

    fn config_map() -> Self {
        Self::new("core/v1.ConfigMap", "v1", "ConfigMap")
    }

    fn by<'a>(&'a self, manager: &'a str, now: &'a str) -> Request<'a> {
        Request {
            versions: &self.version,
            api_version: self.version.api_version,
            kind: self.kind,
            empty: &self.empty,
            manager,
            subresource: "",
            filters: &self.filters,
            now,
        }
    }
}

fn managed(object: &Tree) -> Value {
    object["metadata"].get("managedFields").cloned().unwrap_or_default()
}

/// `manager operation: fields`, one for each entry.
fn owners(object: &Tree) -> Vec<String> {
    let show = |entry: &Value| {
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        format!("{} {}: {}", text("manager"), text("operation"), entry["fieldsV1"])
    };
    managed(object).as_array().into_iter().flatten().map(show).collect()
}

fn config_map(data: Value) -> Tree {
    tree(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}, "data": data}),
    )
}

fn stored(mut object: Tree) -> Tree {
    object["metadata"]["uid"] = json!("u");
    object
}

#[test]
fn creation_owns_what_was_given() {
    let kind = Kind::deployment();
    let mut object = tree(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
                {"name": "c", "image": "i", "ports": [{"containerPort": 80, "protocol": "TCP"}], "resources": {}},
            ]}},
        },
        "status": {},
    }));
    track_update(&kind.by("kubectl-create", NOW), None, &mut object, false);
    let fields = json!({
        "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
        "f:spec": {
            "f:replicas": {},
            "f:selector": {},
            "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}, "f:maxUnavailable": {}}, "f:type": {}},
            "f:template": {
                "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {
                    ".": {}, "f:image": {}, "f:name": {}, "f:resources": {},
                    "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {
                        ".": {}, "f:containerPort": {}, "f:protocol": {},
                    }},
                }}},
            },
        },
    });
    assert_eq!(
        managed(&object),
        json!([{
            "manager": "kubectl-create", "operation": "Update", "apiVersion": "apps/v1", "time": NOW,
            "fieldsType": "FieldsV1", "fieldsV1": fields,
        }])
    );
}

#[test]
fn an_update_takes_what_it_changes_and_nothing_else() {
    let kind = Kind::config_map();
    let mut first = config_map(json!({"a": "1", "b": "1"}));
    track_update(&kind.by("one", NOW), None, &mut first, false);
    let first = stored(first);

    let mut second = first.clone();
    second["data"]["a"] = json!("2");
    track_update(&kind.by("two", LATER), Some(&first), &mut second, false);
    assert_eq!(
        owners(&second),
        [r#"one Update: {"f:data":{".":{},"f:b":{}}}"#, r#"two Update: {"f:data":{"f:a":{}}}"#]
    );

    let mut same = second.clone();
    track_update(&kind.by("three", LATER), Some(&second), &mut same, false);
    assert_eq!(same, second, "a write that changes nothing owns nothing");
}

#[test]
fn clients_that_drop_managed_fields_do_not_lose_them_and_those_that_empty_them_do() {
    let kind = Kind::config_map();
    let mut live = config_map(json!({"a": "1"}));
    track_update(&kind.by("one", NOW), None, &mut live, false);
    let live = stored(live);
    for (given, kept) in [
        (None, true),
        (Some(json!([])), false),
        (Some(json!([{}])), false),
        (Some(json!([{"manager": "x", "operation": "Nonsense"}])), true),
        (
            Some(
                json!([{"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"x": {}}}]),
            ),
            true,
        ),
    ] {
        let mut new = live.clone();
        let metadata = new["metadata"].as_object_mut().unwrap();
        metadata.remove("managedFields");
        metadata.extend(given.clone().map(|given| ("managedFields".to_owned(), given)));
        track_update(&kind.by("one", LATER), Some(&live), &mut new, false);
        assert_eq!(!managed(&new).is_null(), kept, "{given:?}");
    }
}

#[test]
fn apply_creates_prunes_and_conflicts() {
    let kind = Kind::config_map();
    let config = config_map(json!({"a": "1", "b": "1"}));
    let live = stored(apply(&kind.by("ctl", NOW), &kind.empty, &config, false).unwrap());
    assert_eq!(live["data"], json!({"a": "1", "b": "1"}));
    assert_eq!(owners(&live), [r#"ctl Apply: {"f:data":{"f:a":{},"f:b":{}}}"#]);

    // What it no longer names goes.
    let config = config_map(json!({"a": "1"}));
    let live = apply(&kind.by("ctl", NOW), &live, &config, false).unwrap();
    assert_eq!(live["data"], json!({"a": "1"}));

    let other = config_map(json!({"a": "2"}));
    let error = apply(&kind.by("other", LATER), &live, &other, false).unwrap_err();
    assert_eq!(
        error.status().to_json(),
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Conflict", "code": 409,
            "message": "Apply failed with 1 conflict: conflict with \"ctl\": .data.a",
            "details": {"causes": [
                {"reason": "FieldManagerConflict", "message": "conflict with \"ctl\"", "field": ".data.a"},
            ]},
        })
    );
    let live = apply(&kind.by("other", LATER), &live, &other, true).unwrap();
    assert_eq!(live["data"], json!({"a": "2"}));
    assert_eq!(owners(&live), [r#"other Apply: {"f:data":{"f:a":{}}}"#]);
}

#[test]
fn applying_the_same_again_changes_nothing() {
    let kind = Kind::config_map();
    let config = config_map(json!({"a": "1"}));
    let live = stored(apply(&kind.by("ctl", NOW), &kind.empty, &config, false).unwrap());
    let again = apply(&kind.by("ctl", LATER), &live, &config, false).unwrap();
    assert_eq!(again, live);
}

#[test]
fn objects_that_nobody_tracked_are_owned_by_whoever_was_there_before() {
    let kind = Kind::config_map();
    let live = stored(config_map(json!({"a": "1"})));
    let config = config_map(json!({"b": "1"}));
    let object = apply(&kind.by("ctl", NOW), &live, &config, false).unwrap();
    assert_eq!(
        owners(&object),
        [r#"ctl Apply: {"f:data":{"f:b":{}}}"#, r#"before-first-apply Update: {"f:data":{".":{},"f:a":{}}}"#]
    );
}

#[test]
fn configurations_that_do_not_fit_are_refused_in_upstreams_words() {
    let kind = Kind::deployment();
    let config = |spec: Value| {
        tree(
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "b"}, "spec": spec}),
        )
    };
    let containers = |containers: Value| config(json!({"template": {"spec": {"containers": containers}}}));
    for (config, code, message) in [
        (
            config(json!({"replica": 1})),
            500,
            "failed to create typed patch object (b/a; apps/v1, Kind=Deployment): .spec.replica: field not declared in schema",
        ),
        (
            config(json!({"replicas": "1"})),
            500,
            "failed to create typed patch object (b/a; apps/v1, Kind=Deployment): .spec.replicas: expected numeric (int or float), got string",
        ),
        (
            config(json!({"minReadySeconds": 1, "paused": "yes"})),
            500,
            "failed to create typed patch object (b/a; apps/v1, Kind=Deployment): .spec.paused: expected boolean, got &{yes}",
        ),
        (
            containers(json!([{"name": "c"}, {"name": "c"}])),
            500,
            "failed to create typed patch object (b/a; apps/v1, Kind=Deployment): .spec.template.spec.containers: duplicate entries for key [name=\"c\"]",
        ),
        (
            containers(json!([{"name": 5}])),
            500,
            "failed to create typed patch object (b/a; apps/v1, Kind=Deployment): .spec.template.spec.containers[name=5].name: expected string, got &value.valueUnstructured{Value:5}",
        ),
        (tree(json!({"apiVersion": "v1", "kind": "Pod"})), 400, "invalid object type: /v1, Kind=Pod"),
        (
            tree(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"managedFields": []}})),
            400,
            "metadata.managedFields must be nil",
        ),
    ] {
        let status = apply(&kind.by("m", NOW), &kind.empty, &config, false).unwrap_err().status();
        assert_eq!((status.code(), status.message()), (code, message));
    }
}

#[test]
fn kubectl_goes_on_from_what_it_applied_itself() {
    let kind = Kind::config_map();
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let applied = config_map(json!({"a": "1"}));
    let mut live = applied.clone();
    live["metadata"]["annotations"] = json!({annotation: Value::Object(applied.clone()).to_string()});
    track_update(&kind.by("kubectl-client-side-apply", NOW), None, &mut live, false);
    let live = stored(live);

    let config = config_map(json!({"a": "2"}));
    assert!(apply(&kind.by("other", LATER), &live, &config, false).is_err());
    let object = apply(&kind.by("kubectl", LATER), &live, &config, false).unwrap();
    assert_eq!(object["data"]["a"], "2");
    assert_eq!(object["metadata"]["annotations"][annotation], gotext::json(&config) + "\n");

    let mut changed = live.clone();
    changed["data"]["a"] = json!("3");
    track_update(&kind.by("somebody", NOW), Some(&live), &mut changed, false);
    let error = apply(&kind.by("kubectl", LATER), &changed, &config, false).unwrap_err();
    assert_eq!(
        error.status().message(),
        "Apply failed with 1 conflict: conflict with \"somebody\" using v1: .data.a"
    );
}

#[test]
fn the_oldest_updaters_are_joined() {
    let kind = Kind::config_map();
    let mut live = config_map(json!({}));
    track_update(&kind.by("m00", NOW), None, &mut live, false);
    let mut live = stored(live);
    for at in 0..15 {
        let mut new = live.clone();
        new["data"][format!("k{at:02}")] = json!("v");
        let (manager, now) = (format!("m{at:02}"), format!("2024-05-01T10:00:{at:02}Z"));
        track_update(&kind.by(&manager, &now), Some(&live), &mut new, false);
        live = new;
    }
    let owners = owners(&live);
    assert_eq!(owners.len(), 10);
    assert!(owners[0].starts_with("ancient-changes Update"), "{owners:?}");
}

#[test]
fn what_a_write_cannot_change_it_does_not_own() {
    let mut kind = Kind::deployment();
    kind.filters = vec![("apps/v1", Filter::Exclude(FieldSet::of_fields(&[&["status"]])))];
    let mut object = kind.empty.clone();
    object["metadata"]["name"] = json!("a");
    object["spec"]["replicas"] = json!(1);
    object["status"]["replicas"] = json!(1);
    track_update(&kind.by("m", NOW), None, &mut object, false);
    assert_eq!(owners(&object), [r#"m Update: {"f:spec":{"f:replicas":{}}}"#]);
}

#[test]
fn times_stay_if_nothing_else_changed() {
    let old = tree(
        json!({"metadata": {"managedFields": [{"manager": "a", "time": NOW}], "name": "x"}, "data": {"a": "1"}}),
    );
    let mut new = old.clone();
    new["metadata"]["managedFields"][0]["time"] = json!(LATER);
    let mut changed = new.clone();
    changed["data"]["a"] = json!("2");
    keep_times_if_unchanged(&mut new, &old);
    assert_eq!(new, old);
    let before = changed.clone();
    keep_times_if_unchanged(&mut changed, &old);
    assert_eq!(changed, before);
}

#[test]
fn an_empty_object_is_what_go_makes_of_nothing() {
    let deployment = Kind::deployment().empty;
    assert_eq!(
        Value::Object(deployment),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {},
            "spec": {"selector": null, "strategy": {}, "template": {"metadata": {}, "spec": {"containers": null}}},
            "status": {},
        })
    );
}

#[test]
fn managers_are_named_after_their_program() {
    let long = "x".repeat(127) + "é";
    for (field_manager, user_agent, name) in [
        ("me", "kubectl/v1.36 (linux)", "me"),
        ("", "kubectl/v1.36 (linux)", "kubectl"),
        ("", "", ""),
        ("", "a\u{1}b\tc", "abc"),
        ("", &long, &long[..127]),
    ] {
        assert_eq!(manager_name(field_manager, user_agent), name);
    }
}
