//! Every reader of outside input, fed with damaged input: none panics, none grows without bound.
//!
//! Valid inputs are mutated from a seed that is printed when a case fails. `HANSE_FUZZ_SECONDS` sets how long each
//! reader is tried (2 by default), `HANSE_FUZZ_SEED` repeats a run.

// A test may look at the clock; what it tests may not.
#![allow(clippy::disallowed_methods)]

use std::time::{Duration, Instant};

use machinery::{
    apply::{self, BuiltinVersion, FieldSet, PathElement, Request, Schema, SchemaBuilder},
    definition, gojson,
    jsonpath::JsonPath,
    names, patch, protobuf,
    quantity::Quantity,
    schema::{self, Options, Types},
    selector::{FieldSelector, LabelSelector},
    strategic,
    structural::{Malformed, Path, RuleSet, Structural},
};
use serde_json::{Value, json};

/// A small generator of good enough randomness (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (self.next() % bound as u64) as usize }
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// Bytes that mean something to one of the readers.
const INTERESTING: &[u8] = b"\0\x01\x7f\x80\xff{}[]\",:.=!()<>\\/$@*'?-+ eE019aZ%~\n\xc3\xa9";

fn mutate(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = random.pick(corpus).clone();
    for _ in 0..random.below(6) {
        let at = random.below(bytes.len() + 1);
        match random.below(6) {
            0 if at < bytes.len() => bytes[at] = random.next() as u8,
            1 if at < bytes.len() => bytes[at] = *random.pick(INTERESTING),
            2 => bytes.insert(at, *random.pick(INTERESTING)),
            3 if at < bytes.len() => drop(bytes.remove(at)),
            4 => bytes.truncate(at),
            _ => {
                // A piece of another input, or of this one.
                let other = random.pick(corpus);
                let start = random.below(other.len() + 1);
                let end = start + random.below(other.len() - start + 1);
                let piece = other[start..end].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes.truncate(64 * 1024);
    bytes
}

/// Tries `check` on mutated inputs until the time is up.
fn fuzz(name: &str, corpus: &[&str], check: impl Fn(&[u8]) + std::panic::RefUnwindSafe) {
    let corpus: Vec<Vec<u8>> = corpus.iter().map(|input| input.as_bytes().to_vec()).collect();
    fuzz_bytes(name, &corpus, check);
}

fn fuzz_bytes(name: &str, corpus: &[Vec<u8>], check: impl Fn(&[u8]) + std::panic::RefUnwindSafe) {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let until = Instant::now() + Duration::from_secs(number("HANSE_FUZZ_SECONDS", 2));
    let seed = number("HANSE_FUZZ_SEED", 0x5eed);
    let mut random = Random(seed | 1);
    let mut cases = 0u64;
    while Instant::now() < until {
        for _ in 0..50 {
            let input = mutate(&mut random, corpus);
            cases += 1;
            let outcome = std::panic::catch_unwind(|| check(&input));
            if outcome.is_err() {
                panic!("{name}: case {cases} of seed {seed}: {:?}", String::from_utf8_lossy(&input));
            }
        }
    }
    println!("{name}: {cases} cases of seed {seed}");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn label_selectors() {
    let corpus =
        ["", "a=b,c!=d", "e in (x,y),f notin (z,)", "g,!h", "a.b/c==d", "n>1,m<2", "in in (in,notin)"];
    fuzz("label selectors", &corpus, |bytes| {
        if let Ok(selector) = LabelSelector::parse(&text(bytes)) {
            let printed = selector.to_string();
            let again = LabelSelector::parse(&printed).expect("what is printed can be read");
            assert_eq!(again.to_string(), printed);
            selector.matches(&[("a".into(), "b".into()), ("n".into(), "5".into())]);
        }
    });
}

#[test]
fn field_selectors() {
    let corpus = ["", "metadata.name=a", "a==b,c!=d", r"a=\,\=\\", "status.phase!=Running,spec.nodeName="];
    fuzz("field selectors", &corpus, |bytes| {
        if let Ok(selector) = FieldSelector::parse(&text(bytes)) {
            let again = FieldSelector::parse(&selector.to_string()).expect("what is printed can be read");
            // The order of terms is that of the text, `=` and `==` apart.
            assert!(again.terms().iter().all(|term| selector.terms().contains(term)));
            selector.matches(|_| Some("a"));
        }
    });
}

#[test]
fn names_and_quantities() {
    let corpus = [
        "a",
        "a-b.c",
        "example.com/name",
        "100m",
        "1.5Gi",
        "12e6",
        "-0.000000001",
        "9223372036854775807Ei",
        "1e-400",
    ];
    fuzz("names and quantities", &corpus, |bytes| {
        let text = text(bytes);
        for rule in
            [names::is_dns1123_label, names::is_qualified_name, names::is_config_map_key, names::is_port_name]
        {
            rule(&text);
        }
        names::subdomain_name(&text, true);
        assert!(names::generate_name(&text, [7; 8]).len() <= 63);
        if let Ok(quantity) = Quantity::parse(&text) {
            let printed = quantity.to_string();
            assert!(printed.len() <= text.len() + 60);
            let _ = (
                quantity.value(),
                quantity.milli_value(),
                quantity.add(&quantity),
                quantity.cmp(&Quantity::ZERO),
            );
            let _ = quantity.sub(&Quantity::ZERO).to_string();
        }
    });
}

fn document() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "labels": {"x": "y"}, "finalizers": ["f/a", "f/b"]},
        "spec": {"replicas": 2, "template": {"spec": {
            "containers": [{"name": "a", "image": "1", "env": [{"name": "E", "value": "v"}]}, {"name": "b", "ports": [{"containerPort": 80}]}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        }}},
    })
}

#[test]
fn json_and_merge_patches() {
    let corpus = [
        r#"[{"op":"add","path":"/metadata/labels/z","value":{"a":[1]}}]"#,
        r#"[{"op":"copy","from":"/spec","path":"/spec/x"},{"op":"move","from":"/spec/x","path":"/y"}]"#,
        r#"[{"op":"test","path":"/kind","value":"Deployment"},{"op":"remove","path":"/metadata/finalizers/-1"}]"#,
        r#"[{"op":"replace","path":"","value":{}},{"op":"add","path":"/a~1b~0c/-","value":null}]"#,
        r#"{"metadata":{"labels":{"x":null}},"spec":{"replicas":3,"list":[{"a":null}]}}"#,
    ];
    fuzz("patches", &corpus, |bytes| {
        for apply in [patch::json_patch, patch::merge_patch] {
            let mut doc = document();
            drop(apply(&mut doc, bytes));
            assert!(gojson::depth(&doc) <= gojson::MAX_DEPTH);
            assert!(doc.to_string().len() <= 2 * bytes.len() + 4096 + patch::MAX_COPIED_BYTES);
        }
        patch::json_patch_unknown_fields(bytes);
    });
}

#[test]
fn strategic_patches() {
    let corpus = [
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"b","image":"2"},{"name":"a","$patch":"delete"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"b"},{"name":"a"}],"containers":[{"name":"c"},{"$patch":"replace"}]}}}}"#,
        r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["f/a"],"finalizers":["f/c"],"labels":{"$patch":"replace"}}}"#,
        r#"{"spec":{"template":{"spec":{"volumes":[{"name":"v","$retainKeys":["name","hostPath"],"hostPath":{"path":"/"}}]}}}}"#,
    ];
    let types = Types::builtin();
    let deployment = types.get("apps/v1.Deployment").unwrap();
    fuzz("strategic patches", &corpus, |bytes| {
        if let Ok(patch) = serde_json::from_slice(bytes) {
            let mut doc = document();
            drop(strategic::strategic_merge(types, deployment, &mut doc, patch));
            assert!(doc.to_string().len() <= 2 * bytes.len() + 4096);
        }
    });
}

#[test]
fn typed_trees() {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "creationTimestamp": "2024-01-01T00:00:00Z", "ownerReferences": [{"uid": "u"}]},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1", "memory": 5}}, "ports": [{"containerPort": 80}]}],
                 "volumes": [{"secret": {"defaultMode": 420}}], "tolerations": [{"tolerationSeconds": 3}]},
        "status": {"conditions": [{"type": "Ready", "lastProbeTime": null}], "startTime": "2024-01-01T00:00:00+01:00"},
    });
    let crd = json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": {
        "properties": {"a": {"items": [{}], "additionalProperties": false, "default": [1], "maximum": 1.5}}}}}]}});
    let secret = json!({"data": {"a": "YQ==", "b": [1, 2]}, "stringData": {"c": "d"}, "immutable": true});
    let corpus = [pod.to_string(), crd.to_string(), secret.to_string()];
    let types = Types::builtin();
    let names =
        ["core/v1.Pod", "apiextensions/v1.CustomResourceDefinition", "core/v1.Secret", "events/v1.Event"];
    fuzz("typed trees", &corpus.each_ref().map(String::as_str), |bytes| {
        for message in names.map(|name| types.get(name).unwrap()) {
            schema::strict_errors(types, message, bytes);
            let Ok(mut tree) = serde_json::from_slice::<Value>(bytes) else { continue };
            if schema::conform(types, message, &mut tree, Options::default()).is_ok() {
                let once = tree.clone();
                assert!(once.to_string().len() <= 500 * bytes.len() + 4096);
                schema::conform(types, message, &mut tree, Options::default())
                    .expect("what conforms conforms again");
                assert_eq!(tree, once, "and stays the same");
            }
        }
    });
}

#[test]
fn duplicates_and_syntax() {
    let corpus = [
        r#"{"a":1,"a":2,"b":[{"c":1,"c":2}]}"#,
        r#"{"x":"\u00e9\n","y":-1.5e+3,"z":[true,false,null]}"#,
        "[[[[]]]]",
    ];
    fuzz("duplicates and syntax", &corpus, |bytes| {
        let duplicates = schema::find_duplicates(bytes);
        assert!(duplicates.len() <= 100);
        let mistake = gojson::syntax_error(bytes);
        if let Ok(tree) = serde_json::from_slice::<Value>(bytes) {
            assert_eq!(mistake, None, "what serde_json reads is JSON");
            assert_eq!(schema::has_duplicates(bytes, &tree), !duplicates.is_empty(), "both say the same");
        }
    });
}

#[test]
fn json_paths() {
    let corpus = [
        ".metadata.name",
        r#".status.conditions[?(@.type=="Ready")].status"#,
        ".spec.ports[0:2,-1]['a']",
        r".metadata.annotations.x\.y",
        "{..a[*].b}",
        ".a[?(@.b<=1.5)].c",
    ];
    let object = document();
    fuzz("JSON paths", &corpus, |bytes| {
        if let Ok(path) = JsonPath::parse(&text(bytes)) {
            assert!(path.find(&object).len() <= 10_000);
        }
    });
}

#[test]
fn protobuf_bodies() {
    let types = Types::builtin();
    let config_map = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x15\x0a\x0b\x0a\x01a\x1a\x02ns\x2a\x02uu\x12\x06\x0a\x01k\x12\x01v";
    let delete = b"k8s\0\x0a\x13\x0a\x02v1\x12\x0dDeleteOptions\x12\x05\x08\x1e\x12\x01x";
    let service = b"k8s\0\x0a\x0d\x0a\x02v1\x12\x07Service\x12\x14\x12\x12\x0a\x10\x0a\x01p\x12\x03TCP\x18\x50\x22\x04\x08\x00\x10\x50";
    let revision = b"k8s\0\x0a\x1d\x0a\x07apps/v1\x12\x12ControllerRevision\x12\x0b\x12\x09\x0a\x07{\"a\":1}";
    let corpus = [config_map.to_vec(), delete.to_vec(), service.to_vec(), revision.to_vec()];
    for body in &corpus[..1] {
        protobuf::decode(types, body).expect("the corpus is valid");
    }
    fuzz_bytes("protobuf", &corpus, |bytes| {
        if let Ok((gvk, mut tree)) = protobuf::decode(types, bytes) {
            assert!(gojson::depth(&tree) <= gojson::MAX_DEPTH);
            assert!(tree.to_string().len() <= 100 * bytes.len() + 4096);
            if let Some(message) = gvk.message(types) {
                drop(schema::conform(types, message, &mut tree, Options::default()));
            }
        }
    });
}

/// A schema and two values, in one document.
#[test]
fn schemas_of_custom_resources() {
    let schema = json!({
    "type": "object", "required": ["spec"], "properties": {
        "spec": {"type": "object", "x-kubernetes-validations": [{"rule": "has(self.a) && self.a.size() < 3", "messageExpression": "'x' + self.a"}],
                 "properties": {"a": {"type": "string", "pattern": "^[a-z\\d]+(b|c)*$", "default": "b", "maxLength": 5, "format": "email"}}},
        "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                 "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "integer", "enum": [1, 2.5, "A"]}}}},
        "any": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}], "nullable": true},
        "map": {"type": "object", "additionalProperties": {"type": "number", "multipleOf": 0.1, "maximum": 1e30, "format": "float"}},
        "in": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
    }});
    let value = json!({"metadata": {"name": "n"}, "spec": {"a": "ab", "x": 1}, "list": [{"k": 1}, {"k": 1}, null],
        "any": "1", "map": {"k": 0.3, "l": null}, "in": {"kind": "K", "metadata": {"labels": {"a": "b"}, "odd": 1}}});
    let corpus = [
        json!([schema, value, {"spec": {"a": "abcdefg"}}]).to_string(),
        json!([schema, {}, value]).to_string(),
    ];
    fuzz("schemas of custom resources", &corpus.each_ref().map(String::as_str), |bytes| {
        let Ok(Value::Array(parts)) = serde_json::from_slice(bytes) else { return };
        let [source, new, old, ..] = parts.as_slice() else { return };
        let schema = Structural::read(source);
        schema.violations(&Path::Root);
        schema.default_mistakes(&Path::Root, true);
        let served = schema.with_pruned_defaults();
        served.check_update(new, old);
        served.check_status(new, old);
        if let Some(rules) = RuleSet::of(&served, true) {
            let mut budget = 100_000;
            rules.check(new, Some(old), &served, true, &Path::Root, &mut budget);
        }
        if let Value::Object(mut tree) = new.clone()
            && served.accept(&mut tree, true, Malformed::Refuse).is_ok()
        {
            served.fill_defaults(&mut tree);
            let once = tree.clone();
            served.fill_defaults(&mut tree);
            assert_eq!(tree, once, "what is complete stays");
        }
    });
}

#[test]
fn custom_resource_definitions() {
    let definition = json!({"metadata": {"name": "foos.g.io"}, "spec": {
        "group": "g.io", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo", "shortNames": ["f"]},
        "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://a/b", "caBundle": "YQ=="}}},
        "versions": [{"name": "v1", "served": true, "storage": true, "deprecated": true, "deprecationWarning": "old",
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
            "selectableFields": [{"jsonPath": ".spec.c"}], "additionalPrinterColumns": [{"name": "A", "type": "date", "jsonPath": ".a[?(@.b==1)]"}],
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {"c": {"type": "string"}}}}}}}]}});
    fuzz("custom resource definitions", &[&definition.to_string()], |bytes| {
        let Ok(Value::Object(mut tree)) = serde_json::from_slice(bytes) else { return };
        definition::default(&mut tree);
        definition::prepare_create(&mut tree);
        let is_valid = definition::validate(&tree, None).is_empty();
        definition::validate(&tree, definition.as_object());
        definition::warnings(&tree, None);
        if let Some(next) = definition::next_status(&tree, [].into_iter(), "2024-01-01T00:00:00Z") {
            let again = definition::next_status(&next, [].into_iter(), "2024-01-02T00:00:00Z");
            assert!(!is_valid || again.is_none(), "what is settled stays");
            for version in definition::served(&next) {
                version.check_create(&json!({"spec": {"n": -1}}));
            }
        }
    });
}

#[test]
fn sets_of_fields() {
    let corpus = [
        r#"{"f:metadata":{"f:labels":{".":{},"f:app":{}},"f:finalizers":{"v:\"a\"":{},"v:1":{}}}}"#,
        r#"{"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}},"i:3":{}}}}"#,
        r#"{"k:{\"a\":null,\"b\":[1.5,{}]}":{},"v:1e3":{},"v:-0":{},"v:9007199254740993":{},"x:later":{}}"#,
    ];
    fuzz("sets of fields", &corpus, |bytes| {
        drop(PathElement::parse(&text(bytes)));
        if let Ok(set) = FieldSet::from_json(&text(bytes)) {
            let written = set.to_json();
            assert!(written.len() <= 30 * bytes.len() + 64);
            let again = FieldSet::from_json(&written).expect("what is written can be read");
            assert_eq!(again, set);
            assert_eq!(FieldSet::from_value(&set.to_value()), Ok(set.clone()));
            assert_eq!(again.clone().union(set.clone()), set);
            assert!(again.difference(&set).is_empty());
            let _ = set.to_string();
        }
    });
}

#[test]
fn applied_configurations() {
    let whole = document();
    let pruned = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "finalizers": ["f/b", "f/c"]},
        "spec": {"replicas": null, "template": {"spec": {"containers": [{"name": "b", "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]}]}}}});
    let wrong = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"labels": [1], "x": {}, "managedFields": [{}]},
        "spec": {"template": {"spec": {"containers": [{"name": 5}, null, {}], "volumes": {"a": []}}}}});
    let corpus = [whole.to_string(), pruned.to_string(), wrong.to_string()];
    let message = Types::builtin().get("apps/v1.Deployment").unwrap();
    let version = BuiltinVersion { api_version: "apps/v1", ty: Schema::of_message(message).unwrap() };
    let empty = apply::empty_object(message, "apps/v1", "Deployment");
    let request = |manager| Request {
        versions: &version,
        api_version: "apps/v1",
        kind: "Deployment",
        empty: &empty,
        manager,
        subresource: "",
        filters: &[],
        now: "2024-01-01T00:00:00Z",
    };
    let live = apply::apply(&request("one"), &empty, whole.as_object().unwrap(), false).unwrap();
    let owned = live["metadata"]["managedFields"].clone();
    fuzz("applied configurations", &corpus.each_ref().map(String::as_str), |bytes| {
        let Ok(Value::Object(config)) = serde_json::from_slice(bytes) else { return };
        for manager in ["one", "kubectl"] {
            let Ok(object) = apply::apply(&request(manager), &live, &config, true) else { continue };
            assert!(Value::Object(object.clone()).to_string().len() <= 30 * bytes.len() + 8192);
            apply::apply(&request(manager), &object, &config, false)
                .expect("what was applied can be applied again");
        }
        // The same as an update, with whatever managers it brings.
        let mut new = config;
        apply::track_update(&request("two"), Some(&live), &mut new, false);
        let mut live = live.clone();
        live["metadata"]["managedFields"] =
            new.get("metadata").and_then(|it| it.get("managedFields")).cloned().unwrap_or(owned.clone());
        apply::track_update(&request("three"), Some(&new), &mut live, true);
    });
}

#[test]
fn schemas_of_custom_kinds() {
    let corpus = [
        r#"{"type":"object","properties":{"spec":{"type":"object","properties":{"a":{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set"}}}}}"#,
        r#"{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"spec":{"additionalProperties":{"x-kubernetes-embedded-resource":true}}}}"#,
        r#"{"properties":{"spec":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","properties":{"k":{"default":1}}}}}}"#,
    ];
    let value =
        json!({"apiVersion": "v1", "kind": "K", "metadata": {"finalizers": ["a"]}, "spec": [{"k": 2}, {}]});
    fuzz("schemas of custom kinds", &corpus, |bytes| {
        let Ok(schema) = serde_json::from_slice::<Value>(bytes) else { return };
        let mut builder = SchemaBuilder::new();
        let Ok(id) = builder.custom_resource(&schema, false) else { return };
        let built = builder.build();
        let ty = built.get(id);
        for value in [&value, &schema] {
            if apply::validate(ty, value, apply::Duplicates::Refused).is_ok() {
                let set = apply::field_set(ty, value).expect("what fits has fields");
                let same = apply::compare(ty, value, value).expect("what fits can be compared");
                assert!(same.is_same(), "a value is the same as itself");
                apply::remove_from_value(ty, value.clone(), &set);
                let merged = apply::merge_values(ty, value, value).expect("what fits can be merged");
                assert_eq!(&merged, value, "a value laid over itself stays the same");
            }
        }
    });
}
