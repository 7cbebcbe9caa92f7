//! Which kinds are federated, as `FederatedTypeConfig`s have it, and what they say of themselves.

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    app::NS,
    federated::web,
    words::{A, B, SYSTEM, federated, named, plain, restart, start, until_replicas, until_told},
    world::{Member, World, apply, path, text},
};

const FINALIZER: &str = "core.kubefed.io/federated-type-config";

/// As `kubefedctl enable -o yaml` writes it.
pub fn config(name: &str, kind: &str, propagation: &str, collects: bool) -> Value {
    let (plural, group) = name.split_once('.').unwrap_or((name, ""));
    json!({
        "apiVersion": "core.kubefed.io/v1beta1", "kind": "FederatedTypeConfig",
        "metadata": {"name": name, "namespace": SYSTEM},
        "spec": {
            "targetType": {"group": group, "version": "v1", "kind": kind, "pluralName": plural, "scope": "Namespaced"},
            "federatedType": {
                "group": "types.kubefed.io", "version": "v1beta1", "kind": format!("Federated{kind}"),
                "pluralName": format!("federated{plural}"), "scope": "Namespaced",
            },
            "propagation": propagation, "statusCollection": if collects { "Enabled" } else { "Disabled" },
        },
    })
}

/// Waits until it says so of what it says now.
pub async fn until_runs(world: &World, config: &Value, propagation: &str, collection: &str) -> Result<Value> {
    let holds = |it: &Value| {
        let status = &it["status"];
        (text(status, "/propagationController"), text(status, "/statusController"))
            == (propagation, collection)
            && status["observedGeneration"] == it["metadata"]["generation"]
    };
    world.until(&path(config), &format!("it says {propagation} {collection}"), holds).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_is_switched_off_stays_as_it_is_until_it_is_switched_on() -> Result<()> {
    let mut world = start(&[A, B]).await?;
    world.namespace(SYSTEM).await?;
    let deployments = |propagation: &str| config("deployments.apps", "Deployment", propagation, false);
    world.apply(&deployments("Enabled")).await?;
    let told = until_runs(&world, &deployments(""), "Running", "NotRunning").await?;
    assert_eq!(told["metadata"]["finalizers"], json!([FINALIZER]));
    world.apply(&web(json!([]))).await?;
    until_told(&world, &web(json!([])), &[(A, ""), (B, "")], "True").await?;
    let copy = plain(&web(json!([])));
    let a = world.member(A).await?;
    until_replicas(&a, &copy, 5).await?;

    world.apply(&deployments("Disabled")).await?;
    until_runs(&world, &deployments(""), "NotRunning", "NotRunning").await?;
    restart(&mut world, &[A, B]).await?;
    until_runs(&world, &deployments(""), "NotRunning", "NotRunning").await?;
    let mut more = web(json!([]));
    more["spec"]["template"]["spec"]["replicas"] = json!(8);
    world.apply(&more).await?;
    // Others go on.
    let settings =
        federated("ConfigMap", "settings", json!({"template": {"data": {}}, "placement": named(&[A, B])}));
    world.apply(&settings).await?;
    until_told(&world, &settings, &[(A, ""), (B, "")], "True").await?;
    assert_eq!(a.get(&path(&copy)).await?["spec"]["replicas"], 5);

    world.apply(&deployments("Enabled")).await?;
    until_runs(&world, &deployments(""), "Running", "NotRunning").await?;
    until_replicas(&a, &copy, 8).await?;

    // What `kubefedctl disable` does: it waits, and then the configuration goes. Copies stay.
    world.patch(&path(&deployments("")), json!({"spec": {"propagation": "Disabled"}})).await?;
    until_runs(&world, &deployments(""), "NotRunning", "NotRunning").await?;
    world.client.delete(&path(&deployments(""))).await?;
    world.until_gone(&path(&deployments(""))).await?;
    assert_eq!(a.get(&path(&copy)).await?["spec"]["replicas"], 8);
    Ok(())
}

/// What is federated is so in all namespaces: nobody who has but one of them decides about that.
#[tokio::test(flavor = "multi_thread")]
async fn a_kind_is_switched_off_in_the_namespace_of_kubefed_alone() -> Result<()> {
    let world = start(&[A, B]).await?;
    let mut off = config("deployments.apps", "Deployment", "Disabled", false);
    off["metadata"]["namespace"] = json!(NS);
    world.apply(&off).await?;
    let told = until_runs(&world, &off, "NotRunning", "NotRunning").await?;
    assert!(text(&told, "/status/message").contains(SYSTEM), "{told}");

    world.apply(&web(json!([]))).await?;
    until_told(&world, &web(json!([])), &[(A, ""), (B, "")], "True").await?;
    world.client.delete(&path(&off)).await?;
    world.until_gone(&path(&off)).await
}

/// Else every object of a kind would be read as a federated one, and held by a finalizer.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_has_another_meaning_is_made_a_federated_kind() -> Result<()> {
    let world = start(&[A]).await?;
    world.namespace(SYSTEM).await?;
    let made_of = |group: &str, plural: &str| {
        let mut widgets = config("widgets.example.com", "Widget", "Enabled", false);
        widgets["spec"]["federatedType"] = json!({"group": group, "pluralName": plural});
        widgets
    };
    for (group, plural) in [
        ("apps", "deployments"),
        ("networking.k8s.io", "ingresses"),
        ("hanse.io", "assignments"),
        ("core.kubefed.io", "kubefedclusters"),
    ] {
        let refused = apply(&world.client, "", &made_of(group, plural)).await?;
        assert_eq!(refused.code, 422, "{}", refused.text());
        assert!(refused.text().contains("spec.federatedType.group"), "{}", refused.text());
    }
    let itself = made_of("example.com", "widgets");
    world.apply(&itself).await?;
    let told = until_runs(&world, &itself, "NotRunning", "NotRunning").await?;
    assert!(text(&told, "/status/message").contains("itself"), "{told}");
    let good = made_of("types.kubefed.io", "federatedwidgets");
    world.apply(&good).await?;
    until_runs(&world, &good, "Running", "NotRunning").await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_of_the_first_forms_is_switched_off() -> Result<()> {
    let world = start(&[]).await?;
    world.namespace(SYSTEM).await?;
    for group in ["core.federation.k8s.io", "primitives.federation.k8s.io"] {
        let mut off = config("configmaps", "ConfigMap", "Disabled", false);
        off["spec"]["federatedType"]["group"] = json!(group);
        off["spec"]["federatedType"]["version"] = json!("v1alpha1");
        world.apply(&off).await?;
        let told = until_runs(&world, &off, "NotRunning", "NotRunning").await?;
        assert_eq!(told["status"].get("message"), None, "{told}");
    }
    Ok(())
}

/// Where an earlier version followed a config that does not count any more, it left a finalizer on objects.
#[tokio::test(flavor = "multi_thread")]
async fn objects_of_a_kind_whose_config_does_not_count_any_more_can_be_deleted() -> Result<()> {
    let world = start(&[]).await?;
    for (group, kind) in [("example.com", "Widget"), ("types.kubefed.io", "FederatedWidget")] {
        world.apply(&definition(group, kind)).await?;
    }
    until_served(&world.client, WIDGETS).await?;
    until_served(&world.client, "/apis/types.kubefed.io/v1beta1/namespaces/default/federatedwidgets").await?;
    let spec = || json!({"template": {"spec": {}}, "placement": named(&[])});
    let mut held = federated("Widget", "held", spec());
    held["metadata"]["finalizers"] = json!(["kubefed.io/sync-controller"]);
    let uid = world.apply(&held).await?["metadata"]["uid"].clone();
    let plain = json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {
            "name": "held", "namespace": NS,
            "ownerReferences": [{
                "apiVersion": "types.kubefed.io/v1beta1", "kind": "FederatedWidget", "name": "held", "uid": uid,
            }],
        },
    });
    world.apply(&plain).await?;
    let untouched = federated("Widget", "untouched", spec());
    world.apply(&untouched).await?;
    let mut widgets = config("widgets.example.com", "Widget", "Enabled", false);
    widgets["metadata"]["namespace"] = json!(NS);
    world.apply(&widgets).await?;
    until_runs(&world, &widgets, "NotRunning", "NotRunning").await?;

    world.client.delete(&path(&held)).await?;
    world.until_gone(&path(&held)).await?;
    world.until_gone(&path(&plain)).await?;
    let left = world.get(&path(&untouched)).await?;
    assert!(left["metadata"].get("finalizers").is_none() && left.get("status").is_none(), "{left}");
    let none = format!("/apis/example.com/v1/namespaces/{NS}/widgets/untouched");
    assert_eq!(world.get(&none).await?["code"], 404, "nothing is made of it");
    Ok(())
}

/// Nobody knows any more how their copies are to be deleted: those stay, and nothing waits for them.
#[tokio::test(flavor = "multi_thread")]
async fn objects_of_a_kind_whose_config_is_gone_can_be_deleted_and_leave_their_copies() -> Result<()> {
    let mut world = start(&[]).await?;
    let a = with_widgets(&world, A).await?;
    world.namespace(SYSTEM).await?;
    for (group, kind) in [("example.com", "Widget"), ("types.kubefed.io", "FederatedWidget")] {
        world.apply(&definition(group, kind)).await?;
    }
    until_served(&world.client, WIDGETS).await?;
    until_served(&world.client, "/apis/types.kubefed.io/v1beta1/namespaces/default/federatedwidgets").await?;
    let widgets = config("widgets.example.com", "Widget", "Enabled", false);
    world.apply(&widgets).await?;
    until_runs(&world, &widgets, "Running", "NotRunning").await?;
    let spec = || json!({"template": {"spec": {"size": 3}}, "placement": named(&[A])});
    let [waiting, left, late] = ["waiting", "left", "late"].map(|name| federated("Widget", name, spec()));
    for object in [&waiting, &left, &late] {
        world.apply(object).await?;
        until_told(&world, object, &[(A, "")], "True").await?;
    }
    // It is not understood how this one is to go, so that it is there still.
    world.annotate(&path(&waiting), json!({"kubefed.io/deleteoption": "unknown"})).await?;
    world.client.delete(&path(&waiting)).await?;
    until_told(&world, &waiting, &[(A, "DeletionFailed")], "FalseCheckClusters").await?;

    world.client.delete(&path(&widgets)).await?;
    world.until_gone(&path(&widgets)).await?;
    world.until_gone(&path(&waiting)).await?;
    world.client.delete(&path(&left)).await?;
    world.until_gone(&path(&left)).await?;
    restart(&mut world, &[A]).await?;
    world.client.delete(&path(&late)).await?;
    world.until_gone(&path(&late)).await?;
    world.barrier(NS, 0, &[A]).await?;
    for name in ["waiting", "left", "late"] {
        let copy = format!("/apis/example.com/v1/namespaces/{NS}/widgets/{name}");
        let plain = world.get(&copy).await?;
        assert_eq!(plain["spec"]["size"], 3, "{plain}");
        assert!(plain["metadata"].get("ownerReferences").is_none(), "it is nobody's: {plain}");
        assert!(a.has(&copy).await?, "{name}");
    }
    // Nothing holds the namespace.
    let place = format!("/api/v1/namespaces/{NS}");
    world.client.delete(&place).await?;
    world.until_gone(&place).await
}

/// A definition of a kind with a status.
pub fn definition(group: &str, kind: &str) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    let version = if group == "example.com" { "v1" } else { "v1beta1" };
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
            "versions": [{
                "name": version, "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}},
            }],
        },
    })
}

pub async fn until_served(client: &testing::client::Client, collection: &str) -> Result<()> {
    crate::world::until(client, collection, "it is served", |it| it["items"].is_array()).await.map(drop)
}

const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// A member that serves widgets, and whose admin lets sessions have them.
pub async fn with_widgets(world: &World, name: &str) -> Result<Member> {
    world.clusters.simulation.add(name, sim::ClusterOptions::default()).await?;
    let member = world.member(name).await?;
    member.create(&definition("example.com", "Widget")).await?;
    until_served(&member.client, WIDGETS).await?;
    let rule = json!({"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["*"]});
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "widgets"},
        "rules": [rule],
    });
    member.create(&role).await?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "widgets"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "widgets"},
        "subjects": [{"kind": "ServiceAccount", "name": "hanse-session", "namespace": "hanse-system"}],
    });
    member.create(&binding).await?;
    world.join(name).await?;
    Ok(member)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_of_ones_own_is_federated_and_its_status_collected() -> Result<()> {
    let mut world = start(&[]).await?;
    let (a, b) = (with_widgets(&world, A).await?, with_widgets(&world, B).await?);
    world.namespace(SYSTEM).await?;
    for (group, kind) in [("example.com", "Widget"), ("types.kubefed.io", "FederatedWidget")] {
        world.apply(&definition(group, kind)).await?;
    }
    until_served(&world.client, WIDGETS).await?;
    until_served(&world.client, "/apis/types.kubefed.io/v1beta1/namespaces/default/federatedwidgets").await?;
    let widgets = config("widgets.example.com", "Widget", "Enabled", true);
    let overrides = json!([{"clusterName": B, "clusterOverrides": [{"path": "/spec/size", "value": 4}]}]);
    let spec =
        json!({"template": {"spec": {"size": 3}}, "placement": named(&[A, B]), "overrides": overrides});
    let one = federated("Widget", "one", spec);
    // Nothing is made of it until it is said what.
    world.apply(&one).await?;
    world.apply(&widgets).await?;
    until_runs(&world, &widgets, "Running", "Running").await?;

    // What is collected and is not there yet is waited for.
    until_told(&world, &one, &[(A, ""), (B, "")], "FalseCheckClusters").await?;
    let copy = format!("/apis/example.com/v1/namespaces/{NS}/widgets/one");
    for (member, size) in [(&a, 3), (&b, 4)] {
        member.until(&copy, "it has its size", |it| it["spec"]["size"] == size).await?;
    }
    restart(&mut world, &[A, B]).await?;
    for (member, phase) in [(&a, "Up"), (&b, "Down")] {
        let status = json!({"status": {"phase": phase}});
        let written = member.client.merge_patch(&format!("{copy}/status"), &status).await?;
        assert_eq!(written.code, 200, "{}", written.text());
    }
    let told = until_told(&world, &one, &[(A, ""), (B, "")], "True").await?;
    let remote: Vec<&str> = told["status"]["clusters"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|it| text(it, "/remoteStatus/phase"))
        .collect();
    assert_eq!(remote, ["Up", "Down"]);

    // Its definition knows nothing of selectors, so that one which cannot be read is there and told.
    let selector = json!({"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["3"]}]});
    let two = federated("Widget", "two", json!({"template": {}, "placement": {"clusterSelector": selector}}));
    world.apply(&two).await?;
    until_told(&world, &two, &[], "FalseComputePlacementFailed").await?;

    world.apply(&config("widgets.example.com", "Widget", "Enabled", false)).await?;
    until_runs(&world, &widgets, "Running", "NotRunning").await?;
    let shows_none = |it: &Value| !it["status"].to_string().contains("remoteStatus");
    world.until(&path(&one), "no status is shown", shows_none).await?;

    // Nor does it know how deletions are asked for: what cannot be read deletes nothing, and says so.
    let three = federated("Widget", "three", json!({"template": {"spec": {}}, "placement": named(&[A])}));
    world.apply(&three).await?;
    until_told(&world, &three, &[(A, "")], "True").await?;
    world.annotate(&path(&three), json!({"kubefed.io/deleteoption": "Orphan"})).await?;
    world.client.delete(&path(&three)).await?;
    let says_why = |it: &Value| {
        text(it, "/status/conditions/0/message").contains("kubefed.io/deleteoption")
            && it["status"]["clusters"] == json!([{"name": A, "status": "DeletionFailed"}])
    };
    world.until(&path(&three), "it says why it stays", says_why).await?;
    let third = format!("/apis/example.com/v1/namespaces/{NS}/widgets/three");
    assert!(a.has(&third).await?);
    let orphan = json!({"kubefed.io/deleteoption": r#"{"propagationPolicy": "Orphan"}"#});
    world.annotate(&path(&three), orphan).await?;
    world.until_gone(&path(&three)).await?;
    assert!(!a.has(&third).await?);

    // Without its configuration it is nobody's, and copies stay.
    world.client.delete(&path(&widgets)).await?;
    world.until_gone(&path(&widgets)).await?;
    assert!(a.has(&copy).await? && b.has(&copy).await?);
    Ok(())
}

/// Upstream they never reach what is well, and what stays in the hub could be made by who may not write it.
#[tokio::test(flavor = "multi_thread")]
async fn kinds_without_a_status_are_not_waited_for_and_roles_cannot_be_federated() -> Result<()> {
    let world = start(&[A, B]).await?;
    world.namespace(SYSTEM).await?;
    let maps = config("configmaps", "ConfigMap", "Enabled", true);
    let mut namespaces = config("namespaces", "Namespace", "Enabled", true);
    namespaces["spec"]["targetType"]["scope"] = json!("Cluster");
    for config in [&maps, &namespaces] {
        world.apply(config).await?;
        until_runs(&world, config, "Running", "Running").await?;
    }
    let settings =
        federated("ConfigMap", "settings", json!({"template": {"data": {}}, "placement": named(&[A, B])}));
    world.apply(&settings).await?;
    until_told(&world, &settings, &[(A, ""), (B, "")], "True").await?;
    let namespace = federated("Namespace", NS, json!({}));
    until_told(&world, &namespace, &[(A, ""), (B, "")], "True").await?;

    let roles = config("rolebindings.rbac.authorization.k8s.io", "RoleBinding", "Enabled", false);
    world.apply(&roles).await?;
    let told = until_runs(&world, &roles, "NotRunning", "NotRunning").await?;
    assert!(!text(&told, "/status/message").is_empty(), "{told}");
    Ok(())
}
