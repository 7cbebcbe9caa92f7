//! Managers seen through the subresource `scale`: of all fields it has one, the number of replicas.

use super::{
    element::PathElement,
    fields::FieldSet,
    managers::{Managed, ManagedFieldsError},
    merge::Owned,
};
use crate::resource::Tree;

const SCALE_VERSION: &str = "autoscaling/v1";

/// Where each version of a kind keeps its replicas; `None` for a version without the subresource.
pub type ReplicasPaths<'a> = &'a [(&'a str, Option<&'a [PathElement]>)];

fn replicas_in_scale() -> [PathElement; 2] {
    [PathElement::field("spec"), PathElement::field("replicas")]
}

fn path_of<'a>(paths: ReplicasPaths<'a>, api_version: &str) -> Option<Option<&'a [PathElement]>> {
    paths.iter().find(|(version, _)| *version == api_version).map(|(_, path)| *path)
}

/// Writes into `scale` those managers of its parent that own the replicas.
pub fn scale_from_parent(
    paths: ReplicasPaths<'_>,
    parent: &Tree,
    scale: &mut Tree,
) -> Result<(), ManagedFieldsError> {
    let mut managed = Managed::decode(parent)?;
    managed.fields.retain(|_, owned| {
        let path = path_of(paths, &owned.api_version).flatten();
        path.is_some_and(|path| owned.set.has(path))
    });
    for owned in managed.fields.values_mut() {
        owned.set = FieldSet::from_iter([replicas_in_scale().as_slice()]);
        owned.api_version = SCALE_VERSION.to_owned();
    }
    managed.encode(scale);
    Ok(())
}

/// Writes into `parent` who owns its replicas after a write to `scale`; all else stays as `before` has it.
/// `api_version` is that of the parent.
pub fn scale_to_parent(
    paths: ReplicasPaths<'_>,
    api_version: &str,
    before: &Tree,
    scale: &Tree,
    parent: &mut Tree,
) -> Result<(), ManagedFieldsError> {
    let before = Managed::decode(before)?;
    let mut scale = Managed::decode(scale)?;
    let mut after = Managed { times: before.times.clone(), ..Default::default() };
    for (manager, owned) in before.fields {
        let Some(path) = path_of(paths, &owned.api_version) else { continue };
        let Some(path) = path.filter(|path| owned.set.has(path)) else {
            after.fields.insert(manager, owned);
            continue;
        };
        if scale.fields.remove(&manager).is_some() {
            after.fields.insert(manager, owned);
            continue;
        }
        // Somebody took the replicas from it.
        let set = owned.set.difference(&FieldSet::from_iter([path]));
        if !set.is_empty() {
            after.fields.insert(manager, Owned { set, ..owned });
        }
    }
    let path = path_of(paths, api_version).flatten().unwrap_or_default();
    for (manager, owned) in scale.fields {
        if owned.set.has(&replicas_in_scale()) {
            let set = FieldSet::from_iter([path]);
            let api_version = api_version.to_owned();
            after.fields.insert(manager, Owned { set, api_version, applied: owned.applied });
        }
    }
    after.encode(parent);
    Ok(())
}
