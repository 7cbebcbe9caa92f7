//! Which resources a workspace serves.

use std::{collections::HashMap, sync::Arc};

use machinery::{builtin, resource::Resource};

/// The resources of one kind of workspace, found by path or by kind.
pub struct Registry {
    resources: Vec<Arc<Resource>>,
    /// By plural name; few groups share one.
    by_path: HashMap<String, Vec<Arc<Resource>>>,
    /// (apiVersion, kind).
    by_kind: HashMap<(String, String), Arc<Resource>>,
}

impl Registry {
    /// `root`: with the kinds that platform admins have.
    pub fn builtin(root: bool) -> Registry {
        let rows = builtin::rows().chain(api::ROWS).filter(|row| root || !row.only_in_root);
        Registry::new(rows.map(|row| Arc::new(Resource::new(row.clone()))).collect())
    }

    fn new(resources: Vec<Arc<Resource>>) -> Registry {
        let mut by_path: HashMap<String, Vec<Arc<Resource>>> = HashMap::new();
        let mut by_kind = HashMap::new();
        for resource in &resources {
            by_path.entry(resource.plural.clone()).or_default().push(resource.clone());
            by_kind.insert((resource.api_version.clone(), resource.kind.clone()), resource.clone());
        }
        Registry { resources, by_path, by_kind }
    }

    pub fn all(&self) -> &[Arc<Resource>] {
        &self.resources
    }

    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.by_path.get(plural)?.iter().find(|it| it.group == group && it.version == version)
    }

    pub fn find_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.by_kind.get(&(api_version.to_owned(), kind.to_owned()))
    }

    /// The resource that says how objects of a collection are stored.
    pub fn stored(&self, collection: &store::Collection) -> Option<&Arc<Resource>> {
        self.resources.iter().find(|it| {
            it.row.stored_as.is_none()
                && it.is_stored()
                && store::Collection::new(&it.group, &it.plural) == *collection
        })
    }
}
