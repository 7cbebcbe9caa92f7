//! Charging the quotas of the namespace.
//!
//! What an object uses is written to its quotas in the very commit that writes the object, so that they never say less
//! than is used. Whoever charges a quota waits for their turn in the namespace, so that many at once do not refuse each
//! other.

mod turns;

use std::sync::Arc;

use machinery::{
    Draft, Object,
    admission::quota::{self, Change, Measure, Quota},
    resource::Tree,
    status::Status,
};
use store::{Change as StoreChange, Collection, Expect, Key, Write};

pub use turns::{Turn, Turns};

use super::{Admission, Operation};
use crate::{context::Context, write::Along};

pub fn collection() -> Collection {
    Collection::new("", "resourcequotas")
}

/// The quotas of the namespace, and what they say.
fn quotas(context: &Context) -> Vec<(Arc<Object>, Tree, Quota)> {
    let listing = context.space.latest(&collection());
    let of_namespace = listing.iter(Some(&context.target.namespace), None);
    of_namespace
        .filter_map(|(_, object)| {
            let tree = object.tree().ok()?;
            let quota = Quota::read(&tree);
            Some((object.clone(), tree, quota))
        })
        .collect()
}

/// Charges what a write adds, or refuses it.
pub async fn charge(admission: &Admission<'_>, object: &Tree, along: &mut Along) -> Result<(), Status> {
    let context = admission.context;
    let resource = &context.resource;
    if admission.operation == Operation::Delete || !resource.namespaced || !resource.is_stored() {
        return Ok(());
    }
    let Some(measure) = Measure::of(&resource.group, &resource.plural) else {
        return Ok(());
    };
    let change = Change {
        new: object,
        old: admission.old,
        subresource: &context.target.subresource,
        now: context.hub.now().as_second(),
    };
    // Quotas are only read for what can be charged.
    if !measure.minds(&change) {
        return Ok(());
    }
    let quotas_now = quotas(context);
    if !quotas_now.iter().any(|(_, _, quota)| quota.matches(&measure, object)) {
        return Ok(());
    }
    if admission.dry_run {
        return decide(admission, &quotas_now, &measure, &change).map(|_| ());
    }
    let turn = context.hub.quota_turns.take(context).await?;
    let quotas_now = quotas(context);
    let used = decide(admission, &quotas_now, &measure, &change)?;
    for ((object, mut tree, _), used) in quotas_now.into_iter().zip(used) {
        let Some(used) = used else { continue };
        quota::set_status(&mut tree, "used", &used);
        along.writes.push(write(&object, &tree)?);
    }
    along.turns.push(turn);
    Ok(())
}

/// Puts `tree` in the place of the quota `object`, if that has not changed.
pub fn write(object: &Object, tree: &Tree) -> Result<Write, Status> {
    let draft = Draft::encode(tree).map_err(Status::internal)?;
    Ok(Write {
        key: Key::new("", "resourcequotas", &object.head.namespace, &object.head.name),
        expect: Expect::At(object.revision),
        change: StoreChange::Put { draft, expires: None },
    })
}

fn decide(
    admission: &Admission<'_>,
    quotas: &[(Arc<Object>, Tree, Quota)],
    measure: &Measure,
    change: &Change<'_>,
) -> Result<Vec<Option<machinery::admission::amounts::Amounts>>, Status> {
    let quotas: Vec<Quota> = quotas.iter().map(|(_, _, quota)| quota.clone()).collect();
    quota::charge(&quotas, measure, change).map_err(|why| {
        admission.context.hub.metrics.quota_refused.inc();
        admission.forbidden(Some(change.new), &why)
    })
}
