//! The rules of one value.

use cel::{Activation, Budget, ErrorKind, Program, Value as CelValue};
use serde_json::Value;

use super::{Compiled, Pass, Ratchet, RuleSet, Structural};
use crate::{
    field_error::{Cause, CauseReason},
    gotext,
    structural::{Path, Rule},
};

const MAX_MESSAGE_BYTES: usize = 5 * 1024;

/// What a rule is called in messages.
fn shown(rule: &Rule) -> &str {
    if rule.message.is_empty() { rule.rule.trim() } else { rule.message.trim() }
}

/// Why a message expression gave no message.
enum NoMessage {
    /// The rule's own message is told instead.
    Failed,
    /// The request ends.
    Spent(String),
}

impl Pass {
    pub(super) fn expressions<'a>(
        &mut self,
        rules: &RuleSet,
        schema: &Structural,
        new: &'a Value,
        old: Option<&'a Value>,
        ratchet: &Ratchet<'a>,
        path: &Path<'_>,
    ) {
        let invalid = |why: &str| Cause::invalid(path.to_string(), &schema.type_name.as_str().into(), why);
        if let Some(broken) = rules.broken {
            let why = format!("rule compiler initialization error: {broken}");
            self.findings.causes.push(invalid(&why));
            return;
        }
        let Some(declaration) = rules.declaration.as_deref().filter(|_| !rules.rules.is_empty()) else {
            return;
        };
        if self.budget <= 0 {
            return self.end(invalid(OUT_OF_BUDGET));
        }
        let this = CelValue::from_json(new, declaration);
        let before = old.map(|old| CelValue::from_json(old, declaration));
        let mut plain = Activation::new().with_result("self", this.clone());
        let mut optional = Activation::new().with_result("self", this);
        match before {
            Some(before) => {
                let some = before.clone().map(|before| CelValue::optional(Some(before)));
                plain = plain.with_result("oldSelf", before);
                optional = optional.with_result("oldSelf", some);
            }
            None => optional = optional.with("oldSelf", CelValue::optional(None)),
        }
        for compiled in &rules.rules {
            if let Some(error) = &compiled.error {
                self.findings.causes.push(invalid(&format!("rule compile error: {error}")));
                continue;
            }
            let Some(program) = &compiled.program else { continue };
            let is_optional = compiled.rule.optional_old_self == Some(true);
            if compiled.uses_old_self && old.is_none() && !is_optional {
                continue;
            }
            let activation = if is_optional { &optional } else { &plain };
            match self.holds(program, activation, compiled, schema, path) {
                Some(false) => self.failed(compiled, schema, new, &plain, ratchet, path),
                Some(true) => {}
                None => {}
            }
            if self.budget < 0 {
                return;
            }
        }
    }

    /// Ends the request: nothing more is evaluated.
    fn end(&mut self, cause: Cause) {
        self.findings.causes.push(cause);
        self.budget = -1;
    }

    /// Takes the cost of an evaluation from the budget; says whether it was there.
    fn pay(&mut self, cost: u64) -> bool {
        match i64::try_from(cost).ok().filter(|cost| *cost <= self.budget) {
            Some(cost) => {
                self.budget -= cost;
                true
            }
            None => false,
        }
    }

    /// Whether a rule holds; `None` if that cannot be said, which is told.
    fn holds(
        &mut self,
        program: &Program,
        activation: &Activation<'_>,
        compiled: &Compiled,
        schema: &Structural,
        path: &Path<'_>,
    ) -> Option<bool> {
        let invalid = |why: &str| Cause::invalid(path.to_string(), &schema.type_name.as_str().into(), why);
        let mut budget = Budget::default();
        let outcome = program.evaluate(activation, &mut budget);
        if !self.pay(budget.spent()) {
            self.end(invalid(OUT_OF_BUDGET));
            return None;
        }
        let error = match outcome {
            Ok(value) => return Some(value.as_bool() == Some(true)),
            Err(error) => error,
        };
        let rule = shown(&compiled.rule);
        match error.kind() {
            ErrorKind::CostLimit => {
                let why = format!(
                    "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {rule}"
                );
                self.end(invalid(&why));
            }
            _ if error.message().starts_with("no such overload") => {
                let why = format!(
                    "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {rule}"
                );
                self.findings.causes.push(invalid(&why));
            }
            _ => self.findings.causes.push(invalid(&format!("{error} evaluating rule: {rule}"))),
        }
        None
    }

    fn failed(
        &mut self,
        compiled: &Compiled,
        schema: &Structural,
        new: &Value,
        activation: &Activation<'_>,
        ratchet: &Ratchet<'_>,
        path: &Path<'_>,
    ) {
        let rule = &compiled.rule;
        let field = match &compiled.field_path {
            Some(below) => path.child(below).to_string(),
            None => path.to_string(),
        };
        let forgiven = !compiled.uses_old_self && ratchet.forgives();
        let message = compiled.message.as_ref().map(|program| self.message(program, rule, activation));
        let detail = match message {
            Some(Ok(message)) => message,
            Some(Err(NoMessage::Spent(why))) => {
                let cause = Cause::invalid(field, &schema.type_name.as_str().into(), &why);
                self.tell(cause, forgiven);
                self.budget = -1;
                return;
            }
            Some(Err(NoMessage::Failed)) | None if rule.message.is_empty() => {
                format!("failed rule: {}", shown(rule))
            }
            Some(Err(NoMessage::Failed)) | None => rule.message.trim().to_owned(),
        };
        let is_container = matches!(schema.type_name.as_str(), "object" | "array");
        let cause = cause_for(rule.reason.as_deref(), field, (!is_container).then_some(new), &detail);
        self.tell(cause, forgiven);
    }

    fn tell(&mut self, cause: Cause, forgiven: bool) {
        if forgiven {
            self.findings.warnings.push(format!("{}: {}", cause.field, cause.message));
        } else {
            self.findings.causes.push(cause);
        }
    }

    fn message(
        &mut self,
        program: &Program,
        rule: &Rule,
        activation: &Activation<'_>,
    ) -> Result<String, NoMessage> {
        let mut budget = Budget::default();
        let outcome = program.evaluate(activation, &mut budget);
        if !self.pay(budget.spent()) {
            let why = "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run";
            return Err(NoMessage::Spent(why.to_owned()));
        }
        let value = match outcome {
            Ok(value) => value,
            Err(error) if error.kind() == ErrorKind::CostLimit => {
                let text = gotext::quote(&rule.message_expression);
                return Err(NoMessage::Spent(format!(
                    "no further validation rules will be run due to call cost exceeds limit for messageExpression: {text}"
                )));
            }
            Err(_) => return Err(NoMessage::Failed),
        };
        let message = value.as_str().map(str::trim).unwrap_or_default();
        let usable = !message.is_empty() && message.len() <= MAX_MESSAGE_BYTES && !message.contains('\n');
        if usable { Ok(message.to_owned()) } else { Err(NoMessage::Failed) }
    }
}

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Objects and lists are not shown.
fn cause_for(reason: Option<&str>, field: String, value: Option<&Value>, detail: &str) -> Cause {
    match reason {
        Some("FieldValueForbidden") => Cause::forbidden(field, detail),
        Some("FieldValueRequired") => Cause::required(field, detail),
        Some("FieldValueDuplicate") => match value {
            Some(value) => Cause::duplicate(field, value),
            None => Cause { reason: CauseReason::Duplicate, message: "Duplicate value".to_owned(), field },
        },
        _ => match value {
            Some(value) => Cause::invalid(field, value, detail),
            None => Cause::invalid_omitted(field, detail),
        },
    }
}
