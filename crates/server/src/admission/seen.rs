//! A request as webhooks and policies see it: what it is about, what else holds the same objects, and the objects in
//! the version that each of them asks for.

use std::sync::Arc;

use machinery::{
    admission::rules::{Labels, Subject, Target},
    gotext,
    resource::{Resource, Schema, Tree},
    scale,
    schema::{self, Types},
    status::{About, Status},
    structural::Malformed,
};
use serde_json::{Value, json};
use store::Key;

use super::{Admission, Operation};
use crate::{context::Context, managers, request::Verb, served::Served, versions};

pub struct Seen<'a> {
    pub admission: &'a Admission<'a>,
    /// What the request was sent as.
    pub target: Target,
    /// The same objects in all their versions and groups.
    pub equivalents: Vec<Target>,
    served: Arc<Served>,
    /// Objects can still be changed.
    mutating: bool,
}

/// What a request for `resource`, or for what is below it, is about.
fn target_of(resource: &Resource, subresource: &str) -> Option<Target> {
    let (kind_group, kind_version, kind) = match subresource {
        "" => (resource.group.as_str(), resource.version.as_str(), resource.kind.as_str()),
        name => resource.kind_at(resource.subresource(name)?),
    };
    Some(Target {
        group: resource.group.clone(),
        version: resource.version.clone(),
        resource: resource.plural.clone(),
        kind_group: kind_group.to_owned(),
        kind_version: kind_version.to_owned(),
        kind: kind.to_owned(),
    })
}

impl<'a> Seen<'a> {
    pub fn new(admission: &'a Admission<'a>) -> Self {
        let context = admission.context;
        let served = context.hub.served(&context.space);
        let resource = &*context.resource;
        let below = context.target.subresource.as_str();
        let same =
            |it: &&Arc<Resource>| it.plural == resource.plural && it.stored_group == resource.stored_group;
        let equivalents = served.registry.all().filter(same).filter_map(|it| target_of(it, below)).collect();
        let target = target_of(resource, below).unwrap_or_default();
        Seen { admission, target, equivalents, served, mutating: false }
    }

    /// While objects can still be changed.
    pub fn mutating(admission: &'a Admission<'a>) -> Self {
        Seen { mutating: true, ..Seen::new(admission) }
    }

    fn context(&self) -> &'a Context {
        self.admission.context
    }

    /// The name the request is for. Of a mass deletion it is not known.
    pub fn name(&self) -> &'a str {
        match self.admission.operation {
            Operation::Delete if self.context().target.verb == Verb::DeleteCollection => "",
            _ => self.admission.name,
        }
    }

    /// A namespace is in itself.
    pub fn namespace(&self) -> &'a str {
        match self.admission.is_namespace() {
            true => self.admission.name,
            false => &self.context().target.namespace,
        }
    }

    /// The labels of the namespace that the request is in.
    pub fn namespace_labels(&self) -> Result<Labels, Status> {
        let name = self.namespace();
        let namespace = self.context().space.get(&Key::new("", "namespaces", "", name));
        let about = About { group: "", resource: "namespaces", name };
        namespace.map(|it| it.head.labels.to_vec()).ok_or_else(|| Status::not_found(about))
    }

    /// What says what objects are like in the version of `to`.
    pub fn resource_at(&self, to: &Target) -> Result<Arc<Resource>, Status> {
        match self.is_other_kind() {
            true => Ok(self.context().shown.clone()),
            false => self.resource(to).cloned(),
        }
    }

    /// For rules and selectors. Labels are the same in every version.
    pub fn subject<'s>(
        &'s self,
        object: Option<&'s Tree>,
        old: Option<&'s Tree>,
        namespace_labels: &'s dyn Fn() -> Result<Labels, Status>,
    ) -> Subject<'s> {
        Subject {
            operation: self.admission.operation,
            target: &self.target,
            equivalents: &self.equivalents,
            subresource: &self.context().target.subresource,
            namespace: self.namespace(),
            name: self.admission.name,
            object,
            old,
            namespace_labels,
        }
    }

    /// The same target, for as long as this lives.
    pub fn own(&self, target: &Target) -> &Target {
        self.equivalents.iter().find(|it| *it == target).unwrap_or(&self.target)
    }

    /// Whether objects are of another kind than what is stored: a binding, an eviction.
    fn is_other_kind(&self) -> bool {
        !Arc::ptr_eq(&self.context().shown, &self.context().resource)
    }

    fn resource(&self, to: &Target) -> Result<&Arc<Resource>, Status> {
        let found = self.served.registry.find(&to.group, &to.version, &to.resource);
        found.ok_or_else(|| {
            let kind = gotext::quote(&to.kind);
            Status::internal(format!("no kind {kind} is served in {}/{}", to.group, to.version))
        })
    }

    /// What rules, selectors and webhooks take for the object of this request, if that is not the object itself.
    fn plain(&self, tree: &Tree) -> Result<Option<Tree>, Status> {
        let context = self.context();
        let Some(paths) = context.scale() else { return Ok(None) };
        // Who set the replicas is told only to those who may change them, as upstream has it.
        let mut scale = match self.mutating {
            true => managers::scale_with_managers(context, paths, tree),
            false => scale::scale_of(tree, paths),
        };
        let is_new = self.admission.old.is_none_or(|old| !std::ptr::eq(old, tree));
        if let Some(scale) = scale.as_mut().filter(|_| is_new) {
            stamp_managers(scale, &context.hub.now_text());
        }
        scale.map(Some).ok_or_else(|| Status::not_found(context.about(self.admission.name)))
    }

    pub fn plain_of(&self, tree: Option<&Tree>) -> Result<Option<Tree>, Status> {
        tree.map_or(Ok(None), |tree| self.plain(tree))
    }

    pub async fn version_of(&self, tree: Option<&Tree>, to: &Target) -> Result<Option<Tree>, Status> {
        match tree {
            Some(tree) => self.in_version(tree, to).await.map(Some),
            None => Ok(None),
        }
    }

    /// An object as it is worked on, in the version of `to`.
    pub async fn in_version(&self, tree: &Tree, to: &Target) -> Result<Tree, Status> {
        if let Some(scale) = self.plain(tree)? {
            return Ok(scale);
        }
        if self.is_other_kind() {
            return Ok(tree.clone());
        }
        let resource = self.resource(to)?;
        let mut tree = tree.clone();
        match self.context().resource.custom() {
            Some(_) if self.is_sent_as(to) => Ok(tree),
            Some(custom) => versions::in_version(self.context(), custom, tree, &resource.api_version).await,
            None => {
                resource.from_storage(&mut tree);
                Ok(tree)
            }
        }
    }

    fn is_sent_as(&self, to: &Target) -> bool {
        (&to.group, &to.version) == (&self.target.group, &self.target.version)
    }

    /// Takes an object back from the version of `to`, into the one that is worked on.
    pub async fn take_back(&self, tree: Tree, to: &Target, into: &mut Tree) -> Result<(), Status> {
        let context = self.context();
        if let Some(paths) = context.scale() {
            scale::set_scale(into, paths, &tree);
            return Ok(());
        }
        let mut tree = tree;
        if !self.is_other_kind() {
            match context.resource.custom() {
                Some(_) if self.is_sent_as(to) => {}
                Some(custom) => {
                    let api_version = &context.resource.api_version;
                    tree = versions::in_version(context, custom, tree, api_version).await?;
                }
                None => self.resource(to)?.to_storage(&mut tree),
            }
        }
        *into = tree;
        Ok(())
    }

    /// Once all have changed an object who may: what its custom kind does not have goes.
    pub fn settle(&self, object: &mut Tree) -> Result<(), Status> {
        match self.context().resource.structural().filter(|_| !self.is_other_kind()) {
            Some(custom) => {
                custom.version.accept(object, Malformed::Refuse).map(drop).map_err(Status::internal)
            }
            None => Ok(()),
        }
    }

    /// What somebody else made of an object in the version of `to`, as one of its kind again: what the kind does not
    /// have goes.
    pub fn decode(&self, tree: Tree, to: &Target) -> Result<Tree, String> {
        let resource = match self.is_other_kind() {
            true => &self.context().shown,
            false => self.resource(to).map_err(|status| status.message().to_owned())?,
        };
        let text = |key: &str| tree.get(key).and_then(Value::as_str).unwrap_or_default();
        if text("kind") != resource.kind || text("apiVersion") != resource.api_version {
            let (kind, version) = (gotext::quote(text("kind")), gotext::quote(text("apiVersion")));
            let (wanted, group) = (&resource.kind, &resource.api_version);
            return Err(format!("no kind {kind} of version {version} can be made a {wanted} of {group}"));
        }
        let types = Types::builtin();
        let mut value = Value::Object(tree);
        match (&resource.schema, &mut value) {
            (Schema::Typed(message), value) => {
                let conformed = schema::conform(types, message, value, schema::Options::default());
                conformed.map_err(|error| error.to_string())?;
            }
            // What is not of a custom kind goes when all are done with it; until then others see it, as upstream.
            (Schema::Custom(_) | Schema::Own(_), _) => {}
            (_, value) => {
                let metadata = value.get_mut("metadata");
                if let (Some(message), Some(metadata)) = (types.get("meta/v1.ObjectMeta"), metadata) {
                    let conformed = schema::conform(types, message, metadata, schema::Options::default());
                    conformed.map_err(|error| error.to_string())?;
                }
            }
        }
        let Value::Object(tree) = value else { return Err("an object is expected".to_owned()) };
        (resource.row.readable)(&tree)?;
        Ok(tree)
    }

    /// Fills in what is left open in an object of the version of `to`.
    pub fn fill_defaults(&self, tree: &mut Tree, to: &Target) -> Result<(), Status> {
        if self.is_other_kind() {
            return Ok(());
        }
        let resource = self.resource(to)?;
        resource.to_storage(tree);
        resource.fill_defaults(tree);
        resource.from_storage(tree);
        Ok(())
    }

    /// `CreateOptions`, `UpdateOptions` or `DeleteOptions`, as webhooks and policies get them.
    pub fn options(&self) -> Tree {
        let context = self.context();
        let (kind, mut options) = match self.admission.operation {
            Operation::Delete => ("DeleteOptions", self.delete_options()),
            Operation::Create => ("CreateOptions", self.write_options()),
            Operation::Update => ("UpdateOptions", self.write_options()),
        };
        if !options.contains_key("dryRun") && context.query.all("dryRun").any(|it| it == "All") {
            options.insert("dryRun".into(), json!(["All"]));
        }
        options.insert("kind".into(), json!(kind));
        options.insert("apiVersion".into(), json!("meta.k8s.io/v1"));
        options
    }

    fn write_options(&self) -> Tree {
        let given = ["fieldManager", "fieldValidation"].into_iter().filter_map(|key| {
            let value = self.context().query.get(key).filter(|value| !value.is_empty())?;
            Some((key.to_owned(), json!(value)))
        });
        given.collect()
    }

    fn delete_options(&self) -> Tree {
        let mut options = self.admission.delete_options.cloned().unwrap_or_default();
        let asked = options.get("gracePeriodSeconds").and_then(Value::as_i64);
        let mut seconds = asked.map(|seconds| if seconds < 0 { 1 } else { seconds });
        // Kinds that end by themselves say how long they take before anybody is asked.
        if let (Some(grace), Some(old)) = (self.context().resource.row.grace, self.admission.old) {
            seconds = Some(grace(old, seconds).max(0));
        }
        if let Some(seconds) = seconds {
            options.insert("gracePeriodSeconds".into(), json!(seconds));
        }
        // A namespace is deleted as the one that was found.
        let uid =
            self.admission.old.and_then(|old| old.get("metadata")).and_then(|metadata| metadata.get("uid"));
        if let (true, Some(uid)) = (self.admission.is_namespace(), uid) {
            let preconditions = options.entry("preconditions").or_insert_with(|| json!({}));
            if let Some(preconditions) = preconditions.as_object_mut() {
                preconditions.entry("uid").or_insert_with(|| uid.clone());
            }
        }
        options
    }
}

/// Gives the time of the request to managers that have none: they have just come.
fn stamp_managers(tree: &mut Tree, now: &str) {
    let managers = tree.get_mut("metadata").and_then(|metadata| metadata.get_mut("managedFields"));
    let managers = managers.and_then(Value::as_array_mut).into_iter().flatten();
    for manager in managers.filter_map(Value::as_object_mut) {
        manager.entry("time").or_insert_with(|| json!(now));
    }
}
