//! Makes what cannot be explained small enough to be read.
//!
//! Each step leaves out something that any explanation of the whole would explain as well, so what is left is evidence
//! by itself: the end of the history, whole objects, all that came before a moment at which nothing was under way,
//! single reads and refusals.

use std::collections::BTreeSet;

use super::{
    Action, Op, Outcome, Violation,
    rules::Revisions,
    search::{Cell, Effort, Objects, Problem, Verdict},
};

/// Evidence is to come in seconds: what it has not been made smaller by then, it stays.
const EFFORT: u64 = 100_000_000;
/// Of longer evidence only the end is shown.
const SHOWN: usize = 40;

pub(super) const UNDECIDED: &str = "undecided: there are too many orders to try";

/// # Errors
/// No order explains these operations, or there are too many to try.
pub(super) fn explain(ops: &[Op], revisions: &Revisions) -> Result<(), Violation> {
    let problem = Problem::new(&ops.iter().collect::<Vec<_>>(), revisions, 0);
    match problem.solve(&vec![None; problem.keys.len()], &Effort::any()) {
        Verdict::Explained => Ok(()),
        Verdict::Undecided => Err(Violation {
            rule: UNDECIDED,
            evidence: format!("{} operations on {}", ops.len(), problem.keys.join(", ")),
        }),
        Verdict::Unexplained { stuck } => Err(evidence(ops, revisions, stuck, &Effort::new(EFFORT))),
    }
}

pub(super) fn evidence(ops: &[Op], revisions: &Revisions, stuck: String, effort: &Effort) -> Violation {
    let mut piece = Piece { ops: ops.to_vec(), cut: None, revisions, stuck, effort };
    piece.drop_end();
    piece.drop_objects();
    piece.drop_beginning();
    piece.drop_reads();
    let mut ops: Vec<&Op> = piece.ops.iter().filter(|op| !op.is_void()).collect();
    ops.sort_by_key(|op| op.called);
    let hidden = ops.len().saturating_sub(SHOWN);
    let mut evidence = String::new();
    if let Some(cut) = &piece.cut {
        evidence.push_str(&format!("from whatever was there at {}:\n", cut.time));
    }
    if hidden > 0 {
        evidence.push_str(&format!("({hidden} earlier operations)\n"));
    }
    ops[hidden..].iter().for_each(|op| evidence.push_str(&format!("{op}\n")));
    evidence.push_str(&piece.stuck);
    if effort.is_spent() {
        evidence.push_str("\n(it may be more than is needed: not everything was tried to leave it out)");
    }
    Violation { rule: "no order of the operations explains the answers", evidence }
}

/// A moment at which no operation with a known outcome was under way, and all that one object can have been then.
#[derive(Clone)]
struct Cut {
    time: u64,
    /// With the first revision after it.
    starts: Vec<(Option<Cell>, u64)>,
}

#[derive(Clone)]
struct Piece<'a> {
    ops: Vec<Op>,
    cut: Option<Cut>,
    revisions: &'a Revisions,
    /// What no order of it gets beyond.
    stuck: String,
    effort: &'a Effort,
}

impl Piece<'_> {
    /// What no order gets beyond; `None` if there is one that explains all, or nothing is left to look for it with.
    fn find_stuck(&self) -> Option<String> {
        let no_cut = Cut { time: 0, starts: vec![(None, 0)] };
        let mut last = String::new();
        for (start, since) in &self.cut.as_ref().unwrap_or(&no_cut).starts {
            self.effort.spend(self.ops.len().max(1));
            if self.effort.is_spent() {
                return None;
            }
            let is_past = |op: &&Op| op.is_unknown() && self.revisions.of(op).is_some_and(|at| at < *since);
            let ops: Vec<&Op> = self.ops.iter().filter(|op| !is_past(op)).collect();
            let problem = Problem::new(&ops, self.revisions, *since);
            let objects: Objects = vec![*start; problem.keys.len()];
            let Verdict::Unexplained { stuck } = problem.solve(&objects, self.effort) else { return None };
            last = stuck;
        }
        Some(last)
    }

    /// Takes the other instead if it is evidence too.
    fn try_instead(&mut self, other: Self) -> bool {
        let Some(stuck) = other.find_stuck() else { return false };
        *self = Piece { stuck, ..other };
        true
    }

    /// As it was at a time: what was under way then had no answer yet.
    fn until(&self, time: u64) -> Self {
        let mut ops: Vec<Op> = self.ops.iter().filter(|op| op.called <= time).cloned().collect();
        ops.iter_mut().filter(|op| op.answered > time).for_each(|op| op.outcome = Outcome::Unknown);
        Piece { ops, ..self.clone() }
    }

    fn drop_end(&mut self) {
        let mut times: Vec<u64> = self.ops.iter().map(|op| op.answered).collect();
        times.sort_unstable();
        // What has an explanation has one at any earlier time too.
        let first = times.partition_point(|time| self.until(*time).find_stuck().is_none());
        if let Some(time) = times.get(first) {
            let shorter = self.until(*time);
            self.try_instead(shorter);
        }
    }

    fn drop_objects(&mut self) {
        let keys: BTreeSet<String> = self.ops.iter().map(|op| op.key.clone()).collect();
        for key in keys.iter().filter(|key| !key.is_empty()) {
            let mut other = self.clone();
            other.ops.retain(|op| op.key != *key);
            for op in &mut other.ops {
                if let Outcome::Listed { items, .. } = &mut op.outcome {
                    items.remove(key);
                }
            }
            self.try_instead(other);
        }
    }

    fn drop_beginning(&mut self) {
        let named = self.ops.iter().map(|op| op.key.as_str()).filter(|key| !key.is_empty());
        if named.collect::<BTreeSet<_>>().len() != 1 {
            return;
        }
        let is_quiet =
            |time: u64| self.ops.iter().all(|op| op.is_unknown() || op.answered < time || op.called >= time);
        let effort = self.effort;
        let mut times: Vec<u64> =
            self.ops.iter().map(|op| op.called).filter(|time| is_quiet(*time)).collect();
        times.sort_unstable();
        for time in times.into_iter().rev().take_while(|_| !effort.is_spent()) {
            let other = self.since(time);
            if self.try_instead(other) {
                return;
            }
        }
    }

    fn since(&self, time: u64) -> Self {
        let mut ops = self.ops.clone();
        ops.retain(|op| op.called >= time || (op.is_unknown() && op.action.is_write()));
        let key = self.ops.iter().map(|op| op.key.as_str()).find(|key| !key.is_empty()).unwrap_or_default();
        let deletions = self.revisions.deletions(key).unwrap_or_default();
        let mut starts: Vec<(Option<Cell>, u64)> = deletions.iter().map(|at| (None, *at + 1)).collect();
        starts.push((None, 0));
        for op in self.ops.iter().filter(|op| op.called < time && op.action.is_write()) {
            starts.extend(self.made_by(op).map(|(cell, since)| (Some(cell), since)));
        }
        self.effort.spend(starts.len());
        Piece { ops, cut: Some(Cut { time, starts }), ..self.clone() }
    }

    /// All that a write can have made of the object.
    fn made_by(&self, op: &Op) -> impl Iterator<Item = (Cell, u64)> {
        let revision = self.revisions.of(op);
        let since = revision.map_or(0, |revision| revision + 1);
        let puts: Vec<u64> = match op.action {
            Action::Create | Action::Update { .. } => vec![op.id],
            Action::Patch => {
                let is_put = |op: &&Op| matches!(op.action, Action::Create | Action::Update { .. });
                self.ops.iter().filter(is_put).map(|op| op.id).collect()
            }
            _ => Vec::new(),
        };
        let patch = (op.action == Action::Patch).then_some(op.id);
        puts.into_iter().map(move |put| (Cell { content: super::Content { put, patch }, revision }, since))
    }

    fn drop_reads(&mut self) {
        let mut index = 0;
        while let Some(op) = self.ops.get(index).filter(|_| !self.effort.is_spent()) {
            let mut other = self.clone();
            let droppable = !op.action.is_write() || matches!(op.outcome, Outcome::Refused(_));
            other.ops.remove(index);
            if !droppable || !self.try_instead(other) {
                index += 1;
            }
        }
    }
}
