//! All clusters there are, indexed once for many decisions.

use std::{cell::Cell, collections::BTreeMap};

use kinds::Resources;

use crate::cluster::{Amount, Cluster, Offer, units};

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

/// What one replica needs of a resource, in units.
#[derive(Clone, Debug)]
pub struct Need<'a> {
    pub resource: &'a str,
    pub amount: i64,
    /// Where clusters have it in their lists: most have the same, so that it is seldom looked for.
    place: Cell<usize>,
}

impl<'a> Need<'a> {
    pub fn new(resource: &'a str, amount: i64) -> Self {
        Self { resource, amount: amount.max(1), place: Cell::new(0) }
    }

    fn find<'c>(&self, amounts: &'c [Amount]) -> Option<&'c Amount> {
        let is_it = |it: &&Amount| it.resource == self.resource;
        if let Some(found) = amounts.get(self.place.get()).filter(is_it) {
            return Some(found);
        }
        let place = amounts.iter().position(|it| it.resource == self.resource)?;
        self.place.set(place);
        amounts.get(place)
    }
}

/// How much room there is for replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// How many more there is room for.
    pub fits: u64,
    /// Of which need there is least.
    pub scarce: usize,
    /// How much of it is free, in hundredths. The replicas that are there count as free, or the cluster would suit the
    /// less for having them.
    pub free: i64,
}

impl Entry {
    /// `held`: of what is reserved, what does not count. `None`: not known.
    pub fn room(&self, needs: &[Need<'_>], replicas: u64, held: Option<&Resources>) -> Option<Room> {
        let amounts = self.cluster.amounts.as_ref()?;
        let mut room = Room { fits: u64::MAX, scarce: 0, free: 100 };
        let replicas = i64::try_from(replicas).unwrap_or(i64::MAX);
        for (at, need) in needs.iter().enumerate() {
            let there = match need.find(amounts) {
                Some(there) => there,
                None if self.cluster.lists_all => return Some(Room { fits: 0, scarce: at, free: 0 }),
                None => continue,
            };
            let reserved = match self.reserved.is_empty() {
                true => 0,
                false => self.reserved.get(need.resource).copied().unwrap_or(0),
            };
            let own = held.and_then(|held| held.get(need.resource));
            let reserved = own.map_or(reserved, |own| (reserved - units(need.resource, own)).max(0));
            let free = there.limit.saturating_sub(there.requested).saturating_sub(reserved);
            let fits = free.max(0) as u64 / need.amount.unsigned_abs();
            if fits < room.fits {
                (room.fits, room.scarce) = (fits, at);
            }
            let own = need.amount.saturating_mul(replicas);
            room.free = room.free.min(hundredths(free.saturating_add(own), there.limit));
        }
        Some(room)
    }
}

fn hundredths(part: i64, whole: i64) -> i64 {
    let whole = whole.max(1);
    let part = part.clamp(0, whole);
    match part.checked_mul(100) {
        Some(scaled) => scaled / whole,
        // So much that hundredths of the whole are exact enough.
        None => part / (whole / 100).max(1),
    }
}
