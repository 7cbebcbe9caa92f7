//! A server in one variable with clients that take turns at random, and the ways in which it can be made to lie.

use std::collections::BTreeMap;

use env::random::SeededRandom;

use super::{Action, Commit, Content, History, Op, OpId, Outcome, Refusal, Seen};

/// How a server may fail those who trust it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Damage {
    /// Acknowledges an update and forgets it.
    LostWrite,
    /// Answers a read with what was before the last acknowledged write.
    StaleRead,
    /// Does an update, and after it once more.
    DoubledWrite,
    /// Acknowledges a write with a revision below one acknowledged before.
    Reordered,
    /// Gives two writes one revision.
    SameRevision,
    /// Shows something that nobody wrote.
    Phantom,
    /// Does an update that it refuses.
    EffectOfRefused,
    /// Updates an object that is not at the revision that was asked for.
    IgnoredPrecondition,
    /// Shows one object as it was earlier than the rest of a list.
    TornList,
    /// Says of an object that is there that it is not.
    FalseAbsence,
    /// Lists what was before the last acknowledged write.
    StaleList,
}

pub(super) const ALL_DAMAGES: [Damage; 11] = [
    Damage::LostWrite,
    Damage::StaleRead,
    Damage::DoubledWrite,
    Damage::Reordered,
    Damage::SameRevision,
    Damage::Phantom,
    Damage::EffectOfRefused,
    Damage::IgnoredPrecondition,
    Damage::TornList,
    Damage::FalseAbsence,
    Damage::StaleList,
];

const KEYS: u64 = 4;

/// An operation that has been called, and what became of it inside the server.
struct Pending {
    op: Op,
    /// The server has done it.
    outcome: Option<Outcome>,
}

pub(super) struct Simulation {
    random: SeededRandom,
    time: u64,
    revision: u64,
    objects: BTreeMap<String, Seen>,
    pending: Vec<Option<Pending>>,
    /// Given up by their clients, and perhaps done yet.
    abandoned: Vec<Op>,
    pub log: Vec<Commit>,
    pub history: History,
}

impl Simulation {
    /// `steps` turns of some clients, then everybody's answers, then a look at everything.
    pub fn run(seed: u64, clients: usize, steps: usize) -> Simulation {
        let mut simulation = Simulation {
            random: SeededRandom::new(seed),
            time: 0,
            revision: 100,
            objects: BTreeMap::new(),
            pending: (0..clients).map(|_| None).collect(),
            abandoned: Vec::new(),
            log: Vec::new(),
            history: History::default(),
        };
        for _ in 0..steps {
            simulation.step();
        }
        simulation.settle();
        simulation
    }

    fn tick(&mut self) -> u64 {
        self.time += 1;
        self.time
    }

    fn next_id(&self) -> OpId {
        (self.history.ops.len() + self.pending.iter().flatten().count() + self.abandoned.len()) as u64
            + self.time * 1000
    }

    fn call(&mut self, client: usize, key: &str, action: Action) -> Op {
        let called = self.tick();
        let (id, key) = (self.next_id(), key.to_owned());
        let server = client % 2;
        Op { id, client, server, key, called, answered: u64::MAX, action, outcome: Outcome::Unknown }
    }

    fn some_key(&self) -> String {
        format!("k{}", self.random.below(KEYS))
    }

    /// A revision of the object that some client was told: mostly the last one.
    fn some_revision(&self, key: &str) -> u64 {
        let told = self.history.ops.iter().rev().filter_map(|op| match &op.outcome {
            Outcome::Written(seen) | Outcome::Read(Some(seen)) if op.key == key => Some(seen.revision),
            Outcome::Listed { items, .. } => items.get(key).map(|seen| seen.revision),
            _ => None,
        });
        let mut told: Vec<u64> = told.take(4).collect();
        told.sort_unstable_by(|a, b| b.cmp(a));
        let back = if self.random.below(4) == 0 { 1 } else { 0 };
        told.get(back).copied().unwrap_or(1)
    }

    fn some_action(&self, key: &str) -> Action {
        match self.random.below(12) {
            0 | 1 => Action::Create,
            2..=4 => Action::Update { expected: self.some_revision(key) },
            5 | 6 => Action::Patch,
            7 => Action::Delete { expected: None },
            8 => Action::Delete { expected: Some(self.some_revision(key)) },
            9 => Action::List,
            _ => Action::Get,
        }
    }

    fn step(&mut self) {
        let client = self.random.below(self.pending.len() as u64) as usize;
        match self.pending[client].take() {
            None => {
                let key = self.some_key();
                let action = self.some_action(&key);
                let key = if action == Action::List { String::new() } else { key };
                let op = self.call(client, &key, action);
                self.pending[client] = Some(Pending { op, outcome: None });
            }
            Some(mut pending) if pending.outcome.is_none() => {
                if self.random.below(20) == 0 {
                    self.give_up(pending.op);
                } else {
                    self.tick();
                    pending.outcome = Some(self.serve(&pending.op));
                    self.pending[client] = Some(pending);
                }
            }
            Some(pending) => self.answer(pending),
        }
        if !self.abandoned.is_empty() && self.random.below(10) == 0 {
            let op = self.abandoned.swap_remove(0);
            self.tick();
            self.serve(&op);
        }
    }

    fn give_up(&mut self, op: Op) {
        self.history.ops.push(Op { answered: self.time, ..op.clone() });
        self.abandoned.push(op);
    }

    fn answer(&mut self, pending: Pending) {
        let answered = self.tick();
        let outcome = pending.outcome.unwrap_or(Outcome::Unknown);
        let outcome = if self.random.below(20) == 0 { Outcome::Unknown } else { outcome };
        self.history.ops.push(Op { answered, outcome, ..pending.op });
    }

    /// Everything under way is answered, and everything is read once more.
    fn settle(&mut self) {
        for client in 0..self.pending.len() {
            let Some(mut pending) = self.pending[client].take() else { continue };
            if pending.outcome.is_none() {
                pending.outcome = Some(self.serve(&pending.op));
            }
            self.answer(pending);
        }
        for key in 0..KEYS {
            self.read(0, &format!("k{key}"), Action::Get);
        }
        self.read(0, "", Action::List);
    }

    /// Called, served and answered without anything between.
    fn read(&mut self, client: usize, key: &str, action: Action) -> Outcome {
        let op = self.call(client, key, action);
        let outcome = self.serve(&op);
        self.record(op, outcome)
    }

    fn record(&mut self, op: Op, outcome: Outcome) -> Outcome {
        let answered = self.tick();
        self.history.ops.push(Op { answered, outcome: outcome.clone(), ..op });
        outcome
    }

    /// What the rules say, at one moment.
    fn serve(&mut self, op: &Op) -> Outcome {
        let current = self.objects.get(&op.key).copied();
        match (&op.action, current) {
            (Action::Get, seen) => Outcome::Read(seen),
            (Action::List | Action::ListAny, _) => {
                Outcome::Listed { revision: self.revision, items: self.objects.clone() }
            }
            (Action::Create, Some(_)) => Outcome::Refused(Refusal::Exists),
            (Action::Create, None) => self.put(&op.key, Content::of(op.id)),
            (_, None) => Outcome::Refused(Refusal::Missing),
            (Action::Update { expected } | Action::Delete { expected: Some(expected) }, Some(seen))
                if seen.revision != *expected =>
            {
                Outcome::Refused(Refusal::Conflict)
            }
            (Action::Update { .. }, Some(_)) => self.put(&op.key, Content::of(op.id)),
            (Action::Patch, Some(seen)) => {
                self.put(&op.key, Content { put: seen.content.put, patch: Some(op.id) })
            }
            (Action::Delete { .. }, Some(_)) => {
                self.revision += 1;
                self.objects.remove(&op.key);
                self.log.push(Commit { revision: self.revision, key: op.key.clone(), content: None });
                Outcome::Deleted
            }
        }
    }

    fn put(&mut self, key: &str, content: Content) -> Outcome {
        // Others write to the workspace as well.
        self.revision += 1 + self.random.below(2);
        let seen = Seen { content, revision: self.revision };
        self.objects.insert(key.to_owned(), seen);
        self.log.push(Commit { revision: self.revision, key: key.to_owned(), content: Some(content) });
        Outcome::Written(seen)
    }

    /// An object that is there, and its state.
    fn some_object(&mut self) -> (String, Seen) {
        let key = self.some_key();
        if !self.objects.contains_key(&key) {
            let op = self.call(0, &key, Action::Create);
            let outcome = self.serve(&op);
            self.record(op, outcome);
        }
        let seen = self.objects[&key];
        (key, seen)
    }

    fn update(&mut self, client: usize, key: &str, expected: u64) -> Outcome {
        self.read(client, key, Action::Update { expected })
    }

    /// Lies once, and lets somebody look. What happens after that is honest.
    pub fn suffer(&mut self, damage: Damage) {
        let (key, before) = self.some_object();
        match damage {
            Damage::LostWrite => {
                self.update(1, &key, before.revision);
                self.objects.insert(key.clone(), before);
                self.log.pop();
            }
            Damage::StaleRead => {
                self.update(1, &key, before.revision);
                let op = self.call(2, &key, Action::Get);
                self.record(op, Outcome::Read(Some(before)));
            }
            Damage::DoubledWrite => {
                let Outcome::Written(seen) = self.update(1, &key, before.revision) else { return };
                self.put(&key, seen.content);
            }
            Damage::Reordered => {
                let other = format!("{key}-other");
                let op = self.call(1, &other, Action::Create);
                let seen = Seen { content: Content::of(op.id), revision: before.revision - 1 };
                self.objects.insert(other, seen);
                self.record(op, Outcome::Written(seen));
            }
            Damage::SameRevision => {
                let other = format!("{key}-other");
                let op = self.call(1, &other, Action::Create);
                let seen = Seen { content: Content::of(op.id), revision: before.revision };
                self.record(op, Outcome::Written(seen));
            }
            Damage::Phantom => {
                self.put(&key, Content::of(7_000_000_000));
                self.read(1, &key, Action::Get);
            }
            Damage::EffectOfRefused => {
                let op = self.call(1, &key, Action::Update { expected: before.revision - 1 });
                self.put(&key, Content::of(op.id));
                self.record(op, Outcome::Refused(Refusal::Conflict));
            }
            Damage::IgnoredPrecondition => {
                self.update(1, &key, before.revision);
                let op = self.call(2, &key, Action::Update { expected: before.revision });
                let outcome = self.put(&key, Content::of(op.id));
                self.record(op, outcome);
            }
            Damage::TornList => {
                let op = self.call(1, "", Action::List);
                self.update(2, &key, before.revision);
                let mut items = self.objects.clone();
                items.insert(key.clone(), before);
                let revision = self.revision;
                self.record(op, Outcome::Listed { revision, items });
            }
            Damage::FalseAbsence => {
                let op = self.call(1, &key, Action::Get);
                self.record(op, Outcome::Read(None));
            }
            Damage::StaleList => {
                let (items, revision) = (self.objects.clone(), self.revision);
                self.update(1, &key, before.revision);
                let op = self.call(2, "", Action::List);
                self.record(op, Outcome::Listed { revision, items });
            }
        }
        self.read(3, &key, Action::Get);
        self.read(3, "", Action::List);
    }

    /// Goes on honestly.
    pub fn go_on(&mut self, steps: usize) {
        for _ in 0..steps {
            self.step();
        }
        self.settle();
    }
}
