//! Asking policies that refuse.

use std::sync::Arc;

use machinery::{
    admission::{
        allowance::RequestBudget,
        evaluate::Inputs,
        policy::{Binding, Policy},
        rules::Target,
        validating::{Collected, Decisions, Verdict},
    },
    resource::Tree,
    status::Status,
};

use super::{
    super::{Admission, Notes, seen::Seen},
    Hook, Invocation, about, is_exempt, select,
    surroundings::Surroundings,
};

/// Lets every policy of the workspace that concerns the request say whether it may go on.
pub async fn validate(
    admission: &Admission<'_>,
    object: Option<&Tree>,
    notes: &mut Notes,
) -> Result<(), Status> {
    let context = admission.context;
    let Some(set) = context.hub.policies.of(&context.space) else { return Ok(()) };
    if set.validating.is_empty() || is_exempt(admission) {
        return Ok(());
    }
    let seen = Seen::new(admission);
    let invocations = select(&set.validating, &seen, object, admission.old)?;
    if invocations.is_empty() {
        return Ok(());
    }
    let (verdict, budget) = (Verdict::default(), Arc::default());
    let mut asking = Asking { seen: &seen, object, views: Vec::new(), verdict, budget };
    asking.ask(&invocations).await?;
    let verdict = asking.verdict;
    for checked in &verdict.checked {
        context.hub.metrics.validating_policy(checked.error, checked.action);
    }
    for (key, value) in &verdict.annotations {
        context.audit.annotate(key.clone(), value.as_str());
    }
    let outcome = verdict.finish(about(&seen, object));
    notes.warnings.extend(verdict.warnings);
    outcome.map_err(|status| status.warning(std::mem::take(&mut notes.warnings)))
}

/// The objects of a request in the version that a policy names.
struct View<'a> {
    target: &'a Target,
    object: Option<Tree>,
    old: Option<Tree>,
}

struct Asking<'a> {
    seen: &'a Seen<'a>,
    object: Option<&'a Tree>,
    /// Made when a policy needs them.
    views: Vec<View<'a>>,
    verdict: Verdict,
    budget: Arc<RequestBudget>,
}

impl<'a> Asking<'a> {
    async fn ask(&mut self, invocations: &[Invocation<'a>]) -> Result<(), Status> {
        let mut surroundings = None;
        let mut collected: Option<(&Policy, Collected)> = None;
        for invocation in invocations {
            let (hook, binding, target) = match invocation {
                Invocation::Evaluate { hook, binding, target } => (hook, binding, target),
                Invocation::Misconfigured { policy, binding, why } => {
                    self.verdict.misconfigured(policy, *binding, why);
                    continue;
                }
            };
            let around = match &mut surroundings {
                Some(around) => &*around,
                none => none.insert(Surroundings::of(self.seen)?),
            };
            // Annotations are published when all bindings of a policy were asked.
            if let Some((policy, _)) = &collected
                && policy.name != hook.policy.name
                && let Some((policy, done)) = collected.take()
            {
                self.verdict.collect(policy, done);
            }
            let (_, annotations) = collected.get_or_insert_with(|| (&hook.policy, Collected::default()));
            match self.invoke(hook, binding, target, around).await {
                Ok(said) => self.verdict.add(&hook.policy, binding, said, annotations),
                Err(Misconfigured { policy_wide, why }) => {
                    let binding = (!policy_wide).then_some(*binding);
                    self.verdict.misconfigured(&hook.policy, binding, &why);
                }
            }
            // Others of this thread are to have their turn, also if there were no parameters.
            tokio::task::yield_now().await;
        }
        if let Some((policy, done)) = collected {
            self.verdict.collect(policy, done);
        }
        Ok(())
    }

    async fn invoke(
        &mut self,
        hook: &Hook,
        binding: &Binding,
        target: &'a Target,
        around: &Surroundings<'_>,
    ) -> Result<Vec<Decisions>, Misconfigured> {
        let policy = &*hook.policy;
        if let Some(kind) = &policy.param_kind
            && around.param_resource(kind).is_none()
        {
            return Err(Misconfigured { policy_wide: true, why: kind.unknown() });
        }
        let of_binding = |why: String| Misconfigured { policy_wide: false, why };
        let mut params = around.params(policy, binding).map_err(of_binding)?;
        if params.is_empty() {
            return Ok(Vec::new());
        }
        let budget = self.budget.clone();
        let view = self.view(target).await;
        let view = view.map_err(|status| {
            of_binding(format!("failed to convert object version: {}", status.message()))
        })?;
        let requests = around.requests(target);
        let evaluate = |params: &Option<Tree>| {
            let inputs = Inputs {
                object: view.object.as_ref(),
                old: view.old.as_ref(),
                request: &requests.request,
                params: params.as_ref(),
                namespace: around.namespace.as_ref(),
                authorizer: Some((&around.authorizer, &around.resource)),
            };
            policy.validate(&inputs, requests.conditions(), &budget)
        };
        let mut said = Vec::new();
        while let Some(params) = params.next().await.map_err(of_binding)? {
            said.push(evaluate(&params));
            // Expressions may take long; others of this thread are to have their turn.
            tokio::task::yield_now().await;
        }
        Ok(said)
    }

    async fn view(&mut self, target: &'a Target) -> Result<&View<'a>, Status> {
        if let Some(at) = self.views.iter().position(|view| view.target == target) {
            return Ok(&self.views[at]);
        }
        let object = self.seen.version_of(self.object, target).await?;
        let old = self.seen.version_of(self.seen.admission.old, target).await?;
        self.views.push(View { target, object, old });
        Ok(&self.views[self.views.len() - 1])
    }
}

/// Why a policy, or only this binding of it, could not be asked.
struct Misconfigured {
    policy_wide: bool,
    why: String,
}
