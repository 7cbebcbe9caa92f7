//! What happened in a store, by its own records: who claims that nothing was deleted is not the one who is asked.

use std::fmt;

use machinery::Object;
use parking_lot::Mutex;
use serde_json::Value;
use store::{Event, EventChange, Feed, FeedItem, Store, WorkspaceId};

/// Secrets with which pods in members reach the hub begin so.
pub const TOKENS: &str = "hanse-token-";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Made,
    /// Something besides the status.
    Changed,
    Status,
    /// Its deletion was asked for, and it waits for something.
    Deleting,
    Removed,
}

/// One record.
#[derive(Clone, PartialEq, Eq)]
pub struct Deed {
    pub workspace: WorkspaceId,
    /// As in paths: `deployments`.
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub what: What,
    /// The object is a copy that Hanse made.
    pub is_copy: bool,
}

impl fmt::Debug for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Deed { workspace, resource, namespace, name, what, .. } = self;
        write!(f, "{}: {what:?} {resource} {namespace}/{name}", workspace.0)
    }
}

impl Deed {
    /// Its end was asked for, or came.
    pub fn is_end(&self) -> bool {
        matches!(self.what, What::Deleting | What::Removed)
    }
}

/// All records since it was begun.
pub struct History {
    feed: Mutex<Feed>,
    deeds: Mutex<Vec<Deed>>,
}

/// A moment.
#[derive(Clone, Copy, Debug)]
pub struct Mark(usize);

impl History {
    pub fn begin(store: &dyn Store) -> History {
        History { feed: Mutex::new(store.feed()), deeds: Mutex::default() }
    }

    fn read(&self) {
        let (mut feed, mut deeds) = (self.feed.lock(), self.deeds.lock());
        while let Some(item) = feed.try_next() {
            match item {
                FeedItem::Event(event) => deeds.push(deed(&event)),
                FeedItem::WorkspaceRemoved(_) => {}
                FeedItem::Lagged => panic!("the history has a gap, and proves nothing"),
            }
        }
    }

    pub fn mark(&self) -> Mark {
        self.read();
        Mark(self.deeds.lock().len())
    }

    /// Without what nodes say of themselves all the time, events, which end by themselves, and how pods reach the hub,
    /// which is another one each time it starts in a test.
    pub fn since(&self, mark: Mark) -> Vec<Deed> {
        self.read();
        let deeds = self.deeds.lock();
        let passes = |deed: &&Deed| {
            let is_way = deed.name.starts_with(TOKENS) || deed.resource.starts_with("mutatingadmissionpolic");
            !is_way && !matches!(deed.resource.as_str(), "leases" | "nodes" | "events")
        };
        deeds[mark.0..].iter().filter(passes).cloned().collect()
    }
}

fn deed(event: &Event) -> Deed {
    let (object, what) = match &event.change {
        EventChange::Removed(object) => (object, What::Removed),
        EventChange::Put(object) => (object, change(event.old.as_deref(), object)),
    };
    let tree = object.tree().unwrap_or_default();
    let annotations = tree.get("metadata").map(|it| it["annotations"].clone()).unwrap_or_default();
    Deed {
        workspace: event.workspace.clone(),
        resource: event.key.collection.parts().1.to_owned(),
        namespace: event.key.item.namespace().to_owned(),
        name: event.key.item.name().to_owned(),
        uid: object.head.uid.to_string(),
        what,
        is_copy: annotations[api::SOURCE_ANNOTATION].is_string(),
    }
}

fn change(old: Option<&Object>, new: &Object) -> What {
    let Some(old) = old else { return What::Made };
    if new.head.deleting && !old.head.deleting {
        return What::Deleting;
    }
    let plain = |object: &Object| {
        let mut tree = object.tree().unwrap_or_default();
        tree.remove("status");
        if let Some(metadata) = tree.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("resourceVersion");
            metadata.remove("managedFields");
        }
        tree
    };
    if plain(old) == plain(new) { What::Status } else { What::Changed }
}
