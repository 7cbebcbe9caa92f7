//! Namespaces that nobody federates, and what pods may do in those that are. Federation v1 had each of them in every cluster,
//! or in those that an annotation on it selected.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::{
    app::{self, NS},
    scheduling::until_divided,
    words::{A, B, begin, federated, label_cluster, restart, until_told},
    world::{path, text},
};

/// As it was written for federation v1: the namespace is in Europe alone.
fn in_europe() -> Value {
    let selector = r#"[{"key": "location", "operator": "in", "values": ["europe"]}]"#;
    let mut namespace = app::namespace(NS);
    namespace["metadata"]["annotations"] =
        json!({"federation.alpha.kubernetes.io/cluster-selector": selector});
    namespace
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_is_where_something_of_it_is_and_a_selector_on_it_says_nothing() -> Result<()> {
    let mut world = begin(&[A, B]).await?;
    label_cluster(&world, A, json!({"location": "europe"})).await?;
    label_cluster(&world, B, json!({"location": "usa"})).await?;
    let (empty, selected) = (app::namespace("empty"), in_europe());
    for namespace in [&empty, &selected, &app::namespace("other")] {
        world.apply(namespace).await?;
    }
    let (a, b) = (world.member(A).await?, world.member(B).await?);

    // Nothing is in these two, whatever one of them selects.
    world.barrier("other", 0, &[A, B]).await?;
    for member in [&a, &b] {
        assert!(!member.has(&path(&empty)).await?);
        assert!(!member.has(&path(&selected)).await?);
    }

    // Where it goes is said of what is in it.
    let web = app::deployment("web", 4);
    world.apply(&web).await?;
    until_divided(&world, &web, &[(A, 2), (B, 2)]).await?;
    world.until_rolled_out("web", 4).await?;
    restart(&mut world, &[A, B]).await?;
    world.barrier("other", 1, &[A, B]).await?;
    until_divided(&world, &web, &[(A, 2), (B, 2)]).await?;
    for member in [&a, &b] {
        assert!(member.has(&path(&selected)).await?);
        assert!(!member.has(&path(&empty)).await?);
    }

    // Or of all that runs in it, in Hanse's own words. The namespace stays where it was.
    world.annotate(&path(&selected), json!({"hanse.io/clusters": A})).await?;
    until_divided(&world, &web, &[(A, 4)]).await?;
    b.until_gone(&path(&web)).await?;
    assert!(b.has(&path(&selected)).await?);
    Ok(())
}

const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
const AUDIT: &str = "pod-security.kubernetes.io/audit";

fn home(labels: Value) -> Value {
    let template = json!({"metadata": {"labels": labels}});
    federated("Namespace", NS, json!({"placement": {"clusterSelector": {}}, "template": template}))
}

/// In earlier versions a template set it. It is not lifted by an upgrade, nor by those who are bound by it.
#[tokio::test(flavor = "multi_thread")]
async fn pod_security_that_came_of_a_template_stays_and_no_more_comes_of_it() -> Result<()> {
    let world = begin(&[A, B]).await?;
    let mut namespace = app::namespace(NS);
    namespace["metadata"]["labels"] = json!({ENFORCE: "restricted"});
    let before = format!("{}?fieldManager=federation&force=true", path(&namespace));
    let apply = [("content-type", "application/apply-patch+yaml")];
    let made = world.client.call(http::Method::PATCH, &before, &apply, namespace.to_string()).await?;
    ensure!(made.code.is_success(), "{}", made.text());

    let enforced = |it: &Value| it["metadata"]["labels"][ENFORCE] == "restricted";
    let rows = [
        ("a", json!({"team": "a", ENFORCE: "restricted", AUDIT: "baseline"}), AUDIT),
        ("b", json!({"team": "b", ENFORCE: "privileged"}), ENFORCE),
        ("c", json!({"team": "c"}), ""),
    ];
    for (team, labels, left_out) in rows {
        world.apply(&home(labels)).await?;
        let is_applied = |it: &Value| it["metadata"]["labels"]["team"] == team;
        let now = world.until(&path(&namespace), "it has its label", is_applied).await?;
        assert!(enforced(&now) && now["metadata"]["labels"].get(AUDIT).is_none(), "{now}");
        let told = until_told(&world, &home(json!({})), &[(A, ""), (B, "")], "True").await?;
        let message = text(&told, "/status/conditions/0/message");
        assert_eq!(message.is_empty(), left_out.is_empty(), "{told}");
        assert!(message.contains(left_out), "{told}");
    }

    // Whoever may say so lifts it, and that is not undone.
    let free = world.patch(&path(&namespace), json!({"metadata": {"labels": {ENFORCE: "baseline"}}})).await?;
    assert_eq!(free["metadata"]["labels"][ENFORCE], "baseline");
    world.client.delete(&path(&home(json!({})))).await?;
    world.until_gone(&path(&home(json!({})))).await?;
    let left = world.get(&path(&namespace)).await?;
    assert_eq!(left["metadata"]["labels"][ENFORCE], "baseline", "{left}");
    Ok(())
}
