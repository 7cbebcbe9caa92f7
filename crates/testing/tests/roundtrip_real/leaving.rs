//! Something is to go while a member does not answer, and what comes back after the hub was away or lost its memory.

use testing::operator::eventually;

use crate::{
    app, in_namespace,
    world::{World, condition, told},
};

/// m3 is dead, as far as anybody can tell.
pub fn scenario_11_deleting_a_namespace_with_a_dead_member(world: &World) {
    world.k(&["create", "ns", "stuck"]).ok();
    world.k(&["annotate", "ns", "stuck", "hanse.io/clusters=m2,m3"]).ok();
    world.apply("stuck.json", &in_namespace("stuck", vec![app::deployment("web", 4)]));
    world.rolled_out("stuck", "web");
    let pods = world.pods("m3", "stuck");
    assert_eq!(pods.len(), 2);
    world.member("m3").link.cut();

    world.k(&["delete", "ns", "stuck", "--wait=false"]).ok();

    world.until_gone_there("m2", "stuck", &["deploy,pods"]);
    world.until("ns", "stuck", "it says which cluster keeps it", |it| {
        let told = condition(it, "NamespaceFinalizersRemaining");
        let message = told["message"].as_str().unwrap_or_default();
        told["status"] == "True" && message.contains("with copies in m3") && !message.contains("m2")
    });
    let said = world.k(&["describe", "ns", "stuck"]).ok();
    assert!(said.contains("with copies in m3"), "{said}");
    eventually("an Event says what to do", || {
        let said = world.k(&["get", "events", "-n", "default"]).ok();
        if said.contains("hanse unjoin m3 --forget") { Ok(()) } else { Err(said) }
    });

    world.operator.hanse(&["unjoin", "m3", "--forget"]).ok();
    world.k(&["wait", "--for=delete", "ns/stuck", "--timeout=120s"]).ok();

    // It comes back after all: what runs there goes on, and nothing starts again.
    world.member("m3").link.heal();
    world.join("m3");
    world.k(&["create", "ns", "after"]).ok();
    world.barrier("after", 1, &["m3"]);
    assert_eq!(world.pods("m3", "stuck"), pods);
}

/// m3 was forgotten, and is joined again with what nobody wants any more: that goes when somebody says so, and nothing else.
pub fn scenario_11_what_is_left_over_goes_by_command_only(world: &World) {
    let namespaces = ["abandoned", "wanted"];
    for namespace in namespaces {
        world.k(&["create", "ns", namespace]).ok();
        world.k(&["annotate", "ns", namespace, "hanse.io/clusters=m3"]).ok();
        world.apply("left.json", &in_namespace(namespace, vec![app::deployment("web", 2)]));
        world.rolled_out(namespace, "web");
    }
    let pods = || namespaces.map(|namespace| world.pods("m3", namespace));
    let before = pods();
    assert_eq!(before.each_ref().map(|it| it.len()), [2, 2]);
    world.operator.hanse(&["unjoin", "m3", "--forget"]).ok();
    for namespace in namespaces {
        world.until_in(namespace, "assignment", "deployments.apps.web", "it is nowhere", |it| {
            it["spec"].is_object() && it["spec"]["clusters"].as_array().is_none_or(Vec::is_empty)
        });
    }
    world.k(&["delete", "ns", "abandoned", "--wait=false"]).ok();
    world.k(&["wait", "--for=delete", "ns/abandoned", "--timeout=120s"]).ok();
    world.join("m3");
    world.barrier("wanted", 1, &["m3"]);

    eventually("what is left over is listed", || {
        let said = world.operator.hanse(&["leftovers", "m3"]).ok();
        let is_it = |line: &str| line.contains("deployments.apps") && line.contains("abandoned");
        if said.lines().any(is_it) { Ok(()) } else { Err(said) }
    });
    let said = world.operator.hanse(&["leftovers", "m3", "--delete"]).ok();
    assert!(said.contains("abandoned") && said.contains("would be deleted"), "{said}");
    world.barrier("wanted", 2, &["m3"]);
    assert_eq!(pods(), before, "so far it was only said what would go");

    let said = world.operator.hanse(&["leftovers", "m3", "--delete", "--yes"]).ok();
    assert!(said.contains("abandoned") && said.contains("deleted"), "{said}");

    world.until_gone_there("m3", "abandoned", &["deploy,rs,pods"]);
    world.until_gone_there("m3", "abandoned", &["ns/abandoned"]);
    world.barrier("wanted", 3, &["m3"]);
    assert_eq!(world.pods("m3", "wanted"), before[1]);
    world.rolled_out("wanted", "web");
}

/// A workspace does not wait for a cluster that does not answer.
pub fn d14_deleting_a_workspace_with_a_dead_member(world: &World) {
    world.create_workspace("team");
    world.w("team", &["create", "ns", "lab"]).ok();
    world.w("team", &["annotate", "ns", "lab", "hanse.io/clusters=m3"]).ok();
    let file = world.file("team.json", &in_namespace("lab", vec![app::deployment("web", 1)]));
    world.w("team", &["apply", "-f", &file]).ok();
    world.w("team", &["rollout", "status", "-n", "lab", "deploy/web", "--timeout=300s"]).ok();
    world.member("m3").link.cut();
    world.delete_workspace("team");
    world.member("m3").link.heal();
    world.until("cluster", "m3", "it is back", |it| condition(it, "Ready")["status"] == "True");
}

/// The hub is away: the member heals itself, and nothing restarts when the hub is back.
pub fn x6_members_go_on_without_the_hub(world: &mut World) {
    world.k(&["create", "ns", "alone"]).ok();
    world.k(&["annotate", "ns", "alone", "hanse.io/clusters=m1"]).ok();
    world.apply("alone.json", &in_namespace("alone", vec![app::deployment("web", 3)]));
    world.rolled_out("alone", "web");
    world.operator.stop_hub().expect("it runs");
    let name =
        world.m("m1", &["get", "pods", "-n", "alone", "-o", "jsonpath={.items[0].metadata.name}"]).ok();
    world.m("m1", &["delete", "pod", "-n", "alone", &name, "--wait=false"]).ok();
    world.m("m1", &["rollout", "status", "-n", "alone", "deploy/web", "--timeout=300s"]).ok();
    let pods = eventually("there are three again", || match world.pods("m1", "alone") {
        pods if pods.len() == 3 => Ok(pods),
        pods => Err(format!("{pods:?}")),
    });
    world.operator.restart_hub().expect("it starts again");
    world.barrier("alone", 1, &["m1"]);
    assert_eq!(world.pods("m1", "alone"), pods);
    world.rolled_out("alone", "web");
}

/// An older state of the hub takes the place of what it knew: nothing that it does not know of is deleted.
pub fn x1_an_older_backup_deletes_nothing(world: &mut World) {
    world.k(&["create", "ns", "past"]).ok();
    world.k(&["annotate", "ns", "past", "hanse.io/clusters=m1"]).ok();
    world.apply("past.json", &in_namespace("past", vec![app::deployment("before", 1)]));
    world.rolled_out("past", "before");
    let backup = world.back_up("hub.backup");

    world.apply("later.json", &in_namespace("past", vec![app::deployment("after", 2)]));
    world.rolled_out("past", "after");
    world.k(&["create", "ns", "later"]).ok();
    world.k(&["annotate", "ns", "later", "hanse.io/clusters=m1"]).ok();
    world.apply("other.json", &in_namespace("later", vec![app::deployment("web", 1)]));
    world.rolled_out("later", "web");
    let pods = [world.pods("m1", "past"), world.pods("m1", "later")];
    let writes: Vec<usize> = world.members.iter().map(|it| it.session_writes().len()).collect();

    world.restore(&backup);
    world.barrier("past", 1, &["m1", "m2"]);

    assert_eq!([world.pods("m1", "past"), world.pods("m1", "later")], pods);
    for (member, before) in world.members.iter().zip(writes) {
        let mut new = member.session_writes().split_off(before);
        new.retain(|it| ["delete", "deletecollection"].contains(&it["verb"].as_str().unwrap_or_default()));
        assert!(new.is_empty(), "{}: {:?}", member.name, told(&new));
    }
    eventually("what is left over is told", || {
        let said = world.operator.hanse(&["leftovers"]).ok();
        if said.contains("after") { Ok(()) } else { Err(said) }
    });
    // Applied again, it is what it was.
    world.apply("later.json", &in_namespace("past", vec![app::deployment("after", 2)]));
    world.rolled_out("past", "after");
    assert_eq!(world.pods("m1", "past"), pods[0]);
}
