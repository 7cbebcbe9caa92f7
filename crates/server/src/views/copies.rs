//! Copies of what is stored here, in members.
//!
//! A pod that is stored in the workspace runs as a copy in a member, which says by an annotation what it is a copy of.
//! The stored one shows, and the copy does not: it stands behind it, for whoever wants its log or a command in it. A copy
//! of something that is not stored, or not any more, shows as any object of a member does; a pod with its cluster in the
//! name, so that whoever waits for the name to be free, or makes another, does not meet it. Which of the two is heard
//! of first makes no difference.
//!
//! The annotation is a claim of whoever made the object, a template of pods for one. A copy has the namespace and the name
//! of what it is a copy of: what claims something else shows, and nobody is led to it.

use std::collections::{BTreeSet, HashMap};

use compact_str::CompactString;
use machinery::resource::Tree;
use serde_json::Value;
use store::ItemKey;

use super::{
    kinds::Kind,
    render,
    report::renamed,
    view::{Hidden, Known, Part, Step, View},
};

/// Which objects are stored, and where those are that say to be copies.
#[derive(Default)]
pub(super) struct Copies {
    /// By UID.
    stored: HashMap<(Kind, CompactString), ItemKey>,
    /// By the UID that they name: cluster, and namespace and name there. Whether they show or not.
    named: HashMap<(Kind, CompactString), BTreeSet<(CompactString, ItemKey)>>,
}

/// The UID of what an object says to be a copy of.
pub(super) fn source_of(kind: Kind, tree: &Tree) -> Option<CompactString> {
    let annotations = tree.get("metadata")?.get("annotations").filter(|_| kind.may_be_copied())?;
    let source = annotations.get(api::SOURCE_ANNOTATION).and_then(Value::as_str)?;
    (!source.is_empty()).then(|| source.into())
}

impl Copies {
    /// Where the object with this UID is stored.
    pub fn stored_at(&self, kind: Kind, uid: &str) -> Option<&ItemKey> {
        self.stored.get(&(kind, uid.into()))
    }

    fn note(&mut self, kind: Kind, part: &Part) {
        if let Some(source) = part.source.clone() {
            let copy = (part.cluster.clone(), part.own());
            self.named.entry((kind, source)).or_default().insert(copy);
        }
    }

    fn forget(&mut self, kind: Kind, part: &Part) {
        let Some(source) = part.source.clone() else { return };
        let place = (kind, source);
        let Some(copies) = self.named.get_mut(&place) else { return };
        copies.remove(&(part.cluster.clone(), part.own()));
        if copies.is_empty() {
            self.named.remove(&place);
        }
    }

    fn of(&self, kind: Kind, uid: &str) -> Vec<(CompactString, ItemKey)> {
        self.named.get(&(kind, uid.into())).into_iter().flatten().cloned().collect()
    }
}

impl Known {
    /// The copies of a stored object that do not show.
    pub fn hidden(&self, kind: Kind, uid: &str) -> Vec<&Hidden> {
        let copies = self.copies.of(kind, uid);
        let hidden = |(cluster, own): (CompactString, ItemKey)| {
            self.clusters.get(&cluster)?.seen.get(&kind)?.hidden.get(&own)
        };
        copies.into_iter().filter_map(hidden).collect()
    }

    /// Whether it is a copy of what is stored, and must not show by itself. `wish`: where it would by its own name.
    pub fn is_behind(&self, kind: Kind, source: Option<&CompactString>, wish: &ItemKey) -> bool {
        source.is_some_and(|source| self.copies.stored_at(kind, source) == Some(wish))
    }

    /// A member has it, showing or not.
    pub fn note_copy(&mut self, kind: Kind, part: &Part) {
        self.copies.note(kind, part);
    }

    pub fn forget_copy(&mut self, kind: Kind, part: &Part) {
        self.copies.forget(kind, part);
    }
}

impl View {
    /// An object is stored here: its copies do not show from now on.
    pub(super) fn now_stored(
        &self,
        known: &mut Known,
        kind: Kind,
        item: &ItemKey,
        uid: &CompactString,
        step: &mut Step,
    ) {
        if !kind.may_be_copied() {
            return;
        }
        let before = known.copies.stored.insert((kind, uid.clone()), item.clone());
        if before.is_some() {
            return;
        }
        for (cluster, own) in known.copies.of(kind, uid) {
            self.step_behind(known, &cluster, kind, &own, item, step);
        }
    }

    /// It is not any more: what is left of its copies shows until it is gone.
    pub(super) fn no_longer_stored(
        &self,
        known: &mut Known,
        kind: Kind,
        item: &ItemKey,
        uid: &CompactString,
        step: &mut Step,
    ) {
        if known.copies.stored_at(kind, uid) != Some(item) {
            return;
        }
        known.copies.stored.remove(&(kind, uid.clone()));
        for (cluster, own) in known.copies.of(kind, uid) {
            self.step_forward(known, &cluster, kind, &own, step);
        }
    }

    /// What shows goes behind what is stored, if that is at the place where it would show by its own name.
    fn step_behind(
        &self,
        known: &mut Known,
        cluster: &str,
        kind: Kind,
        own: &ItemKey,
        stored: &ItemKey,
        step: &mut Step,
    ) {
        let Some(item) = known.seen(cluster, kind).names.get(own).cloned() else { return };
        if ItemKey::new(item.namespace(), own.name()) != *stored {
            return;
        }
        let Some(part) = known.part(kind, &item, cluster).cloned() else { return };
        let shown = part.alone.as_deref().cloned().or_else(|| self.draft(kind, &item, step));
        let draft = shown.and_then(|shown| renamed(&shown, own.name(), own.name()));
        self.forget(known, cluster, kind, own, step);
        if let Some(draft) = draft {
            self.put_behind(known, kind, Hidden { part: Part { alone: None, ..part }, draft }, step);
        }
    }

    /// Takes a copy down that does not show.
    pub(super) fn put_behind(&self, known: &mut Known, kind: Kind, hidden: Hidden, step: &mut Step) {
        let Part { cluster, uid, source, .. } = hidden.part.clone();
        let Some(source) = source else { return };
        let namespace = hidden.draft.head().namespace.clone();
        known.note_copy(kind, &hidden.part);
        known.seen(&cluster, kind).hidden.insert(hidden.part.own(), hidden);
        let before = known.aliases.insert(uid.clone(), source.clone());
        if before.as_ref() != Some(&source) && kind.is_summed() {
            self.reown(known, &cluster, Kind::Pods, Some(&namespace), &uid, &source, step);
        }
    }

    /// What stood behind shows by itself.
    fn step_forward(&self, known: &mut Known, cluster: &str, kind: Kind, own: &ItemKey, step: &mut Step) {
        let seen = known.seen(cluster, kind);
        let Some(Hidden { part, draft }) = seen.hidden.remove(own) else { return };
        // Behind, it was not marked when its cluster was lost.
        let since = seen.stale.as_deref();
        let draft = since.and_then(|since| render::mark(&draft.preview(), Some(since))).unwrap_or(draft);
        let namespace = draft.head().namespace.clone();
        known.aliases.remove(&part.uid);
        let placed = &known.cluster(cluster).placed;
        let is_placed = placed.contains_key(&part.uid);
        let owner =
            placed.values().find(|placed| Some(placed.uid.as_str()) == part.owner.as_deref()).cloned();
        if let Some(source) = part.source.clone().filter(|_| kind.is_summed() && !is_placed) {
            self.reown(known, cluster, Kind::Pods, Some(&namespace), &source, &part.uid, step);
        }
        let wish = ItemKey::new(&namespace, own.name());
        let item = known.place_for(cluster, kind, &wish, owner.as_ref(), part.source.as_ref());
        let Some(draft) = renamed(&draft, own.name(), item.name()) else { return };
        known.seen(cluster, kind).names.insert(own.clone(), item.clone());
        self.put_part(known, kind, item, part, draft, step);
    }
}
