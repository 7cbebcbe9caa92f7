//! Two workspaces with the same names for everything, in one real member.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use testing::operator::eventually;

use crate::{
    app, in_namespace,
    world::{World, condition},
};

const TEAMS: [(&str, u32); 2] = [("blue", 1), ("red", 2)];

fn objects(replicas: u32) -> Vec<Value> {
    let mut objects = app::web();
    objects[2] = app::deployment("web", replicas);
    let mut binding = app::role_binding("web");
    binding["subjects"][0]["namespace"] = json!("store");
    objects.extend([app::service_account("web"), app::role("web"), binding]);
    let mut objects = in_namespace("store", objects);
    objects.extend(rights_everywhere());
    objects
}

/// What a tenant may do in all of its workspace.
fn rights_everywhere() -> [Value; 2] {
    let (rbac, name) = ("rbac.authorization.k8s.io", "of-a-tenant");
    let rule = json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]});
    let api_version = format!("{rbac}/v1");
    [
        json!({
            "apiVersion": api_version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule],
        }),
        json!({
            "apiVersion": api_version, "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": "web", "namespace": "store"}],
        }),
    ]
}

/// D11 too: whose status it is tells the UID, never the name. S2.1: nothing of what tenants may do is in the member.
pub fn scenario_19_d11_s2_1_two_workspaces_with_equal_names(world: &World) {
    for (team, replicas) in TEAMS {
        world.create_workspace(team);
        world.w(team, &["create", "ns", "store"]).ok();
        world.w(team, &["annotate", "ns", "store", "hanse.io/clusters=m1"]).ok();
        let file = world.file(&format!("{team}.json"), &objects(replicas));
        world.w(team, &["apply", "-f", &file]).ok();
    }
    for (team, replicas) in TEAMS {
        world.w(team, &["rollout", "status", "-n", "store", "deploy/web", "--timeout=300s"]).ok();
        let path = "jsonpath={.status.readyReplicas}";
        let ready = world.w(team, &["get", "deploy", "web", "-n", "store", "-o", path]).ok();
        assert_eq!(ready, replicas.to_string(), "{team}");
        eventually("each sees its own pods", || {
            let said = world.w(team, &["get", "pods", "-n", "store", "--no-headers"]).ok();
            if said.lines().count() == replicas as usize { Ok(()) } else { Err(said) }
        });
    }
    // Both run in m1 at once, in namespaces of their own.
    let list = world.m("m1", &["get", "ns", "-l", "hanse.io/workspace in (blue,red)", "-o", "json"]).ok();
    let list: Value = serde_json::from_str(&list).expect("a list");
    let names: BTreeSet<&str> = list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|it| it["metadata"]["name"].as_str())
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
    for name in names {
        let roles = world.m("m1", &["get", "roles,rolebindings", "-n", name, "-o", "name"]).ok();
        assert!(!roles.contains("web"), "{roles}");
        let secrets = world.m("m1", &["get", "secrets", "-n", name, "-o", "jsonpath={.items[*].type}"]).ok();
        assert!(!secrets.contains("service-account-token"), "{secrets}");
    }
    let everywhere = ["get", "clusterroles,clusterrolebindings", "-o", "name"];
    let rights = world.m("m1", &everywhere).ok();
    assert!(!rights.contains("of-a-tenant"), "{rights}");
    let marked = world.m("m1", &[&everywhere[..], &["-l", "hanse.io/workspace"]].concat()).ok();
    assert!(!marked.contains("clusterrole"), "{marked}");
    // A token of one is nobody's in the other, and in the member.
    let token = world.w("blue", &["create", "token", "web", "-n", "store"]).ok();
    let ask = ["get", "configmaps", "-n", "store", "--token", token.trim()];
    let plain = world.without_certificate("blue");
    assert!(world.operator.kubectl(&plain, &ask).done, "its role allows it in its own workspace");
    let plain = world.without_certificate("red");
    world.operator.kubectl(&plain, &ask).refused("Unauthorized");
    for (team, _) in TEAMS {
        world.delete_workspace(team);
    }
}

/// Of what is in no namespace, equal names of two workspaces meet: the first has it, and the other is told.
pub fn d02_a_tenant_brings_classes_to_a_cluster_of_the_platform_only_if_they_are_admitted(world: &World) {
    let admit = |kinds: Value| {
        let patch = json!({"spec": {"admits": kinds}}).to_string();
        world.k(&["patch", "cluster", "m1", "--type=merge", "-p", &patch]).ok();
    };
    let there = || world.there("m1", "default", "priorityclass", "high");
    // Before that none is judged.
    world.until("cluster", "m1", "its classes are known", |it| {
        it["status"]["classes"]["PriorityClass"].is_array()
    });
    let teams = ["gold", "green"];
    for team in teams {
        world.create_workspace(team);
        world.w(team, &["create", "ns", "store"]).ok();
        world.w(team, &["annotate", "ns", "store", "hanse.io/clusters=m1"]).ok();
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"},
            "value": 1000,
        });
        let mut web = app::deployment("web", 1);
        web["spec"]["template"]["spec"]["priorityClassName"] = json!("high");
        let mut objects = in_namespace("store", vec![web]);
        objects.insert(0, class);
        world.w(team, &["apply", "-f", &world.file(&format!("{team}.json"), &objects)]).ok();
        eventually(&format!("{team} is told that it may not"), || {
            let said = world.w(team, &["get", "deploy", "web", "-n", "store", "-o", "json"]).ok();
            let web: Value = serde_json::from_str(&said).expect("an object");
            let message = condition(&web, "Synced")["message"].to_string();
            if message.contains("takes none from this workspace") { Ok(()) } else { Err(said) }
        });
    }
    assert!(there().is_null(), "{}", there());

    admit(json!(["PriorityClass"]));
    let label = || there()["metadata"]["labels"]["hanse.io/workspace"].clone();
    let first = eventually("one of them has brought it", || match label() {
        Value::String(team) => Ok(team),
        _ => Err(there().to_string()),
    });
    assert_eq!(there()["value"], 1000);
    let second = teams.into_iter().find(|it| *it != first).expect("there are two");
    eventually("the other one is told", || {
        let said = world.w(second, &["get", "events", "-n", "default"]).ok();
        if said.contains("of another workspace, which is left alone") {
            return Ok(());
        }
        Err(said + &world.w(second, &["get", "assignments", "-A", "-o", "yaml"]).ok())
    });

    world.w(&first, &["delete", "deploy", "web", "-n", "store", "--timeout=120s"]).ok();
    world.w(&first, &["delete", "priorityclass", "high", "--timeout=120s"]).ok();
    eventually("the other one has it now", || match label() {
        team if team == second => Ok(()),
        team => Err(team.to_string()),
    });
    for team in teams {
        world.delete_workspace(team);
    }
    admit(Value::Null);
}
