use serde_json::{Value, json};

use super::*;

fn conformed(message: &str, mut value: Value) -> Result<Value, String> {
    let types = Types::builtin();
    conform(types, types.get(message).unwrap(), &mut value, Options::default())
        .map_err(|error| error.to_string())?;
    Ok(value)
}

#[test]
fn the_table_is_complete() {
    let types = Types::builtin();
    let lines = include_str!("../../data/types.txt").lines();
    let fields = lines.filter(|line| !line.starts_with(['>', '=', '#'])).count();
    assert_eq!(
        types.messages().map(|message| message.fields.len()).sum::<usize>(),
        fields,
        "every line is a field"
    );
    assert!(types.messages().count() > 550);
    for message in types.messages() {
        let mut numbers: Vec<u32> =
            message.fields.iter().map(|field| field.number).filter(|number| *number != 0).collect();
        numbers.sort_unstable();
        assert!(numbers.windows(2).all(|pair| pair[0] != pair[1]), "{}", message.name);
    }
}

#[test]
fn fields_carry_what_patches_need() {
    let types = Types::builtin();
    let spec = types.get("core/v1.PodSpec").unwrap();
    let containers = types.field(spec, "containers").unwrap();
    assert_eq!(
        (containers.number, containers.patch_merge_key, containers.list_type),
        (2, Some("name"), Some(ListType::Map))
    );
    assert!(containers.patch_strategy.merge && containers.required && !containers.pointer);
    assert_eq!(&*containers.map_keys, ["name"]);
    let service = types.get_kind("", "v1", "ServiceSpec").unwrap();
    assert_eq!(&*types.field(service, "ports").unwrap().map_keys, ["port", "protocol"]);
    let volume = types.get("core/v1.Volume").unwrap();
    assert!(types.field(volume, "hostPath").is_some(), "members of inlined messages are found");
    let strategy = types.get_kind("apps", "v1", "DeploymentSpec").unwrap();
    assert!(types.field(strategy, "strategy").unwrap().patch_strategy.retain_keys);
    let role = types.get_kind("rbac.authorization.k8s.io", "v1", "ClusterRole").unwrap();
    assert_eq!(types.field(role, "rules").unwrap().number, 2);
    let port = types.get("core/v1.ServicePort").unwrap();
    assert_eq!(types.enum_values(types.field(port, "protocol").unwrap()), ["SCTP", "TCP", "UDP"]);
    assert_eq!(types.field(port, "protocol").unwrap().default, Some("\"TCP\""));
}

#[test]
fn empty_values_go_and_structs_stay() {
    for (message, given, stored) in [
        ("core/v1.ConfigMap", json!({"data": {}, "immutable": null}), json!({"metadata": {}})),
        ("core/v1.ConfigMap", json!({"immutable": false}), json!({"immutable": false, "metadata": {}})),
        (
            "core/v1.ConfigMap",
            json!({"data": {"a": null, "b": ""}}),
            json!({"data": {"a": "", "b": ""}, "metadata": {}}),
        ),
        ("core/v1.Secret", json!({"data": {"a": null}}), json!({"data": {"a": ""}, "metadata": {}})),
        ("rbac/v1.ClusterRole", json!({}), json!({"metadata": {}, "rules": null})),
        ("rbac/v1.ClusterRole", json!({"rules": []}), json!({"metadata": {}, "rules": null})),
        ("core/v1.Container", json!({"name": "a", "ports": []}), json!({"name": "a", "resources": {}})),
        ("core/v1.Container", json!(null), json!({"name": "", "resources": {}})),
        ("core/v1.ServicePort", json!({"port": 80}), json!({"port": 80, "targetPort": 0})),
        (
            "core/v1.ServicePort",
            json!({"port": 80, "targetPort": "http"}),
            json!({"port": 80, "targetPort": "http"}),
        ),
        ("core/v1.ResourceFieldSelector", json!({"resource": "x"}), json!({"resource": "x", "divisor": "0"})),
        (
            "apps/v1.DeploymentSpec",
            json!({"replicas": 0, "selector": null}),
            json!({
                "replicas": 0, "selector": null, "strategy": {}, "template": {"metadata": {}, "spec": {"containers": null}},
            }),
        ),
        (
            "core/v1.PodSpec",
            json!({"containers": [null]}),
            json!({"containers": [{"name": "", "resources": {}}]}),
        ),
        ("core/v1.Service", json!({}), json!({"metadata": {}, "spec": {}, "status": {"loadBalancer": {}}})),
    ] {
        assert_eq!(conformed(message, given.clone()), Ok(stored), "{message} {given}");
    }
}

#[test]
fn scalars_become_canonical() {
    for (message, given, stored) in [
        (
            "meta/v1.ObjectMeta",
            json!({"creationTimestamp": "2024-01-01T01:00:00.5+01:00"}),
            json!({"creationTimestamp": "2024-01-01T00:00:00Z"}),
        ),
        ("meta/v1.ObjectMeta", json!({"creationTimestamp": "0001-01-01T00:00:00Z"}), json!({})),
        (
            "coordination/v1.LeaseSpec",
            json!({"renewTime": "2024-01-01T00:00:00.000001Z"}),
            json!({"renewTime": "2024-01-01T00:00:00.000001Z"}),
        ),
        (
            "core/v1.ResourceRequirements",
            json!({"limits": {"cpu": 1, "memory": "1024Mi"}}),
            json!({"limits": {"cpu": "1", "memory": "1Gi"}}),
        ),
        ("core/v1.Secret", json!({"data": {"a": "YR=="}}), json!({"data": {"a": "YQ=="}, "metadata": {}})),
    ] {
        assert_eq!(conformed(message, given.clone()), Ok(stored), "{message} {given}");
    }
    let event = conformed("core/v1.Event", json!({})).unwrap();
    assert_eq!(
        (&event["firstTimestamp"], &event["eventTime"]),
        (&Value::Null, &Value::Null),
        "no time is null"
    );
}

#[test]
fn wrong_types_are_refused_in_gos_words() {
    for (message, given, error) in [
        ("core/v1.ConfigMap", json!([]), "json: cannot unmarshal array into Go value of type v1.ConfigMap"),
        (
            "core/v1.ConfigMap",
            json!({"data": {"a": 1}}),
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            "core/v1.ConfigMap",
            json!({"data": []}),
            "json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string",
        ),
        (
            "core/v1.ConfigMap",
            json!({"metadata": {"labels": {"a": true}}}),
            "json: cannot unmarshal bool into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            "core/v1.Pod",
            json!({"spec": {"containers": [{"ports": [{"containerPort": "80"}]}]}}),
            "json: cannot unmarshal string into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
        ),
        (
            "core/v1.Pod",
            json!({"spec": {"containers": {}}}),
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            "core/v1.Pod",
            json!({"spec": {"restartPolicy": 1}}),
            "json: cannot unmarshal number into Go struct field PodSpec.spec.restartPolicy of type v1.RestartPolicy",
        ),
        (
            "core/v1.Pod",
            json!({"spec": {"volumes": [{"hostPath": "x"}]}}),
            "json: cannot unmarshal string into Go struct field Volume.spec.volumes.VolumeSource.hostPath of type v1.HostPathVolumeSource",
        ),
        (
            "core/v1.Pod",
            json!({"spec": {"priority": 1.5}}),
            "json: cannot unmarshal number 1.5 into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            "core/v1.Pod",
            json!({"spec": {"priority": 3000000000u32}}),
            "json: cannot unmarshal number 3000000000 into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            "meta/v1.ObjectMeta",
            json!({"creationTimestamp": 5}),
            "json: cannot unmarshal number into Go struct field ObjectMeta.creationTimestamp of type string",
        ),
        (
            "core/v1.ServicePort",
            json!({"targetPort": true}),
            "json: cannot unmarshal bool into Go struct field ServicePort.targetPort of type int32",
        ),
        ("core/v1.Secret", json!({"data": {"a": "!"}}), "illegal base64 data at input byte 0"),
        (
            "core/v1.Secret",
            json!({"data": {"a": 1}}),
            "json: cannot unmarshal number into Go struct field Secret.data of type []uint8",
        ),
        (
            "core/v1.ResourceRequirements",
            json!({"limits": {"cpu": "x"}}),
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            "core/v1.ResourceRequirements",
            json!({"limits": []}),
            "json: cannot unmarshal array into Go struct field ResourceRequirements.limits of type v1.ResourceList",
        ),
    ] {
        assert_eq!(conformed(message, given.clone()), Err(error.to_owned()), "{given}");
    }
}

#[test]
fn unknown_fields_go_and_are_named() {
    let types = Types::builtin();
    let pod = types.get("core/v1.Pod").unwrap();
    let given = json!({"x": 1, "spec": {"containers": [{"name": "a", "Image": "b"}], "foo": 1}, "metadata": {"labels": {"any": "l"}}});
    let mut value = given.clone();
    let found = conform(types, pod, &mut value, Options::default()).unwrap();
    assert_eq!(
        found.unknown,
        [
            r#"unknown field "x""#,
            r#"unknown field "spec.foo""#,
            r#"unknown field "spec.containers[0].Image""#
        ]
    );
    assert_eq!((value.get("x"), value["spec"].get("foo")), (None, None));
    let mut value = given;
    conform(types, pod, &mut value, Options { keep_unknown: true }).unwrap();
    assert_eq!((&value["x"], &value["spec"]["foo"]), (&json!(1), &json!(1)));
}

#[test]
fn conforming_twice_changes_nothing() {
    let once = conformed(
        "apps/v1.Deployment",
        json!({"spec": {"template": {"spec": {"containers": [{"name": "a"}]}}}}),
    )
    .unwrap();
    assert_eq!(conformed("apps/v1.Deployment", once.clone()), Ok(once));
}

#[test]
fn schemas_may_be_booleans_lists_and_names() {
    let given = json!({
        "items": [{"type": "string"}], "additionalProperties": false, "dependencies": {"a": ["b"], "c": {"type": "x"}}, "default": {"any": [1]},
    });
    assert_eq!(conformed("apiextensions/v1.JSONSchemaProps", given.clone()), Ok(given));
    assert_eq!(
        conformed("apiextensions/v1.JSONSchemaProps", json!({"additionalProperties": 1})),
        Err("boolean or JSON schema expected".to_owned())
    );
}
