//! Memory that may be held at once for one purpose: by everybody together, and by each workspace, so that none of them
//! takes all of it.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Counts bytes that are held.
pub struct Room {
    most: usize,
    share: usize,
    held: Mutex<Held>,
    freed: Notify,
}

#[derive(Default)]
struct Held {
    all: usize,
    by: HashMap<String, usize>,
}

/// Bytes that are held until this is dropped.
pub struct Hold {
    room: Arc<Room>,
    whose: String,
    bytes: usize,
}

impl Room {
    /// `most` for all, `share` of it for each.
    pub fn new(most: usize, share: usize) -> Arc<Room> {
        Arc::new(Room { most, share, held: Mutex::default(), freed: Notify::new() })
    }

    /// `None`: there is no room now. Whoever holds nothing finds a place if all do, however much it is: what is larger
    /// than a share goes alone.
    pub fn try_hold(self: &Arc<Self>, whose: &str, bytes: usize) -> Option<Hold> {
        let mut held = self.held.lock();
        let own = held.by.get(whose).copied().unwrap_or(0);
        let fits_share = own == 0 || own.saturating_add(bytes) <= self.share;
        let fits_all = held.all == 0 || held.all.saturating_add(bytes) <= self.most;
        (fits_share && fits_all).then(|| self.take(&mut held, whose, bytes))
    }

    /// Waits for room.
    pub async fn hold(self: &Arc<Self>, whose: &str, bytes: usize) -> Hold {
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            // Heard from now on, so that what is freed after the look is not missed.
            freed.as_mut().enable();
            if let Some(hold) = self.try_hold(whose, bytes) {
                return hold;
            }
            freed.await;
        }
    }

    /// Counts what is held already, whether there is room or not.
    pub fn hold_anyway(self: &Arc<Self>, whose: &str, bytes: usize) -> Hold {
        self.take(&mut self.held.lock(), whose, bytes)
    }

    fn take(self: &Arc<Self>, held: &mut Held, whose: &str, bytes: usize) -> Hold {
        held.all = held.all.saturating_add(bytes);
        match held.by.get_mut(whose) {
            Some(own) => *own = own.saturating_add(bytes),
            None => drop(held.by.insert(whose.to_owned(), bytes)),
        }
        Hold { room: self.clone(), whose: whose.to_owned(), bytes }
    }
}

impl Hold {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Holds so many more; false if there is no room.
    pub fn try_grow(&mut self, bytes: usize) -> bool {
        let mut held = self.room.held.lock();
        let own = held.by.get(&self.whose).copied().unwrap_or(0);
        let alone = own == self.bytes;
        let fits_share = alone || own.saturating_add(bytes) <= self.room.share;
        let fits_all = held.all == self.bytes || held.all.saturating_add(bytes) <= self.room.most;
        if !(fits_share && fits_all) {
            return false;
        }
        held.all = held.all.saturating_add(bytes);
        if let Some(own) = held.by.get_mut(&self.whose) {
            *own = own.saturating_add(bytes);
        }
        self.bytes = self.bytes.saturating_add(bytes);
        true
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut held = self.room.held.lock();
        held.all = held.all.saturating_sub(self.bytes);
        let rest = held.by.get(&self.whose).map_or(0, |own| own.saturating_sub(self.bytes));
        match rest {
            0 => drop(held.by.remove(&self.whose)),
            rest => drop(held.by.insert(std::mem::take(&mut self.whose), rest)),
        }
        drop(held);
        self.room.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn nobody_takes_more_than_a_share_and_all_no_more_than_there_is() {
        let room = Room::new(100, 40);
        let mut holds: Vec<Hold> = Vec::new();
        for (whose, bytes, fits) in [
            ("a", 30, true),
            ("a", 11, false),
            ("a", 10, true),
            ("b", 40, true),
            ("c", 21, false),
            ("c", 20, true),
            ("d", 1, false),
        ] {
            let hold = room.try_hold(whose, bytes);
            assert_eq!(hold.is_some(), fits, "{whose} {bytes}");
            holds.extend(hold);
        }
        drop(holds);
        let alone = room.try_hold("a", 1000);
        assert!(alone.is_some(), "what is larger than everything goes alone");
        assert!(room.try_hold("b", 1).is_none());
        drop(alone);
        assert!(room.held.lock().by.is_empty(), "nothing is remembered of those who hold nothing");
    }

    #[test]
    fn what_is_held_may_grow_as_long_as_there_is_room() {
        let room = Room::new(100, 40);
        let mut first = room.try_hold("a", 10).unwrap();
        assert!(first.try_grow(80), "alone it may be larger than a share");
        let mut other = room.try_hold("b", 5).unwrap();
        assert!(!other.try_grow(10), "all is taken");
        assert_eq!((first.bytes(), other.bytes()), (90, 5));
        drop(first);
        assert!(other.try_grow(10));
        let mut second = room.try_hold("b", 20).unwrap();
        assert!(!second.try_grow(10), "beyond the share");
        drop((other, second));
        assert!(room.held.lock().by.is_empty());
    }

    #[test]
    fn who_waits_is_told_when_there_is_room() {
        let room = Room::new(10, 10);
        let first = room.try_hold("a", 10);
        let mut second = Box::pin(room.hold("b", 10));
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        assert!((&mut second).now_or_never().is_some());
    }
}
