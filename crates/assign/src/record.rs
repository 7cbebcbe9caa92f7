//! What is written down of a decision: the `spec` of an Assignment, of the one before it and of what clusters report.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use api::assignment::{
    Algorithm, Assignment, Decision as Reasons, Part, Reference, Report, Spec, State, Strategy, Target,
    Verdict,
};
use kinds::{Share, Split, Subject};
use placement::{ClusterVerdict, Decision, Explanation, Layer, Outcome};
use serde_json::Value;

/// What is assigned now, without clusters that are to lose it or are not there any more.
pub fn staying(assignment: &Assignment, is_joined: impl Fn(&str) -> bool) -> BTreeMap<String, Share> {
    let targets = assignment.spec.clusters.iter();
    let staying = targets.filter(|target| target.state != State::Draining && is_joined(&target.uid));
    staying.map(|target| (target.name.clone(), share(target))).collect()
}

/// Where there may be copies.
pub fn placed(assignment: &Assignment) -> BTreeMap<String, Share> {
    assignment.spec.clusters.iter().map(|target| (target.name.clone(), share(target))).collect()
}

/// What a cluster is to have.
pub fn share(target: &Target) -> Share {
    Share {
        replicas: target.replicas.unwrap_or(0),
        overflow: target.overflow,
        completions: target.completions,
        run: target.run,
        ordinals: target.first_ordinal,
        min: target.min,
        max: target.max,
    }
}

/// How many pods each cluster has nodes for that had none for others for long.
pub fn fits(assignment: &Assignment) -> BTreeMap<String, u64> {
    let of = |target: &Target| Some((target.name.clone(), reported(assignment, target)?.fits?));
    assignment.spec.clusters.iter().filter_map(of).collect()
}

/// What a cluster says of the copy that it is to have now.
pub fn reported<'a>(assignment: &'a Assignment, target: &Target) -> Option<&'a Report> {
    assignment.report(&target.uid).filter(|report| report.run == target.run)
}

/// The clusters that have done their part of a Job.
pub fn idle(assignment: &Assignment) -> BTreeSet<String> {
    let targets = assignment.spec.clusters.iter();
    let done =
        targets.filter(|it| reported(assignment, it).is_some_and(|report| is_complete(&report.status)));
    done.map(|target| target.name.clone()).collect()
}

/// Whether clusters are asked for more than they have nodes for.
pub fn asks_for_more(assignment: &Assignment) -> bool {
    assignment.spec.clusters.iter().any(|it| it.overflow > 0)
}

/// Whether clusters say, or have stopped to say, something that shares depend on: that they have no nodes for more, or are
/// done with their part.
pub fn may_be_divided_anew(assignment: &Assignment) -> bool {
    let is_about_room =
        || asks_for_more(assignment) || assignment.status.clusters.iter().any(|it| it.fits.is_some());
    let has_parts = assignment.spec.clusters.iter().any(|it| it.completions.is_some());
    is_about_room() || (has_parts && !idle(assignment).is_empty())
}

/// Whether a copy of a Job has done what it was to do.
pub fn is_complete(status: &Value) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|it| it["type"] == "Complete" && it["status"] == "True")
}

/// What was done of a Job by copies that are not there any more, or are about to be followed by others: nobody is to do
/// it again.
pub fn finished(
    old: &Assignment,
    is_joined: impl Fn(&str) -> bool,
    shares: &BTreeMap<String, Share>,
) -> Vec<Part> {
    let mut parts = parts_of(old);
    // What is on its way out others do already.
    for target in old.spec.clusters.iter().filter(|it| it.state != State::Draining) {
        let Some(completions) = target.completions else { continue };
        let report = reported(old, target);
        let is_followed = shares.get(&target.name).is_some_and(|share| share.run > target.run);
        let done = match is_joined(&target.uid) {
            false => report.and_then(|it| it.status["succeeded"].as_u64()).unwrap_or(0).min(completions),
            true if is_followed => completions,
            true => 0,
        };
        // Of a cluster that is not joined any more there may be a copy all the same, which must not be taken for another.
        if done > 0 || !is_joined(&target.uid) {
            let part = parts.entry(target.name.clone()).or_default();
            part.completions += done;
            part.run = part.run.max(target.run);
        }
    }
    parts.into_iter().map(|(cluster, part)| Part { cluster, ..part }).collect()
}

fn parts_of(assignment: &Assignment) -> BTreeMap<String, Part> {
    assignment.spec.finished.iter().map(|it| (it.cluster.clone(), it.clone())).collect()
}

/// The clusters of a new decision. Those that it does not name any more are left while there may be a copy, as
/// draining; `uid` answers which cluster a name is.
pub fn targets(
    old: Option<&Assignment>,
    shares: &BTreeMap<String, Share>,
    counts: bool,
    uid: impl Fn(&str) -> Option<String>,
    is_joined: impl Fn(&str) -> bool,
) -> Vec<Target> {
    let before: &[Target] = old.map(|old| old.spec.clusters.as_slice()).unwrap_or_default();
    let mut targets: Vec<Target> = Vec::new();
    for (name, share) in shares {
        let was = before.iter().find(|it| it.name == *name && is_joined(&it.uid));
        // It is the one it was, as long as that is joined, whatever else has its name now.
        let Some(uid) = was.map(|was| was.uid.clone()).or_else(|| uid(name)) else { continue };
        targets.push(Target {
            name: name.clone(),
            uid,
            state: State::Assigned,
            replicas: counts.then_some(share.replicas),
            overflow: share.overflow,
            completions: share.completions,
            run: share.run,
            first_ordinal: share.ordinals,
            min: share.min,
            max: share.max,
        });
    }
    for was in before {
        let is_kept = targets.iter().any(|target| target.name == was.name && target.uid == was.uid);
        let is_gone = old.and_then(|old| old.report(&was.uid)).is_some_and(|report| report.is_gone());
        // Two of one name cannot both be listed; the former one is not this hub's any more.
        let is_replaced = targets.iter().any(|target| target.name == was.name);
        if is_kept || is_replaced || !is_joined(&was.uid) || (was.state == State::Draining && is_gone) {
            continue;
        }
        targets.push(Target { state: State::Draining, ..was.clone() });
    }
    targets.sort_by(|a, b| a.name.cmp(&b.name));
    targets
}

/// What there may be of a copy where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// All of it.
    Something,
    /// The cluster says that it is gone.
    Nothing,
    /// Whatever it is, it is nobody's: the cluster was unjoined, or is not waited for as the whole workspace goes.
    Nobodys,
}

/// Whether a cluster that had an object in one state may have it in the other; `None`: it has not. Everything begins as
/// assigned, may be called back as long as it is there, and ends by draining.
pub fn is_legal(from: Option<State>, to: Option<State>, left: Left) -> bool {
    match (from, to) {
        (None, Some(to)) => to == State::Assigned,
        (Some(State::Draining), None) => left != Left::Something,
        (Some(State::Assigned | State::Ready), None) => left == Left::Nobodys,
        (Some(_), Some(_)) | (None, None) => true,
    }
}

/// The first cluster whose state would change as it must not, in words. All of an Assignment that is being deleted drains.
pub fn illegal(
    old: Option<&Assignment>,
    new: &Assignment,
    deleting: bool,
    left: impl Fn(&Target) -> Left,
) -> Option<String> {
    let state = |assignment: &Assignment, target: &Target| match deleting {
        true => State::Draining,
        false => assignment.state(target),
    };
    let before: &[Target] = old.map(|old| old.spec.clusters.as_slice()).unwrap_or_default();
    let find = |targets: &[Target], uid: &str| targets.iter().position(|target| target.uid == uid);
    let steps = before.iter().map(|was| {
        let is = find(&new.spec.clusters, &was.uid).map(|at| state(new, &new.spec.clusters[at]));
        (was, old.map(|old| state(old, was)), is)
    });
    let begun = new.spec.clusters.iter().filter(|is| find(before, &is.uid).is_none());
    let mut steps = steps.chain(begun.map(|is| (is, None, Some(state(new, is)))));
    let found = steps.find(|(target, from, to)| !is_legal(*from, *to, left(target)));
    let word = |state: Option<State>| state.map_or_else(|| "Absent".to_owned(), |state| format!("{state:?}"));
    found.map(|(target, from, to)| format!("{} cannot go from {} to {}", target.name, word(from), word(to)))
}

/// What there may be of a copy, by what its cluster says of it.
pub fn left(old: &Assignment, target: &Target, is_joined: bool) -> Left {
    match old.report(&target.uid) {
        _ if !is_joined => Left::Nobodys,
        Some(report) if report.is_gone() => Left::Nothing,
        _ => Left::Something,
    }
}

/// Whether shares of an object say how many replicas a cluster has.
pub fn counts(subject: &Subject) -> bool {
    subject.replicas.is_some() || subject.splits == Split::Budget
}

pub fn reasons(decision: &Decision, explanation: &Explanation) -> Reasons {
    let mut message = match decision.outcome {
        Outcome::Placed if !decision.is_unplaced && decision.pending == 0 => String::new(),
        _ => explanation.summary.clone(),
    };
    if !message.is_empty() {
        for remark in &explanation.remarks {
            message.push_str("; ");
            message.push_str(remark);
        }
        // Whoever wonders where to look is told whose word it was.
        if decision.layer != Layer::Default {
            let policy = if explanation.policy.is_empty() {
                String::new()
            } else {
                format!(", {}", explanation.policy)
            };
            message.push_str(&format!("; decided by {}{policy}", explanation.layer));
        }
    }
    message.truncate(message.floor_char_boundary(4096));
    Reasons {
        layer: format!("{:?}", decision.layer),
        policy: decision.source.clone(),
        strategy: decision.strategy.map(|strategy| match strategy {
            placement::Strategy::Single => Strategy::Single,
            placement::Strategy::Duplicate => Strategy::Duplicate,
            placement::Strategy::Divide => Strategy::Divide,
        }),
        // Hardly any is divided so, and what goes without saying is not written with all others.
        algorithm: (decision.algorithm == kinds::divide::Algorithm::Federation)
            .then_some(Algorithm::Federation),
        message,
        pending: decision.pending,
        verdicts: verdicts(explanation),
    }
}

/// Of so many clusters as can be it is written down what was found of them: those that have it, and of the others one for
/// each reason at least. Scores are not among it: they change with the room there is, and nothing is to be written for that.
fn verdicts(explanation: &Explanation) -> Vec<Verdict> {
    let mut told: HashSet<&str> = HashSet::new();
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    for cluster in &explanation.clusters {
        let is_new = !cluster.reason.is_empty() && told.insert(&cluster.reason);
        if cluster.assigned || is_new { first.push(cluster) } else { rest.push(cluster) }
    }
    let chosen = first.into_iter().chain(rest).take(Reasons::MOST_VERDICTS);
    let mut verdicts: Vec<Verdict> = chosen
        .map(|cluster| {
            let change =
                if cluster.change.is_empty() { String::new() } else { format!("; {}", cluster.change) };
            Verdict {
                cluster: cluster.cluster.clone(),
                feasible: matches!(cluster.verdict, ClusterVerdict::Feasible | ClusterVerdict::Keeps),
                reason: cluster.word.clone(),
                message: format!("{}{change}", cluster.reason),
                score: None,
            }
        })
        .collect();
    verdicts.sort_by(|a, b| a.cluster.cmp(&b.cluster));
    verdicts
}

/// The whole of it.
pub fn spec(reference: Reference, clusters: Vec<Target>, decision: Reasons) -> Spec {
    Spec { object: reference, clusters, decision, ..Spec::default() }
}

#[cfg(test)]
mod tests {
    use api::assignment::{Status, reason};

    use super::*;

    fn assignment(targets: &[(&str, State)], gone: &[&str]) -> Assignment {
        let clusters = targets.iter().map(|(name, state)| Target {
            name: (*name).to_owned(),
            uid: format!("uid-{name}"),
            state: *state,
            replicas: Some(3),
            ..Target::default()
        });
        let reports = gone.iter().map(|name| Report {
            name: (*name).to_owned(),
            uid: format!("uid-{name}"),
            reason: reason::GONE.to_owned(),
            ..Report::default()
        });
        Assignment {
            spec: Spec { clusters: clusters.collect(), ..Spec::default() },
            status: Status { clusters: reports.collect() },
        }
    }

    fn after(old: Option<&Assignment>, wanted: &[&str], joined: &[&str]) -> Vec<(String, State)> {
        let shares = wanted.iter().map(|name| ((*name).to_owned(), Share::default())).collect();
        let is_joined = |uid: &str| joined.iter().any(|name| uid == format!("uid-{name}"));
        let uid = |name: &str| joined.contains(&name).then(|| format!("uid-{name}"));
        let targets = targets(old, &shares, true, uid, is_joined);
        targets.into_iter().map(|target| (target.name, target.state)).collect()
    }

    #[test]
    fn a_cluster_goes_when_its_copy_is_gone_and_not_before() {
        use State::{Assigned, Draining};
        let named = |expected: &[(&str, State)]| -> Vec<(String, State)> {
            expected.iter().map(|(name, state)| ((*name).to_owned(), *state)).collect()
        };
        let all = ["a", "b"];
        assert_eq!(after(None, &["a"], &all), named(&[("a", Assigned)]));
        let there = assignment(&[("a", Assigned)], &[]);
        assert_eq!(after(Some(&there), &["b"], &all), named(&[("a", Draining), ("b", Assigned)]));
        let draining = assignment(&[("a", Draining), ("b", Assigned)], &[]);
        assert_eq!(after(Some(&draining), &["b"], &all), named(&[("a", Draining), ("b", Assigned)]));
        assert_eq!(
            after(Some(&draining), &["a"], &all),
            named(&[("a", Assigned), ("b", Draining)]),
            "called back"
        );
        let gone = assignment(&[("a", Draining), ("b", Assigned)], &["a"]);
        assert_eq!(after(Some(&gone), &["b"], &all), named(&[("b", Assigned)]));
        let came_back = assignment(&[("a", Assigned)], &["a"]);
        assert_eq!(
            after(Some(&came_back), &["b"], &all),
            named(&[("a", Draining), ("b", Assigned)]),
            "it may be made anew"
        );
    }

    #[test]
    fn states_change_along_their_arrows_only() {
        use Left::{Nobodys, Nothing, Something};
        use State::{Assigned, Draining, Ready};
        const ABSENT: Option<State> = None;
        let states = [ABSENT, Some(Assigned), Some(Ready), Some(Draining)];
        // from, to, what may be left there
        let legal = [
            (ABSENT, Some(Assigned), Something),
            (Some(Assigned), Some(Ready), Something),
            (Some(Ready), Some(Assigned), Something),
            (Some(Assigned), Some(Draining), Something),
            (Some(Ready), Some(Draining), Something),
            // Called back, whether it runs still or not.
            (Some(Draining), Some(Assigned), Something),
            (Some(Draining), Some(Ready), Something),
            (Some(Draining), ABSENT, Nothing),
            (Some(Draining), ABSENT, Nobodys),
            (Some(Assigned), ABSENT, Nobodys),
            (Some(Ready), ABSENT, Nobodys),
        ];
        for from in states {
            for to in states {
                for left in [Something, Nothing, Nobodys] {
                    let is_row = |row: &(Option<State>, Option<State>, Left)| {
                        (row.0, row.1) == (from, to) && (row.2 == left || row.2 == Something)
                    };
                    let expected = from == to || legal.iter().any(is_row);
                    assert_eq!(is_legal(from, to, left), expected, "{from:?} to {to:?}, {left:?} left");
                }
            }
        }
    }

    #[test]
    fn what_would_skip_a_state_is_named() {
        let something = |_: &Target| Left::Something;
        let ready = |name: &str| {
            let mut there = assignment(&[(name, State::Assigned)], &[]);
            let target = &there.spec.clusters[0];
            there.status.clusters.push(Report {
                name: target.name.clone(),
                uid: target.uid.clone(),
                ready: true,
                ..Report::default()
            });
            there
        };
        let nowhere = Assignment::default();
        let told = |old: &Assignment, new: &Assignment| illegal(Some(old), new, false, something);
        assert_eq!(told(&ready("a"), &nowhere).as_deref(), Some("a cannot go from Ready to Absent"));
        assert_eq!(told(&nowhere, &ready("a")).as_deref(), Some("a cannot go from Absent to Ready"));
        let draining = assignment(&[("a", State::Draining)], &[]);
        assert_eq!(told(&draining, &nowhere).as_deref(), Some("a cannot go from Draining to Absent"));
        assert_eq!(told(&draining, &ready("a")), None);
        let assigned = assignment(&[("a", State::Assigned)], &[]);
        assert_eq!(illegal(None, &assigned, false, something), None);
        // Of what is being deleted, each goes when it is gone, and none before.
        let gone = |target: &Target| left(&assignment(&[], &["a"]), target, true);
        assert_eq!(illegal(Some(&assigned), &nowhere, true, gone), None);
        assert!(illegal(Some(&assigned), &nowhere, true, something).is_some());
        assert!(illegal(Some(&assigned), &nowhere, false, gone).is_some(), "it is to be there");
        assert_eq!(left(&assigned, &assigned.spec.clusters[0], false), Left::Nobodys);
    }

    #[test]
    fn a_cluster_that_was_unjoined_is_not_waited_for() {
        let there = assignment(&[("a", State::Assigned), ("b", State::Draining)], &[]);
        assert_eq!(after(Some(&there), &["c"], &["c"]), [("c".to_owned(), State::Assigned)]);
        assert!(staying(&there, |_| false).is_empty());
        assert_eq!(staying(&there, |_| true).len(), 1);
    }

    #[test]
    fn what_copies_did_that_are_gone_is_not_forgotten() {
        let target = |name: &str, completions: u64, run: u64| Target {
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            completions: Some(completions),
            run,
            ..Target::default()
        };
        let report = |name: &str, succeeded: u64, run: u64| Report {
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            run,
            status: serde_json::json!({
                "succeeded": succeeded, "conditions": [{"type": "Complete", "status": "True"}],
            }),
            ..Report::default()
        };
        let old = Assignment {
            spec: Spec {
                clusters: vec![target("a", 4, 0), target("b", 3, 0), target("c", 2, 1)],
                finished: vec![Part { cluster: "c".to_owned(), completions: 5, run: 0 }],
                ..Spec::default()
            },
            status: Status { clusters: vec![report("a", 4, 0), report("b", 2, 0), report("c", 5, 0)] },
        };
        let done = |joined: &[&str], runs: &[(&str, u64)]| -> Vec<(String, u64)> {
            let is_joined = |uid: &str| joined.iter().any(|name| uid == format!("uid-{name}"));
            let share = |run| Share { run, ..Share::default() };
            let shares = runs.iter().map(|(name, run)| ((*name).to_owned(), share(*run))).collect();
            finished(&old, is_joined, &shares).into_iter().map(|it| (it.cluster, it.completions)).collect()
        };
        let named = |parts: &[(&str, u64)]| -> Vec<(String, u64)> {
            parts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
        };
        assert_eq!(done(&["a", "b", "c"], &[]), named(&[("c", 5)]));
        assert_eq!(done(&["a", "c"], &[("a", 0)]), named(&[("b", 2), ("c", 5)]));
        assert_eq!(done(&["a", "c"], &[("a", 1)]), named(&[("a", 4), ("b", 2), ("c", 5)]));
        assert_eq!(done(&["a", "b"], &[]), named(&[("c", 5)]), "what was said is of the copy before");
        assert_eq!(idle(&old), BTreeSet::from(["a", "b"].map(str::to_owned)));
    }
}
