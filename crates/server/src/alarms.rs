//! What is to be looked at again at a time, each thing at the earliest that was asked for.

use std::{
    collections::{BTreeSet, HashMap},
    hash::Hash,
};

use jiff::Timestamp;

pub struct Alarms<T> {
    by_time: BTreeSet<(Timestamp, T)>,
    times: HashMap<T, Timestamp>,
}

impl<T> Default for Alarms<T> {
    fn default() -> Self {
        Self { by_time: BTreeSet::new(), times: HashMap::new() }
    }
}

impl<T: Clone + Ord + Hash> Alarms<T> {
    /// Instead of what was set for it before; `None`: not at all.
    pub fn set(&mut self, what: &T, at: Option<Timestamp>) {
        if let Some(before) = self.times.remove(what) {
            self.by_time.remove(&(before, what.clone()));
        }
        if let Some(at) = at {
            self.times.insert(what.clone(), at);
            self.by_time.insert((at, what.clone()));
        }
    }

    /// When something is due.
    pub fn next(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes what is due.
    pub fn due(&mut self, now: Timestamp) -> Vec<T> {
        let mut due = Vec::new();
        while let Some((at, _)) = self.by_time.first()
            && *at <= now
            && let Some((_, what)) = self.by_time.pop_first()
        {
            self.times.remove(&what);
            due.push(what);
        }
        due
    }

    /// Those that are not meant any more.
    pub fn retain(&mut self, is_meant: impl Fn(&T) -> bool) {
        self.by_time.retain(|(_, what)| is_meant(what));
        self.times.retain(|what, _| is_meant(what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_is_taken_once_at_the_time_that_was_set_last() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut alarms = Alarms::default();
        alarms.set(&"a", Some(at(10)));
        alarms.set(&"b", Some(at(20)));
        alarms.set(&"a", Some(at(30)));
        assert_eq!((alarms.next(), alarms.due(at(19))), (Some(at(20)), vec![]));
        alarms.set(&"c", Some(at(5)));
        assert_eq!(alarms.due(at(20)), ["c", "b"]);
        alarms.set(&"d", Some(at(25)));
        alarms.set(&"d", None);
        alarms.retain(|it| *it != "a");
        assert_eq!((alarms.next(), alarms.due(at(100))), (None, vec![]));
    }
}
