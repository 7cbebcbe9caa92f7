//! Policies in force: from the request after they were written to the one after they are gone, in their workspace and in
//! no other. What they say is compared with a real server in `differential`.

#![allow(clippy::disallowed_methods)] // Tests run on the real machine.

use std::sync::Arc;

use anyhow::Result;
use http::StatusCode;
use serde_json::{Value, json};
use server::{
    Options,
    audit::{AuditOptions, LogOptions},
};
use store::memory::MemoryStore;
use testing::{
    client::Client,
    hub::{TestHub, eventually},
};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn create(client: &Client, path: &str, object: Value) -> Result<Value> {
    let made = client.post(path, &object).await?;
    assert_eq!(made.code, StatusCode::CREATED, "{path}: {}", made.text());
    Ok(made.json())
}

fn rules(group: &str, version: &str, resources: &str) -> Value {
    let operations = ["CREATE", "UPDATE"];
    json!({"resourceRules": [
        {"operations": operations, "apiGroups": [group], "apiVersions": [version], "resources": [resources]},
    ]})
}

/// A policy about config maps that is bound to all of them.
async fn mk_policy(client: &Client, at: &str, name: &str, mut spec: Value) -> Result<()> {
    if spec["matchConstraints"].is_null() {
        spec["matchConstraints"] = rules("", "v1", "configmaps");
    }
    let policy = json!({"metadata": {"name": name}, "spec": spec});
    create(client, &format!("{at}{POLICIES}/validatingadmissionpolicies"), policy).await?;
    let spec = json!({"policyName": name, "validationActions": ["Deny"]});
    let binding = json!({"metadata": {"name": name}, "spec": spec});
    create(client, &format!("{at}{POLICIES}/validatingadmissionpolicybindings"), binding).await?;
    Ok(())
}

async fn mk_mutating(client: &Client, name: &str, mut spec: Value, mutation: Value) -> Result<()> {
    spec["mutations"] = json!([mutation]);
    spec["reinvocationPolicy"] = json!("Never");
    let policy = json!({"metadata": {"name": name}, "spec": spec});
    create(client, &format!("{POLICIES}/mutatingadmissionpolicies"), policy).await?;
    let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name}});
    create(client, &format!("{POLICIES}/mutatingadmissionpolicybindings"), binding).await?;
    Ok(())
}

fn validations(expression: &str) -> Value {
    json!({"validations": [{"expression": expression}]})
}

async fn code(client: &Client, path: &str, name: &str) -> Result<u16> {
    let object = json!({"metadata": {"name": name}});
    Ok(client.post(&format!("{path}?dryRun=All"), &object).await?.code.as_u16())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_holds_for_the_request_after_it_and_no_longer() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    let policy = format!("{POLICIES}/validatingadmissionpolicies/p");
    let binding = format!("{POLICIES}/validatingadmissionpolicybindings/p");
    mk_policy(&admin, "", "p", validations("object.metadata.name != 'a'")).await?;
    assert_eq!(code(&admin, CONFIG_MAPS, "a").await?, 422);
    assert_eq!(code(&admin, CONFIG_MAPS, "b").await?, 201);

    let other = json!({"spec": validations("object.metadata.name != 'b'")});
    assert_eq!(admin.merge_patch(&policy, &other).await?.code, StatusCode::OK);
    assert_eq!(code(&admin, CONFIG_MAPS, "a").await?, 201);
    assert_eq!(code(&admin, CONFIG_MAPS, "b").await?, 422);

    admin.delete(&binding).await?;
    assert_eq!(code(&admin, CONFIG_MAPS, "b").await?, 201, "what nothing binds is not in force");
    hub.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_its_workspaces_own() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    for name in ["one", "two"] {
        let object = json!({"metadata": {"name": name}, "spec": {}});
        create(&admin, "/clusters/root/apis/hanse.io/v1alpha1/workspaces", object).await?;
    }
    mk_policy(&admin, "/clusters/one", "p", validations("false")).await?;
    for (workspace, expected) in [("one", 422), ("two", 201), ("default", 201)] {
        let path = format!("/clusters/{workspace}{CONFIG_MAPS}");
        assert_eq!(code(&admin, &path, "a").await?, expected, "{workspace}");
    }
    hub.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn bombs_end_and_cost_only_those_they_concern() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    let ten = "[1,2,3,4,5,6,7,8,9,10]";
    let bomb = (0..9).fold("true".to_owned(), |inner, at| format!("{ten}.all(x{at}, {inner})"));
    let only =
        |name: &str| json!([{"name": "only", "expression": format!("object.metadata.name == '{name}'")}]);
    for failure in ["Fail", "Ignore"] {
        let mut spec = validations(&bomb);
        spec["failurePolicy"] = json!(failure);
        spec["matchConditions"] = only(&failure.to_lowercase());
        mk_policy(&admin, "", &format!("bomb-{}", failure.to_lowercase()), spec).await?;
    }
    let answer = admin.post(CONFIG_MAPS, &json!({"metadata": {"name": "fail"}})).await?;
    assert_eq!(answer.code, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(answer.text().contains("actual cost limit exceeded"), "{}", answer.text());
    assert_eq!(code(&admin, CONFIG_MAPS, "ignore").await?, 201);
    assert_eq!(code(&admin, CONFIG_MAPS, "other").await?, 201);
    let metrics = admin.get("/metrics").await?.text();
    for counted in ["deny", "allow"] {
        let line = format!(
            "apiserver_validating_admission_policy_check_total{{policy=\"other\",policy_binding=\"other\",error_type=\"invalid_error\",enforcement_action=\"{counted}\"}}"
        );
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    }
    hub.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_of_a_policy_says_how_it_fits_the_kinds_it_names() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    let mut spec = validations("object.spec.replicas > '1'");
    spec["matchConstraints"] = rules("apps", "v1", "deployments");
    mk_policy(&admin, "", "p", spec).await?;
    let path = format!("{POLICIES}/validatingadmissionpolicies/p");
    let observed = |generation: i64| {
        let (admin, path) = (admin.clone(), path.clone());
        eventually("the policy is looked at", move || {
            let (admin, path) = (admin.clone(), path.clone());
            async move {
                let policy = admin.get(&path).await?.json();
                let seen = policy["status"]["observedGeneration"] == generation;
                Ok(seen.then(|| policy["status"]["typeChecking"].clone()))
            }
        })
    };
    let warning = &observed(1).await?["expressionWarnings"][0];
    assert_eq!(warning["fieldRef"], "spec.validations[0].expression");
    let text = warning["warning"].as_str().unwrap_or_default().to_owned();
    assert!(
        text.starts_with("apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload"),
        "{text}"
    );
    admin.merge_patch(&path, &json!({"spec": validations("object.spec.replicas > 1")})).await?;
    assert_eq!(observed(2).await?, json!({}));
    hub.stop().await;
    Ok(())
}

/// Two versions of a kind, the same but for the name.
fn definition() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer", "default": 1},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
            },
        },
    }}}}});
    let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": schema});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [version("v1", true), version("v2", false)],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_objects_are_seen_in_the_version_that_a_policy_names() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    create(&admin, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition()).await?;
    let things = "/apis/example.com/v2/namespaces/default/things";
    eventually("the kind is served", || {
        let admin = admin.clone();
        async move { Ok((admin.get(things).await?.code == StatusCode::OK).then_some(())) }
    })
    .await?;
    let constraints = rules("example.com", "v1", "things");
    let merge =
        "Object{spec: Object.spec{tags: ['b'], parts: [Object.spec.parts{name: 'y', n: object.spec.size}]}}";
    let mutation = json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": merge}});
    mk_mutating(&admin, "m", json!({"matchConstraints": constraints}), mutation).await?;
    let mut spec = validations(
        "object.apiVersion == 'example.com/v1' && object.spec.parts.all(p, !has(p.n) || p.n != 13)",
    );
    spec["matchConstraints"] = constraints;
    mk_policy(&admin, "", "p", spec).await?;

    let thing = |name: &str, size: i64| {
        let spec = json!({"size": size, "tags": ["a"], "parts": [{"name": "x"}, {"name": "y"}]});
        json!({"apiVersion": "example.com/v2", "kind": "Thing", "metadata": {"name": name}, "spec": spec})
    };
    let made = create(&admin, things, thing("a", 5)).await?;
    assert_eq!(made["apiVersion"], "example.com/v2");
    let expected = json!({"size": 5, "tags": ["a", "b"], "parts": [{"name": "x"}, {"name": "y", "n": 5}]});
    assert_eq!(made["spec"], expected);
    let refused = admin.post(things, &thing("b", 13)).await?;
    assert_eq!(refused.code, StatusCode::UNPROCESSABLE_ENTITY, "{}", refused.text());
    hub.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_of_a_custom_kind_are_found() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    create(&admin, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition()).await?;
    let things = "/apis/example.com/v1/namespaces/default/things";
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "limit"}, "spec": {"size": 2}});
    eventually("the kind takes objects", || {
        let (admin, thing) = (admin.clone(), thing.clone());
        async move { Ok((admin.post(things, &thing).await?.code == StatusCode::CREATED).then_some(())) }
    })
    .await?;
    let mut spec = validations("size(object.data) <= params.spec.size");
    spec["matchConstraints"] = rules("", "v1", "configmaps");
    // Stored in v1, and wanted as v2.
    spec["paramKind"] = json!({"apiVersion": "example.com/v2", "kind": "Thing"});
    let policy = json!({"metadata": {"name": "p"}, "spec": spec});
    create(&admin, &format!("{POLICIES}/validatingadmissionpolicies"), policy).await?;
    let reference = json!({"name": "limit", "namespace": "default", "parameterNotFoundAction": "Deny"});
    let spec = json!({"policyName": "p", "validationActions": ["Deny"], "paramRef": reference});
    let binding = json!({"metadata": {"name": "p"}, "spec": spec});
    create(&admin, &format!("{POLICIES}/validatingadmissionpolicybindings"), binding).await?;
    let map = |data: Value| json!({"metadata": {"generateName": "m-"}, "data": data});
    let few = admin.post(CONFIG_MAPS, &map(json!({"a": "1", "b": "2"}))).await?;
    assert_eq!(few.code, StatusCode::CREATED, "{}", few.text());
    let many = admin.post(CONFIG_MAPS, &map(json!({"a": "1", "b": "2", "c": "3"}))).await?;
    assert_eq!(many.code, StatusCode::UNPROCESSABLE_ENTITY, "{}", many.text());
    admin.delete(&format!("{things}/limit")).await?;
    let without = admin.post(CONFIG_MAPS, &map(json!({}))).await?;
    assert!(without.text().contains("no params found for policy binding"), "{}", without.text());
    hub.stop().await;
    Ok(())
}

/// Config maps of the label `param` are the parameters of a policy about secrets that fails like this.
async fn mk_with_params(client: &Client, name: &str, failure: &str, expression: &str) -> Result<()> {
    let mut spec = validations(expression);
    spec["matchConstraints"] = rules("", "v1", "secrets");
    spec["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    spec["failurePolicy"] = json!(failure);
    let policy = json!({"metadata": {"name": name}, "spec": spec});
    create(client, &format!("{POLICIES}/validatingadmissionpolicies"), policy).await?;
    let reference = json!({"selector": {"matchLabels": {"param": "yes"}}, "parameterNotFoundAction": "Deny"});
    let spec = json!({"policyName": name, "validationActions": ["Deny"], "paramRef": reference});
    let binding = json!({"metadata": {"name": name}, "spec": spec});
    create(client, &format!("{POLICIES}/validatingadmissionpolicybindings"), binding).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_asked_with_each_of_its_parameters_if_they_are_not_too_many() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    let secrets = "/api/v1/namespaces/default/secrets";
    let param = |at: usize| json!({"metadata": {"name": format!("p{at:04}"), "labels": {"param": "yes"}}, "data": {"n": at.to_string()}});
    for at in 0..1000 {
        create(&admin, CONFIG_MAPS, param(at)).await?;
    }
    mk_with_params(&admin, "fails", "Fail", "params.data.n != object.metadata.name").await?;
    assert_eq!(code(&admin, secrets, "other").await?, 201);
    for at in ["0", "17", "999"] {
        assert_eq!(code(&admin, secrets, at).await?, 422, "{at} is the name of a parameter");
    }
    create(&admin, CONFIG_MAPS, param(1000)).await?;
    let refused = admin.post(secrets, &json!({"metadata": {"name": "other"}})).await?;
    assert!(
        refused.text().contains("failed to configure binding: paramRef selects more than 1000"),
        "{}",
        refused.text()
    );
    admin.delete(&format!("{POLICIES}/validatingadmissionpolicies/fails")).await?;
    mk_with_params(&admin, "ignores", "Ignore", "false").await?;
    assert_eq!(code(&admin, secrets, "other").await?, 201, "as its failurePolicy says");
    hub.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_policies_say_is_in_the_audit_log() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (rules, log) = (directory.path().join("policy.yaml"), directory.path().join("audit.log"));
    let everything = json!([{"level": "Metadata"}]);
    let policy = json!({"kind": "Policy", "apiVersion": "audit.k8s.io/v1", "rules": everything});
    std::fs::write(&rules, policy.to_string())?;
    let log_options = Some(LogOptions::at(log.clone()));
    let audit = AuditOptions { policy_file: Some(rules), log: log_options, ..AuditOptions::default() };
    let options = Options { audit, ..Options::default() };
    let hub = TestHub::start_on(Arc::new(MemoryStore::new()), options).await?;
    let admin = hub.admin().await?;
    let mut spec = validations("object.metadata.name != 'a'");
    spec["auditAnnotations"] =
        json!([{"key": "named", "valueExpression": "'it is ' + object.metadata.name"}]);
    mk_policy(&admin, "", "p", spec).await?;
    let binding = format!("{POLICIES}/validatingadmissionpolicybindings/p");
    admin.merge_patch(&binding, &json!({"spec": {"validationActions": ["Warn", "Audit"]}})).await?;
    let made = admin.post(CONFIG_MAPS, &json!({"metadata": {"name": "a"}})).await?;
    assert_eq!(made.code, StatusCode::CREATED);
    let warning = made.headers.get("warning").and_then(|warning| warning.to_str().ok()).unwrap_or_default();
    let expected = "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p'";
    assert!(warning.contains(expected), "{warning}");
    let event = eventually("the request is in the log", || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let found = events
            .into_iter()
            .find(|event| event["requestURI"] == CONFIG_MAPS && event["stage"] == "ResponseComplete");
        async move { Ok(found) }
    })
    .await?;
    assert_eq!(event["annotations"]["p/named"], "it is a");
    let failure = &event["annotations"]["validation.policy.admission.k8s.io/validation_failure"];
    assert!(failure.as_str().is_some_and(|it| it.contains("\"expressionIndex\":0")), "{failure}");
    hub.stop().await;
    Ok(())
}
