//! Kinds that have nothing of their own to say in federation: secrets, autoscalers, settings.

use anyhow::Result;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::{
    app::{self, NS},
    words::{A, B, C, begin, federated, named, plain, restart, start, template, until_told},
    world::path,
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
    let mut world = begin(&[A, B]).await?;
    world.namespace(NS).await?;
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

/// A kind, what its template says beside metadata, and where a copy shows that it came from that.
type Row = (&'static str, Value, &'static str);

/// Whatever its kind, it comes to its clusters and is told to have; what differs in one differs there alone.
#[tokio::test(flavor = "multi_thread")]
async fn every_other_kind_is_federated_as_well() -> Result<()> {
    let mut world = start(&[A, B]).await?;
    let spec = |object: Value| json!({"spec": object["spec"]});
    let rows: [Row; 5] = [
        ("Ingress", spec(app::ingress("kept")), "/spec/rules/0/host"),
        ("StatefulSet", spec(app::stateful_set("kept", 1)), "/spec/serviceName"),
        ("DaemonSet", spec(app::daemon_set("kept")), "/spec/selector/matchLabels/app"),
        ("CronJob", spec(app::cron_job("kept")), "/spec/schedule"),
        ("ReplicaSet", spec(app::replica_set("kept", 1)), "/spec/selector/matchLabels/app"),
    ];
    let whole = |(kind, template, _): &Row| {
        let changes = json!([{"op": "add", "path": "/metadata/labels", "value": {"of": "b"}}]);
        let overrides = json!([{"clusterName": B, "clusterOverrides": changes}]);
        federated(
            kind,
            "kept",
            json!({"template": template, "placement": named(&[A, B]), "overrides": overrides}),
        )
    };
    for row in &rows {
        world.apply(&whole(row)).await?;
    }
    restart(&mut world, &[A, B]).await?;
    for row in &rows {
        until_told(&world, &whole(row), &[(A, ""), (B, "")], "True").await?;
        let (kind, template, shows) = row;
        for (name, label) in [(A, Value::Null), (B, json!("b"))] {
            let copy = world.member(name).await?.get(&path(&plain(&whole(row)))).await?;
            assert!(template.pointer(shows).is_some(), "{kind}");
            assert_eq!(copy.pointer(shows), template.pointer(shows), "{kind} in {name}");
            assert_eq!(copy["metadata"]["labels"]["of"], label, "{kind} in {name}");
        }
        world.client.delete(&path(&whole(row))).await?;
        world.until_gone(&path(&whole(row))).await?;
    }
    Ok(())
}

/// In the form with three objects an override has the one field of its kind; what has none is the same everywhere.
#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_the_first_form_differs_by_its_one_field() -> Result<()> {
    let mut world = begin(&[A, B]).await?;
    world.namespace(NS).await?;
    let mk = |kind: &str, part: &str, spec: Value| {
        json!({
            "apiVersion": "core.federation.k8s.io/v1alpha1", "kind": format!("Federated{kind}{part}"),
            "metadata": {"name": "kept", "namespace": NS}, "spec": spec,
        })
    };
    let coded = |text: &str| json!({"key": STANDARD.encode(text)});
    // What the override says, and where that is in a copy; nothing: the kind has no such field.
    let rows = [
        ("ConfigMap", json!({"data": {"key": "a"}}), json!({"data": {"key": "b"}}), "/data"),
        ("Secret", json!({"data": coded("a")}), json!({"data": coded("b")}), "/data"),
        ("Job", json!({"spec": app::job("kept")["spec"]}), json!({"parallelism": 3}), "/spec/parallelism"),
        ("Service", json!({"spec": app::service("kept")["spec"]}), json!({}), ""),
    ];
    for (kind, template, differs, _) in &rows {
        world.apply(&mk(kind, "", json!({"template": template}))).await?;
        world.apply(&mk(kind, "Placement", json!({"clusterNames": [A, B]}))).await?;
        let Some(differs) = differs.as_object().filter(|it| !it.is_empty()) else { continue };
        let mut entry = json!({"clusterName": B});
        for (field, value) in differs {
            entry[field] = value.clone();
        }
        world.apply(&mk(kind, "Override", json!({"overrides": [entry]}))).await?;
    }
    restart(&mut world, &[A, B]).await?;
    for (kind, template, differs, at) in &rows {
        let object = mk(kind, "", json!({}));
        let copy = path(&plain(&object));
        let (a, b) = (world.member(A).await?, world.member(B).await?);
        a.until_there(&copy).await?;
        let wanted = at.rsplit('/').next().and_then(|field| differs.get(field));
        let has_it =
            |it: &Value| it["metadata"]["uid"].is_string() && (at.is_empty() || it.pointer(at) == wanted);
        b.until(&copy, "it is as it is to be there", has_it).await?;
        until_told(&world, &object, &[(A, ""), (B, "")], "True").await?;
        let of_a = a.get(&copy).await?;
        match *kind {
            "Job" => assert_eq!(of_a["spec"]["parallelism"], 1),
            "Service" => assert_eq!(of_a["spec"]["ports"][0]["port"], template["spec"]["ports"][0]["port"]),
            _ => assert_eq!(of_a.pointer(at), template.pointer(at), "{kind}"),
        }
    }
    Ok(())
}
