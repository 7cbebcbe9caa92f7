//! Which `Cluster` stands for which cluster: no cluster is joined twice, whatever names it is given.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
};

use compact_str::CompactString;
use parking_lot::Mutex;
use store::WorkspaceId;

/// A `Cluster`'s place: workspace and name.
pub type Place = (WorkspaceId, CompactString);

/// A session, of all that a `Cluster` of that place ever had: later ones have higher numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    pub place: Place,
    number: u64,
}

/// Identities, and who holds them. Whoever has it in its status already comes first, then whoever saw it first.
#[derive(Default)]
pub struct Claims {
    holders: Mutex<HashMap<String, Claimant>>,
    sessions: AtomicU64,
}

impl Claims {
    /// A new session of the `Cluster` at `place`.
    pub fn claimant(&self, place: Place) -> Claimant {
        Claimant { place, number: self.sessions.fetch_add(1, Ordering::Relaxed) }
    }

    /// `Err`: another one holds it. A session inherits what an earlier one of its place holds.
    pub fn claim(&self, identity: &str, claimant: &Claimant) -> Result<(), Place> {
        let mut holders = self.holders.lock();
        match holders.get(identity) {
            Some(holder) if holder.place != claimant.place => return Err(holder.place.clone()),
            Some(holder) if holder.number >= claimant.number => return Ok(()),
            _ => {}
        }
        holders.insert(identity.to_owned(), claimant.clone());
        Ok(())
    }

    /// Gives up what this session holds, and nothing that a later one of its place does.
    pub fn release(&self, claimant: &Claimant) {
        self.holders.lock().retain(|_, holder| holder != claimant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> Place {
        (WorkspaceId("default".into()), name.into())
    }

    #[test]
    fn a_cluster_is_held_once() {
        let claims = Claims::default();
        let [first, second] = ["eu-1", "eu-2"].map(|name| claims.claimant(place(name)));
        assert_eq!(claims.claim("uid", &first), Ok(()));
        assert_eq!(claims.claim("uid", &first), Ok(()));
        assert_eq!(claims.claim("uid", &second), Err(place("eu-1")));
        claims.release(&first);
        assert_eq!(claims.claim("uid", &second), Ok(()));
    }

    #[test]
    fn a_session_that_ends_late_takes_nothing_from_the_next_of_its_name() {
        let claims = Claims::default();
        let [old, new] = [(); 2].map(|()| claims.claimant(place("eu-1")));
        let other = claims.claimant(place("eu-2"));
        assert_eq!(claims.claim("uid", &old), Ok(()));
        assert_eq!(claims.claim("uid", &new), Ok(()));
        // It is asked once more, and then ends.
        assert_eq!(claims.claim("uid", &old), Ok(()));
        claims.release(&old);
        assert_eq!(claims.claim("uid", &other), Err(place("eu-1")));
        claims.release(&new);
        assert_eq!(claims.claim("uid", &other), Ok(()));
    }
}
