//! What the workspace itself stores of the kinds of a view, taken over into the view.

use std::{collections::VecDeque, sync::Arc};

use compact_str::CompactString;
use machinery::{Object, Revision};
use store::{Event, ItemKey, Span, Store, Watch};

use super::{
    kinds::Kind,
    view::{Item, Known, Step, View},
};

/// So many records are taken over at once.
const AT_ONCE: usize = 1024;
/// For so many records of the store it is remembered where they are in the view: those of writes in flight.
const REMEMBERED: usize = 4096;

/// One kind of the store, from where the view has it.
#[derive(Default)]
pub(super) struct Mirror {
    /// `None`: it must be listed first.
    watch: Option<Watch>,
    /// Revisions of the store and where they are in the view, oldest first.
    shown: VecDeque<(Revision, Revision)>,
    /// The UIDs of objects that were removed from the store, oldest first.
    removed: VecDeque<CompactString>,
}

impl Mirror {
    /// Where a record of the store is in the view.
    pub fn shown_at(&self, stored: Revision) -> Option<Revision> {
        let at = self.shown.binary_search_by_key(&stored, |(stored, _)| *stored).ok()?;
        self.shown.get(at).map(|(_, shown)| *shown)
    }

    /// Whether the store had it, and it was removed there.
    pub fn saw_removed(&self, uid: &str) -> bool {
        self.removed.iter().any(|it| it == uid)
    }

    fn remember(&mut self, event: &Event, shown: Revision) {
        if self.shown.len() >= REMEMBERED {
            self.shown.pop_front();
        }
        self.shown.push_back((event.revision, shown));
        if event.after().is_some() {
            return;
        }
        if self.removed.len() >= REMEMBERED {
            self.removed.pop_front();
        }
        self.removed.push_back(event.object().head.uid.clone());
    }
}

impl View {
    /// Brings the view level with the store.
    pub(super) fn catch_up(&self, known: &mut Known) {
        for kind in Kind::ALL {
            loop {
                let mirror = known.mirrors.entry(kind).or_default();
                match mirror.watch.as_mut().map(|watch| watch.take(AT_ONCE)) {
                    Some(Ok(batch)) if batch.events.is_empty() => break,
                    Some(Ok(batch)) => batch.events.iter().for_each(|event| self.follow(known, kind, event)),
                    None | Some(Err(_)) => {
                        self.take_over(known, kind);
                        break;
                    }
                }
            }
        }
    }

    /// Every record of the store is one of the view.
    fn follow(&self, known: &mut Known, kind: Kind, event: &Event) {
        let item = &event.key.item;
        let mut step = Step::default();
        match event.after() {
            Some(object) => self.show_stored(known, kind, item, object, &mut step),
            None => self.hide_stored(known, kind, item, &mut step),
        }
        self.commit(known, step);
        let shown = match event.after() {
            Some(_) => self.object(kind, item).map(|object| object.revision),
            None => Some(self.memory.head(&self.id)),
        };
        if let (Some(mirror), Some(shown)) = (known.mirrors.get_mut(&kind), shown) {
            mirror.remember(event, shown);
        }
    }

    /// All that is stored, when it is not known what happened to it.
    fn take_over(&self, known: &mut Known, kind: Kind) {
        let collection = kind.collection();
        let Ok(listing) = self.store.list(&self.id, &collection, None) else { return };
        let mut step = Step::default();
        let items = known.items.entry(kind).or_default();
        let was_stored = items.iter().filter(|(_, whose)| matches!(whose, Item::Stored { .. }));
        let gone: Vec<ItemKey> = was_stored
            .filter(|(item, _)| listing.get(item).is_none())
            .map(|(item, _)| item.clone())
            .collect();
        for item in gone {
            self.hide_stored(known, kind, &item, &mut step);
        }
        for (item, object) in listing.iter(None, None) {
            self.show_stored(known, kind, item, object, &mut step);
        }
        self.commit(known, step);
        let watch = self.store.watch(&self.id, Span { collection, namespace: None }, listing.revision);
        known.mirrors.insert(kind, Mirror { watch: watch.ok(), ..Mirror::default() });
    }

    /// What is stored has its name, whoever had it.
    fn show_stored(
        &self,
        known: &mut Known,
        kind: Kind,
        item: &ItemKey,
        object: &Arc<Object>,
        step: &mut Step,
    ) {
        let (revision, uid) = (object.revision, object.head.uid.clone());
        let stored = Item::Stored { revision, uid: uid.clone() };
        let before = known.items.entry(kind).or_default().get(item);
        let another = match before {
            Some(Item::Stored { uid: before, .. }) if *before != uid => Some(before.clone()),
            _ => None,
        };
        if let Some(another) = another {
            self.no_longer_stored(known, kind, item, &another, step);
        }
        // Before its name is taken, so that nothing moves that is about to go.
        self.now_stored(known, kind, item, &uid, step);
        let before = known.items.entry(kind).or_default().insert(item.clone(), stored);
        if let Some(Item::Members(parts)) = before {
            self.move_aside(known, kind, item, parts, step);
        }
        step.put(kind, item.clone(), object.unsealed());
    }

    fn hide_stored(&self, known: &mut Known, kind: Kind, item: &ItemKey, step: &mut Step) {
        let items = known.items.entry(kind).or_default();
        let Some(Item::Stored { uid, .. }) = items.get(item) else { return };
        let uid = uid.clone();
        items.remove(item);
        step.remove(kind, item.clone());
        self.no_longer_stored(known, kind, item, &uid, step);
    }
}
