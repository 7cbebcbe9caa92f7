//! Two workspaces on one member, with the same names for everything.
//!
//! What a pod means by `web`, the name alone, is its own workspace's Service in every cluster. `web.shop` is the Service of whoever
//! has the namespace `shop` in the member: where that is another workspace, because the names are equal, it takes a
//! resolver that knows workspaces, and that part of scenario 19 is for later. Tokens of pods are shown by the tests `tokens`. Tokens, as what else
//! D10 is about, are given at the pod, whoever made it.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::{
    app::{self, NS},
    removal::WORKSPACES,
    world::{CLUSTERS, World, apply, assignment_path, deployment_path, items, text, until},
};

async fn two_teams() -> Result<World> {
    let world = World::start(&["m1"]).await?;
    world.member("m1").await?.provide_volumes().await?;
    for (team, replicas) in [("blue", 1), ("red", 2)] {
        let made = world.client.post(WORKSPACES, &json!({"metadata": {"name": team}})).await?;
        anyhow::ensure!(made.code == 201, "{}", made.text());
        let prefix = format!("/clusters/{team}");
        let mut objects = vec![app::namespace(NS)];
        objects.extend(app::everything());
        for object in &mut objects {
            // An autoscaler would have its own idea.
            if text(object, "/kind") == "HorizontalPodAutoscaler" {
                continue;
            }
            if text(object, "/kind") == "Deployment" {
                object["spec"]["replicas"] = json!(replicas);
            }
            let answer = apply(&world.client, &prefix, object).await?;
            anyhow::ensure!(answer.code.is_success(), "{}", answer.text());
        }
    }
    Ok(world)
}

/// D11 too: whose copy it is and whose status it has is told by its workspace and UID, never by its name.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_19_d11_two_workspaces_with_equal_names_run_on_one_member() -> Result<()> {
    let world = two_teams().await?;
    // Of each team: the namespace of its copy in the member, and the copy itself.
    let mut copies_of: Vec<(String, String)> = Vec::new();
    for (team, replicas) in [("blue", 1), ("red", 2)] {
        let path = format!("/clusters/{team}{}", deployment_path("web"));
        let has_own =
            |it: &Value| it["status"]["readyReplicas"] == replicas && it["status"]["replicas"] == replicas;
        let web = until(&world.client, &path, "it has its own status", has_own).await?;
        let member = world.member("m1").await?;
        let copies = member.items("/apis/apps/v1/deployments").await?;
        let own =
            |it: &&Value| it["metadata"]["annotations"][api::SOURCE_ANNOTATION] == web["metadata"]["uid"];
        let copy = copies.iter().find(own).context("its copy is in m1")?;
        assert_eq!(copy["metadata"]["labels"][api::WORKSPACE_LABEL], team);
        assert_eq!(copy["spec"]["replicas"], replicas);
        copies_of
            .push((text(copy, "/metadata/namespace").to_owned(), text(copy, "/metadata/uid").to_owned()));
    }
    let [blue, red] = copies_of.as_slice() else { anyhow::bail!("{copies_of:?}") };
    assert_ne!(blue.0, red.0, "each in a namespace of its own");
    // Deleting one leaves the other alone.
    let mark = world.there.mark();
    world.client.delete(&format!("/clusters/blue{}", deployment_path("web"))).await?;
    crate::world::until_gone(&world.client, &format!("/clusters/blue{}", deployment_path("web"))).await?;
    let gone = format!("/clusters/blue{}", assignment_path(&app::deployment("web", 1)));
    crate::world::until_gone(&world.client, &gone).await?;
    world.clusters.settled().await?;
    let of_red = format!("/clusters/red{}", deployment_path("web"));
    assert_eq!(world.client.get(&of_red).await?.json()["status"]["readyReplicas"], 2);
    let deeds = world.deeds("m1", mark)?;
    let removed = deeds.iter().filter(|it| it.what == crate::history::What::Removed);
    let removed: Vec<(&str, &str)> = removed
        .filter(|it| it.resource == "deployments")
        .map(|it| (it.namespace.as_str(), it.uid.as_str()))
        .collect();
    assert_eq!(removed, [(blue.0.as_str(), blue.1.as_str())]);
    let of_red: Vec<_> = deeds.iter().filter(|it| it.is_end() && it.namespace == red.0).collect();
    assert!(of_red.is_empty(), "{of_red:?}");
    Ok(())
}

/// A name without a namespace is looked for in the pod's own, which is another one for each workspace.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_19_the_name_of_a_service_leads_to_ones_own_pods() -> Result<()> {
    let world = two_teams().await?;
    let member = world.member("m1").await?;
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for (team, replicas) in [("blue", 1), ("red", 2)] {
        let path = format!("/clusters/{team}/api/v1/namespaces/{NS}/pods?labelSelector=app=web");
        let run = |list: &Value| addresses(list, "/status/podIP").len() == replicas;
        let pods = until(&world.client, &path, "its pods run", run).await?;
        let own = addresses(&pods, "/status/podIP");
        let label = format!("/api/v1/namespaces?labelSelector={}={team}", api::WORKSPACE_LABEL);
        let homes = member.items(&label).await?;
        let [home] = homes.as_slice() else { anyhow::bail!("{team} has {homes:?}") };
        let home = text(home, "/metadata/name");
        let slices = format!(
            "/apis/discovery.k8s.io/v1/namespaces/{home}/endpointslices?labelSelector=kubernetes.io/service-name=web"
        );
        let leads_there = |list: &Value| addresses(list, "/endpoints/*/addresses/0") == own;
        member.until(&slices, "the Service leads to them", leads_there).await?;
        found.push(own);
    }
    assert!(found[0].is_disjoint(&found[1]), "{found:?}");
    Ok(())
}

/// What the items of a list have there; `*`: in each entry.
fn addresses(list: &Value, pointer: &str) -> BTreeSet<String> {
    let items = list["items"].as_array().into_iter().flatten();
    let of = |item: &Value| match pointer.split_once("/*") {
        None => vec![text(item, pointer).to_owned()],
        Some((list, rest)) => {
            let entries = item.pointer(list).and_then(Value::as_array).into_iter().flatten();
            entries.map(|entry| text(entry, rest).to_owned()).collect()
        }
    };
    items.flat_map(of).filter(|it| !it.is_empty()).collect()
}

/// Equal names of kinds, with other ideas of what they are.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_19_equal_kinds_have_the_schemas_of_their_workspaces() -> Result<()> {
    let world = two_teams().await?;
    let sizes = [("blue", "integer", json!(3), json!("large")), ("red", "string", json!("large"), json!(3))];
    for (team, kind, _, _) in &sizes {
        let size = json!({"type": "object", "properties": {"size": {"type": kind}}});
        let schema = json!({"type": "object", "properties": {"spec": size}});
        let version = json!({
            "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
        });
        let names = json!({"plural": "crews", "singular": "crew", "kind": "Crew", "listKind": "CrewList"});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "crews.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
        });
        let answer = apply(&world.client, &format!("/clusters/{team}"), &definition).await?;
        anyhow::ensure!(answer.code.is_success(), "{}", answer.text());
    }
    for (team, _, good, bad) in sizes {
        let path = format!("/clusters/{team}/apis/example.com/v1/namespaces/{NS}/crews");
        until(&world.client, &path, "the kind is served", |it| it["kind"] == "CrewList").await?;
        let crew = |name: &str, size: Value| json!({"apiVersion": "example.com/v1", "kind": "Crew", "metadata": {"name": name}, "spec": {"size": size}});
        assert_eq!(world.client.post(&path, &crew("good", good)).await?.code, 201, "{team}");
        assert_eq!(world.client.post(&path, &crew("bad", bad)).await?.code, 422, "{team}");
        assert_eq!(items(&world.client, &path).await?.len(), 1, "{team}");
    }
    Ok(())
}

/// Rights stay above; so do tokens. A token of one workspace is nothing in another.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_19_s2_1_no_rights_and_no_tokens_of_a_tenant_are_in_the_member() -> Result<()> {
    let world = two_teams().await?;
    for team in ["blue", "red"] {
        let path = format!("/clusters/{team}{}", deployment_path("web"));
        until(&world.client, &path, "it runs", |it| it["status"]["readyReplicas"].as_u64() >= Some(1))
            .await?;
    }
    let member = world.member("m1").await?;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    for kind in ["roles", "rolebindings", "clusterroles", "clusterrolebindings"] {
        let all = member.items(&format!("{rbac}/{kind}")).await?;
        let marked = |it: &&Value| {
            !it["metadata"]["labels"][api::WORKSPACE_LABEL].is_null() || text(it, "/metadata/name") == "web"
        };
        assert_eq!(all.iter().filter(marked).count(), 0, "{kind}");
    }
    let secrets = member.items("/api/v1/secrets").await?;
    let tokens = secrets.iter().filter(|it| {
        it["type"] == "kubernetes.io/service-account-token"
            && text(it, "/metadata/namespace") != "hanse-system"
    });
    assert_eq!(tokens.count(), 0);
    // A token of blue, used on red's path.
    let path = format!("/clusters/blue/api/v1/namespaces/{NS}/serviceaccounts/web/token");
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = world.client.post(&path, &asked).await?.json();
    let bearer = format!("Bearer {}", text(&token, "/status/token"));
    let nobody = world.hub.nobody().await?;
    for (team, expected) in [("blue", 200), ("red", 401)] {
        let path = format!("/clusters/{team}/api/v1/namespaces/{NS}/configmaps");
        let answer = nobody.call(http::Method::GET, &path, &[("authorization", &bearer)], "").await?;
        assert_eq!(answer.code, expected, "{team}: {}", answer.text());
    }
    // Nor is anything of the other's in one's own lists.
    let pods = items(&world.client, &format!("/clusters/blue/api/v1/namespaces/{NS}/pods")).await?;
    assert_eq!(pods.len(), 1, "{pods:?}");
    Ok(())
}

/// Whoever may do everything in their workspace still may not say where things run.
#[tokio::test(flavor = "multi_thread")]
async fn scenario_19_edits_of_assignments_are_refused() -> Result<()> {
    let world = two_teams().await?;
    let assignment = format!("/clusters/blue{}", assignment_path(&app::deployment("web", 1)));
    until(&world.client, &assignment, "it is there", |it| it["spec"].is_object()).await?;
    let answer = world.client.merge_patch(&assignment, &json!({"spec": {"clusters": []}})).await?;
    assert!([403, 405, 422].contains(&answer.code.as_u16()), "{}", answer.text());
    Ok(())
}

/// Whatever makes its pods: the file says what the workspace says (D10).
#[tokio::test(flavor = "multi_thread")]
async fn d10_files_of_the_downward_api_have_the_name_of_the_workspace_in_pods_of_all_kinds() -> Result<()> {
    let world = World::start(&["m1"]).await?;
    world.patch(&format!("{CLUSTERS}/m1"), json!({"spec": {"namespaces": "Prefixed"}})).await?;
    world.namespace(NS).await?;
    let named = json!([{"path": "ns", "fieldRef": {"fieldPath": "metadata.namespace"}}]);
    let volumes = json!([
        {"name": "alone", "downwardAPI": {"items": named}},
        {"name": "among", "projected": {"sources": [{"downwardAPI": {"items": named}}]}},
    ]);
    let rows = [
        (app::cron_job("cron"), "/spec/jobTemplate/spec/template/spec"),
        (app::job("job"), "/spec/template/spec"),
        (app::daemon_set("daemon"), "/spec/template/spec"),
        (app::deployment("web", 1), "/spec/template/spec"),
    ];
    for (mut object, at) in rows.clone() {
        let spec = object.pointer_mut(at).context("it has a template")?;
        spec["volumes"] = volumes.clone();
        world.apply(&object).await?;
    }
    let m1 = world.member("m1").await?;
    for (object, _) in rows.iter().rev() {
        let app = text(object, "/metadata/name");
        let pods = format!("/api/v1/namespaces/default-{NS}/pods?labelSelector=app={app}");
        let list = m1.until(&pods, "it has a pod", |it| it["items"][0].is_object()).await?;
        let pod = &list["items"][0];
        assert!(!pod["spec"].to_string().contains("metadata.namespace"), "{app}: {pod}");
        let sources = pod["spec"]["volumes"].as_array().into_iter().flatten();
        let own: Vec<Value> = sources
            .filter(|it| ["alone", "among"].contains(&text(it, "/name")))
            .map(|it| it["projected"]["sources"].clone())
            .collect();
        let from_secret = json!([
            {"secret": {"name": "hanse-token-default", "items": [{"key": "namespace", "path": "ns"}]}},
        ]);
        assert_eq!(own, [from_secret.clone(), from_secret], "{app}");
    }
    // And that is what it is called in the workspace.
    let secret =
        m1.until_there(&format!("/api/v1/namespaces/default-{NS}/secrets/hanse-token-default")).await?;
    assert_eq!(secret["data"]["namespace"], json!(BASE64_STANDARD.encode(NS)));
    Ok(())
}
