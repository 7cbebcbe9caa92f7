//! What clients did to one collection of objects and what they were told, and whether any server that does one thing
//! after the other could have told them so.
//!
//! ```text
//!   History ──> rules   what revisions alone decide: order, uniqueness, nothing invented        (no search)
//!          ├──> search  is there one order of all operations that explains every answer?         (per object, then whole)
//!          ├──> watched what watchers were told: the same everywhere, in order, without gaps
//!          └──> shrink  the fewest operations that no order explains, to be read by a person
//! ```
//!
//! Every write carries its own number, so that whoever sees an object knows which writes made it. Revisions order the
//! writes that were acknowledged or seen; what is left to search is where reads, refusals and writes of unknown
//! outcome belong.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

mod rules;
mod search;
mod shrink;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;
pub mod watched;

use rules::Revisions;

/// The number of an operation: unique in its history, and written into the object.
pub type OpId = u64;

/// What an object says about itself: who wrote all of it last, and who patched it since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Content {
    pub put: OpId,
    pub patch: Option<OpId>,
}

impl Content {
    pub fn of(put: OpId) -> Content {
        Content { put, patch: None }
    }

    /// The write that made it what it is.
    pub fn last_writer(self) -> OpId {
        self.patch.unwrap_or(self.put)
    }
}

impl fmt::Display for Content {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.patch {
            Some(patch) => write!(formatter, "#{}+#{patch}", self.put),
            None => write!(formatter, "#{}", self.put),
        }
    }
}

/// An object as a client was shown it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    pub content: Content,
    pub revision: u64,
}

impl fmt::Display for Seen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} at {}", self.content, self.revision)
    }
}

/// What a client asked for. All but `List` concern the object that the operation names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Create,
    /// Replaces all of it, if it stands at this revision.
    Update {
        expected: u64,
    },
    /// Changes a part of whatever is there.
    Patch,
    Delete {
        expected: Option<u64>,
    },
    /// Most recent.
    Get,
    /// Most recent, the whole collection at one revision.
    List,
    /// As old as the server likes (`resourceVersion=0`), but a state that once was.
    ListAny,
}

impl Action {
    pub fn is_write(&self) -> bool {
        matches!(self, Action::Create | Action::Update { .. } | Action::Patch | Action::Delete { .. })
    }
}

/// What the client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A create, update or patch happened and made this.
    Written(Seen),
    /// A delete happened.
    Deleted,
    Read(Option<Seen>),
    Listed {
        revision: u64,
        items: BTreeMap<String, Seen>,
    },
    Refused(Refusal),
    /// No answer, or one that does not say. A write happened once, at any time since, or never will.
    Unknown,
}

/// Why nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Exists,
    Missing,
    Conflict,
    /// For a reason that says nothing about the object, such as too many requests.
    Unrelated,
}

/// One operation of one client. Times are of one clock, in any unit.
#[derive(Clone, Debug)]
pub struct Op {
    pub id: OpId,
    pub client: usize,
    /// Which server was asked.
    pub server: usize,
    /// The object's name; empty for lists.
    pub key: String,
    pub called: u64,
    pub answered: u64,
    pub action: Action,
    pub outcome: Outcome,
}

impl Op {
    /// It surely did nothing and says nothing.
    fn is_void(&self) -> bool {
        match self.outcome {
            Outcome::Unknown => !self.action.is_write(),
            Outcome::Refused(Refusal::Unrelated) => true,
            _ => self.action == Action::ListAny,
        }
    }

    fn is_unknown(&self) -> bool {
        self.outcome == Outcome::Unknown
    }
}

impl fmt::Display for Op {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answered = if self.is_unknown() { "never".to_owned() } else { self.answered.to_string() };
        write!(formatter, "#{} [{} .. {answered}] client {}", self.id, self.called, self.client)?;
        write!(formatter, " at server {}: ", self.server)?;
        match &self.action {
            Action::Create => write!(formatter, "create {}", self.key)?,
            Action::Update { expected } => write!(formatter, "update {} if at {expected}", self.key)?,
            Action::Patch => write!(formatter, "patch {}", self.key)?,
            Action::Delete { expected: None } => write!(formatter, "delete {}", self.key)?,
            Action::Delete { expected: Some(expected) } => {
                write!(formatter, "delete {} if at {expected}", self.key)?;
            }
            Action::Get => write!(formatter, "get {}", self.key)?,
            Action::List => write!(formatter, "list")?,
            Action::ListAny => write!(formatter, "list as of any time")?,
        }
        match &self.outcome {
            Outcome::Written(seen) => write!(formatter, " -> {seen}"),
            Outcome::Deleted => write!(formatter, " -> deleted"),
            Outcome::Read(None) => write!(formatter, " -> nothing there"),
            Outcome::Read(Some(seen)) => write!(formatter, " -> {seen}"),
            Outcome::Listed { revision, items } => {
                write!(formatter, " -> at {revision}:")?;
                items.iter().try_for_each(|(key, seen)| write!(formatter, " {key} ({seen})"))
            }
            Outcome::Refused(refusal) => write!(formatter, " -> refused: {refusal:?}"),
            Outcome::Unknown => write!(formatter, " -> unknown"),
        }
    }
}

/// All that was done to one collection.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub ops: Vec<Op>,
}

/// Why no server that keeps the rules could have answered so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub rule: &'static str,
    /// What is wrong, and the operations that show it, one to a line.
    pub evidence: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}\n{}", self.rule, self.evidence)
    }
}

/// One committed write, as watches tell of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    pub revision: u64,
    pub key: String,
    /// What the object is since; `None` if it is deleted.
    pub content: Option<Content>,
}

impl fmt::Display for Commit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.content {
            Some(content) => write!(formatter, "the log has {} ({content}) at {}", self.key, self.revision),
            None => write!(formatter, "the log has the deletion of {} at {}", self.key, self.revision),
        }
    }
}

impl std::error::Error for Violation {}

/// How much of a history was explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Explained {
    /// One order of all operations.
    Whole,
    /// One order for each object. All of them together have too many to try.
    EachObject,
}

impl History {
    /// Checks everything. `log` are all commits of the collection since before the first operation, where watches
    /// have told them: then what is not in it never happened.
    ///
    /// # Errors
    /// The first violation found, as small as it can be made.
    pub fn check(&self, log: Option<&[Commit]>) -> Result<Explained, Violation> {
        let revisions = Revisions::gather(self, log)?;
        rules::check(self, &revisions)?;
        for key in self.keys() {
            shrink::explain(&self.projected(key), &revisions)?;
        }
        if self.ops.iter().any(|op| op.action == Action::List) {
            // All objects together may have too many orders. What is left undecided then is little: lists were held
            // against all known revisions, and against every object by itself.
            match shrink::explain(&self.ops, &revisions) {
                Err(violation) if violation.rule == shrink::UNDECIDED => return Ok(Explained::EachObject),
                decided => decided?,
            }
        }
        Ok(Explained::Whole)
    }

    /// Checks what needs neither a search nor a watch.
    ///
    /// # Errors
    /// The first violation found.
    pub fn check_rules(&self) -> Result<(), Violation> {
        rules::check(self, &Revisions::gather(self, None)?)
    }

    fn keys(&self) -> BTreeSet<&str> {
        self.ops.iter().map(|op| op.key.as_str()).filter(|key| !key.is_empty()).collect()
    }

    /// What was done to one object, and what lists said of it.
    fn projected(&self, key: &str) -> Vec<Op> {
        let concern = |op: &&Op| op.key == key || op.action == Action::List;
        let mut ops: Vec<Op> = self.ops.iter().filter(concern).cloned().collect();
        for op in &mut ops {
            if let Outcome::Listed { items, .. } = &mut op.outcome {
                items.retain(|name, _| name == key);
            }
        }
        ops
    }
}
