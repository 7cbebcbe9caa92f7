//! The default: the namespaces of a workspace prefer one cluster.

use std::cmp::Reverse;

use crate::{
    decide::Confined,
    place::{Placed, Placer, is_indivisible},
    select::{Objection, Stance, Verdict},
};

/// Places a workload where it is, else at the workspace's home, else where it fits best. More than fits there goes to
/// others only where its pods reach each other, and never with names or volumes of their own.
pub fn place(placer: &Placer<'_>) -> (Placed, Option<Confined>) {
    let verdicts = &placer.verdicts.all;
    let first = primary(placer);
    let confined = first.and_then(|at| confined(placer, at));
    let others = |it: &&Verdict| Some(it.cluster) != first && it.stance() == Stance::Open;
    let mut order: Vec<&Verdict> =
        verdicts.iter().filter(|it| it.is_feasible() && it.stance() != Stance::Leaves).collect();
    let holds_all = |it: &Verdict| it.room.is_none_or(|room| room >= placer.total);
    order.sort_by_key(|it| {
        let is_first = Some(it.cluster) == first;
        (!is_first, !it.present, !holds_all(it), Reverse(it.score.total()), it.rank, it.cluster)
    });
    let reaches = |it: &Verdict| {
        confined.is_none() && placer.input.directory.entries()[it.cluster].cluster.network.reaches_others()
    };
    order.retain(|it| Some(it.cluster) == first || it.present || reaches(it));
    let leaving = verdicts.iter().filter(|it| it.is_feasible() && it.stance() == Stance::Leaves);
    order.extend(leaving);
    let mut placed = match is_indivisible(placer.input.subject) {
        true => placer.first_of(&order),
        // What is confined grows in its first cluster alone, or another would come to be that.
        false => placer.in_order(&order, |it| {
            confined.is_none() || Some(it.cluster) == first || it.stance() == Stance::Leaves
        }),
    };
    if !placed.chosen.contains(&true) {
        // Nothing is to run, or nothing can; the object is at its first cluster all the same.
        if let Some(at) = first.filter(|at| placer.total == 0 && verdicts[*at].stance() == Stance::Open) {
            placed.give(at, 0);
        }
    }
    let has_others = verdicts.iter().any(|it| others(&it));
    (placed, confined.filter(|_| has_others))
}

/// The cluster that has most of it, of those that may have more if there are such; else the home, else the best of those that can hold it.
fn primary(placer: &Placer<'_>) -> Option<usize> {
    let verdicts = &placer.verdicts.all;
    let present = verdicts.iter().filter(|it| placer.holds(it) && it.is_feasible());
    // What is in a volume is where it is, whatever became the home since.
    let has_volumes = |at: &usize| !matches!(verdicts[*at].objection, Some(Objection::ClaimElsewhere(_)));
    let home = placer.input.home.and_then(|name| placer.input.directory.position(name)).filter(has_volumes);
    let most = present.min_by_key(|it| {
        let leaves = it.stance() == Stance::Leaves;
        let keeps = it.stance() != Stance::Open;
        (leaves, keeps, Reverse(it.current), Some(it.cluster) != home, it.rank, it.cluster)
    });
    if let Some(most) = most.filter(|it| it.stance() != Stance::Leaves) {
        return Some(most.cluster);
    }
    if home.is_some() && most.is_none() {
        return home;
    }
    let open = verdicts.iter().filter(|it| it.stance() == Stance::Open);
    let best = open.min_by_key(|it| {
        let room = it.room.unwrap_or(u64::MAX).min(placer.total);
        (Reverse(room), Reverse(it.score.total()), it.rank, it.cluster)
    });
    best.or(most).map(|it| it.cluster)
}

/// Why it cannot be in other clusters than the first.
fn confined(placer: &Placer<'_>, first: usize) -> Option<Confined> {
    let subject = placer.input.subject;
    if subject.stateful {
        return Some(Confined::Stateful);
    }
    if subject.mounts_volumes && !placer.input.shared_volumes {
        return Some(Confined::Volumes);
    }
    let cluster = &placer.input.directory.entries()[first].cluster;
    (!cluster.network.reaches_others()).then(|| Confined::Network(cluster.name.to_string()))
}
