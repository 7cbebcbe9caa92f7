//! Who names what is in no namespace: classes and volumes of a workspace go where those are that name them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kinds::{ClassKind, Subject, Target};
use store::{Key, WorkspaceId};

use crate::{
    namespace::Namespace,
    queue::{Aspect, Haste, Id},
    world::World,
};

/// What one object names.
#[derive(Debug, Default)]
struct User {
    named: BTreeSet<Target>,
    /// The object is there. One that is gone uses what it named as long as there are copies of it.
    lives: bool,
    clusters: BTreeSet<String>,
}

#[derive(Debug, Default)]
pub struct Users {
    users: HashMap<Key, User>,
    by_target: HashMap<Target, BTreeSet<Key>>,
}

impl Users {
    /// An object names these now. Answers of which of them that is news.
    pub fn put(&mut self, key: &Key, named: BTreeSet<Target>) -> BTreeSet<Target> {
        if named.is_empty() && !self.users.contains_key(key) {
            return BTreeSet::new();
        }
        let user = self.users.entry(key.clone()).or_default();
        user.lives = true;
        let was = std::mem::replace(&mut user.named, named.clone());
        for target in was.difference(&named) {
            self.forget(target, key);
        }
        for target in named.difference(&was) {
            self.by_target.entry(target.clone()).or_default().insert(key.clone());
        }
        was.symmetric_difference(&named).cloned().collect()
    }

    /// An object is gone. Answers what is not used any more because of that.
    pub fn remove(&mut self, key: &Key) -> BTreeSet<Target> {
        if let Some(user) = self.users.get_mut(key) {
            user.lives = false;
        }
        self.drop_if_gone(key)
    }

    /// There are copies of an object in these clusters. Answers what that is news of.
    pub fn place(&mut self, key: &Key, clusters: BTreeSet<String>) -> BTreeSet<Target> {
        let Some(user) = self.users.get_mut(key).filter(|user| user.clusters != clusters) else {
            return BTreeSet::new();
        };
        user.clusters = clusters;
        let named = user.named.clone();
        self.drop_if_gone(key);
        named
    }

    fn drop_if_gone(&mut self, key: &Key) -> BTreeSet<Target> {
        if self.users.get(key).is_none_or(|user| user.lives || !user.clusters.is_empty()) {
            return BTreeSet::new();
        }
        let named = self.users.remove(key).map(|user| user.named).unwrap_or_default();
        named.iter().for_each(|target| self.forget(target, key));
        named
    }

    fn forget(&mut self, target: &Target, key: &Key) {
        if let Some(keys) = self.by_target.get_mut(target) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_target.remove(target);
            }
        }
    }

    /// Who names it.
    pub fn of(&self, target: &Target) -> impl Iterator<Item = &Key> {
        self.by_target.get(target).into_iter().flatten()
    }

    /// Where those are that name it.
    pub fn clusters(&self, target: &Target) -> BTreeMap<String, u64> {
        let users = self.of(target).filter_map(|key| self.users.get(key));
        users.flat_map(|user| user.clusters.iter()).map(|name| (name.clone(), 0)).collect()
    }
}

impl World {
    /// What a workspace has in no namespace, of those that are meant.
    pub fn shared(&self, workspace: &WorkspaceId, is_meant: impl Fn(&Target) -> bool) -> Vec<Key> {
        let here = self.workspaces.get(workspace).and_then(|known| known.namespaces.get(""));
        let all = here.into_iter().flat_map(Namespace::all);
        all.filter(|(_, known)| is_meant(&known.subject.target())).map(|(key, _)| key.clone()).collect()
    }

    /// The clusters that have something which names it, and take it.
    pub fn users(&self, workspace: &WorkspaceId, shared: &Subject) -> BTreeMap<String, u64> {
        let Some(known) = self.workspaces.get(workspace) else { return BTreeMap::new() };
        let takers = self.clusters.takers(workspace, &shared.kind);
        let mut users = known.users.clusters(&shared.target());
        users.retain(|name, _| takers.contains(name));
        users
    }

    /// The classes it names that the workspace has itself, and the clusters that would take them.
    pub fn brought(
        &self,
        workspace: &WorkspaceId,
        subject: &Subject,
    ) -> BTreeMap<(ClassKind, String), BTreeSet<String>> {
        let has = |class: &&(ClassKind, String)| {
            let target = Target::class(class.0, &class.1);
            !self.shared(workspace, |it| *it == target).is_empty()
        };
        let own = subject.classes.iter().filter(has);
        own.map(|class| (class.clone(), self.clusters.takers(workspace, class.0.kind()))).collect()
    }

    /// Those that are concerned are decided again.
    pub fn place_shared(&mut self, workspace: &WorkspaceId, concerned: &BTreeSet<Target>, haste: Haste) {
        if concerned.is_empty() {
            return;
        }
        for key in self.shared(workspace, |target| concerned.contains(target)) {
            self.queue.add(Id::new(workspace, &key), Aspect::Place, haste);
        }
    }

    /// Who names what is in no namespace: whether the workspace has it, decides where they may be.
    pub fn named_by(&self, workspace: &WorkspaceId, key: &Key) -> Vec<Key> {
        let Some(known) = self.workspaces.get(workspace).filter(|_| key.item.namespace().is_empty()) else {
            return Vec::new();
        };
        let target = known.namespaces.get("").and_then(|it| it.get(key)).map(|it| it.subject.target());
        target.iter().flat_map(|target| known.users.of(target)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_used_while_there_are_copies_of_what_names_it() {
        let (web, db) =
            (Key::new("apps", "deployments", "shop", "web"), Key::new("apps", "deployments", "shop", "db"));
        let class = |name: &str| Target::class(ClassKind::PriorityClass, name);
        let one = |name: &str| BTreeSet::from([name.to_owned()]);
        let mut users = Users::default();
        assert!(users.put(&db, BTreeSet::new()).is_empty());
        assert_eq!(users.put(&web, [class("high")].into()), [class("high")].into());
        assert!(users.put(&web, [class("high")].into()).is_empty(), "it is as it was");
        assert!(users.clusters(&class("high")).is_empty(), "it is nowhere yet");
        assert_eq!(users.place(&web, one("eu-1")), [class("high")].into());
        assert_eq!(users.clusters(&class("high")), [("eu-1".to_owned(), 0)].into());

        assert_eq!(users.put(&web, [class("low")].into()).len(), 2, "both are concerned");
        assert!(users.clusters(&class("high")).is_empty());
        assert!(users.remove(&web).is_empty(), "there is a copy of it");
        assert_eq!(users.clusters(&class("low")).len(), 1);
        assert_eq!(users.place(&web, BTreeSet::new()), [class("low")].into());
        assert!(
            users.clusters(&class("low")).is_empty() && users.users.is_empty() && users.by_target.is_empty()
        );
    }

    #[test]
    fn what_is_assigned_without_a_namespace_is_what_the_table_of_kinds_says() {
        let rows = kinds::known().iter().filter(|row| row.travel == kinds::Travel::Named);
        let rows: BTreeSet<(&str, &str)> = rows.map(|row| (row.group, row.kind)).collect();
        assert_eq!(rows, api::assignment::SHARED.into());
    }
}
