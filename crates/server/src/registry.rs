//! Which resources a workspace serves, by path and by kind.

use std::{collections::HashMap, sync::Arc};

use machinery::{
    builtin,
    resource::{Resource, Row},
};

/// A set of resources, over another one that others share.
pub struct Registry {
    resources: Vec<Arc<Resource>>,
    /// By plural name; few groups share one.
    by_path: HashMap<String, Vec<Arc<Resource>>>,
    /// (apiVersion, kind).
    by_kind: HashMap<(String, String), Arc<Resource>>,
    below: Option<Arc<Registry>>,
}

impl Registry {
    /// With the kinds that platform admins have. `loopback_endpoints`: endpoints may be there.
    pub fn builtin(loopback_endpoints: bool) -> Registry {
        let rows = builtin::rows().chain(api::ROWS).chain(dialects::rows());
        let row = |row: &Row| match loopback_endpoints {
            true => builtin::with_loopback_endpoints(row.clone()),
            false => row.clone(),
        };
        Registry::new(rows.map(|it| Arc::new(Resource::new(row(it)))).collect(), None)
    }

    /// Without the kinds that platform admins have; the others are shared.
    pub fn ordinary(&self) -> Registry {
        let resources = self.resources.iter().filter(|it| !it.row.only_in_root).cloned();
        Registry::new(resources.collect(), None)
    }

    /// What `below` has, and `resources` where they do not claim the same.
    pub fn over(below: Arc<Registry>, resources: Vec<Arc<Resource>>) -> Registry {
        let taken = |it: &Arc<Resource>| below.find(&it.group, &it.version, &it.plural).is_some();
        let resources = resources.into_iter().filter(|it| !taken(it)).collect();
        Registry::new(resources, Some(below))
    }

    fn new(resources: Vec<Arc<Resource>>, below: Option<Arc<Registry>>) -> Registry {
        let mut by_path: HashMap<String, Vec<Arc<Resource>>> = HashMap::new();
        let mut by_kind = HashMap::new();
        for resource in &resources {
            by_path.entry(resource.plural.clone()).or_default().push(resource.clone());
            by_kind.insert((resource.api_version.clone(), resource.kind.clone()), resource.clone());
        }
        Registry { resources, by_path, by_kind, below }
    }

    /// Those below first.
    pub fn all(&self) -> Box<dyn Iterator<Item = &Arc<Resource>> + '_> {
        match &self.below {
            Some(below) => Box::new(below.all().chain(&self.resources)),
            None => Box::new(self.resources.iter()),
        }
    }

    /// Those that are not below.
    pub fn own(&self) -> &[Arc<Resource>] {
        &self.resources
    }

    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        let found = self
            .by_path
            .get(plural)
            .and_then(|named| named.iter().find(|it| it.group == group && it.version == version));
        found.or_else(|| self.below.as_ref()?.find(group, version, plural))
    }

    pub fn find_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        let found = self.by_kind.get(&(api_version.to_owned(), kind.to_owned()));
        found.or_else(|| self.below.as_ref()?.find_kind(api_version, kind))
    }

    /// The resource that says how objects of a collection are stored.
    pub fn stored(&self, collection: &store::Collection) -> Option<&Arc<Resource>> {
        let of_it = |it: &&Arc<Resource>| {
            it.is_stored() && store::Collection::new(&it.group, &it.plural) == *collection
        };
        let as_stored = |it: &&Arc<Resource>| it.api_version == it.stored_api_version;
        let found = self.resources.iter().filter(of_it).find(as_stored);
        // A custom kind need not be served in the version it is stored in.
        let found = found.or_else(|| self.resources.iter().filter(of_it).find(|it| it.custom().is_some()));
        found.or_else(|| self.below.as_ref()?.stored(collection))
    }
}
