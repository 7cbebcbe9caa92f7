//! Two workspaces with the same names for everything, in one real member.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use testing::operator::eventually;

use crate::{app, in_namespace, world::World};

const TEAMS: [(&str, u32); 2] = [("blue", 1), ("red", 2)];

fn objects(replicas: u32) -> Vec<Value> {
    let mut objects = app::web();
    objects[2] = app::deployment("web", replicas);
    let mut binding = app::role_binding("web");
    binding["subjects"][0]["namespace"] = json!("store");
    objects.extend([app::service_account("web"), app::role("web"), binding]);
    in_namespace("store", objects)
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
