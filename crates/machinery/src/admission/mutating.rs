//! Policies that change objects.

use std::rc::Rc;

use serde_json::{Value, json};

use super::{
    allowance::{Allowance, BUDGET, RequestBudget},
    compile::Role,
    conditions::Matched,
    evaluate::{Inputs, Scope},
    policy::{Binding, Failure, Mutation, Policy},
};
use crate::{
    apply::{Duplicates, TypeRef, merge_trees, validate_tree},
    gotext,
    patch::json_patch,
    resource::Tree,
    status::{About, Reason, Status},
};

impl Policy {
    /// Whether the policy is for the request, by its conditions.
    pub fn concerns(&self, inputs: &Inputs<'_>, budget: &RequestBudget) -> Matched {
        self.conditions.matches_within(inputs, &self.variables, budget)
    }

    /// What a change makes of `object`, which is of type `ty`; it has still to be conformed and defaulted.
    pub fn mutate(
        &self,
        mutation: &Mutation,
        inputs: &Inputs<'_>,
        object: &Tree,
        ty: TypeRef<'_>,
        budget: &RequestBudget,
    ) -> Result<Tree, String> {
        if let Some(refused) = mutation.expression.refused() {
            return Err(refused.message().to_owned());
        }
        let scope = Scope::new(inputs, &self.variables, &Rc::new(Allowance::new(BUDGET, budget)));
        let value = scope.evaluate(&mutation.expression)??;
        match mutation.role {
            Role::JsonPatch => patched(&value, object),
            _ => applied(&value, object, ty),
        }
    }
}

fn applied(value: &cel::Value<'_>, object: &Tree, ty: TypeRef<'_>) -> Result<Tree, String> {
    let cel::Value::Struct(made) = value else {
        let of = value.type_name();
        return Err(format!("unsupported return type from ApplyConfiguration expression: {of}"));
    };
    check_places(made)?;
    let Value::Object(mut patch) = value.to_json().map_err(|error| error.to_string())? else {
        return Err(format!("invalid return type: {}", value.type_name()));
    };
    for key in ["apiVersion", "kind"] {
        if let Some(own) = object.get(key) {
            patch.insert(key.to_owned(), own.clone());
        }
    }
    let failed = |what: &str, why: &dyn std::fmt::Display| format!("error applying patch: {what}: {why}");
    validate_tree(ty, &patch, Duplicates::Refused)
        .map_err(|why| failed("failed to convert patch object to typed object", &why))?;
    let mut atomics = Vec::new();
    find_atomics(ty, &Value::Object(patch.clone()), &mut String::new(), &mut atomics);
    if !atomics.is_empty() {
        let why = format!("may not mutate atomic arrays, maps or structs: {}", atomics.join(", "));
        return Err(failed("invalid ApplyConfiguration", &why));
    }
    validate_tree(ty, object, Duplicates::Allowed)
        .map_err(|why| failed("failed to convert original object to typed object", &why))?;
    merge_trees(ty, object, &patch).map_err(|why| failed("failed to merge patch", &why))
}

fn check_places(made: &cel::value::Struct<'_>) -> Result<(), String> {
    let misplaced = made.misplaced().map_err(|error| error.to_string())?;
    if misplaced.is_empty() { Ok(()) } else { Err(format!("type mismatch: {}", misplaced.join("\n"))) }
}

/// The places of what is one field as a whole: who means to change a part of it would lose the rest.
fn find_atomics(ty: TypeRef<'_>, value: &Value, path: &mut String, found: &mut Vec<String>) {
    let atom = ty.atom();
    let length = path.len();
    match (value, &atom.map, &atom.list) {
        (Value::Object(members), Some(map), _) => {
            if map.is_atomic() {
                found.push(path.clone());
            }
            for (name, member) in members {
                let Some(field) = map.field(name) else { continue };
                path.push('.');
                path.push_str(name);
                find_atomics(ty.at(field.ty), member, path, found);
                path.truncate(length);
            }
        }
        (Value::Array(elements), _, Some(list)) => {
            if list.is_atomic() {
                found.push(path.clone());
            }
            for (at, element) in elements.iter().enumerate() {
                path.push_str(&format!("[{at}]"));
                find_atomics(ty.at(list.element), element, path, found);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

fn patched(value: &cel::Value<'_>, object: &Tree) -> Result<Tree, String> {
    let cel::Value::List(list) = value else {
        return Err("type mismatch: JSONPatchType.expression should evaluate to array".to_owned());
    };
    let mut operations = Vec::with_capacity(list.len());
    for element in list.iter() {
        operations.push(operation(&element.map_err(|error| error.to_string())?)?);
    }
    let mut document = Value::Object(object.clone());
    if let Err(error) = json_patch(&mut document, json!(operations).to_string().as_bytes()) {
        if error.is_failed_test() {
            return Ok(object.clone());
        }
        return Err(format!("JSON Patch: {error}"));
    }
    match document {
        Value::Object(tree) => Ok(tree),
        _ => Err("JSON Patch: the patch does not leave an object".to_owned()),
    }
}

fn operation(value: &cel::Value<'_>) -> Result<Value, String> {
    let cel::Value::Struct(made) = value else {
        let of = value.type_name();
        return Err(format!(
            "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch: cannot convert {of}"
        ));
    };
    let text = |field: &str| made.get(field).and_then(cel::Value::as_str).unwrap_or_default();
    let mut operation = Tree::new();
    operation.insert("op".into(), json!(text("op")));
    operation.insert("path".into(), json!(text("path")));
    if !text("from").is_empty() {
        operation.insert("from".into(), json!(text("from")));
    }
    if let Some(value) = made.get("value") {
        if let cel::Value::Struct(made) = value {
            check_places(made)?;
        }
        let value = value.to_json().map_err(|error| {
            format!("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {error}")
        })?;
        operation.insert("value".into(), value);
    }
    Ok(Value::Object(operation))
}

/// Why mutating policies refuse a request.
#[derive(Clone, Debug, Default)]
pub struct Refusals(Vec<(String, Option<Reason>)>);

impl Refusals {
    /// A policy cannot be evaluated, in whatever binding or in this one.
    pub fn misconfigured(&mut self, policy: &Policy, binding: Option<&Binding>, why: &str) {
        let what = if binding.is_some() { "binding" } else { "policy" };
        self.add(policy, binding, &format!("failed to configure {what}: {why}"), None);
    }

    /// A policy could not be evaluated for this request.
    pub fn failed(&mut self, policy: &Policy, binding: &Binding, why: &str) {
        self.add(policy, Some(binding), why, Some(Reason::Invalid));
    }

    fn add(&mut self, policy: &Policy, binding: Option<&Binding>, why: &str, reason: Option<Reason>) {
        if policy.failure == Failure::Ignore {
            return;
        }
        let message = match binding {
            Some(binding) => {
                format!("policy '{}' with binding '{}' denied request: {why}", policy.name, binding.name)
            }
            None => format!("policy {} denied request: {why}", gotext::quote(&policy.name)),
        };
        self.0.push((message, reason));
    }

    /// The first one is told, and all are listed.
    pub fn finish(self, about: About<'_>) -> Result<(), Status> {
        let Some((first, reason)) = self.0.first() else { return Ok(()) };
        let reason = reason.unwrap_or(Reason::Forbidden);
        let status = Status::new(reason, first).with_code(Reason::Forbidden.code()).about(about);
        Err(self.0.iter().fold(status, |status, (message, _)| status.cause("", message, "")))
    }
}
