//! The status of the whole, judged by those who read it: never done before every copy is, and done when all are.

mod judges;

use std::collections::BTreeMap;

use kinds::{MemberStatus, Share, aggregate, split};
use machinery::validation::workloads;
use proptest::prelude::*;
use serde_json::{Value, json};

const GENERATION: i64 = 3;

/// What happens to a copy.
#[derive(Clone, Debug)]
struct Copy {
    share: u64,
    /// How far from done: which numbers differ from the wanted, and by how much.
    replicas: i64,
    updated: i64,
    ready: i64,
    available: i64,
    nodes: u64,
    is_available: bool,
    reason: &'static str,
    failing: bool,
    updating: bool,
    is_observed: bool,
    is_current: bool,
    seen: bool,
    reachable: bool,
    leaving: bool,
}

/// Mostly fine, so that often all are.
fn mostly(fine: bool) -> impl Strategy<Value = bool> {
    prop_oneof![12 => Just(fine), 1 => Just(!fine)]
}

fn off() -> impl Strategy<Value = i64> {
    prop_oneof![14 => Just(0i64), 1 => Just(-1), 1 => Just(1), 1 => Just(-2)]
}

fn any_copy() -> impl Strategy<Value = Copy> {
    let numbers = (0u64..4, off(), off(), off(), off(), 0u64..4);
    let reasons = prop_oneof![
        14 => Just("NewReplicaSetAvailable"), 1 => Just("ReplicaSetUpdated"), 1 => Just("ProgressDeadlineExceeded"),
    ];
    let flags = (mostly(true), mostly(false), mostly(false), mostly(true), mostly(true), mostly(true));
    (numbers, reasons, flags, mostly(true), mostly(false)).prop_map(
        |(numbers, reason, flags, reachable, leaving)| {
            let (share, replicas, updated, ready, available, nodes) = numbers;
            let (is_available, failing, updating, is_observed, is_current, seen) = flags;
            Copy {
                share,
                replicas,
                updated,
                ready,
                available,
                nodes,
                reason,
                failing,
                updating,
                is_observed,
                is_current,
                seen,
                reachable,
                leaving,
                // What has no replicas lacks none.
                is_available: is_available || share == 0,
            }
        },
    )
}

impl Copy {
    /// The status that its cluster shows. However far off, no number of pods is above that of all.
    fn status(&self, kind: &str, generation: i64) -> Value {
        let near = |wanted: u64, off: i64| u64::try_from(wanted as i64 + off).unwrap_or(0);
        let replicas = near(self.share, self.replicas);
        let updated = near(self.share, self.updated).min(replicas);
        let ready = near(self.share, self.ready).min(replicas);
        let available = near(self.share, self.available).min(ready);
        let observed = if self.is_observed { generation } else { generation - 1 };
        let truth = |is: bool| if is { "True" } else { "False" };
        let mut conditions = Vec::new();
        if self.failing {
            conditions.push(json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}));
        }
        match kind {
            "Deployment" => {
                conditions.push(json!({"type": "Available", "status": truth(self.is_available)}));
                let progresses = self.reason != "ProgressDeadlineExceeded";
                conditions
                    .push(json!({"type": "Progressing", "status": truth(progresses), "reason": self.reason}));
                json!({
                    "observedGeneration": observed, "replicas": replicas, "updatedReplicas": updated,
                    "readyReplicas": ready, "availableReplicas": available, "conditions": conditions,
                })
            }
            "ReplicaSet" => json!({
                "observedGeneration": observed, "replicas": replicas, "fullyLabeledReplicas": updated,
                "readyReplicas": ready, "availableReplicas": available, "conditions": conditions,
            }),
            "StatefulSet" => json!({
                "observedGeneration": observed, "replicas": replicas, "updatedReplicas": updated,
                "currentReplicas": updated, "readyReplicas": ready, "availableReplicas": available,
                "currentRevision": "web-1", "updateRevision": if self.updating { "web-2" } else { "web-1" },
            }),
            _ => {
                let on = |off: i64| near(self.nodes, off.min(0));
                json!({
                    "observedGeneration": observed, "desiredNumberScheduled": self.nodes,
                    "currentNumberScheduled": on(self.replicas), "updatedNumberScheduled": on(self.updated),
                    "numberReady": on(self.ready), "numberAvailable": on(self.available), "numberMisscheduled": 0,
                })
            }
        }
    }

    fn member(&self, kind: &str) -> MemberStatus {
        let generation = 7;
        MemberStatus {
            assigned: Share { replicas: self.share, ..Share::default() },
            generation,
            source_generation: if self.is_current { GENERATION } else { GENERATION - 1 },
            status: if self.seen { self.status(kind, generation) } else { Value::Null },
            reachable: self.reachable,
            leaving: self.leaving,
        }
    }
}

/// How the shares are, compared with what is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Division {
    Exact,
    /// This many are assigned nowhere.
    Short(u64),
    /// This many are assigned though nobody wants them.
    Over(u64),
    /// Each cluster has all of it.
    Duplicated(u64),
}

#[derive(Debug)]
struct Case {
    object: Value,
    members: BTreeMap<String, MemberStatus>,
    /// What each cluster that is to have a copy shows.
    copies: BTreeMap<String, Value>,
    division: Division,
}

impl Case {
    fn new(kind: &str, copies: &[Copy], division: Division, partition: Option<u64>) -> Self {
        let mut copies = copies.to_vec();
        if let Division::Duplicated(wanted) = division {
            copies.iter_mut().for_each(|copy| copy.share = wanted);
        }
        let staying: u64 = copies.iter().filter(|copy| !copy.leaving).map(|copy| copy.share).sum();
        let wanted = match division {
            Division::Exact => staying,
            Division::Short(missing) => staying + missing,
            Division::Over(surplus) => staying.saturating_sub(surplus),
            Division::Duplicated(wanted) => wanted,
        };
        let mut spec = json!({"updateStrategy": {"type": "RollingUpdate"}, "progressDeadlineSeconds": 600});
        if kind != "DaemonSet" {
            spec["replicas"] = json!(wanted);
        }
        if let Some(partition) = partition {
            spec["updateStrategy"]["rollingUpdate"] = json!({"partition": partition});
        }
        let object = json!({
            "apiVersion": "apps/v1", "kind": kind,
            "metadata": {"name": "web", "generation": GENERATION}, "spec": spec,
        });
        let mut members: BTreeMap<String, MemberStatus> =
            copies.iter().enumerate().map(|(at, copy)| (format!("c{at}"), copy.member(kind))).collect();
        let mut next = 0;
        for member in members.values_mut().filter(|member| !member.leaving && kind == "StatefulSet") {
            let first = if matches!(division, Division::Duplicated(_)) { 0 } else { next };
            member.assigned.ordinals = Some(first);
            next += member.assigned.replicas;
        }
        let shares = members
            .iter()
            .filter(|(_, member)| !member.leaving)
            .map(|(cluster, member)| (cluster.clone(), member.assigned))
            .collect();
        let mut copies = split(&object, &shares).expect("copies");
        for (cluster, copy) in &mut copies {
            copy["metadata"]["generation"] = json!(members[cluster].generation);
            if !members[cluster].status.is_null() {
                copy["status"] = members[cluster].status.clone();
            }
        }
        Self { object, members, copies, division }
    }

    fn whole(&self) -> Value {
        let mut whole = self.object.clone();
        whole["status"] = aggregate(&self.object, &self.members);
        whole
    }

    fn staying(&self) -> impl Iterator<Item = &MemberStatus> {
        self.members.values().filter(|member| !member.leaving)
    }

    /// Every copy was made from the object as it is, and its cluster answers.
    fn is_current(&self) -> bool {
        self.staying().all(|member| member.source_generation == GENERATION && member.reachable)
    }

    /// All that is wanted is to be somewhere. A DaemonSet wants nothing but that.
    fn is_placed(&self) -> bool {
        let wanted = self.object["spec"].get("replicas").and_then(Value::as_u64);
        let short = wanted.is_some() && matches!(self.division, Division::Short(1..));
        wanted == Some(0) || (!short && self.staying().next().is_some())
    }
}

type Judge = (&'static str, fn(&Value) -> bool);

fn judges_of(kind: &str) -> Vec<Judge> {
    let mut judges: Vec<Judge> = vec![("kstatus", judges::kstatus), ("Argo CD", judges::argo)];
    if kind != "ReplicaSet" {
        judges.push(("kubectl rollout status", judges::rollout));
    }
    if kind == "Deployment" {
        judges.push(("kubectl wait --for=condition=Available", |it| judges::wait(it, "Available")));
    }
    judges
}

const KINDS: [&str; 4] = ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"];

fn any_case() -> impl Strategy<Value = (&'static str, Case)> {
    let division = prop_oneof![
        4 => Just(Division::Exact),
        1 => (0u64..3).prop_map(Division::Short),
        1 => (1u64..3).prop_map(Division::Over),
        2 => (1u64..4).prop_map(Division::Duplicated),
    ];
    let copies = prop::collection::vec(any_copy(), 0..4);
    (0..KINDS.len(), copies, division, prop::option::of(0u64..5)).prop_map(
        |(kind, copies, division, partition)| {
            let kind = KINDS[kind];
            let partition = partition.filter(|_| kind == "StatefulSet");
            (kind, Case::new(kind, &copies, division, partition))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nobody_concludes_that_it_is_done_before_every_copy_is((kind, case) in any_case()) {
        let whole = case.whole();
        let serves = |it: &MemberStatus| it.leaving && it.status["availableReplicas"] != json!(0);
        let moving = case.members.values().any(serves);
        for (judge, concludes) in judges_of(kind) {
            // While it moves, the copy that leaves may be the one that is available.
            if !concludes(&whole) || (moving && judge.starts_with("kubectl wait")) {
                continue;
            }
            prop_assert!(case.is_placed(), "{judge}: not all of it is anywhere: {case:#?} {whole:#}");
            prop_assert!(case.is_current(), "{judge}: a cluster has not got it yet: {case:#?} {whole:#}");
            for (cluster, copy) in &case.copies {
                prop_assert!(concludes(copy), "{judge}: {cluster} is not done: {copy:#} {whole:#}");
            }
        }
    }

    #[test]
    fn everybody_concludes_that_it_is_done_when_every_copy_is((kind, case) in any_case()) {
        let judges = judges_of(kind);
        let done = case.copies.values().all(|copy| judges.iter().all(|(_, concludes)| concludes(copy)));
        let leaving = case.members.values().any(|member| member.leaving);
        let over = matches!(case.division, Division::Over(_));
        if !done || leaving || over || !case.is_current() || !case.is_placed() {
            return Ok(());
        }
        let whole = case.whole();
        for (judge, concludes) in judges {
            prop_assert!(concludes(&whole), "{judge}: {case:#?} {whole:#}");
        }
    }

    #[test]
    fn the_api_server_takes_the_status((kind, case) in any_case()) {
        let (whole, empty) = (case.whole(), case.object.clone());
        let (new, old) = (whole.as_object().expect("an object"), empty.as_object().expect("an object"));
        let causes = match kind {
            "Deployment" => workloads::deployment_status(new, old),
            "ReplicaSet" => workloads::replica_set_status(new, old),
            "StatefulSet" => workloads::stateful_set_status(new, old),
            _ => workloads::daemon_set_status(new, old),
        };
        prop_assert!(causes.is_empty(), "{causes:?} {whole:#}");
    }

    #[test]
    fn the_status_of_a_status_is_itself((_, case) in any_case()) {
        let whole = case.whole();
        prop_assert_eq!(&aggregate(&whole, &case.members), &whole["status"]);
    }
}

fn mk(share: u64) -> Copy {
    Copy {
        share,
        replicas: 0,
        updated: 0,
        ready: 0,
        available: 0,
        nodes: 2,
        is_available: true,
        reason: "NewReplicaSetAvailable",
        failing: false,
        updating: false,
        is_observed: true,
        is_current: true,
        seen: true,
        reachable: true,
        leaving: false,
    }
}

/// The table that people read: what is known of two copies, and what each concludes of the whole.
#[test]
fn what_others_conclude_of_a_deployment_in_two_clusters() {
    let fine = || vec![mk(2), mk(1)];
    let with = |change: fn(&mut Copy)| {
        let mut copies = fine();
        change(&mut copies[1]);
        copies
    };
    type Row<'a> = (&'a str, Vec<Copy>, Division, bool, &'a str, &'a str);
    let rows: [Row<'_>; 14] = [
        ("all is well", fine(), Division::Exact, true, "True", "NewReplicaSetAvailable"),
        (
            "one has a pod too few",
            with(|it| it.available = -1),
            Division::Exact,
            false,
            "True",
            "ReplicaSetUpdated",
        ),
        (
            "one is not available",
            with(|it| it.is_available = false),
            Division::Exact,
            true,
            "False",
            "NewReplicaSetAvailable",
        ),
        (
            "an old pod is left",
            with(|it| {
                it.replicas = 1;
                it.ready = 1
            }),
            Division::Exact,
            false,
            "True",
            "ReplicaSetUpdated",
        ),
        (
            "one has given up",
            with(|it| it.reason = "ProgressDeadlineExceeded"),
            Division::Exact,
            false,
            "True",
            "ProgressDeadlineExceeded",
        ),
        (
            "one had given up before",
            with(|it| {
                it.reason = "ProgressDeadlineExceeded";
                it.is_current = false
            }),
            Division::Exact,
            false,
            "True",
            "ReplicaSetUpdated",
        ),
        (
            "one has an older copy",
            with(|it| it.is_current = false),
            Division::Exact,
            false,
            "True",
            "ReplicaSetUpdated",
        ),
        (
            "one has not looked",
            with(|it| it.is_observed = false),
            Division::Exact,
            false,
            "True",
            "ReplicaSetUpdated",
        ),
        (
            "one was never seen",
            with(|it| it.seen = false),
            Division::Exact,
            false,
            "False",
            "ReplicaSetUpdated",
        ),
        (
            "one does not answer",
            with(|it| it.reachable = false),
            Division::Exact,
            false,
            "True",
            "ReplicaSetUpdated",
        ),
        ("one is leaving", with(|it| it.leaving = true), Division::Exact, false, "True", "ReplicaSetUpdated"),
        ("one replica is nowhere", fine(), Division::Short(1), false, "False", "ReplicaSetUpdated"),
        ("both have all", fine(), Division::Duplicated(3), true, "True", "NewReplicaSetAvailable"),
        ("nowhere", vec![], Division::Short(2), false, "False", "NotAssigned"),
    ];
    for (name, copies, division, done, available, progress) in rows {
        let whole = Case::new("Deployment", &copies, division, None).whole();
        assert_eq!(judges::rollout(&whole), done, "{name}: rollout status of {whole:#}");
        let of = |kind: &str, key: &str| {
            let conditions = whole["status"]["conditions"].as_array().expect("conditions");
            let found = conditions.iter().find(|it| it["type"] == kind).expect("the condition");
            found[key].as_str().unwrap_or_default().to_owned()
        };
        assert_eq!(of("Available", "status"), available, "{name}: {whole:#}");
        assert_eq!(of("Progressing", "reason"), progress, "{name}: {whole:#}");
    }
}

#[test]
fn what_was_done_stays_done_while_a_cluster_does_not_answer() {
    let case = Case::new("Deployment", &[mk(2), mk(1)], Division::Exact, None);
    let whole = case.whole();
    assert!(judges::rollout(&whole));
    let mut members = case.members.clone();
    members.get_mut("c1").expect("a member").reachable = false;
    let mut silent = whole.clone();
    silent["status"] = aggregate(&whole, &members);
    assert!(judges::rollout(&silent), "it was done, as seen last: {silent:#}");
    let mut changed = whole.clone();
    changed["metadata"]["generation"] = json!(GENERATION + 1);
    for member in members.values_mut() {
        member.source_generation = GENERATION + 1;
    }
    changed["status"] = aggregate(&changed, &members);
    assert!(!judges::rollout(&changed), "no news is no progress: {changed:#}");
}

#[test]
fn a_move_keeps_it_available_and_ends_when_the_old_copy_is_gone() {
    let leaving = Copy { leaving: true, ..mk(3) };
    let arriving = Copy { updated: -3, replicas: -3, ready: -3, available: -3, is_available: false, ..mk(3) };
    let begun = Case::new("Deployment", &[leaving.clone(), arriving], Division::Exact, None).whole();
    assert!(judges::wait(&begun, "Available"), "the old copy serves: {begun:#}");
    assert!(!judges::rollout(&begun));
    let arrived = Case::new("Deployment", &[leaving, mk(3)], Division::Exact, None).whole();
    assert!(!judges::rollout(&arrived), "the old copy is still there: {arrived:#}");
    let done = Case::new("Deployment", &[mk(3)], Division::Exact, None).whole();
    assert!(judges::rollout(&done) && judges::kstatus(&done));
}
