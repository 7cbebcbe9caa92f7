//! Kinds that have nothing of their own to say in federation: secrets, autoscalers, settings.

use anyhow::Result;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::{
    app::{self, NS},
    scheduling::federation,
    words::{A, B, C, federated, named, plain, restart, start, template, until_told},
    world::{World, path},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_federated_secret_is_in_each_cluster_with_what_differs_there() -> Result<()> {
    let mut world = start(&[A, B, C]).await?;
    let secret = |password: &str| {
        let template = json!({
            "metadata": {"labels": {"tier": "data"}}, "type": "Opaque",
            "data": {"user": STANDARD.encode("shop"), "password": STANDARD.encode(password)},
        });
        let changes = json!([
            {"path": "/data/password", "value": STANDARD.encode("other")},
            {"op": "add", "path": "/metadata/labels/zone", "value": "b"},
        ]);
        let overrides = json!([{"clusterName": B, "clusterOverrides": changes}]);
        federated(
            "Secret",
            "login",
            json!({"template": template, "placement": named(&[A, B]), "overrides": overrides}),
        )
    };
    world.apply(&secret("hunter2")).await?;
    until_told(&world, &secret(""), &[(A, ""), (B, "")], "True").await?;
    let copy = path(&plain(&secret("")));
    let (a, b) = (world.member(A).await?, world.member(B).await?);
    let password = |it: &Value| it["data"]["password"].clone();
    let (of_a, of_b) = (a.get(&copy).await?, b.get(&copy).await?);
    assert_eq!(
        (password(&of_a), password(&of_b)),
        (json!(STANDARD.encode("hunter2")), json!(STANDARD.encode("other")))
    );
    for (copy, zone) in [(&of_a, Value::Null), (&of_b, json!("b"))] {
        assert_eq!(
            (&copy["type"], &copy["data"]["user"]),
            (&json!("Opaque"), &json!(STANDARD.encode("shop")))
        );
        let labels = &copy["metadata"]["labels"];
        assert_eq!((&labels["tier"], &labels["zone"]), (&json!("data"), &zone));
    }
    assert!(!world.member(C).await?.has(&copy).await?);

    restart(&mut world, &[A, B, C]).await?;
    world.apply(&secret("hunter3")).await?;
    a.until(&copy, "it is changed", |it| password(it) == STANDARD.encode("hunter3")).await?;
    until_told(&world, &secret(""), &[(A, ""), (B, "")], "True").await?;
    assert_eq!(password(&b.get(&copy).await?), json!(STANDARD.encode("other")));
    Ok(())
}

/// As in KubeFed: each cluster has the template's autoscaler, whole, and what it scales there is its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_federated_autoscaler_is_in_each_cluster_as_its_template_says() -> Result<()> {
    let mut world = start(&[A, B]).await?;
    let mut web =
        federated("Deployment", "web", json!({"template": template(1), "placement": named(&[A, B])}));
    // How many there are is not the hub's any more.
    web["spec"]["retainReplicas"] = json!(true);
    world.apply(&web).await?;
    let autoscaler = |max: u64| {
        let scaled = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        let template = json!({"spec": {"scaleTargetRef": scaled, "minReplicas": 2, "maxReplicas": max}});
        let overrides =
            json!([{"clusterName": B, "clusterOverrides": [{"path": "/spec/minReplicas", "value": 3}]}]);
        federated(
            "HorizontalPodAutoscaler",
            "web",
            json!({"template": template, "placement": named(&[A, B]), "overrides": overrides}),
        )
    };
    world.apply(&autoscaler(10)).await?;
    until_told(&world, &autoscaler(10), &[(A, ""), (B, "")], "True").await?;
    let copy = path(&plain(&autoscaler(10)));
    let (a, b) = (world.member(A).await?, world.member(B).await?);
    let bounds = |it: &Value| (it["spec"]["minReplicas"].as_u64(), it["spec"]["maxReplicas"].as_u64());
    assert_eq!(bounds(&a.get(&copy).await?), (Some(2), Some(10)));
    assert_eq!(bounds(&b.get(&copy).await?), (Some(3), Some(10)));
    for (member, least) in [(&a, 2), (&b, 3)] {
        let scaled = |it: &Value| it["spec"]["replicas"] == least && it["status"]["readyReplicas"] == least;
        member.until(&path(&plain(&web)), "it is scaled there", scaled).await?;
    }

    restart(&mut world, &[A, B]).await?;
    world.apply(&autoscaler(6)).await?;
    for (member, least) in [(&a, 2), (&b, 3)] {
        member.until(&copy, "it has its bounds", |it| bounds(it) == (Some(least), Some(6))).await?;
        assert_eq!(member.get(&path(&plain(&web))).await?["spec"]["replicas"], least, "it stays scaled");
    }
    Ok(())
}

/// Of the first federation: what has no replicas is in all clusters, also in those that come later.
#[tokio::test(flavor = "multi_thread")]
async fn plain_settings_and_secrets_are_in_all_clusters() -> Result<()> {
    let mut world = World::start(&[A, B]).await?;
    world.namespace(NS).await?;
    world.apply(&federation(true)).await?;
    let objects = [app::config_map("settings", "value"), app::secret("login")];
    world.apply_all(&objects).await?;
    let password = json!(STANDARD.encode("hunter2"));
    for name in [A, B] {
        let member = world.member(name).await?;
        member.until(&path(&objects[0]), "it is there", |it| it["data"]["key"] == "value").await?;
        member.until(&path(&objects[1]), "it is there", |it| it["data"]["password"] == password).await?;
    }

    restart(&mut world, &[A, B]).await?;
    world.clusters.simulation.add(C, sim::ClusterOptions::default()).await?;
    world.join(C).await?;
    world.apply(&app::config_map("settings", "changed")).await?;
    for name in [A, B, C] {
        let member = world.member(name).await?;
        member.until(&path(&objects[0]), "it is changed", |it| it["data"]["key"] == "changed").await?;
        member.until(&path(&objects[1]), "it is there", |it| it["data"]["password"] == password).await?;
    }
    Ok(())
}
