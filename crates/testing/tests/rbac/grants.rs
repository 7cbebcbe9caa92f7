//! Nobody gives away what they do not have.

use anyhow::Result;
use serde_json::{Value, json};
use testing::{client::Client, hub::TestHub};

use crate::{
    GROUP, RBAC, bind, bind_everywhere, create, hub_with_jane, mk_binding, mk_cluster_role, mk_role, named,
    rule, user,
};

const WRITE: [&str; 5] = ["get", "create", "update", "patch", "delete"];

/// Jane may write every kind of RBAC object everywhere, and list config maps; nothing else.
async fn hub_with_a_clerk() -> Result<(TestHub, Client, Client)> {
    let (hub, admin, jane) = hub_with_jane().await?;
    let kinds = ["roles", "rolebindings", "clusterroles", "clusterrolebindings"];
    let rules = [rule(GROUP, &kinds, &WRITE), rule("", &["configmaps"], &["list", "get"])];
    mk_cluster_role(&admin, "clerk", &rules).await?;
    bind_everywhere(&admin, "clerk", &user("jane")).await?;
    Ok((hub, admin, jane))
}

fn role(name: &str, rules: &[Value]) -> Value {
    json!({"metadata": {"name": name}, "rules": rules})
}

async fn is_refused(client: &Client, path: &str, object: &Value) -> Result<()> {
    let refused = client.post(path, object).await?;
    assert_eq!(refused.code, 403, "{object}: {}", refused.text());
    assert_eq!(refused.json()["reason"], "Forbidden");
    Ok(())
}

#[tokio::test]
async fn a_role_may_hold_what_its_writer_holds() -> Result<()> {
    let (_hub, admin, jane) = hub_with_a_clerk().await?;
    let mine = rule("", &["configmaps"], &["list"]);
    let more = [
        rule("", &["configmaps"], &["delete"]),
        rule("", &["secrets"], &["list"]),
        rule("*", &["configmaps"], &["list"]),
        rule("", &["*"], &["list"]),
        rule("", &["configmaps"], &["*"]),
        rule("", &["configmaps", "secrets"], &["list"]),
        rule("", &["configmaps/status"], &["list"]),
    ];
    for collection in [format!("{RBAC}/clusterroles"), format!("{RBAC}/namespaces/default/roles")] {
        create(&jane, &collection, role("mine", std::slice::from_ref(&mine))).await?;
        create(&jane, &collection, role("narrower", &[named(mine.clone(), &["a"])])).await?;
        for rule in &more {
            is_refused(&jane, &collection, &role("more", &[mine.clone(), rule.clone()])).await?;
            let patch = json!({"rules": [rule]});
            assert_eq!(jane.merge_patch(&format!("{collection}/mine"), &patch).await?.code, 403, "{rule}");
            // Writing whole objects, also one that is not there yet, is no way around it.
            for name in ["mine", "made-by-put"] {
                let object = role(name, std::slice::from_ref(rule));
                assert_eq!(jane.put(&format!("{collection}/{name}"), &object).await?.code, 403, "{rule}");
            }
        }
        assert_eq!(admin.get(&format!("{collection}/mine")).await?.json()["rules"], json!([mine]));
    }
    let urls = json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]});
    is_refused(&jane, &format!("{RBAC}/clusterroles"), &role("urls", &[urls])).await?;
    Ok(())
}

#[tokio::test]
async fn what_is_held_in_one_namespace_is_not_held_in_another() -> Result<()> {
    let (_hub, admin, jane) = hub_with_a_clerk().await?;
    let secrets = [rule("", &["secrets"], &["list"])];
    mk_role(&admin, "secrets", &secrets).await?;
    bind(&admin, "Role", "secrets", &user("jane")).await?;
    create(&jane, &format!("{RBAC}/namespaces/default/roles"), role("mine", &secrets)).await?;
    is_refused(&jane, &format!("{RBAC}/namespaces/kube-system/roles"), &role("mine", &secrets)).await?;
    is_refused(&jane, &format!("{RBAC}/clusterroles"), &role("mine", &secrets)).await?;
    Ok(())
}

#[tokio::test]
async fn a_role_may_be_bound_by_who_holds_it() -> Result<()> {
    let (_hub, admin, jane) = hub_with_a_clerk().await?;
    mk_cluster_role(&admin, "mine", &[rule("", &["configmaps"], &["list"])]).await?;
    mk_cluster_role(&admin, "secrets", &[rule("", &["secrets"], &["list"])]).await?;
    let (everywhere, here) =
        (format!("{RBAC}/clusterrolebindings"), format!("{RBAC}/namespaces/default/rolebindings"));
    for collection in [&everywhere, &here] {
        create(&jane, collection, mk_binding("b", "ClusterRole", "mine", &user("june"))).await?;
        for stronger in ["secrets", "cluster-admin", "view"] {
            is_refused(&jane, collection, &mk_binding("c", "ClusterRole", stronger, &user("jane"))).await?;
        }
    }
    // Whoever may `bind` a role by name may bind that one, and whoever may `escalate` may write what they like.
    let bind_secrets = named(rule(GROUP, &["clusterroles"], &["bind"]), &["secrets"]);
    mk_cluster_role(&admin, "binder", &[bind_secrets]).await?;
    bind_everywhere(&admin, "binder", &user("jane")).await?;
    create(&jane, &here, mk_binding("c", "ClusterRole", "secrets", &user("jane"))).await?;
    is_refused(&jane, &here, &mk_binding("d", "ClusterRole", "cluster-admin", &user("jane"))).await?;
    let all = role("all", &[rule("*", &["*"], &["*"])]);
    is_refused(&jane, &format!("{RBAC}/clusterroles"), &all).await?;
    mk_cluster_role(&admin, "escalator", &[rule(GROUP, &["clusterroles"], &["escalate"])]).await?;
    bind_everywhere(&admin, "escalator", &user("jane")).await?;
    create(&jane, &format!("{RBAC}/clusterroles"), all).await?;
    Ok(())
}

#[tokio::test]
async fn a_label_that_aggregates_is_a_grant_too() -> Result<()> {
    let (_hub, admin, jane) = hub_with_a_clerk().await?;
    bind_everywhere(&admin, "view", &user("jane")).await?;
    mk_cluster_role(&admin, "secrets", &[rule("", &["secrets"], &["list"])]).await?;
    let label = json!({"metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}});

    let labelled = jane.merge_patch(&format!("{RBAC}/clusterroles/secrets"), &label).await?;

    assert_eq!(labelled.code, 403, "{}", labelled.text());
    assert_eq!(jane.get("/api/v1/secrets").await?.code, 403);
    // An aggregation collects what nobody knows yet, so only who has everything may write or change one.
    let selector = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
    let sum = json!({"metadata": {"name": "sum"}, "aggregationRule": selector});
    is_refused(&jane, &format!("{RBAC}/clusterroles"), &sum).await?;
    create(&admin, &format!("{RBAC}/clusterroles"), sum).await?;
    let without = json!({"aggregationRule": null});
    assert_eq!(jane.merge_patch(&format!("{RBAC}/clusterroles/sum"), &without).await?.code, 403);
    // What only helps the collector is nobody's gain.
    let finalizer = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    assert_eq!(jane.merge_patch(&format!("{RBAC}/clusterroles/secrets"), &finalizer).await?.code, 200);
    Ok(())
}
