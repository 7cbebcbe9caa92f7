//! Checking the expressions of a policy against the kinds that it names: what is told in `status.typeChecking`.
//!
//! A policy is stored whatever is found here; expressions that do not fit a kind fail only when they are evaluated.

use std::sync::Arc;

use cel::{Decl, Env, ListType, ObjectType, Shape, Type};
use serde_json::{Value, json};

use super::compile::{self, as_field, namespace_type, request_type};
use crate::{
    expressions,
    resource::{Resource, Schema, Tree},
    schema::{self, Field, Message, Types},
    validation::parts::{items, object, text, texts},
};

/// No more kinds than this are looked at.
const MAX_KINDS: usize = 10;

/// A kind, and what its objects are like, as far as that is known.
pub struct Kind {
    group: String,
    version: String,
    kind: String,
    declared: Option<Decl>,
}

impl Kind {
    pub fn of(resource: &Resource) -> Self {
        Kind {
            group: resource.group.clone(),
            version: resource.version.clone(),
            kind: resource.kind.clone(),
            declared: declaration(resource),
        }
    }
}

/// The resources whose kinds a policy's rules name in full: group, version, plural. An empty group is every group.
pub fn named_resources(policy: &Tree) -> Vec<(String, String, String)> {
    let matching = object(policy, "spec").and_then(|spec| object(spec, "matchConstraints"));
    let mut named = Vec::new();
    for (_, rule) in matching.into_iter().flat_map(|matching| items(matching, "resourceRules")) {
        let sorted = |key: &str, odd: &[char]| -> Vec<String> {
            let mut all: Vec<String> =
                texts(rule, key).filter(|it| !it.contains(odd)).map(str::to_owned).collect();
            all.sort();
            all
        };
        let is_open = |key: &str| texts(rule, key).any(|it| it.contains('*'));
        if is_open("apiGroups") || is_open("apiVersions") {
            continue;
        }
        for group in sorted("apiGroups", &['*']) {
            for version in sorted("apiVersions", &['*']) {
                for resource in sorted("resources", &['*', '/']) {
                    named.push((group.clone(), version.clone(), resource));
                }
            }
        }
    }
    named
}

/// The kinds to check for, each once, in order; of many, the first ones.
pub fn chosen(mut kinds: Vec<Kind>) -> Vec<Kind> {
    kinds.truncate(MAX_KINDS);
    let key = |it: &Kind| (it.group.clone(), it.version.clone(), it.kind.clone());
    kinds.sort_by_key(key);
    kinds.dedup_by_key(|it| key(it));
    kinds
}

/// `status.typeChecking` of a policy. `params`: of what kind its parameters are, if anything is known of it.
pub fn check(policy: &Tree, kinds: &[Kind], params: Option<&Kind>) -> Value {
    let empty = Tree::new();
    let spec = object(policy, "spec").unwrap_or(&empty);
    let checkers: Vec<Checker<'_>> = kinds.iter().map(|kind| Checker::new(spec, kind, params)).collect();
    let mut warnings = Vec::new();
    for (at, validation) in items(spec, "validations") {
        for key in ["expression", "messageExpression"] {
            let written = text(validation, key);
            if key == "messageExpression" && written.is_empty() {
                continue;
            }
            let found: Vec<String> =
                checkers.iter().filter_map(|checker| checker.mistakes(written)).collect();
            if !found.is_empty() {
                let field = format!("spec.validations[{at}].{key}");
                warnings.push(json!({"fieldRef": field, "warning": found.join("\n")}));
            }
        }
    }
    match warnings.is_empty() {
        true => json!({}),
        false => json!({"expressionWarnings": warnings}),
    }
}

/// Checks expressions for objects of one kind.
struct Checker<'a> {
    kind: &'a Kind,
    env: Env,
}

impl<'a> Checker<'a> {
    fn new(spec: &Tree, kind: &'a Kind, params: Option<&Kind>) -> Self {
        let typed = |env: Env, name: &str, decl: Option<&Decl>| match decl {
            Some(decl) => env.declared(name, decl),
            None => env.variable(name, Type::Dyn),
        };
        let mut env = expressions::environment()
            .declared(compile::NAMESPACE, &namespace_type())
            .declared(compile::REQUEST, &request_type())
            // Upstream leaves out what is behind it.
            .variable(compile::AUTHORIZER, Type::object(cel::types::AUTHORIZER));
        env = typed(env, compile::OBJECT, kind.declared.as_ref());
        env = typed(env, compile::OLD_OBJECT, kind.declared.as_ref());
        if object(spec, "paramKind").is_some() {
            env = typed(env, compile::PARAMS, params.and_then(|params| params.declared.as_ref()));
        }
        let mut variables: Vec<(String, Type)> = Vec::new();
        let with = |env: &Env, variables: &[(String, Type)]| {
            env.clone().record(compile::VARIABLES, "kubernetes.variables", variables.iter().cloned())
        };
        for (_, variable) in items(spec, "variables") {
            let checked = with(&env, &variables).check(text(variable, "expression"));
            let of = checked.map_or(Type::Dyn, |checked| as_field(checked.result_type()));
            variables.push((text(variable, "name").to_owned(), of));
        }
        Checker { kind, env: with(&env, &variables) }
    }

    fn mistakes(&self, expression: &str) -> Option<String> {
        let issues = self.env.check(expression).err()?;
        let Kind { group, version, kind, .. } = self.kind;
        Some(format!("{group}/{version}, Kind={kind}: {issues}\n"))
    }
}

/// What expressions can know of a kind's objects.
fn declaration(resource: &Resource) -> Option<Decl> {
    match &resource.schema {
        Schema::Typed(message) => {
            Some(of_message(Types::builtin(), message, &resource.kind, &mut Vec::new()))
        }
        Schema::Custom(custom) | Schema::Own(custom) => {
            let types = Types::builtin();
            let metadata = types.get("meta/v1.ObjectMeta")?;
            let named = format!("{}.metadata", resource.kind);
            let metadata = Arc::new(of_message(types, metadata, &named, &mut Vec::new()));
            custom.version.schema.as_ref()?.declaration_with(&resource.kind, &metadata)
        }
        Schema::Untyped => None,
    }
}

/// `inside`: the messages around. One within itself has no fields there, as upstream's schema.
fn of_message(types: &Types, message: &Message, name: &str, inside: &mut Vec<&'static str>) -> Decl {
    if inside.contains(&message.name) {
        return nothing_known(name);
    }
    inside.push(message.name);
    let fields: Vec<(String, Arc<Decl>)> = types
        .fields(message)
        .filter_map(|field| {
            let decl = of_field(types, field, &format!("{name}.{}", field.name), inside)?;
            Some((field.name.to_owned(), Arc::new(decl)))
        })
        .collect();
    inside.pop();
    Decl::new(Shape::Object(ObjectType::new(name, fields)))
}

fn nothing_known(name: &str) -> Decl {
    Decl::new(Shape::Object(ObjectType::new(name, [])))
}

fn of_field(types: &Types, field: &Field, name: &str, inside: &mut Vec<&'static str>) -> Option<Decl> {
    // Any JSON has no type; but an object of whatever kind, and a set of fields, are objects.
    if field.ty == schema::Type::Raw && !field.is_any_json() {
        return Some(nothing_known(name));
    }
    of_type(types, &field.ty, name, inside)
}

fn of_type(types: &Types, of: &schema::Type, name: &str, inside: &mut Vec<&'static str>) -> Option<Decl> {
    use schema::Type as Of;
    Some(match of {
        Of::String | Of::Duration => Decl::new(Shape::String),
        Of::Bytes => Decl::new(Shape::Bytes),
        Of::Bool => Decl::new(Shape::Bool),
        Of::Int32 | Of::Int64 => Decl::new(Shape::Int),
        Of::Float64 => Decl::new(Shape::Double),
        Of::Time | Of::MicroTime => Decl::new(Shape::DateTime),
        Of::IntOrString => Decl::new(Shape::IntOrString),
        Of::Message(id) => of_message(types, types.message(*id), name, inside),
        Of::List(items) => list_of(types, items, name, inside)?,
        Of::Wrapped(inner) => of_type(types, inner, name, inside)?,
        Of::Map(values) => {
            Decl::new(Shape::Map(Arc::new(of_type(types, values, &format!("{name}.@values"), inside)?)))
        }
        // Upstream's schema of these has several types, which is none to expressions.
        Of::Quantity | Of::Raw | Of::SchemaOrBool(_) | Of::SchemaOrArray(_) | Of::SchemaOrStrings(_) => {
            return None;
        }
    })
}

fn list_of(types: &Types, items: &schema::Type, name: &str, inside: &mut Vec<&'static str>) -> Option<Decl> {
    let items = of_type(types, items, &format!("{name}.@items"), inside)?;
    Some(Decl::new(Shape::List(Arc::new(items), ListType::Atomic)))
}
