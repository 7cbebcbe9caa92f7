//! Federated objects go, and their copies with them or not.

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    app::{self, NS},
    type_configs::{config, until_runs},
    words::{
        A, B, SYSTEM, begin, delete, federated, named, plain, restart, start, template, until_replicas,
        until_told,
    },
    world::{CLUSTERS, Member, World, assignment_path, items, path, text},
};

const HOME: &str = "/api/v1/namespaces/shop";

fn web() -> Value {
    federated("Deployment", "web", json!({"template": template(2), "placement": named(&[A, B])}))
}

async fn settled() -> Result<World> {
    let world = start(&[A, B]).await?;
    world.apply(&web()).await?;
    until_told(&world, &web(), &[(A, ""), (B, "")], "True").await?;
    Ok(world)
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_16_copies_go_before_the_federated_object() -> Result<()> {
    let world = settled().await?;
    let copy = path(&plain(&web()));
    let (a, b) = (world.member(A).await?, world.member(B).await?);

    let deleted = world.client.delete(&path(&web())).await?;
    assert_eq!(deleted.code, 200, "{}", deleted.text());
    world.until_gone(&path(&web())).await?;

    assert!(!a.has(&copy).await? && !b.has(&copy).await?);
    world.until_gone(&copy).await
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_16_orphans_stay_and_are_nobodys() -> Result<()> {
    let mut world = settled().await?;
    let copy = path(&plain(&web()));
    let (a, b) = (world.member(A).await?, world.member(B).await?);
    let before = a.get(&copy).await?;

    world.annotate(&path(&web()), json!({"kubefed.io/orphan": "true"})).await?;
    world.client.delete(&path(&web())).await?;
    world.until_gone(&path(&web())).await?;
    world.until_gone(&copy).await?;

    for member in [&a, &b] {
        let left = member.get(&copy).await?;
        let labels = &left["metadata"]["labels"];
        assert_eq!((&left["spec"]["replicas"], &labels["app"]), (&json!(2), &json!("web")));
        assert!(
            labels.get("kubefed.io/managed").is_none() && labels.get("hanse.io/workspace").is_none(),
            "{labels}"
        );
        assert!(left["metadata"]["annotations"].get("hanse.io/source-uid").is_none());
    }
    // One of the same name leaves them alone or takes them over, as configured.
    let config = |adopts: &str| {
        json!({
            "apiVersion": "core.kubefed.io/v1beta1", "kind": "KubeFedConfig",
            "metadata": {"name": "kubefed", "namespace": "kube-federation-system"},
            "spec": {"scope": "Cluster", "syncController": {"adoptResources": adopts}},
        })
    };
    world.namespace("kube-federation-system").await?;
    world.apply(&config("Disabled")).await?;
    let mut more = web();
    more["spec"]["template"]["spec"]["replicas"] = json!(3);
    world.apply(&more).await?;
    let refused = [(A, "AlreadyExists"), (B, "AlreadyExists")];
    until_told(&world, &more, &refused, "FalseCheckClusters").await?;
    restart(&mut world, &[A, B]).await?;
    until_told(&world, &more, &refused, "FalseCheckClusters").await?;
    for member in [&a, &b] {
        let left = member.get(&copy).await?;
        assert_eq!(left["spec"]["replicas"], 2);
        assert!(left["metadata"]["labels"].get("kubefed.io/managed").is_none());
    }
    world.apply(&config("Enabled")).await?;
    until_told(&world, &more, &[(A, ""), (B, "")], "True").await?;
    until_replicas(&b, &plain(&web()), 3).await?;
    assert_eq!(a.get(&copy).await?["metadata"]["uid"], before["metadata"]["uid"]);
    Ok(())
}

fn home() -> Value {
    federated("Namespace", NS, json!({"placement": {"clusterSelector": {}}}))
}

/// Until copies of it are to stay, or not, whoever deletes it.
async fn until_kept(world: &World, object: &Value, stays: bool) -> Result<()> {
    let what = if stays { "copies are to stay" } else { "copies are to go" };
    let is_said = |it: &Value| (it["spec"]["propagation"] == "Keep") == stays && it["spec"].is_object();
    world.until(&assignment_path(object), what, is_said).await.map(drop)
}

/// Its copy and their namespace are in a member as they were, and nobody's.
async fn is_left_alone(member: &Member, before: &Value) -> Result<()> {
    let left = member.get(&path(&plain(&web()))).await?;
    assert_eq!((&left["metadata"]["uid"], &left["spec"]), (&before["metadata"]["uid"], &before["spec"]));
    for object in [&left, &member.get(HOME).await?] {
        let labels = &object["metadata"]["labels"];
        assert!(object["metadata"]["deletionTimestamp"].is_null(), "{object}");
        assert!(
            labels.get("kubefed.io/managed").is_none() && labels.get("hanse.io/workspace").is_none(),
            "{object}"
        );
    }
    Ok(())
}

/// As whoever leaves federation does it: what is in a namespace first, then that. The hub's own namespace may go after it.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_16_orphans_stay_when_their_namespace_is_orphaned_after_them() -> Result<()> {
    let world = settled().await?;
    let copy = path(&plain(&web()));
    let members = [world.member(A).await?, world.member(B).await?];
    let before = [members[0].get(&copy).await?, members[1].get(&copy).await?];
    for object in [&web(), &home()] {
        world.annotate(&path(object), json!({"kubefed.io/orphan": "true"})).await?;
        world.client.delete(&path(object)).await?;
        world.until_gone(&path(object)).await?;
    }
    for member in &members {
        assert!(member.has(&copy).await?, "it went with its namespace");
    }

    until_kept(&world, &app::namespace(NS), true).await?;
    world.client.delete(HOME).await?;
    world.until_gone(HOME).await?;
    for (member, before) in members.iter().zip(&before) {
        is_left_alone(member, before).await?;
    }
    Ok(())
}

/// Plain objects go before federated ones then.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_16_orphans_stay_when_their_namespace_is_deleted_in_the_hub() -> Result<()> {
    let mut world = settled().await?;
    let copy = path(&plain(&web()));
    let members = [world.member(A).await?, world.member(B).await?];
    let before = [members[0].get(&copy).await?, members[1].get(&copy).await?];
    for object in [&web(), &home()] {
        world.annotate(&path(object), json!({"kubefed.io/orphan": "true"})).await?;
    }
    for object in [&plain(&web()), &app::namespace(NS)] {
        until_kept(&world, object, true).await?;
    }
    restart(&mut world, &[A, B]).await?;
    world.client.delete(HOME).await?;
    world.until_gone(HOME).await?;
    for (member, before) in members.iter().zip(&before) {
        is_left_alone(member, before).await?;
    }
    Ok(())
}

/// What was said once is not said for ever, though nobody looks at the kind any more when it is taken back.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_16_orphans_that_are_none_any_more_go() -> Result<()> {
    let world = settled().await?;
    world.namespace(SYSTEM).await?;
    let said = |it: &Value| it["metadata"]["annotations"]["hanse.io/on-delete"] == "Keep";
    for stays in [true, false, true] {
        for object in [web(), home()] {
            world.annotate(&path(&object), json!({"kubefed.io/orphan": stays.to_string()})).await?;
        }
        for object in [plain(&web()), app::namespace(NS)] {
            world.until(&path(&object), "it says so, too", |it| said(it) == stays).await?;
            until_kept(&world, &object, stays).await?;
        }
    }

    let off = config("deployments.apps", "Deployment", "Disabled", false);
    world.apply(&off).await?;
    until_runs(&world, &off, "NotRunning", "NotRunning").await?;
    world.annotate(&path(&web()), json!({"kubefed.io/orphan": null})).await?;
    world.client.delete(&path(&web())).await?;
    world.until_gone(&path(&web())).await?;
    for name in [A, B] {
        assert!(!world.member(name).await?.has(&path(&plain(&web()))).await?, "{name}");
    }
    Ok(())
}

/// It was said of the plain object as well, by somebody who means that.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_16_what_somebody_keeps_themselves_stays_though_it_is_orphaned_no_more() -> Result<()> {
    let world = settled().await?;
    world.namespace(SYSTEM).await?;
    let copy = plain(&web());
    world.annotate(&path(&web()), json!({"kubefed.io/orphan": "true"})).await?;
    until_kept(&world, &copy, true).await?;
    let mut theirs = copy.clone();
    theirs["metadata"]["annotations"] = json!({"hanse.io/on-delete": "Keep"});
    world.apply(&theirs).await?;

    let off = config("deployments.apps", "Deployment", "Disabled", false);
    world.apply(&off).await?;
    until_runs(&world, &off, "NotRunning", "NotRunning").await?;
    world.annotate(&path(&web()), json!({"kubefed.io/orphan": null})).await?;
    world.client.delete(&path(&web())).await?;
    world.until_gone(&path(&web())).await?;
    world.until_gone(&path(&copy)).await?;
    for name in [A, B] {
        assert!(world.member(name).await?.has(&path(&copy)).await?, "{name}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_16_what_copies_own_stays_if_that_is_asked_for() -> Result<()> {
    let world = settled().await?;
    let copy = path(&plain(&web()));
    let a = world.member(A).await?;
    let sets = format!("/apis/apps/v1/namespaces/{NS}/replicasets");
    assert_eq!(items(&a.client, &sets).await?.len(), 1);

    world
        .annotate(&path(&web()), json!({"kubefed.io/deleteoption": r#"{"propagationPolicy": "Orphan"}"#}))
        .await?;
    world.client.delete(&path(&web())).await?;
    world.until_gone(&path(&web())).await?;

    assert!(!a.has(&copy).await?);
    let left = items(&a.client, &sets).await?;
    assert_eq!(left.len(), 1);
    assert!(left[0]["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty));
    Ok(())
}

/// Who mistypes what is to be kept is told so, and nothing is deleted that should stay.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_16_options_that_cannot_be_read_delete_nothing() -> Result<()> {
    let world = settled().await?;
    for option in [r#"{"propagationPolicy": "orphan"}"#, "Orphan", r#"{"preconditions": {"uid": "1"}}"#] {
        let annotations = json!({"metadata": {"annotations": {"kubefed.io/deleteoption": option}}});
        let refused = world.client.merge_patch(&path(&web()), &annotations).await?;
        assert_eq!(refused.code, 422, "{}", refused.text());
        assert!(refused.text().contains("kubefed.io/deleteoption"), "{}", refused.text());
    }
    let stored = world.get(&path(&web())).await?;
    assert!(stored["metadata"]["annotations"].get("kubefed.io/deleteoption").is_none());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_16_a_cluster_that_does_not_answer_is_cleaned_up_when_it_is_back() -> Result<()> {
    let world = settled().await?;
    let copy = path(&plain(&web()));
    let a = world.member(A).await?;
    world.cut(B)?;
    let ready = |it: &Value| api::cluster::condition(it, "Ready").is_some_and(|it| it["status"] == "True");
    world.until(&format!("{}/{B}", crate::world::CLUSTERS), "it is lost", |it| !ready(it)).await?;

    world.client.delete(&path(&web())).await?;
    a.until_gone(&copy).await?;
    let names_it = |list: &Value| {
        let items = list["items"].as_array().into_iter().flatten();
        items
            .filter(|it| it["reason"] == "WaitingForCluster")
            .any(|it| text(it, "/message").contains("left in b"))
    };
    world.until(&format!("/api/v1/namespaces/{NS}/events"), "an event names it", names_it).await?;
    world.until_gone(&path(&web())).await?;
    // Who was silent for so long is not listened to any more.
    let b = world.member(B).await?;
    assert!(b.has(&copy).await?);

    world.heal(B)?;
    b.until_gone(&copy).await
}

/// Nobody waits for it, and nothing else of the workspace is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_leaves_a_silent_cluster_when_it_is_back_though_it_is_not_federated_any_more()
-> Result<()> {
    let world = start(&[A, B]).await?;
    until_told(&world, &home(), &[(A, ""), (B, "")], "True").await?;
    let (a, b) = (world.member(A).await?, world.member(B).await?);
    assert!(b.has(HOME).await?);
    world.cut(B)?;
    let ready = |it: &Value| api::cluster::condition(it, "Ready").is_some_and(|it| it["status"] == "True");
    world.until(&format!("{CLUSTERS}/{B}"), "it is lost", |it| !ready(it)).await?;

    world.client.delete(&path(&home())).await?;
    a.until_gone(HOME).await?;
    world.until_gone(&path(&home())).await?;
    assert!(b.has(HOME).await?);

    world.heal(B)?;
    b.until_gone(HOME).await?;
    assert_eq!(world.get(HOME).await?["status"]["phase"], "Active");
    Ok(())
}

/// KubeFed looked for copies only where an object was to be by then, and leaked this one.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_was_to_leave_a_silent_cluster_goes_when_it_is_back_though_its_object_is_deleted()
-> Result<()> {
    let world = settled().await?;
    let copy = path(&plain(&web()));
    let (a, b) = (world.member(A).await?, world.member(B).await?);
    world.cut(B)?;
    let ready = |it: &Value| api::cluster::condition(it, "Ready").is_some_and(|it| it["status"] == "True");
    world.until(&format!("{}/{B}", crate::world::CLUSTERS), "it is lost", |it| !ready(it)).await?;
    let mut alone = web();
    alone["spec"]["placement"] = named(&[A]);
    world.apply(&alone).await?;
    world
        .until(&path(&web()), "it is observed", |it| {
            it["status"]["observedGeneration"] == it["metadata"]["generation"]
        })
        .await?;
    world.client.delete(&path(&web())).await?;
    a.until_gone(&copy).await?;
    world.until_gone(&path(&web())).await?;
    assert!(b.has(&copy).await?);

    world.heal(B)?;
    b.until_gone(&copy).await
}

/// As with federation v1, for objects that say by its annotations where they are, and for those that are divided as it did:
/// copies go if that is said, and stay if it is not, or if they are to.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_16_of_the_first_federation_copies_stay_unless_it_is_said_otherwise() -> Result<()> {
    let mut world = begin(&[A, B]).await?;
    world.namespace(NS).await?;
    let members = [world.member(A).await?, world.member(B).await?];
    let of = |name: &str, annotations: Value| {
        let mut config = crate::app::config_map(name, "value");
        config["metadata"]["annotations"] = annotations;
        config
    };
    let selected = || json!({"federation.alpha.kubernetes.io/cluster-selector": "[]"});
    let rows = [
        ("said", selected(), json!({"orphanDependents": false}), false),
        ("kept", selected(), json!({"orphanDependents": true}), true),
        ("unset", selected(), json!({}), true),
        ("as-kubectl-says", selected(), json!({"propagationPolicy": "Background"}), false),
        ("of-others", json!({"hanse.io/clusters": "a,b"}), json!({}), false),
        ("divided-said", json!({}), json!({"orphanDependents": false}), false),
        ("divided-kept", json!({}), json!({"orphanDependents": true}), true),
        ("divided-unset", json!({}), json!({}), true),
        ("divided-as-kubectl-says", json!({}), json!({"propagationPolicy": "Background"}), false),
    ];
    for (name, annotations, ..) in &rows {
        let object = of(name, annotations.clone());
        world.apply(&object).await?;
        for member in &members {
            member.until_there(&path(&object)).await?;
        }
    }
    restart(&mut world, &[A, B]).await?;
    for (name, _, options, _) in &rows {
        let place = path(&of(name, json!({})));
        delete(&world, &place, options).await?;
        world.until_gone(&place).await?;
        world.until_gone(&crate::world::assignment_path(&of(name, json!({})))).await?;
    }
    for (name, _, _, stays) in &rows {
        for member in &members {
            let left = member.get(&path(&of(name, json!({})))).await?;
            assert_eq!(left["data"]["key"] == "value", *stays, "{name}: {left}");
            assert!(left["metadata"]["labels"].get("hanse.io/workspace").is_none(), "{name} is nobody's");
        }
    }
    Ok(())
}

/// What is divided there has its share still, and runs on.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_16_of_the_first_federation_shares_run_on() -> Result<()> {
    let world = begin(&[A, B]).await?;
    world.namespace(NS).await?;
    let members = [world.member(A).await?, world.member(B).await?];
    for (name, options, stays) in
        [("unset", json!({}), true), ("said", json!({"orphanDependents": false}), false)]
    {
        let object = crate::app::deployment(name, 4);
        world.apply(&object).await?;
        world.until_rolled_out(name, 4).await?;
        delete(&world, &path(&object), &options).await?;
        world.until_gone(&path(&object)).await?;
        world.until_gone(&crate::world::assignment_path(&object)).await?;
        for member in &members {
            let left = member.get(&path(&object)).await?;
            assert_eq!(left["spec"]["replicas"] == 2, stays, "{name}: {left}");
            assert_eq!(left["status"]["readyReplicas"] == 2, stays, "{name}: {left}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_hub_in_between_changes_nothing() -> Result<()> {
    let mut world = settled().await?;
    let copy = plain(&web());
    let uid = world.member(A).await?.get(&path(&copy)).await?["metadata"]["uid"].clone();
    restart(&mut world, &[A, B]).await?;
    let mut more = web();
    more["spec"]["template"]["spec"]["replicas"] = json!(3);
    world.apply(&more).await?;
    let a = world.member(A).await?;
    let kept = until_replicas(&a, &copy, 3).await?;
    assert_eq!(kept["metadata"]["uid"], uid);
    world.client.delete(&path(&web())).await?;
    world.until_gone(&path(&web())).await?;
    assert!(!a.has(&path(&copy)).await?);
    Ok(())
}
