//! Steps to values. Every step charges what cel-go's cost tracker would, after it is done.

mod attribute;
mod fold;

use std::sync::Arc;

use crate::{
    budget::Budget,
    error::{ErrorKind, Eval, EvalError},
    functions::{Context, Host},
    library, patches,
    plan::{CallNode, Node, NodeKind, RegexFunction, StructNode, Target},
    program::Activation,
    value::{Key, Made, Map, Struct, Value},
};

const IDENT_COST: u64 = 1;
const LIST_COST: u64 = 10;
const MAP_COST: u64 = 30;
const STRUCT_COST: u64 = 40;

pub fn evaluate<'a>(
    node: &Node,
    activation: &Activation<'a>,
    host: &dyn Host,
    budget: &mut Budget,
) -> Eval<Value<'a>> {
    Evaluator { activation, host, budget, locals: Vec::new() }.eval(node)
}

/// The value of a step that needs no variables.
pub fn constant(node: &Node, host: &dyn Host, budget: &mut Budget) -> Eval<Value<'static>> {
    evaluate(node, &Activation::new(), host, budget)
}

/// The value of a literal, which needs no functions either.
pub fn literal(node: &Node) -> Eval<Value<'static>> {
    constant(node, &NoHost, &mut Budget::new(u64::MAX))
}

struct NoHost;

impl Host for NoHost {
    fn parse_quantity(&self, _: &str) -> Result<std::sync::Arc<dyn crate::value::Quantity>, String> {
        Err("no quantities".to_owned())
    }

    fn check_name(&self, _: &str, _: &str) -> Vec<String> {
        Vec::new()
    }
}

/// A variable of a comprehension.
enum Slot<'p, 'a> {
    Value(Eval<Value<'a>>),
    /// An accumulator that nobody has looked at yet.
    Lazy(&'p Node),
    /// A list or map that is being made in place; macros let nobody look at it.
    InPlace,
}

struct Evaluator<'p, 'a, 'x> {
    activation: &'x Activation<'a>,
    host: &'x dyn Host,
    budget: &'x mut Budget,
    locals: Vec<Slot<'p, 'a>>,
}

impl<'p, 'a> Evaluator<'p, 'a, '_> {
    /// Charges for a step that is done; the outcome of the step stays what it is unless the budget is spent.
    fn done<T>(&mut self, outcome: Eval<T>, cost: u64) -> Eval<T> {
        if matches!(&outcome, Err(error) if error.is_fatal()) {
            return outcome;
        }
        self.budget.charge(cost)?;
        outcome
    }

    fn eval(&mut self, node: &'p Node) -> Eval<Value<'a>> {
        match &node.kind {
            NodeKind::Const(value) => value.clone(),
            NodeKind::Attribute(attribute) => self.eval_attribute(attribute),
            NodeKind::And(terms) => self.logic(terms, false),
            NodeKind::Or(terms) => self.logic(terms, true),
            NodeKind::Equal(operands, rule) => {
                let (args, failed) = self.operands(&operands[..])?;
                let outcome = match failed {
                    Some(error) => Err(error),
                    None => args[0].equals(&args[1], self.budget).map(Value::Bool),
                };
                let cost = rule.cost(&args, &outcome, self.budget)?;
                self.done(outcome, cost)
            }
            NodeKind::NotEqual(operands, rule) => {
                let (args, failed) = self.operands(&operands[..])?;
                let outcome = match failed {
                    Some(error) => Err(error),
                    // What cannot be compared is not equal.
                    None => match args[0].equals(&args[1], self.budget) {
                        Err(error) if error.is_fatal() => Err(error),
                        equal => Ok(Value::Bool(equal != Ok(true))),
                    },
                };
                let cost = rule.cost(&args, &outcome, self.budget)?;
                self.done(outcome, cost)
            }
            NodeKind::NotStrictlyFalse(operand) => {
                let outcome = match self.eval(operand) {
                    Err(error) if error.is_fatal() => return Err(error),
                    Ok(Value::Bool(value)) => value,
                    _ => true,
                };
                self.done(Ok(Value::Bool(outcome)), 1)
            }
            NodeKind::Call(call) => self.call(call),
            NodeKind::SetMembership(needle, set) => {
                let needle = self.eval(needle)?;
                Ok(Value::Bool(set.contains(&Key::of(&needle).into_static())))
            }
            NodeKind::OptionalOr { operands, value } => self.optional_or(operands, *value),
            NodeKind::List(elements) => {
                let outcome = self.list(elements);
                self.done(outcome, LIST_COST)
            }
            NodeKind::Map(entries) => {
                let outcome = self.map(entries);
                self.done(outcome, MAP_COST)
            }
            NodeKind::Struct(made) => {
                let outcome = self.make(made);
                self.done(outcome, STRUCT_COST)
            }
            NodeKind::Fold(fold) => self.fold(fold),
        }
    }

    fn logic(&mut self, terms: &'p [Node; 2], decisive: bool) -> Eval<Value<'a>> {
        let mut failed = None;
        for term in terms {
            let outcome = match self.eval(term) {
                Ok(Value::Bool(value)) if value == decisive => return Ok(Value::Bool(value)),
                Ok(Value::Bool(_)) => continue,
                Ok(_) => EvalError::no_such_overload(),
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => error,
            };
            failed = failed.or(Some(outcome));
        }
        failed.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    /// All operands, with null for those that failed, and the first failure.
    fn operands(&mut self, operands: &'p [Node]) -> Eval<(Vec<Value<'a>>, Option<EvalError>)> {
        let mut values = Vec::with_capacity(operands.len());
        let mut failed = None;
        for operand in operands {
            match self.eval(operand) {
                Ok(value) => values.push(value),
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => {
                    values.push(Value::Null);
                    failed = failed.or(Some(error));
                }
            }
        }
        Ok((values, failed))
    }

    fn call(&mut self, call: &'p CallNode) -> Eval<Value<'a>> {
        let (args, failed) = if call.stops_early {
            let mut args = Vec::with_capacity(call.args.len());
            let mut failed = None;
            for (index, arg) in call.args.iter().enumerate() {
                match self.eval(arg) {
                    Ok(value) => args.push(value),
                    Err(error) if error.is_fatal() || index + 1 < call.args.len() => return Err(error),
                    Err(error) => {
                        args.push(Value::Null);
                        failed = Some(error);
                    }
                }
            }
            (args, failed)
        } else {
            self.operands(&call.args)?
        };
        let outcome = match failed {
            Some(error) => Err(error),
            None => self.apply(&call.target, &args),
        };
        let cost = call.rule.cost(&args, &outcome, self.budget)?;
        self.done(outcome, cost)
    }

    fn apply(&mut self, target: &Target, args: &[Value<'a>]) -> Eval<Value<'a>> {
        let mut context = Context { budget: self.budget, host: self.host };
        match target {
            Target::Overload(function, position) => match function.overloads.get(*position) {
                Some(overload) => function.call_overload(overload, &mut context, args),
                None => Err(EvalError::no_such_overload()),
            },
            Target::Dispatch(function) => function.dispatch(&mut context, args),
            Target::Singleton(function, singleton) => match args.first() {
                Some(first) if !(singleton.accepts)(first) => Err(match first {
                    Value::String(_) | Value::Duration(_) | Value::Timestamp(_) => {
                        EvalError::no_such_overload()
                    }
                    _ => {
                        let message = format!("no such overload: {}", function.name);
                        EvalError::new(ErrorKind::NoSuchOverload, message)
                    }
                }),
                _ => (singleton.body)(&mut context, args),
            },
            Target::Regex(function, regex) => match (function, args) {
                (RegexFunction::Matches, [Value::String(text), _]) => Ok(Value::Bool(regex.is_match(text))),
                (RegexFunction::Find, [_, _]) => library::find_with(regex, args),
                (RegexFunction::FindAll, [_, _] | [_, _, _]) => library::find_all_with(regex, args),
                _ => Err(EvalError::no_such_overload()),
            },
        }
    }

    fn optional_or(&mut self, operands: &'p [Node; 2], value: bool) -> Eval<Value<'a>> {
        match self.eval(&operands[0])? {
            Value::Optional(Some(found)) if value => Ok((*found).clone()),
            Value::Optional(None) => self.eval(&operands[1]),
            other => Ok(other),
        }
    }

    fn list(&mut self, elements: &'p [(Node, bool)]) -> Eval<Value<'a>> {
        let mut values = Vec::with_capacity(elements.len());
        for (element, optional) in elements {
            match (self.eval(element)?, optional) {
                (Value::Optional(found), true) => values.extend(found.map(|found| (*found).clone())),
                (other, true) => {
                    let message =
                        format!("cannot initialize optional list element from non-optional value {other}");
                    return Err(EvalError::invalid(message));
                }
                (value, false) => values.push(value),
            }
        }
        Ok(Value::list(values))
    }

    fn make(&mut self, made: &'p StructNode) -> Eval<Value<'a>> {
        let mut fields: Vec<(Arc<str>, Value<'a>)> = Vec::with_capacity(made.fields.len());
        for (name, node, optional) in &made.fields {
            let value = match (self.eval(node)?, optional) {
                (Value::Optional(Some(found)), true) => (*found).clone(),
                (Value::Optional(None), true) => {
                    fields.retain(|(known, _)| known != name);
                    continue;
                }
                (other, true) => {
                    let message =
                        format!("cannot initialize optional entry '{name}' from non-optional value {other}");
                    return Err(EvalError::invalid(message));
                }
                (value, false) => value,
            };
            fields.retain(|(known, _)| known != name);
            fields.push((name.clone(), value));
        }
        if !made.known {
            return Err(EvalError::invalid(format!("unknown type '{}'", made.name)));
        }
        patches::check(&made.name, &fields)?;
        Ok(Value::Struct(Arc::new(Struct { name: made.name.clone(), fields })))
    }

    fn map(&mut self, entries: &'p [(Node, Node, bool)]) -> Eval<Value<'a>> {
        let mut made = Made::default();
        for (key, value, optional) in entries {
            let key = self.eval(key)?;
            let value = self.eval(value)?;
            library::check_key(&key)?;
            match (value, optional) {
                (Value::Optional(Some(found)), true) => made.insert(key, (*found).clone()),
                (Value::Optional(None), true) => made.remove(&key),
                (other, true) => {
                    let message =
                        format!("cannot initialize optional entry '{key}' from non-optional value {other}");
                    return Err(EvalError::invalid(message));
                }
                (value, false) => made.insert(key, value),
            }
        }
        Ok(Value::Map(Map::made(made)))
    }
}

/// The name of cel-go's type for a value, which some of its messages show.
pub fn go_type(value: &Value<'_>) -> &'static str {
    match value {
        Value::Null => "types.Null",
        Value::Bool(_) => "types.Bool",
        Value::Int(_) => "types.Int",
        Value::Uint(_) => "types.Uint",
        Value::Double(_) => "types.Double",
        Value::String(_) => "types.String",
        Value::Bytes(_) => "types.Bytes",
        Value::Duration(_) => "types.Duration",
        Value::Timestamp(_) => "types.Timestamp",
        Value::List(list) => list.go_type(),
        Value::Map(map) => map.go_type(),
        Value::Type(_) => "*types.Type",
        Value::Optional(_) => "*types.Optional",
        Value::Opaque(_) => "cel.Opaque",
        Value::Preserved(_) => "*common.unknownPreserved",
        Value::Struct(_) => "*dynamic.ObjectVal",
    }
}
