//! Is there one order of the operations, each between its call and its answer, in which every answer is right?
//!
//! Depth first, as Wing and Gong do it and with Lowe's memory of states that led nowhere. Two things keep it short.
//! Where the revision of a write is known, its place among such writes is given. And what changes nothing is taken
//! as soon as it fits: if any order goes on from here, the one with it in front does as well. Writes of unknown outcome
//! that nobody saw are left for later while that is possible: a state reached with fewer of them can do all that the
//! same state can that has used more.

use std::{
    cell::Cell as Counter,
    collections::{BTreeMap, HashMap, HashSet},
};

use super::{Action, Content, Op, OpId, Outcome, Refusal, Seen, rules::Revisions};

/// An object in the search: what it is, and its revision where anybody was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Cell {
    pub content: Content,
    pub revision: Option<u64>,
}

/// Where a search begins: objects, in the order of their names in the problem.
pub(super) type Objects = Vec<Option<Cell>>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    objects: Objects,
    /// How many of the steps at known revisions are taken.
    taken: usize,
}

/// A change whose revision is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Write(usize),
    /// Of this object, by whichever delete.
    Deletion(usize),
}

pub(super) struct Problem<'a> {
    /// In the order of their calls.
    ops: Vec<&'a Op>,
    /// The object of each operation; 0 for lists, which concern all.
    objects_of: Vec<usize>,
    pub keys: Vec<&'a str>,
    revisions: Vec<Option<u64>>,
    known: Vec<(u64, Known)>,
    /// Writes whose content appears in an answer.
    seen_writers: HashSet<OpId>,
    deletions_are_known: bool,
}

pub(super) enum Verdict {
    Explained,
    /// No order; the furthest that any came, and what could not be placed there.
    Unexplained {
        stuck: String,
    },
    /// Too many orders to try.
    Undecided,
}

/// States tried before giving up.
const BUDGET: usize = 200_000;

/// What is left to be spent on searches, in operations looked at. Counted rather than timed, so that the same history
/// gets the same verdict on every machine.
pub(super) struct Effort(Counter<u64>);

impl Effort {
    pub fn new(most: u64) -> Effort {
        Effort(Counter::new(most))
    }

    /// As much as it takes: the search has its own bound.
    pub fn any() -> Effort {
        Effort::new(u64::MAX)
    }

    pub fn spend(&self, looks: usize) {
        self.0.set(self.0.get().saturating_sub(looks as u64));
    }

    pub fn is_spent(&self) -> bool {
        self.0.get() == 0
    }
}

/// In place of any writer whose content is in no answer.
const UNSEEN: OpId = OpId::MAX;

/// States that led nowhere, each with the sets of unknown operations it was reached with.
#[derive(Default)]
struct Tried {
    states: HashMap<(Placed, State), Vec<Placed>>,
    count: usize,
}

impl Tried {
    fn is_new(&mut self, placed: &Placed, state: &State, used: &Placed) -> bool {
        let reached = self.states.entry((placed.clone(), state.clone())).or_default();
        if reached.iter().any(|fewer| fewer.is_within(used)) {
            return false;
        }
        reached.retain(|more| !used.is_within(more));
        reached.push(used.clone());
        self.count += 1;
        true
    }
}

/// A set of operations by their place.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Placed(Vec<u64>);

impl Placed {
    fn none(count: usize) -> Placed {
        Placed(vec![0; count.div_ceil(64)])
    }

    fn contains(&self, index: usize) -> bool {
        self.0[index / 64] & (1 << (index % 64)) != 0
    }

    fn insert(&mut self, index: usize) {
        self.0[index / 64] |= 1 << (index % 64);
    }

    fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    fn is_within(&self, other: &Placed) -> bool {
        self.0.iter().zip(&other.0).all(|(mine, theirs)| mine & !theirs == 0)
    }
}

fn writers_shown(op: &Op) -> Vec<OpId> {
    let of = |seen: &Seen| [Some(seen.content.put), seen.content.patch];
    match &op.outcome {
        Outcome::Written(seen) | Outcome::Read(Some(seen)) => of(seen).into_iter().flatten().collect(),
        Outcome::Listed { items, .. } => items.values().flat_map(of).flatten().collect(),
        _ => Vec::new(),
    }
}

/// One point of the search: what is placed, and which operations may be tried next.
struct Point {
    /// Those whose outcome is known.
    placed: Placed,
    /// Those whose outcome is not, as far as they were needed.
    used: Placed,
    state: State,
    candidates: Vec<usize>,
}

impl<'a> Problem<'a> {
    /// Only what begins at or after `since` in the order of known revisions is placed; the rest was before.
    pub fn new(ops: &[&'a Op], revisions: &Revisions, since: u64) -> Problem<'a> {
        let concern = |op: &&&Op| !op.is_void() && !revisions.never_happened(op);
        let mut ops: Vec<&Op> = ops.iter().filter(concern).copied().collect();
        ops.sort_by_key(|op| op.called);
        let listed = |op: &&'a Op| match &op.outcome {
            Outcome::Listed { items, .. } => items.keys().map(String::as_str).collect::<Vec<_>>(),
            _ => Vec::new(),
        };
        let named = ops.iter().filter(|op| !op.key.is_empty()).map(|op| op.key.as_str());
        let mut keys: Vec<&str> = named.chain(ops.iter().flat_map(listed)).collect();
        keys.sort_unstable();
        keys.dedup();
        let object = |key: &str| keys.binary_search(&key).unwrap_or(0);
        let objects_of: Vec<usize> = ops.iter().map(|op| object(&op.key)).collect();
        let of_ops: Vec<Option<u64>> =
            ops.iter().map(|op| if op.action.is_write() { revisions.of(op) } else { None }).collect();
        let written = of_ops.iter().enumerate().filter_map(|(at, it)| Some(((*it)?, Known::Write(at))));
        let deleted = keys.iter().enumerate().flat_map(|(object, key)| {
            revisions.deletions(key).unwrap_or_default().iter().map(move |at| (*at, Known::Deletion(object)))
        });
        let mut known: Vec<(u64, Known)> = written.chain(deleted).filter(|(at, _)| *at >= since).collect();
        known.sort_by_key(|(revision, _)| *revision);
        let deletions_are_known = revisions.deletions("").is_some();
        let seen_writers = ops.iter().flat_map(|op| writers_shown(op)).collect();
        Problem { ops, objects_of, keys, revisions: of_ops, known, seen_writers, deletions_are_known }
    }

    pub fn solve(&self, start: &Objects, effort: &Effort) -> Verdict {
        let none = Placed::none(self.ops.len());
        let state = State { objects: start.clone(), taken: 0 };
        let mut furthest = (0, String::new());
        let mut tried = Tried::default();
        let Some(first) = self.advance(none.clone(), none, state, &mut furthest, effort) else {
            return Verdict::Explained;
        };
        let mut path = vec![first];
        while let Some(point) = path.last_mut() {
            let Some(index) = point.candidates.pop() else {
                path.pop();
                continue;
            };
            let Some(state) = self.change(&point.state, index) else { continue };
            let (mut placed, mut used) = (point.placed.clone(), point.used.clone());
            if self.ops[index].is_unknown() {
                used.insert(index)
            } else {
                placed.insert(index)
            }
            if !tried.is_new(&placed, &state, &used) {
                continue;
            }
            if tried.count > BUDGET || effort.is_spent() {
                return Verdict::Undecided;
            }
            match self.advance(placed, used, state, &mut furthest, effort) {
                Some(next) => path.push(next),
                None => return Verdict::Explained,
            }
        }
        Verdict::Unexplained { stuck: furthest.1 }
    }

    /// Takes all that changes nothing, and finds what may come next; `None` when nothing is left to explain.
    fn advance(
        &self,
        mut placed: Placed,
        used: Placed,
        state: State,
        furthest: &mut (u32, String),
        effort: &Effort,
    ) -> Option<Point> {
        loop {
            effort.spend(self.ops.len().max(1));
            let open = self.open(&placed, &used);
            let fitting: Vec<usize> =
                open.iter().copied().filter(|index| self.changes_nothing(&state, *index)).collect();
            if fitting.is_empty() {
                if open.iter().all(|index| self.ops[*index].is_unknown()) {
                    return None;
                }
                if placed.count() >= furthest.0 {
                    *furthest = (placed.count(), self.show(&placed, &state, &open));
                }
                return Some(Point { candidates: self.worth_trying(open), placed, used, state });
            }
            fitting.into_iter().for_each(|index| placed.insert(index));
        }
    }

    /// The last is tried first: what surely happened before what may have.
    fn worth_trying(&self, mut open: Vec<usize>) -> Vec<usize> {
        open.sort_by_key(|index| (!self.ops[*index].is_unknown(), std::cmp::Reverse(*index)));
        open
    }

    /// The operations that no other must come before: none of the rest was answered before they were called.
    fn open(&self, placed: &Placed, used: &Placed) -> Vec<usize> {
        let mut open = Vec::new();
        let mut first_answer = u64::MAX;
        for (index, op) in self.ops.iter().enumerate() {
            if placed.contains(index) || used.contains(index) {
                continue;
            }
            if op.called > first_answer {
                break;
            }
            open.push(index);
            if !op.is_unknown() {
                first_answer = first_answer.min(op.answered);
            }
        }
        open
    }

    fn cell(&self, state: &State, index: usize) -> Option<Cell> {
        state.objects.get(self.objects_of[index]).copied().flatten()
    }

    /// The answer is right in this state, and leaves it as it is.
    fn changes_nothing(&self, state: &State, index: usize) -> bool {
        let op = self.ops[index];
        let cell = self.cell(state, index);
        let is_at = |expected: u64| cell.is_some_and(|cell| cell.revision == Some(expected));
        match (&op.action, &op.outcome) {
            (_, Outcome::Read(seen)) => match (seen, cell) {
                (None, None) => true,
                (Some(seen), Some(cell)) => {
                    cell.content == seen.content && cell.revision == Some(seen.revision)
                }
                _ => false,
            },
            (_, Outcome::Listed { revision, items }) => self.is_list_of(state, *revision, items),
            (_, Outcome::Refused(Refusal::Exists)) => cell.is_some(),
            (_, Outcome::Refused(Refusal::Missing)) => cell.is_none(),
            (
                Action::Update { expected } | Action::Delete { expected: Some(expected) },
                Outcome::Refused(_),
            ) => cell.is_some() && !is_at(*expected),
            // An unconditional write that lost too many races.
            (_, Outcome::Refused(_)) => true,
            _ => false,
        }
    }

    fn is_list_of(&self, state: &State, at: u64, items: &BTreeMap<String, Seen>) -> bool {
        let before = state.taken.checked_sub(1).and_then(|last| self.known.get(last));
        let after = self.known.get(state.taken);
        before.is_none_or(|(revision, _)| *revision <= at)
            && after.is_none_or(|(revision, _)| *revision > at)
            && self.keys.iter().zip(&state.objects).all(|(key, cell)| match (items.get(*key), cell) {
                (None, None) => true,
                (Some(seen), Some(cell)) => {
                    cell.content == seen.content && cell.revision == Some(seen.revision)
                }
                _ => false,
            })
    }

    /// The state after a write, if it can happen in this one.
    fn change(&self, state: &State, index: usize) -> Option<State> {
        let op = self.ops[index];
        let cell = self.cell(state, index);
        let mut next = state.clone();
        let content = match (&op.action, cell) {
            (Action::Create, None) => Some(Content::of(op.id)),
            (Action::Update { expected }, Some(cell)) if cell.revision == Some(*expected) => {
                Some(Content::of(op.id))
            }
            (Action::Patch, Some(cell)) => Some(Content { put: cell.content.put, patch: Some(op.id) }),
            (Action::Delete { expected }, Some(cell))
                if expected.is_none_or(|expected| cell.revision == Some(expected)) =>
            {
                None
            }
            _ => return None,
        };
        match (&op.outcome, content) {
            (Outcome::Written(seen), Some(content)) if seen.content == content => {}
            (Outcome::Deleted, None) | (Outcome::Unknown, _) => {}
            _ => return None,
        }
        let step = match content {
            Some(_) => self.revisions[index].map(|_| Known::Write(index)),
            None => self.deletions_are_known.then_some(Known::Deletion(self.objects_of[index])),
        };
        if let Some(step) = step {
            if self.known.get(state.taken)?.1 != step {
                return None;
            }
            next.taken += 1;
        }
        let revision = self.revisions[index];
        let cell = content.map(|content| Cell { content: self.as_seen(content), revision });
        *next.objects.get_mut(self.objects_of[index])? = cell;
        Some(next)
    }

    /// Writers that nobody saw are all alike.
    fn as_seen(&self, content: Content) -> Content {
        let known = |writer: OpId| if self.seen_writers.contains(&writer) { writer } else { UNSEEN };
        Content { put: known(content.put), patch: content.patch.map(known) }
    }

    fn show(&self, placed: &Placed, state: &State, open: &[usize]) -> String {
        let mut text = format!("after {} operations the collection is", placed.count());
        for (key, cell) in self.keys.iter().zip(&state.objects) {
            match cell {
                Some(Cell { content, revision: Some(revision) }) => {
                    text.push_str(&format!(" {key} ({content} at {revision})"));
                }
                Some(Cell { content, revision: None }) => text.push_str(&format!(" {key} ({content})")),
                None => text.push_str(&format!(" {key} (absent)")),
            }
        }
        text.push_str("; none of these fits next:");
        for index in open {
            text.push_str(&format!("\n  {}", self.ops[*index]));
        }
        text
    }
}
