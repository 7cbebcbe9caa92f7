//! Who owns what after a write: takes fields from others, finds conflicts, drops what an applier no longer names.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
};

use super::{
    combine::merge_trees,
    compare::{Comparison, compare_trees},
    element::{PathElement, same_value, show_path},
    fields::{FieldSet, Filter},
    reconcile::{reconcile, with_named_fields},
    remove::remove_fields,
    schema::TypeRef,
    typed::tree_field_set,
};
use crate::{gotext, resource::Tree};

/// What one manager owns, in the words of one version of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    pub set: FieldSet,
    pub api_version: String,
    /// By apply, and not by other writes.
    pub applied: bool,
}

/// What each manager owns, by the manager's identifier.
pub type Managers = BTreeMap<String, Owned>;

/// The versions that objects of a kind can be read in.
pub trait Versions {
    /// The type of the kind at a version (`apps/v1`); `None` if it has no such version.
    fn type_at(&self, api_version: &str) -> Option<TypeRef<'_>>;

    /// An object in another version. Is asked only for versions that there are.
    fn convert(&self, object: &Tree, api_version: &str) -> Result<Tree, String>;
}

/// A field that somebody else owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The identifier.
    pub manager: String,
    pub path: Vec<PathElement>,
}

/// Why nothing was merged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// Fields of others would change, and the request is not to take them by force.
    #[error("{}", show_conflicts(.0))]
    Conflicts(Vec<Conflict>),
    /// An object does not fit its type, or cannot be converted.
    #[error("{0}")]
    Failed(String),
}

fn show_conflicts(conflicts: &[Conflict]) -> String {
    let one = |conflict: &Conflict| {
        format!("conflict with {}: {}", gotext::quote(&conflict.manager), show_path(&conflict.path))
    };
    if let [only] = conflicts {
        return one(only);
    }
    let mut by_manager: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for conflict in conflicts {
        by_manager.entry(&conflict.manager).or_default().push(format!("- {}", show_path(&conflict.path)));
    }
    let lines = by_manager
        .into_iter()
        .map(|(manager, paths)| format!("conflicts with {}:\n{}", gotext::quote(manager), paths.join("\n")));
    lines.collect::<Vec<_>>().join("\n")
}

fn failed(what: &str) -> impl Fn(MergeError) -> MergeError {
    move |error| match error {
        MergeError::Failed(why) => MergeError::Failed(format!("{what}: {why}")),
        conflicts => conflicts,
    }
}

fn wrong(what: &'static str) -> impl Fn(super::typed::Mistakes) -> MergeError {
    move |why| MergeError::Failed(format!("{what}: {why}"))
}

/// An object, with its version and type.
#[derive(Clone, Debug)]
pub struct Object<'a> {
    pub tree: Cow<'a, Tree>,
    pub ty: TypeRef<'a>,
    pub api_version: Cow<'a, str>,
}

impl<'a> Object<'a> {
    pub fn new(tree: &'a Tree, ty: TypeRef<'a>, api_version: &'a str) -> Self {
        Self { tree: Cow::Borrowed(tree), ty, api_version: Cow::Borrowed(api_version) }
    }

    fn with(&self, tree: Tree) -> Self {
        Self { tree: Cow::Owned(tree), ty: self.ty, api_version: self.api_version.clone() }
    }

    fn without(&self, fields: &FieldSet) -> Self {
        self.with(remove_fields(self.ty, self.tree.clone().into_owned(), fields))
    }

    fn field_set(&self) -> Result<FieldSet, super::typed::Mistakes> {
        tree_field_set(self.ty, &self.tree)
    }

    fn named(&self, set: &FieldSet) -> FieldSet {
        with_named_fields(Some(self.ty), set)
    }
}

/// Merges writes to objects of one kind.
pub struct Updater<'a> {
    pub versions: &'a dyn Versions,
    /// For each version, which fields the write may own; all, where there is none.
    pub filters: &'a [(&'a str, Filter)],
}

type Merged<T> = Result<T, MergeError>;

impl<'a> Updater<'a> {
    /// Who owns what after `live` became `new` by other means than apply.
    pub fn update(
        &self,
        live: &Object<'a>,
        new: &Object<'a>,
        managers: Managers,
        manager: &str,
    ) -> Merged<Managers> {
        let managers = self.reconciled(live, managers)?;
        let (mut managers, comparison) = self.settle(live, new, managers, manager, true)?;
        let before = managers.remove(manager).map(|owned| owned.set).unwrap_or_default();
        let Comparison { added, modified, removed } = comparison;
        let set = before.difference(&removed).union(modified).union(added);
        let api_version = new.api_version.to_string();
        let set = self.filtered(&api_version, set);
        if !set.is_empty() {
            managers.insert(manager.to_owned(), Owned { set, api_version, applied: false });
        }
        Ok(managers)
    }

    /// `live` with all that `config` says and nothing that it no longer says; `None` if that is the same. And who
    /// owns what then.
    pub fn apply(
        &self,
        live: &Object<'a>,
        config: &Object<'a>,
        managers: Managers,
        manager: &str,
        force: bool,
    ) -> Merged<(Option<Tree>, Managers)> {
        let mut managers = self.reconciled(live, managers)?;
        let merged =
            merge_trees(live.ty, &live.tree, &config.tree).map_err(wrong("failed to merge config"))?;
        let set = config.field_set().map_err(wrong("failed to get field set"))?;
        let api_version = config.api_version.to_string();
        let set = self.filtered(&api_version, set);
        let last = managers.insert(manager.to_owned(), Owned { set, api_version, applied: true });
        let new = match last.filter(|last| !last.set.is_empty()) {
            None => live.with(merged),
            Some(last) => self
                .prune(live.with(merged), &managers, &config.api_version, &last)
                .map_err(failed("failed to prune fields"))?,
        };
        let (managers, _) = self.settle(live, &new, managers, manager, force)?;
        let tree = (!same_tree(&live.tree, &new.tree)).then(|| new.tree.into_owned());
        Ok((tree, managers))
    }

    fn filtered(&self, api_version: &str, set: FieldSet) -> FieldSet {
        match self.filter(api_version) {
            Some(filter) => filter.apply(set),
            None => set,
        }
    }

    fn filter(&self, api_version: &str) -> Option<&'a Filter> {
        self.filters.iter().find(|(version, _)| *version == api_version).map(|(_, filter)| filter)
    }

    /// The type at a version; `None` if there is no such version.
    fn type_at(&self, api_version: &str) -> Merged<Option<TypeRef<'a>>> {
        if api_version.matches('/').count() > 1 {
            return Err(MergeError::Failed(format!("unexpected GroupVersion string: {api_version}")));
        }
        Ok(self.versions.type_at(api_version))
    }

    /// An object in another version; `None` if there is no such version.
    fn convert<'o>(&self, object: &'o Object<'a>, api_version: &str) -> Merged<Option<Cow<'o, Object<'a>>>> {
        if object.api_version == api_version {
            return Ok(Some(Cow::Borrowed(object)));
        }
        let Some(ty) = self.type_at(api_version)? else { return Ok(None) };
        let tree = self.versions.convert(&object.tree, api_version).map_err(MergeError::Failed)?;
        let api_version = Cow::Owned(api_version.to_owned());
        Ok(Some(Cow::Owned(Object { tree: Cow::Owned(tree), ty, api_version })))
    }

    /// Takes from the managers what changed and is theirs. Unless by force, that is a conflict.
    fn settle(
        &self,
        old: &Object<'a>,
        new: &Object<'a>,
        managers: Managers,
        workflow: &str,
        force: bool,
    ) -> Merged<(Managers, Comparison)> {
        let mut by_version: HashMap<String, Differences> = HashMap::new();
        let comparison = self.compare(old, new)?;
        by_version.insert(new.api_version.to_string(), Differences::of(&comparison));
        let mut kept = Managers::new();
        let mut conflicts = Vec::new();
        for (manager, owned) in managers {
            if manager == workflow {
                kept.insert(manager, owned);
                continue;
            }
            if !by_version.contains_key(&owned.api_version) {
                let convert = |object, which: &str| {
                    self.convert(object, &owned.api_version)
                        .map_err(failed(&format!("failed to convert {which} object")))
                };
                // What is owned in a version that is gone is not owned any more.
                let Some(old) = convert(old, "old")? else { continue };
                let Some(new) = convert(new, "new")? else { continue };
                by_version.insert(owned.api_version.clone(), Differences::of(&self.compare(&old, &new)?));
            }
            let Some(differences) = by_version.get(&owned.api_version) else { continue };
            let taken = owned.set.intersection(&differences.written);
            if !taken.is_empty() && !force {
                let paths = taken.paths().into_iter();
                conflicts.extend(paths.map(|path| Conflict { manager: manager.clone(), path }));
            }
            let set = owned.set.difference(&taken).difference(&differences.removed);
            if !set.is_empty() {
                kept.insert(manager, Owned { set, ..owned });
            }
        }
        if !conflicts.is_empty() {
            return Err(MergeError::Conflicts(conflicts));
        }
        kept.retain(|_, owned| !owned.set.is_empty());
        Ok((kept, comparison))
    }

    fn compare(&self, old: &Object<'a>, new: &Object<'a>) -> Merged<Comparison> {
        let mistakes = "failed to compare objects";
        if !old.ty.is(new.ty) {
            return Err(MergeError::Failed(format!("{mistakes}: expected objects of the same type")));
        }
        let comparison = compare_trees(old.ty, &old.tree, &new.tree).map_err(wrong(mistakes))?;
        Ok(comparison.filtered(self.filter(&new.api_version)))
    }

    /// Takes out what the applier named last time, does not name now and nobody else owns.
    fn prune(
        &self,
        merged: Object<'a>,
        managers: &Managers,
        api_version: &str,
        last: &Owned,
    ) -> Merged<Object<'a>> {
        let what = "failed to convert merged object to last applied version";
        let Some(converted) = self.convert(&merged, &last.api_version).map_err(failed(what))? else {
            return Ok(merged);
        };
        let pruned = converted.without(&converted.named(&last.set));
        let pruned = self
            .add_back_owned(&converted, pruned, managers, &last.api_version)
            .map_err(failed("failed add back owned items"))?;
        let pruned = self
            .add_back_dangling(&converted, &pruned, last)
            .map_err(failed("failed add back dangling items"))?;
        match self.convert(&pruned, api_version)? {
            Some(pruned) => Ok(pruned.into_owned()),
            None => Err(MergeError::Failed(format!("no corresponding type for {api_version}"))),
        }
    }

    /// Puts back what anybody owns, in whatever version.
    fn add_back_owned(
        &self,
        merged: &Object<'a>,
        mut pruned: Object<'a>,
        managers: &Managers,
        pruned_version: &str,
    ) -> Merged<Object<'a>> {
        let mut by_version: BTreeMap<&str, FieldSet> = BTreeMap::new();
        for owned in managers.values() {
            let set = by_version.entry(&owned.api_version).or_default();
            *set = std::mem::take(set).union(owned.set.clone());
        }
        // First what is of the version at hand: conversion may need what was taken out.
        let first = by_version.remove(pruned_version);
        let all = first.into_iter().map(|set| (pruned_version, set)).chain(by_version);
        let mut merged = Cow::Borrowed(merged);
        for (version, owned) in all {
            let what = |which: &str| format!("failed to convert {which} object at version {version}");
            let converted = self.convert(&merged, version).map_err(failed(&what("merged")))?;
            let Some(converted) = converted.map(Cow::into_owned) else { continue };
            merged = Cow::Owned(converted);
            let Some(left) = self.convert(&pruned, version).map_err(failed(&what("pruned")))? else {
                continue;
            };
            let what = "failed to create field set from merged or pruned object";
            let present = merged.field_set().map_err(wrong(what))?;
            let left = left.field_set().map_err(wrong(what))?;
            let stays = merged.named(&left).union(merged.named(&owned));
            pruned = merged.without(&merged.named(&present).difference(&stays));
        }
        Ok(pruned)
    }

    /// Puts back what the applier never named but that went along with what it did.
    fn add_back_dangling(
        &self,
        merged: &Object<'a>,
        pruned: &Object<'a>,
        last: &Owned,
    ) -> Merged<Object<'a>> {
        let what = "failed to convert pruned object to last applied version";
        let Some(pruned) = self.convert(pruned, &last.api_version).map_err(failed(what))? else {
            return Ok(merged.clone());
        };
        let what = "failed to create field set in last applied version";
        let left = merged.named(&pruned.field_set().map_err(wrong(what))?);
        let present = merged.named(&merged.field_set().map_err(wrong(what))?);
        let gone = present.difference(&left).intersection(&merged.named(&last.set));
        Ok(merged.without(&gone))
    }

    /// The managers' sets as the schema has them now. Those of versions that are gone go.
    fn reconciled(&self, live: &Object<'a>, managers: Managers) -> Merged<Managers> {
        let mut result = Managers::new();
        for (manager, owned) in managers {
            let ty = if owned.api_version == live.api_version {
                live.ty
            } else {
                match self.type_at(&owned.api_version)? {
                    Some(ty) => ty,
                    None => continue,
                }
            };
            let set = reconcile(ty, &owned.set).unwrap_or(owned.set);
            result.insert(manager, Owned { set, ..owned });
        }
        Ok(result)
    }
}

/// What changed, in the terms of one version.
struct Differences {
    written: FieldSet,
    removed: FieldSet,
}

impl Differences {
    fn of(comparison: &Comparison) -> Self {
        let written = comparison.modified.clone().union(comparison.added.clone());
        Self { written, removed: comparison.removed.clone() }
    }
}

fn same_tree(a: &Tree, b: &Tree) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|((key_a, a), (key_b, b))| key_a == key_b && same_value(a, b))
}

#[cfg(test)]
mod tests;
