use super::*;
use serde_json::json;

fn patched(mut doc: Value, patch: Value) -> Result<Value, PatchError> {
    json_patch(&mut doc, patch.to_string().as_bytes())?;
    Ok(doc)
}

fn refusal(doc: Value, operation: Value) -> String {
    match patched(doc, json!([operation])) {
        Err(PatchError::Inapplicable(message)) => message,
        other => panic!("{other:?}"),
    }
}

fn merged(mut doc: Value, patch: Value) -> Value {
    merge_patch(&mut doc, patch.to_string().as_bytes()).unwrap();
    doc
}

#[test]
fn operations_apply_in_order() {
    for (doc, patch, result) in [
        (json!({}), json!([{"op": "add", "path": "/a", "value": {"b": 1}}]), json!({"a": {"b": 1}})),
        (json!({"a": [1, 3]}), json!([{"op": "add", "path": "/a/1", "value": 2}]), json!({"a": [1, 2, 3]})),
        (json!({"a": [1]}), json!([{"op": "add", "path": "/a/-", "value": 2}]), json!({"a": [1, 2]})),
        (json!({"a": [1]}), json!([{"op": "add", "path": "/a/1", "value": 2}]), json!({"a": [1, 2]})),
        (json!({"a": [1, 2]}), json!([{"op": "add", "path": "/a/-1", "value": 3}]), json!({"a": [1, 2, 3]})),
        (json!({"a": [1, 2]}), json!([{"op": "remove", "path": "/a/-1"}]), json!({"a": [1]})),
        (json!({"a": 1, "b": 2}), json!([{"op": "remove", "path": "/a"}]), json!({"b": 2})),
        (json!({"a": 1}), json!([{"op": "replace", "path": "/a", "value": [2]}]), json!({"a": [2]})),
        (json!({"a": 1}), json!([{"op": "move", "from": "/a", "path": "/b"}]), json!({"b": 1})),
        (
            json!({"a": {"b": 1}}),
            json!([{"op": "copy", "from": "/a", "path": "/c"}]),
            json!({"a": {"b": 1}, "c": {"b": 1}}),
        ),
        (json!({"a/b~c": 1}), json!([{"op": "remove", "path": "/a~1b~0c"}]), json!({})),
        (
            json!({"a": 1}),
            json!([{"op": "test", "path": "/a", "value": 1}, {"op": "remove", "path": "/a"}]),
            json!({}),
        ),
        (json!({"a": 1}), json!([{"op": "test", "path": "", "value": {"a": 1}}]), json!({"a": 1})),
        (json!({"a": 1}), json!([{"op": "replace", "path": "", "value": {"b": 2}}]), json!({"b": 2})),
        (json!({"a": 1}), json!([]), json!({"a": 1})),
        (json!({"a": 1}), json!(null), json!({"a": 1})),
    ] {
        assert_eq!(patched(doc, patch.clone()), Ok(result), "{patch}");
    }
}

#[test]
fn upstream_is_kinder_than_the_rfc() {
    for (patch, result) in [
        (json!([{"op": "replace", "path": "/new", "value": 1}]), json!({"a": {}, "new": 1})),
        (json!([{"op": "copy", "from": "/absent", "path": "/new"}]), json!({"a": {}, "new": null})),
        (json!([{"op": "add", "path": "/new"}]), json!({"a": {}, "new": null})),
        (json!([{"op": "test", "path": "/absent", "value": null}]), json!({"a": {}})),
        (json!([{"op": "add", "path": "ignored/new", "value": 1}]), json!({"a": {}, "new": 1})),
    ] {
        assert_eq!(patched(json!({"a": {}}), patch.clone()), Ok(result), "{patch}");
    }
}

#[test]
fn what_does_not_fit_is_explained() {
    let doc = json!({"a": {"b": 1}, "l": [1, 2]});
    for (operation, message) in [
        (
            json!({"op": "remove", "path": "/x"}),
            "error in remove for path: '/x': Unable to remove nonexistent key: x: missing value",
        ),
        (
            json!({"op": "remove", "path": "/l/2"}),
            "error in remove for path: '/l/2': Unable to access invalid index: 2: invalid index referenced",
        ),
        (
            json!({"op": "remove", "path": "/l/-3"}),
            "error in remove for path: '/l/-3': Unable to access invalid index: -3: invalid index referenced",
        ),
        (
            json!({"op": "remove", "path": "/x/y"}),
            "remove operation does not apply: doc is missing path: \"/x/y\": missing value",
        ),
        (
            json!({"op": "add", "path": "/x/y", "value": 1}),
            "add operation does not apply: doc is missing path: \"/x/y\": missing value",
        ),
        (
            json!({"op": "add", "path": "", "value": 1}),
            "add operation does not apply: doc is missing path: \"\": missing value",
        ),
        (
            json!({"op": "add", "path": "/a/b/c", "value": 1}),
            "add operation does not apply: doc is missing path: \"/a/b/c\": missing value",
        ),
        (
            json!({"op": "add", "path": "/l/x", "value": 1}),
            "error in add for path: '/l/x': value was not a proper array index: 'x': strconv.Atoi: parsing \"x\": invalid syntax",
        ),
        (
            json!({"op": "add", "path": "/l/4", "value": 1}),
            "error in add for path: '/l/4': Unable to access invalid index: 4: invalid index referenced",
        ),
        (json!({"op": "add"}), "add operation failed to decode path: missing value"),
        (
            json!({"op": "replace", "path": "/l/2", "value": 1}),
            "replace operation does not apply: doc is missing key: /l/2: missing value",
        ),
        (
            json!({"op": "replace", "path": "/x/y", "value": 1}),
            "replace operation does not apply: doc is missing path: /x/y: missing value",
        ),
        (
            json!({"op": "move", "from": "/x", "path": "/y"}),
            "error in move for path: 'x': Unable to remove nonexistent key: x: missing value",
        ),
        (
            json!({"op": "move", "path": "/y"}),
            "move operation failed to decode from: operation, missing from field: missing value",
        ),
        (json!({"op": "test", "path": "/a/b", "value": 2}), "testing value /a/b failed: test failed"),
        (json!({"op": "test", "path": "/a/b"}), "testing value /a/b failed: test failed"),
        (json!({"op": "grow", "path": "/a"}), "Unexpected kind: grow"),
        (json!({"path": "/a"}), "Unexpected kind: unknown"),
    ] {
        assert_eq!(refusal(doc.clone(), operation.clone()), message, "{operation}");
    }
}

#[test]
fn what_is_no_patch_is_malformed() {
    for (patch, message) in [
        (
            "{}",
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
        (
            "[1]",
            "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
        ),
        (
            r#"[{"op":1}]"#,
            "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
        ),
        ("[", "error decoding patch: unexpected end of JSON input"),
    ] {
        assert_eq!(
            json_patch(&mut json!({}), patch.as_bytes()),
            Err(PatchError::Malformed(message.to_owned()))
        );
    }
    for (patch, message) in [
        (
            "[]",
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        ("null", "Invalid JSON Patch"),
        ("{", "error decoding patch: unexpected end of JSON input"),
    ] {
        assert_eq!(
            merge_patch(&mut json!({}), patch.as_bytes()),
            Err(PatchError::Malformed(message.to_owned()))
        );
    }
}

#[test]
fn patches_are_bounded() {
    let many = Value::Array(vec![json!({"op": "test", "path": "/x"}); MAX_OPERATIONS + 1]);
    assert_eq!(
        patched(json!({}), many),
        Err(PatchError::TooLarge(
            "The allowed maximum operations in a JSON patch is 10000, got 10001".to_owned()
        ))
    );
    let doubling: Vec<Value> =
        (0..30).map(|at| json!({"op": "copy", "from": "", "path": format!("/{at}")})).collect();
    assert!(
        refusal(json!({"a": 1}), doubling[0].clone()).contains("missing from path"),
        "the root is in no container"
    );
    let doubling: Vec<Value> = (0..40).map(|_| json!({"op": "copy", "from": "/a", "path": "/a/-"})).collect();
    let grown = patched(json!({"a": ["x".repeat(1000)]}), Value::Array(doubling));
    let message = grown.unwrap_err().to_string();
    assert!(message.starts_with("Unable to complete the copy, the accumulated size increase"), "{message}");
    let nesting: Vec<Value> =
        (0..200).map(|at| json!({"op": "add", "path": "/a".repeat(at + 1), "value": {}})).collect();
    assert_eq!(
        patched(json!({}), Value::Array(nesting)).unwrap_err().to_string().rsplit(": ").next(),
        Some("exceeded max depth")
    );
}

#[test]
fn work_is_bounded() {
    let doc = json!({"a": vec![0; 100_000], "b": {}});
    let back_and_forth: Vec<Value> = (0..10_000)
        .map(|at| if at % 2 == 0 { ("/a", "/b/a") } else { ("/b/a", "/a") })
        .map(|(from, path)| json!({"op": "move", "from": from, "path": path}))
        .collect();
    let message = patched(doc.clone(), Value::Array(back_and_forth)).unwrap_err().to_string();
    assert!(message.ends_with("the patch takes too much work"), "{message}");
    let few: Vec<Value> = (0..100).map(|_| json!({"op": "add", "path": "/a/0", "value": 1})).collect();
    assert!(patched(doc, Value::Array(few)).is_ok());
}

#[test]
fn unknown_members_of_operations_are_found() {
    let patch = json!([{"op": "add", "path": "/a"}, {"op": "add", "value": 1, "extra": 2}]);
    assert_eq!(
        json_patch_unknown_fields(patch.to_string().as_bytes()),
        ["json patch unknown field \"[1].extra\""]
    );
}

#[test]
fn a_merge_patch_sets_and_removes() {
    for (doc, patch, result) in [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (
            json!({"a": {"b": "c", "x": 1}}),
            json!({"a": {"b": "d", "c": null}}),
            json!({"a": {"b": "d", "x": 1}}),
        ),
        (json!({"a": {"b": 1}}), json!({"a": [1]}), json!({"a": [1]})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        (json!({}), json!({"a": [null, {"b": null, "c": 1}]}), json!({"a": [null, {"c": 1}]})),
        (json!({"a": {}}), json!({"a": [{"b": null}]}), json!({"a": [{"b": null}]})),
    ] {
        assert_eq!(merged(doc, patch.clone()), result, "{patch}");
    }
}
