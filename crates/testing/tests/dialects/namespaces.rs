//! Namespaces that nobody federates. Federation v1 had each of them in every cluster, or in those that an annotation on it
//! selected.

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    app::{self, NS},
    scheduling::until_divided,
    words::{A, B, begin, label_cluster, restart},
    world::path,
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
