//! Bodies: malformed, of the wrong kind, too deep, too large.

use anyhow::Result;
use http::Method;
use serde_json::json;
use server::Options;

use crate::{
    Ask, CONFIG_MAPS, JSON, JSON_PATCH, MERGE, PROTOBUF, RBAC, STRATEGIC, Scene, VICTIM, WORKSPACES, YAML,
};

const LEVELS: usize = 10_000;
const MIB: usize = 1 << 20;

fn nested(open: &str, inside: &str, close: &str) -> String {
    [&open.repeat(LEVELS), inside, &close.repeat(LEVELS)].concat()
}

#[tokio::test]
async fn bodies_that_are_not_objects_of_the_kind() -> Result<()> {
    let scene = Scene::set(Options::default()).await?;
    let named = |rest: &str| format!(r#"{{"metadata": {{"name": "new"}}{rest}}}"#);
    let bad_request: Vec<(&str, &str, Vec<u8>)> = vec![
        ("nothing", JSON, vec![]),
        ("half an object", JSON, named("").into_bytes()[..12].to_vec()),
        ("two objects", JSON, [named(""), named("")].concat().into()),
        ("an array", JSON, b"[]".into()),
        ("a string", JSON, br#""x""#.into()),
        ("bytes that are not text", JSON, b"\xff\xfe{}".into()),
        ("a number that is none", JSON, named(r#", "data": {"a": 1e}"#).into()),
        ("another kind", JSON, named(r#", "kind": "Secret""#).into()),
        ("another version", JSON, named(r#", "apiVersion": "v2""#).into()),
        ("another namespace", JSON, br#"{"metadata": {"name": "new", "namespace": "other"}}"#.into()),
        ("metadata as an array", JSON, br#"{"metadata": []}"#.into()),
        ("data as a number", JSON, named(r#", "data": 1"#).into()),
        ("a value that is no string", JSON, named(r#", "data": {"a": {}}"#).into()),
        ("bytes that are not base64", JSON, named(r#", "binaryData": {"a": "*"}"#).into()),
        ("arrays without end", JSON, "[".repeat(LEVELS).into()),
        ("deep arrays", JSON, nested("[", "", "]").into()),
        ("deep objects", JSON, nested(r#"{"a":"#, "1", "}").into()),
        ("deep data", JSON, named(&format!(r#", "data": {}"#, nested(r#"{"a":"#, "1", "}"))).into()),
        ("YAML without an end", YAML, b"metadata: {name: new".into()),
        ("YAML with a tab", YAML, b"metadata:\n\tname: new".into()),
        ("two documents", YAML, b"metadata: {name: new}\n---\nmetadata: {name: newer}\n".into()),
        ("an alias of nothing", YAML, b"metadata: *nobody".into()),
        ("deep YAML, in braces", YAML, nested("{a: ", "1", "}").into()),
        ("deep YAML, in brackets", YAML, nested("[", "", "]").into()),
        ("deep YAML, in dashes", YAML, format!("{}a", "- ".repeat(LEVELS)).into()),
        ("YAML that doubles", YAML, alias_bomb().into()),
        ("protobuf without its start", PROTOBUF, b"metadata".into()),
        ("protobuf that ends at once", PROTOBUF, b"k8s\0".into()),
        ("protobuf that promises more", PROTOBUF, b"k8s\0\x0a\xff\xff\xff\xff\x0f".into()),
        ("protobuf of nothing known", PROTOBUF, b"k8s\0\x0a\x06\x0a\x01v\x12\x01K\x12\x02\x08\x01".into()),
    ];
    for (what, content_type, body) in bad_request {
        scene.refuses(what, Ask::post(CONFIG_MAPS, content_type, body), 400, "BadRequest").await?;
    }
    let strict = format!("{CONFIG_MAPS}?fieldValidation=Strict");
    let wrong =
        [r#", "unknown": 1"#, r#", "data": {"a": "1"}, "data": {}"#, r#", "data": {"a": "1", "a": "2"}"#];
    for body in wrong {
        scene.refuses(body, Ask::post(&strict, JSON, named(body)), 400, "BadRequest").await?;
    }
    let invalid = [
        ("no name", "{}"),
        ("null", "null"),
        ("a name with a zero", r#"{"metadata": {"name": "a\u0000b"}}"#),
        ("a name that goes up", r#"{"metadata": {"name": ".."}}"#),
        ("a name with a slash", r#"{"metadata": {"name": "a/b"}}"#),
        ("a label with a space", r#"{"metadata": {"name": "new", "labels": {"a b": "c"}}}"#),
        ("a key with a slash", r#"{"metadata": {"name": "new"}, "data": {"a/b": "c"}}"#),
    ];
    for (what, body) in invalid {
        scene.refuses(what, Ask::post(CONFIG_MAPS, JSON, body), 422, "Invalid").await?;
    }
    // A kind without a type of its own takes any tree, but not any depth.
    let deep = format!(r#"{{"metadata": {{"name": "deep"}}, "spec": {}}}"#, nested(r#"{"a":"#, "1", "}"));
    scene.refuses("a deep workspace", Ask::post(WORKSPACES, JSON, deep), 400, "BadRequest").await?;
    for content_type in ["text/plain", "application/cbor", "application/xml", "*/*", "/"] {
        let ask = Ask::post(CONFIG_MAPS, content_type, named(""));
        scene.refuses(content_type, ask, 415, "UnsupportedMediaType").await?;
    }
    scene.ends_unharmed().await
}

/// A few hundred bytes that stand for a billion strings.
fn alias_bomb() -> String {
    let mut text =
        "metadata: {name: new}\na0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
    for level in 1..10 {
        let before = [format!("*a{}", level - 1).as_str(); 9].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{before}]\n"));
    }
    text
}

#[tokio::test]
async fn patches_that_lead_nowhere() -> Result<()> {
    let scene = Scene::set(Options::default()).await?;
    let deep = nested(r#"{"a":"#, "1", "}");
    let add_deep = format!(r#"[{{"op": "add", "path": "/data", "value": {deep}}}]"#);
    let bad_request: Vec<(&str, &str, &str)> = vec![
        ("a merge that is no JSON", MERGE, "{"),
        ("a merge that is deep", MERGE, &deep),
        ("a merge to another name", MERGE, r#"{"metadata": {"name": "other"}}"#),
        ("operations that are no list", JSON_PATCH, "{}"),
        ("an operation that is deep", JSON_PATCH, &add_deep),
        ("a strategic merge that is deep", STRATEGIC, &deep),
        ("a strategic merge that is a list", STRATEGIC, "[]"),
    ];
    for (what, content_type, body) in bad_request {
        scene.refuses(what, Ask::patch(content_type, body), 400, "BadRequest").await?;
    }
    let invalid = [
        ("an operation nobody knows", r#"[{"op": "explode", "path": "/data"}]"#),
        ("another kind", r#"[{"op": "replace", "path": "/kind", "value": "Secret"}]"#),
        ("a wrong type", r#"[{"op": "replace", "path": "/data/key", "value": []}]"#),
        ("a test that fails", r#"[{"op": "test", "path": "/data/key", "value": "other"}]"#),
        ("a removal of nothing", r#"[{"op": "remove", "path": "/data/other"}]"#),
        ("a copy into itself", r#"[{"op": "move", "from": "/data", "path": "/data/key/deeper"}]"#),
    ];
    for (what, body) in invalid {
        scene.refuses(what, Ask::patch(JSON_PATCH, body), 422, "Invalid").await?;
    }
    // A patch of two kilobytes that would make gigabytes.
    let mut operations =
        vec![json!({"op": "add", "path": "/metadata/annotations", "value": {"a": "x".repeat(100)}})];
    for level in 0..28 {
        let (from, path) = ("/metadata/annotations", format!("/metadata/annotations/b{level}"));
        operations.push(json!({"op": "copy", "from": from, "path": path}));
    }
    let answer = Ask::patch(JSON_PATCH, json!(operations).to_string()).send(&scene.client).await?;
    assert!(matches!(answer.code.as_u16(), 400 | 413 | 422), "{}", answer.text());
    let many = json!(vec![json!({"op": "test", "path": "/data/key", "value": "value"}); 10_001]).to_string();
    scene
        .refuses("ten thousand operations", Ask::patch(JSON_PATCH, many), 413, "RequestEntityTooLarge")
        .await?;
    scene.refuses("an object as patch", Ask::patch(JSON, "{}"), 415, "UnsupportedMediaType").await?;
    let on_workspace = Ask::of(Method::PATCH, WORKSPACES, MERGE, "{}");
    scene.refuses("a patch of a collection", on_workspace, 405, "MethodNotAllowed").await?;
    scene.ends_unharmed().await
}

#[tokio::test]
async fn sizes_just_over_the_limits() -> Result<()> {
    let limit = Options::default().max_body_bytes;
    let scene = Scene::set(Options::default()).await?;
    let padded = |size: usize| format!("{{{}", " ".repeat(size - 1));
    let over = Ask::post(CONFIG_MAPS, JSON, padded(limit + 1));
    scene.refuses("one byte over", over, 413, "RequestEntityTooLarge").await?;
    scene
        .refuses("as large as allowed", Ask::post(CONFIG_MAPS, JSON, padded(limit)), 400, "BadRequest")
        .await?;
    for (method, path) in [(Method::PUT, VICTIM), (Method::PATCH, VICTIM), (Method::DELETE, VICTIM)] {
        let ask = Ask::of(method, path, MERGE, padded(limit + 1));
        scene.refuses("one byte over", ask, 413, "RequestEntityTooLarge").await?;
    }
    // Small enough to read, too large to keep.
    let rule = json!({"apiGroups": [""], "resources": ["x".repeat(1000)], "verbs": ["get"]});
    let roles = format!("{RBAC}/clusterroles");
    let role = json!({"metadata": {"name": "large"}, "rules": vec![rule; 1600]}).to_string();
    let ask = Ask::post(&roles, JSON, role);
    scene.refuses("a large role", ask, 413, "RequestEntityTooLarge").await?;
    let data = json!({"metadata": {"name": "large"}, "data": {"a": "x".repeat(MIB + 1)}}).to_string();
    scene.refuses("a large config map", Ask::post(CONFIG_MAPS, JSON, data), 422, "Invalid").await?;
    let patch = json!({"data": {"a": "x".repeat(MIB + 1)}}).to_string();
    scene.refuses("a patch that makes it large", Ask::patch(MERGE, patch), 422, "Invalid").await?;
    let annotations = json!({"metadata": {"name": "large", "annotations": {"a": "x".repeat(MIB / 4 + 1)}}});
    scene
        .refuses("large annotations", Ask::post(CONFIG_MAPS, JSON, annotations.to_string()), 422, "Invalid")
        .await?;

    scene.ends_unharmed().await
}
