//! Expressions in CEL inside policies and webhooks.

use serde_json::json;

use crate::{
    admission::compile::{Compiler, Refused, Role},
    field_error::Cause,
    validation::parts::Path,
};

/// What is said of an expression that is not there.
fn missing(role: Role) -> &'static str {
    match role {
        Role::MatchCondition | Role::Message | Role::ApplyConfiguration | Role::JsonPatch => "",
        Role::Variable | Role::Validation => "expression is not specified",
        Role::AuditAnnotation => "valueExpression is not specified",
    }
}

/// Says what is wrong with an expression.
pub fn expression(compiler: &Compiler, text: &str, role: Role, path: &Path<'_>) -> Vec<Cause> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return vec![Cause::required(path, missing(role))];
    }
    // Places in the text are told as the author counts them, but for these.
    let (compiled, shown) = match role {
        Role::AuditAnnotation => (trimmed, text),
        Role::MatchCondition | Role::ApplyConfiguration | Role::JsonPatch => (trimmed, trimmed),
        Role::Variable | Role::Validation | Role::Message => (text, text),
    };
    match compiler.compile(compiled, role) {
        Ok(_) => Vec::new(),
        Err(refused) => vec![cause(refused, shown, path)],
    }
}

/// Says what is wrong with a variable, and makes it known to what follows.
pub fn variable(compiler: &mut Compiler, name: &str, text: &str, path: &Path<'_>) -> Vec<Cause> {
    if text.trim().is_empty() {
        return vec![Cause::required(path, missing(Role::Variable))];
    }
    match compiler.variable(name, text) {
        Ok(_) => Vec::new(),
        Err(refused) => vec![cause(refused, text, path)],
    }
}

fn cause(refused: Refused, shown: &str, path: &Path<'_>) -> Cause {
    match refused {
        Refused::Invalid(detail) => Cause::invalid(path, &json!(shown), &detail),
        Refused::Internal(detail) => Cause::internal(path, &detail),
    }
}
