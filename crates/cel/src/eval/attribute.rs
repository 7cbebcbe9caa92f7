//! Variables, and what is selected from them.

use super::{Evaluator, IDENT_COST, Slot, go_type};
use crate::{
    error::{ErrorKind, Eval, EvalError},
    plan::{Attribute, Base, Qualifier, QualifierKey},
    value::Value,
};

impl<'p, 'a> Evaluator<'p, 'a, '_> {
    pub(super) fn eval_attribute(&mut self, attribute: &'p Attribute) -> Eval<Value<'a>> {
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
                None if self.activation.record(name).is_some() => return self.resolve_field(name, attribute),
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

    /// What is selected from a variable whose fields are computed.
    fn resolve_field(&mut self, name: &str, attribute: &'p Attribute) -> Eval<Value<'a>> {
        let missing = || EvalError::new(ErrorKind::NoSuchAttribute, format!("no such attribute(s): {name}"));
        let record = self.activation.record(name).ok_or_else(missing)?.clone();
        let (first, rest) = attribute.qualifiers.split_first().ok_or_else(missing)?;
        let field = match &first.key {
            QualifierKey::Field(field) => Value::string(field.clone()),
            QualifierKey::Const(key) => key.clone(),
            QualifierKey::Attribute(attribute) => self.resolve(attribute)?,
            QualifierKey::Computed(node) => self.eval(node)?,
        };
        let Value::String(field) = field else { return Err(EvalError::no_such_overload()) };
        let found = record.field(&field).transpose()?;
        let value = match found {
            Some(_) if first.test_only => Value::Bool(true),
            None if first.test_only => Value::Bool(false),
            Some(found) => found,
            None if first.optional => return Ok(Value::Optional(None)),
            None => return self.done(Err(EvalError::no_such_key(&*field)), IDENT_COST),
        };
        self.budget.charge(IDENT_COST)?;
        let value = if first.optional { Value::optional(Some(value)) } else { value };
        self.qualify_all(value, rest)
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
        let (mut value, mut optional) = match value {
            Value::Optional(None) => return Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => (innermost(&inner), true),
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
                    Value::Struct(made) => Ok(match made.get(name) {
                        Some(found) => Found::Value(found.clone()),
                        // Upstream reads what is not there as null, though `has` tells the difference.
                        None if strict => Found::Value(Value::Null),
                        None => Found::NoKey(Value::string(name.clone())),
                    }),
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
}

/// What an optional value holds; resolving one takes away all optionals around it, and what is absent inside is null.
fn innermost<'a>(value: &Value<'a>) -> Value<'a> {
    match value {
        Value::Optional(Some(inner)) => innermost(inner),
        Value::Optional(None) => Value::Null,
        other => other.clone(),
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
