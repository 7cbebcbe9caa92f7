//! Policies in CEL: ValidatingAdmissionPolicies refuse requests, MutatingAdmissionPolicies change objects.
//!
//! ```text
//!   policies, bindings of ──> Set of that workspace     compiled when they have changed since the last request
//!   one workspace               │
//!                               ├─ select: which bindings concern the request ──> Invocations
//!   request ──> Seen ───────────┤
//!                               └─ params, namespace, the object in the version that the policy names ──> evaluate
//! ```
//!
//! The rules are `machinery::admission`'s; here they get what they need to know.

mod authorizer;
mod grants;
mod mutate;
mod set;
mod surroundings;
mod validate;

use machinery::{
    admission::{
        policy::{Binding, Policy},
        rules::Target,
    },
    resource::Tree,
    status::{About, Status},
};
use serde_json::Value;

pub use grants::may_refer;
pub use mutate::{Rounds, mutate};
pub use set::{Hook, Policies};
pub use surroundings::Surroundings;
pub use validate::validate;

use super::{Admission, seen::Seen};

pub const GROUP: &str = "admissionregistration.k8s.io";

/// Policies say nothing about policies, so that a mistake in one can be mended, nor about what is only asked: as upstream,
/// which leaves access reviews to webhooks.
fn is_exempt(admission: &Admission<'_>) -> bool {
    let resource = &admission.context.resource;
    !resource.is_stored() || (resource.group == GROUP && resource.plural.contains("admissionpolic"))
}

/// What is to be done for a request, in order.
enum Invocation<'a> {
    Evaluate {
        hook: &'a Hook,
        binding: &'a Binding,
        target: &'a Target,
    },
    /// A policy, or one of its bindings, cannot be asked: why.
    Misconfigured {
        policy: &'a Policy,
        binding: Option<&'a Binding>,
        why: String,
    },
}

/// Finds the policies and bindings that concern a request. Objects are those that rules and selectors look at.
fn select<'a>(
    hooks: &'a [Hook],
    seen: &'a Seen<'_>,
    object: Option<&Tree>,
    old: Option<&Tree>,
) -> Result<Vec<Invocation<'a>>, Status> {
    let labels = || seen.namespace_labels();
    // A request for a scale is about the scale, not about what is scaled.
    let (scale, old_scale) = (seen.plain_of(object)?, seen.plain_of(old)?);
    let request = seen.subject(scale.as_ref().or(object), old_scale.as_ref().or(old), &labels);
    let mut found = Vec::new();
    for hook in hooks {
        let policy = &*hook.policy;
        let target = match policy.matches(&request) {
            Ok(None) => continue,
            Ok(Some(target)) => seen.own(target),
            Err(status) => {
                let why = status.message().to_owned();
                found.push(Invocation::Misconfigured { policy, binding: None, why });
                continue;
            }
        };
        for binding in &hook.bindings {
            match binding.matches(&request) {
                Ok(false) => {}
                Ok(true) => found.push(Invocation::Evaluate { hook, binding, target }),
                Err(status) => {
                    let why = status.message().to_owned();
                    found.push(Invocation::Misconfigured { policy, binding: Some(binding), why });
                }
            }
        }
    }
    Ok(found)
}

/// What a refusal is about: upstream names an object that has no name yet by what it begins with.
fn about<'a>(seen: &Seen<'a>, object: Option<&'a Tree>) -> About<'a> {
    let text = |key: &str| {
        let metadata = object.and_then(|object| object.get("metadata"));
        metadata.and_then(|metadata| metadata.get(key)).and_then(Value::as_str).filter(|it| !it.is_empty())
    };
    let name = match seen.name() {
        "" => text("name").or_else(|| text("generateName")).unwrap_or("Unknown"),
        name => name,
    };
    seen.admission.context.about(name)
}
