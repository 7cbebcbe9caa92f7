//! `matchConditions`: whether a policy or a webhook is for a request, by expressions.

use std::rc::Rc;

use super::{
    allowance::{Allowance, CONDITIONS_BUDGET, RequestBudget},
    compile::{Compiler, Role},
    evaluate::{Expression, Inputs, Scope, Variable},
    policy::Failure,
};
use crate::{
    resource::Tree,
    validation::parts::{items, text},
};

/// All conditions of one policy or webhook.
pub struct Conditions {
    all: Vec<(String, Expression)>,
    failure: Failure,
}

/// What the conditions say of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matched {
    Yes,
    /// By the condition of this name; empty if it could not be evaluated and that is to be ignored.
    No(String),
    /// Whether it is concerned cannot be said, and the request is to fail for it.
    Failed(String),
}

impl Conditions {
    /// Of a webhook.
    pub fn of_webhook(webhook: &Tree) -> Self {
        match items(webhook, "matchConditions").next() {
            Some(_) => Conditions::read(&Compiler::new(false), webhook),
            None => Conditions { all: Vec::new(), failure: Failure::Fail },
        }
    }

    pub(super) fn read(compiler: &Compiler, holder: &Tree) -> Self {
        let condition = |it: &Tree| {
            let expression = Expression::compile(compiler, text(it, "expression"), Role::MatchCondition);
            (text(it, "name").to_owned(), expression)
        };
        let all = items(holder, "matchConditions").map(|(_, it)| condition(it)).collect();
        Conditions { all, failure: Failure::read(holder) }
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// As [`Conditions::matches_within`], for which there is nothing but the conditions to pay.
    pub fn matches(&self, inputs: &Inputs<'_>, variables: &[Variable]) -> Matched {
        self.matches_within(inputs, variables, &RequestBudget::default())
    }

    /// One condition that is false settles it, whatever the others are.
    pub fn matches_within(
        &self,
        inputs: &Inputs<'_>,
        variables: &[Variable],
        budget: &RequestBudget,
    ) -> Matched {
        if self.all.is_empty() {
            return Matched::Yes;
        }
        let failed = |why: String| match self.failure {
            Failure::Fail => Matched::Failed(why),
            Failure::Ignore => Matched::No(String::new()),
        };
        let allowance = Rc::new(Allowance::new(CONDITIONS_BUDGET, budget));
        // Upstream does not tell them about the namespace.
        let scope = Scope::new(&Inputs { namespace: None, ..*inputs }, variables, &allowance);
        let mut outcomes = Vec::with_capacity(self.all.len());
        for (name, expression) in &self.all {
            match scope.evaluate(expression) {
                Ok(outcome) => outcomes.push((name, outcome.map(|value| value.as_bool()))),
                Err(why) => return failed(why),
            }
        }
        if let Some((name, _)) = outcomes.iter().find(|(_, outcome)| *outcome == Ok(Some(false))) {
            return Matched::No((*name).clone());
        }
        let mut errors: Vec<String> = Vec::new();
        for error in outcomes.into_iter().filter_map(|(_, outcome)| outcome.err()) {
            if !errors.contains(&error) {
                errors.push(error);
            }
        }
        match errors.as_slice() {
            [] => Matched::Yes,
            [only] => failed(only.clone()),
            several => failed(format!("[{}]", several.join(", "))),
        }
    }
}
