//! What came of a federated object, in KubeFed's words.

use api::assignment::{Assignment, Decision, Report, State, Target, reason};
use kinds::propagation::Pass;
use placement::{Choice, cluster::Labels, policy::Shares};
use serde_json::Value;

/// Statuses of a cluster.
pub mod status {
    pub const WAITING_FOR_REMOVAL: &str = "WaitingForRemoval";
    pub const NOT_READY: &str = "ClusterNotReady";
    pub const COMPUTE_FAILED: &str = "ComputeResourceFailed";
    pub const OVERRIDES_FAILED: &str = "ApplyOverridesFailed";
    pub const CREATION_FAILED: &str = "CreationFailed";
    pub const UPDATE_FAILED: &str = "UpdateFailed";
    pub const DELETION_FAILED: &str = "DeletionFailed";
    pub const ALREADY_EXISTS: &str = "AlreadyExists";
    pub const MANAGED_LABEL_FALSE: &str = "ManagedLabelFalse";
    pub const CREATION_TIMED_OUT: &str = "CreationTimedOut";
    pub const UPDATE_TIMED_OUT: &str = "UpdateTimedOut";
}

/// Reasons of the condition.
pub const CHECK_CLUSTERS: &str = "CheckClusters";
pub const COMPUTE_PLACEMENT_FAILED: &str = "ComputePlacementFailed";
pub const NAMESPACE_NOT_FEDERATED: &str = "NamespaceNotFederated";

/// A cluster that could have it.
#[derive(Clone, Debug)]
pub struct Member {
    pub name: String,
    pub labels: Labels,
    pub ready: bool,
}

/// All that a status is made of.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// Of the federated object.
    pub generation: i64,
    /// Of the plain object; 0: its kind has none.
    pub plain_generation: i64,
    /// Which edition the plain object is.
    pub edition: String,
    /// Where the plain object is to be.
    pub choice: &'a Choice,
    /// How it is divided among these; `None`: each has all of it.
    pub shares: Option<&'a Shares>,
    /// In which clusters something differs.
    pub overridden: Vec<String>,
    pub assignment: Option<&'a Assignment>,
    pub members: &'a [Member],
    /// The status of each copy is shown.
    pub collects: bool,
    /// What was said before.
    pub before: &'a Value,
    pub namespace_not_federated: bool,
}

/// What is to be written into the status of the federated object.
pub fn pass(facts: &Facts<'_>) -> Pass {
    let mut pass = Pass { generation: facts.generation, collect: facts.collects, ..Pass::default() };
    let mut under_way = false;
    let targets = facts.assignment.map(|it| it.spec.clusters.as_slice()).unwrap_or_default();
    for target in targets {
        let report = facts.assignment.and_then(|it| it.report(&target.uid));
        match said(facts, target, report) {
            Said::Nothing => continue,
            Said::Status(status) => drop(pass.clusters.insert(target.name.clone(), status.to_owned())),
            Said::UnderWay(status) => {
                under_way = true;
                let before = before(facts, &target.name).unwrap_or_else(|| status.to_owned());
                pass.clusters.insert(target.name.clone(), before);
            }
        }
        let remote = report.map(|it| &it.status).filter(|it| facts.collects && !it.is_null());
        if let Some(remote) = remote {
            pass.statuses.insert(target.name.clone(), remote.clone());
        }
    }
    for member in facts.members.iter().filter(|it| facts.choice.holds(&it.name, &it.labels)) {
        if targets.iter().any(|target| target.name == member.name) {
            continue;
        }
        match without(facts, member) {
            Said::Nothing => continue,
            Said::Status(status) => drop(pass.clusters.insert(member.name.clone(), status.to_owned())),
            Said::UnderWay(status) => {
                under_way = true;
                pass.clusters.insert(member.name.clone(), status.to_owned());
            }
        }
    }
    let observed = facts.before["observedGeneration"].as_i64().unwrap_or(0);
    if under_way {
        pass.generation = observed;
    }
    // What was written has come to its clusters. KubeFed says nothing of that where no status is collected.
    pass.updated = pass.generation > observed;
    let all_well = pass.clusters.values().all(String::is_empty);
    if facts.namespace_not_federated && all_well {
        pass.reason = NAMESPACE_NOT_FEDERATED.to_owned();
    }
    pass
}

/// What a verdict says of a cluster that was none of those which could have it when it was looked at.
pub const NOT_YET: [&str; 3] = ["NotChosen", "NotReady", "NoSuchCluster"];

/// What is said of a cluster that is chosen and is not to have it.
fn without(facts: &Facts<'_>, member: &Member) -> Said {
    let plan = facts.assignment.zip(facts.shares);
    if plan.is_some_and(|(assignment, shares)| is_left_out(assignment, shares, member)) {
        return Said::Nothing;
    }
    match (member.ready, facts.assignment) {
        (false, _) => Said::Status(status::NOT_READY),
        // The Assignment says why.
        (true, Some(assignment)) if was_decided(assignment, &member.name) => {
            Said::Status(status::CREATION_FAILED)
        }
        (true, _) => Said::UnderWay(status::CREATION_TIMED_OUT),
    }
}

/// Whether a plan has nothing for a cluster, as it should be: it could have something, or has no share in any case. One that
/// cannot be used now is missing only where some of it has no place.
fn is_left_out(assignment: &Assignment, shares: &Shares, member: &Member) -> bool {
    let has_share = shares.of(&member.name, &member.labels).is_some_and(|it| it.weight > 0 || it.min > 0);
    let decision = &assignment.spec.decision;
    if !member.ready {
        return !has_share || decision.pending == 0;
    }
    match decision.verdicts.iter().find(|it| it.cluster == member.name) {
        // What changes no share is not written down, such as that it has joined.
        None => true,
        Some(verdict) if NOT_YET.contains(&verdict.reason.as_str()) => false,
        Some(verdict) => verdict.feasible || !has_share,
    }
}

/// Whether a cluster that is chosen and ready by now was looked at as such, and is not to have it all the same. What was
/// decided before it was is decided anew in a moment.
fn was_decided(assignment: &Assignment, cluster: &str) -> bool {
    let verdicts = &assignment.spec.decision.verdicts;
    match verdicts.iter().find(|it| it.cluster == cluster) {
        Some(verdict) => !NOT_YET.contains(&verdict.reason.as_str()),
        // Of very many not all are written down.
        None => verdicts.len() >= Decision::MOST_VERDICTS,
    }
}

/// What the pass is if nothing can be made of what is written: every cluster that it is meant for says so. All is not well
/// either where it is meant for none.
pub fn failed(facts: &Facts<'_>, cluster_status: &str) -> Pass {
    let meant = facts.members.iter().filter(|it| facts.choice.holds(&it.name, &it.labels));
    Pass {
        generation: facts.generation,
        reason: CHECK_CLUSTERS.to_owned(),
        clusters: meant.map(|it| (it.name.clone(), cluster_status.to_owned())).collect(),
        ..Pass::default()
    }
}

enum Said {
    Nothing,
    Status(&'static str),
    /// It is about to be known; what was said before stays, or else this.
    UnderWay(&'static str),
}

fn before(facts: &Facts<'_>, cluster: &str) -> Option<String> {
    let clusters = facts.before["clusters"].as_array()?;
    let entry = clusters.iter().find(|it| it["name"] == cluster)?;
    Some(entry["status"].as_str().unwrap_or_default().to_owned())
}

fn said(facts: &Facts<'_>, target: &Target, report: Option<&Report>) -> Said {
    let is_ready = facts.members.iter().any(|it| it.name == target.name && it.ready);
    if target.state == State::Draining {
        return match report {
            Some(report) if report.is_gone() => Said::Nothing,
            Some(report) if report.reason == reason::REFUSED => Said::Status(status::DELETION_FAILED),
            _ => Said::Status(status::WAITING_FOR_REMOVAL),
        };
    }
    if !is_ready {
        return Said::Status(status::NOT_READY);
    }
    let Some(report) = report.filter(|it| !it.is_gone()) else {
        return Said::UnderWay(status::CREATION_TIMED_OUT);
    };
    let was_made = report.generation > 0;
    match report.reason.as_str() {
        _ if report.applied && is_level(facts, report) => Said::Status(""),
        _ if report.applied => Said::UnderWay(status::UPDATE_TIMED_OUT),
        reason::CONFLICT => Said::Status(status::ALREADY_EXISTS),
        reason::INVALID if facts.overridden.contains(&target.name) => Said::Status(status::OVERRIDES_FAILED),
        reason::INVALID => Said::Status(status::COMPUTE_FAILED),
        reason::REFUSED if was_made => Said::Status(status::UPDATE_FAILED),
        reason::REFUSED => Said::Status(status::CREATION_FAILED),
        status::MANAGED_LABEL_FALSE => Said::Status(status::MANAGED_LABEL_FALSE),
        // It is being deleted there, and made anew then.
        "" => Said::UnderWay(status::UPDATE_TIMED_OUT),
        _ if was_made => Said::Status(status::UPDATE_TIMED_OUT),
        _ => Said::Status(status::CREATION_TIMED_OUT),
    }
}

/// Whether it is about what the object is now.
fn is_level(facts: &Facts<'_>, report: &Report) -> bool {
    report.generation >= facts.plain_generation.max(1) && report.edition == facts.edition
}

#[cfg(test)]
mod tests {
    use api::assignment::{Spec, Status, Verdict};
    use placement::Preferences;
    use serde_json::json;

    use super::*;

    fn member(name: &str, ready: bool) -> Member {
        Member { name: name.into(), labels: Labels::default(), ready }
    }

    fn target(name: &str, state: State) -> Target {
        Target { name: name.into(), uid: name.into(), state, ..Target::default() }
    }

    fn report(name: &str, applied: bool, reason: &str, generation: i64) -> Report {
        Report {
            name: name.into(),
            uid: name.into(),
            applied,
            reason: reason.into(),
            generation,
            ..Report::default()
        }
    }

    /// What is said of a cluster with this state and report, where it was said before that all is well.
    fn one(state: State, ready: bool, report: Option<Report>) -> Option<String> {
        let assignment = Assignment {
            spec: Spec { clusters: vec![target("a", state)], ..Spec::default() },
            status: Status { clusters: report.into_iter().collect() },
        };
        let (members, before) = ([member("a", ready)], json!({"clusters": [{"name": "a"}]}));
        let choice = Choice::names(vec!["a".into()]);
        let facts = Facts {
            generation: 3,
            plain_generation: 2,
            edition: String::new(),
            choice: &choice,
            shares: None,
            overridden: vec!["a".into()],
            assignment: Some(&assignment),
            members: &members,
            collects: false,
            before: &before,
            namespace_not_federated: false,
        };
        pass(&facts).clusters.remove("a")
    }

    #[test]
    fn every_report_has_its_word() {
        use State::{Assigned, Draining};
        let rows = [
            (Assigned, true, Some(report("a", true, "", 2)), Some("")),
            (Assigned, true, Some(report("a", true, "", 1)), Some("")),
            (Assigned, true, None, Some("")),
            (Assigned, false, Some(report("a", true, "", 2)), Some("ClusterNotReady")),
            (Assigned, true, Some(report("a", false, "Conflict", 0)), Some("AlreadyExists")),
            (Assigned, true, Some(report("a", false, "Invalid", 1)), Some("ApplyOverridesFailed")),
            (Assigned, true, Some(report("a", false, "Refused", 0)), Some("CreationFailed")),
            (Assigned, true, Some(report("a", false, "Refused", 1)), Some("UpdateFailed")),
            (Assigned, true, Some(report("a", false, "ManagedLabelFalse", 1)), Some("ManagedLabelFalse")),
            (Assigned, true, Some(report("a", false, "Throttled", 1)), Some("UpdateTimedOut")),
            (Draining, true, Some(report("a", true, "", 1)), Some("WaitingForRemoval")),
            (Draining, true, Some(report("a", false, "Refused", 1)), Some("DeletionFailed")),
            (Draining, true, Some(report("a", false, "Gone", 0)), None),
        ];
        for (state, ready, report, expected) in rows {
            let shown = format!("{state:?} {report:?}");
            assert_eq!(one(state, ready, report).as_deref(), expected, "{shown}");
        }
    }

    #[test]
    fn what_is_not_known_yet_is_not_observed_and_chosen_clusters_that_lack_it_are_shown() {
        let members = [member("a", true), member("b", false), member("c", true)];
        let choice = Choice::names(vec!["a".into(), "b".into(), "ghost".into()]);
        let mut facts = Facts {
            generation: 3,
            plain_generation: 0,
            edition: String::new(),
            choice: &choice,
            shares: None,
            overridden: Vec::new(),
            assignment: None,
            members: &members,
            collects: false,
            before: &Value::Null,
            namespace_not_federated: false,
        };
        let early = pass(&facts);
        assert_eq!(early.generation, 0);
        let shown = |pass: &Pass| json!(pass.clusters);
        assert_eq!(shown(&early), json!({"a": "CreationTimedOut", "b": "ClusterNotReady"}));
        let assignment = Assignment {
            spec: Spec { clusters: vec![target("a", State::Assigned)], ..Spec::default() },
            status: Status { clusters: vec![report("a", true, "", 1)] },
        };
        facts.assignment = Some(&assignment);
        let later = pass(&facts);
        assert_eq!((later.generation, shown(&later)), (3, json!({"a": "", "b": "ClusterNotReady"})));
        assert!(!early.updated && later.updated);
    }

    /// Kinds without generations, and what differs in some clusters only.
    #[test]
    fn an_edition_that_has_not_come_to_its_clusters_is_not_observed() {
        let (members, choice) = ([member("a", true)], Choice::names(vec!["a".into()]));
        let said = |edition: &str| {
            let told = Report { edition: edition.into(), ..report("a", true, "", 1) };
            let assignment = Assignment {
                spec: Spec { clusters: vec![target("a", State::Assigned)], ..Spec::default() },
                status: Status { clusters: vec![told] },
            };
            let before = json!({"observedGeneration": 2, "clusters": [{"name": "a"}]});
            let facts = Facts {
                generation: 3,
                plain_generation: 0,
                edition: "new".to_owned(),
                choice: &choice,
                shares: None,
                overridden: Vec::new(),
                assignment: Some(&assignment),
                members: &members,
                collects: false,
                before: &before,
                namespace_not_federated: false,
            };
            let pass = pass(&facts);
            (pass.generation, pass.updated, pass.clusters["a"].clone())
        };
        assert_eq!(said("old"), (2, false, String::new()));
        assert_eq!(said("new"), (3, true, String::new()));
    }

    #[test]
    fn a_cluster_fails_to_get_it_only_if_that_was_decided_of_what_it_is_now() {
        let (members, choice) = ([member("a", true)], Choice::names(vec!["a".into()]));
        let said = |verdicts: &[(&str, &str)]| {
            let verdict = |(cluster, reason): &(&str, &str)| Verdict {
                cluster: (*cluster).into(),
                reason: (*reason).into(),
                ..Verdict::default()
            };
            let mut assignment = Assignment::default();
            assignment.spec.decision.verdicts = verdicts.iter().map(verdict).collect();
            let facts = Facts {
                generation: 3,
                plain_generation: 0,
                edition: String::new(),
                choice: &choice,
                shares: None,
                overridden: Vec::new(),
                assignment: Some(&assignment),
                members: &members,
                collects: false,
                before: &Value::Null,
                namespace_not_federated: false,
            };
            let pass = pass(&facts);
            (pass.generation, pass.clusters["a"].clone())
        };
        let under_way = (0, "CreationTimedOut".to_owned());
        assert_eq!(said(&[]), under_way, "it has just come");
        for before in ["NotChosen", "NotReady", "NoSuchCluster"] {
            assert_eq!(said(&[("a", before)]), under_way, "{before}");
        }
        assert_eq!(said(&[("a", "NoResource")]), (3, "CreationFailed".to_owned()));
        let very_many: Vec<String> = (0..Decision::MOST_VERDICTS).map(|it| format!("c-{it}")).collect();
        let very_many: Vec<(&str, &str)> = very_many.iter().map(|it| (it.as_str(), "")).collect();
        assert_eq!(said(&very_many), (3, "CreationFailed".to_owned()), "not all is written down");
    }

    #[test]
    fn what_nothing_can_be_made_of_is_not_well_though_it_is_meant_for_no_cluster() {
        let members = [member("a", true)];
        for (choice, shown) in
            [(Choice::every(), json!({"a": "ComputeResourceFailed"})), (Choice::nowhere(), json!({}))]
        {
            let facts = Facts {
                generation: 3,
                plain_generation: 0,
                edition: String::new(),
                choice: &choice,
                shares: None,
                overridden: Vec::new(),
                assignment: None,
                members: &members,
                collects: false,
                before: &Value::Null,
                namespace_not_federated: false,
            };
            let failed = failed(&facts, status::COMPUTE_FAILED);
            assert_eq!((json!(failed.clusters), failed.reason.as_str()), (shown, CHECK_CLUSTERS));
        }
    }

    /// Of the plan of a scheduling preference only what it needs can be missing.
    #[test]
    fn a_cluster_that_a_plan_has_nothing_for_has_not_failed() {
        let choice = Choice::every();
        let weights = json!({"clusters": {"a": {"weight": 1}, "b": {"weight": 2}, "c": {"weight": 0}}});
        let shares = Shares::from(&Preferences::parse(&weights.to_string()).unwrap());
        let said = |cluster: &str, ready: bool, feasible: bool, reason: &str, pending: u64| {
            let members = [member("a", true), member(cluster, ready)];
            let verdict =
                Verdict { cluster: cluster.into(), feasible, reason: reason.into(), ..Verdict::default() };
            let decision = Decision { pending, verdicts: vec![verdict], ..Decision::default() };
            let assignment = Assignment {
                spec: Spec { clusters: vec![target("a", State::Assigned)], decision, ..Spec::default() },
                status: Status { clusters: vec![report("a", true, "", 1)] },
            };
            let facts = Facts {
                generation: 3,
                plain_generation: 0,
                edition: String::new(),
                choice: &choice,
                shares: Some(&shares),
                overridden: Vec::new(),
                assignment: Some(&assignment),
                members: &members,
                collects: false,
                before: &Value::Null,
                namespace_not_federated: false,
            };
            pass(&facts).clusters.remove(cluster)
        };
        let rows = [
            // There are fewer replicas than clusters, or what runs stays where it is.
            (("b", true, true, "", 0), None),
            (("b", false, true, "", 0), None),
            (("b", true, false, "NoResource", 0), Some("CreationFailed")),
            (("b", true, false, "NotChosen", 0), Some("CreationTimedOut")),
            (("b", false, true, "", 3), Some("ClusterNotReady")),
            // It has no part in it, whether it is said or not.
            (("c", true, false, "NoResource", 3), None),
            (("d", true, false, "NoResource", 0), None),
            (("d", false, true, "", 3), None),
            (("d", true, false, "NotChosen", 0), Some("CreationTimedOut")),
        ];
        for ((cluster, ready, feasible, reason, pending), expected) in rows {
            let shown = format!("{cluster} {ready} {feasible} {reason} {pending}");
            assert_eq!(said(cluster, ready, feasible, reason, pending).as_deref(), expected, "{shown}");
        }
    }

    /// The time of the last update moves with it, and that of the last transition does not.
    #[test]
    fn what_has_come_to_its_clusters_is_an_update() {
        let (members, choice) = ([member("a", true)], Choice::names(vec!["a".into()]));
        let assignment = |generation| Assignment {
            spec: Spec { clusters: vec![target("a", State::Assigned)], ..Spec::default() },
            status: Status { clusters: vec![report("a", true, "", generation)] },
        };
        let mut status = json!({});
        // Of the federated object and of the plain one, what the cluster reported, and when it was last updated then.
        let rows = [(1, 1, 1, "10:00"), (1, 1, 1, "10:00"), (2, 2, 1, "10:00"), (2, 2, 2, "10:03")];
        for (minute, (generation, plain_generation, reported, updated)) in rows.into_iter().enumerate() {
            let assignment = assignment(reported);
            let before = status.clone();
            let facts = Facts {
                generation,
                plain_generation,
                edition: String::new(),
                choice: &choice,
                shares: None,
                overridden: Vec::new(),
                assignment: Some(&assignment),
                members: &members,
                collects: false,
                before: &before,
                namespace_not_federated: false,
            };
            kinds::propagation::update(&mut status, &pass(&facts), &format!("10:{minute:02}"));
            let condition = &status["conditions"][0];
            assert_eq!(condition["status"], "True");
            assert_eq!(
                (&condition["lastUpdateTime"], &condition["lastTransitionTime"]),
                (&json!(updated), &json!("10:00")),
                "{minute}"
            );
        }
    }

    #[test]
    fn a_namespace_that_is_not_federated_is_the_reason_if_nothing_else_is_wrong() {
        let choice = Choice::nowhere();
        let facts = Facts {
            generation: 1,
            plain_generation: 0,
            edition: String::new(),
            choice: &choice,
            shares: None,
            overridden: Vec::new(),
            assignment: None,
            members: &[],
            collects: false,
            before: &Value::Null,
            namespace_not_federated: true,
        };
        assert_eq!(pass(&facts).reason, NAMESPACE_NOT_FEDERATED);
    }
}
