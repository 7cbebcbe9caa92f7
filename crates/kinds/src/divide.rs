//! How a whole number of replicas is divided over clusters.
//!
//! ```text
//!   Division (names, preferences) ─► Slots ─┬─ Fair        exact, fewest replicas moved
//!                                           └─ Federation  as federation v1 and KubeFed did it
//! ```
//!
//! All numbers are taken as they come: nothing overflows, and what is asked for beyond the bounds is left over.

mod fair;
mod federation;
mod preferences;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use fair::fair;
pub use federation::{Federated, federation};
pub use preferences::{Preference, Preferences};

/// Which rule divides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    #[default]
    Fair,
    Federation,
}

/// A cluster that takes part in a division.
#[derive(Clone, Copy, Debug)]
pub struct Slot<'a> {
    pub name: &'a str,
    /// Decides between equals, so that not every object leans on the same cluster; see [`rank`].
    pub rank: u32,
    pub weight: u64,
    pub min: u64,
    pub max: Option<u64>,
    /// How many it can hold, those it has included; `None`: not known.
    pub capacity: Option<u64>,
    /// How many it has.
    pub current: u64,
    /// It keeps what it has, and gets no more: nobody knows how it does.
    pub frozen: bool,
}

impl<'a> Slot<'a> {
    /// A cluster that may get any number.
    pub fn open(name: &'a str, key: &str) -> Self {
        let rank = rank(name, key);
        Self { name, rank, weight: 1, min: 0, max: None, capacity: None, current: 0, frozen: false }
    }
}

/// FNV-1 of the cluster's name and the object's key, as federation v1 orders clusters of one weight.
pub fn rank(name: &str, key: &str) -> u32 {
    let bytes = name.bytes().chain(key.bytes());
    bytes.fold(2_166_136_261, |hash: u32, byte| hash.wrapping_mul(16_777_619) ^ u32::from(byte))
}

/// What is to be divided, and over what.
#[derive(Clone, Copy, Debug)]
pub struct Division<'a> {
    pub total: u64,
    /// Those that can be used, in any order.
    pub clusters: &'a [&'a str],
    pub preferences: &'a Preferences,
    /// What runs there now.
    pub current: &'a BTreeMap<String, u64>,
    /// How many each can hold, where that is known.
    pub capacity: &'a BTreeMap<String, u64>,
    /// `namespace/name` of the object.
    pub key: &'a str,
}

/// What each cluster gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// For every cluster of the division, 0 included.
    pub replicas: BTreeMap<String, u64>,
    /// What a cluster is to be asked for beyond what it can hold, so that it is noticed when it can. `Federation` only.
    pub overflow: BTreeMap<String, u64>,
    /// What no cluster may hold.
    pub pending: u64,
}

/// Divides over the clusters by their names.
pub fn divide(division: &Division<'_>, algorithm: Algorithm) -> Plan {
    let mut names: Vec<&str> = division.clusters.to_vec();
    names.sort_unstable();
    names.dedup();
    let mut plan =
        Plan { replicas: names.iter().map(|name| ((*name).to_owned(), 0)).collect(), ..Plan::default() };
    let slots: Vec<Slot<'_>> = names.into_iter().filter_map(|name| division.slot(name)).collect();
    let rebalance = division.preferences.rebalance;
    let replicas = match algorithm {
        Algorithm::Fair => fair(division.total, &slots, rebalance),
        Algorithm::Federation => {
            let federated = federation(division.total, &slots, rebalance);
            let over = slots.iter().zip(federated.overflow).filter(|(_, over)| *over > 0);
            plan.overflow = over.map(|(slot, over)| (slot.name.to_owned(), over)).collect();
            federated.replicas
        }
    };
    plan.pending = replicas.iter().fold(division.total, |left, it| left.saturating_sub(*it));
    plan.replicas.extend(slots.iter().map(|slot| slot.name.to_owned()).zip(replicas));
    plan
}

impl<'a> Division<'a> {
    /// `None`: no preference is about the cluster.
    fn slot(&self, name: &'a str) -> Option<Slot<'a>> {
        let Preference { min, max, weight } = *self.preferences.of(name)?;
        let capacity = self.capacity.get(name).copied();
        let current = self.current.get(name).copied().unwrap_or(0);
        Some(Slot { weight, min, max, capacity, current, ..Slot::open(name, self.key) })
    }
}
