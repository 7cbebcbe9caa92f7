//! Definitions, what is wrong with them and what becomes of them.

use serde_json::{Value, json};

use super::*;
use crate::{field_error::Cause, resource::Tree};

fn tree(value: Value) -> Tree {
    match value {
        Value::Object(tree) => tree,
        other => panic!("{other} is no object"),
    }
}

/// A definition of foos with one version, made as the server makes it, with `change` made to its spec before.
fn definition(change: impl FnOnce(&mut Value)) -> Tree {
    let mut spec = json!({
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
    });
    change(&mut spec);
    let mut tree = tree(json!({"metadata": {"name": "foos.example.com"}, "spec": spec}));
    default(&mut tree);
    prepare_create(&mut tree);
    tree
}

fn told(causes: Vec<Cause>) -> Vec<String> {
    causes.into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
}

fn mistakes(change: impl FnOnce(&mut Value)) -> Vec<String> {
    told(validate(&definition(change), None))
}

#[test]
fn definitions_are_completed() {
    let tree = definition(|_| {});
    assert_eq!(
        tree["spec"]["names"],
        json!({"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"})
    );
    assert_eq!(tree["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(
        tree["status"],
        json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]})
    );
    assert_eq!(told(validate(&tree, None)), Vec::<String>::new());
}

#[test]
fn mistakes_in_specs_are_told() {
    type Change = fn(&mut Value);
    let cases: &[(Change, &[&str])] = &[
        (
            |spec| spec["group"] = json!("com"),
            &[
                r#"metadata.name: Invalid value: "foos.example.com": must be spec.names.plural+"."+spec.group"#,
                r#"spec.group: Invalid value: "com": should be a domain with at least one dot"#,
            ],
        ),
        (
            |spec| spec["scope"] = json!("World"),
            &[r#"spec.scope: Unsupported value: "World": supported values: "Cluster", "Namespaced""#],
        ),
        (
            |spec| spec["versions"][0]["schema"] = json!(null),
            &["spec.versions[0].schema.openAPIV3Schema: Required value"],
        ),
        (
            |spec| spec["names"]["listKind"] = json!("Foo"),
            &[r#"spec.names.listKind: Invalid value: "Foo": kind and listKind may not be the same"#],
        ),
        (
            |spec| spec["versions"][0]["deprecationWarning"] = json!("x"),
            &[
                r#"spec.versions[0].deprecationWarning: Invalid value: "x": can only be set for deprecated versions"#,
            ],
        ),
        (
            |spec| {
                spec["versions"][0]["additionalPrinterColumns"] =
                    json!([{"name": "A", "type": "text", "jsonPath": "spec"}])
            },
            &[
                r#"spec.additionalPrinterColumns[0].type: Invalid value: "text": must be one of boolean,date,integer,number,string"#,
                r#"spec.additionalPrinterColumns[0].JSONPath: Invalid value: "spec": must be a simple json path starting with ."#,
            ],
        ),
        (
            |spec| {
                spec["versions"][0]["subresources"] =
                    json!({"scale": {"specReplicasPath": ".status.x", "statusReplicasPath": ""}})
            },
            &[
                r#"spec.subresources.scale.specReplicasPath: Invalid value: ".status.x": should be a json path under .spec"#,
                "spec.subresources.scale.statusReplicasPath: Required value",
            ],
        ),
        (
            |spec| spec["conversion"] = json!({"strategy": "Webhook"}),
            &[
                "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
                "spec.conversion.conversionReviewVersions: Required value",
            ],
        ),
        (
            |spec| {
                spec["conversion"] = json!({"strategy": "Webhook", "webhook": {
                    "conversionReviewVersions": ["v2"], "clientConfig": {"url": "http://a@b?c#d"}}});
            },
            &[
                r#"spec.conversion.webhookClientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]"#,
                r#"spec.conversion.webhookClientConfig.url: Invalid value: "a": user information is not permitted in the URL"#,
                r#"spec.conversion.webhookClientConfig.url: Invalid value: "d": fragments are not permitted in the URL"#,
                r#"spec.conversion.webhookClientConfig.url: Invalid value: "c": query parameters are not permitted in the URL"#,
                r#"spec.conversion.conversionReviewVersions: Invalid value: ["v2"]: must include at least one of v1, v1beta1"#,
            ],
        ),
        (
            |spec| spec["preserveUnknownFields"] = json!(true),
            &[
                "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
            ],
        ),
        (
            |spec| spec["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.x"}]),
            &[
                r#"spec.selectableFields[0].jsonPath: Invalid value: ".spec.x": is an invalid path: does not refer to a valid field"#,
            ],
        ),
    ];
    for (change, wrong) in cases {
        assert_eq!(mistakes(change), *wrong);
    }
}

/// The schema of the one version, and what is wrong with it, by paths below it.
#[test]
fn mistakes_in_schemas_are_told() {
    for (schema, wrong) in [
        (
            json!({}),
            vec![": Required value: must not be empty at the root"; 1]
                .into_iter()
                .map(|what| format!(".type{what}"))
                .collect::<Vec<_>>(),
        ),
        (
            json!({"type": "object", "properties": {"a": {"items": {}}, "b": {"type": "array"}}}),
            vec![
                ".properties[a].items.type: Required value: must not be empty for specified array items".into(),
                ".properties[a].type: Required value: must not be empty for specified object fields".into(),
                ".properties[b].items: Required value: must be specified".into(),
            ],
        ),
        (
            json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
            vec![
                ".properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified"
                    .into(),
            ],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string", "$ref": "x"}, "b": {"type": "array", "items": {"type": "string"}, "uniqueItems": true}}}),
            vec![
                ".properties[a].$ref: Forbidden: $ref is not supported".into(),
                ".properties[b].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
                    .into(),
            ],
        ),
        (
            json!({"type": "object", "anyOf": [{"properties": {"a": {"type": "string"}}}], "properties": {"b": {"type": "string", "pattern": "("}}}),
            vec![
                ".anyOf[0].properties[a].type: Forbidden: must be empty to be structural".into(),
                ".properties[a]: Required value: because it is defined in spec.validation.openAPIV3Schema.anyOf[0].properties[a]"
                    .into(),
                ".properties[b].pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `(`"
                    .into(),
            ],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string", "default": 1}, "b": {"type": "object", "default": {"c": 1}}}}),
            vec![
                ".properties[a].default: Invalid value: \"integer\":  in body must be of type string: \"integer\"".into(),
                ".properties[b].default: Invalid value: {\"c\":1}: must not have unknown fields".into(),
            ],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "z"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}}}}}}),
            vec![
                ".properties[a].x-kubernetes-list-map-keys: Invalid value: [\"k\",\"z\"]: entries must all be names of item properties"
                    .into(),
                ".properties[a].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
                    .into(),
            ],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}}}),
            vec![
                ".properties[a].items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set"
                    .into(),
            ],
        ),
        (
            json!({"type": "object", "properties": {"metadata": {"type": "object", "default": {"name": "x"}}, "a": {"type": "nonsense"}}}),
            vec![
                ".properties[a].type: Unsupported value: \"nonsense\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\""
                    .into(),
                ".properties[metadata].default: Forbidden: must not be set in top-level metadata".into(),
            ],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": {"type": "string"}}}}),
            vec![
                ".properties[a].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"
                    .into(),
            ],
        ),
        (
            json!({"type": "object", "x-kubernetes-validations": [{"rule": " "}, {"rule": "a\nb"}, {"rule": "a", "reason": "x", "fieldPath": ".b"}]}),
            vec![
                ".x-kubernetes-validations[0].rule: Required value: rule is not specified".into(),
                ".x-kubernetes-validations[1].message: Required value: message must be specified if rule contains line breaks"
                    .into(),
                ".x-kubernetes-validations[2].reason: Unsupported value: \"x\": supported values: \"FieldValueDuplicate\", \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\""
                    .into(),
                ".x-kubernetes-validations[2].fieldPath: Invalid value: \".b\": must be a valid path".into(),
            ],
        ),
    ] {
        let found = mistakes(|spec| spec["versions"][0]["schema"]["openAPIV3Schema"] = schema.clone());
        let wrong: Vec<String> =
            wrong.iter().map(|what| format!("spec.validation.openAPIV3Schema{what}")).collect();
        assert_eq!(found, wrong, "{schema}");
    }
}

#[test]
fn what_versions_do_not_share_is_named_by_version() {
    let two = |spec: &mut Value| {
        let mut second = spec["versions"][0].clone();
        second["name"] = json!("v2");
        second["storage"] = json!(false);
        second["schema"]["openAPIV3Schema"]["type"] = json!("array");
        spec["versions"].as_array_mut().unwrap().push(second);
    };
    assert_eq!(
        mistakes(two),
        [
            "spec.versions[1].schema.openAPIV3Schema.items: Required value: must be specified",
            r#"spec.versions[1].schema.openAPIV3Schema.type: Invalid value: "array": must be object at the root"#,
        ]
    );
}

#[test]
fn updates_keep_what_cannot_change() {
    let mut old = definition(|_| {});
    old = next_status(&old, [].into_iter(), "2024-01-01T00:00:00Z").unwrap();
    let mut new = definition(|spec| {
        spec["scope"] = json!("Cluster");
        spec["versions"] = json!([{"name": "v2", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]);
    });
    prepare_update(&mut new, &old);
    assert_eq!(new["status"]["storedVersions"], json!(["v1", "v2"]));
    assert_eq!(
        told(validate(&new, Some(&old))),
        [
            r#"spec.scope: Invalid value: "Cluster": field is immutable"#,
            r#"status.storedVersions[0]: Invalid value: "v1": missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from status.storedVersions"#,
        ]
    );
}

#[test]
fn community_groups_need_approval() {
    let with = |annotation: Option<&str>| {
        let mut tree = definition(|spec| spec["group"] = json!("x.k8s.io"));
        tree["metadata"]["name"] = json!("foos.x.k8s.io");
        if let Some(annotation) = annotation {
            tree["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": annotation});
        }
        told(validate(&tree, None))
    };
    assert_eq!(
        with(None),
        [
            r#"metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation "api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111"#
        ]
    );
    assert_eq!(with(Some("nope")).len(), 1);
    assert_eq!(with(Some("unapproved, for a test")), Vec::<String>::new());
    assert_eq!(with(Some("https://github.com/x/y")), Vec::<String>::new());
}

fn summary(tree: &Tree) -> Vec<String> {
    let show = |condition: &Tree| {
        format!(
            "{}={} {}: {}",
            condition["type"].as_str().unwrap(),
            condition["status"].as_str().unwrap(),
            condition["reason"].as_str().unwrap(),
            condition["message"].as_str().unwrap()
        )
    };
    conditions_of(tree).map(show).collect()
}

#[test]
fn names_are_accepted_once() {
    let now = "2024-01-01T00:00:00Z";
    let first = next_status(&definition(|_| {}), [].into_iter(), now).unwrap();
    assert_eq!(
        summary(&first),
        [
            "NamesAccepted=True NoConflicts: no conflicts found",
            "Established=True InitialNamesAccepted: the initial names have been accepted",
        ]
    );
    assert_eq!(first["status"]["acceptedNames"], first["spec"]["names"]);
    assert!(is_served(&first));
    assert_eq!(next_status(&first, [&first].into_iter(), now), None);

    let second = definition(|spec| {
        spec["names"] =
            json!({"plural": "bars", "kind": "Foo", "shortNames": ["foo", "b"], "categories": ["all"]});
    });
    let second = next_status(&second, [&first].into_iter(), now).unwrap();
    assert_eq!(
        summary(&second),
        [
            r#"NamesAccepted=False ListKindConflict: "FooList" is already in use"#,
            "Established=False NotAccepted: not all names are accepted",
        ]
    );
    assert_eq!(
        second["status"]["acceptedNames"],
        json!({"plural": "bars", "kind": "", "categories": ["all"]})
    );
    assert!(!is_served(&second));
}

#[test]
fn each_version_is_served_as_declared() {
    let mut tree = definition(|spec| {
        let v1 = json!({"name": "v1beta1", "served": true, "storage": false, "deprecated": true, "schema": {"openAPIV3Schema": {"type": "object"}}});
        let none = json!({"name": "v1alpha1", "served": false, "storage": false});
        spec["versions"].as_array_mut().unwrap().extend([none, v1]);
        spec["versions"][0]["subresources"] = json!({"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}});
        spec["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.color"}]);
    });
    tree = next_status(&tree, [].into_iter(), "2024-01-01T00:00:00Z").unwrap();
    let versions = served(&tree);
    assert_eq!(versions.iter().map(|it| it.version.as_str()).collect::<Vec<_>>(), ["v1", "v1beta1"]);
    let [v1, beta] = versions.as_slice() else { panic!() };
    assert_eq!((v1.deprecation.as_deref(), v1.has_status, v1.storage), (None, true, true));
    assert_eq!(
        beta.deprecation.as_deref(),
        Some("example.com/v1beta1 Foo is deprecated; use example.com/v1 Foo")
    );
    assert_eq!(v1.columns[0].name, "Age");
    assert_eq!(v1.selectable[0].value(&json!({"spec": {"color": 3}})), "3");
    assert_eq!(v1.selectable[0].value(&json!({})), "");
    assert_eq!(
        told(v1.check_create(&json!({"spec": {"n": -1}, "status": {"n": "x"}})).causes),
        [
            ".spec.n: Invalid value: -1: should be a non-negative integer",
            ".status.n: Invalid value: 0: .status.n accessor error: x is of the type string, expected int64",
        ]
    );
}

#[test]
fn versions_have_an_order() {
    let mut versions =
        ["v1", "v10", "v2", "foo1", "v1beta1", "v2alpha1", "v11alpha2", "v3beta1", "foo10", "v12alpha1"];
    versions.sort_by(|one, other| compare_versions(other, one));
    assert_eq!(
        versions,
        ["v10", "v2", "v1", "v3beta1", "v1beta1", "v12alpha1", "v11alpha2", "v2alpha1", "foo1", "foo10"]
    );
}

#[test]
fn formats_without_meaning_are_warned_of() {
    let odd = |format: &str| {
        let format = format.to_owned();
        definition(move |spec| {
            spec["versions"][0]["schema"]["openAPIV3Schema"] =
                json!({"type": "object", "properties": {"a": {"type": "string", "format": format}}});
        })
    };
    assert_eq!(warnings(&odd("nonsense"), None), ["unrecognized format \"nonsense\""]);
    assert_eq!(warnings(&odd("date"), None), Vec::<String>::new());
    assert_eq!(warnings(&odd("nonsense"), Some(&odd("nonsense"))), Vec::<String>::new());
}

mod conversions {
    use super::{super::conversion::*, *};

    fn object() -> Tree {
        tree(
            json!({"apiVersion": "g/v1", "kind": "Foo", "metadata": {"name": "a", "uid": "u", "labels": {"x": "y"}}}),
        )
    }

    fn answer(objects: Value) -> Value {
        json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
               "response": {"uid": "7", "result": {"status": "Success"}, "convertedObjects": objects}})
    }

    fn convert(answer: &Value) -> Result<Vec<Tree>, String> {
        let subject = Subject { kind: "g/v1, Kind=Foo", is_list: false };
        converted("v1", "7", "g/v2", &[&object()], answer, subject)
    }

    #[test]
    fn only_labels_and_annotations_change() {
        let found = convert(&answer(json!([{"apiVersion": "g/v2", "kind": "Foo", "spec": {},
            "metadata": {"name": "a", "uid": "u", "labels": {"x": "z"}, "generation": 7}}])));
        assert_eq!(
            found,
            Ok(vec![tree(json!({"apiVersion": "g/v2", "kind": "Foo", "spec": {},
                "metadata": {"name": "a", "uid": "u", "labels": {"x": "z"}}}))])
        );
    }

    #[test]
    fn bundles_hold_certificates() {
        let encoded = |text: &str| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
        for (text, why) in [
            ("", None),
            ("x", Some("unable to parse bytes as PEM block")),
            ("-----BEGIN X-----\nYQ==\n-----END X-----\n", Some("no valid certificate authority data seen")),
            (
                "-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n",
                Some("failed to parse certificate: x509: malformed certificate"),
            ),
        ] {
            let why = why.map(|why| format!("unable to load root certificates: {why}"));
            assert_eq!(ca_bundle_mistake(&encoded(text)), why);
        }
    }

    #[test]
    fn bad_answers_are_explained() {
        let meta = json!({"name": "a", "uid": "u"});
        for (answer, error) in [
            (
                json!({}),
                "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got , Kind=",
            ),
            (answer(json!([])), "returned 0 objects, expected 1"),
            (
                answer(json!([{"apiVersion": "g/v3", "kind": "Foo", "metadata": meta}])),
                "returned invalid object at index 0: invalid groupVersion (expected g/v2, received g/v3)",
            ),
            (
                answer(json!([{"apiVersion": "g/v2", "kind": "Bar", "metadata": meta}])),
                "returned invalid object at index 0: invalid kind (expected Foo, received Bar)",
            ),
            (
                answer(json!([{"apiVersion": "g/v2", "kind": "Foo", "metadata": {"name": "b", "uid": "u"}}])),
                "returned invalid object: must have the same name: a != b",
            ),
            (
                answer(
                    json!([{"apiVersion": "g/v2", "kind": "Foo", "metadata": {"name": "a", "uid": "u", "labels": {"x": 1}}}]),
                ),
                "returned invalid metadata: metadata.labels[x] must be a string, but is int64 in converted object",
            ),
        ] {
            assert_eq!(convert(&answer), Err(format!("conversion webhook for g/v1, Kind=Foo {error}")));
        }
    }
}

/// The schema of `spec` with a rule, and what is wrong with that.
#[test]
fn rules_are_compiled_and_priced() {
    let at = "spec.validation.openAPIV3Schema.properties[spec]";
    let plain = |rule: &str| {
        format!(
            r#"{{"Rule":"{rule}","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}}"#
        )
    };
    for (schema, wrong) in [
        (json!({"type": "string", "x-kubernetes-validations": [{"rule": "self == 'a'"}]}), vec![]),
        (
            json!({"type": "string", "x-kubernetes-validations": [{"rule": "self"}]}),
            vec![format!(
                "{at}.x-kubernetes-validations[0].rule: Invalid value: {}: cel expression must evaluate to a bool",
                plain("self")
            )],
        ),
        (
            json!({"type": "string", "x-kubernetes-validations": [{"rule": "self == 1"}]}),
            vec![format!(
                "{at}.x-kubernetes-validations[0].rule: Invalid value: {}: compilation failed: ERROR: <input>:1:6: found no matching overload for '_==_' applied to '(string, int)'\n | self == 1\n | .....^",
                plain("self == 1")
            )],
        ),
        (
            json!({"type": "array", "maxItems": 9, "items": {"type": "string", "maxLength": 9, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}),
            vec![format!(
                "{at}.items.x-kubernetes-validations[0].rule: Invalid value: \"self == oldSelf\": oldSelf cannot be used on the uncorrelatable portion of the schema within {at}"
            )],
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": [{"rule": "self.all(x, self.all(y, x == y))"}]}),
            vec![
                format!(
                    "{at}.x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
                ),
                format!(
                    "{at}.x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
                ),
                "spec.validation.openAPIV3Schema: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)".to_owned(),
            ],
        ),
        (
            json!({"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 5}, "x-kubernetes-validations": [{"rule": "self.all(x, self.all(y, x == y))"}]}),
            vec![],
        ),
        (
            json!({"type": "string", "default": "b", "x-kubernetes-validations": [{"rule": "self == 'a'"}]}),
            vec![format!("{at}.default: Invalid value: \"b\": failed rule: self == 'a'")],
        ),
    ] {
        let found = mistakes(|spec| {
            spec["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = schema.clone();
        });
        assert_eq!(found, wrong, "{schema}");
    }
}
