//! Federated objects: template, placement, overrides, and what namespaces allow.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use http::Method;
use serde_json::{Value, json};

use crate::{
    app::NS,
    clusters::leave,
    words::{
        A, B, C, SYSTEM, begin, federated, federation_config, named, plain, restart, start, template,
        until_replicas, until_told,
    },
    world::{apply, assignment_path, is_rolled_out, path, shares, text},
};

pub fn web(overrides: Value) -> Value {
    federated(
        "Deployment",
        "web",
        json!({"template": template(5), "placement": named(&[A, B]), "overrides": overrides}),
    )
}

fn override_of(cluster: &str, changes: Value) -> Value {
    json!([{"clusterName": cluster, "clusterOverrides": changes}])
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_13_template_placement_and_override() -> Result<()> {
    let mut world = start(&[A, B]).await?;
    let ten = override_of(B, json!([{"path": "/spec/replicas", "value": 10}]));
    world.apply(&web(ten)).await?;
    let copy = plain(&web(json!([])));
    let (a, b) = (world.member(A).await?, world.member(B).await?);
    let made = until_replicas(&a, &copy, 5).await?;
    assert_eq!(made["metadata"]["labels"]["kubefed.io/managed"], "true");
    until_replicas(&b, &copy, 10).await?;
    until_told(&world, &web(json!([])), &[(A, ""), (B, "")], "True").await?;
    // As many as an override says are as many as there should be.
    let all_ready = |it: &Value| {
        let reports = it["status"]["clusters"].as_array().into_iter().flatten();
        let told = |it: &Value| (text(it, "/name").to_owned(), it["ready"] == true, it["replicas"].as_u64());
        reports.map(told).collect::<BTreeSet<_>>()
            == [(A.to_owned(), true, None), (B.to_owned(), true, Some(10))].into()
    };
    world.until(&assignment_path(&copy), "all is ready", all_ready).await?;
    // And whoever waits for the plain one waits for what that says.
    world.until(&path(&copy), "it is rolled out", |it| is_rolled_out(it, 5)).await?;

    // What cannot be changed in one cluster does not keep the other from what is new.
    let mut missing = web(override_of(B, json!([{"path": "/spec/nothing/there", "value": 1}])));
    missing["spec"]["template"]["spec"]["replicas"] = json!(6);
    world.apply(&missing).await?;
    until_replicas(&a, &copy, 6).await?;
    until_told(&world, &missing, &[(A, ""), (B, "ApplyOverridesFailed")], "FalseCheckClusters").await?;
    until_replicas(&b, &copy, 10).await?;

    restart(&mut world, &[A, B]).await?;
    until_told(&world, &missing, &[(A, ""), (B, "ApplyOverridesFailed")], "FalseCheckClusters").await?;
    let renamed = web(override_of(B, json!([{"path": "/metadata/name", "value": "other"}])));
    let refused = apply(&world.client, "", &renamed).await?;
    assert_eq!(refused.code, 422, "{}", refused.text());

    // Somebody there keeps it from going for a while.
    let hold = json!({"metadata": {"finalizers": ["example.com/held"]}});
    b.client.merge_patch(&path(&copy), &hold).await?;
    let mut alone = web(json!([]));
    alone["spec"]["placement"] = named(&[A]);
    world.apply(&alone).await?;
    until_told(&world, &alone, &[(A, ""), (B, "WaitingForRemoval")], "FalseCheckClusters").await?;
    restart(&mut world, &[A, B]).await?;
    until_told(&world, &alone, &[(A, ""), (B, "WaitingForRemoval")], "FalseCheckClusters").await?;
    assert!(b.has(&path(&copy)).await?);
    b.client.merge_patch(&path(&copy), &json!({"metadata": {"finalizers": null}})).await?;
    b.until_gone(&path(&copy)).await?;
    until_told(&world, &alone, &[(A, "")], "True").await.map(drop)
}

/// The label is the hub's: whatever is written, copies go on being looked after, and are found by it.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_13_copies_are_managed_whatever_overrides_say() -> Result<()> {
    const MANAGED: &str = "kubefed.io/managed";
    let mut world = start(&[A, B]).await?;
    let overrides = json!([
        {"clusterName": A, "clusterOverrides": [{"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}]},
        {"clusterName": B, "clusterOverrides": [
            {"op": "add", "path": "/metadata/labels/kubefed.io~1managed", "value": "false"},
        ]},
    ]);
    let mut object = web(overrides);
    object["spec"]["template"]["metadata"]["labels"][MANAGED] = json!("false");
    world.apply(&object).await?;
    until_told(&world, &object, &[(A, ""), (B, "")], "True").await?;
    let copy = path(&plain(&object));
    let (a, b) = (world.member(A).await?, world.member(B).await?);
    let (of_a, of_b) = (a.get(&copy).await?, b.get(&copy).await?);
    let labels = |it: &Value, name: &str| it["metadata"]["labels"][name].clone();
    assert_eq!((labels(&of_a, MANAGED), labels(&of_b, MANAGED)), (json!("true"), json!("true")));
    assert_eq!((labels(&of_a, "x"), labels(&of_a, "app")), (json!("y"), Value::Null));

    restart(&mut world, &[A, B]).await?;
    object["spec"]["template"]["spec"]["replicas"] = json!(6);
    world.apply(&object).await?;
    for member in [&a, &b] {
        until_replicas(member, &plain(&object), 6).await?;
    }
    until_told(&world, &object, &[(A, ""), (B, "")], "True").await?;

    // Whoever is left lets go of it, and what is deleted goes.
    leave(&world, A, false).await?;
    assert_eq!(labels(&a.get(&copy).await?, MANAGED), Value::Null);
    world.client.delete(&path(&object)).await?;
    world.until_gone(&path(&object)).await?;
    assert!(!b.has(&copy).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_13_the_form_with_dotted_paths() -> Result<()> {
    let mut world = begin(&[A, B]).await?;
    world.namespace(NS).await?;
    let mk = |kind: &str, spec: Value| {
        json!({
            "apiVersion": "primitives.federation.k8s.io/v1alpha1", "kind": kind,
            "metadata": {"name": "web", "namespace": NS}, "spec": spec,
        })
    };
    let objects = [
        mk("FederatedDeployment", json!({"template": template(5)})),
        mk("FederatedDeploymentPlacement", json!({"clusterNames": [A, B]})),
        mk(
            "FederatedDeploymentOverride",
            json!({"overrides": override_of(B, json!([{"path": "spec.replicas", "value": 10}]))}),
        ),
    ];
    world.apply_all(&objects).await?;
    let copy = plain(&objects[0]);
    until_replicas(&world.member(A).await?, &copy, 5).await?;
    until_replicas(&world.member(B).await?, &copy, 10).await?;
    restart(&mut world, &[A, B]).await?;
    let fewer = json!({"overrides": override_of(B, json!([{"path": "spec.replicas", "value": 7}]))});
    world.apply(&mk("FederatedDeploymentOverride", fewer)).await?;
    until_replicas(&world.member(B).await?, &copy, 7).await?;
    until_replicas(&world.member(A).await?, &copy, 5).await.map(drop)
}

/// Its placement is another object: what cannot be made is told of the clusters that are named there, and why.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_13_the_form_with_three_objects_says_why_nothing_is_made_of_it() -> Result<()> {
    let mut world = begin(&[A, B]).await?;
    world.namespace(NS).await?;
    world.namespace(SYSTEM).await?;
    let mk = |kind: &str, spec: Value| {
        json!({
            "apiVersion": "core.federation.k8s.io/v1alpha1", "kind": kind,
            "metadata": {"name": "set", "namespace": NS}, "spec": spec,
        })
    };
    let template = json!({"spec": crate::app::replica_set("set", 1)["spec"]});
    let set = |template: &Value| mk("FederatedReplicaSet", json!({"template": template}));
    let lacking = mk("FederatedReplicaSetOverride", json!({"overrides": [{"clusterName": B}]}));
    let placement = mk("FederatedReplicaSetPlacement", json!({"clusterNames": [A, B]}));
    world.apply_all(&[placement.clone(), lacking.clone(), set(&template)]).await?;
    let says = |it: &Value, what: &str| text(it, "/status/conditions/0/message").contains(what);
    let of_both = |status: &'static str| [(A, status), (B, status)];
    let told =
        until_told(&world, &set(&template), &of_both("ApplyOverridesFailed"), "FalseCheckClusters").await?;
    assert!(says(&told, "no replicas"), "{told}");

    // What the hub does not take.
    world.client.delete(&path(&lacking)).await?;
    let mut broken = template.clone();
    broken["spec"]["selector"]["matchLabels"] = json!({"of": "others"});
    world.apply(&set(&broken)).await?;
    restart(&mut world, &[A, B]).await?;
    let told =
        until_told(&world, &set(&broken), &of_both("ComputeResourceFailed"), "FalseCheckClusters").await?;
    assert!(says(&told, "selector"), "{told}");
    world.client.delete(&path(&placement)).await?;
    let told = until_told(&world, &set(&broken), &[], "FalseCheckClusters").await?;
    assert!(says(&told, "selector"), "{told}");
    world.apply_all(&[placement, set(&template)]).await?;
    until_told(&world, &set(&template), &[(A, ""), (B, "")], "True").await?;

    // What was there before, and is not taken over.
    let adopts_nothing = json!({"scope": "Cluster", "syncController": {"adoptResources": "Disabled"}});
    world.apply(&federation_config(adopts_nothing)).await?;
    let theirs = crate::app::config_map("set", "value");
    world.apply(&theirs).await?;
    let config = mk("FederatedConfigMap", json!({"template": {"data": {}}}));
    world
        .apply_all(&[mk("FederatedConfigMapPlacement", json!({"clusterNames": [A]})), config.clone()])
        .await?;
    let failed = [(A, "ComputeResourceFailed")];
    let told = until_told(&world, &config, &failed, "FalseCheckClusters").await?;
    assert!(says(&told, "not taken over"), "{told}");
    assert_eq!(world.get(&path(&theirs)).await?["data"], theirs["data"]);
    Ok(())
}

/// Where it is its federated object says: what somebody notes on the plain one moves nothing.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_13_clusters_named_on_the_plain_object_do_not_count() -> Result<()> {
    let mut world = start(&[A, B, C]).await?;
    world.apply(&config(named(&[A, B]))).await?;
    until_told(&world, &config(json!({})), &[(A, ""), (B, "")], "True").await?;
    let copy = plain(&config(json!({})));
    world.annotate(&path(&copy), json!({"hanse.io/clusters": C})).await?;
    world.barrier(NS, 0, &[A, B, C]).await?;
    restart(&mut world, &[A, B, C]).await?;
    world.barrier(NS, 1, &[A, B, C]).await?;
    until_told(&world, &config(json!({})), &[(A, ""), (B, "")], "True").await?;
    let assigned: Vec<String> =
        shares(&world.assignment(&copy).await?).into_iter().map(|(name, _)| name).collect();
    assert_eq!(assigned, [A, B]);
    assert!(!world.member(C).await?.has(&path(&copy)).await?);
    Ok(())
}

fn config(placement: Value) -> Value {
    federated(
        "ConfigMap",
        "settings",
        json!({"template": {"data": {"key": "value"}}, "placement": placement}),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_12_drift_is_repaired_and_what_members_add_stays() -> Result<()> {
    let mut world = start(&[A, B]).await?;
    world.apply(&config(named(&[A, B]))).await?;
    let copy = path(&plain(&config(json!({}))));
    let (a, b) = (world.member(A).await?, world.member(B).await?);
    a.until_there(&copy).await?;
    let untouched = b.until_there(&copy).await?;
    until_told(&world, &config(json!({})), &[(A, ""), (B, "")], "True").await?;

    a.client.merge_patch(&copy, &json!({"data": {"key": "other"}})).await?;
    a.until(&copy, "it is restored", |it| it["data"]["key"] == "value").await?;
    restart(&mut world, &[A, B]).await?;
    a.client.delete(&copy).await?;
    a.until(&copy, "it is made again", |it| it["data"]["key"] == "value").await?;
    let added = json!({"metadata": {"annotations": {"x": "y"}, "labels": {"team": "z"}}});
    a.client.merge_patch(&copy, &added).await?;
    world.barrier(NS, 0, &[A, B]).await?;
    let kept = a.get(&copy).await?;
    assert_eq!(
        (&kept["metadata"]["annotations"]["x"], &kept["metadata"]["labels"]["team"]),
        (&json!("y"), &json!("z"))
    );
    assert_eq!(b.get(&copy).await?["metadata"]["resourceVersion"], untouched["metadata"]["resourceVersion"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_14_a_namespace_says_where_things_in_it_may_be() -> Result<()> {
    let mut world = begin(&[A, B]).await?;
    world.namespace(NS).await?;
    let (a, b) = (world.member(A).await?, world.member(B).await?);
    let copy = path(&plain(&config(json!({}))));
    world.apply(&config(named(&[A, B]))).await?;
    until_told(&world, &config(json!({})), &[], "FalseNamespaceNotFederated").await?;

    let namespace = |placement: Value| federated("Namespace", NS, json!({"placement": placement}));
    world.apply(&namespace(named(&[A]))).await?;
    a.until_there(&copy).await?;
    until_told(&world, &config(json!({})), &[(A, "")], "True").await?;
    assert!(!b.has(&copy).await?);
    until_told(&world, &namespace(json!({})), &[(A, "")], "True").await?;

    restart(&mut world, &[A, B]).await?;
    world.apply(&namespace(named(&[A, B]))).await?;
    b.until_there(&copy).await?;

    // Nowhere, everywhere, nowhere.
    for (placement, is_there) in
        [(json!({}), false), (json!({"clusterSelector": {}}), true), (json!({"clusters": []}), false)]
    {
        let patch = json!([{"op": "add", "path": "/spec/placement", "value": placement}]).to_string();
        let json_patch = [("content-type", "application/json-patch+json")];
        let place = path(&config(json!({})));
        let written = world.client.call(Method::PATCH, &place, &json_patch, patch).await?;
        assert_eq!(written.code, 200, "{}", written.text());
        for member in [&a, &b] {
            match is_there {
                true => drop(member.until_there(&copy).await?),
                false => member.until_gone(&copy).await?,
            }
        }
    }

    world.apply(&config(named(&[A, B]))).await?;
    a.until_there(&copy).await?;
    world.client.delete(&path(&namespace(json!({})))).await?;
    for member in [&a, &b] {
        member.until_gone(&copy).await?;
        member.until_gone(&format!("/api/v1/namespaces/{NS}")).await?;
    }
    world.until_gone(&path(&namespace(json!({})))).await?;
    until_told(&world, &config(json!({})), &[], "FalseNamespaceNotFederated").await?;
    let own = world.get(&format!("/api/v1/namespaces/{NS}")).await?;
    assert_eq!(own["status"]["phase"], "Active");
    Ok(())
}

/// One namespace is all that federation is for, so that it need not be federated itself. One that is counts as everywhere,
/// and of those that clusters have themselves it is about nothing but what is in them.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_14_where_federation_is_for_one_namespace_none_needs_to_be_federated() -> Result<()> {
    let mut world = begin(&[A, B]).await?;
    for namespace in [NS, SYSTEM] {
        world.namespace(namespace).await?;
    }
    world.apply(&federation_config(json!({"scope": "Namespaced"}))).await?;
    let (a, b) = (world.member(A).await?, world.member(B).await?);
    let copy = path(&plain(&config(json!({}))));
    world.apply(&config(named(&[A]))).await?;
    until_told(&world, &config(json!({})), &[(A, "")], "True").await?;
    a.until_there(&copy).await?;
    assert!(!b.has(&copy).await?);

    restart(&mut world, &[A, B]).await?;
    until_told(&world, &config(json!({})), &[(A, "")], "True").await?;
    world.apply(&config(named(&[A, B]))).await?;
    until_told(&world, &config(json!({})), &[(A, ""), (B, "")], "True").await?;
    b.until_there(&copy).await?;

    // Every cluster has this namespace itself: it is neither made nor marked there.
    let in_default = |mut object: Value| {
        object["metadata"]["namespace"] = json!("default");
        object
    };
    let inside = in_default(config(named(&[A, B])));
    let namespace = in_default(federated("Namespace", "default", json!({"placement": named(&[A])})));
    let copy = path(&plain(&inside));
    world.apply(&namespace).await?;
    until_told(&world, &namespace, &[], "True").await?;
    world.apply(&inside).await?;
    until_told(&world, &inside, &[(A, "")], "True").await?;
    a.until_there(&copy).await?;
    assert!(!b.has(&copy).await?);
    let theirs = a.get("/api/v1/namespaces/default").await?;
    let labels = &theirs["metadata"]["labels"];
    assert_eq!((labels.get("kubefed.io/managed"), labels.get("hanse.io/workspace")), (None, None));
    let misnamed = in_default(federated("Namespace", "other", json!({"placement": named(&[A])})));
    world.apply(&misnamed).await?;
    until_told(&world, &misnamed, &[], "FalseInvalidName").await?;

    // Without it, what the object says counts alone.
    world.client.delete(&path(&namespace)).await?;
    world.until_gone(&path(&namespace)).await?;
    until_told(&world, &inside, &[(A, ""), (B, "")], "True").await?;
    b.until_there(&copy).await?;

    let changed = apply(&world.client, "", &federation_config(json!({"scope": "Cluster"}))).await?;
    assert_eq!(changed.code, 422, "{}", changed.text());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_17_what_was_there_is_adopted_or_left_alone() -> Result<()> {
    let mut world = start(&[A, B]).await?;
    let a = world.member(A).await?;
    // The hub may have been faster: whose the namespace is makes no difference here.
    let made = a.client.post("/api/v1/namespaces", &crate::app::namespace(NS)).await?;
    ensure!(matches!(made.code.as_u16(), 201 | 409), "{}", made.json());
    let theirs = crate::app::deployment("web", 2);
    a.create(&theirs).await?;
    let kept = |it: &Value| (it["metadata"]["generation"].clone(), it["metadata"].get("labels").cloned());
    let before = kept(&a.until(&path(&theirs), "it runs", |it| it["status"]["readyReplicas"] == 2).await?);
    let config = |adopts: &str| {
        federation_config(json!({"scope": "Cluster", "syncController": {"adoptResources": adopts}}))
    };
    world.namespace(SYSTEM).await?;
    world.apply(&config("Disabled")).await?;
    world.apply(&web(json!([]))).await?;
    until_told(&world, &web(json!([])), &[(A, "AlreadyExists"), (B, "")], "FalseCheckClusters").await?;
    let untouched = a.get(&path(&theirs)).await?;
    assert_eq!((&untouched["spec"]["replicas"], &kept(&untouched)), (&json!(2), &before));

    restart(&mut world, &[A, B]).await?;
    until_told(&world, &web(json!([])), &[(A, "AlreadyExists"), (B, "")], "FalseCheckClusters").await?;
    assert_eq!(kept(&a.get(&path(&theirs)).await?), before, "nobody wrote it");
    world.apply(&config("Enabled")).await?;
    let adopted = until_replicas(&a, &theirs, 5).await?;
    assert_eq!(adopted["metadata"]["labels"]["kubefed.io/managed"], "true");
    assert_eq!(adopted["metadata"]["uid"], untouched["metadata"]["uid"]);
    until_told(&world, &web(json!([])), &[(A, ""), (B, "")], "True").await?;

    // Whoever says so there wants it left alone.
    a.client
        .merge_patch(&path(&theirs), &json!({"metadata": {"labels": {"kubefed.io/managed": "false"}}}))
        .await?;
    let is_done = |it: &Value| {
        it["status"]["observedGeneration"] == it["metadata"]["generation"]
            && [&it["status"]["updatedReplicas"], &it["status"]["readyReplicas"]].iter().all(|it| **it == 5)
    };
    let left_alone = kept(&a.until(&path(&theirs), "it is rolled out", is_done).await?);
    let mut more = web(json!([]));
    more["spec"]["template"]["spec"]["replicas"] = json!(8);
    world.apply(&more).await?;
    until_replicas(&world.member(B).await?, &theirs, 8).await?;
    until_told(&world, &more, &[(A, "ManagedLabelFalse"), (B, "")], "FalseCheckClusters").await?;
    restart(&mut world, &[A, B]).await?;
    until_told(&world, &more, &[(A, "ManagedLabelFalse"), (B, "")], "FalseCheckClusters").await?;
    let theirs_still = a.get(&path(&theirs)).await?;
    assert_eq!((&theirs_still["spec"]["replicas"], kept(&theirs_still)), (&json!(5), left_alone));
    a.client
        .merge_patch(&path(&theirs), &json!({"metadata": {"labels": {"kubefed.io/managed": "true"}}}))
        .await?;
    until_replicas(&a, &theirs, 8).await.map(drop)
}
