//! What was made of single objects that many requests look at, kept until they change.

use std::{collections::HashMap, sync::Arc};

use machinery::{Object, Revision};
use parking_lot::RwLock;
use store::{ItemKey, WorkspaceId};

use crate::recent::Recent;

/// Of one workspace. More than this is not kept: what is asked for again is made again.
const MOST: usize = 1024;

type OfWorkspace<T> = Arc<RwLock<HashMap<ItemKey, (Revision, Arc<T>)>>>;

/// What objects of one collection were read as.
pub struct Parsed<T>(Recent<OfWorkspace<T>>);

impl<T> Default for Parsed<T> {
    fn default() -> Self {
        Self(Recent::default())
    }
}

impl<T> Parsed<T> {
    /// `object`, which is at `item`, as `read` reads it; `None` if that cannot be.
    pub fn of(
        &self,
        workspace: &WorkspaceId,
        item: &ItemKey,
        object: &Object,
        read: impl FnOnce(&Object) -> Option<T>,
    ) -> Option<Arc<T>> {
        let known = self.0.get(workspace);
        if let Some(known) = &known
            && let Some((revision, parsed)) = known.read().get(item)
            && *revision == object.revision
        {
            return Some(parsed.clone());
        }
        let parsed = Arc::new(read(object)?);
        let known = known.unwrap_or_else(|| {
            let fresh = OfWorkspace::default();
            self.0.insert(workspace, fresh.clone());
            fresh
        });
        let mut known = known.write();
        if known.len() >= MOST && !known.contains_key(item) {
            known.clear();
        }
        known.insert(item.clone(), (object.revision, parsed.clone()));
        Some(parsed)
    }

    pub fn forget(&self, workspace: &WorkspaceId) {
        self.0.forget(workspace);
    }
}
