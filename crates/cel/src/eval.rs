//! Steps to values. Every step charges what cel-go's cost tracker would, after it is done.

use crate::{
    budget::Budget,
    error::{ErrorKind, Eval, EvalError},
    functions::{Context, Host},
    library,
    plan::{
        Attribute, Base, CallNode, Fold, Node, NodeKind, Qualifier, QualifierKey, RegexFunction, Step, Target,
    },
    program::Activation,
    value::{Key, List, Made, Map, Value},
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
            NodeKind::Struct(name, fields) => {
                let outcome = fields.iter().try_for_each(|field| self.eval(field).map(drop));
                let outcome =
                    outcome.and_then(|()| Err(EvalError::invalid(format!("unknown type '{name}'"))));
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

    // Attributes.

    fn eval_attribute(&mut self, attribute: &'p Attribute) -> Eval<Value<'a>> {
        let outcome = self.resolve(attribute);
        let outcome = match outcome {
            Ok(Value::Optional(found)) if attribute.test_only => Ok(Value::Bool(found.is_some())),
            other => other,
        };
        // A conditional is no step of its own, and `has` costs nothing but its selections.
        let conditional = matches!(attribute.base, Base::Conditional(_));
        let cost = if conditional || attribute.test_only { 0 } else { IDENT_COST };
        self.done(outcome, cost)
    }

    fn resolve(&mut self, attribute: &'p Attribute) -> Eval<Value<'a>> {
        let value = match &attribute.base {
            Base::Local(slot) => self.local(*slot)?,
            Base::Variable(name) => match self.activation.get(name) {
                Some(value) => value.clone()?,
                None => {
                    let message = format!("no such attribute(s): {name}");
                    return Err(EvalError::new(ErrorKind::NoSuchAttribute, message));
                }
            },
            Base::Conditional(branches) => match self.eval(&branches.condition)? {
                Value::Bool(true) => self.resolve(&branches.truthy)?,
                Value::Bool(false) => self.resolve(&branches.falsy)?,
                _ => return Err(EvalError::no_such_overload()),
            },
            Base::Relative(node) => self.eval(node)?,
        };
        self.qualify_all(value, &attribute.qualifiers)
    }

    fn local(&mut self, slot: usize) -> Eval<Value<'a>> {
        match self.locals.get(slot) {
            Some(Slot::Value(value)) => value.clone(),
            Some(Slot::Lazy(init)) => {
                let init = *init;
                // It sees the variables that were there when the comprehension began, in their places.
                let later = self.locals.split_off(slot);
                let value = self.eval(init);
                self.locals.extend(later);
                if matches!(&value, Err(error) if error.is_fatal()) {
                    return value;
                }
                self.locals[slot] = Slot::Value(value.clone());
                value
            }
            Some(Slot::InPlace) | None => Err(EvalError::no_such_overload()),
        }
    }

    fn qualify_all(&mut self, value: Value<'a>, qualifiers: &'p [Qualifier]) -> Eval<Value<'a>> {
        if qualifiers.is_empty() {
            return Ok(value);
        }
        let (mut value, mut optional) = match value {
            Value::Optional(None) => return Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => ((*inner).clone(), true),
            other => (other, false),
        };
        for qualifier in qualifiers {
            optional |= qualifier.optional;
            if optional {
                match self.qualify_if_present(&value, qualifier)? {
                    Some(found) => value = found,
                    None => return Ok(Value::Optional(None)),
                }
            } else {
                let outcome = self.qualify(&value, qualifier);
                value = self.done(outcome, IDENT_COST)?;
            }
        }
        Ok(if optional { Value::optional(Some(value)) } else { value })
    }

    fn qualify(&mut self, value: &Value<'a>, qualifier: &'p Qualifier) -> Eval<Value<'a>> {
        let found = self.find(value, &qualifier.key, !qualifier.test_only)?;
        match found {
            Found::Value(found) if !qualifier.test_only => Ok(found),
            found if qualifier.test_only => Ok(Value::Bool(matches!(found, Found::Value(_)))),
            Found::NoKey(key) => Err(EvalError::no_such_key(key)),
            Found::NoIndex(key) => Err(EvalError::out_of_bounds(key)),
            Found::Value(found) => Ok(found),
        }
    }

    fn qualify_if_present(&mut self, value: &Value<'a>, qualifier: &'p Qualifier) -> Eval<Option<Value<'a>>> {
        match self.find(value, &qualifier.key, false)? {
            Found::Value(found) => {
                self.budget.charge(IDENT_COST)?;
                Ok(Some(if qualifier.test_only { Value::Null } else { found }))
            }
            _ => Ok(None),
        }
    }

    /// Looks a key up; `strict` makes indexing what cannot be indexed an error rather than an absence.
    fn find(&mut self, value: &Value<'a>, key: &'p QualifierKey, strict: bool) -> Eval<Found<'a>> {
        let key = match key {
            QualifierKey::Field(name) => {
                return match value {
                    Value::Map(map) => Ok(map
                        .find_str(name)?
                        .map_or_else(|| Found::NoKey(Value::string(name.clone())), Found::Value)),
                    _ => find_in(value, Value::string(name.clone()), strict),
                };
            }
            QualifierKey::Const(key) => key.clone(),
            QualifierKey::Attribute(attribute) => self.resolve(attribute)?,
            QualifierKey::Computed(node) => self.eval(node)?,
        };
        match key {
            Value::String(_) | Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) => {
                find_in(value, key, strict)
            }
            other => Err(EvalError::invalid(format!("invalid qualifier type: {}", go_type(&other)))),
        }
    }

    // Comprehensions.

    fn fold(&mut self, fold: &'p Fold) -> Eval<Value<'a>> {
        let range = self.eval(&fold.range)?;
        let mark = self.locals.len();
        debug_assert_eq!(mark, fold.slot);
        let elements = match elements(range, fold.two_variables) {
            Ok(elements) => elements,
            Err(error) => return Err(error),
        };
        let outcome = match &fold.step {
            Step::Any(step) => self.fold_any(fold, step, elements),
            Step::Append { filter, list } => self.fold_list(fold, filter.as_ref(), list, elements),
            Step::Insert { filter, entry } => self.fold_map(fold, filter.as_ref(), entry, elements),
        };
        self.locals.truncate(mark);
        outcome
    }

    fn bind(&mut self, fold: &Fold, element: Element<'a>) {
        self.locals.truncate(fold.slot + 1);
        self.locals.push(Slot::Value(element.first));
        if fold.two_variables {
            self.locals.push(Slot::Value(element.second));
        }
    }

    fn fold_any(&mut self, fold: &'p Fold, step: &'p Node, elements: Elements<'a>) -> Eval<Value<'a>> {
        self.locals.push(Slot::Lazy(&fold.init));
        for element in elements {
            self.bind(fold, element);
            match self.eval(&fold.condition) {
                Err(error) if error.is_fatal() => return Err(error),
                Ok(Value::Bool(false)) => break,
                _ => {}
            }
            let accumulated = self.eval(step);
            if matches!(&accumulated, Err(error) if error.is_fatal()) {
                return accumulated;
            }
            self.locals[fold.slot] = Slot::Value(accumulated);
        }
        self.locals.truncate(fold.slot + 1);
        self.eval(&fold.result)
    }

    /// Whether the filter lets an element pass; what it fails with becomes the accumulator.
    fn passes(&mut self, filter: Option<&'p Node>) -> Eval<Eval<bool>> {
        let Some(filter) = filter else { return Ok(Ok(true)) };
        match self.eval(filter) {
            Err(error) if error.is_fatal() => Err(error),
            Err(error) => Ok(Err(error)),
            Ok(Value::Bool(value)) => Ok(Ok(value)),
            Ok(_) => Ok(Err(EvalError::no_such_overload())),
        }
    }

    fn fold_list(
        &mut self,
        fold: &'p Fold,
        filter: Option<&'p Node>,
        list: &'p Node,
        elements: Elements<'a>,
    ) -> Eval<Value<'a>> {
        self.locals.push(Slot::InPlace);
        let mut accumulated: Eval<Vec<Value<'a>>> = Ok(Vec::new());
        for element in elements {
            self.bind(fold, element);
            match self.passes(filter)? {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => {
                    accumulated = Err(error);
                    continue;
                }
            }
            // The accumulator is a step, and so is the addition.
            self.budget.charge(IDENT_COST)?;
            let appended = self.eval(list);
            let appended = self.done(appended, 1);
            match appended {
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => {
                    if accumulated.is_ok() {
                        accumulated = Err(error);
                    }
                }
                Ok(Value::List(appended)) => {
                    if let Ok(values) = &mut accumulated {
                        for value in appended.iter() {
                            values.push(value?);
                        }
                    }
                }
                Ok(_) => accumulated = Err(EvalError::no_such_overload()),
            }
        }
        self.locals.truncate(fold.slot);
        self.locals.push(Slot::Value(accumulated.map(Value::list)));
        self.eval(&fold.result)
    }

    fn fold_map(
        &mut self,
        fold: &'p Fold,
        filter: Option<&'p Node>,
        entry: &'p [Node],
        elements: Elements<'a>,
    ) -> Eval<Value<'a>> {
        self.locals.push(Slot::InPlace);
        let mut accumulated: Eval<Made<'a>> = Ok(Made::default());
        for element in elements {
            self.bind(fold, element);
            match self.passes(filter)? {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => {
                    accumulated = Err(error);
                    continue;
                }
            }
            self.budget.charge(IDENT_COST)?;
            let inserted = self.insert(&mut accumulated, entry);
            match inserted {
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => accumulated = Err(error),
                Ok(()) => {}
            }
        }
        self.locals.truncate(fold.slot);
        self.locals.push(Slot::Value(accumulated.map(|made| Value::Map(Map::made(made)))));
        self.eval(&fold.result)
    }

    fn insert(&mut self, accumulated: &mut Eval<Made<'a>>, entry: &'p [Node]) -> Eval<()> {
        // With a key and a value evaluation stops at what fails first; a map is evaluated in any case.
        if let (Err(error), [_, _]) = (&*accumulated, entry) {
            return Err(error.clone());
        }
        let mut parts = Vec::with_capacity(entry.len());
        for (index, part) in entry.iter().enumerate() {
            match self.eval(part) {
                Ok(value) => parts.push(value),
                Err(error) if error.is_fatal() || index + 1 < entry.len() => return Err(error),
                Err(error) => return self.done(Err(error), 1),
            }
        }
        let outcome = match (accumulated, parts.as_slice()) {
            (Err(error), _) => Err(error.clone()),
            (Ok(made), [key, value]) => library::insert_into(made, key, value),
            (Ok(made), [Value::Map(map)]) => map.entries().and_then(|entries| {
                entries.iter().try_for_each(|(key, value)| library::insert_into(made, key, value))
            }),
            _ => Err(EvalError::no_such_overload()),
        };
        self.done(outcome, 1)
    }
}

/// What looking a key up found.
enum Found<'a> {
    Value(Value<'a>),
    NoKey(Value<'a>),
    NoIndex(Value<'a>),
}

fn find_in<'a>(value: &Value<'a>, key: Value<'a>, strict: bool) -> Eval<Found<'a>> {
    match value {
        Value::Map(map) => Ok(match map.find(&key)? {
            Some(found) => Found::Value(found),
            None => Found::NoKey(key),
        }),
        Value::List(list) => {
            let index = crate::value::index_of(&key)?;
            let in_bounds = usize::try_from(index).is_ok_and(|index| index < list.len());
            if in_bounds { list.at(&key).map(Found::Value) } else { Ok(Found::NoIndex(key)) }
        }
        _ if strict => Err(EvalError::no_such_key(key)),
        _ => Ok(Found::NoKey(key)),
    }
}

/// What the variables of a comprehension are bound to.
struct Element<'a> {
    first: Eval<Value<'a>>,
    second: Eval<Value<'a>>,
}

type Elements<'a> = Box<dyn Iterator<Item = Element<'a>> + 'a>;

fn elements(range: Value<'_>, two: bool) -> Eval<Elements<'_>> {
    match range {
        Value::List(list) => Ok(list_elements(list, two)),
        Value::Map(map) => {
            let keys = map.keys();
            Ok(Box::new(keys.into_iter().map(move |key| {
                let second = match two {
                    true => {
                        map.find(&key).and_then(|value| value.ok_or_else(|| EvalError::no_such_key(&key)))
                    }
                    false => Ok(Value::Null),
                };
                Element { first: Ok(key), second }
            })))
        }
        other if two => {
            let message = format!("unsupported comprehension range type: {}", go_type(&other));
            Err(EvalError::invalid(message))
        }
        other => Err(EvalError::invalid(format!("got '{}', expected iterable type", go_type(&other)))),
    }
}

fn list_elements(list: List<'_>, two: bool) -> Elements<'_> {
    let mut index = 0;
    Box::new(std::iter::from_fn(move || {
        let element = list.get(index)?;
        let position = Value::Int(index as i64);
        index += 1;
        Some(match two {
            true => Element { first: Ok(position), second: element },
            false => Element { first: element, second: Ok(Value::Null) },
        })
    }))
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
        Value::Map(map) if map.is_plain() => "*types.baseMap",
        Value::Map(_) => "*common.unstructuredMap",
        Value::Type(_) => "*types.Type",
        Value::Optional(_) => "*types.Optional",
        Value::Opaque(_) => "cel.Opaque",
        Value::Preserved(_) => "*common.unknownPreserved",
    }
}
