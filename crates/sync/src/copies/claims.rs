//! Names of namespaces in the member that are being made: two workspaces never make the same one.

use std::{collections::HashMap, sync::Arc};

use compact_str::CompactString;
use parking_lot::Mutex;

use super::work::Errand;

/// Who is at it, by name.
#[derive(Default)]
pub struct Claims(Arc<Mutex<HashMap<CompactString, Errand>>>);

/// Given up when it is dropped.
pub struct Claim {
    claims: Arc<Mutex<HashMap<CompactString, Errand>>>,
    name: CompactString,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.lock().remove(&self.name);
    }
}

impl Claims {
    /// `None`: another one has it. `Some(None)`: it has it already.
    pub fn take(&self, name: &str, errand: &Errand) -> Option<Option<Claim>> {
        let mut claims = self.0.lock();
        match claims.get(name) {
            Some(holder) if holder == errand => Some(None),
            Some(_) => None,
            None => {
                claims.insert(name.into(), errand.clone());
                Some(Some(Claim { claims: self.0.clone(), name: name.into() }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use store::{ItemKey, WorkspaceId};

    use super::*;

    #[test]
    fn one_makes_a_namespace_at_a_time() {
        let errand = |workspace: &str| Errand {
            workspace: WorkspaceId(workspace.into()),
            item: ItemKey::new("web", "namespaces.web"),
        };
        let claims = Claims::default();
        let held = claims.take("web", &errand("a")).unwrap();
        assert!(held.is_some() && claims.take("web", &errand("b")).is_none());
        assert!(claims.take("web", &errand("a")).is_some_and(|it| it.is_none()));
        assert!(claims.take("other", &errand("b")).is_some());
        drop(held);
        assert!(claims.take("web", &errand("b")).is_some());
    }
}
