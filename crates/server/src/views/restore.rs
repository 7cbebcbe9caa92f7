//! A view to its file and back.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use compact_str::CompactString;
use machinery::{Draft, EventType, Object, resource::Tree};
use store::ItemKey;

use super::{
    Placed,
    copies::source_of,
    keep::{Kept, KeptCluster, Meta, Whose},
    kinds::Kind,
    names, render,
    report::renamed,
    view::{Cluster, Hidden, Item, Known, Part, Seen, Step, View},
};

impl View {
    /// What is worth keeping, if something happened since the last time. `None`: nothing did.
    pub(super) fn to_keep(&self) -> Option<Kept> {
        if !self.changed.swap(false, Ordering::Relaxed) {
            return None;
        }
        let known = self.level();
        if known.damaged.is_some() {
            // What is damaged stays as it is until more is known than it says.
            self.changed.store(true, Ordering::Relaxed);
            return None;
        }
        let meta = Meta {
            epoch: self.origin().epoch(),
            clusters: known.clusters.iter().map(kept_cluster).collect(),
        };
        let mut kept = Kept { meta, objects: Vec::new() };
        for (kind, items) in &known.items {
            for (item, whose) in items {
                let Item::Members(parts) = whose else { continue };
                for part in parts {
                    let object = || self.object(*kind, item).map(|object| object.body());
                    let alone = part.alone.as_ref().map(|draft| draft.body().clone());
                    let Some(body) = alone.or_else(object) else { continue };
                    kept.objects.push((whose_of(*kind, part), body));
                }
            }
        }
        for (kind, seen) in known.clusters.values().flat_map(|cluster| &cluster.seen) {
            let hidden = seen.hidden.values();
            kept.objects
                .extend(hidden.map(|hidden| (whose_of(*kind, &hidden.part), hidden.draft.body().clone())));
        }
        Some(kept)
    }

    /// Shows what was kept, as not seen since `since`.
    pub(super) fn restore(&self, kept: Kept, since: &str) {
        let mut known = self.level();
        for cluster in kept.meta.clusters {
            let placed = |(there, uid, duplicated): (String, String, bool)| {
                (CompactString::from(there), Placed { uid, duplicated })
            };
            let seen = |plural: &String| {
                let kind = Kind::ALL.into_iter().find(|kind| kind.plural() == plural)?;
                let stale = Some(since.to_owned());
                Some((kind, Seen { whole: true, stale, ..Seen::default() }))
            };
            let restored = Cluster {
                member: None,
                identity: cluster.identity,
                seen: cluster.seen.iter().filter_map(seen).collect(),
                placed: cluster.placed.into_iter().map(placed).collect(),
                announced: Default::default(),
            };
            known.clusters.insert(cluster.name.into(), restored);
        }
        let mut step = Step::default();
        for (whose, body) in kept.objects {
            self.restore_one(&mut known, &whose, body, since, &mut step);
        }
        self.commit(&known, step);
    }

    fn restore_one(&self, known: &mut Known, whose: &Whose, body: Bytes, since: &str, step: &mut Step) {
        let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.plural() == whose.kind) else { return };
        // What shows alone was kept with its revision.
        let sealed = Object::from_body(&body, EventType::Added).map(|object| object.unsealed());
        let Ok(draft) = sealed.or_else(|_| Draft::from_body(body)) else { return };
        if !known.clusters.contains_key(whose.cluster.as_str()) {
            return;
        }
        let mut draft = render::mark(&draft.preview(), Some(since)).unwrap_or(draft);
        let namespace = draft.head().namespace.clone();
        let part = part_of(kind, whose, &draft);
        if known.is_behind(kind, part.source.as_ref(), &ItemKey::new(&namespace, &part.name)) {
            return self.put_behind(known, kind, Hidden { part, draft }, step);
        }
        let mut item = ItemKey::new(&namespace, &draft.head().name);
        let items = known.items.entry(kind).or_default();
        let is_free = match items.get(&item) {
            None => true,
            Some(Item::Members(parts)) => parts
                .iter()
                .all(|it| it.cluster != part.cluster && it.owner.is_some() && it.owner == part.owner),
            Some(Item::Stored { .. }) => false,
        };
        if !is_free {
            // Meanwhile somebody else has its name.
            let taken = |name: &str| known.is_taken(kind, &namespace, name);
            let name = names::shown_name(&whose.name, &whose.cluster, true, taken);
            let Some(moved) = renamed(&draft, &whose.name, &name) else { return };
            (draft, item) = (moved, ItemKey::new(&namespace, &name));
        }
        let seen = known.cluster(&whose.cluster).seen.entry(kind).or_default();
        seen.names.insert(part.own(), item.clone());
        self.put_part(known, kind, item, part, draft, step);
    }

    /// What was kept cannot be read: nothing is shown as whole before all clusters were seen.
    pub(super) fn be_blind(&self, why: String) {
        self.level().damaged = Some(why);
    }
}

fn part_of(kind: Kind, whose: &Whose, draft: &Draft) -> Part {
    let namespace = match whose.namespace.as_str() {
        "" => draft.head().namespace.clone(),
        namespace => namespace.into(),
    };
    let tree: Option<Tree> = serde_json::from_slice(draft.body()).ok();
    Part {
        cluster: whose.cluster.as_str().into(),
        namespace,
        name: whose.name.as_str().into(),
        revision: whose.revision.as_str().into(),
        uid: whose.uid.as_str().into(),
        owner: whose.owner.as_deref().map(CompactString::from),
        source: tree.and_then(|tree| source_of(kind, &tree)),
        alone: None,
    }
}

fn kept_cluster((name, cluster): (&CompactString, &Cluster)) -> KeptCluster {
    let seen = cluster.seen.iter().filter(|(_, seen)| seen.whole);
    let placed = cluster.placed.iter();
    KeptCluster {
        name: name.to_string(),
        identity: cluster.identity.clone(),
        seen: seen.map(|(kind, _)| kind.plural().to_owned()).collect(),
        placed: placed.map(|(there, here)| (there.to_string(), here.uid.clone(), here.duplicated)).collect(),
    }
}

fn whose_of(kind: Kind, part: &Part) -> Whose {
    Whose {
        kind: kind.plural().to_owned(),
        cluster: part.cluster.to_string(),
        namespace: part.namespace.to_string(),
        name: part.name.to_string(),
        uid: part.uid.to_string(),
        revision: part.revision.to_string(),
        owner: part.owner.as_ref().map(CompactString::to_string),
    }
}
