//! Letting policies change an object.

use std::collections::HashSet;

use machinery::{
    admission::{
        allowance::RequestBudget,
        conditions::Matched,
        error_type,
        evaluate::Inputs,
        mutating::Refusals,
        policy::{Binding, Policy},
        rules::Target,
    },
    resource::Tree,
    status::Status,
};
use serde_json::Value;

use super::{
    super::{Admission, seen::Seen},
    Hook, Invocation, about, is_exempt, select,
    surroundings::{Params, Requests, Surroundings},
};
use crate::managers;

/// A policy, a binding, and the namespace and name of a parameter.
type Invoked = (String, String, String);

/// What is known from the first round of those who change an object, in the second: somebody changed the object after a
/// policy saw it, and the policy wants to see it again.
#[derive(Default)]
pub struct Rounds {
    /// Whether this is the second round.
    second: bool,
    changed: bool,
    previously: HashSet<Invoked>,
    again: HashSet<Invoked>,
    last: Option<Tree>,
    budget: RequestBudget,
}

impl Rounds {
    /// Whether a policy changed the object, so that others are to see it again.
    pub fn wants_again(&self) -> bool {
        self.changed && !self.second
    }

    pub fn begin_again(&mut self) {
        self.second = true;
    }

    fn require_again(&mut self) {
        self.again.extend(self.previously.drain());
    }
}

/// Lets every policy of the workspace that concerns the request change the object.
pub async fn mutate(
    admission: &Admission<'_>,
    object: Option<&mut Tree>,
    rounds: &mut Rounds,
) -> Result<(), Status> {
    let context = admission.context;
    // Of what goes, nothing can be changed.
    let Some(object) = object else { return Ok(()) };
    let Some(set) = context.hub.policies.of(&context.space) else { return Ok(()) };
    if set.mutating.is_empty() || is_exempt(admission) {
        return Ok(());
    }
    let seen = Seen::new(admission);
    let invocations = select(&set.mutating, &seen, Some(object), admission.old)?;
    if invocations.is_empty() {
        return Ok(());
    }
    if rounds.second && rounds.last.as_ref().is_some_and(|last| last != object) {
        rounds.require_again();
    }
    let mut changing = Changing { seen: &seen, refusals: Refusals::default() };
    changing.change(&invocations, object, rounds).await?;
    rounds.last = Some(object.clone());
    changing.refusals.finish(about(&seen, Some(object)))
}

struct Changing<'a> {
    seen: &'a Seen<'a>,
    refusals: Refusals,
}

/// One policy in one binding with one parameter.
struct Turn<'t> {
    policy: &'t Policy,
    binding: &'t Binding,
    target: &'t Target,
    params: Option<&'t Tree>,
    around: &'t Surroundings<'t>,
}

impl Changing<'_> {
    async fn change(
        &mut self,
        invocations: &[Invocation<'_>],
        object: &mut Tree,
        rounds: &mut Rounds,
    ) -> Result<(), Status> {
        let mut surroundings = None;
        for invocation in invocations {
            let (hook, binding, target) = match invocation {
                Invocation::Evaluate { hook, binding, target } => (hook, binding, target),
                Invocation::Misconfigured { policy, binding, why } => {
                    self.refusals.misconfigured(policy, *binding, why);
                    continue;
                }
            };
            let around = match &mut surroundings {
                Some(around) => &*around,
                none => none.insert(Surroundings::of(self.seen)?),
            };
            let Some(mut all) = self.params(hook, binding, around) else { continue };
            while let Some(params) = self.next(&hook.policy, binding, &mut all).await {
                let turn = Turn { policy: &hook.policy, binding, target, params: params.as_ref(), around };
                self.take_turn(&turn, object, rounds).await?;
                // Expressions may take long; others of this thread are to have their turn.
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    fn params<'s>(
        &mut self,
        hook: &Hook,
        binding: &Binding,
        around: &Surroundings<'s>,
    ) -> Option<Params<'s>> {
        let policy = &*hook.policy;
        if let Some(kind) = &policy.param_kind
            && around.param_resource(kind).is_none()
        {
            self.refusals.misconfigured(policy, None, &kind.unknown());
            return None;
        }
        let params = around.params(policy, binding);
        params.map_err(|why| self.refusals.misconfigured(policy, Some(binding), &why)).ok()
    }

    async fn next(
        &mut self,
        policy: &Policy,
        binding: &Binding,
        params: &mut Params<'_>,
    ) -> Option<Option<Tree>> {
        match params.next().await {
            Ok(params) => params,
            Err(why) => {
                self.refusals.misconfigured(policy, Some(binding), &why);
                None
            }
        }
    }

    async fn take_turn(
        &mut self,
        turn: &Turn<'_>,
        object: &mut Tree,
        rounds: &mut Rounds,
    ) -> Result<(), Status> {
        let before = self.seen.in_version(object, turn.target).await?;
        let old = self.seen.version_of(self.seen.admission.old, turn.target).await?;
        let requests = turn.around.requests(turn.target);
        let conditions =
            Inputs { request: requests.conditions(), ..turn.inputs(&requests, &before, old.as_ref()) };
        match turn.policy.concerns(&conditions, &rounds.budget) {
            Matched::Yes => {}
            Matched::No(_) => return Ok(()),
            Matched::Failed(why) => {
                self.refusals.failed(turn.policy, turn.binding, &why);
                return Ok(());
            }
        }
        let invoked = turn.key();
        if rounds.second && !rounds.again.contains(&invoked) {
            return Ok(());
        }
        let mut now = before.clone();
        for mutation in turn.policy.mutations() {
            let inputs = turn.inputs(&requests, &now, old.as_ref());
            let metrics = &self.seen.admission.context.hub.metrics;
            let resource = self.seen.resource_at(turn.target)?;
            let ty = managers::type_of(&resource).ok_or_else(|| Status::internal("no schema"))?;
            match turn.policy.mutate(mutation, &inputs, &now, ty, &rounds.budget) {
                Ok(changed) => {
                    metrics.mutating_policy("no_error");
                    now = self.read_back(changed, turn.target)?;
                }
                Err(why) => {
                    metrics.mutating_policy(error_type(&why));
                    self.refusals.failed(turn.policy, turn.binding, &why);
                }
            }
        }
        if now != before {
            rounds.require_again();
            rounds.changed = true;
            self.seen.take_back(now, turn.target, object).await?;
            self.seen.settle(object)?;
        }
        if turn.policy.is_invoked_again() {
            rounds.previously.insert(invoked);
        }
        Ok(())
    }

    /// What a policy made, as an object of its kind again.
    fn read_back(&self, changed: Tree, target: &Target) -> Result<Tree, Status> {
        let mut tree = self.seen.decode(changed, target).map_err(Status::internal)?;
        self.seen.fill_defaults(&mut tree, target)?;
        Ok(tree)
    }
}

impl<'t> Turn<'t> {
    fn inputs(&self, requests: &'t Requests, object: &'t Tree, old: Option<&'t Tree>) -> Inputs<'t> {
        Inputs {
            object: Some(object),
            old,
            request: &requests.request,
            params: self.params,
            namespace: self.around.namespace.as_ref(),
            authorizer: Some((&self.around.authorizer, &self.around.resource)),
        }
    }

    fn key(&self) -> Invoked {
        let metadata = self.params.and_then(|params| params.get("metadata"));
        let text =
            |key: &str| metadata.and_then(|it| it.get(key)).and_then(Value::as_str).unwrap_or_default();
        let params = format!("{}/{}", text("namespace"), text("name"));
        (self.policy.name.clone(), self.binding.name.clone(), params)
    }
}
