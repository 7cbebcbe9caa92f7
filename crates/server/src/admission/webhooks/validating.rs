//! Validating webhooks: those that a request concerns are asked beside each other, a few at once.

use futures_util::{StreamExt, stream};
use machinery::{
    admission::rules::Target,
    resource::Tree,
    status::{Reason, Status},
};

use super::{call::Call, conditions, hooks::Hook};
use crate::admission::{Notes, seen::Seen};

/// So many webhooks are asked at once about one request.
const AT_ONCE: usize = 16;
/// A request that concerns more webhooks is refused: it would not end in time, and costs too much.
const MOST_HOOKS: usize = 1000;

/// The objects of a request in one version.
struct Version {
    target: Target,
    object: Option<Tree>,
    old: Option<Tree>,
}

pub async fn dispatch(
    seen: &Seen<'_>,
    hooks: &[Hook],
    object: Option<&Tree>,
    notes: &mut Notes,
) -> Result<(), Status> {
    let old = seen.admission.old;
    let mut versions: Vec<Version> = Vec::new();
    // Each with the place of its version.
    let mut relevant: Vec<(&Hook, usize)> = Vec::new();
    for (hook, target) in concerned(seen, hooks, object)? {
        let at = match versions.iter().position(|version| version.target == *target) {
            Some(at) => at,
            None => {
                let object = seen.version_of(object, target).await?;
                let old = seen.version_of(old, target).await?;
                versions.push(Version { target: target.clone(), object, old });
                versions.len() - 1
            }
        };
        let version = &versions[at];
        if conditions::want(seen, hook, target, version.object.as_ref(), version.old.as_ref())? {
            relevant.push((hook, at));
        }
    }
    if relevant.len() > MOST_HOOKS {
        let message = format!(
            "the request concerns {} validating webhooks, and no more than {MOST_HOOKS} are asked; narrow their rules",
            relevant.len()
        );
        return Err(Status::new(Reason::Forbidden, message));
    }
    let calls = relevant.iter().enumerate().map(|(index, (hook, at))| {
        let version = &versions[*at];
        let call = Call {
            seen,
            hook,
            target: &version.target,
            object: version.object.as_ref(),
            old: version.old.as_ref(),
            mutating: false,
        };
        ask(call, index)
    });
    let calls: Vec<_> = calls.collect();
    let mut answers: Vec<_> = stream::iter(calls).buffer_unordered(AT_ONCE).collect().await;
    answers.sort_by_key(|(index, ..)| *index);
    let mut refusal = None;
    for (_, mut warnings, outcome) in answers {
        notes.warnings.append(&mut warnings);
        if let Err(status) = outcome {
            refusal.get_or_insert(status);
        }
    }
    refusal.map_or(Ok(()), Err)
}

/// Those whom the request concerns, each with what it wants to see it as.
fn concerned<'s>(
    seen: &'s Seen<'_>,
    hooks: &'s [Hook],
    object: Option<&Tree>,
) -> Result<Vec<(&'s Hook, &'s Target)>, Status> {
    let old = seen.admission.old;
    let (plain, plain_old) = (seen.plain_of(object)?, seen.plain_of(old)?);
    let labels = || seen.namespace_labels();
    let subject = seen.subject(plain.as_ref().or(object), plain_old.as_ref().or(old), &labels);
    let mut found = Vec::new();
    for hook in hooks {
        if let Some(target) = hook.criteria.matches(&subject)? {
            let target = seen.own(target);
            found.push((hook, target));
        }
    }
    Ok(found)
}

async fn ask(call: Call<'_>, index: usize) -> (usize, Vec<String>, Result<(), Status>) {
    let context = call.seen.admission.context;
    let started = context.hub.env.clock.elapsed();
    let mut warnings = Vec::new();
    let outcome = call.ask(&mut warnings).await;
    let took = context.hub.env.clock.elapsed().saturating_sub(started);
    let judged = call.judge(outcome, took, || {
        let key = format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{index}");
        context.audit.annotate(key, call.hook.name.as_str());
    });
    (index, warnings, judged.map(|_| ()))
}
