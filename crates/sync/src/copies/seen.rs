//! What a member has of objects that carry the label of a workspace, kind by kind.

use std::collections::HashMap;

use bytes::Bytes;
use compact_str::CompactString;
use serde::Deserialize;
use serde_json::value::RawValue;
use store::ItemKey;

use super::{
    compare::{Members, fingerprint},
    work::Errand,
};

/// A kind, as it stands in a member's paths.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Type {
    pub api_version: CompactString,
    pub plural: CompactString,
}

impl Type {
    /// Of all objects that carry the label of a workspace.
    pub fn selected(&self) -> String {
        let label = crate::client::query_escaped(api::WORKSPACE_LABEL);
        format!("{}/{}?labelSelector={label}", self.root(), self.plural)
    }

    /// Empty: the core group.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    fn root(&self) -> String {
        match self.api_version.contains('/') {
            true => format!("/apis/{}", self.api_version),
            false => format!("/api/{}", self.api_version),
        }
    }

    /// Of one object; the namespace is empty for one that is in none.
    pub fn path(&self, item: &ItemKey) -> String {
        self.path_of(item.namespace(), item.name())
    }

    pub fn path_of(&self, namespace: &str, name: &str) -> String {
        let name = crate::client::query_escaped(name);
        match namespace {
            "" => format!("{}/{}/{name}", self.root(), self.plural),
            namespace => format!("{}/namespaces/{namespace}/{}/{name}", self.root(), self.plural),
        }
    }
}

/// An object of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub uid: CompactString,
    pub resource_version: CompactString,
    pub generation: i64,
    /// The workspace it is labelled with, its id there if it says one, and the UID that it says it was made from.
    pub workspace: CompactString,
    pub workspace_id: CompactString,
    pub source: CompactString,
    /// How many copies it says were there before it.
    pub run: u64,
    pub deleting: bool,
    /// Something in the member has it, and takes it along.
    pub owned: bool,
    /// Somebody there says that it is to be left alone.
    pub hands_off: bool,
    pub finalizers: Vec<CompactString>,
    /// As JSON; empty: it has none.
    pub status: Bytes,
    /// Of all but its status.
    pub fingerprint: u64,
    /// All of it, until it was compared with what it should be.
    pub body: Option<Bytes>,
}

type Pairs = HashMap<CompactString, CompactString>;

/// `None`: it is not there, or something else than it should be.
fn part<'a, T: Deserialize<'a>>(members: &Members<'a>, name: &str) -> Option<T> {
    serde_json::from_str(members.get(name)?.get()).ok()
}

impl Seen {
    /// `None`: it is no object.
    pub fn read(bytes: &[u8]) -> Option<(ItemKey, Seen)> {
        let object: Members<'_> = serde_json::from_slice(bytes).ok()?;
        let metadata: Members<'_> = part(&object, "metadata")?;
        let text = |name| part::<CompactString>(&metadata, name).unwrap_or_default();
        let name = part::<CompactString>(&metadata, "name")?;
        let labels: Pairs = part(&metadata, "labels").unwrap_or_default();
        let annotations: Pairs = part(&metadata, "annotations").unwrap_or_default();
        let said = |pairs: &Pairs, name| pairs.get(name).cloned().unwrap_or_default();
        let seen = Seen {
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            generation: part(&metadata, "generation").unwrap_or(0),
            workspace: said(&labels, api::WORKSPACE_LABEL),
            workspace_id: said(&labels, api::WORKSPACE_ID_LABEL),
            source: said(&annotations, api::SOURCE_ANNOTATION),
            run: said(&annotations, api::RUN_ANNOTATION).parse().unwrap_or(0),
            deleting: !text("deletionTimestamp").is_empty(),
            owned: part::<Vec<&RawValue>>(&metadata, "ownerReferences").is_some_and(|it| !it.is_empty()),
            hands_off: said(&labels, dialects::MANAGED_LABEL) == "false",
            finalizers: part(&metadata, "finalizers").unwrap_or_default(),
            status: object.get("status").map(|it| it.get().to_owned()).unwrap_or_default().into(),
            fingerprint: fingerprint(&object, &metadata),
            body: Some(Bytes::copy_from_slice(bytes)),
        };
        Some((ItemKey::new(&text("namespace"), &name), seen))
    }

    /// Whether it is an earlier state of the same object.
    fn is_before(&self, other: &Seen) -> bool {
        let number = |seen: &Seen| seen.resource_version.parse::<u64>().ok();
        self.uid == other.uid && number(self).zip(number(other)).is_some_and(|(one, other)| one < other)
    }

    /// Whether nothing is to be done or said because of it.
    fn says_the_same(&self, other: &Seen) -> bool {
        self.uid == other.uid
            && self.fingerprint == other.fingerprint
            && self.status == other.status
            && self.generation == other.generation
    }
}

/// How far a kind is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Known {
    /// It is about to be listed.
    #[default]
    Not,
    Listed,
    /// It cannot be listed, now at least: each object must be asked for.
    Failed,
}

/// All objects of one kind.
#[derive(Default)]
pub struct OfType {
    pub known: Known,
    copies: HashMap<ItemKey, Seen>,
    /// What objects at these places are wanted for.
    errands: HashMap<ItemKey, Errand>,
    /// The UID of the object that went last at each of these places. An answer about it that comes after the member
    /// told of that is old: taken for news, it would show an object that nobody ever tells of again.
    went: HashMap<ItemKey, CompactString>,
    listing: HashMap<ItemKey, Seen>,
}

impl OfType {
    pub fn get(&self, item: &ItemKey) -> Option<&Seen> {
        self.copies.get(item)
    }

    pub fn track(&mut self, item: &ItemKey, errand: &Errand) {
        self.errands.insert(item.clone(), errand.clone());
    }

    pub fn release(&mut self, item: &ItemKey, errand: &Errand) {
        if self.errands.get(item) == Some(errand) {
            self.errands.remove(item);
            self.went.remove(item);
        }
    }

    pub fn errands(&self) -> Vec<Errand> {
        self.errands.values().cloned().collect()
    }

    /// Copies at places that nothing is wanted at. What others make of copies may carry the same marks; it has an owner.
    pub fn unclaimed(&self) -> impl Iterator<Item = (&ItemKey, &Seen)> {
        let is_copy = |seen: &Seen| !seen.source.is_empty() && !seen.workspace.is_empty() && !seen.owned;
        self.copies.iter().filter(move |(item, seen)| is_copy(seen) && !self.errands.contains_key(*item))
    }

    pub fn begin_list(&mut self) {
        self.listing.clear();
    }

    pub fn listed_one(&mut self, object: &[u8]) {
        self.listing.extend(Seen::read(object));
    }

    /// What is concerned by the list: everything if it is the first.
    pub fn end_list(&mut self) -> Vec<Errand> {
        let mut new = std::mem::take(&mut self.listing);
        for (item, seen) in &mut new {
            // What was answered since the list was made is newer.
            if let Some(old) = self.copies.get(item).filter(|old| seen.is_before(old)) {
                *seen = old.clone();
            }
        }
        let first = std::mem::replace(&mut self.known, Known::Listed) != Known::Listed;
        let mut concerned = Vec::new();
        for (item, errand) in &self.errands {
            let (old, new) = (self.copies.get(item), new.get(item));
            let same = match (old, new) {
                (Some(old), Some(new)) => old.says_the_same(new),
                (old, new) => old.is_none() && new.is_none(),
            };
            if first || !same {
                concerned.push(errand.clone());
            }
        }
        for (item, seen) in &mut new {
            if self.copies.get(item).is_some_and(|old| old.body.is_none() && old.says_the_same(seen)) {
                seen.body = None;
            }
        }
        let old = std::mem::replace(&mut self.copies, new);
        for (item, seen) in old.into_iter().filter(|(item, _)| self.errands.contains_key(item)) {
            if self.copies.get(&item).is_none_or(|new| new.uid != seen.uid) {
                self.went.insert(item, seen.uid);
            }
        }
        concerned
    }

    /// Takes note of what the member has answered.
    pub fn answered(&mut self, item: &ItemKey, seen: &Seen) {
        if self.went.get(item) != Some(&seen.uid) {
            self.put(item.clone(), seen.clone());
        }
    }

    /// Whoever is concerned by it.
    pub fn put(&mut self, item: ItemKey, mut seen: Seen) -> Option<Errand> {
        let old = self.copies.get(&item);
        if old.is_some_and(|old| seen.is_before(old)) {
            // It was answered before it was told.
            return None;
        }
        let same = old.is_some_and(|old| old.says_the_same(&seen));
        if old.is_some_and(|old| old.uid == seen.uid && old.fingerprint == seen.fingerprint) {
            // It was compared, or will be with what there is already.
            seen.body = old.and_then(|old| old.body.clone());
        }
        let errand = self.errands.get(&item).filter(|_| !same).cloned();
        if self.went.get(&item) == Some(&seen.uid) {
            // It carries the label again, or the list was made before it was there.
            self.went.remove(&item);
        }
        self.copies.insert(item, seen);
        errand
    }

    pub fn remove(&mut self, item: &ItemKey, uid: &str) -> Option<Errand> {
        if self.copies.get(item).is_some_and(|seen| seen.uid == uid || uid.is_empty()) {
            self.copies.remove(item);
        }
        let errand = self.errands.get(item).cloned();
        if errand.is_some() && !uid.is_empty() {
            self.went.insert(item.clone(), uid.into());
        }
        errand
    }

    /// It was compared.
    pub fn drop_body(&mut self, item: &ItemKey) {
        if let Some(seen) = self.copies.get_mut(item) {
            seen.body = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use store::WorkspaceId;

    use super::*;

    fn object(name: &str, uid: &str, version: &str, data: &str) -> String {
        json!({
            "metadata": {
                "name": name, "namespace": "n", "uid": uid, "resourceVersion": version,
                "labels": {api::WORKSPACE_LABEL: "w"}, "annotations": {api::SOURCE_ANNOTATION: "s"},
            },
            "data": {"a": data},
        })
        .to_string()
    }

    #[test]
    fn who_is_concerned_is_told_and_nobody_else() {
        let errand = |name: &str| Errand::new(&WorkspaceId("w".into()), "n", name);
        let mut all = OfType::default();
        all.track(&ItemKey::new("n", "a"), &errand("a"));
        all.track(&ItemKey::new("n", "b"), &errand("b"));
        let list = |all: &mut OfType, objects: &[String]| {
            all.begin_list();
            objects.iter().for_each(|object| all.listed_one(object.as_bytes()));
            let mut concerned = all.end_list();
            concerned.sort();
            concerned
        };
        let first = list(&mut all, &[object("a", "u", "1", "x"), object("c", "v", "1", "x")]);
        assert_eq!(first, [errand("a"), errand("b")], "everybody waits for the first list");
        assert!(all.get(&ItemKey::new("n", "a")).is_some_and(|seen| seen.body.is_some()));
        all.drop_body(&ItemKey::new("n", "a"));
        assert!(list(&mut all, &[object("a", "u", "2", "x")]).is_empty(), "nothing changed");
        assert!(all.get(&ItemKey::new("n", "a")).is_some_and(|seen| seen.body.is_none()));
        let mut put = |text: &str| {
            let (item, seen) = Seen::read(text.as_bytes()).unwrap();
            all.put(item, seen)
        };
        assert_eq!(put(&object("a", "u", "3", "x")), None);
        assert_eq!(put(&object("a", "u", "4", "y")), Some(errand("a")));
        assert_eq!(put(&object("a", "u", "3", "z")), None, "that was before");
        assert_eq!(put(&object("d", "u", "4", "y")), None, "nobody wants it");
        assert_eq!(all.remove(&ItemKey::new("n", "a"), "u"), Some(errand("a")));
        assert_eq!(all.get(&ItemKey::new("n", "a")), None);
    }

    #[test]
    fn an_answer_that_is_late_brings_nothing_back() {
        let item = ItemKey::new("n", "a");
        let mut all = OfType::default();
        all.track(&item, &Errand::new(&WorkspaceId("w".into()), "n", "a"));
        let seen =
            |uid: &str, version: &str| Seen::read(object("a", uid, version, "x").as_bytes()).unwrap().1;
        // It was asked for while it was on its way out, and the answer comes after it is told that it went.
        all.put(item.clone(), seen("u", "1"));
        all.remove(&item, "u");
        all.answered(&item, &seen("u", "2"));
        assert_eq!(all.get(&item), None);
        all.answered(&item, &seen("v", "3"));
        assert!(all.get(&item).is_some(), "another one of that name");
        // The same if it is told by a list.
        all.begin_list();
        all.end_list();
        all.answered(&item, &seen("v", "4"));
        assert_eq!(all.get(&item), None);
        all.put(item.clone(), seen("v", "5"));
        all.answered(&item, &seen("v", "6"));
        assert_eq!(
            all.get(&item).map(|seen| seen.resource_version.as_str()),
            Some("6"),
            "it is there after all"
        );
    }

    #[test]
    fn paths_are_those_of_the_member() {
        let core = Type { api_version: "v1".into(), plural: "namespaces".into() };
        assert_eq!(core.path(&ItemKey::new("", "a")), "/api/v1/namespaces/a");
        let apps = Type { api_version: "apps/v1".into(), plural: "deployments".into() };
        assert_eq!(apps.path(&ItemKey::new("n", "a:b")), "/apis/apps/v1/namespaces/n/deployments/a%3Ab");
        assert_eq!(apps.selected(), "/apis/apps/v1/deployments?labelSelector=hanse.io%2Fworkspace");
    }
}
