//! Addresses of pods, on loopback: each has its own, and can really be listened on.

use std::{
    collections::{BTreeSet, HashMap},
    net::Ipv4Addr,
};

use parking_lot::Mutex;

/// Hands out addresses of 127.0.0.0/8, one after the other from a place that is chosen by chance, so that two who do so on
/// one machine hardly ever meet.
pub struct Addresses {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By the UID of the pod.
    given: HashMap<String, u32>,
    taken: BTreeSet<u32>,
    next: u32,
}

/// So many addresses there are.
const ROOM: u32 = 1 << 24;
/// The first are everybody's.
const USED_BY_OTHERS: u32 = 1 << 16;

impl Addresses {
    /// `chance` chooses where it begins.
    pub fn new(chance: u32) -> Addresses {
        Addresses { state: Mutex::new(State { next: chance % ROOM, ..State::default() }) }
    }

    /// The pod's own, from now on; `None` if there are no more.
    pub fn give(&self, uid: &str) -> Option<Ipv4Addr> {
        let mut state = self.state.lock();
        if let Some(known) = state.given.get(uid) {
            return Some(Ipv4Addr::from(*known));
        }
        for _ in 0..ROOM {
            state.next = (state.next + 1) % ROOM;
            let address = u32::from(Ipv4Addr::new(127, 0, 0, 0)) + state.next;
            // As networks do, none that ends with 0 or 255.
            let usable = state.next >= USED_BY_OTHERS && !matches!(address & 0xff, 0 | 0xff);
            if usable && state.taken.insert(address) {
                state.given.insert(uid.to_owned(), address);
                return Some(Ipv4Addr::from(address));
            }
        }
        None
    }

    /// The pod has it already.
    pub fn keep(&self, uid: &str, address: Ipv4Addr) {
        let mut state = self.state.lock();
        if state.taken.insert(u32::from(address)) {
            state.given.insert(uid.to_owned(), u32::from(address));
        }
    }

    pub fn take_back(&self, uid: &str) {
        let mut state = self.state.lock();
        if let Some(address) = state.given.remove(uid) {
            state.taken.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pod_has_its_own() {
        let addresses = Addresses::new(0);
        let first = addresses.give("a").unwrap();
        assert_eq!(first, Ipv4Addr::new(127, 1, 0, 1), "the first are everybody's");
        assert_eq!(Addresses::new(u32::MAX).give("z"), Some(Ipv4Addr::new(127, 1, 0, 1)), "around and on");
        assert_eq!(addresses.give("a"), Some(first));
        let all: BTreeSet<_> = (0..2000).filter_map(|number| addresses.give(&number.to_string())).collect();
        assert_eq!(all.len(), 2000);
        assert!(!all.contains(&first));
        addresses.take_back("a");
        addresses.keep("b", first);
        assert_eq!(addresses.give("b"), Some(first));
        assert_ne!(addresses.give("c"), Some(first));
    }
}
