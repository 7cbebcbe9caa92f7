//! What each workspace serves: the built-in kinds, which all share, and those that its own definitions add.
//!
//! ```text
//!   built-in rows ──> Served (ordinary, root)          made once, shared by every workspace without definitions
//!                        │
//!   definitions of ──> Served of that workspace        made when its definitions have changed since the last request;
//!   one workspace        only what they add is its own documents are made when they are first asked for
//! ```

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, OnceLock},
};

use machinery::{
    Object, Revision,
    resource::{Resource, custom_resources},
};
use store::{Collection, WorkspaceId};

use crate::{
    discovery::Discovered, hub::root_id, openapi::Documents, recent::Recent, registry::Registry,
    space::Space, swagger::Swagger,
};

/// A set of resources and the documents that describe it.
pub struct Served {
    pub registry: Arc<Registry>,
    discovered: OnceLock<Discovered>,
    openapi: OnceLock<Documents>,
    swagger: OnceLock<Swagger>,
    below: Option<Arc<Served>>,
}

impl Served {
    fn builtin(registry: Registry) -> Self {
        Self {
            registry: Arc::new(registry),
            discovered: OnceLock::new(),
            openapi: OnceLock::new(),
            swagger: OnceLock::new(),
            below: None,
        }
    }

    pub fn discovered(&self) -> &Discovered {
        self.discovered.get_or_init(|| Discovered::describe(&self.registry))
    }

    pub fn openapi(&self) -> &Documents {
        let below = self.below.as_ref().map(|below| below.openapi());
        self.openapi.get_or_init(|| Documents::describe(&self.registry, below))
    }
}

impl Served {
    /// OpenAPI v2: what is below, and what these resources add.
    pub fn swagger(&self) -> Vec<&Swagger> {
        let mut parts = self.below.as_ref().map(|below| below.swagger()).unwrap_or_default();
        let known: Vec<&Swagger> = parts.clone();
        parts.push(self.swagger.get_or_init(|| Swagger::describe(self.registry.own(), &known)));
        parts
    }
}

/// Finds what a workspace serves.
pub struct Servings {
    ordinary: Arc<Served>,
    root: Arc<Served>,
    custom: Recent<Cached>,
}

#[derive(Clone)]
struct Cached {
    /// The last change of the workspace's definitions when this was made.
    at: Revision,
    served: Arc<Served>,
    definitions: Arc<Definitions>,
}

/// By the UID of a definition: its revision then, and what came of it.
type Definitions = HashMap<String, (Revision, Vec<Arc<Resource>>)>;

/// Every request looks there.
pub fn definitions() -> &'static Collection {
    static DEFINITIONS: LazyLock<Collection> =
        LazyLock::new(|| Collection::new("apiextensions.k8s.io", "customresourcedefinitions"));
    &DEFINITIONS
}

impl Servings {
    pub fn new(loopback_endpoints: bool) -> Self {
        let builtin = Registry::builtin(loopback_endpoints);
        Self {
            ordinary: Arc::new(Served::builtin(builtin.ordinary())),
            root: Arc::new(Served::builtin(builtin)),
            custom: Recent::default(),
        }
    }

    pub fn of(&self, space: &Space) -> Arc<Served> {
        let below = if *space.id() == root_id() { &self.root } else { &self.ordinary };
        // Read before computing: a change in between makes the next request compute again, never serve a stale one.
        let at = space.last_change(definitions());
        if at == Revision::ZERO {
            return below.clone();
        }
        let known = self.custom.get(space.id());
        if let Some(cached) = known.as_ref().filter(|cached| cached.at == at) {
            return cached.served.clone();
        }
        let definitions = known.map(|cached| cached.definitions).unwrap_or_default();
        let cached = Cached::compute(space, at, below, &definitions);
        self.custom.insert(space.id(), cached.clone());
        cached.served
    }

    pub fn forget(&self, workspace: &WorkspaceId) {
        self.custom.forget(workspace);
    }
}

impl Cached {
    fn compute(space: &Space, at: Revision, below: &Arc<Served>, known: &Definitions) -> Cached {
        let mut definitions = Definitions::new();
        let mut resources = Vec::new();
        for (_, object) in space.latest(self::definitions()).iter(None, None) {
            let uid = object.head.uid.to_string();
            let (revision, made) = match known.get(&uid) {
                Some(entry) if entry.0 == object.revision => entry.clone(),
                _ => (object.revision, added_by(object)),
            };
            resources.extend(made.iter().cloned());
            definitions.insert(uid, (revision, made));
        }
        let served = match resources.is_empty() {
            true => below.clone(),
            false => Arc::new(Served {
                registry: Arc::new(Registry::over(below.registry.clone(), resources)),
                discovered: OnceLock::new(),
                openapi: OnceLock::new(),
                swagger: OnceLock::new(),
                below: Some(below.clone()),
            }),
        };
        Cached { at, served, definitions: Arc::new(definitions) }
    }
}

/// What one definition adds.
fn added_by(definition: &Object) -> Vec<Arc<Resource>> {
    match definition.tree() {
        Ok(tree) => custom_resources(&tree, definition.revision).into_iter().map(Arc::new).collect(),
        // Stored bytes were a tree when they were written.
        Err(_) => Vec::new(),
    }
}
