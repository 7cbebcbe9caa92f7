//! Functions: how they are declared, and which of their overloads values fit.

use std::{collections::HashMap, sync::Arc};

use crate::{
    budget::Budget,
    error::{ErrorKind, Eval, EvalError},
    types::{self, Type},
    value::{Quantity, Value},
};

/// What a function's body may use beside its arguments.
pub struct Context<'c> {
    pub budget: &'c mut Budget,
    pub host: &'c dyn Host,
}

/// What Kubernetes' libraries need from the program that embeds this crate.
pub trait Host: Send + Sync {
    fn parse_quantity(&self, text: &str) -> Result<Arc<dyn Quantity>, String>;
    /// What is wrong with a name: `format` is one of `dns1123Label`, `dns1123Subdomain`, `dns1035Label`, the same with
    /// `Prefix` behind, `qualifiedName` and `labelValue`.
    fn check_name(&self, format: &str, name: &str) -> Vec<String>;
}

pub type Body = for<'a> fn(&mut Context<'_>, &[Value<'a>]) -> Eval<Value<'a>>;

/// One row of a library's table: the function, the overload's name, its signature, and what computes it. A member
/// function is written `target.(arguments) result`, another `(arguments) result`.
pub type Row = (&'static str, &'static str, &'static str, Body);

#[derive(Clone)]
pub struct Overload {
    pub id: Arc<str>,
    pub member: bool,
    pub args: Vec<Type>,
    pub result: Type,
    /// The names of type parameters.
    pub parameters: Vec<Arc<str>>,
    body: Option<Body>,
    /// Whether evaluation stops at the first argument that fails; the others see every argument evaluated.
    pub stops_early: bool,
}

/// A function with one body for all its overloads: the value's type decides at evaluation.
#[derive(Clone, Copy)]
pub struct Singleton {
    pub body: Body,
    /// Whether the first argument is of a type that has the operation.
    pub accepts: fn(&Value<'_>) -> bool,
}

#[derive(Clone)]
pub struct Function {
    pub name: Arc<str>,
    pub overloads: Vec<Overload>,
    pub singleton: Option<Singleton>,
    /// Whether arguments are checked against the declaration before the body sees them.
    guarded: bool,
}

/// All functions of an environment.
#[derive(Clone, Default)]
pub struct Functions {
    by_name: HashMap<Arc<str>, Arc<Function>>,
}

impl Functions {
    pub fn get(&self, name: &str) -> Option<&Arc<Function>> {
        self.by_name.get(name)
    }

    fn function(&mut self, name: &str) -> &mut Function {
        let key: Arc<str> = name.into();
        let function = self.by_name.entry(key.clone()).or_insert_with(|| {
            Arc::new(Function { name: key, overloads: Vec::new(), singleton: None, guarded: true })
        });
        Arc::make_mut(function)
    }

    pub fn add(&mut self, rows: &[Row]) {
        for (name, id, signature, body) in rows {
            let overload = Overload::declare(id, signature, Some(*body));
            self.function(name).overloads.push(overload);
        }
    }

    /// One overload whose names are made, not written.
    pub fn add_named(&mut self, name: &str, id: &str, signature: &str, body: Body) {
        let overload = Overload::declare(id, signature, Some(body));
        self.function(name).overloads.push(overload);
    }

    /// Rows whose two-argument forms stop at the first argument that fails.
    pub fn add_variadic(&mut self, rows: &[Row]) {
        for (name, id, signature, body) in rows {
            let mut overload = Overload::declare(id, signature, Some(*body));
            overload.stops_early = true;
            self.function(name).overloads.push(overload);
        }
    }

    /// Declares a function whose body does not depend on the overload.
    pub fn add_singleton(&mut self, name: &str, singleton: Singleton, overloads: &[(&str, &str)]) {
        let function = self.function(name);
        function.singleton = Some(singleton);
        function
            .overloads
            .extend(overloads.iter().map(|(id, signature)| Overload::declare(id, signature, None)));
    }

    /// More overloads of a function that has its body.
    pub fn declare(&mut self, name: &str, overloads: &[(&str, &str)]) {
        let declared = overloads.iter().map(|(id, signature)| Overload::declare(id, signature, None));
        self.function(name).overloads.extend(declared);
    }

    pub fn unguard(&mut self, names: &[&str]) {
        for name in names {
            self.function(name).guarded = false;
        }
    }
}

impl Overload {
    fn declare(id: &str, signature: &str, body: Option<Body>) -> Overload {
        let (target, rest) = match signature.split_once(".(") {
            Some((target, rest)) => (Some(types::parse(target)), rest),
            None => (None, signature.strip_prefix('(').unwrap_or(signature)),
        };
        let close = closing(rest);
        let mut args: Vec<Type> = target.iter().cloned().collect();
        args.extend(types::split(&rest[..close]).into_iter().map(types::parse));
        let result = types::parse(&rest[close + 1..]);
        let mut parameters = Vec::new();
        for of in args.iter().chain([&result]) {
            collect_parameters(of, &mut parameters);
        }
        let stops_early = args.len() > 2;
        Overload { id: id.into(), member: target.is_some(), args, result, parameters, body, stops_early }
    }

    /// Whether the values are of the declared types, as far as their outsides show.
    fn accepts(&self, values: &[Value<'_>], guarded: bool) -> bool {
        self.args.len() == values.len()
            && (!guarded || self.args.iter().zip(values).all(|(of, value)| is_of(value, of)))
    }
}

impl Function {
    /// Calls the one overload the checker found.
    pub fn call_overload<'a>(
        &self,
        overload: &Overload,
        context: &mut Context<'_>,
        args: &[Value<'a>],
    ) -> Eval<Value<'a>> {
        match overload.body {
            Some(body) if overload.accepts(args, self.guarded) => body(context, args),
            _ => Err(self.no_such_overload(args)),
        }
    }

    /// Calls the first overload that fits.
    pub fn dispatch<'a>(&self, context: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
        if let [only] = self.overloads.as_slice() {
            return self.call_overload(only, context, args);
        }
        for overload in &self.overloads {
            if let Some(body) = overload.body
                && overload.accepts(args, self.guarded)
            {
                return body(context, args);
            }
        }
        Err(self.no_such_overload(args))
    }

    fn no_such_overload(&self, args: &[Value<'_>]) -> EvalError {
        let types: Vec<&str> = args.iter().map(Value::type_name).collect();
        let message = format!("no such overload: {}({})", self.name, types.join(", "));
        EvalError::new(ErrorKind::NoSuchOverload, message)
    }
}

fn is_of(value: &Value<'_>, of: &Type) -> bool {
    match (of, value) {
        (Type::Dyn | Type::Any | Type::Param(_), _) => true,
        (Type::Nullable(_), Value::Null) => true,
        (Type::Nullable(inner), value) => is_of(value, inner),
        (Type::List(element), Value::List(list)) => match list.get(0) {
            Some(Ok(first)) => is_of(&first, element),
            _ => true,
        },
        (Type::Map(key_type, value_type), Value::Map(map)) => match map.keys().first() {
            Some(key) => {
                is_of(key, key_type)
                    && map.find(key).ok().flatten().is_none_or(|value| is_of(&value, value_type))
            }
            None => true,
        },
        (of, value) => of.name() == value.type_name(),
    }
}

/// Where the parenthesis closes that opened before the text.
fn closing(text: &str) -> usize {
    let mut depth = 0;
    for (index, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' if depth == 0 => return index,
            ')' => depth -= 1,
            _ => {}
        }
    }
    text.len().saturating_sub(1)
}

fn collect_parameters(of: &Type, found: &mut Vec<Arc<str>>) {
    match of {
        Type::Param(name) if !found.contains(name) => found.push(name.clone()),
        Type::List(inner) | Type::Nullable(inner) | Type::Type(Some(inner)) => {
            collect_parameters(inner, found)
        }
        Type::Map(key, value) => {
            collect_parameters(key, found);
            collect_parameters(value, found);
        }
        Type::Opaque(_, parameters) => parameters.iter().for_each(|inner| collect_parameters(inner, found)),
        _ => {}
    }
}
