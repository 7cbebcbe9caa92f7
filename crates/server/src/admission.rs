//! What must hold around an object for it to be written, and what is added to it on the way.
//!
//! ```text
//!   decode ──> track managers ──> mutate ──> prepare, default, validate ──> validate ──> commit
//!                                 │                                         │
//!                                 namespace, limits, accounts, classes,     virtual nodes, pod security, policies,
//!                                 policies, webhooks                        webhooks, quota
//! ```
//!
//! Every step sees the same [`Admission`]. Steps of one kind look at that first, so that a request pays only for what
//! concerns it. What the hub does by itself, in edits of status and finalizers, is not asked about; its deletions are.

pub mod certificates;
mod classes;
mod grants;
mod limits;
mod namespaces;
pub mod pod_security;
mod pods;
pub mod policies;
mod priorities;
pub mod quota;
pub mod seen;
mod service_accounts;
mod virtual_nodes;
pub mod webhooks;

use http::Response;
use machinery::{resource::Tree, status::Status};

use crate::{
    body::{self, Body},
    context::Context,
    write::Along,
};

pub use grants::{check as check_grants, may_create};
pub use machinery::admission::rules::Operation;

/// One write, as those see it who may change or refuse it.
///
/// Objects are in the stored spelling if they are built in, and in the version of the request if they are custom;
/// [`Admission::shown`] gives what the client would see. Below a subresource with a kind of its own (a binding, an
/// eviction, a scale) the object is of that kind.
pub struct Admission<'a> {
    pub context: &'a Context,
    pub operation: Operation,
    /// Empty while it is still to be generated.
    pub name: &'a str,
    /// What is there now.
    pub old: Option<&'a Tree>,
    /// Nothing will be kept of it: nobody who is asked may have side effects.
    pub dry_run: bool,
    /// `DeleteOptions` as they were sent.
    pub delete_options: Option<&'a Tree>,
}

/// What admission leaves beside the object.
#[derive(Default)]
pub struct Notes {
    /// For the author, though it was accepted.
    pub warnings: Vec<String>,
}

impl Notes {
    /// Adds the warnings to an answer, each once.
    pub fn tell(&self, response: &mut Response<Body>) {
        body::warn_once(response, &self.warnings);
    }
}

impl<'a> Admission<'a> {
    pub fn new(
        context: &'a Context,
        operation: Operation,
        name: &'a str,
        old: Option<&'a Tree>,
        dry_run: bool,
    ) -> Self {
        Admission { context, operation, name, old, dry_run, delete_options: None }
    }

    /// Whether it is about this stored kind itself, not about something below it.
    pub fn is(&self, group: &str, resource: &str) -> bool {
        self.is_below(group, resource, "")
    }

    pub fn is_below(&self, group: &str, resource: &str, subresource: &str) -> bool {
        let kind = &self.context.resource;
        kind.stored_group == group
            && kind.plural == resource
            && self.context.target.subresource == subresource
    }

    pub fn is_namespace(&self) -> bool {
        let kind = &self.context.resource;
        kind.stored_group.is_empty() && kind.plural == "namespaces"
    }

    /// What `object`, which may have no name yet, is called in a refusal.
    pub fn called<'b>(&'b self, object: Option<&'b Tree>) -> &'b str {
        let metadata = object.and_then(|object| object.get("metadata"));
        let said = |key: &str| metadata?.get(key)?.as_str().filter(|text| !text.is_empty());
        let named = Some(self.name).filter(|name| !name.is_empty());
        named.or_else(|| said("name")).or_else(|| said("generateName")).unwrap_or("Unknown")
    }

    /// The refusal of `object`, which may have no name yet.
    pub fn forbidden(&self, object: Option<&Tree>, why: &str) -> Status {
        Status::forbidden(self.context.about(self.called(object)), why)
    }

    /// An object as the client of this request sees it.
    pub fn shown(&self, tree: &Tree) -> Tree {
        let mut tree = tree.clone();
        self.context.resource.from_storage(&mut tree);
        tree
    }
}

/// Lets everybody change `object` who may, or refuse it. Of an object that goes, nothing can be changed.
pub async fn mutate(
    admission: &Admission<'_>,
    mut object: Option<&mut Tree>,
    notes: &mut Notes,
) -> Result<(), Status> {
    let mut rounds = Rounds::default();
    mutate_once(admission, object.as_deref_mut(), notes, &mut rounds).await?;
    match rounds.begin_again() {
        // What one changed may concern those who were asked before it.
        true => mutate_once(admission, object, notes, &mut rounds).await,
        false => Ok(()),
    }
}

/// What is remembered between the two rounds in which an object can be changed.
#[derive(Default)]
struct Rounds {
    policies: policies::Rounds,
    webhooks: webhooks::Rounds,
}

impl Rounds {
    /// Whether there is to be a second round; if so, it is now.
    fn begin_again(&mut self) -> bool {
        let wanted = self.policies.wants_again() || self.webhooks.wants_again();
        if wanted {
            self.policies.begin_again();
            self.webhooks.begin_again();
        }
        wanted
    }
}

async fn mutate_once(
    admission: &Admission<'_>,
    mut object: Option<&mut Tree>,
    notes: &mut Notes,
    rounds: &mut Rounds,
) -> Result<(), Status> {
    if admission.operation == Operation::Create {
        namespaces::of_new(admission.context, admission.name)?;
    }
    if let Some(object) = object.as_deref_mut() {
        limits::set_defaults(admission, object);
        service_accounts::mutate(admission, object).await?;
        classes::taint_new_node(admission, object);
        priorities::set(admission, object)?;
        pods::tolerate_for_a_while(admission, object);
        classes::set_storage_class(admission, object);
        classes::protect(admission, object);
        pods::set_runtime(admission, object)?;
        classes::set_ingress_class(admission, object);
        pods::set_topology(admission, object);
    }
    policies::mutate(admission, object.as_deref_mut(), &mut rounds.policies).await?;
    webhooks::mutate(admission, object, notes, &mut rounds.webhooks).await
}

/// Asks everybody who may refuse. `object` is what would be stored; nothing if it goes. What must hold or be written
/// together with it for the answer to be right is added to `along`.
pub async fn validate(
    admission: &Admission<'_>,
    object: Option<&Tree>,
    along: &mut Along,
    notes: &mut Notes,
) -> Result<(), Status> {
    let context = admission.context;
    policies::may_refer(admission, object)?;
    virtual_nodes::check(admission, object)?;
    if admission.operation == Operation::Create {
        // Again, now as a guard: it must hold at the very point of the commit.
        along.guards.extend(namespaces::of_new(context, admission.name)?);
    }
    if let Some(object) = object {
        limits::check(admission, object)?;
        service_accounts::validate(admission, object).await?;
        pod_security::check(admission, object, notes).await?;
        priorities::check(admission, object)?;
        classes::check_growth(admission, object)?;
        pods::check_runtime(admission, object)?;
        pods::check_resize(admission, object)?;
        certificates::admit(context, admission.name, object, admission.old)?;
    }
    policies::validate(admission, object, notes).await?;
    webhooks::validate(admission, object, notes).await?;
    if let Some(object) = object {
        // The last to be asked: what is charged is used.
        quota::charge(admission, object, along)?;
    }
    Ok(())
}

/// Asks those whom the workspace has registered about a write that goes on to a member, whose own rules decide the rest.
pub async fn ask(admission: &Admission<'_>, object: Option<&Tree>, notes: &mut Notes) -> Result<(), Status> {
    policies::validate(admission, object, notes).await?;
    webhooks::validate(admission, object, notes).await
}
