//! What is in no namespace and is named by what is in one: classes go along with workloads, and harm nobody.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::{
    app::{self, NS},
    world::{CLUSTERS, World, apply, deployment_path, items, path, text, until, until_gone},
};

const WORKSPACES: &str = "/clusters/root/apis/hanse.io/v1alpha1/workspaces";

fn priority(name: &str, value: i64) -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
    })
}

/// A Deployment whose pods have that priority.
fn important(name: &str, class: &str) -> Value {
    let mut deployment = app::deployment(name, 1);
    deployment["spec"]["template"]["spec"]["priorityClassName"] = json!(class);
    deployment
}

fn priority_path(name: &str) -> String {
    format!("/apis/scheduling.k8s.io/v1/priorityclasses/{name}")
}

fn assignment_of(name: &str) -> String {
    format!("/apis/hanse.io/v1alpha1/namespaces/default/assignments/priorityclasses.scheduling.k8s.io.{name}")
}

/// Waits until the member is known to have or to lack classes: before that none is judged.
async fn until_classes_known(world: &World) -> Result<()> {
    let is_known = |it: &Value| it["status"]["classes"]["PriorityClass"].is_array();
    world.until(&format!("{CLUSTERS}/m1"), "its classes are known", is_known).await.map(drop)
}

async fn workspace(world: &World, name: &str) -> Result<()> {
    let made = world.client.post(WORKSPACES, &json!({"metadata": {"name": name}})).await?;
    ensure!(made.code == 201, "{}", made.text());
    let made = apply(&world.client, &format!("/clusters/{name}"), &app::namespace(NS)).await?;
    ensure!(made.code.is_success(), "{}", made.text());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_goes_along_with_what_names_it_and_goes_with_it() -> Result<()> {
    let world = World::start(&["m1"]).await?;
    until_classes_known(&world).await?;
    let member = world.member("m1").await?;
    world.namespace(NS).await?;
    world.apply(&priority("high", 1000)).await?;
    world.apply(&priority("unused", 7)).await?;
    world.apply(&important("web", "high")).await?;
    world.until_rolled_out("web", 1).await?;
    let copy = member.until_there(&priority_path("high")).await?;
    assert_eq!(
        (&copy["value"], &copy["metadata"]["labels"][api::WORKSPACE_LABEL]),
        (&json!(1000), &json!("default"))
    );
    assert!(!member.has(&priority_path("unused")).await?, "nothing names it");
    // A class that is made after what names it wakes that.
    world.apply(&important("late", "later")).await?;
    let waits = |it: &Value| it["status"]["conditions"].to_string().contains("it has no PriorityClass later");
    world.until(&deployment_path("late"), "it waits for its class", waits).await?;
    world.apply(&priority("later", 5)).await?;
    world.until_rolled_out("late", 1).await?;
    // Nothing names it any more.
    world.apply(&important("web", "later")).await?;
    member.until_gone(&priority_path("high")).await?;
    world.until_gone(&assignment_of("high")).await?;
    world.until(&priority_path("high"), "it stays in the hub", |it| it["value"] == 1000).await?;
    for name in ["web", "late"] {
        world.client.delete(&deployment_path(name)).await?;
    }
    member.until_gone(&priority_path("later")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_of_the_clusters_own_is_used_and_left_alone() -> Result<()> {
    let world = World::start(&["m1"]).await?;
    let member = world.member("m1").await?;
    let own = member.create(&priority("high", 50)).await?;
    world.namespace(NS).await?;
    let mut mine = priority("high", 1000);
    mine["metadata"]["annotations"] = json!({"hanse.io/adopt": "true"});
    world.apply(&mine).await?;
    world.apply(&important("web", "high")).await?;
    world.until_rolled_out("web", 1).await?;
    let says_so = |it: &Value| {
        let report = &it["status"]["clusters"][0];
        report["applied"] == true && text(report, "/message").contains("of its own, which is used")
    };
    world.until(&assignment_of("high"), "it says so", says_so).await?;
    let pods = member.items(&format!("/api/v1/namespaces/{NS}/pods")).await?;
    assert_eq!(pods[0]["spec"]["priority"], 50);
    world.client.delete(&deployment_path("web")).await?;
    world.client.delete(&priority_path("high")).await?;
    world.until_gone(&assignment_of("high")).await?;
    let now = member.get(&priority_path("high")).await?;
    assert_eq!(now["metadata"]["resourceVersion"], own["metadata"]["resourceVersion"], "nobody wrote it");
    Ok(())
}

/// Of what is in no namespace, equal names of two workspaces meet: the first has it, and the other is told (D2).
#[tokio::test(flavor = "multi_thread")]
async fn d02_a_tenant_brings_classes_to_a_cluster_of_the_platform_only_if_they_are_admitted() -> Result<()> {
    let world = World::start(&["m1"]).await?;
    until_classes_known(&world).await?;
    let member = world.member("m1").await?;
    for team in ["blue", "red"] {
        workspace(&world, team).await?;
        let prefix = format!("/clusters/{team}");
        for object in [priority("high", 1000), important("web", "high")] {
            let answer = apply(&world.client, &prefix, &object).await?;
            ensure!(answer.code.is_success(), "{}", answer.text());
        }
        let path = format!("{prefix}{}", deployment_path("web"));
        let refused =
            |it: &Value| it["status"]["conditions"].to_string().contains("takes none from this workspace");
        until(&world.client, &path, "it is told that it may not", refused).await?;
    }
    assert!(!member.has(&priority_path("high")).await?);

    world.patch(&format!("{CLUSTERS}/m1"), json!({"spec": {"admits": ["PriorityClass"]}})).await?;
    let copy = member.until_there(&priority_path("high")).await?;
    let first =
        text(&copy, &format!("/metadata/labels/{}", api::WORKSPACE_LABEL.replace('/', "~1"))).to_owned();
    let second = if first == "blue" { "red" } else { "blue" };
    // Of two that bring the same name the first has it.
    let events = format!("/clusters/{second}/api/v1/namespaces/default/events");
    let told = |list: &Value| list.to_string().contains("of another workspace, which is left alone");
    until(&world.client, &events, "the other one is told", told).await?;
    let path = format!("/clusters/{first}{}", priority_path("high"));
    world.client.delete(&format!("/clusters/{first}{}", deployment_path("web"))).await?;
    world.client.delete(&path).await?;
    until_gone(&world.client, &path).await?;
    let is_seconds = |it: &Value| it["metadata"]["labels"][api::WORKSPACE_LABEL] == second;
    member.until(&priority_path("high"), "the other one has it now", is_seconds).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_goes_with_the_claim_that_names_it() -> Result<()> {
    let world = World::start(&["m1", "m2"]).await?;
    world.namespace(NS).await?;
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "media"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain", "nfs": {"server": "nfs.example.com", "path": "/media"},
        },
    });
    let mut claim = app::claim("media");
    (claim["spec"]["storageClassName"], claim["spec"]["volumeName"]) = (json!(""), json!("media"));
    let mut web = app::deployment("web", 1);
    web["spec"]["template"]["spec"]["volumes"] =
        json!([{"name": "v", "persistentVolumeClaim": {"claimName": "media"}}]);
    world.apply_all(&[volume.clone(), claim.clone(), web]).await?;
    world.until_rolled_out("web", 1).await?;
    let is_bound = |it: &Value| it["status"]["phase"] == "Bound";
    world.until(&path(&volume), "it is bound", is_bound).await?;
    world.until(&path(&claim), "it is bound", is_bound).await?;
    for path in [deployment_path("web"), path(&claim), path(&volume)] {
        world.client.delete(&path).await?;
    }
    world.until_gone(&path(&volume)).await?;
    for name in ["m1", "m2"] {
        let member = world.member(name).await?;
        member.until_gone(&path(&volume)).await?;
        assert!(items(&member.client, "/api/v1/persistentvolumes").await?.is_empty());
    }
    Ok(())
}

/// Two clusters with an autoscaler each: the object says what both want, and that comes to rest.
#[tokio::test(flavor = "multi_thread")]
async fn the_object_says_how_many_replicas_its_autoscalers_want() -> Result<()> {
    let world = World::start(&["m1", "m2"]).await?;
    world.namespace(NS).await?;
    let mut web = app::deployment("web", 2);
    web["metadata"]["annotations"] = json!({"hanse.io/clusters": "m1,m2"});
    let mut autoscaler = app::autoscaler("web");
    (autoscaler["spec"]["minReplicas"], autoscaler["spec"]["maxReplicas"]) = (json!(6), json!(8));
    world.apply_all(&[web.clone(), autoscaler]).await?;
    let web = world.until_rolled_out("web", 6).await?;
    assert_eq!(web["spec"]["replicas"], 6);
    let managers = web["metadata"]["managedFields"].as_array().into_iter().flatten();
    let own = managers.into_iter().find(|it| it["manager"] == "hanse-autoscaler");
    assert_eq!(own.map(|it| it["subresource"].clone()), Some(json!("scale")), "{web}");
    // Whoever applies what says nothing of replicas leaves them alone; who sets them is overruled.
    world.patch(&deployment_path("web"), json!({"spec": {"replicas": 1}})).await?;
    world.until(&deployment_path("web"), "it is what it was", |it| it["spec"]["replicas"] == 6).await?;
    world.until_rolled_out("web", 6).await?;
    // Nothing is autoscaled, until somebody scales it up again.
    world.patch(&deployment_path("web"), json!({"spec": {"replicas": 0}})).await?;
    for name in ["m1", "m2"] {
        let member = world.member(name).await?;
        member.until(&deployment_path("web"), "it runs nothing", |it| it["spec"]["replicas"] == 0).await?;
    }
    world.until_rolled_out("web", 0).await?;
    world.patch(&deployment_path("web"), json!({"spec": {"replicas": 2}})).await?;
    world.until_rolled_out("web", 6).await?;
    world.until_at_rest(&["m1", "m2"], |deed| deed.resource == "deployments").await
}
