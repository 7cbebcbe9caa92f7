//! Mutating webhooks: asked one after the other, each sees what those before it made of the object.

use std::{collections::HashSet, mem};

use machinery::{
    admission::{review, rules::Target},
    apply, gotext, patch,
    resource::Tree,
    status::Status,
};
use serde_json::{Value, json};

use super::{
    call::{Call, Failure},
    conditions,
    hooks::Hook,
};
use crate::admission::{Notes, seen::Seen};

/// What is remembered of webhooks between the two rounds in which a request can be changed.
#[derive(Default)]
pub struct Rounds {
    /// This is the second.
    again: bool,
    /// Something was changed, so there is to be a second.
    wanted: bool,
    /// What webhooks left of the object in the first.
    left: Option<Tree>,
    /// Asked already, and want to be asked again if something changes after them.
    asked: HashSet<String>,
    /// To be asked again.
    recalled: HashSet<String>,
}

impl Rounds {
    /// Whether something was changed that others are to see again.
    pub fn wants_again(&self) -> bool {
        self.wanted && !self.again
    }

    pub fn begin_again(&mut self) {
        self.again = true;
    }

    fn recall(&mut self) {
        self.recalled.extend(self.asked.drain());
    }

    fn number(&self) -> usize {
        usize::from(self.again)
    }
}

/// The objects of a request in the version that the last webhook wanted.
struct Version {
    target: Target,
    object: Option<Tree>,
    old: Option<Tree>,
    /// It was changed since it was converted.
    is_changed: bool,
}

pub async fn dispatch(
    seen: &Seen<'_>,
    hooks: &[Hook],
    mut object: Option<&mut Tree>,
    notes: &mut Notes,
    rounds: &mut Rounds,
) -> Result<(), Status> {
    if rounds.again && rounds.left.as_ref() != object.as_deref() {
        rounds.recall();
    }
    let managers = object.as_deref().and_then(managed_fields);
    let mut version: Option<Version> = None;
    for (index, hook) in hooks.iter().enumerate() {
        let Some(target) = concerned(seen, hook, version.as_ref(), object.as_deref())? else { continue };
        if rounds.again && !rounds.recalled.contains(&hook.id) {
            continue;
        }
        let current = bring(seen, version.take(), target, object.as_deref_mut()).await?;
        let current = version.insert(current);
        let (object, old) = (current.object.as_ref(), current.old.as_ref());
        if !conditions::want(seen, hook, &current.target, object, old)? {
            continue;
        }
        let changed = ask(seen, hook, current, rounds.number(), index, notes).await?;
        if changed {
            rounds.recall();
            rounds.wanted = true;
        }
        if hook.again_if_needed {
            rounds.asked.insert(hook.id.clone());
        }
    }
    if let (Some(version), Some(object)) = (version, object.as_deref_mut()) {
        finish(seen, version, object).await?;
        seen.settle(object)?;
        keep_managers(object, managers, notes);
    }
    // Only those who may be asked again care.
    rounds.left = object.as_deref().filter(|_| !rounds.asked.is_empty()).cloned();
    Ok(())
}

/// As what a webhook wants to see this request, if at all.
fn concerned(
    seen: &Seen<'_>,
    hook: &Hook,
    version: Option<&Version>,
    object: Option<&Tree>,
) -> Result<Option<Target>, Status> {
    let old = seen.admission.old;
    let (plain, plain_old) = (seen.plain_of(object)?, seen.plain_of(old)?);
    let object = version.and_then(|version| version.object.as_ref()).or(plain.as_ref()).or(object);
    let labels = || seen.namespace_labels();
    let subject = seen.subject(object, plain_old.as_ref().or(old), &labels);
    Ok(hook.criteria.matches(&subject)?.cloned())
}

/// The objects in the version of `target`; what was changed in another is taken back first.
async fn bring(
    seen: &Seen<'_>,
    version: Option<Version>,
    target: Target,
    object: Option<&mut Tree>,
) -> Result<Version, Status> {
    let object = match (version, object) {
        (Some(version), _) if version.target == target => return Ok(version),
        (Some(version), Some(object)) => {
            finish(seen, version, object).await?;
            Some(object)
        }
        (_, object) => object,
    };
    Ok(Version {
        object: seen.version_of(object.as_deref(), &target).await?,
        old: seen.version_of(seen.admission.old, &target).await?,
        target,
        is_changed: false,
    })
}

async fn finish(seen: &Seen<'_>, version: Version, object: &mut Tree) -> Result<(), Status> {
    match version.object.filter(|_| version.is_changed) {
        Some(changed) => seen.take_back(changed, &version.target, object).await,
        None => Ok(()),
    }
}

/// Asks one webhook and does what it wants; true if that changed something.
async fn ask(
    seen: &Seen<'_>,
    hook: &Hook,
    version: &mut Version,
    round: usize,
    index: usize,
    notes: &mut Notes,
) -> Result<bool, Status> {
    let context = seen.admission.context;
    let started = context.hub.env.clock.elapsed();
    let Version { target, object, old, is_changed } = version;
    let call = Call { seen, hook, target, object: object.as_ref(), old: old.as_ref(), mutating: true };
    let outcome = match call.ask(&mut notes.warnings).await {
        Ok(answer) => patched(&call, &answer),
        Err(failure) => Err(failure),
    };
    let took = context.hub.env.clock.elapsed().saturating_sub(started);
    let mutated = matches!(&outcome, Ok(Some(patched)) if patched.changed);
    let key = format!("round_{round}_index_{index}");
    context.audit.annotate_with(|| {
        let value = json!({"configuration": hook.configuration, "webhook": hook.name, "mutated": mutated});
        (format!("mutation.webhook.admission.k8s.io/{key}"), value.to_string())
    });
    let judged = call.judge(outcome, took, || {
        let key = format!("failed-open.mutation.webhook.admission.k8s.io/{key}");
        context.audit.annotate(key, hook.name.as_str());
    })?;
    let Some(Some(patched)) = judged else { return Ok(false) };
    context.audit.annotate_beside_bodies_with(|| {
        let value = json!({
            "configuration": hook.configuration, "webhook": hook.name,
            "patch": patched.patch, "patchType": "JSONPatch",
        });
        (format!("patch.webhook.admission.k8s.io/{key}"), value.to_string())
    });
    *object = Some(patched.object);
    *is_changed = true;
    Ok(patched.changed)
}

/// What a patch made of an object.
struct Patched {
    object: Tree,
    changed: bool,
    patch: Value,
}

/// Does what a webhook wants; `None` if it wants nothing.
fn patched(call: &Call<'_>, answer: &review::Answer) -> Result<Option<Patched>, Failure> {
    let name = gotext::quote(&call.hook.name);
    if answer.patch.is_empty() {
        return Ok(None);
    }
    let operations = review::operations(&answer.patch).map_err(|why| {
        Failure::calling(format!("received undecodable patch in webhook response: {why}"), 503)
    })?;
    if operations == 0 {
        return Ok(None);
    }
    let internal = |why: String| Failure::Internal(Status::internal(why));
    let Some(object) = call.object else {
        let why = "attempted to modify the object, which is not supported for this operation";
        return Err(internal(format!("admission webhook {name} {why}")));
    };
    if answer.patch_type != "JSONPatch" {
        let kind = gotext::quote(&answer.patch_type);
        return Err(Failure::calling(format!("unsupported patch type {kind}"), 400));
    }
    let mut document = Value::Object(object.clone());
    patch::json_patch(&mut document, &answer.patch).map_err(|error| internal(error.to_string()))?;
    let Value::Object(made) = document else { return Err(internal("the patch leaves no object".into())) };
    let mut made = call.seen.decode(made, call.target).map_err(internal)?;
    let changed = made != *object;
    call.seen.fill_defaults(&mut made, call.target).map_err(Failure::Internal)?;
    let patch = serde_json::from_slice(&answer.patch).unwrap_or_default();
    Ok(Some(Patched { object: made, changed, patch }))
}

fn managed_fields(tree: &Tree) -> Option<Value> {
    tree.get("metadata")?.get("managedFields").cloned()
}

/// Who owns what is not a webhook's to spoil: what cannot be read is set back to what it was.
fn keep_managers(object: &mut Tree, before: Option<Value>, notes: &mut Notes) {
    let Err(error) = apply::Managed::decode(object) else { return };
    notes.warnings.push(format!(
        ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated \
         mutating admission controller; please fix your requests: {error}"
    ));
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    match before {
        Some(before) => drop(mem::replace(&mut metadata["managedFields"], before)),
        None => drop(metadata.remove("managedFields")),
    }
}
