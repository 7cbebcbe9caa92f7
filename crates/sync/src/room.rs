//! How much a member may have: all that is looked at is held in memory, and a member may have any amount.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::client::{Error, MAX_PAGE};

/// When there seems to be no room left, a collection is listed again if it has grown by this part of all room since the
/// last time: what a watch puts may be new, or take the place of something else, which only a list can tell.
const SPARE: usize = 8;

/// The room of one member, in bytes as they are sent.
pub struct Room {
    most: usize,
    state: Mutex<BTreeMap<String, Taken>>,
}

/// What one collection takes.
#[derive(Default)]
struct Taken {
    bytes: usize,
    /// What was put since.
    grown: usize,
    /// It would not fit.
    refused: bool,
}

impl Room {
    pub fn new(most: usize) -> Room {
        Room { most, state: Mutex::default() }
    }

    /// Whether a collection can be so large, beside the others.
    pub fn fits(&self, path: &str, bytes: usize) -> Result<(), Error> {
        let state = self.state.lock();
        let others: usize =
            state.iter().filter(|(other, _)| *other != path).map(|(_, taken)| taken.bytes).sum();
        match others.saturating_add(bytes) <= self.most {
            true => Ok(()),
            false => Err(Error::Overfull(self.most)),
        }
    }

    /// A collection is not looked at until it was listed whole.
    pub fn refuse(&self, path: &str) {
        self.state.lock().entry(path.to_owned()).or_default().refused = true;
    }

    /// A collection is so large, and was listed whole.
    pub fn take(&self, path: &str, bytes: usize) {
        self.state.lock().insert(path.to_owned(), Taken { bytes, ..Taken::default() });
    }

    /// So much was put into a collection; true if it must be listed again, to see how large it is.
    pub fn put(&self, path: &str, bytes: usize) -> bool {
        let mut state = self.state.lock();
        let taken = state.entry(path.to_owned()).or_default();
        taken.grown = taken.grown.saturating_add(bytes);
        let has_grown = taken.grown > self.most / SPARE;
        has_grown && state.values().map(|it| it.bytes.saturating_add(it.grown)).sum::<usize>() > self.most
    }

    /// Why not everything is looked at; empty if everything is.
    pub fn complaint(&self) -> String {
        let state = self.state.lock();
        let refused: Vec<&str> = state
            .iter()
            .filter(|(_, taken)| taken.refused)
            .map(|(path, _)| path.split('?').next().unwrap_or(path))
            .collect();
        match refused.is_empty() {
            true => String::new(),
            false => format!(
                "it has more than can be looked at, which is {} bytes in all and {MAX_PAGE} bytes in one page: {} cannot \
                 be kept up with, and what shows of it is old",
                self.most,
                refused.join(", ")
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collections_share_the_room_and_say_which_does_not_fit() {
        let room = Room::new(100);
        assert!(room.fits("/pods", 60).is_ok());
        room.take("/pods", 60);
        assert!(room.fits("/events", 40).is_ok());
        assert!(room.fits("/events", 41).is_err());
        room.refuse("/events");
        assert!(room.complaint().contains("/events cannot"), "{}", room.complaint());
        // It is listed again, when there is room.
        assert!(room.fits("/pods", 50).is_ok());
        room.take("/pods", 50);
        assert!(room.fits("/events", 41).is_ok());
        room.take("/events", 41);
        assert_eq!(room.complaint(), "");
    }

    #[test]
    fn what_has_grown_is_listed_again_when_room_gets_scarce() {
        let room = Room::new(100);
        room.take("/pods", 60);
        room.take("/events", 10);
        assert!(!room.put("/pods", 20), "there is room");
        assert!(!room.put("/events", 12), "it has hardly grown");
        assert!(room.put("/pods", 1));
        // All of it took the place of something else.
        room.take("/pods", 60);
        assert!(!room.put("/pods", 13));
    }
}
