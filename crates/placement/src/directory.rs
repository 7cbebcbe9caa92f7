//! All clusters there are, indexed once for many decisions.

use std::collections::BTreeMap;

use kinds::Resources;

use crate::cluster::{Cluster, Offer, units};

/// Clusters by name. A decision borrows it; what was decided and is not reported yet is kept in it as reserved.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// Sorted by name.
    entries: Vec<Entry>,
    /// Most clusters take the same objects, which is then judged once.
    offers: Vec<Offer>,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub cluster: Cluster,
    /// The place of its offer in the directory.
    pub offer: usize,
    /// In units, by resource.
    pub reserved: BTreeMap<String, i64>,
}

impl Directory {
    /// Of two clusters with one name the last counts.
    pub fn new(clusters: impl IntoIterator<Item = Cluster>) -> Self {
        let mut directory = Self::default();
        clusters.into_iter().for_each(|cluster| directory.put(cluster));
        directory
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub fn offers(&self) -> &[Offer] {
        &self.offers
    }

    pub fn position(&self, name: &str) -> Option<usize> {
        self.entries.binary_search_by(|entry| entry.cluster.name.as_str().cmp(name)).ok()
    }

    pub fn get(&self, name: &str) -> Option<&Cluster> {
        self.position(name).map(|at| &self.entries[at].cluster)
    }

    /// What is known of a cluster from now on; what is reserved in it stays.
    pub fn put(&mut self, cluster: Cluster) {
        let offer = match self.offers.iter().position(|known| *known == cluster.offer) {
            Some(at) => at,
            None => {
                self.offers.push(cluster.offer.clone());
                self.offers.len() - 1
            }
        };
        match self.entries.binary_search_by(|entry| entry.cluster.name.cmp(&cluster.name)) {
            Ok(at) => (self.entries[at].cluster, self.entries[at].offer) = (cluster, offer),
            Err(at) => self.entries.insert(at, Entry { cluster, offer, reserved: BTreeMap::new() }),
        }
        if self.offers.len() > 2 * self.entries.len() + 16 {
            self.forget_offers();
        }
    }

    /// Those that no cluster has any more.
    fn forget_offers(&mut self) {
        let mut kept: Vec<Offer> = Vec::new();
        for entry in &mut self.entries {
            entry.offer = kept.iter().position(|it| *it == entry.cluster.offer).unwrap_or(kept.len());
            if entry.offer == kept.len() {
                kept.push(entry.cluster.offer.clone());
            }
        }
        self.offers = kept;
    }

    /// Nothing is known of the cluster from now on.
    pub fn remove(&mut self, name: &str) {
        if let Some(at) = self.position(name) {
            self.entries.remove(at);
        }
    }

    /// Keeps room for what was decided, until the cluster reports it.
    pub fn reserve(&mut self, name: &str, amounts: &Resources) {
        self.change_reserved(name, amounts, i64::saturating_add);
    }

    /// The cluster has reported it, or it was decided otherwise.
    pub fn release(&mut self, name: &str, amounts: &Resources) {
        self.change_reserved(name, amounts, |reserved, amount| reserved.saturating_sub(amount).max(0));
    }

    fn change_reserved(&mut self, name: &str, amounts: &Resources, change: fn(i64, i64) -> i64) {
        let Some(at) = self.position(name) else { return };
        let reserved = &mut self.entries[at].reserved;
        for (resource, amount) in amounts {
            let known = reserved.entry(resource.clone()).or_default();
            *known = change(*known, units(resource, amount));
        }
        reserved.retain(|_, amount| *amount != 0);
    }
}

impl Entry {
    /// How many more replicas there is room for, and the resource there is least of; `None`: not known.
    pub fn fits(&self, needs: &[(&str, i64)]) -> Option<(u64, usize)> {
        let amounts = self.cluster.amounts.as_ref()?;
        let mut least = (u64::MAX, 0);
        for (at, (resource, need)) in needs.iter().enumerate() {
            let there = amounts.iter().find(|it| it.resource == *resource);
            if there.is_none() && !self.cluster.lists_all {
                continue;
            }
            let reserved = match self.reserved.is_empty() {
                true => 0,
                false => self.reserved.get(*resource).copied().unwrap_or(0),
            };
            let free = there.map_or(0, |it| it.limit.saturating_sub(it.requested).saturating_sub(reserved));
            let fits = free.max(0) as u64 / need.unsigned_abs().max(1);
            if fits < least.0 {
                least = (fits, at);
            }
        }
        Some(least)
    }

    /// How much of the resource there is least of is free, in hundredths. The replicas that it has count as free, or it
    /// would suit the less for having them.
    pub fn free_part(&self, needs: &[(&str, i64)], replicas: u64) -> i64 {
        let Some(amounts) = &self.cluster.amounts else { return 0 };
        let part = |(resource, need): &(&str, i64)| {
            let Some(it) = amounts.iter().find(|it| it.resource == *resource) else {
                return if self.cluster.lists_all { 0 } else { 100 };
            };
            let reserved = self.reserved.get(*resource).copied().unwrap_or(0);
            let own = need.saturating_mul(i64::try_from(replicas).unwrap_or(i64::MAX));
            let free =
                it.limit.saturating_sub(it.requested).saturating_sub(reserved).saturating_add(own).max(0);
            (i128::from(free) * 100 / i128::from(it.limit.max(1))).min(100) as i64
        };
        needs.iter().map(part).min().unwrap_or(100)
    }
}
