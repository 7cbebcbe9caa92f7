//! One request for objects of one resource, with all that is known of it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use hyper::upgrade::OnUpgrade;
use machinery::{
    Draft, EventType, Object, Revision,
    resource::{Resource, ScalePaths, Tree},
    scale,
    status::{About, Status},
};
use serde_json::Value;
use store::{Collection, Error, Key, Listing, Span, Watch};

use crate::{
    audit::Recorder,
    hub::Hub,
    managers,
    metrics::{self, Stopwatch},
    negotiate::{self, Shape},
    options::Query,
    present::Presenter,
    request::{ResourceTarget, Verb},
    space::{Current, Space},
    user::User,
    views::{self, View},
};

pub struct Context {
    pub hub: Arc<Hub>,
    pub space: Space,
    /// Where objects of this kind are read from, if members have some too.
    pub view: Option<Arc<View>>,
    /// The kind that the path is about.
    pub resource: Arc<Resource>,
    /// The kind that the client sends and sees: the same, or that of a subresource.
    pub shown: Arc<Resource>,
    pub target: ResourceTarget,
    pub query: Query,
    pub headers: HeaderMap,
    pub user: Arc<User>,
    /// What is written down about this request.
    pub audit: Recorder,
    /// What it is measured as.
    pub about: metrics::About,
    pub elsewhere: Elsewhere,
    /// The connection it came on, if its client wants to go on with something else there.
    pub upgrade: Option<OnUpgrade>,
}

/// How long a request waited for webhooks, which is not this server's doing.
#[derive(Clone, Default)]
pub struct Elsewhere(Arc<[AtomicU64; 2]>);

impl Elsewhere {
    /// Those that change objects are asked one after the other, the others at once.
    pub fn add(&self, time: Duration, one_after_the_other: bool) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let [sum, longest] = &*self.0;
        match one_after_the_other {
            true => sum.fetch_add(nanos, Ordering::Relaxed),
            false => longest.fetch_max(nanos, Ordering::Relaxed),
        };
    }

    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.0.iter().map(|nanos| nanos.load(Ordering::Relaxed)).sum())
    }
}

impl Context {
    /// A request of the hub's own, about an object of `collection`; `None` if that is not served.
    pub fn own(
        hub: &Arc<Hub>,
        space: &Space,
        collection: &Collection,
        namespace: &str,
        name: &str,
    ) -> Option<Context> {
        let resource: Arc<Resource> = hub.served(space).registry.stored(collection)?.clone();
        let target = ResourceTarget {
            verb: Verb::Delete,
            group: resource.group.clone(),
            version: resource.version.clone(),
            namespace: namespace.to_owned(),
            resource: resource.plural.clone(),
            name: name.to_owned(),
            subresource: String::new(),
        };
        Some(Context {
            hub: hub.clone(),
            space: space.clone(),
            // The hub itself looks after what is stored.
            view: None,
            shown: resource.clone(),
            resource,
            target,
            query: Query::default(),
            headers: HeaderMap::new(),
            user: Arc::new(User::hub("system:hanse")),
            audit: Recorder::off(),
            about: metrics::About::default(),
            elsewhere: Elsewhere::default(),
            upgrade: None,
        })
    }

    /// What it writes is noted under this name.
    pub fn manage_as(&mut self, manager: &str) {
        self.query.set("fieldManager", manager);
    }

    /// What it sends is a configuration, and whoever owns its fields otherwise loses them.
    pub fn apply_by_force(&mut self) {
        self.query.set("force", "true");
        let apply = HeaderValue::from_static("application/apply-patch+yaml");
        self.headers.insert(http::header::CONTENT_TYPE, apply);
    }

    pub fn collection(&self) -> Collection {
        Collection::new(&self.resource.stored_group, &self.resource.plural)
    }

    pub fn key(&self, name: &str) -> Key {
        Key { collection: self.collection(), item: store::ItemKey::new(&self.target.namespace, name) }
    }

    pub fn span(&self) -> Span {
        let namespace = (!self.target.namespace.is_empty()).then(|| self.target.namespace.as_str().into());
        Span { collection: self.collection(), namespace }
    }

    /// Where the history stands that this request reads.
    pub fn head(&self) -> Revision {
        self.view.as_ref().map_or_else(|| self.space.head(), |view| view.head())
    }

    /// Whether a revision that a client has seen is none of the history that this request reads.
    pub fn is_foreign(&self, revision: Revision) -> bool {
        match &self.view {
            Some(view) => !view.knows(revision),
            None => views::is_view_revision(&self.resource, revision),
        }
    }

    pub fn current(&self, key: &Key) -> Current {
        self.view.as_ref().map_or_else(|| self.space.current(key), |view| view.current(key))
    }

    pub fn get(&self, key: &Key) -> Option<Arc<Object>> {
        self.view.as_ref().map_or_else(|| self.space.get(key), |view| view.get(key))
    }

    pub fn list(&self, at: Option<Revision>) -> Result<Listing, Error> {
        let collection = self.collection();
        match &self.view {
            Some(view) => view.list(&collection, at),
            None => self.space.list(&collection, at),
        }
    }

    pub fn watch(&self, after: Revision) -> Result<Watch, Error> {
        match &self.view {
            Some(view) => view.watch(self.span(), after),
            None => self.space.watch(self.span(), after),
        }
    }

    /// What clients should know about a list of all there is; refused if something was never seen and the client does
    /// not ask for a partial answer.
    pub fn sight(&self) -> Result<Vec<String>, Status> {
        let sight = self.hub.views.sight(&self.space, self.view.as_deref(), &self.resource);
        let Some(sight) = sight else { return Ok(Vec::new()) };
        if sight.is_partial() && !self.takes_parts() {
            return Err(sight.refusal());
        }
        Ok(sight.warnings())
    }

    /// Whether the client can do with less than all there is.
    pub fn takes_parts(&self) -> bool {
        self.headers.get("hanse-partial").is_some_and(|value| value == "true") || self.query.flag("partial")
    }

    pub fn about<'a>(&'a self, name: &'a str) -> About<'a> {
        About { group: &self.resource.group, resource: &self.resource.plural, name }
    }

    pub fn presenter(&self) -> Result<Presenter, Status> {
        let shape = negotiate::shape(&self.headers, self.resource.is_stored())?;
        let include = self.query.get("includeObject").unwrap_or_default();
        if shape == Shape::Table && !matches!(include, "" | "None" | "Metadata" | "Object") {
            return Err(Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {include:?}: must be \
                 'Metadata', 'Object', 'None', or empty"
            )));
        }
        Ok(self.presenter_as(shape))
    }

    pub fn presenter_as(&self, shape: Shape) -> Presenter {
        Presenter::new(self.shown.clone(), shape, &self.query, self.hub.now().as_second())
    }

    /// The object as this path shows it.
    pub fn visible(&self, object: &Object) -> Result<Tree, Status> {
        let mut tree = object.tree().map_err(Status::internal)?;
        match self.scale() {
            Some(paths) => {
                scale::scale_of(&tree, paths).ok_or_else(|| Status::not_found(self.about(&object.head.name)))
            }
            None => {
                self.resource.from_storage(&mut tree);
                Ok(tree)
            }
        }
    }

    /// The object to be stored when `old` becomes what the client made of it, `seen`.
    ///
    /// `tracked`: it says already who owns what.
    pub fn absorb(&self, mut seen: Tree, old: &Object, tracked: bool) -> Result<Tree, Status> {
        let Some(paths) = self.scale() else {
            self.resource.to_storage(&mut seen);
            return Ok(seen);
        };
        let causes = scale::validate(&seen);
        if !causes.is_empty() {
            return Err(Status::invalid(&self.shown.group, &self.shown.kind, &old.head.name, causes));
        }
        let before = old.tree().map_err(Status::internal)?;
        let mut new = before.clone();
        scale::set_scale(&mut new, paths, &seen);
        if let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) {
            for key in ["resourceVersion", "uid"] {
                match seen.get("metadata").and_then(|metadata| metadata.get(key)) {
                    Some(value) => metadata.insert(key.into(), value.clone()),
                    None => metadata.remove(key),
                };
            }
        }
        match tracked {
            true => managers::scale_to_object(self, paths, &before, &seen, &mut new),
            false => managers::track_scale(self, paths, &before, seen, &mut new),
        }
        Ok(new)
    }

    /// Where the replicas are, if the path is about them.
    pub fn scale(&self) -> Option<&ScalePaths> {
        self.resource.scale.as_ref().filter(|_| self.target.subresource == "scale")
    }

    /// One object, in the form the client asked for.
    pub fn present(&self, object: &Object) -> Result<Bytes, Status> {
        let presenter = self.presenter()?;
        if self.scale().is_none() {
            return Ok(presenter.one(object));
        }
        let draft = Draft::encode(&self.visible(object)?).map_err(Status::internal)?;
        Ok(presenter.one(&draft.seal(object.revision, EventType::Modified)))
    }

    pub fn stopwatch(&self) -> Stopwatch<'_> {
        Stopwatch::start(&*self.hub.env.clock, &self.hub.metrics)
    }

    /// `dryRun=All`: everything but the commit. Anything else is refused.
    pub fn dry_run(&self) -> Result<bool, Status> {
        let mut dry = false;
        for value in self.query.all("dryRun") {
            match value {
                "" => {}
                "All" => dry = true,
                other => {
                    let cause = machinery::field_error::Cause::not_supported(
                        "dryRun",
                        &serde_json::json!([other]),
                        &["All"],
                    );
                    return Err(Status::invalid("meta.k8s.io", "CreateOptions", "", vec![cause]));
                }
            }
        }
        Ok(dry)
    }
}
