use super::*;
use crate::resource::{Row, Subresource};

fn schemas(roots: &[&str]) -> Value {
    components_for(Types::builtin(), roots)
}

#[test]
fn schemas_are_named_and_referred_to() {
    let schemas = schemas(&["core/v1.ConfigMap"]);
    let config_map = &schemas["io.k8s.api.core.v1.ConfigMap"];
    assert_eq!(
        config_map["properties"]["data"],
        json!({"type": "object", "additionalProperties": {"type": "string", "default": ""}})
    );
    assert_eq!(
        config_map["properties"]["metadata"],
        json!({
            "allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}],
            "default": {},
            "description": "Standard object's metadata.",
        })
    );
    let meta = &schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["properties"];
    assert_eq!(meta["ownerReferences"]["x-kubernetes-patch-merge-key"], "uid");
    assert_eq!(meta["finalizers"]["x-kubernetes-list-type"], "set");
    assert_eq!(
        schemas["io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference"]["x-kubernetes-map-type"],
        "atomic"
    );
    assert_eq!(
        schemas["io.k8s.apimachinery.pkg.apis.meta.v1.Time"],
        json!({"type": "string", "format": "date-time"})
    );
}

#[test]
fn every_reference_is_resolved() {
    let types = Types::builtin();
    let roots: Vec<&str> = types.messages().map(|message| message.name).collect();
    let schemas = components_for(types, &roots);
    let text = schemas.to_string();
    for rest in text.split("\"$ref\":\"#/components/schemas/").skip(1) {
        let name = rest.split('"').next().unwrap();
        assert!(schemas.get(name).is_some(), "{name}");
    }
}

#[test]
fn fields_say_how_they_merge_and_what_they_are() {
    let schemas = schemas(&["core/v1.Service", "core/v1.Pod"]);
    let port = &schemas["io.k8s.api.core.v1.ServicePort"];
    assert_eq!(port["required"], json!(["port"]));
    assert_eq!(port["properties"]["port"], json!({"type": "integer", "format": "int32", "default": 0}));
    assert_eq!(
        port["properties"]["protocol"],
        json!({"type": "string", "default": "TCP", "enum": ["SCTP", "TCP", "UDP"]})
    );
    let ports = &schemas["io.k8s.api.core.v1.ServiceSpec"]["properties"]["ports"];
    assert_eq!(ports["x-kubernetes-list-map-keys"], json!(["port", "protocol"]));
    assert_eq!(ports["x-kubernetes-patch-strategy"], "merge");
    assert!(schemas["io.k8s.api.core.v1.Volume"]["properties"].get("hostPath").is_some());
}

const STATUS: &[Subresource] = &[Subresource::status("Deployment", "apps", "v1")];

fn deployments() -> Resource {
    Resource::new(Row {
        group: "apps",
        kind: "Deployment",
        plural: "deployments",
        type_name: "apps/v1.Deployment",
        subresources: STATUS,
        ..Row::PLAIN
    })
}

#[test]
fn kubectl_finds_that_the_server_validates() {
    let resource = deployments();
    let document = document(&[&resource]);
    let item = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"];
    let patch = &item["patch"];
    assert_eq!(patch[GROUP_VERSION_KIND], json!({"group": "apps", "kind": "Deployment", "version": "v1"}));
    let names: Vec<&Value> = patch["parameters"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert!(names.contains(&&json!("fieldValidation")));
    assert_eq!(patch["operationId"], "patchAppsV1NamespacedDeployment");
    assert_eq!(
        document["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"][GROUP_VERSION_KIND],
        json!([{"group": "apps", "kind": "Deployment", "version": "v1"}])
    );
    for path in [
        "/apis/apps/v1/",
        "/apis/apps/v1/deployments",
        "/apis/apps/v1/namespaces/{namespace}/deployments",
        "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/status",
    ] {
        assert!(document["paths"].get(path).is_some(), "{path}");
    }
}

#[test]
fn references_in_documents_are_resolved_too() {
    let untyped = Resource::new(Row {
        group: "example.io",
        version: "v1alpha1",
        kind: "Thing",
        plural: "things",
        namespaced: false,
        ..Row::PLAIN
    });
    for resources in [vec![deployments()], vec![untyped]] {
        let document = document(&resources.iter().collect::<Vec<_>>());
        let text = document.to_string();
        for rest in text.split("\"$ref\":\"#/components/schemas/").skip(1) {
            let name = rest.split('"').next().unwrap();
            assert!(document["components"]["schemas"].get(name).is_some(), "{name}");
        }
    }
}

#[test]
fn kinds_without_a_message_are_described_loosely() {
    let resource = Resource::new(Row {
        group: "example.io",
        version: "v1alpha1",
        kind: "Thing",
        plural: "things",
        ..Row::PLAIN
    });
    let document = document(&[&resource]);
    let schema = &document["components"]["schemas"]["io.example.v1alpha1.Thing"];
    assert_eq!(schema["x-kubernetes-preserve-unknown-fields"], true);
    assert_eq!(schema[GROUP_VERSION_KIND][0]["kind"], "Thing");
}
