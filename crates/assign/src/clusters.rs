//! The clusters that there are, and who may use which.
//!
//! A workspace uses its own clusters, and those of the platform's own workspaces. Where two have the same name its own
//! counts, then root's, then default's.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use compact_str::CompactString;
use jiff::Timestamp;
use kinds::Resources;
use machinery::Object;
use placement::{
    Cluster, Directory,
    cluster::{Condition, Taint},
};
use serde_json::Value;
use server::hub::{default_id, root_id};
use store::{Key, WorkspaceId};

/// What has become of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is there, and was not before.
    New,
    Gone,
    /// There is more room than before.
    Room,
    /// It can be used, and could not before.
    Ready,
    /// Something else that decisions are made from.
    Other,
    /// Nothing that anybody waits for.
    Nothing,
}

struct Joined {
    uid: CompactString,
    cluster: Cluster,
    /// The namespace and name of the Secret with its credential.
    secret: (String, String),
    /// When what it has was last counted, as far as that is told.
    counted: Option<Timestamp>,
}

#[derive(Default)]
pub struct Clusters {
    joined: HashMap<WorkspaceId, BTreeMap<CompactString, Joined>>,
    uids: HashSet<CompactString>,
    /// Of workspaces without clusters of their own.
    platform: Directory,
    /// Of those that have some.
    own: HashMap<WorkspaceId, Directory>,
    /// What is reserved, by the UID of the cluster, until it shows in what the cluster reports.
    held: HashMap<CompactString, Resources>,
}

pub fn is_platform(home: &WorkspaceId) -> bool {
    *home == root_id() || *home == default_id()
}

impl Clusters {
    /// A `Cluster` is as it is here; `None`: it is gone.
    pub fn observe(
        &mut self,
        home: &WorkspaceId,
        name: &str,
        object: Option<&Object>,
        now: Timestamp,
    ) -> Turn {
        let mut read = object.and_then(|object| {
            let tree = Value::Object(object.tree().ok()?);
            let named =
                |field: &str| tree["spec"]["secretRef"][field].as_str().unwrap_or_default().to_owned();
            let secret = (named("namespace"), named("name"));
            let mut cluster = Cluster::read(&tree)?;
            cluster.taints.iter_mut().for_each(|taint| taint.since = added(&tree, taint));
            let counted = tree["status"]["heartbeat"].as_str().and_then(|it| it.parse().ok());
            Some(Joined { uid: object.head.uid.clone(), cluster, secret, counted })
        });
        let here = self.joined.entry(home.clone()).or_default();
        let old = here.remove(name);
        if let Some(new) = &mut read {
            let before = old.as_ref().map(|old| old.cluster.taints.as_slice()).unwrap_or_default();
            date(&mut new.cluster.taints, before, now);
        }
        let turn = match (&old, &read) {
            (None, None) => return Turn::Nothing,
            (None, Some(_)) => Turn::New,
            (Some(_), None) => Turn::Gone,
            (Some(old), Some(new)) if old.uid != new.uid => Turn::Gone,
            (Some(old), Some(new)) => turned(&old.cluster, &new.cluster),
        };
        if let Some(old) = &old {
            self.uids.remove(&old.uid);
        }
        if let Some(new) = read {
            self.uids.insert(new.uid.clone());
            here.insert(name.into(), new);
        }
        if here.is_empty() {
            self.joined.remove(home);
        }
        if let Some(old) = old.filter(|_| turn == Turn::Gone) {
            self.held.remove(&old.uid);
        }
        self.lay_out(home, name);
        turn
    }

    /// Brings directories level with what is joined under `name`.
    fn lay_out(&mut self, home: &WorkspaceId, name: &str) {
        let first = |homes: &[&WorkspaceId]| {
            homes
                .iter()
                .find_map(|home| self.joined.get(*home)?.get(name))
                .map(|it| (it.cluster.clone(), it.uid.clone()))
        };
        let (root, default) = (root_id(), default_id());
        // Of which directory, and what is there now.
        type Change = (Option<WorkspaceId>, Option<(Cluster, CompactString)>);
        let mut changes: Vec<Change> = Vec::new();
        if is_platform(home) {
            changes.push((None, first(&[&root, &default])));
            for workspace in self.own.keys() {
                changes.push((Some(workspace.clone()), first(&[workspace, &root, &default])));
            }
        }
        let has_own = self.joined.contains_key(home);
        if has_own && !self.own.contains_key(home) {
            let mut directory = Directory::default();
            let names: HashSet<&CompactString> = [home, &root, &default]
                .iter()
                .filter_map(|it| self.joined.get(*it))
                .flat_map(|it| it.keys())
                .collect();
            for name in names {
                let found = [home, &root, &default].iter().find_map(|it| self.joined.get(*it)?.get(name));
                if let Some(found) = found {
                    directory.put(found.cluster.clone());
                    if let Some(held) = self.held.get(&found.uid) {
                        directory.reserve(name, held);
                    }
                }
            }
            self.own.insert(home.clone(), directory);
        } else if has_own {
            changes.push((Some(home.clone()), first(&[home, &root, &default])));
        } else {
            self.own.remove(home);
        }
        for (workspace, found) in changes {
            let directory = match &workspace {
                None => &mut self.platform,
                Some(workspace) => match self.own.get_mut(workspace) {
                    Some(directory) => directory,
                    None => continue,
                },
            };
            match found {
                None => directory.remove(name),
                Some((cluster, uid)) => {
                    let is_new = directory.position(name).is_none();
                    directory.put(cluster);
                    if let Some(held) = self.held.get(&uid).filter(|_| is_new) {
                        directory.reserve(name, held);
                    }
                }
            }
        }
    }

    /// The names of those that are joined in a workspace.
    pub fn names(&self, home: &WorkspaceId) -> Vec<CompactString> {
        self.joined.get(home).map(|here| here.keys().cloned().collect()).unwrap_or_default()
    }

    /// Whether it is a Secret by which a cluster is reached.
    pub fn is_credential(&self, home: &WorkspaceId, key: &Key) -> bool {
        let is_it = |(namespace, name): &(String, String)| {
            namespace == key.item.namespace() && name == key.item.name()
        };
        key.collection.parts() == ("", "secrets")
            && self.joined.get(home).is_some_and(|here| here.values().any(|it| is_it(&it.secret)))
    }

    pub fn is_empty(&self) -> bool {
        self.joined.is_empty()
    }

    pub fn directory(&self, workspace: &WorkspaceId) -> &Directory {
        self.own.get(workspace).unwrap_or(&self.platform)
    }

    fn find(&self, workspace: &WorkspaceId, name: &str) -> Option<&Joined> {
        let (root, default) = (root_id(), default_id());
        [workspace, &root, &default].iter().find_map(|home| self.joined.get(*home)?.get(name))
    }

    /// The UID of the cluster that a workspace knows by this name.
    pub fn uid(&self, workspace: &WorkspaceId, name: &str) -> Option<&CompactString> {
        self.find(workspace, name).map(|it| &it.uid)
    }

    /// When a cluster was last asked what it has.
    pub fn counted_at(&self, workspace: &WorkspaceId, name: &str) -> Option<Timestamp> {
        self.find(workspace, name)?.counted
    }

    /// The clusters that take objects of a kind in no namespace from a workspace: those it has itself, and those whose
    /// operator admits them. They are everybody's who uses the cluster.
    pub fn takers(&self, workspace: &WorkspaceId, kind: &str) -> BTreeSet<String> {
        let is_own = |name: &str| match is_platform(workspace) {
            true => self.find(workspace, name).is_some(),
            false => self.joined.get(workspace).is_some_and(|here| here.contains_key(name)),
        };
        let clusters = self.directory(workspace).entries().iter().map(|it| &it.cluster);
        let takes = clusters.filter(|it| is_own(&it.name) || it.admits.contains(kind));
        takes.map(|it| it.name.to_string()).collect()
    }

    pub fn is_joined(&self, uid: &str) -> bool {
        self.uids.contains(uid)
    }

    pub fn is_ready(&self, workspace: &WorkspaceId, name: &str) -> bool {
        self.find(workspace, name).is_some_and(|it| it.cluster.condition == Condition::Ready)
    }

    /// Keeps room in a cluster for what was decided.
    pub fn hold(
        &mut self,
        workspace: &WorkspaceId,
        name: &str,
        amounts: &Resources,
    ) -> Option<CompactString> {
        let uid = self.uid(workspace, name)?.clone();
        let held = self.held.entry(uid.clone()).or_default();
        for (resource, amount) in amounts {
            held.entry(resource.clone())
                .and_modify(|sum| *sum = sum.add(amount))
                .or_insert_with(|| amount.clone());
        }
        self.each_directory(&uid, name, |directory| directory.reserve(name, amounts));
        Some(uid)
    }

    /// It shows in what the cluster reports, or is not to be any more.
    pub fn release(&mut self, uid: &str, name: &str, amounts: &Resources) {
        if let Some(held) = self.held.get_mut(uid) {
            for (resource, amount) in amounts {
                if let Some(sum) = held.get_mut(resource) {
                    *sum = sum.sub(amount);
                }
            }
        }
        self.each_directory(uid, name, |directory| directory.release(name, amounts));
    }

    /// Those in which the cluster with this UID goes by this name.
    fn each_directory(&mut self, uid: &str, name: &str, mut change: impl FnMut(&mut Directory)) {
        let (root, default) = (root_id(), default_id());
        let known_as = |homes: &[&WorkspaceId]| {
            homes.iter().find_map(|home| self.joined.get(*home)?.get(name)).is_some_and(|it| it.uid == uid)
        };
        if known_as(&[&root, &default]) {
            change(&mut self.platform);
        }
        let concerned: Vec<WorkspaceId> =
            self.own.keys().filter(|workspace| known_as(&[workspace, &root, &default])).cloned().collect();
        for workspace in concerned {
            if let Some(directory) = self.own.get_mut(&workspace) {
                change(directory);
            }
        }
    }
}

/// When a taint says that it was added.
fn added(cluster: &Value, taint: &Taint) -> Option<i64> {
    let mut all = cluster["spec"]["taints"].as_array()?.iter();
    let is_it = |it: &&Value| it["key"] == *taint.key && it["effect"] == taint.effect.name();
    let added: Timestamp = all.find(is_it)?["timeAdded"].as_str()?.parse().ok()?;
    Some(added.as_second())
}

/// Those that do not say since when they are there are there since they were seen first.
fn date(taints: &mut [Taint], before: &[Taint], now: Timestamp) {
    for taint in taints.iter_mut().filter(|it| it.since.is_none()) {
        let seen = before.iter().find(|it| it.is_same(taint)).and_then(|it| it.since);
        taint.since = Some(seen.unwrap_or(now.as_second()));
    }
}

fn turned(old: &Cluster, new: &Cluster) -> Turn {
    if old == new {
        return Turn::Nothing;
    }
    let level = |cluster: &Cluster| Cluster { amounts: None, condition: Condition::Ready, ..cluster.clone() };
    if level(old) != level(new) || old.amounts.is_some() != new.amounts.is_some() {
        return Turn::Other;
    }
    if old.condition != new.condition && new.condition == Condition::Ready {
        return Turn::Ready;
    }
    let free = |cluster: &Cluster, resource: &str| {
        let amounts = cluster.amounts.iter().flatten();
        amounts
            .filter(|it| it.resource == resource)
            .map(|it| it.limit.saturating_sub(it.requested))
            .next()
            .unwrap_or(0)
    };
    let grew = new.amounts.iter().flatten().any(|it| free(new, &it.resource) > free(old, &it.resource));
    if grew { Turn::Room } else { Turn::Nothing }
}
