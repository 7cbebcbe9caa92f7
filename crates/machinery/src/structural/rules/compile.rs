//! From the text of rules to programs.

use std::fmt;

use cel::{CompileError, Decl, Env, Program, Type};

use super::super::{Rule, Structural, declare, fieldpath};
use crate::expressions;

/// A rule and its program.
pub struct Compiled {
    pub rule: Rule,
    /// Why there is no program; neither is there one for an empty rule.
    pub error: Option<String>,
    pub(super) program: Option<Program>,
    pub uses_old_self: bool,
    /// At most, for one value.
    pub max_cost: u64,
    /// How often the value may be there if nothing above it says so.
    pub max_cardinality: u64,
    pub(super) message: Option<Program>,
    pub message_error: Option<String>,
    pub message_max_cost: Option<u64>,
    /// As causes name the field.
    pub(super) field_path: Option<String>,
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiled")
            .field("rule", &self.rule)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

/// Compiles the rules of one schema, not of those below it.
pub fn compile(schema: &Structural, declaration: &Decl) -> Vec<Compiled> {
    let base = expressions::environment().declared("self", declaration);
    let typed = declaration.cel_type().unwrap_or(Type::Dyn);
    let plain = base.clone().variable("oldSelf", typed.clone());
    let optional = base.variable("oldSelf", Type::optional(typed));
    let compile = |rule: &Rule| {
        let env = if rule.optional_old_self == Some(true) { &optional } else { &plain };
        compile_rule(rule, env, schema, declaration)
    };
    schema.rules.iter().map(compile).collect()
}

fn compile_rule(rule: &Rule, env: &Env, schema: &Structural, declaration: &Decl) -> Compiled {
    let mut compiled = Compiled {
        rule: rule.clone(),
        error: None,
        program: None,
        uses_old_self: false,
        max_cost: 0,
        max_cardinality: 0,
        message: None,
        message_error: None,
        message_max_cost: None,
        field_path: None,
    };
    if rule.rule.trim().is_empty() {
        return compiled;
    }
    let program = match env.compile(&rule.rule) {
        Ok(program) if *program.result_type() != Type::Bool => {
            compiled.error = Some("cel expression must evaluate to a bool".to_owned());
            return compiled;
        }
        Ok(program) => program,
        Err(CompileError::Issues(issues)) => {
            compiled.error = Some(format!("compilation failed: {issues}"));
            return compiled;
        }
        // The type is looked at first.
        Err(CompileError::Instantiation { result_type, .. }) if result_type != Type::Bool => {
            compiled.error = Some("cel expression must evaluate to a bool".to_owned());
            return compiled;
        }
        Err(CompileError::Instantiation { reason, .. }) => {
            compiled.error = Some(format!("program instantiation failed: {reason}"));
            return compiled;
        }
    };
    compiled.uses_old_self = program.references("oldSelf");
    compiled.max_cost = program.estimate(declaration).max;
    compiled.max_cardinality = declare::max_cardinality(declaration.min_size);
    compiled.program = Some(program);
    if !rule.message_expression.is_empty() {
        match compile_message(&rule.message_expression, env) {
            Err(error) => {
                compiled.message_error = Some(error);
                return compiled;
            }
            Ok(program) => {
                compiled.message_max_cost = Some(program.estimate(declaration).max);
                compiled.message = Some(program);
            }
        }
    }
    if !rule.field_path.is_empty() {
        compiled.field_path = fieldpath::follow(&rule.field_path, schema, true).ok().map(|found| found.text);
    }
    compiled
}

fn compile_message(text: &str, env: &Env) -> Result<Program, String> {
    match env.compile(text) {
        Ok(program) if *program.result_type() == Type::String => Ok(program),
        Ok(_) => Err("messageExpression must evaluate to a string".to_owned()),
        Err(CompileError::Issues(issues)) => Err(format!("messageExpression compilation failed: {issues}")),
        Err(CompileError::Instantiation { result_type, .. }) if result_type != Type::String => {
            Err("messageExpression must evaluate to a string".to_owned())
        }
        Err(CompileError::Instantiation { reason, .. }) => {
            Err(format!("messageExpression instantiation failed: {reason}"))
        }
    }
}
