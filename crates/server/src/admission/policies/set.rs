//! The policies of each workspace, compiled.

use std::{collections::HashMap, sync::Arc};

use machinery::{
    Object, Revision,
    admission::policy::{Binding, Policy},
    resource::Tree,
};
use store::{Collection, WorkspaceId};

use super::GROUP;
use crate::{recent::Recent, space::Space};

/// A policy and what puts it in force.
pub struct Hook {
    pub policy: Arc<Policy>,
    pub bindings: Vec<Binding>,
}

/// All policies of a workspace that are in force, by name.
pub struct Set {
    pub validating: Vec<Hook>,
    pub mutating: Vec<Hook>,
}

/// Policies by the UID of their objects: their revision then, and what came of it.
type Compiled = HashMap<String, (Revision, Arc<Policy>)>;

#[derive(Clone)]
struct Cached {
    at: [Revision; 4],
    set: Arc<Set>,
    compiled: Arc<Compiled>,
}

/// Compiles the policies of a workspace when they have changed since the last time.
pub struct Policies {
    /// Where policies and bindings are. Every write looks whether there are any.
    collections: [Collection; 4],
    sets: Recent<Cached>,
}

impl Default for Policies {
    fn default() -> Self {
        let names = [
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings",
        ];
        let collections = names.map(|name| Collection::new(GROUP, name));
        Policies { collections, sets: Recent::default() }
    }
}

impl Policies {
    /// `None`: the workspace has none, as most.
    pub fn of(&self, space: &Space) -> Option<Arc<Set>> {
        // Read before computing: a change in between makes the next request compute again, never use a stale one.
        let at = self.collections.each_ref().map(|collection| space.last_change(collection));
        if at.iter().all(|at| *at == Revision::ZERO) {
            return None;
        }
        let known = self.sets.get(space.id());
        if let Some(cached) = known.as_ref().filter(|cached| cached.at == at) {
            return Some(cached.set.clone());
        }
        let compiled = known.map(|cached| cached.compiled).unwrap_or_default();
        let cached = compute(space, &self.collections, at, &compiled);
        self.sets.insert(space.id(), cached.clone());
        Some(cached.set)
    }

    pub fn forget(&self, workspace: &WorkspaceId) {
        self.sets.forget(workspace);
    }
}

fn compute(space: &Space, collections: &[Collection; 4], at: [Revision; 4], known: &Compiled) -> Cached {
    let [validating, validating_bindings, mutating, mutating_bindings] = collections;
    let mut compiled = Compiled::new();
    let mut hooks = |policies, bindings, compile: fn(&Tree) -> Policy| {
        let mut bound = bindings_of(space, bindings);
        let mut hooks = Vec::new();
        for (_, object) in space.latest(policies).iter(None, None) {
            // What nothing puts in force is not compiled.
            let Some(bindings) = bound.remove(object.head.name.as_str()) else { continue };
            let Some(policy) = policy_of(object, known, compile) else { continue };
            compiled.insert(object.head.uid.to_string(), (object.revision, policy.clone()));
            hooks.push(Hook { policy, bindings });
        }
        hooks
    };
    let set = Arc::new(Set {
        validating: hooks(validating, validating_bindings, Policy::validating),
        mutating: hooks(mutating, mutating_bindings, Policy::mutating),
    });
    Cached { at, set, compiled: Arc::new(compiled) }
}

fn policy_of(object: &Object, known: &Compiled, compile: fn(&Tree) -> Policy) -> Option<Arc<Policy>> {
    match known.get(object.head.uid.as_str()) {
        Some((revision, policy)) if *revision == object.revision => Some(policy.clone()),
        // Stored bytes were a tree when they were written.
        _ => Some(Arc::new(compile(&object.tree().ok()?))),
    }
}

/// By the name of the policy.
fn bindings_of(space: &Space, collection: &Collection) -> HashMap<String, Vec<Binding>> {
    let mut bindings: HashMap<String, Vec<Binding>> = HashMap::new();
    for (_, object) in space.latest(collection).iter(None, None) {
        let Ok(tree) = object.tree() else { continue };
        let binding = Binding::read(&tree);
        bindings.entry(binding.policy.clone()).or_default().push(binding);
    }
    bindings
}
