//! Who set which field: `managedFields` of every write, and what an applied configuration makes of an object.
//!
//! The rules are `machinery::apply`'s; here a request is put into its terms. Objects are compared in the version of
//! the request, before the server sets what only it decides.

use std::{cell::RefCell, sync::Arc};

use http::header;
use machinery::{
    apply::{self, BuiltinVersion, FieldSet, Filter, Matcher, PathElement, Request, TypeRef, Versions},
    resource::{Custom, Resource, ScalePaths, Schema, Subresource, Tree},
    scale,
    status::Status,
};
use serde_json::Value;

use crate::{context::Context, served::Served, versions};

/// Longest name of a manager that is taken from a user agent, in bytes.
const MAX_MANAGER_BYTES: usize = 128;

/// As the client calls itself, or what its user agent begins with.
fn manager(context: &Context) -> String {
    if let Some(manager) = context.query.get("fieldManager").filter(|manager| !manager.is_empty()) {
        return manager.to_owned();
    }
    let agent =
        context.headers.get(header::USER_AGENT).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let agent = agent.unwrap_or_default();
    let mut name = String::new();
    for letter in agent.split('/').next().unwrap_or_default().chars().filter(|letter| !letter.is_control()) {
        if name.len() + letter.len_utf8() > MAX_MANAGER_BYTES {
            break;
        }
        name.push(letter);
    }
    name
}

/// What somebody else made of an object in another version.
struct Conversion {
    from: Tree,
    api_version: String,
    made: Result<Tree, String>,
}

/// An object, and the version in which it is wanted.
type Missing = (Tree, String);

/// The versions in which the objects of a request's kind can be read.
struct KindVersions<'a> {
    here: &'a Resource,
    served: Arc<Served>,
    /// Of a kind whose versions a webhook converts.
    known: &'a [Conversion],
    /// The first that was wanted and is not among them.
    missing: RefCell<Option<Missing>>,
}

impl KindVersions<'_> {
    fn find(&self, api_version: &str) -> Option<&Resource> {
        if api_version == self.here.api_version {
            return Some(self.here);
        }
        let same = |it: &&Arc<Resource>| {
            it.api_version == api_version
                && it.stored_group == self.here.stored_group
                && it.plural == self.here.plural
        };
        self.served.registry.all().find(same).map(AsRef::as_ref)
    }

    /// By way of the version of the request, as upstream does it.
    fn by_webhook(&self, object: &Tree, from: &str, api_version: &str) -> Result<Tree, String> {
        let here = self.here.api_version.as_str();
        if from != here && api_version != here {
            return self.answered(&self.answered(object, here)?, api_version);
        }
        self.answered(object, api_version)
    }

    fn answered(&self, object: &Tree, api_version: &str) -> Result<Tree, String> {
        let is_it = |it: &&Conversion| it.api_version == api_version && it.from == *object;
        if let Some(known) = self.known.iter().find(is_it) {
            return known.made.clone();
        }
        self.missing.borrow_mut().get_or_insert_with(|| (object.clone(), api_version.to_owned()));
        Err(format!("not converted to {api_version} yet"))
    }
}

/// The rules of a kind whose versions a webhook converts.
fn converted_by_webhook(resource: &Resource) -> Option<&Arc<Custom>> {
    resource.custom().filter(|custom| custom.version.conversion.strategy == "Webhook")
}

/// What says how objects of a kind are merged.
pub fn type_of(resource: &Resource) -> Option<TypeRef<'_>> {
    match &resource.schema {
        Schema::Typed(message) => apply::Schema::of_message(message),
        Schema::Custom(custom) | Schema::Own(custom) => Some(custom.merge_type()),
        Schema::Untyped => Some(apply::Schema::deduced()),
    }
}

impl Versions for KindVersions<'_> {
    fn type_at(&self, api_version: &str) -> Option<TypeRef<'_>> {
        type_of(self.find(api_version)?)
    }

    fn convert(&self, object: &Tree, api_version: &str) -> Result<Tree, String> {
        let from = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        if converted_by_webhook(self.here).is_some() {
            return self.by_webhook(object, from, api_version);
        }
        let missing = |version: &str| format!("no version {version} of {}", self.here.plural);
        let from = self.find(from).ok_or_else(|| missing(from))?;
        let to = self.find(api_version).ok_or_else(|| missing(api_version))?;
        let mut tree = object.clone();
        from.to_storage(&mut tree);
        to.from_storage(&mut tree);
        tree.insert("apiVersion".into(), Value::from(api_version));
        Ok(tree)
    }
}

/// What a write to this path may not own, because the server sets it back.
fn filter(resource: &Resource, subresource: Option<&Subresource>) -> Filter {
    let path = |text: &&str| -> Vec<Option<PathElement>> {
        text.split('.').map(|name| (name != "*").then(|| PathElement::field(name))).collect()
    };
    let (owns, resets) = match subresource {
        Some(below) => (below.owns, below.resets),
        None => (&[][..], resource.row.resets),
    };
    if !owns.is_empty() {
        let prefixes: Vec<Vec<Option<PathElement>>> = owns.iter().map(path).collect();
        return Filter::Include(Matcher::prefixes(prefixes.iter().map(Vec::as_slice)));
    }
    let paths: Vec<Vec<&str>> = resets.iter().map(|text| text.split('.').collect()).collect();
    let paths: Vec<&[&str]> = paths.iter().map(Vec::as_slice).collect();
    Filter::Exclude(FieldSet::of_fields(&paths))
}

/// Whether what is stored is spelt otherwise than in the version of the request.
fn is_converted(resource: &Resource) -> bool {
    resource.custom().is_none() && !resource.served_as_stored
}

fn in_request_version(resource: &Resource, stored: &Tree) -> Tree {
    let mut tree = stored.clone();
    resource.from_storage(&mut tree);
    tree
}

/// What comes of it, and a conversion that it lacked.
fn with_request<T>(
    context: &Context,
    known: &[Conversion],
    work: impl FnOnce(&Request<'_>) -> T,
) -> (T, Option<Missing>) {
    let resource = &*context.resource;
    let served = context.hub.served(&context.space);
    let versions = KindVersions { here: resource, served, known, missing: RefCell::default() };
    let below = resource.subresource(&context.target.subresource);
    let filters = [(resource.api_version.as_str(), filter(resource, below))];
    let (manager, now) = (manager(context), context.hub.now_text());
    let made = work(&Request {
        versions: &versions,
        api_version: &resource.api_version,
        kind: &resource.kind,
        empty: resource.empty(),
        manager: &manager,
        subresource: &context.target.subresource,
        filters: &filters,
        now: &now,
    });
    (made, versions.missing.into_inner())
}

/// Merging waits for nobody, and a webhook must be waited for: what lacks a conversion is done again with it, until it lacks none.
async fn with_conversions<T>(context: &Context, work: impl Fn(&Request<'_>) -> T) -> T {
    let mut known = Vec::new();
    loop {
        let (made, missing) = with_request(context, &known, &work);
        let Some(((from, api_version), custom)) = missing.zip(converted_by_webhook(&context.resource)) else {
            return made;
        };
        let made = versions::in_version(context, custom, from.clone(), &api_version).await;
        let made = made.map_err(|status| status.message().to_owned());
        known.push(Conversion { from, api_version, made });
    }
}

/// Writes who owns what into `new`, which is to take the place of `live`. Both are as they are worked on: stored
/// spelling for built-in kinds, the version of the request for custom ones.
pub async fn track(context: &Context, live: Option<&Tree>, new: &mut Tree, resets: bool) {
    let resource = &*context.resource;
    if converted_by_webhook(resource).is_some() {
        let sent = &*new;
        let tracked = with_conversions(context, |request| {
            let mut tracked = sent.clone();
            apply::track_update(request, live, &mut tracked, resets);
            tracked
        });
        *new = tracked.await;
        return;
    }
    with_request(context, &[], |request| {
        if !is_converted(resource) {
            return apply::track_update(request, live, new, resets);
        }
        let live = live.map(|live| in_request_version(resource, live));
        let mut here = in_request_version(resource, new);
        apply::track_update(request, live.as_ref(), &mut here, resets);
        set_managed_fields(new, &here);
    });
}

fn set_managed_fields(tree: &mut Tree, from: &Tree) {
    let managed = from.get("metadata").and_then(|metadata| metadata.get("managedFields")).cloned();
    if let Some(metadata) = tree.get_mut("metadata").and_then(Value::as_object_mut) {
        match managed {
            Some(managed) => metadata.insert("managedFields".into(), managed),
            None => metadata.remove("managedFields"),
        };
    }
}

/// What `config` makes of the object, in the version of the request; `live` as it is worked on, `None` if there is
/// none yet.
pub async fn apply(
    context: &Context,
    live: Option<&Tree>,
    config: &Tree,
    force: bool,
) -> Result<Tree, Status> {
    let resource = &*context.resource;
    let converted = live.filter(|_| is_converted(resource)).map(|live| in_request_version(resource, live));
    let live = converted.as_ref().or(live);
    let applied = with_conversions(context, |request| {
        apply::apply(request, live.unwrap_or(request.empty), config, force)
    });
    applied.await.map_err(|error| error.status())
}

/// Where each version of a kind keeps its replicas.
fn replicas_paths(context: &Context, here: &ScalePaths) -> Vec<(String, Option<Vec<PathElement>>)> {
    let path = |paths: &ScalePaths| -> Vec<PathElement> {
        paths.spec_replicas.split('.').filter(|key| !key.is_empty()).map(PathElement::field).collect()
    };
    let resource = &context.resource;
    let served = context.hub.served(&context.space);
    let mut all = vec![(resource.api_version.clone(), Some(path(here)))];
    for other in served.registry.all() {
        let sibling = other.plural == resource.plural && other.stored_group == resource.stored_group;
        if sibling && other.api_version != resource.api_version {
            all.push((other.api_version.clone(), other.scale.as_ref().map(path)));
        }
    }
    all
}

/// The scale of an object with those managers that own its replicas.
pub fn scale_with_managers(context: &Context, paths: &ScalePaths, object: &Tree) -> Option<Tree> {
    let mut shown = scale::scale_of(object, paths)?;
    let all = replicas_paths(context, paths);
    let all: Vec<(&str, Option<&[PathElement]>)> =
        all.iter().map(|(version, path)| (version.as_str(), path.as_deref())).collect();
    // Managers that cannot be read own nothing.
    drop(apply::scale_from_parent(&all, object, &mut shown));
    Some(shown)
}

fn with_shown_request<T>(context: &Context, work: impl FnOnce(&Request<'_>) -> T) -> Option<T> {
    let shown = &*context.shown;
    let versions = BuiltinVersion { api_version: &shown.api_version, ty: type_of(shown)? };
    let (manager, now) = (manager(context), context.hub.now_text());
    Some(work(&Request {
        versions: &versions,
        api_version: &shown.api_version,
        kind: &shown.kind,
        empty: shown.empty(),
        manager: &manager,
        subresource: &context.target.subresource,
        filters: &[],
        now: &now,
    }))
}

/// Writes who owns what into something that is created below an object and not kept.
pub fn track_shown(context: &Context, tree: &mut Tree) {
    with_shown_request(context, |request| apply::track_update(request, None, tree, false));
}

/// Writes into `object` who owns its replicas once its scale is `seen`; `before` is the object as it was.
pub fn track_scale(context: &Context, paths: &ScalePaths, before: &Tree, mut seen: Tree, object: &mut Tree) {
    if let Some(live) = scale_with_managers(context, paths, before) {
        with_shown_request(context, |request| apply::track_update(request, Some(&live), &mut seen, false));
    }
    scale_to_object(context, paths, before, &seen, object);
}

/// What `config` makes of the scale of `before`, with its managers.
pub fn apply_scale(
    context: &Context,
    paths: &ScalePaths,
    before: &Tree,
    config: &Tree,
    force: bool,
) -> Result<Tree, Status> {
    let live = scale_with_managers(context, paths, before).unwrap_or_default();
    let applied = with_shown_request(context, |request| apply::apply(request, &live, config, force));
    match applied {
        Some(applied) => applied.map_err(|error| error.status()),
        None => Err(Status::internal("scales have no type")),
    }
}

/// Takes the owner of the replicas from a scale to its object.
pub fn scale_to_object(context: &Context, paths: &ScalePaths, before: &Tree, seen: &Tree, object: &mut Tree) {
    let all = replicas_paths(context, paths);
    let all: Vec<(&str, Option<&[PathElement]>)> =
        all.iter().map(|(version, path)| (version.as_str(), path.as_deref())).collect();
    drop(apply::scale_to_parent(&all, &context.resource.api_version, before, seen, object));
}
