//! Charging the quotas of the namespace.
//!
//! ```text
//!   charge: is there room? ──> Along ──> commit ──> lane of the namespace ──> batch: one commit of
//!   as part of admission                            those who wait            objects and quotas
//! ```
//!
//! What an object uses is written to its quotas in the very commit that writes the object, so that they never say less
//! than is used. Quotas of a namespace are charged by one at a time, so that many do not refuse each other: whoever comes
//! while a charge is being written waits, and all who wait are charged in the next commit, together with their objects.

mod batch;
mod lanes;
mod turns;

use std::sync::{Arc, LazyLock};

use machinery::{
    Draft, Object,
    admission::quota::{Change, Demand, Measure, Quota},
    resource::Tree,
    status::Status,
};
use store::{Change as StoreChange, Collection, Commit, Committed, Expect, ItemKey, Key, WorkspaceId, Write};

use self::{batch::Outcome, lanes::Lanes, turns::Turns};
use super::{Admission, Operation};
use crate::{context::Context, parsed::Parsed, space::Space, write::Along};

pub fn collection() -> &'static Collection {
    static QUOTAS: LazyLock<Collection> = LazyLock::new(|| Collection::new("", "resourcequotas"));
    &QUOTAS
}

/// What quotas say, and who charges them.
#[derive(Default)]
pub struct Quotas {
    known: Parsed<Quota>,
    /// Who may charge the quotas of a namespace, or count them.
    pub turns: Turns,
    lanes: Lanes,
}

impl Quotas {
    /// The quotas of a namespace, in the order of their names.
    pub fn of(&self, space: &Space, namespace: &str) -> Vec<(Arc<Object>, Arc<Quota>)> {
        let listing = space.latest(collection());
        let of_namespace = listing.iter(Some(namespace), None);
        of_namespace
            .filter_map(|(item, object)| Some((object.clone(), self.read(space.id(), item, object)?)))
            .collect()
    }

    /// What the quota `object` says; `None` if it cannot be read.
    pub fn read(&self, workspace: &WorkspaceId, item: &ItemKey, object: &Object) -> Option<Arc<Quota>> {
        self.known.of(workspace, item, object, |object| Some(Quota::read(&object.tree().ok()?)))
    }

    pub fn forget(&self, workspace: &WorkspaceId) {
        self.known.forget(workspace);
    }
}

/// What a write is to be charged with, when it is committed.
pub struct Charge {
    /// The quotas that it was measured for, as they were then.
    seen: Vec<Arc<Quota>>,
    demand: Demand,
    /// What the object is called in a refusal.
    name: String,
}

/// Finds out what a write is to be charged with, or refuses it. It is charged when it is committed.
pub fn charge(admission: &Admission<'_>, object: &Tree, along: &mut Along) -> Result<(), Status> {
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
    let quotas = context.hub.quotas.of(&context.space, &context.target.namespace);
    let seen: Vec<Arc<Quota>> = quotas.into_iter().map(|(_, quota)| quota).collect();
    let name = || admission.called(Some(object)).to_owned();
    let demand = Demand::of(&seen, &measure, &change).map_err(|why| refuse(context, &name(), &why))?;
    if demand.is_nothing() {
        return Ok(());
    }
    // What does not fit now need not wait to be told; what does may find that others were faster.
    demand.charge(&seen).map_err(|why| refuse(context, &name(), &why))?;
    if !admission.dry_run {
        along.charge = Some(Charge { seen, demand, name: name() });
    }
    Ok(())
}

/// Commits a write together with what it is charged. `Ok(None)`: something was not as expected; read again.
pub async fn commit(context: &Context, charge: Charge, commit: Commit) -> Result<Option<Committed>, Status> {
    let name = charge.name.clone();
    match lanes::commit(context, charge, commit).await {
        Outcome::Committed(committed) => Ok(Some(committed)),
        Outcome::Overtaken => Ok(None),
        Outcome::Over(why) => Err(refuse(context, &name, &why)),
        Outcome::Refused(status) => Err(status),
    }
}

fn refuse(context: &Context, name: &str, why: &str) -> Status {
    context.hub.metrics.quota.refused.inc();
    Status::forbidden(context.about(name), why)
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
