//! What was made for workspaces, kept for those that are in use.
//!
//! Policies, registries, compiled expressions are made from a workspace's objects when a request needs them, and can be
//! made again. Most workspaces are asleep most of the time: only so many are remembered, and whoever was asked for
//! longest ago is forgotten first.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::RwLock;
use store::WorkspaceId;

/// As many as are busy at once in a large installation.
pub const WORKSPACES: usize = 1024;

/// Something of each workspace that was used lately. Values are cheap to clone.
pub struct Recent<V> {
    most: usize,
    slots: RwLock<HashMap<WorkspaceId, Slot<V>>>,
    /// Counts insertions: nothing is forgotten between two of them, so that a finer order is not needed.
    now: AtomicU64,
}

struct Slot<V> {
    value: V,
    used: AtomicU64,
}

impl<V: Clone> Default for Recent<V> {
    fn default() -> Self {
        Self::new(WORKSPACES)
    }
}

impl<V: Clone> Recent<V> {
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1), slots: RwLock::default(), now: AtomicU64::new(0) }
    }

    pub fn get(&self, workspace: &WorkspaceId) -> Option<V> {
        let slots = self.slots.read();
        let slot = slots.get(workspace)?;
        slot.used.store(self.now.load(Ordering::Relaxed), Ordering::Relaxed);
        Some(slot.value.clone())
    }

    pub fn insert(&self, workspace: &WorkspaceId, value: V) {
        self.insert_and_forget(workspace, value, |_| true);
    }

    /// As [`Recent::insert`]; those that go are asked whether they may, and returned.
    pub fn insert_and_forget(
        &self,
        workspace: &WorkspaceId,
        value: V,
        may_go: impl Fn(&V) -> bool,
    ) -> Vec<V> {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        let mut slots = self.slots.write();
        slots.insert(workspace.clone(), Slot { value, used: AtomicU64::new(now) });
        // Some at a time, so that looking for the oldest is rare.
        let slack = (self.most / 8).max(1);
        if slots.len() < self.most + slack {
            return Vec::new();
        }
        let mut uses: Vec<u64> = slots.values().map(|slot| slot.used.load(Ordering::Relaxed)).collect();
        let (_, last_to_go, _) = uses.select_nth_unstable(slack - 1);
        let last_to_go = *last_to_go;
        let mut left = slack;
        let goes = |_: &WorkspaceId, slot: &mut Slot<V>| {
            let used = slot.used.load(Ordering::Relaxed);
            let goes = left > 0 && used <= last_to_go && used < now && may_go(&slot.value);
            left -= usize::from(goes);
            goes
        };
        slots.extract_if(goes).map(|(_, slot)| slot.value).collect()
    }

    pub fn forget(&self, workspace: &WorkspaceId) -> Option<V> {
        self.slots.write().remove(workspace).map(|slot| slot.value)
    }
}

impl<V: Clone> Recent<V> {
    /// All that are remembered, in no order.
    pub fn all(&self) -> Vec<V> {
        self.slots.read().values().map(|slot| slot.value.clone()).collect()
    }
}

impl<V> Recent<V> {
    #[cfg(test)]
    fn len(&self) -> usize {
        self.slots.read().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> WorkspaceId {
        WorkspaceId(number.to_string().into())
    }

    #[test]
    fn who_is_used_stays_and_who_was_used_longest_ago_goes() {
        let recent = Recent::new(16);
        for number in 0..1000 {
            recent.insert(&id(number), number);
            assert_eq!(recent.get(&id(0)), Some(0), "after {number}");
            assert_eq!(recent.get(&id(number)), Some(number));
            assert!(recent.len() <= 18);
        }
        assert_eq!(recent.get(&id(5)), None);
        assert_eq!(recent.get(&id(990)), Some(990));
        assert_eq!(recent.forget(&id(0)), Some(0));
        assert_eq!(recent.get(&id(0)), None);
    }

    #[test]
    fn who_may_not_go_stays() {
        let recent = Recent::new(8);
        let mut gone = Vec::new();
        for number in 0..100 {
            gone.extend(recent.insert_and_forget(&id(number), number, |number| number % 10 != 0));
        }
        for number in (0..100).step_by(10) {
            assert_eq!(recent.get(&id(number)), Some(number));
        }
        assert!(gone.len() >= 80 && !gone.contains(&50), "{gone:?}");
    }
}
