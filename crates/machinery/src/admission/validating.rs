//! Policies that refuse requests: what each of their expressions says, and what follows for the request.

use std::{collections::BTreeMap, rc::Rc};

use cel::Value;
use serde_json::json;

use super::{
    allowance::{Allowance, BUDGET, RequestBudget},
    conditions::Matched,
    evaluate::{Inputs, Scope},
    policy::{Action, Annotation, Binding, Does, Failure, Policy, Validation},
};
use crate::{
    gotext,
    resource::Tree,
    status::{About, Reason, Status},
};

const MAX_MESSAGE_BYTES: usize = 5 * 1024;
const MAX_ANNOTATION_BYTES: usize = 10 * 1024;
const FAILURE_ANNOTATION: &str = "validation.policy.admission.k8s.io/validation_failure";

/// What one expression of a policy says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Admit,
    /// It is false.
    Deny {
        message: String,
        reason: Reason,
    },
    /// It could not be evaluated; whether that denies is the policy's to say.
    Error {
        message: String,
        denies: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Published {
    Value(String, String),
    Error(String),
}

/// What a policy says with one set of parameters.
#[derive(Clone, Debug, Default)]
pub struct Decisions {
    decisions: Vec<Decision>,
    annotations: Vec<Published>,
}

impl Policy {
    /// `conditions` is the request as match conditions see it: with the resource that was asked for, not the equivalent
    /// one.
    pub fn validate(&self, inputs: &Inputs<'_>, conditions: &Tree, budget: &RequestBudget) -> Decisions {
        let Does::Validate { validations, annotations } = &self.does else { return Decisions::default() };
        let failed =
            |message: String| Decisions { decisions: vec![self.error(message)], ..Decisions::default() };
        let seen = Inputs { request: conditions, ..*inputs };
        match self.conditions.matches_within(&seen, &self.variables, budget) {
            Matched::Yes => {}
            Matched::No(_) => return Decisions::default(),
            Matched::Failed(why) => return failed(why),
        }
        let decisions = match self.decide(validations, inputs, budget) {
            Ok(decisions) => decisions,
            Err(why) => return failed(why),
        };
        match self.annotate(annotations, inputs, budget) {
            Ok(annotations) => Decisions { decisions, annotations },
            Err(why) => failed(why),
        }
    }

    fn error(&self, message: String) -> Decision {
        Decision::Error { message, denies: self.failure == Failure::Fail }
    }

    fn decide(
        &self,
        validations: &[Validation],
        inputs: &Inputs<'_>,
        budget: &RequestBudget,
    ) -> Result<Vec<Decision>, String> {
        let allowance = Rc::new(Allowance::new(BUDGET, budget));
        let scope = Scope::new(inputs, &self.variables, &allowance);
        let mut outcomes = Vec::with_capacity(validations.len());
        for validation in validations {
            outcomes.push(scope.evaluate(&validation.expression)?);
        }
        let messages = self.messages(validations, inputs, &allowance);
        let mut decisions = Vec::with_capacity(validations.len());
        for (at, (validation, outcome)) in validations.iter().zip(outcomes).enumerate() {
            decisions.push(match (outcome, &messages) {
                (Err(why), _) => self.error(why),
                (Ok(_), Err(why)) => self.error(format!("failed messageExpression: {why}")),
                (Ok(Value::Bool(true)), _) => Decision::Admit,
                (Ok(_), Ok(messages)) => {
                    let computed = messages.get(at).and_then(Option::as_deref);
                    Decision::Deny { message: validation.told(computed), reason: validation.reason }
                }
            });
        }
        Ok(decisions)
    }

    /// The messages that expressions give, where they give any. They may not ask the authorizer.
    fn messages<'a>(
        &'a self,
        validations: &[Validation],
        inputs: &Inputs<'a>,
        allowance: &Rc<Allowance<'a>>,
    ) -> Result<Vec<Option<String>>, String> {
        if validations.iter().all(|validation| validation.message_expression.is_none()) {
            return Ok(Vec::new());
        }
        let scope = Scope::new(&Inputs { authorizer: None, ..*inputs }, &self.variables, allowance);
        let mut messages = Vec::with_capacity(validations.len());
        for validation in validations {
            let Some(expression) = &validation.message_expression else {
                messages.push(None);
                continue;
            };
            let outcome = scope.evaluate(expression)?;
            messages.push(outcome.ok().and_then(|value| value.as_str().map(str::to_owned)));
        }
        Ok(messages)
    }

    fn annotate(
        &self,
        annotations: &[Annotation],
        inputs: &Inputs<'_>,
        budget: &RequestBudget,
    ) -> Result<Vec<Published>, String> {
        if annotations.is_empty() {
            return Ok(Vec::new());
        }
        let allowance = Rc::new(Allowance::new(BUDGET, budget));
        let scope = Scope::new(&Inputs { authorizer: None, ..*inputs }, &self.variables, &allowance);
        let mut published = Vec::new();
        for Annotation { key, value } in annotations {
            match scope.evaluate(value)? {
                Ok(Value::Null) => {}
                Ok(Value::String(text)) => match text.trim() {
                    "" => {}
                    text => published.push(Published::Value(key.clone(), text.to_owned())),
                },
                Ok(other) => published.push(Published::Error(format!(
                    "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string \
                     or null.",
                    value.text,
                    other.type_name()
                ))),
                Err(why) if self.failure == Failure::Fail => published.push(Published::Error(why)),
                Err(_) => {}
            }
        }
        Ok(published)
    }
}

impl Validation {
    /// What is said when it fails: what was computed, if that can be said in a line, or what was written.
    fn told(&self, computed: Option<&str>) -> String {
        let computed = computed.unwrap_or_default().trim();
        if !computed.is_empty() && computed.len() <= MAX_MESSAGE_BYTES && !computed.contains('\n') {
            return computed.to_owned();
        }
        match self.message.trim() {
            "" => format!("failed expression: {}", self.expression.text.trim()),
            message => message.to_owned(),
        }
    }
}

/// One use of a policy, as it is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    pub policy: String,
    pub binding: String,
    pub error: &'static str,
    pub action: &'static str,
}

/// What all policies together say about a request.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// The first refusal, which is the one that is told: its message, and its reason if it has one.
    denied: Option<(String, Reason)>,
    pub warnings: Vec<String>,
    /// For the audit log.
    pub annotations: Vec<(String, String)>,
    pub checked: Vec<Checked>,
}

impl Verdict {
    /// A policy cannot be evaluated, in whatever binding or in this one.
    pub fn misconfigured(&mut self, policy: &Policy, binding: Option<&Binding>, why: &str) {
        if policy.failure == Failure::Ignore {
            return;
        }
        let what = if binding.is_some() { "binding" } else { "policy" };
        self.deny(policy, binding, &format!("failed to configure {what}: {why}"), Reason::Invalid);
    }

    fn deny(&mut self, policy: &Policy, binding: Option<&Binding>, message: &str, reason: Reason) {
        if self.denied.is_some() {
            return;
        }
        let policy = &policy.name;
        let with = binding.map_or_else(String::new, |binding| format!(" with binding '{}'", binding.name));
        let message = format!("ValidatingAdmissionPolicy '{policy}'{with} denied request: {message}");
        self.denied = Some((message, reason));
    }

    /// What a policy says in one binding, with each of the parameters.
    pub fn add(
        &mut self,
        policy: &Policy,
        binding: &Binding,
        said: Vec<Decisions>,
        collected: &mut Collected,
    ) {
        for Decisions { decisions, annotations } in said {
            for (at, decision) in decisions.iter().enumerate() {
                self.act(policy, binding, at, decision);
            }
            for annotation in annotations {
                match annotation {
                    Published::Value(key, value) => collected.add(key, value),
                    Published::Error(why) => {
                        self.deny(policy, Some(binding), &why, Reason::Invalid);
                        self.count(policy, binding, &why, "deny");
                    }
                }
            }
        }
    }

    fn act(&mut self, policy: &Policy, binding: &Binding, at: usize, decision: &Decision) {
        let (message, reason) = match decision {
            Decision::Admit => return,
            Decision::Error { message, denies: false } => {
                return self.count(policy, binding, message, "allow");
            }
            Decision::Error { message, denies: true } => (message, Reason::Invalid),
            Decision::Deny { message, reason } => (message, *reason),
        };
        for action in &binding.actions {
            let counted = match action {
                Action::Deny => {
                    self.deny(policy, Some(binding), message, reason);
                    "deny"
                }
                Action::Audit => {
                    self.publish(FAILURE_ANNOTATION.to_owned(), failure_value(binding, at, message));
                    "audit"
                }
                Action::Warn => {
                    let (policy, binding) = (&policy.name, &binding.name);
                    let warning = format!(
                        "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {message}"
                    );
                    self.warnings.push(warning);
                    "warn"
                }
            };
            self.count(policy, binding, message, counted);
        }
    }

    /// Annotations are never overwritten.
    fn publish(&mut self, key: String, value: String) {
        if !self.annotations.iter().any(|(known, _)| *known == key) {
            self.annotations.push((key, value));
        }
    }

    /// Annotations of one policy, when all its bindings were asked.
    pub fn collect(&mut self, policy: &Policy, collected: Collected) {
        for (key, values) in collected.0 {
            self.publish(format!("{}/{key}", policy.name), values.join(", "));
        }
    }

    fn count(&mut self, policy: &Policy, binding: &Binding, message: &str, action: &'static str) {
        let error = super::error_type(message);
        let (policy, binding) = (policy.name.clone(), binding.name.clone());
        self.checked.push(Checked { policy, binding, error, action });
    }

    pub fn finish(&self, about: About<'_>) -> Result<(), Status> {
        let Some((message, reason)) = &self.denied else { return Ok(()) };
        let told = Status::forbidden(about, message);
        Err(Status::new(*reason, told.message()).about(about).cause("", message, ""))
    }
}

/// The audit annotations of one policy: bindings may give several values for one key.
#[derive(Clone, Debug, Default)]
pub struct Collected(BTreeMap<String, Vec<String>>);

impl Collected {
    fn add(&mut self, key: String, mut value: String) {
        if value.len() > MAX_ANNOTATION_BYTES {
            let end = (0..=MAX_ANNOTATION_BYTES).rev().find(|end| value.is_char_boundary(*end));
            value.truncate(end.unwrap_or(0));
        }
        let values = self.0.entry(key).or_default();
        if !values.contains(&value) {
            values.push(value);
        }
    }
}

fn failure_value(binding: &Binding, at: usize, message: &str) -> String {
    let actions: Vec<&str> = binding.actions.iter().map(|action| action.as_str()).collect();
    let text = |text: &str| gotext::json(text);
    format!(
        "[{{\"message\":{},\"policy\":{},\"binding\":{},\"expressionIndex\":{at},\"validationActions\":{}}}]",
        text(message),
        text(&binding.policy),
        text(&binding.name),
        json!(actions)
    )
}
