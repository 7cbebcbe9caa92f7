use serde_json::json;

use super::*;

fn merged(message: &str, mut original: Value, patch: Value) -> Result<Value, PatchError> {
    let types = Types::builtin();
    strategic_merge(types, types.get(message).unwrap(), &mut original, patch)?;
    Ok(original)
}

fn pod(original: Value, patch: Value) -> Result<Value, PatchError> {
    merged("core/v1.PodSpec", original, patch)
}

fn check(message: &str, rows: Vec<(&str, Value, Value, Value)>) {
    for (what, original, patch, result) in rows {
        assert_eq!(merged(message, original, patch), Ok(result), "{what}");
    }
}

#[test]
fn maps_merge() {
    check(
        "core/v1.ConfigMap",
        vec![
            (
                "members are set",
                json!({"data": {"a": "1"}}),
                json!({"data": {"b": "2"}}),
                json!({"data": {"a": "1", "b": "2"}}),
            ),
            (
                "null removes",
                json!({"data": {"a": "1", "b": "2"}}),
                json!({"data": {"a": null}}),
                json!({"data": {"b": "2"}}),
            ),
            (
                "null of nothing is nothing",
                json!({}),
                json!({"data": {"a": null, "b": "1"}}),
                json!({"data": {"b": "1"}}),
            ),
            (
                "replace",
                json!({"data": {"a": "1"}}),
                json!({"data": {"$patch": "replace", "b": "2"}}),
                json!({"data": {"b": "2"}}),
            ),
            (
                "delete",
                json!({"data": {"a": "1"}}),
                json!({"data": {"$patch": "delete"}}),
                json!({"data": {}}),
            ),
            (
                "the whole object",
                json!({"data": {"a": "1"}}),
                json!({"$patch": "replace", "kind": "X"}),
                json!({"kind": "X"}),
            ),
            ("no patch", json!({"data": {}}), json!(null), json!({"data": {}})),
            (
                "a directive for nothing is dropped",
                json!({}),
                json!({"data": {"$patch": "delete"}}),
                json!({}),
            ),
        ],
    );
}

#[test]
fn lists_with_a_key_merge_by_it() {
    let two = || json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]});
    check(
        "core/v1.PodSpec",
        vec![
            (
                "items merge",
                two(),
                json!({"containers": [{"name": "b", "image": "2"}]}),
                json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]}),
            ),
            (
                "new items come first when nothing tells their place",
                two(),
                json!({"containers": [{"name": "c"}]}),
                json!({"containers": [{"name": "c"}, {"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}),
            ),
            (
                "items are deleted by key",
                two(),
                json!({"containers": [{"name": "a", "$patch": "delete"}]}),
                json!({"containers": [{"name": "b", "image": "1"}]}),
            ),
            (
                "the list is replaced",
                two(),
                json!({"containers": [{"name": "c"}, {"$patch": "replace"}]}),
                json!({"containers": [{"name": "c"}]}),
            ),
            (
                "one item is replaced",
                two(),
                json!({"containers": [{"name": "a", "$patch": "replace"}]}),
                json!({"containers": []}),
            ),
            ("null removes the list", two(), json!({"containers": null}), json!({})),
            (
                "lists in items merge too",
                json!({"containers": [{"name": "a", "env": [{"name": "x", "value": "1"}]}]}),
                json!({"containers": [{"name": "a", "env": [{"name": "y", "value": "2"}]}]}),
                json!({"containers": [{"name": "a", "env": [{"name": "y", "value": "2"}, {"name": "x", "value": "1"}]}]}),
            ),
            (
                "lists without strategy are replaced",
                json!({"containers": [{"name": "a", "args": ["1"]}]}),
                json!({"containers": [{"name": "a", "args": ["2"]}]}),
                json!({"containers": [{"name": "a", "args": ["2"]}]}),
            ),
        ],
    );
}

#[test]
fn an_order_can_be_given() {
    let three = || json!({"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]});
    check(
        "core/v1.PodSpec",
        vec![
            (
                "of what is there",
                three(),
                json!({"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}]}),
                json!({"containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}]}),
            ),
            (
                "with new items",
                three(),
                json!({"$setElementOrder/containers": [{"name": "a"}, {"name": "n"}, {"name": "b"}], "containers": [{"name": "n", "image": "i"}]}),
                json!({"containers": [{"name": "a"}, {"name": "n", "image": "i"}, {"name": "b"}, {"name": "c"}]}),
            ),
            (
                "what only the server has stays near its place",
                three(),
                json!({"$setElementOrder/containers": [{"name": "a"}, {"name": "c"}]}),
                json!({"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}),
            ),
            (
                "for a list that is new",
                json!({}),
                json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "b"}, {"name": "a"}]}),
                json!({"containers": [{"name": "b"}, {"name": "a"}]}),
            ),
            ("for nothing", json!({}), json!({"$setElementOrder/containers": [{"name": "a"}]}), json!({})),
        ],
    );
    let wrong = json!({"$setElementOrder/containers": [{"name": "a"}, {"name": "b"}], "containers": [{"name": "b"}, {"name": "a"}]});
    assert_eq!(
        pod(three(), wrong).unwrap_err().to_string(),
        "The order in patch list:\n[map[name:b] map[name:a]]\n doesn't match $setElementOrder list:\n[map[name:a] map[name:b]]\n"
    );
}

#[test]
fn lists_of_plain_values_merge_as_sets() {
    let meta = |finalizers: Value| json!({"finalizers": finalizers});
    check(
        "meta/v1.ObjectMeta",
        vec![
            (
                "items are added",
                meta(json!(["a", "b"])),
                meta(json!(["c", "b"])),
                meta(json!(["c", "a", "b"])),
            ),
            (
                "items are deleted",
                meta(json!(["a", "b", "c"])),
                json!({"$deleteFromPrimitiveList/finalizers": ["b", "x"]}),
                meta(json!(["a", "c"])),
            ),
            (
                "both, with an order",
                meta(json!(["a", "b"])),
                json!({"$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["c", "b"], "finalizers": ["c"]}),
                meta(json!(["c", "b"])),
            ),
            (
                "deleting from nothing",
                json!({}),
                json!({"$deleteFromPrimitiveList/finalizers": ["a"]}),
                json!({}),
            ),
        ],
    );
}

#[test]
fn keys_can_be_retained() {
    let rolling = json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}});
    check(
        "apps/v1.DeploymentSpec",
        vec![(
            "the others go",
            rolling.clone(),
            json!({"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}),
            json!({"strategy": {"type": "Recreate"}}),
        )],
    );
    check(
        "core/v1.PodSpec",
        vec![(
            "also in items of lists",
            json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
            json!({"volumes": [{"name": "v", "$retainKeys": ["name", "emptyDir"], "emptyDir": {}}]}),
            json!({"volumes": [{"name": "v", "emptyDir": {}}]}),
        )],
    );
    for directive in [json!(["rollingUpdate"]), json!("type")] {
        let patch = json!({"strategy": {"$retainKeys": directive, "type": "Recreate"}});
        let refused = merged("apps/v1.DeploymentSpec", rolling.clone(), patch);
        assert_eq!(refused, Err(PatchError::Malformed("invalid patch format of retainKeys".to_owned())));
    }
}

#[test]
fn values_of_another_type_replace() {
    check(
        "core/v1.ServicePort",
        vec![
            (
                "a number by a text",
                json!({"targetPort": 80}),
                json!({"targetPort": "http"}),
                json!({"targetPort": "http"}),
            ),
            (
                "a map by a text",
                json!({"targetPort": {"a": 1}}),
                json!({"targetPort": "x"}),
                json!({"targetPort": "x"}),
            ),
            ("null by a map", json!({"x": null}), json!({"x": {"a": null, "b": 1}}), json!({"x": {"b": 1}})),
        ],
    );
}

#[test]
fn mistakes_are_explained() {
    let one = || json!({"containers": [{"name": "a", "resources": {"limits": {"x": {}}}}], "nodeSelector": {"a": {}}});
    for (patch, message) in [
        (
            json!({"containers": [{"image": "x", "n": [1]}]}),
            "map: map[image:x n:[1]] does not contain declared merge key: name",
        ),
        (
            json!({"containers": [{"$patch": "delete"}]}),
            "map: map[$patch:delete] does not contain declared merge key: name",
        ),
        (
            json!({"containers": [{"name": "a", "$patch": "merge"}]}),
            "merging lists cannot yet be specified in the patch",
        ),
        (
            json!({"containers": [{"name": "a", "$patch": "x"}]}),
            "unknown patch type: x in map: map[$patch:x name:a]",
        ),
        (json!({"nodeSelector": {"$patch": 1}}), "unknown patch type: %!s(int64=1) in map: map[$patch:1]"),
        (
            json!({"containers": ["x"]}),
            "list element types are not identical: [[map[name:a resources:map[limits:map[x:map[]]]]] [x]]",
        ),
        (
            json!({"nodeSelector": {"a": {"b": 1}}}),
            "merging an object in json but data type is not struct, instead is: map",
        ),
        (
            json!({"$setElementOrder/containers": {}}),
            "expected a []interface {}, but received a map[string]interface {}",
        ),
    ] {
        assert_eq!(pod(one(), patch.clone()), Err(PatchError::Inapplicable(message.to_owned())), "{patch}");
    }
    for (patch, message) in [
        (json!({"$setElementOrder": []}), "invalid patch format of setElementOrder list"),
        (json!({"$deleteFromPrimitiveList": []}), "invalid patch format of primitive list"),
        (json!([]), "json: cannot unmarshal array into Go value of type map[string]interface {}"),
    ] {
        assert_eq!(pod(one(), patch.clone()), Err(PatchError::Malformed(message.to_owned())), "{patch}");
    }
    let unknown = pod(json!({"foo": {}}), json!({"foo": {"a": 1}}));
    assert_eq!(
        unknown.unwrap_err().to_string(),
        "unable to find api field in struct PodSpec for the json field \"foo\""
    );
    let keyless = merged(
        "core/v1.PodSpec",
        json!({"imagePullSecrets": [{"x": 1}]}),
        json!({"imagePullSecrets": [{"name": "a"}]}),
    );
    assert_eq!(keyless.unwrap_err().to_string(), "map: map[x:1] does not contain declared merge key: name");
}
