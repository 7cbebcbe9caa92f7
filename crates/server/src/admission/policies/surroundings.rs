//! What a policy is told about a request beside the object: who asks for what, in which namespace, with which
//! parameters.

use std::{collections::VecDeque, sync::Arc};

use machinery::{
    Object,
    admission::{
        authorize::{Authorizer as Ask, ResourceCheck},
        policy::{Binding, ParamKind, Policy, Wanted},
        review::{self, Request},
        rules::Target,
    },
    resource::{Resource, Tree},
    status::{About, Status},
};
use serde_json::Value;
use store::{Collection, ItemKey, Key};

use super::{Seen, authorizer::Authorizer};
use crate::{context::Context, versions};

/// What all policies are told about one request.
pub struct Surroundings<'a> {
    seen: &'a Seen<'a>,
    /// As expressions see it; none outside of namespaces.
    pub namespace: Option<Tree>,
    pub authorizer: Arc<dyn Ask>,
    /// What `authorizer.requestResource` is about.
    pub resource: ResourceCheck,
    options: Tree,
}

/// The AdmissionRequest in two forms: as validations and mutations see it, and as match conditions do.
pub struct Requests {
    pub request: Tree,
    /// If that differs.
    of_conditions: Option<Tree>,
}

impl Requests {
    pub fn conditions(&self) -> &Tree {
        self.of_conditions.as_ref().unwrap_or(&self.request)
    }
}

impl<'a> Surroundings<'a> {
    pub fn of(seen: &'a Seen<'a>) -> Result<Self, Status> {
        let context = seen.admission.context;
        let namespaced = !seen.admission.is_namespace() && !seen.namespace().is_empty();
        let namespace = match namespaced {
            true => Some(namespace(context, seen.namespace())?),
            false => None,
        };
        let resource = ResourceCheck {
            group: seen.target.group.clone(),
            resource: seen.target.resource.clone(),
            subresource: context.target.subresource.clone(),
            namespace: seen.namespace().to_owned(),
            name: seen.name().to_owned(),
        };
        let (authorizer, options) = (Authorizer::of(context), seen.options());
        Ok(Surroundings { seen, namespace, authorizer, resource, options })
    }

    pub fn requests(&self, target: &Target) -> Requests {
        let sent = &self.seen.target;
        // Upstream tells conditions the resource that was asked for, but the kind that the policy names.
        let conditions = Target {
            kind_group: target.kind_group.clone(),
            kind_version: target.kind_version.clone(),
            kind: target.kind.clone(),
            ..sent.clone()
        };
        let of_conditions = (conditions != *target).then(|| self.request(&conditions));
        Requests { request: self.request(target), of_conditions }
    }

    fn request(&self, target: &Target) -> Tree {
        let (seen, context) = (self.seen, self.seen.admission.context);
        let request = Request {
            operation: seen.admission.operation,
            seen: target,
            sent: &seen.target,
            subresource: &context.target.subresource,
            name: seen.name(),
            namespace: seen.namespace(),
            user: context.user.as_author(),
            object: None,
            old: None,
            dry_run: seen.admission.dry_run,
            options: &self.options,
        };
        match review::review("v1", "", &request)["request"].take() {
            Value::Object(request) => request,
            _ => Tree::new(),
        }
    }

    /// The parameters to evaluate a policy with, once with each.
    pub fn params(&self, policy: &Policy, binding: &Binding) -> Result<Params<'a>, String> {
        let context = self.seen.admission.context;
        let Some(kind) = &policy.param_kind else { return Ok(Params::without(context)) };
        let resource = self.param_resource(kind).ok_or_else(|| kind.unknown())?;
        let wanted = binding.params(Some(resource.namespaced), self.seen.namespace())?;
        let found = match wanted {
            Wanted::Nothing => return Ok(Params::without(context)),
            wanted => self.find(&resource, wanted),
        };
        if found.is_empty() {
            binding.accepts_none()?;
        }
        if found.len() > MAX_PARAMS {
            return Err(format!(
                "paramRef selects more than {MAX_PARAMS} objects, which is the most there may be"
            ));
        }
        Ok(Params { found, resource: Some(resource), ..Params::new(context) })
    }

    /// What serves a kind of parameters.
    pub fn param_resource(&self, kind: &ParamKind) -> Option<Arc<Resource>> {
        let context = self.seen.admission.context;
        let api_version = machinery::resource::group_version(&kind.group, &kind.version);
        let found = context.hub.served(&context.space).registry.find_kind(&api_version, &kind.kind).cloned();
        found.filter(|resource| resource.is_stored())
    }

    /// At most one more than there may be.
    fn find(&self, resource: &Resource, wanted: Wanted<'_>) -> VecDeque<Arc<Object>> {
        let context = self.seen.admission.context;
        let collection = Collection::new(&resource.stored_group, &resource.plural);
        match wanted {
            Wanted::Nothing => VecDeque::new(),
            Wanted::One { namespace, name } => {
                let key = Key { collection, item: ItemKey::new(namespace, name) };
                context.space.get(&key).into_iter().collect()
            }
            Wanted::Selected { namespace, selector } => {
                let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
                let listing = context.space.latest(&collection);
                let selected = listing.iter(namespace, None);
                selected
                    .filter(|(_, it)| selector.matches(&it.head.labels))
                    .map(|(_, it)| it.clone())
                    .take(MAX_PARAMS + 1)
                    .collect()
            }
        }
    }
}

/// A policy is evaluated with each of its parameters: there may be as many, and only a few are read at a time.
const MAX_PARAMS: usize = 1000;
/// So many are brought to the version of the policy at once.
const BATCH: usize = 16;

/// What is left of the parameters of a binding.
pub struct Params<'a> {
    context: &'a Context,
    /// To evaluate the policy once, without any.
    without: bool,
    resource: Option<Arc<Resource>>,
    found: VecDeque<Arc<Object>>,
    /// In the version of the policy.
    brought: VecDeque<Arc<Object>>,
}

impl<'a> Params<'a> {
    fn new(context: &'a Context) -> Self {
        Params { context, without: false, resource: None, found: VecDeque::new(), brought: VecDeque::new() }
    }

    fn without(context: &'a Context) -> Self {
        Params { without: true, ..Params::new(context) }
    }

    pub fn is_empty(&self) -> bool {
        !self.without && self.found.is_empty() && self.brought.is_empty()
    }

    /// The next one; the inner `None` is to evaluate the policy without any.
    pub async fn next(&mut self) -> Result<Option<Option<Tree>>, String> {
        if std::mem::take(&mut self.without) {
            return Ok(Some(None));
        }
        let Some(resource) = &self.resource else { return Ok(None) };
        if self.brought.is_empty() {
            let batch: Vec<_> = self.found.drain(..BATCH.min(self.found.len())).collect();
            let brought =
                versions::bring_all(&self.context.hub, self.context.space.id(), resource, batch).await;
            self.brought = brought.map_err(|status| status.message().to_owned())?.into();
        }
        let Some(object) = self.brought.pop_front() else { return Ok(None) };
        let mut tree = object.tree().map_err(|error| Status::internal(error).message().to_owned())?;
        resource.from_storage(&mut tree);
        Ok(Some(Some(tree)))
    }
}

/// A namespace, of its metadata only what expressions may know.
fn namespace(context: &Context, name: &str) -> Result<Tree, Status> {
    const SHOWN: [&str; 12] = [
        "name",
        "generateName",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "finalizers",
    ];
    let object = context.space.get(&Key::new("", "namespaces", "", name));
    let about = About { group: "", resource: "namespaces", name };
    let mut tree = object.ok_or_else(|| Status::not_found(about))?.tree().map_err(Status::internal)?;
    tree.retain(|key, _| matches!(key.as_str(), "metadata" | "spec" | "status"));
    if let Some(metadata) = tree.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| SHOWN.contains(&key.as_str()));
    }
    Ok(tree)
}
