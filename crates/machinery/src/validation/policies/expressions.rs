//! Expressions in CEL inside policies and webhooks.

use crate::{field_error::Cause, validation::parts::Path};

/// What an expression is for: what it may refer to, and what must come out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    MatchCondition,
    Variable,
    Validation,
    AuditAnnotation,
    ApplyConfiguration,
    JsonPatch,
}

impl Role {
    /// What is said of an expression that is not there.
    fn missing(self) -> &'static str {
        match self {
            Role::MatchCondition | Role::ApplyConfiguration | Role::JsonPatch => "",
            Role::Variable | Role::Validation => "expression is not specified",
            Role::AuditAnnotation => "valueExpression is not specified",
        }
    }
}

/// Says what is wrong with an expression: whether there is one.
pub fn expression(text: &str, role: Role, path: &Path<'_>) -> Vec<Cause> {
    match text.trim() {
        "" => vec![Cause::required(path, role.missing())],
        _ => Vec::new(),
    }
}
