//! KubeFed's own cases of placement, namespaces, overrides and plans, row by row, in a workspace that divides as federation
//! did. Those of what members keep are with `retention`.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::{
    app::NS,
    scheduling::preference,
    type_configs::{config, definition, until_runs, until_served, with_widgets},
    words::{
        SYSTEM, begin, federated, federation_config, label_cluster, named, plain, start, template,
        until_replicas, until_told,
    },
    world::{World, apply, collection, path, text},
};

const CASES: &str = include_str!("../../../kinds/tests/data/kubefed.json");
const ONE: &str = "cluster1";
const TWO: &str = "cluster2";
const THREE: &str = "cluster3";

fn cases(family: &str, tables: &[&str]) -> Result<Vec<Value>> {
    let all: Value = serde_json::from_str(CASES)?;
    let tables = tables.iter().filter_map(|table| all[family][table].as_array());
    Ok(tables.flatten().cloned().collect())
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn settings(namespace: &str, name: &str, placement: &Value) -> Value {
    let mut object = federated("ConfigMap", name, json!({"template": {"data": {}}, "placement": placement}));
    object["metadata"]["namespace"] = json!(namespace);
    object
}

/// Waits until it says that it is in these clusters, and looks whether it is there and nowhere else.
async fn is_in(
    world: &World,
    object: &Value,
    clusters: &[&str],
    condition: &str,
    all: &[&str],
) -> Result<()> {
    let told: Vec<(&str, &str)> = clusters.iter().map(|name| (*name, "")).collect();
    until_told(world, object, &told, condition).await?;
    world.clusters.settled().await?;
    for name in all {
        let has = world.member(name).await?.has(&path(&plain(object))).await?;
        ensure!(has == clusters.contains(name), "{}: {name} {has}", path(object));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn placements_choose_clusters_as_in_kubefed() -> Result<()> {
    const ALL: [&str; 2] = [ONE, TWO];
    let world = start(&ALL).await?;
    label_cluster(&world, TWO, json!({"foo": "bar"})).await?;
    let rows = cases("placement", &["cases", "derived"])?;
    for (number, case) in rows.iter().enumerate() {
        let object = settings(NS, &format!("case-{number}"), &case["placement"]);
        let made = world.client.post(&collection(&object), &object).await?;
        match case.get("expect") {
            Some(clusters) => {
                ensure!(made.code == 201, "{case}: {}", made.text());
                is_in(&world, &object, &names(clusters), "True", &ALL).await?;
            }
            // What KubeFed finds out later is refused, and nothing is made of it.
            None => {
                ensure!(made.code == 422 && made.text().contains("Nope"), "{case}: {}", made.text());
                ensure!(world.client.get(&path(&object)).await?.code == 404, "{case}");
            }
        }
    }
    assert_eq!(rows.len(), 9);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_limit_what_is_in_them_as_in_kubefed() -> Result<()> {
    const ALL: [&str; 3] = [ONE, TWO, THREE];
    let world = begin(&ALL).await?;
    world.namespace(SYSTEM).await?;
    let rows = cases("namespacedPlacement", &["cases"])?;
    for (number, case) in rows.iter().enumerate() {
        let scope = if case["limitedScope"] == true { "Namespaced" } else { "Cluster" };
        let configured = federation_config(json!({"scope": scope}));
        // It cannot be changed.
        world.client.delete(&path(&configured)).await?;
        world.until_gone(&path(&configured)).await?;
        world.apply(&configured).await?;
        let namespace = format!("case-{number}");
        world.namespace(&namespace).await?;
        if case["namespace"].is_array() {
            let mut whole =
                federated("Namespace", &namespace, json!({"placement": named(&names(&case["namespace"]))}));
            whole["metadata"]["namespace"] = json!(namespace);
            world.apply(&whole).await?;
        }
        let object = settings(&namespace, "settings", &named(&names(&case["resource"])));
        world.apply(&object).await?;
        let condition = match case["condition"].as_str() {
            Some(reason) => format!("False{reason}"),
            None => "True".to_owned(),
        };
        is_in(&world, &object, &names(&case["expect"]), &condition, &ALL).await?;
    }
    assert_eq!(rows.len(), 5);
    Ok(())
}

/// Of a kind that says nothing of what is in it, as the cases' templates have all sorts of fields.
fn widget(number: usize, case: &Value) -> Value {
    let entry = json!({"clusterName": ONE, "clusterOverrides": case["overrides"]});
    let overrides = match (case["duplicateClusterName"] == true, case["overrides"].is_array()) {
        (true, _) => json!([{"clusterName": ONE}, {"clusterName": ONE}]),
        (false, true) => json!([entry]),
        (false, false) => json!([]),
    };
    let spec = json!({"template": case["template"], "placement": named(&[ONE, TWO]), "overrides": overrides});
    federated("Widget", &format!("case-{number}"), spec)
}

async fn is_added(world: &World, number: usize, case: &Value) -> Result<()> {
    let object = widget(number, case);
    world.apply(&object).await?;
    until_told(world, &object, &[(ONE, ""), (TWO, "")], "True").await?;
    let copy = format!("/apis/example.com/v1/namespaces/{NS}/widgets/case-{number}");
    let changed = world.member(ONE).await?.until_there(&copy).await?;
    ensure!(changed["metadata"]["annotations"]["foo"] == "bar", "{case}: {changed}");
    Ok(())
}

/// Without what is Hanse's own.
fn of_the_user(map: &Value) -> Value {
    let entries = map.as_object().into_iter().flatten();
    entries
        .filter(|(key, _)| !key.contains("hanse.io/") && !key.starts_with("kubefed.io/"))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn overrides_change_copies_as_in_kubefed() -> Result<()> {
    let world = start(&[]).await?;
    for name in [ONE, TWO] {
        with_widgets(&world, name).await?;
    }
    world.namespace(SYSTEM).await?;
    for (group, kind) in [("example.com", "Widget"), ("types.kubefed.io", "FederatedWidget")] {
        world.apply(&definition(group, kind)).await?;
    }
    until_served(&world.client, "/apis/types.kubefed.io/v1beta1/namespaces/default/federatedwidgets").await?;
    let widgets = config("widgets.example.com", "Widget", "Enabled", false);
    world.apply(&widgets).await?;
    until_runs(&world, &widgets, "Running", "NotRunning").await?;
    let (one, two) = (world.member(ONE).await?, world.member(TWO).await?);
    let (rows, mut added) = (cases("overrides", &["cases"])?, false);
    for (number, case) in rows.iter().enumerate() {
        if case["note"] == "parent missing" {
            // The one difference: copies have annotations of Hanse's, so that there is a place for another.
            added = true;
            is_added(&world, number, case).await?;
            continue;
        }
        let object = widget(number, case);
        let copy = format!("/apis/example.com/v1/namespaces/{NS}/widgets/case-{number}");
        world.apply(&object).await?;
        if let Some(status) = case["expectStatus"].as_str() {
            // What is wrong with the whole is wrong in each cluster; else the other one has its copy.
            let note = text(case, "/note");
            let is_of_one = note.contains("missing key");
            let told = if is_of_one { [(ONE, status), (TWO, "")] } else { [(ONE, status), (TWO, status)] };
            until_told(&world, &object, &told, "FalseCheckClusters").await?;
            world.clusters.settled().await?;
            ensure!(!one.has(&copy).await?, "{case}");
            ensure!(two.has(&copy).await? == is_of_one, "{case}");
            continue;
        }
        until_told(&world, &object, &[(ONE, ""), (TWO, "")], "True").await?;
        let changed = one.until_there(&copy).await?;
        if let Some(labels) = case["expectLabels"].as_object() {
            for (label, value) in labels {
                ensure!(changed["metadata"]["labels"][label] == *value, "{case}: {changed}");
            }
            continue;
        }
        let (expected, found) = (&case["expect"], &changed["metadata"]["annotations"]);
        ensure!(changed["spec"] == expected["spec"], "{case}: {changed}");
        ensure!(of_the_user(found) == of_the_user(&expected["metadata"]["annotations"]), "{case}: {changed}");
        let other = two.until_there(&copy).await?;
        ensure!(other["spec"] == case["template"]["spec"], "{case}: {other}");
    }
    assert_eq!((rows.len(), added), (12, true));
    // Of kinds whose shape is known, what can never be is refused when it is written.
    let paths = cases("overrides", &["invalidPaths"])?;
    for at in &paths {
        let overrides = json!([{"clusterName": ONE, "clusterOverrides": [{"path": at, "value": "x"}]}]);
        let spec = json!({"template": template(1), "placement": named(&[ONE]), "overrides": overrides});
        let refused = apply(&world.client, "", &federated("Deployment", "refused", spec)).await?;
        ensure!(refused.code == 422, "{at}: {}", refused.text());
    }
    assert_eq!(paths.len(), 4);
    Ok(())
}

/// The same of a Deployment, which has a label in place of a field that no kind has.
fn overridden(changes: &Value) -> Value {
    let changes = changes.as_array().into_iter().flatten();
    let of_a_deployment = |change: &Value| match text(change, "/path") {
        "/ultimate/answer" => {
            json!({"op": "add", "path": "/metadata/labels/answer", "value": change["value"].to_string()})
        }
        _ => change.clone(),
    };
    json!([{"clusterName": ONE, "clusterOverrides": changes.map(of_a_deployment).collect::<Vec<_>>()}])
}

/// KubeFed writes a plan into the overrides. Here the Assignment has it, so what is compared is the copies.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_goes_before_overridden_replicas_and_leaves_other_overrides() -> Result<()> {
    let world = start(&[ONE, TWO]).await?;
    let (one, two) = (world.member(ONE).await?, world.member(TWO).await?);
    let rows = cases("rspOverrideMap", &["cases"])?;
    for case in &rows {
        let overrides = overridden(&case["before"][ONE]);
        let spec = json!({"template": template(9), "placement": named(&[ONE, TWO]), "overrides": overrides});
        let web = federated("Deployment", "web", spec);
        let planned = case["replicas"][ONE].as_u64();
        let cluster = if planned.is_some() { ONE } else { TWO };
        let total = planned.unwrap_or(4);
        let plan = preference(json!({"totalReplicas": total, "clusters": {cluster: {"weight": 1}}}));
        world.apply_all(&[plan.clone(), web.clone()]).await?;
        let copy = plain(&web);
        match planned {
            Some(replicas) => {
                let copy = until_replicas(&one, &copy, replicas).await?;
                ensure!(case["after"][ONE]["/spec/replicas"] == replicas, "{case}");
                ensure!(copy["metadata"]["labels"]["answer"] == "42", "{case}: {copy}");
            }
            // It is in the plan of another cluster, where nothing is overridden.
            None => {
                let copy = until_replicas(&two, &copy, total).await?;
                ensure!(copy["metadata"]["labels"].get("answer").is_none(), "{case}: {copy}");
                let is_none = |it: &Value| it["code"] == 404 || it["spec"]["replicas"] == 0;
                one.until(&path(&plain(&web)), "nothing runs there", is_none).await?;
            }
        }
        until_told(&world, &web, &[(cluster, "")], "True").await?;
        // What the user wrote is as the user wrote it.
        let stored = world.get(&path(&web)).await?;
        ensure!(stored["spec"]["overrides"] == web["spec"]["overrides"], "{case}: {stored}");
        for object in [&web, &plan] {
            world.client.delete(&path(object)).await?;
            world.until_gone(&path(object)).await?;
        }
        for member in [&one, &two] {
            member.until_gone(&path(&copy)).await?;
        }
    }
    assert_eq!(rows.len(), 3);
    Ok(())
}
