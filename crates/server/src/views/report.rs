//! What sessions report, and what it makes of a view.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::Ordering},
};

use compact_str::CompactString;
use machinery::{Draft, EventType, Object, resource::Tree};
use serde_json::Value;
use store::ItemKey;

use super::{
    Member, Placed, Sighting,
    copies::{Copies, source_of},
    gather::Told,
    kinds::Kind,
    merge,
    names::{self, Identity},
    plain,
    render::{self, Relations, Shown},
    view::{Cluster, Hidden, Item, Known, Part, Seen, Step, Target, View},
};

/// An object as a member reported it.
pub(super) struct Reported {
    pub identity: Identity,
    /// The namespace that it shows in.
    pub namespace: CompactString,
    pub tree: Tree,
}

impl Reported {
    /// `None`: it is no object, which is the member's fault and is said in the log.
    pub fn read(cluster: &str, kind: Kind, sighting: &Sighting) -> Option<Reported> {
        let tree = plain::read(&sighting.object);
        let identity = tree.as_ref().and_then(Identity::of);
        if identity.is_none() {
            tracing::warn!(cluster, kind = kind.plural(), "a member reported something that is no object");
        }
        let identity = identity?;
        let namespace = sighting.namespace.clone().unwrap_or_else(|| identity.namespace.as_str().into());
        Some(Reported { identity, namespace, tree: tree? })
    }

    /// Where its cluster has it.
    fn key(&self) -> ItemKey {
        ItemKey::new(&self.identity.namespace, &self.identity.name)
    }

    /// Where it would show by its own name.
    fn wish(&self) -> ItemKey {
        ItemKey::new(&self.namespace, &self.identity.name)
    }

    /// The placed object that it belongs to.
    fn owner<'a>(&self, here: &'a Cluster) -> Option<&'a Placed> {
        let owners = self.tree.get("metadata")?.get("ownerReferences")?.as_array()?;
        owners.iter().find_map(|owner| {
            let text = |field: &str| owner[field].as_str().unwrap_or_default();
            here.placed.get(text("uid")).or_else(|| {
                let key = [text("kind"), &self.identity.namespace, text("name")].map(CompactString::from);
                (!here.announced.is_empty()).then(|| here.announced.get(&key)).flatten()
            })
        })
    }
}

/// The objects of one cluster, as they show.
struct Kin<'a> {
    cluster: &'a Cluster,
    aliases: &'a HashMap<CompactString, CompactString>,
    copies: &'a Copies,
}

impl Relations for Kin<'_> {
    fn uid(&self, uid: &str) -> Option<CompactString> {
        let placed = self.cluster.placed.get(uid).map(|placed| placed.uid.as_str().into());
        placed.or_else(|| self.aliases.get(uid).cloned())
    }

    fn place(&self, kind: &str, namespace: &str, name: &str) -> Option<ItemKey> {
        let kind = Kind::ALL.into_iter().find(|it| it.name() == kind)?;
        let (seen, own) = (self.cluster.seen.get(&kind)?, ItemKey::new(namespace, name));
        match seen.hidden.get(&own) {
            Some(hidden) => self.copies.stored_at(kind, hidden.part.source.as_ref()?).cloned(),
            None => seen.names.get(&own).cloned(),
        }
    }
}

impl Known {
    pub fn cluster(&mut self, name: &str) -> &mut Cluster {
        self.clusters.entry(name.into()).or_default()
    }

    pub fn seen(&mut self, cluster: &str, kind: Kind) -> &mut Seen {
        self.cluster(cluster).seen.entry(kind).or_default()
    }

    fn parts(&mut self, kind: Kind, item: &ItemKey) -> Option<&mut Vec<Part>> {
        match self.items.get_mut(&kind)?.get_mut(item)? {
            Item::Members(parts) => Some(parts),
            Item::Stored { .. } => None,
        }
    }

    pub fn part(&mut self, kind: Kind, item: &ItemKey, cluster: &str) -> Option<&mut Part> {
        self.parts(kind, item)?.iter_mut().find(|part| part.cluster == cluster)
    }

    pub fn is_taken(&self, kind: Kind, namespace: &str, name: &str) -> bool {
        self.items.get(&kind).is_some_and(|items| items.contains_key(&ItemKey::new(namespace, name)))
    }

    /// Where an object that was not seen before shows; `wish` is where it would by its own name.
    pub fn place_for(
        &mut self,
        cluster: &str,
        kind: Kind,
        wish: &ItemKey,
        owner: Option<&Placed>,
        source: Option<&CompactString>,
    ) -> ItemKey {
        if let Some(owner) = owner.filter(|owner| kind.is_summed() && !owner.duplicated)
            && let Some(parts) = self.parts(kind, wish)
            && parts
                .iter()
                .all(|part| part.owner.as_deref() == Some(owner.uid.as_str()) && part.cluster != cluster)
        {
            return wish.clone();
        }
        // What is left of a pod is not taken for the pod, nor for the one that takes its place.
        let is_left_over = kind == Kind::Pods && source.is_some();
        let always = is_left_over || owner.is_some_and(|owner| owner.duplicated);
        let namespace = wish.namespace();
        let taken = |name: &str| self.is_taken(kind, namespace, name);
        ItemKey::new(namespace, &names::shown_name(wish.name(), cluster, always, taken))
    }

    /// What was last seen of a member's object, by its place there.
    fn latest(&self, cluster: &str, kind: Kind, own: &ItemKey) -> Option<&Part> {
        let seen = self.clusters.get(cluster)?.seen.get(&kind)?;
        if let Some(hidden) = seen.hidden.get(own) {
            return Some(&hidden.part);
        }
        match self.items.get(&kind)?.get(seen.names.get(own)?)? {
            Item::Members(parts) => parts.iter().find(|part| part.cluster == cluster),
            Item::Stored { .. } => None,
        }
    }
}

impl View {
    pub(super) fn expect(&self, cluster: &str) {
        self.changed.store(true, Ordering::Relaxed);
        self.lock().cluster(cluster);
    }

    pub(super) fn is_held(&self, cluster: &str) -> bool {
        self.lock().clusters.get(cluster).is_some_and(|it| it.member.is_some())
    }

    pub(super) fn join(&self, member: Arc<dyn Member>, identity: &str) -> bool {
        let name = member.cluster().to_owned();
        let mut known = self.level();
        let holder = known.clusters.get(name.as_str()).and_then(|it| it.member.as_ref());
        if holder.is_some_and(|holder| holder.home() != member.home()) {
            tracing::warn!(cluster = name, home = %member.home(), "another cluster of that name shows here");
            return false;
        }
        self.changed.store(true, Ordering::Relaxed);
        let known_as = known.cluster(&name).identity.clone();
        if !known_as.is_empty() && known_as != identity {
            tracing::warn!(cluster = name, "is another cluster than it was: what was known of it goes");
            self.drop_cluster(&mut known, &name);
        }
        let cluster = known.cluster(&name);
        cluster.identity = identity.to_owned();
        cluster.member = Some(member);
        cluster.seen.values_mut().for_each(|seen| seen.confirmed = false);
        true
    }

    pub(super) fn replace(&self, cluster: &str, kind: Kind, objects: &[Sighting]) {
        let reported: Vec<Reported> =
            objects.iter().filter_map(|object| Reported::read(cluster, kind, object)).collect();
        let mut known = self.level();
        if !known.clusters.contains_key(cluster) {
            return;
        }
        let mut step = Step::default();
        let here: HashSet<ItemKey> = reported.iter().map(Reported::key).collect();
        let seen = known.seen(cluster, kind);
        (seen.whole, seen.confirmed, seen.stale) = (true, true, None);
        self.changed.store(true, Ordering::Relaxed);
        // What cannot be read may be any of those that are missing.
        let is_readable = reported.len() == objects.len();
        let missing = |name: &&ItemKey| is_readable && !here.contains(*name);
        let gone: Vec<ItemKey> =
            seen.names.keys().chain(seen.hidden.keys()).filter(missing).cloned().collect();
        for name in gone {
            self.forget(&mut known, cluster, kind, &name, &mut step);
        }
        for reported in reported {
            self.place(&mut known, cluster, kind, reported, &mut step, false);
        }
        if known.damaged.is_some() && known.all_seen() {
            known.damaged = None;
        }
        self.commit(&known, step);
    }

    /// Something was told, and will show when somebody looks.
    pub(super) fn gather(&self, told: Told) {
        self.changed.store(true, Ordering::Relaxed);
        let somebody_looks = self.memory.is_watched(&self.id, &told.kind.collection());
        let is_full = {
            let mut gathered = self.gathered.lock();
            gathered.add(told);
            gathered.is_full()
        };
        if is_full || somebody_looks {
            drop(self.level());
        }
    }

    /// Shows what was gathered.
    pub(super) fn settle(&self, known: &mut Known) {
        let gathered = self.gathered.lock().take();
        if gathered.is_empty() {
            return;
        }
        let mut step = Step::default();
        for Told { cluster, kind, object, is_gone } in gathered {
            if !known.clusters.contains_key(&cluster) {
                continue;
            }
            let Some(reported) = Reported::read(&cluster, kind, &object) else { continue };
            if is_gone {
                self.take_away(known, &cluster, kind, &reported, &mut step);
            } else {
                self.place(known, &cluster, kind, reported, &mut step, true);
            }
        }
        self.commit(known, step);
    }

    fn take_away(&self, known: &mut Known, cluster: &str, kind: Kind, gone: &Reported, step: &mut Step) {
        let name = gone.key();
        if known.latest(cluster, kind, &name).is_some_and(|part| part.uid == gone.identity.uid) {
            self.forget(known, cluster, kind, &name, step);
        }
    }

    pub(super) fn announce(&self, cluster: &str, object: [&str; 3], from: Placed) {
        if let Some(here) = self.lock().clusters.get_mut(cluster) {
            here.announced.insert(object.map(CompactString::from), from);
        }
    }

    pub(super) fn placed(&self, cluster: &str, uid: &str, from: Option<Placed>) {
        let mut known = self.lock();
        let Some(here) = known.clusters.get_mut(cluster) else { return };
        let Some(placed) = from else {
            here.placed.remove(uid);
            return;
        };
        self.changed.store(true, Ordering::Relaxed);
        here.announced.retain(|_, it| it.uid != placed.uid);
        let to = placed.uid.clone();
        let before = here.placed.insert(uid.into(), placed);
        if before.is_some() {
            return;
        }
        // What it owns may have been seen before.
        let mut step = Step::default();
        for kind in Kind::ALL {
            self.reown(&mut known, cluster, kind, None, uid, &to, &mut step);
        }
        self.commit(&known, step);
    }

    pub(super) fn lost(&self, cluster: &str, since: &str) {
        let mut known = self.level();
        let mut step = Step::default();
        let Some(lost) = known.clusters.get_mut(cluster) else { return };
        lost.member = None;
        for kind in Kind::ALL {
            self.lose(&mut known, cluster, kind, since, &mut step);
        }
        self.commit(&known, step);
    }

    pub(super) fn outdated(&self, cluster: &str, kind: Kind, since: &str) {
        let mut known = self.level();
        let mut step = Step::default();
        self.lose(&mut known, cluster, kind, since, &mut step);
        self.commit(&known, step);
    }

    /// What was seen of a kind is not confirmed any more.
    fn lose(&self, known: &mut Known, cluster: &str, kind: Kind, since: &str, step: &mut Step) {
        let Some(seen) = known.clusters.get_mut(cluster).and_then(|it| it.seen.get_mut(&kind)) else {
            return;
        };
        seen.confirmed = false;
        if seen.stale.is_some() {
            return;
        }
        seen.stale = Some(since.to_owned());
        let items: Vec<ItemKey> = seen.names.values().cloned().collect();
        for item in items {
            self.mark(known, cluster, kind, &item, since, step);
        }
    }

    pub(super) fn leave(&self, cluster: &str) {
        let mut known = self.lock();
        self.gathered.lock().forget(cluster);
        self.drop_cluster(&mut known, cluster);
        known.clusters.remove(cluster);
        self.changed.store(true, Ordering::Relaxed);
    }

    fn drop_cluster(&self, known: &mut Known, cluster: &str) {
        let mut step = Step::default();
        for kind in Kind::ALL {
            let seen = known.seen(cluster, kind);
            let names: Vec<ItemKey> = seen.names.keys().chain(seen.hidden.keys()).cloned().collect();
            for name in names {
                self.forget(known, cluster, kind, &name, &mut step);
            }
        }
        self.commit(known, step);
        known.clusters.insert(cluster.into(), Cluster::default());
    }

    /// What a member answered about its object, as it shows. `keep`: it is so now, and is seen by whoever reads next,
    /// unless the session was faster.
    pub fn answered(&self, shown: &ItemKey, target: &Target, tree: Tree, keep: bool) -> Option<Arc<Object>> {
        let mut known = self.level();
        let reported = Reported { identity: Identity::of(&tree)?, namespace: shown.namespace().into(), tree };
        let part = known.part(target.kind, shown, &target.cluster);
        let is_known = part.is_some_and(|part| part.uid == reported.identity.uid);
        if keep && is_known {
            let mut step = Step::default();
            self.place(&mut known, &target.cluster, target.kind, reported, &mut step, true);
            self.commit(&known, step);
            return self.object(target.kind, shown);
        }
        let place = Shown { cluster: &target.cluster, namespace: shown.namespace(), name: shown.name() };
        let draft = render::show(target.kind, reported.tree, &place, &known.kin(&target.cluster)?).ok()?;
        let revision = self.object(target.kind, shown).map_or(self.origin(), |object| object.revision);
        Some(Arc::new(draft.seal(revision, EventType::Modified)))
    }

    /// `in_order`: what is older than what is known is left out.
    fn place(
        &self,
        known: &mut Known,
        cluster: &str,
        kind: Kind,
        reported: Reported,
        step: &mut Step,
        in_order: bool,
    ) {
        let name = reported.key();
        let source = source_of(kind, &reported.tree);
        let goes_behind = known.is_behind(kind, source.as_ref(), &reported.wish());
        let last = known.latest(cluster, kind, &name);
        let is_same = last.as_ref().is_some_and(|last| last.uid == reported.identity.uid);
        let is_copy_as_before = last.as_ref().is_some_and(|last| last.source == source);
        if in_order
            && is_same
            && last.is_some_and(|last| names::is_older(&reported.identity.revision, &last.revision))
        {
            return;
        }
        let seen = known.seen(cluster, kind);
        let is_behind = seen.hidden.contains_key(&name);
        let mut item = seen.names.get(&name).filter(|item| item.namespace() == reported.namespace).cloned();
        // Another object by that name, or the same one elsewhere.
        let stays = is_same && is_copy_as_before && is_behind == goes_behind && (is_behind || item.is_some());
        if !stays {
            self.forget(known, cluster, kind, &name, step);
            item = None;
        }
        let Some(here) = known.clusters.get(cluster) else { return };
        let owner = reported.owner(here).cloned();
        let item = match (goes_behind, item) {
            (true, _) => reported.wish(),
            (false, Some(item)) => item,
            (false, None) => {
                known.place_for(cluster, kind, &reported.wish(), owner.as_ref(), source.as_ref())
            }
        };
        let Some(kin) = known.kin(cluster) else { return };
        let Reported { identity, tree, .. } = reported;
        let shown = Shown { cluster, namespace: item.namespace(), name: item.name() };
        let draft = match render::show(kind, tree, &shown, &kin) {
            Ok(draft) => draft,
            Err(error) => return tracing::warn!(cluster, %error, "a member's object cannot be shown"),
        };
        let part = Part {
            cluster: cluster.into(),
            namespace: identity.namespace.into(),
            name: identity.name.into(),
            revision: identity.revision.into(),
            uid: identity.uid.into(),
            owner: owner.map(|owner| owner.uid.into()),
            source,
            alone: None,
        };
        if goes_behind {
            return self.put_behind(known, kind, Hidden { part, draft }, step);
        }
        known.seen(cluster, kind).names.insert(name, item.clone());
        self.put_part(known, kind, item, part, draft, step);
    }

    /// Shows one member's object, alone or with those it shows as one with.
    pub(super) fn put_part(
        &self,
        known: &mut Known,
        kind: Kind,
        item: ItemKey,
        part: Part,
        draft: Draft,
        step: &mut Step,
    ) {
        known.note_copy(kind, &part);
        let Some(parts) = known.parts(kind, &item) else {
            known.items.entry(kind).or_default().insert(item.clone(), Item::Members(vec![part]));
            return step.put(kind, item, draft);
        };
        let others = parts.iter().filter(|it| it.cluster != part.cluster).count();
        if others == 0 {
            *parts = vec![part];
            return step.put(kind, item, draft);
        }
        if let Some(first) = parts.first_mut().filter(|first| first.alone.is_none()) {
            first.alone = self.draft(kind, &item, step).map(Box::new);
        }
        let part = Part { alone: Some(Box::new(draft)), ..part };
        let joins = match parts.iter_mut().find(|it| it.cluster == part.cluster) {
            Some(known) => {
                *known = part.clone();
                false
            }
            None => {
                parts.push(part.clone());
                true
            }
        };
        let first = parts.first().map(|first| first.uid.clone()).unwrap_or_default();
        step.add_up(kind, item.clone());
        if joins {
            known.aliases.insert(part.uid.clone(), first.clone());
            let namespace = Some(item.namespace());
            self.reown(known, &part.cluster, Kind::Pods, namespace, &part.uid, &first, step);
        }
    }

    /// What shows at a place, or is about to.
    pub(super) fn draft(&self, kind: Kind, item: &ItemKey, step: &Step) -> Option<Draft> {
        let pending = step.pending(kind, item).cloned();
        pending.or_else(|| self.object(kind, item).map(|object| object.unsealed()))
    }

    /// One member's object is gone.
    pub(super) fn forget(
        &self,
        known: &mut Known,
        cluster: &str,
        kind: Kind,
        name: &ItemKey,
        step: &mut Step,
    ) {
        if let Some(Hidden { part, .. }) = known.seen(cluster, kind).hidden.remove(name) {
            known.aliases.remove(&part.uid);
            return known.forget_copy(kind, &part);
        }
        let Some(item) = known.seen(cluster, kind).names.remove(name) else { return };
        let Some(parts) = known.parts(kind, &item) else { return };
        let Some(at) = parts.iter().position(|part| part.cluster == cluster) else { return };
        let gone = parts.remove(at);
        known.forget_copy(kind, &gone);
        let Some(parts) = known.parts(kind, &item) else { return };
        let rest: Vec<(CompactString, CompactString)> =
            parts.iter().map(|part| (part.cluster.clone(), part.uid.clone())).collect();
        let Some((_, first)) = rest.first().cloned() else {
            known.items.entry(kind).or_default().remove(&item);
            return step.remove(kind, item);
        };
        known.aliases.remove(&gone.uid);
        if at == 0 {
            // Another one's UID shows from now on: it is another object.
            step.remove(kind, item.clone());
            known.aliases.remove(&first);
            for (cluster, uid) in &rest {
                if *uid != first {
                    known.aliases.insert(uid.clone(), first.clone());
                }
                let namespace = Some(item.namespace());
                self.reown(known, cluster, Kind::Pods, namespace, &gone.uid, &first, step);
            }
        }
        step.add_up(kind, item);
    }

    /// What a cluster has of a kind belongs to another than it showed.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn reown(
        &self,
        known: &mut Known,
        cluster: &str,
        kind: Kind,
        namespace: Option<&str>,
        from: &str,
        to: &str,
        step: &mut Step,
    ) {
        if kind.is_summed() {
            known.add_up(step);
        }
        let items = self.owned_by(kind, from, step);
        for item in items.iter().filter(|item| namespace.is_none_or(|it| it == item.namespace())) {
            if known.part(kind, item, cluster).is_none() {
                continue;
            }
            let Some(draft) = (match step.pending(kind, item) {
                Some(pending) => render::reown(&pending.preview(), from, to),
                None => self.object(kind, item).and_then(|object| render::reown(&object, from, to)),
            }) else {
                continue;
            };
            step.put(kind, item.clone(), draft);
            if let Some(part) = known.part(kind, item, cluster).filter(|_| kind.is_summed()) {
                part.owner = Some(to.into());
            }
        }
    }

    /// Marks an object as not seen since `since`.
    fn mark(
        &self,
        known: &mut Known,
        cluster: &str,
        kind: Kind,
        item: &ItemKey,
        since: &str,
        step: &mut Step,
    ) {
        let Some(parts) = known.parts(kind, item) else { return };
        if parts.len() == 1 {
            if let Some(draft) = self.object(kind, item).and_then(|object| render::mark(&object, Some(since)))
            {
                step.put(kind, item.clone(), draft);
            }
            return;
        }
        let part = parts.iter_mut().find(|part| part.cluster == cluster);
        if let Some(alone) = part.and_then(|part| part.alone.as_mut()) {
            let object = alone.preview();
            if let Some(marked) = render::mark(&object, Some(since)) {
                **alone = marked;
            }
        }
        step.add_up(kind, item.clone());
    }

    /// Gives members' objects another place, because theirs was taken by what is stored.
    pub(super) fn move_aside(
        &self,
        known: &mut Known,
        kind: Kind,
        item: &ItemKey,
        parts: Vec<Part>,
        step: &mut Step,
    ) {
        known.add_up(step);
        let shown = self.draft(kind, item, step);
        step.remove(kind, item.clone());
        for mut part in parts {
            let alone = part.alone.take().map(|alone| *alone);
            let Some(draft) = alone.or_else(|| shown.clone()) else { continue };
            let namespace = item.namespace();
            let name = names::shown_name(&part.name, &part.cluster, true, |name| {
                known.is_taken(kind, namespace, name)
            });
            known.aliases.remove(&part.uid);
            let place = ItemKey::new(namespace, &name);
            let Some(draft) = renamed(&draft, &part.name, &name) else { continue };
            known.seen(&part.cluster.clone(), kind).names.insert(part.own(), place.clone());
            self.put_part(known, kind, place, part, draft, step);
        }
    }
}

impl Known {
    fn kin(&self, cluster: &str) -> Option<Kin<'_>> {
        let Known { clusters, aliases, copies, .. } = self;
        Some(Kin { cluster: clusters.get(cluster)?, aliases, copies })
    }

    /// Works out what shows several members' objects as one: with many members, that is not for each that is told of.
    pub(super) fn add_up(&self, step: &mut Step) {
        for (kind, item) in step.take_sums() {
            if let Some(Item::Members(parts)) = self.items.get(&kind).and_then(|items| items.get(&item)) {
                put_sum(kind, &item, parts, step);
            }
        }
    }

    fn all_seen(&self) -> bool {
        let whole = |cluster: &Cluster| {
            Kind::ALL.iter().all(|kind| cluster.seen.get(kind).is_some_and(|seen| seen.whole))
        };
        !self.clusters.is_empty() && self.clusters.values().all(whole)
    }
}

/// Shows several members' objects as one.
fn put_sum(kind: Kind, item: &ItemKey, parts: &[Part], step: &mut Step) {
    let tree = |part: &Part| serde_json::from_slice(part.alone.as_ref()?.body()).ok();
    let trees: Vec<(&str, Tree)> =
        parts.iter().filter_map(|part| Some((part.cluster.as_str(), tree(part)?))).collect();
    if let Some(draft) = merge::sum(&trees).and_then(|sum| Draft::encode(&sum).ok()) {
        step.put(kind, item.clone(), draft);
    }
}

/// An object under another name; `own` is what its cluster calls it.
pub(super) fn renamed(draft: &Draft, own: &str, name: &str) -> Option<Draft> {
    let mut tree: Tree = serde_json::from_slice(draft.body()).ok()?;
    let metadata = tree.get_mut("metadata")?.as_object_mut()?;
    metadata.insert("name".into(), Value::from(name));
    let before = (own != name).then(|| Value::from(own));
    render::set(metadata, "annotations", render::NAME, before);
    Draft::encode(&tree).ok()
}
