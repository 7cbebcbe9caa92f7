//! One workspace as the server reads it: what it stores, over the shared base.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use machinery::{EventType, Object, Revision, resource::Tree};
use parking_lot::RwLock;
use store::{Collection, Error, Event, Expect, ItemKey, Key, Listing, Span, Store, Watch, WorkspaceId};

use crate::base;

/// A workspace's name, identity and objects. Cheap to clone.
#[derive(Clone)]
pub struct Space(Arc<Inner>);

struct Inner {
    id: WorkspaceId,
    name: String,
    place: base::Place,
    /// Objects of the base that are asked for with nearly every request.
    sealed: RwLock<HashMap<Key, Arc<Object>>>,
    store: Arc<dyn Store>,
    requests: AtomicU64,
}

/// An object as it is now, and what must hold in the store for that to be still so.
pub struct Current {
    pub object: Option<Arc<Object>>,
    pub expect: Expect,
}

/// A change of an object, with the base taken into account.
pub struct Change {
    pub old: Option<Arc<Object>>,
    /// `None`: removed, and `last` is what it was, at the revision of the removal.
    pub new: Option<Arc<Object>>,
    pub last: Arc<Object>,
}

/// The id of no workspace: nothing is ever stored there.
pub fn nowhere() -> WorkspaceId {
    WorkspaceId("nowhere".into())
}

impl Space {
    pub fn new(id: WorkspaceId, name: &str, place: base::Place, store: Arc<dyn Store>) -> Self {
        let requests = AtomicU64::new(0);
        Self(Arc::new(Inner { id, name: name.to_owned(), place, sealed: RwLock::default(), store, requests }))
    }

    /// The same, as if it had nothing but the base.
    pub fn without_own(&self) -> Space {
        Space::new(nowhere(), self.name(), self.0.place.clone(), self.0.store.clone())
    }

    pub fn id(&self) -> &WorkspaceId {
        &self.0.id
    }

    /// Somebody asks something of it.
    pub fn count_request(&self) {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// How often somebody did, since it was last asleep.
    pub fn requests(&self) -> u64 {
        self.0.requests.load(Ordering::Relaxed)
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    pub fn head(&self) -> Revision {
        self.0.store.head(&self.0.id)
    }

    pub fn last_change(&self, collection: &Collection) -> Revision {
        self.0.store.last_change(&self.0.id, collection)
    }

    fn base(&self, collection: &Collection, item: &ItemKey) -> Option<Arc<Object>> {
        let template = base::of(collection)?.get(item)?;
        self.seal(collection, item, template)
    }

    /// Namespaces and what every namespace has are small and kept; roles are large, and others keep what they make
    /// of them.
    fn seal(&self, collection: &Collection, item: &ItemKey, template: &Tree) -> Option<Arc<Object>> {
        let kept = collection.parts().0.is_empty();
        if !kept {
            return base::seal(template, &self.0.place, item);
        }
        let key = Key { collection: collection.clone(), item: item.clone() };
        if let Some(object) = self.0.sealed.read().get(&key) {
            return Some(object.clone());
        }
        let object = base::seal(template, &self.0.place, item)?;
        self.0.sealed.write().insert(key, object.clone());
        Some(object)
    }

    pub fn get(&self, key: &Key) -> Option<Arc<Object>> {
        self.current(key).object
    }

    pub fn current(&self, key: &Key) -> Current {
        match self.0.store.get(&self.0.id, key) {
            Some(object) => {
                let expect = Expect::At(object.revision);
                let hidden = base::of(&key.collection).is_some() && base::is_whiteout(&object);
                Current { object: (!hidden).then_some(object), expect }
            }
            None => Current { object: self.base(&key.collection, &key.item), expect: Expect::Absent },
        }
    }

    /// Whether removing the object at `key` must leave a whiteout.
    pub fn in_base(&self, key: &Key) -> bool {
        base::of(&key.collection).is_some_and(|items| items.contains_key(&key.item))
    }

    pub fn latest(&self, collection: &Collection) -> Listing {
        match self.list(collection, None) {
            Ok(listing) => listing,
            // The store refuses only revisions it is asked for.
            Err(_) => Listing::empty(self.head()),
        }
    }

    pub fn list(&self, collection: &Collection, at: Option<Revision>) -> Result<Listing, Error> {
        let mut listing = self.0.store.list(&self.0.id, collection, at)?;
        for (item, template) in base::of(collection).into_iter().flatten() {
            match listing.get(item) {
                Some(object) if base::is_whiteout(object) => listing.remove(item),
                Some(_) => {}
                None => {
                    if let Some(object) = self.seal(collection, item, template) {
                        listing.insert(item.clone(), object);
                    }
                }
            }
        }
        Ok(listing)
    }

    /// What the workspace itself stores, whiteouts included, without the base.
    pub fn stored(&self, collection: &Collection) -> Listing {
        self.0.store.list(&self.0.id, collection, None).unwrap_or_else(|_| Listing::empty(self.head()))
    }

    pub fn watch(&self, span: Span, after: Revision) -> Result<Watch, Error> {
        self.0.store.watch(&self.0.id, span, after)
    }

    /// What `event` means to somebody who sees the base below.
    pub fn change(&self, event: &Event) -> Change {
        let new = event.after().cloned();
        if base::of(&event.key.collection).is_none_or(|items| !items.contains_key(&event.key.item)) {
            return Change { old: event.old.clone(), new, last: event.object().clone() };
        }
        let old = match &event.old {
            Some(object) => (!base::is_whiteout(object)).then(|| object.clone()),
            None => self.base(&event.key.collection, &event.key.item),
        };
        match new {
            Some(object) if !base::is_whiteout(&object) => {
                Change { old, last: object.clone(), new: Some(object) }
            }
            _ => {
                let last = match &old {
                    Some(object) => Arc::new(object.with_revision(event.revision, EventType::Deleted)),
                    None => event.object().clone(),
                };
                Change { old, new: None, last }
            }
        }
    }
}
