//! Cluster roles that collect others.

use anyhow::Result;
use serde_json::{Value, json};
use store::Collection;
use testing::{
    client::Client,
    hub::{TestHub, eventually},
};

use crate::{RBAC, create, rule};

async fn rules_of(client: &Client, name: &str) -> Result<Value> {
    Ok(client.get(&format!("{RBAC}/clusterroles/{name}")).await?.json()["rules"].clone())
}

async fn until_rules(client: &Client, name: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    eventually("the rules that are selected", || async {
        let rules = rules_of(client, name).await?;
        Ok(wanted(&rules).then_some(rules))
    })
    .await
}

fn holds(rules: &Value, rule: &Value) -> bool {
    rules.as_array().is_some_and(|rules| rules.contains(rule))
}

#[tokio::test]
async fn a_labelled_role_joins_view_edit_and_admin_and_leaves_them() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    let before = rules_of(&admin, "admin").await?;
    let widgets = rule("example.com", &["widgets"], &["get"]);
    let role = json!({
        "metadata": {"name": "widgets", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [widgets],
    });
    create(&admin, &format!("{RBAC}/clusterroles"), role).await?;
    for name in ["view", "edit", "admin"] {
        until_rules(&admin, name, |rules| holds(rules, &widgets)).await?;
    }
    let view = admin.get(&format!("{RBAC}/clusterroles/view")).await?.json();
    let manager = &view["metadata"]["managedFields"][0];
    assert_eq!(manager["manager"], "clusterrole-aggregation-controller", "{view}");
    assert_eq!((&manager["operation"], &manager["fieldsV1"]), (&json!("Apply"), &json!({"f:rules": {}})));

    admin.delete(&format!("{RBAC}/clusterroles/widgets")).await?;
    let after = until_rules(&admin, "admin", |rules| !holds(rules, &widgets)).await?;
    assert_eq!(after, before);
    Ok(())
}

#[tokio::test]
async fn rules_stand_once_in_the_order_of_names_and_never_ones_own() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    let (a, b, c) = (rule("", &["a"], &["get"]), rule("", &["b"], &["get"]), rule("", &["c"], &["get"]));
    for (name, rules) in [("z", vec![&a, &b]), ("y", vec![&b, &c])] {
        let role = json!({"metadata": {"name": name, "labels": {"part": "all"}}, "rules": rules});
        create(&admin, &format!("{RBAC}/clusterroles"), role).await?;
    }
    let all = json!({
        "metadata": {"name": "all", "labels": {"part": "all"}},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"part": "all"}}]},
        "rules": [rule("", &["mine"], &["get"])],
    });
    create(&admin, &format!("{RBAC}/clusterroles"), all).await?;
    until_rules(&admin, "all", |rules| *rules == json!([b, c, a])).await?;

    // What somebody writes by hand is set back.
    admin.merge_patch(&format!("{RBAC}/clusterroles/all"), &json!({"rules": []})).await?;
    until_rules(&admin, "all", |rules| *rules == json!([b, c, a])).await?;
    Ok(())
}

#[tokio::test]
async fn a_workspace_stores_no_role_that_is_as_in_the_base() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    let role = json!({"metadata": {"name": "plain"}, "rules": [rule("", &["pods"], &["get"])]});
    create(&admin, &format!("{RBAC}/clusterroles"), role).await?;
    let all = json!({
        "metadata": {"name": "collects"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]},
    });
    create(&admin, &format!("{RBAC}/clusterroles"), all).await?;
    let late = json!({"metadata": {"name": "late", "labels": {"a": "b"}}, "rules": [rule("", &["pods"], &["list"])]});
    create(&admin, &format!("{RBAC}/clusterroles"), late).await?;
    until_rules(&admin, "collects", |rules| holds(rules, &rule("", &["pods"], &["list"]))).await?;
    let collection = Collection::new("rbac.authorization.k8s.io", "clusterroles");
    let stored = hub.peer.hub.store.list(&server::hub::default_id(), &collection, None)?;
    let names: Vec<String> = stored.iter(None, None).map(|(item, _)| item.name().to_owned()).collect();
    assert_eq!(names, ["collects", "late", "plain"]);
    Ok(())
}

#[tokio::test]
async fn roles_that_collect_each_other_come_to_rest() -> Result<()> {
    let hub = TestHub::start().await?;
    let admin = hub.admin().await?;
    // Given circles of two and of three, each with rules of its own that the others would take over
    for circle in [&["a", "b"][..], &["x", "y", "z"]] {
        for (at, name) in circle.iter().enumerate() {
            let next = circle[(at + 1) % circle.len()];
            let role = json!({
                "metadata": {"name": name, "labels": {"circle": name}},
                "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"circle": next}}]},
                "rules": [rule("", &[name], &["get"])],
            });
            create(&admin, &format!("{RBAC}/clusterroles"), role).await?;
        }
        // Then they have nothing, because nobody gives them anything
        for name in circle {
            until_rules(&admin, name, |rules| rules.as_array().is_none_or(Vec::is_empty)).await?;
        }
    }
    // And when somebody does, all of a circle have it, and nobody else
    let widgets = rule("example.com", &["widgets"], &["get"]);
    let leaf = json!({"metadata": {"name": "leaf", "labels": {"circle": "y"}}, "rules": [widgets]});
    create(&admin, &format!("{RBAC}/clusterroles"), leaf).await?;
    for name in ["x", "y", "z"] {
        until_rules(&admin, name, |rules| *rules == json!([widgets])).await?;
    }
    assert!(rules_of(&admin, "a").await?.as_array().is_none_or(Vec::is_empty));
    Ok(())
}

#[tokio::test]
async fn a_role_that_selects_more_than_fits_keeps_what_it_shows_and_others_follow() -> Result<()> {
    let options = server::Options { max_object_bytes: 20_000, ..Default::default() };
    let hub = TestHub::start_on(std::sync::Arc::new(store::memory::MemoryStore::new()), options).await?;
    let admin = hub.admin().await?;
    for part in ["p", "q", "r"] {
        let names: Vec<String> = (0..800).map(|number| format!("{part}-{number:06}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let role = json!({
            "metadata": {"name": part, "labels": {"part": part}}, "rules": [rule("", &names, &["get"])],
        });
        create(&admin, &format!("{RBAC}/clusterroles"), role).await?;
    }
    let collects = |name: &str, parts: &[&str]| {
        let selectors: Vec<Value> = parts.iter().map(|it| json!({"matchLabels": {"part": it}})).collect();
        json!({
            "metadata": {"name": name}, "aggregationRule": {"clusterRoleSelectors": selectors},
            "rules": [rule("", &["mine"], &["get"])],
        })
    };
    create(&admin, &format!("{RBAC}/clusterroles"), collects("all", &["p", "q", "r"])).await?;
    create(&admin, &format!("{RBAC}/clusterroles"), collects("one", &["p"])).await?;
    let shown = |rules: &Value| rules[0]["resources"].as_array().is_some_and(|it| it.len() == 800);
    until_rules(&admin, "one", shown).await?;
    assert_eq!(rules_of(&admin, "all").await?, json!([rule("", &["mine"], &["get"])]));
    Ok(())
}
