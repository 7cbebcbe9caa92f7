//! Limit ranges of the namespace.

use std::sync::Arc;

use machinery::{Object, admission::limits, resource::Tree, status::Status};
use store::Collection;

use super::{Admission, Operation};

/// Pods when they are made or resized, claims at every change; nothing that is on its way out.
fn concerns(admission: &Admission<'_>) -> bool {
    let about = match admission.operation {
        Operation::Create => admission.is("", "pods") || admission.is("", "persistentvolumeclaims"),
        Operation::Update => {
            admission.is_below("", "pods", "resize") || admission.is("", "persistentvolumeclaims")
        }
        Operation::Delete => false,
    };
    let deleted = |old: &Tree| old.get("metadata").is_some_and(|it| it.get("deletionTimestamp").is_some());
    about && !admission.old.is_some_and(deleted)
}

fn ranges(admission: &Admission<'_>) -> Vec<Arc<Tree>> {
    let context = admission.context;
    let listing = context.space.latest(&Collection::new("", "limitranges"));
    let of_namespace = listing.iter(Some(&context.target.namespace), None);
    let read = |range: &Object| range.tree().ok();
    of_namespace
        .filter_map(|(item, range)| context.hub.limit_ranges.of(context.space.id(), item, range, read))
        .collect()
}

/// Gives pods what they do not ask for.
pub fn set_defaults(admission: &Admission<'_>, object: &mut Tree) {
    if concerns(admission) && admission.context.resource.plural == "pods" {
        for range in ranges(admission) {
            limits::set_defaults(&range, object);
        }
    }
}

pub fn check(admission: &Admission<'_>, object: &Tree) -> Result<(), Status> {
    if !concerns(admission) {
        return Ok(());
    }
    let check = match admission.context.resource.plural.as_str() {
        "pods" => limits::check_pod,
        _ => limits::check_claim,
    };
    for range in ranges(admission) {
        check(&range, object).map_err(|why| admission.forbidden(Some(object), &why))?;
    }
    Ok(())
}
