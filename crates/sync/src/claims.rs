//! Which `Cluster` stands for which cluster: no cluster is joined twice, whatever names it is given.

use std::collections::HashMap;

use compact_str::CompactString;
use parking_lot::Mutex;
use store::WorkspaceId;

/// A `Cluster`'s place: workspace and name.
pub type Place = (WorkspaceId, CompactString);

/// Identities, and who holds them. Whoever has it in its status already comes first, then whoever saw it first.
#[derive(Default)]
pub struct Claims(Mutex<HashMap<String, Place>>);

impl Claims {
    /// `Err`: another one holds it.
    pub fn claim(&self, identity: &str, place: &Place) -> Result<(), Place> {
        let mut claims = self.0.lock();
        match claims.get(identity) {
            Some(holder) if holder != place => Err(holder.clone()),
            Some(_) => Ok(()),
            None => {
                claims.insert(identity.to_owned(), place.clone());
                Ok(())
            }
        }
    }

    pub fn release(&self, place: &Place) {
        self.0.lock().retain(|_, holder| holder != place);
    }
}
