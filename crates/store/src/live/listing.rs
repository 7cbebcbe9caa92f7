//! Lists: free snapshots of the present, and the past by undoing what happened since.

use std::{ops::Bound, sync::Arc};

use compact_str::format_compact;
use machinery::{Object, Revision};

use super::{Expiry, Item, Items, Place, Shared, Topic, Workspace};
use crate::{Error, Event, ItemKey};

/// All objects of a collection at the end of a commit. Cheap to clone and to keep: it shares with the live state.
#[derive(Clone)]
pub struct Listing {
    pub revision: Revision,
    items: Items,
}

impl Listing {
    pub(super) fn new(revision: Revision, items: Items) -> Self {
        Self { revision, items }
    }

    /// No objects, at `revision`.
    pub fn empty(revision: Revision) -> Self {
        Self { revision, items: Items::new() }
    }

    /// Lays an object over the snapshot; the store itself does not change.
    pub fn insert(&mut self, item: ItemKey, object: Arc<Object>) {
        self.items.insert(item, Item { object, place: Place::default(), expires: Expiry::NEVER });
    }

    /// Hides an object of the snapshot; the store itself does not change.
    pub fn remove(&mut self, item: &ItemKey) {
        self.items.remove(item);
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn get(&self, item: &ItemKey) -> Option<&Arc<Object>> {
        self.items.get(item).map(|item| &item.object)
    }

    /// The objects in order, of one namespace or of all, that come after `after`. Seeks; skips nothing by reading.
    pub fn iter(
        &self,
        namespace: Option<&str>,
        after: Option<&ItemKey>,
    ) -> impl Iterator<Item = (&ItemKey, &Arc<Object>)> + use<'_> {
        let first = namespace.map(|namespace| ItemKey::new(namespace, ""));
        // '0' is the byte after '/', so this is the first key that is no longer of the namespace.
        let end = namespace.map(|namespace| {
            ItemKey(format_compact!("{}0", if namespace.is_empty() { "-" } else { namespace }))
        });
        let lower = match (first, after) {
            (Some(first), Some(after)) if *after < first => Bound::Included(first),
            (_, Some(after)) => Bound::Excluded(after.clone()),
            (Some(first), None) => Bound::Included(first),
            (None, None) => Bound::Unbounded,
        };
        // A range that begins after its end is empty, but not to the map.
        let upper = match (&lower, end) {
            (Bound::Included(lower) | Bound::Excluded(lower), Some(end)) if *lower >= end => {
                Bound::Excluded(lower.clone())
            }
            (_, Some(end)) => Bound::Excluded(end),
            (_, None) => Bound::Unbounded,
        };
        let lower = match (&upper, lower) {
            (Bound::Excluded(upper), Bound::Excluded(lower)) if *upper == lower => Bound::Included(lower),
            (_, lower) => lower,
        };
        self.items.range((lower, upper)).map(|(key, item)| (key, &item.object))
    }
}

impl Listing {
    /// The collection as it was at the end of the commit that `at` belongs to.
    pub(super) fn undone_to(
        self,
        at: Revision,
        shared: &Shared,
        workspace: &Workspace,
        topic: &Topic,
    ) -> Result<Listing, Error> {
        let since = since(shared, workspace, topic, self.revision, at)?;
        let mut revision = at;
        let mut items = self.items;
        for event in since.iter().rev() {
            // A list never shows part of a commit: one that began at or before `at` stays.
            if event.commit_start <= at {
                revision = revision.max(event.commit_end);
                continue;
            }
            match &event.old {
                Some(old) => {
                    let item = Item { object: old.clone(), place: Place::default(), expires: Expiry::NEVER };
                    items.insert(event.key.item.clone(), item);
                }
                None => {
                    items.remove(&event.key.item);
                }
            }
        }
        Ok(Listing::new(revision.max(commit_end_at(topic, at)), items))
    }
}

/// The events of a topic with `at` < revision <= `head`.
fn since(
    shared: &Shared,
    workspace: &Workspace,
    topic: &Topic,
    head: Revision,
    at: Revision,
) -> Result<Vec<Arc<Event>>, Error> {
    let (dropped, recent) = {
        let ring = topic.ring.read();
        let first = ring.after(at);
        let recent = ring.events.range(first..).take_while(|event| event.revision <= head);
        (ring.dropped, recent.cloned().collect::<Vec<_>>())
    };
    if at >= dropped {
        return Ok(recent);
    }
    let archive = shared.archive.as_ref().ok_or(Error::Expired { oldest: dropped })?;
    let mut events = archive.read(&workspace.id, &topic.collection, at, dropped, usize::MAX)?;
    events.extend(recent);
    Ok(events)
}

/// The end of the commit that holds the newest event of the topic up to `at`, if memory still has it.
fn commit_end_at(topic: &Topic, at: Revision) -> Revision {
    let ring = topic.ring.read();
    let before = ring.after(at).checked_sub(1).and_then(|index| ring.events.get(index));
    before.map_or(at, |event| event.commit_end)
}

#[cfg(test)]
mod tests {
    use machinery::{Draft, EventType};
    use serde_json::json;

    use super::*;

    fn mk_listing(keys: &[(&str, &str)]) -> Listing {
        let mut items = Items::new();
        for (namespace, name) in keys {
            let tree = json!({"kind": "K", "apiVersion": "v1", "metadata": {"name": name}});
            let draft = Draft::encode(tree.as_object().unwrap()).unwrap();
            let object = Arc::new(draft.seal(Revision::BASE, EventType::Added));
            let item = Item { object, place: Place::default(), expires: Expiry::NEVER };
            items.insert(ItemKey::new(namespace, name), item);
        }
        Listing::new(Revision::BASE, items)
    }

    fn names(listing: &Listing, namespace: Option<&str>, after: Option<&ItemKey>) -> String {
        let keys: Vec<_> = listing.iter(namespace, after).map(|(key, _)| key.0.to_string()).collect();
        keys.join(" ")
    }

    #[test]
    fn lists_seek_by_namespace_and_key() {
        let listing = mk_listing(&[("a", "x"), ("a", "y"), ("a-b", "x"), ("b", "x"), ("", "z")]);
        assert_eq!(names(&listing, None, None), "-/z a-b/x a/x a/y b/x");
        assert_eq!(names(&listing, Some("a"), None), "a/x a/y");
        assert_eq!(names(&listing, Some(""), None), "-/z");
        assert_eq!(names(&listing, Some("a"), Some(&ItemKey::new("a", "x"))), "a/y");
        assert_eq!(names(&listing, Some("a"), Some(&ItemKey::new("a", "y"))), "");
        assert_eq!(names(&listing, Some("a"), Some(&ItemKey::new("b", "x"))), "");
        assert_eq!(names(&listing, Some("b"), Some(&ItemKey::new("a", "x"))), "b/x");
        assert_eq!(names(&listing, None, Some(&ItemKey::new("a", "x"))), "a/y b/x");
        assert_eq!(names(&listing, Some("nobody"), None), "");
        assert_eq!(names(&listing, Some("a"), Some(&ItemKey(format_compact!("a0")))), "");
    }
}
