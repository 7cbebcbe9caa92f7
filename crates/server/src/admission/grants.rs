//! Nobody gives away what they do not have.

use machinery::{resource::Tree, status::Status};
use serde_json::Value;

use crate::{
    context::Context,
    rbac::{self, Attributes, Rule},
    user::MASTERS,
};

/// To put what is not there, by whatever verb, is to create it, and needs the right to.
pub fn may_create(context: &Context) -> Result<(), Status> {
    let name = context.target.name.as_str();
    let attributes = Attributes::Resource {
        verb: "create",
        group: &context.resource.group,
        resource: &context.resource.plural,
        subresource: "",
        namespace: &context.target.namespace,
        name,
    };
    match context.hub.authorizer.allows(&context.space, &context.user, &attributes) {
        true => Ok(()),
        false => Err(Status::forbidden(context.about(name), &attributes.refusal(&context.user))),
    }
}

/// Nobody may give away rights they do not have: a role's rules, or those a binding confers, must be held by who
/// writes them, unless they may `escalate` or `bind`. Says nothing of other kinds.
pub fn check(context: &Context, name: &str, new: &Tree, old: Option<&Tree>) -> Result<(), Status> {
    if context.resource.group != rbac::GROUP || context.user.in_group(MASTERS) {
        return Ok(());
    }
    // A label can be a grant too, where roles are aggregated; only what garbage collection changes is no grant.
    if old.is_some_and(|old| without_bookkeeping(old) == without_bookkeeping(new)) {
        return Ok(());
    }
    let namespace = context.target.namespace.as_str();
    let may = |verb, resource, name| {
        let attributes =
            Attributes::Resource { verb, group: rbac::GROUP, resource, subresource: "", namespace, name };
        context.hub.authorizer.allows(&context.space, &context.user, &attributes)
    };
    let wanted = if context.resource.plural.ends_with("bindings") {
        let text = |key: &str| {
            new.get("roleRef").and_then(|role| role.get(key)).and_then(Value::as_str).unwrap_or_default()
        };
        let (resource, role) = (if text("kind") == "Role" { "roles" } else { "clusterroles" }, text("name"));
        if may("bind", resource, role) {
            return Ok(());
        }
        let rules = rbac::rules_of_role(&context.space, resource, namespace, role);
        rules.ok_or_else(|| Status::not_found(context.about(role)))?
    } else {
        if may("escalate", &context.resource.plural, name) {
            return Ok(());
        }
        let mut rules = rbac::rules_of(new);
        if collects(new) || old.is_some_and(collects) {
            // What is collected is not known, so it may be anything.
            rules.extend(Rule::everything());
        }
        rules
    };
    let held = context.hub.authorizer.policy(&context.space).rules_for(&context.user, namespace);
    match rbac::missing(&held, &wanted) {
        None => Ok(()),
        Some(missing) => {
            let groups: Vec<String> = context.user.groups.iter().map(|group| format!("{group:?}")).collect();
            let why = format!(
                "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{missing}",
                context.user.name,
                groups.join(" ")
            );
            Err(Status::forbidden(context.about(name), &why))
        }
    }
}

fn collects(role: &Tree) -> bool {
    let selectors = role.get("aggregationRule").and_then(|rule| rule.get("clusterRoleSelectors"));
    selectors.and_then(Value::as_array).is_some_and(|selectors| !selectors.is_empty())
}

/// An object without what garbage collection and the server keep in its metadata.
fn without_bookkeeping(tree: &Tree) -> Tree {
    let mut tree = tree.clone();
    if let Some(metadata) = tree.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
            metadata.remove(key);
        }
    }
    tree
}
