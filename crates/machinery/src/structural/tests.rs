//! Tables of schemas, objects and what becomes of them.

use serde_json::json;

use super::*;

fn schema(properties: Value) -> Structural {
    Structural::read(&json!({"type": "object", "properties": properties}))
}

fn told(causes: Vec<crate::field_error::Cause>) -> Vec<String> {
    causes.into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
}

/// A schema of `spec`, a value of it, and what is wrong with that.
#[test]
fn values_are_checked_in_upstreams_words() {
    let x = |what: &str| format!("spec.x: {what}");
    for (property, value, wrong) in [
        (
            json!({"type": "integer"}),
            json!("a"),
            vec![x(r#"Invalid value: "string": spec.x in body must be of type integer: "string""#)],
        ),
        (json!({"type": "integer"}), json!(1.0), vec![]),
        (
            json!({"type": "integer"}),
            json!(1.5),
            vec![
                x(r#"Invalid value: "number": spec.x in body must be of type integer: "number""#),
                r#"<nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.x"#.into(),
            ],
        ),
        (json!({"type": "number"}), json!(1), vec![]),
        (
            json!({"type": "integer", "format": "int32"}),
            json!(3_000_000_000_i64),
            vec![
                r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.x"#.into(),
            ],
        ),
        (
            json!({"type": "string"}),
            json!(null),
            vec![x(r#"Invalid value: "null": spec.x in body must be of type string: "null""#)],
        ),
        (json!({"type": "string", "nullable": true}), json!(null), vec![]),
        (json!({"x-kubernetes-int-or-string": true}), json!("a"), vec![]),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!(true),
            vec![x(r#"Invalid value: "boolean": spec.x in body must be of type integer,string: "boolean""#)],
        ),
        (
            json!({"type": "string", "maxLength": 2}),
            json!("äöü"),
            vec![x("Too long: may not be more than 2 bytes")],
        ),
        (
            json!({"type": "string", "minLength": 2}),
            json!("a"),
            vec![x(r#"Invalid value: "a": spec.x in body should be at least 2 chars long"#)],
        ),
        (
            json!({"type": "string", "pattern": "^[a-z]+$"}),
            json!("A"),
            vec![x(r#"Invalid value: "A": spec.x in body should match '^[a-z]+$'"#)],
        ),
        (
            json!({"type": "string", "format": "date"}),
            json!("soon"),
            vec![x(r#"Invalid value: "soon": spec.x in body must be of type date: "soon""#)],
        ),
        (json!({"type": "string", "format": "nonsense"}), json!("soon"), vec![]),
        (
            json!({"type": "string", "enum": ["a", "b"]}),
            json!("c"),
            vec![x(r#"Unsupported value: "c": supported values: "a", "b""#)],
        ),
        (
            json!({"type": "integer", "maximum": 5, "minimum": 1, "exclusiveMinimum": true}),
            json!(1),
            vec![x("Invalid value: 1: spec.x in body should be greater than 1")],
        ),
        (
            json!({"type": "number", "maximum": 1000000.5}),
            json!(2e6),
            vec![x("Invalid value: 2e+06: spec.x in body should be less than or equal to 1.0000005e+06")],
        ),
        (
            json!({"type": "integer", "multipleOf": 3}),
            json!(4),
            vec![x("Invalid value: 4: spec.x in body should be a multiple of 3")],
        ),
        (
            json!({"type": "array", "items": {"type": "integer"}, "maxItems": 1}),
            json!([1, "b"]),
            vec![
                r#"spec.x[1]: Invalid value: "string": spec.x[1] in body must be of type integer: "string""#.into(),
                x("Too many: 2: must have at most 1 item"),
            ],
        ),
        (
            json!({"type": "array", "items": {"type": "integer"}, "minItems": 1}),
            json!([]),
            vec![x("Invalid value: 0: spec.x in body should have at least 1 items")],
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 1}),
            json!({"a": 1, "b": "c"}),
            vec![
                x("Too many: 2: must have at most 1 item"),
                r#"spec.x.a: Invalid value: "integer": spec.x.a in body must be of type string: "integer""#.into(),
            ],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "b"]}),
            json!({"a": "x"}),
            vec!["spec.x.b: Required value".into()],
        ),
        (
            json!({"type": "string", "anyOf": [{"minLength": 3}, {"pattern": "^x"}]}),
            json!("a"),
            vec![
                r#"<nil>: Invalid value: "": "spec.x" must validate at least one schema (anyOf)"#.into(),
                x(r#"Invalid value: "a": spec.x in body should be at least 3 chars long"#),
            ],
        ),
        (
            json!({"type": "string", "oneOf": [{"minLength": 1}, {"pattern": "^a"}]}),
            json!("a"),
            vec![
                r#"<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found 2 valid alternatives"#
                    .into(),
            ],
        ),
        (
            json!({"type": "string", "allOf": [{"minLength": 1}, {"pattern": "^b"}]}),
            json!("a"),
            vec![
                x(r#"Invalid value: "a": spec.x in body should match '^b'"#),
                r#"<nil>: Invalid value: "": "spec.x" must validate all the schemas (allOf)"#.into(),
            ],
        ),
        (
            json!({"type": "string", "not": {"minLength": 1}}),
            json!("a"),
            vec![r#"<nil>: Invalid value: "": "spec.x" must not validate the schema (not)"#.into()],
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}),
            json!(["a", "b", "a", "a"]),
            vec![r#"spec.x[2]: Duplicate value: "a""#.into()],
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                   "items": {"type": "object", "properties": {"k": {"type": "string"}}}}),
            json!([{"k": "a"}, {"k": "a", "v": 1}, {}]),
            vec![r#"spec.x[1]: Duplicate value: {"k":"a"}"#.into()],
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
            json!({"apiVersion": "a/b/c", "metadata": {"name": "x/y"}}),
            vec![
                r#"spec.x.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c"#.into(),
                "spec.x.kind: Required value".into(),
                r#"spec.x.metadata.name: Invalid value: "x/y": may not contain '/'"#.into(),
            ],
        ),
    ] {
        let schema = schema(json!({"spec": {"type": "object", "properties": {"x": property}}}));
        let found = told(schema.check_create(&json!({"spec": {"x": value}})));
        assert_eq!(found, wrong, "{value}");
    }
}

/// The schema of `spec`, and what stays of its value.
#[test]
fn unknown_fields_go() {
    for (spec, given, kept, dropped) in [
        (json!({"type": "object"}), json!({"a": 1}), json!({}), vec!["spec.a"]),
        (
            json!({"type": "object", "properties": {"a": {"type": "object"}, "b": {"type": "array", "items": {"type": "object"}}}}),
            json!({"a": {"c": 1}, "b": [{}, {"d": {"e": 1}}]}),
            json!({"a": {}, "b": [{}, {}]}),
            vec!["spec.a.c", "spec.b[1].d"],
        ),
        (
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {"type": "object"}}}),
            json!({"a": {"b": 1}, "c": {"d": 1}}),
            json!({"a": {}, "c": {"d": 1}}),
            vec!["spec.a.b"],
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {"type": "string"}}}}),
            json!({"x": {"a": "1", "b": 1}}),
            json!({"x": {"a": "1"}}),
            vec!["spec.x.b"],
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}}),
            json!({"kind": "A", "metadata": {"name": "a", "odd": 1}, "spec": {"a": 1}, "x": 1}),
            json!({"kind": "A", "metadata": {"name": "a"}, "spec": {}}),
            vec!["spec.spec.a", "spec.x", "spec.metadata.odd"],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}}),
            json!({"a": null}),
            json!({}),
            vec![],
        ),
    ] {
        let schema = schema(json!({"spec": spec}));
        let mut tree = json!({"metadata": {"name": "n"}, "kind": "K", "apiVersion": "g/v", "spec": given});
        let unknown = schema.accept(tree.as_object_mut().unwrap(), true, Malformed::Refuse).unwrap();
        assert_eq!(
            (&tree["spec"], unknown),
            (&kept, dropped.iter().map(|it| it.to_string()).collect()),
            "{given}"
        );
        assert_eq!(tree["metadata"], json!({"name": "n"}));
    }
}

#[test]
fn metadata_has_its_own_type() {
    let schema = schema(json!({}));
    let mut tree = json!({"metadata": {"name": "n", "x": 1, "labels": {"a": "b"}}});
    let unknown = schema.accept(tree.as_object_mut().unwrap(), true, Malformed::Refuse);
    assert_eq!(unknown, Ok(vec!["metadata.x".to_owned()]));
    let mut tree = json!({"metadata": {"name": 1, "labels": {"a": "b"}}});
    let refused = schema.accept(tree.clone().as_object_mut().unwrap(), true, Malformed::Refuse);
    assert_eq!(
        refused,
        Err("json: cannot unmarshal number into Go struct field ObjectMeta.name of type string".to_owned())
    );
    assert_eq!(schema.accept(tree.as_object_mut().unwrap(), true, Malformed::Drop), Ok(vec![]));
    assert_eq!(tree, json!({"metadata": {"labels": {"a": "b"}}}));
}

#[test]
fn defaults_are_filled_in() {
    for (spec, given, filled) in [
        (json!({"a": {"type": "string", "default": "x"}}), json!({}), json!({"a": "x"})),
        (json!({"a": {"type": "string", "default": "x"}}), json!({"a": "y"}), json!({"a": "y"})),
        (json!({"a": {"type": "string", "default": "x"}}), json!({"a": null}), json!({"a": "x"})),
        (
            json!({"a": {"type": "string", "default": "x", "nullable": true}}),
            json!({"a": null}),
            json!({"a": null}),
        ),
        (
            json!({"a": {"type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 1}}}}),
            json!({}),
            json!({"a": {"b": 1}}),
        ),
        (
            json!({"a": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "integer", "default": 1}}}}}),
            json!({"a": [{}, {"b": 2}]}),
            json!({"a": [{"b": 1}, {"b": 2}]}),
        ),
        (
            json!({"a": {"type": "object", "additionalProperties": {"type": "string", "default": "x"}}}),
            json!({"a": {"k": null}}),
            json!({"a": {"k": "x"}}),
        ),
    ] {
        let schema = schema(json!({"spec": {"type": "object", "properties": spec}}));
        let mut tree = json!({"spec": given});
        schema.fill_defaults(tree.as_object_mut().unwrap());
        assert_eq!(tree["spec"], filled, "{given}");
    }
}

#[test]
fn defaults_lose_what_the_schema_does_not_know() {
    let schema = schema(json!({
        "spec": {"type": "object", "default": {"a": 1, "b": {"c": 2, "d": 3}},
                 "properties": {"b": {"type": "object", "properties": {"d": {"type": "integer"}}}}},
        "list": {"type": "array", "items": {"type": "object", "default": {"x": 1}}},
    }));
    let served = schema.with_pruned_defaults();
    assert_eq!(served.properties["spec"].default, Some(json!({"b": {"d": 3}})));
    assert_eq!(served.properties["list"].items.as_ref().unwrap().default, Some(json!({})));
}

/// Errors in what did not change are forgiven.
#[test]
fn updates_may_leave_wrong_what_was_wrong() {
    let schema = schema(json!({"spec": {"type": "object", "properties": {
        "old": {"type": "string", "maxLength": 1},
        "any": {"type": "string", "anyOf": [{"maxLength": 1}]},
        "atomic": {"type": "array", "items": {"type": "string", "maxLength": 1}},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "string", "maxLength": 1}}}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    }}}));
    let long = "Too long: may not be more than 1 byte";
    for (new, old, wrong) in [
        (json!({"old": "ab"}), json!({"old": "ab"}), vec![]),
        (json!({"old": "ab"}), json!({"old": "ac"}), vec![format!("spec.old: {long}")]),
        (json!({"old": "ab"}), json!({}), vec![format!("spec.old: {long}")]),
        (json!({"old": "ab", "any": "x"}), json!({"old": "ab"}), vec![]),
        (json!({"any": "ab"}), json!({"any": "ab"}), vec![]),
        (json!({"atomic": ["ab"]}), json!({"atomic": ["ab"]}), vec![]),
        (json!({"atomic": ["ab", "c"]}), json!({"atomic": ["ab"]}), vec![format!("spec.atomic[0]: {long}")]),
        (
            json!({"map": [{"k": "n"}, {"k": "o", "v": "ab"}]}),
            json!({"map": [{"k": "o", "v": "ab"}]}),
            vec![],
        ),
        (
            json!({"map": [{"k": "p", "v": "ab"}]}),
            json!({"map": [{"k": "o", "v": "ab"}]}),
            vec![format!("spec.map[0].v: {long}")],
        ),
        (json!({"set": ["a", "a", "b", "b"]}), json!({"set": ["a", "a"]}), vec![]),
        (
            json!({"set": ["a", "a"]}),
            json!({"set": ["a"]}),
            vec!["spec.set[1]: Duplicate value: \"a\"".to_owned()],
        ),
    ] {
        let found = told(schema.check_update(&json!({"spec": new}), &json!({"spec": old})));
        assert_eq!(found, wrong, "{new} was {old}");
    }
}

#[test]
fn a_status_is_checked_alone() {
    let schema = schema(json!({
        "spec": {"type": "object", "required": ["a"]},
        "status": {"type": "object", "required": ["b"], "properties": {"n": {"type": "integer"}}},
    }));
    let new = json!({"spec": {}, "status": {"n": "x"}});
    assert_eq!(
        told(schema.check_status(&new, &json!({"spec": {}}))),
        [
            r#"status.n: Invalid value: "string": n in body must be of type integer: "string""#,
            "status.b: Required value",
        ]
    );
    assert_eq!(told(schema.check_status(&new, &new)), Vec::<String>::new());
}

mod rules {
    use super::{super::rules::REQUEST_BUDGET, *};

    /// What rules of `spec` say of a new object, or of one that replaces another.
    fn found(spec: Value, new: Value, old: Option<Value>) -> (Vec<String>, Vec<String>) {
        let schema = schema(json!({"spec": spec}));
        let rules = RuleSet::of(&schema, true).expect("there are rules");
        let wrap =
            |spec: Value| json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n"}, "spec": spec});
        let (new, old) = (wrap(new), old.map(wrap));
        let mut budget = REQUEST_BUDGET;
        let found = rules.check(&new, old.as_ref(), &schema, true, &Path::Root, &mut budget);
        (told(found.causes), found.warnings)
    }

    fn with_rule(mut schema: Value, rule: Value) -> Value {
        schema["x-kubernetes-validations"] = json!([rule]);
        schema
    }

    #[test]
    fn rules_hold_or_are_told() {
        let pair =
            json!({"type": "object", "properties": {"min": {"type": "integer"}, "max": {"type": "integer"}}});
        for (rule, new, wrong) in [
            (json!({"rule": "self.min <= self.max"}), json!({"min": 1, "max": 2}), vec![]),
            (
                json!({"rule": " self.min <= self.max "}),
                json!({"min": 3, "max": 2}),
                vec!["spec: Invalid value: failed rule: self.min <= self.max"],
            ),
            (
                json!({"rule": "self.min <= self.max", "message": "min is too large", "fieldPath": ".min"}),
                json!({"min": 3, "max": 2}),
                vec!["spec.min: Invalid value: min is too large"],
            ),
            (
                json!({"rule": "self.min <= self.max", "messageExpression": "'min is ' + string(self.min)", "reason": "FieldValueForbidden"}),
                json!({"min": 3, "max": 2}),
                vec!["spec: Forbidden: min is 3"],
            ),
            (
                json!({"rule": "self.min <= self.max"}),
                json!({"max": 2}),
                vec![
                    "spec: Invalid value: \"object\": no such key: min evaluating rule: self.min <= self.max",
                ],
            ),
            (json!({"rule": "self.min >= oldSelf.min"}), json!({"min": 3}), vec![]),
            (
                json!({"rule": "oldSelf.hasValue()", "optionalOldSelf": true}),
                json!({}),
                vec!["spec: Invalid value: failed rule: oldSelf.hasValue()"],
            ),
        ] {
            let (causes, warnings) = found(with_rule(pair.clone(), rule.clone()), new, None);
            assert_eq!(
                (causes.iter().map(String::as_str).collect::<Vec<_>>(), warnings),
                (wrong, vec![]),
                "{rule}"
            );
        }
    }

    #[test]
    fn transitions_are_asked_where_there_was_something() {
        let spec = json!({"type": "object", "properties": {
            "name": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is immutable"}]},
            "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                     "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}},
                               "x-kubernetes-validations": [{"rule": "self.v >= oldSelf.v"}]}},
        }});
        let old = json!({"name": "a", "list": [{"k": "x", "v": 5}, {"k": "y", "v": 1}]});
        let new = json!({"name": "b", "list": [{"k": "y", "v": 2}, {"k": "x", "v": 3}, {"k": "z", "v": 0}]});
        let (causes, _) = found(spec.clone(), new, Some(old));
        assert_eq!(
            causes,
            [
                "spec.list[1]: Invalid value: failed rule: self.v >= oldSelf.v",
                "spec.name: Invalid value: \"b\": is immutable",
            ]
        );
        assert_eq!(found(spec, json!({"name": "b"}), Some(json!({}))).0, Vec::<String>::new());
    }

    #[test]
    fn what_did_not_change_is_only_warned_of() {
        let spec = json!({"type": "object", "properties": {
            "a": {"type": "string", "x-kubernetes-validations": [{"rule": "self == 'x'"}]},
            "b": {"type": "string"},
        }});
        let (causes, warnings) =
            found(spec.clone(), json!({"a": "y", "b": "1"}), Some(json!({"a": "y", "b": "2"})));
        assert_eq!(
            (causes, warnings),
            (vec![], vec!["spec.a: Invalid value: \"y\": failed rule: self == 'x'".to_owned()])
        );
        let (causes, _) = found(spec, json!({"a": "z"}), Some(json!({"a": "y"})));
        assert_eq!(causes, ["spec.a: Invalid value: \"z\": failed rule: self == 'x'"]);
    }

    #[test]
    fn the_budget_ends_everything() {
        let spec = json!({"type": "object", "properties": {"l": {"type": "array", "items": {
            "type": "string", "x-kubernetes-validations": [{"rule": "self.contains('a')"}]}}}});
        let schema = schema(json!({"spec": spec}));
        let rules = RuleSet::of(&schema, true).unwrap();
        let new = json!({"spec": {"l": vec!["a"; 100]}});
        let mut budget = 20;
        let found = told(rules.check(&new, None, &schema, true, &Path::Root, &mut budget).causes);
        assert_eq!(budget, -1);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].ends_with(
                "Invalid value: \"string\": validation failed due to running out of cost budget, no further validation rules will be run"
            ),
            "{found:?}"
        );
    }
}
