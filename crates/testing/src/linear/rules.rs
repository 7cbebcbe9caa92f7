//! What revisions decide without any search.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt::Display,
};

use super::{Action, Commit, Content, History, Op, OpId, Outcome, Refusal, Seen, Violation};

/// The revision of every write that was acknowledged or that somebody saw.
#[derive(Debug, Default)]
pub(super) struct Revisions {
    of_op: HashMap<OpId, u64>,
    /// Of deletions, by object and in order; which delete made which is for the search to find. `None` if no watch
    /// told of them.
    deletions: Option<BTreeMap<String, Vec<u64>>>,
}

/// Somebody was shown an object.
struct Sighting<'a> {
    key: &'a str,
    seen: Seen,
    /// Not later than this.
    until: u64,
    by: &'a dyn Display,
}

fn violation(rule: &'static str, evidence: impl Display) -> Violation {
    Violation { rule, evidence: evidence.to_string() }
}

/// All that an operation was shown.
fn sightings(op: &Op) -> Vec<Sighting<'_>> {
    let sighting = |key, seen| Sighting { key, seen, until: op.answered, by: op };
    match &op.outcome {
        Outcome::Written(seen) | Outcome::Read(Some(seen)) => vec![sighting(op.key.as_str(), *seen)],
        Outcome::Listed { items, .. } => items.iter().map(|(key, seen)| sighting(key, *seen)).collect(),
        _ => Vec::new(),
    }
}

fn logged(commit: &Commit) -> Option<Sighting<'_>> {
    let seen = Seen { content: commit.content?, revision: commit.revision };
    Some(Sighting { key: &commit.key, seen, until: u64::MAX, by: commit })
}

impl Revisions {
    pub(super) fn of(&self, op: &Op) -> Option<u64> {
        self.of_op.get(&op.id).copied()
    }

    /// The revisions at which an object was deleted, if that is known.
    pub(super) fn deletions(&self, key: &str) -> Option<&[u64]> {
        self.deletions.as_ref().map(|all| all.get(key).map_or(&[][..], Vec::as_slice))
    }

    /// Its outcome is not known, but the log is, and does not have it.
    pub(super) fn never_happened(&self, op: &Op) -> bool {
        let has_happened = match op.action {
            Action::Delete { .. } => true,
            _ => self.of(op).is_some(),
        };
        op.is_unknown() && self.deletions.is_some() && !has_happened
    }

    /// # Errors
    /// Something was seen that nobody wrote, or that was refused, or one write at two revisions, or two at one.
    pub(super) fn gather(history: &History, log: Option<&[Commit]>) -> Result<Revisions, Violation> {
        let by_id: HashMap<OpId, &Op> = history.ops.iter().map(|op| (op.id, op)).collect();
        let mut found = Revisions { of_op: HashMap::new(), deletions: log.map(deletions) };
        let mut first: HashMap<OpId, &dyn Display> = HashMap::new();
        let in_log = log.unwrap_or_default().iter().filter_map(logged);
        for sighting in history.ops.iter().flat_map(sightings).chain(in_log) {
            check_origin(&by_id, &sighting)?;
            let (writer, revision) = (sighting.seen.content.last_writer(), sighting.seen.revision);
            let known = *found.of_op.entry(writer).or_insert(revision);
            let before = *first.entry(writer).or_insert(sighting.by);
            if known != revision {
                let evidence =
                    format!("#{writer} is at {known} and at {revision}\n{before}\n{}", sighting.by);
                return Err(violation("a write happens once, at one revision", evidence));
            }
        }
        found.check_unique(&by_id)?;
        if let Some(log) = log {
            check_logged(history, log)?;
        }
        Ok(found)
    }

    fn check_unique(&self, by_id: &HashMap<OpId, &Op>) -> Result<(), Violation> {
        let of_deletions = self.deletions.iter().flatten();
        let deleted = of_deletions.flat_map(|(key, all)| all.iter().map(move |at| (*at, key.clone())));
        let written = self.of_op.iter().map(|(id, at)| (*at, by_id[id].to_string()));
        let mut holders: HashMap<u64, String> = HashMap::new();
        for (revision, holder) in written.chain(deleted) {
            if let Some(other) = holders.insert(revision, holder.clone()) {
                let evidence = format!("two at {revision}\n{other}\n{holder}");
                return Err(violation("no two writes have one revision", evidence));
            }
        }
        Ok(())
    }
}

/// Every acknowledged write is in the log; of deletes the search finds out.
fn check_logged(history: &History, log: &[Commit]) -> Result<(), Violation> {
    let logged: HashSet<OpId> = log.iter().filter_map(|it| Some(it.content?.last_writer())).collect();
    let is_lost = |op: &&Op| matches!(op.outcome, Outcome::Written(_)) && !logged.contains(&op.id);
    match history.ops.iter().find(is_lost) {
        Some(op) => Err(violation("what is acknowledged is in the log", op)),
        None => Ok(()),
    }
}

fn deletions(log: &[Commit]) -> BTreeMap<String, Vec<u64>> {
    let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for commit in log.iter().filter(|commit| commit.content.is_none()) {
        found.entry(commit.key.clone()).or_default().push(commit.revision);
    }
    found.values_mut().for_each(|revisions| revisions.sort_unstable());
    found
}

/// What is seen was written, by a write of that object that had begun and was not refused.
fn check_origin(by_id: &HashMap<OpId, &Op>, sighting: &Sighting) -> Result<(), Violation> {
    let Content { put, patch } = sighting.seen.content;
    for writer in std::iter::once(put).chain(patch) {
        let Some(write) = by_id.get(&writer) else {
            return Err(violation("nothing is seen that nobody wrote", sighting.by));
        };
        let evidence = || format!("{write}\n{}", sighting.by);
        let fits = match write.action {
            Action::Create | Action::Update { .. } => writer == put,
            Action::Patch => patch == Some(writer),
            _ => false,
        };
        if !fits || write.key != sighting.key {
            return Err(violation("nothing is seen that nobody wrote", evidence()));
        }
        if matches!(write.outcome, Outcome::Refused(_)) {
            return Err(violation("a refused write has no effect", evidence()));
        }
        if write.called > sighting.until {
            return Err(violation("nothing is seen before it is written", evidence()));
        }
    }
    Ok(())
}

pub(super) fn check(history: &History, revisions: &Revisions) -> Result<(), Violation> {
    for op in &history.ops {
        check_answer(op)?;
    }
    check_order(history, revisions)?;
    for op in &history.ops {
        if let Outcome::Listed { revision, items } = &op.outcome {
            let list = List { op, revision: *revision, items };
            list.check_items(history, revisions)?;
            list.check_absent(history, revisions)?;
        }
    }
    Ok(())
}

fn check_answer(op: &Op) -> Result<(), Violation> {
    let fits = match (&op.action, &op.outcome) {
        (_, Outcome::Unknown | Outcome::Refused(Refusal::Unrelated)) => true,
        (Action::Create, Outcome::Refused(refusal)) => *refusal == Refusal::Exists,
        (Action::Update { expected }, Outcome::Written(seen)) => {
            seen.content == Content::of(op.id) && seen.revision > *expected
        }
        (Action::Create, Outcome::Written(seen)) => seen.content == Content::of(op.id),
        (Action::Patch, Outcome::Written(seen)) => seen.content.patch == Some(op.id),
        (Action::Update { .. } | Action::Patch, Outcome::Refused(refusal)) => *refusal != Refusal::Exists,
        (Action::Delete { expected }, Outcome::Refused(refusal)) => match refusal {
            Refusal::Missing => true,
            Refusal::Conflict => expected.is_some(),
            _ => false,
        },
        (Action::Delete { .. }, Outcome::Deleted) | (Action::Get, Outcome::Read(_)) => true,
        (Action::List | Action::ListAny, Outcome::Listed { .. }) => true,
        _ => false,
    };
    if fits { Ok(()) } else { Err(violation("an answer is one that the request can have", op)) }
}

/// A write that was acknowledged before another began has the lower revision.
fn check_order(history: &History, revisions: &Revisions) -> Result<(), Violation> {
    let writes = history.ops.iter().filter(|op| op.action.is_write());
    let mut written: Vec<(u64, &Op)> = writes.filter_map(|op| Some((revisions.of(op)?, op))).collect();
    written.sort_by_key(|(revision, _)| *revision);
    // From the end: the earliest acknowledgement among all that come later in the order of revisions.
    let mut earliest: Option<(u64, &Op)> = None;
    for (revision, op) in written.iter().rev() {
        if let Some((later, acknowledged)) = earliest
            && acknowledged.answered < op.called
        {
            let evidence = format!("{revision} began after {later} was acknowledged\n{acknowledged}\n{op}");
            return Err(violation("revisions increase", evidence));
        }
        if !op.is_unknown() && earliest.is_none_or(|(_, known)| op.answered < known.answered) {
            earliest = Some((*revision, op));
        }
    }
    Ok(())
}

/// A list is what the writes up to its revision made, as far as it is known where they stand.
struct List<'a> {
    op: &'a Op,
    revision: u64,
    items: &'a BTreeMap<String, Seen>,
}

impl List<'_> {
    fn check_items(&self, history: &History, revisions: &Revisions) -> Result<(), Violation> {
        let Some((key, _)) = self.items.iter().find(|(_, seen)| seen.revision > self.revision) else {
            let writes = history.ops.iter().filter_map(|op| Some((op, revisions.of(op)?)));
            return writes.filter(|(op, _)| op.action.is_write()).try_for_each(|it| self.check_write(it));
        };
        Err(violation("a list shows one state", format!("{key} is newer than the list\n{}", self.op)))
    }

    fn check_write(&self, (write, revision): (&Op, u64)) -> Result<(), Violation> {
        let evidence = |what: &str| format!("{}: {what}\n{write}\n{}", write.key, self.op);
        let acknowledged_before = !write.is_unknown() && write.answered < self.op.called;
        if self.op.action == Action::List && acknowledged_before && revision > self.revision {
            let rule = "a most recent read sees what was acknowledged before it";
            return Err(violation(rule, evidence("the list is older than this write")));
        }
        if write.called > self.op.answered && revision <= self.revision {
            return Err(violation("nothing is seen before it is written", evidence("written later")));
        }
        let newest = self.items.get(&write.key).map_or(u64::MAX, |seen| seen.revision);
        if revision > newest && revision <= self.revision {
            return Err(violation("a list shows one state", evidence("older than this write")));
        }
        Ok(())
    }

    /// What a list does not show was deleted since it was last written.
    fn check_absent(&self, history: &History, revisions: &Revisions) -> Result<(), Violation> {
        let mut last: BTreeMap<&str, (u64, &Op)> = BTreeMap::new();
        for write in history.ops.iter().filter(|op| !self.items.contains_key(&op.key)) {
            let Some(revision) = revisions.of(write).filter(|it| *it <= self.revision) else { continue };
            let newest = last.entry(&write.key).or_insert((revision, write));
            if revision > newest.0 {
                *newest = (revision, write);
            }
        }
        for (key, (revision, write)) in last {
            // Without the revisions of deletions there is only the search to tell.
            let Some(deletions) = revisions.deletions(key) else { continue };
            if !deletions.iter().any(|deleted| (revision..=self.revision).contains(deleted)) {
                let what = format!("{key} was not deleted between {revision} and {}", self.revision);
                return Err(violation("a list shows one state", format!("{what}\n{write}\n{}", self.op)));
            }
        }
        Ok(())
    }
}
