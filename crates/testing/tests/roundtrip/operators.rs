//! A program that manages others, placed like anything else. Simulated pods run no programs: what one would do with what its pod
//! has is done here. Real operators in real containers are in the tests `kubelet`.

use anyhow::{Context, Result, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use http::Method;
use serde_json::{Value, json};
use testing::client::{Answer, Client};

use crate::{
    app::{self, NS},
    history::TOKENS,
    world::{Member, World, collection, path, text},
};

/// What a program in a container has.
struct Program {
    client: Client,
    bearer: String,
}

impl Program {
    /// By what its pod mounts and is told, as any client in a cluster does.
    async fn of(member: &Member, pod: &Value) -> Result<Program> {
        let variables = pod["spec"]["containers"][0]["env"].as_array().into_iter().flatten();
        let variables: Vec<&Value> = variables.collect();
        let variable = |name: &str| {
            let found = variables.iter().find(|it| it["name"] == name).context("it is not told")?;
            found["value"].as_str().context("it has no value")
        };
        let account = text(pod, "/spec/serviceAccountName");
        let namespace = text(pod, "/metadata/namespace");
        let secret =
            member.until_there(&format!("/api/v1/namespaces/{namespace}/secrets/{TOKENS}{account}")).await?;
        let file = |name: &str| -> Result<String> {
            let data = secret["data"][name].as_str().with_context(|| format!("no {name} in {secret}"))?;
            Ok(String::from_utf8(BASE64_STANDARD.decode(data)?)?)
        };
        ensure!(
            pod["spec"]["volumes"].to_string().contains(&format!("{TOKENS}{account}")),
            "it mounts another"
        );
        let host = variable("KUBERNETES_SERVICE_HOST")?;
        let url = format!("https://{host}:{}", variable("KUBERNETES_SERVICE_PORT")?);
        let client = Client::connect(&url, &file("ca.crt")?, None).await?;
        assert_eq!(file("namespace")?, NS, "as it is called in the workspace");
        Ok(Program { client, bearer: format!("Bearer {}", file("token")?) })
    }

    async fn call(&self, method: Method, path: &str, body: &Value) -> Result<Answer> {
        let kind = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let headers = [("authorization", self.bearer.as_str()), ("content-type", kind)];
        self.client.call(method, path, &headers, body.to_string()).await
    }

    async fn create(&self, object: &Value) -> Result<()> {
        let made = self.call(Method::POST, &collection(object), object).await?;
        ensure!(made.code == 201, "{}: {}", path(object), made.text());
        Ok(())
    }
}

fn definition() -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "crews.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "crews", "singular": "crew", "kind": "Crew", "listKind": "CrewList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}},
            }],
        },
    })
}

/// What an operator's chart brings: its account, what it may do in the workspace, and itself.
fn chart() -> Vec<Value> {
    let rule = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": ["*"]});
    let mut role = app::role("crew");
    role["rules"] = json!([
        rule("", &["secrets", "pods"]),
        rule("apps", &["statefulsets"]),
        rule("coordination.k8s.io", &["leases"]),
        rule("example.com", &["crews", "crews/status"]),
    ]);
    let mut operator = app::deployment("operator", 1);
    operator["spec"]["template"]["spec"]["serviceAccountName"] = json!("crew");
    vec![definition(), app::service_account("crew"), role, app::role_binding("crew"), operator]
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_17_an_unmodified_operator_works_in_its_workspace() -> Result<()> {
    let world = World::start(&["m1", "m2"]).await?;
    world.namespace(NS).await?;
    world.annotate("/api/v1/namespaces/shop", json!({"hanse.io/clusters": "m1"})).await?;
    world.apply_all(&chart()).await?;
    world.until_rolled_out("operator", 1).await?;
    let member = world.member("m1").await?;
    let pods = member.items(&format!("/api/v1/namespaces/{NS}/pods?labelSelector=app=operator")).await?;
    let program = Program::of(&member, pods.first().context("it runs")?).await?;

    // It leads: the Lease is in the hub, and only there.
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "operator", "namespace": NS},
        "spec": {"holderIdentity": "operator-1", "leaseDurationSeconds": 15},
    });
    program.create(&lease).await?;
    let other = program.call(Method::POST, &collection(&lease), &lease).await?;
    assert_eq!(other.code, 409, "another one must wait: {}", other.text());
    assert!(!member.has(&path(&lease)).await?);

    // It makes what a Crew asks for, and says so.
    let crew = json!({
        "apiVersion": "example.com/v1", "kind": "Crew", "metadata": {"name": "hulk", "namespace": NS}, "spec": {"sailors": 2},
    });
    world.apply(&crew).await?;
    let asked = program.call(Method::GET, &path(&crew), &Value::Null).await?.json();
    let owner = json!([{
        "apiVersion": "example.com/v1", "kind": "Crew", "name": "hulk", "uid": asked["metadata"]["uid"], "controller": true,
    }]);
    for mut object in [app::stateful_set("hulk", 2), app::secret("hulk-key")] {
        object["metadata"]["ownerReferences"] = owner.clone();
        program.create(&object).await?;
    }
    let set = path(&app::stateful_set("hulk", 2));
    world.until(&set, "it runs", |it| it["status"]["readyReplicas"] == 2).await?;
    let sailors = format!("/api/v1/namespaces/{NS}/pods?labelSelector=app=hulk");
    let seen = program.call(Method::GET, &sailors, &Value::Null).await?.json();
    let nodes: Vec<&str> =
        seen["items"].as_array().into_iter().flatten().map(|it| text(it, "/spec/nodeName")).collect();
    assert_eq!(nodes, ["m1", "m1"], "what it made runs in a member: {seen}");
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let status = program.call(Method::PATCH, &format!("{}/status", path(&crew)), &ready).await?;
    assert_eq!(status.code, 200, "{}", status.text());
    let is_ready = |it: &Value| it["status"]["conditions"][0]["status"] == "True";
    world.until(&path(&crew), "it is ready", is_ready).await?;
    assert!(world.get(&path(&app::secret("hulk-key"))).await?["data"]["password"].is_string());

    // Its token is for its workspace, and for nothing else.
    let forbidden = program.call(Method::GET, "/api/v1/namespaces/kube-system/secrets", &Value::Null).await?;
    assert_eq!(forbidden.code, 403);
    let elsewhere = program.call(Method::GET, "/clusters/root/api/v1/namespaces", &Value::Null).await?;
    assert_eq!(elsewhere.code, 401);
    let headers = [("authorization", program.bearer.as_str())];
    let nobody = world.clusters.nobody("m1").await?;
    let there = nobody.call(Method::GET, &format!("/api/v1/namespaces/{NS}/secrets"), &headers, "").await?;
    assert_eq!(there.code, 401, "{}", there.text());

    // All goes with the Crew.
    world.client.delete(&path(&crew)).await?;
    world.until_gone(&set).await?;
    member.until(&sailors, "no sailor is left", |it| it["items"] == json!([])).await?;
    Ok(())
}
