//! Equality and order of values of any types.

use std::cmp::Ordering;

use serde_json::Value as Json;

use super::{List, Map, Opaque, Struct, Value};
use crate::{
    budget::Budget,
    decl::ListType,
    error::{Eval, EvalError},
};

impl<'a> Value<'a> {
    /// `==`: null equals null alone, then the left value decides.
    pub fn equals(&self, other: &Value<'a>, budget: &mut Budget) -> Eval<bool> {
        match (self, other) {
            (Value::Null, Value::Null) => Ok(true),
            (Value::Null, _) | (_, Value::Null) => Ok(false),
            _ => self.same(other, budget),
        }
    }

    /// Equality as the left value sees it. Library types refuse to be compared with others.
    pub(crate) fn same(&self, other: &Value<'a>, budget: &mut Budget) -> Eval<bool> {
        budget.step()?;
        Ok(match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (
                Value::Int(_) | Value::Uint(_) | Value::Double(_),
                Value::Int(_) | Value::Uint(_) | Value::Double(_),
            ) => compare_numbers(self, other) == Some(Ordering::Equal),
            (Value::String(a), Value::String(b)) => a == b,
            (Value::Bytes(a), Value::Bytes(b)) => a == b,
            (Value::Duration(a), Value::Duration(b)) => a == b,
            (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
            (Value::Type(a), Value::Type(b)) => a.name() == b.name(),
            (Value::Optional(a), Value::Optional(b)) => match (a, b) {
                (Some(a), Some(b)) => return a.same(b, budget),
                (a, b) => a.is_none() && b.is_none(),
            },
            (Value::List(a), Value::List(b)) => return equal_lists(a, b, budget),
            (Value::Map(a), Value::Map(b)) => return equal_maps(a, b, budget),
            (Value::List(list), _) if !list.is_plain() => return Err(EvalError::no_such_overload()),
            (Value::Map(map), _) if !map.is_plain() => return Err(EvalError::no_such_overload()),
            (Value::Opaque(a), Value::Opaque(b)) => return equal_opaques(a, b),
            (Value::Opaque(_), _) => return Err(EvalError::no_such_overload()),
            (Value::Struct(a), Value::Struct(b)) => return equal_structs(a, b, budget),
            (Value::Preserved(json), other) => other.as_json().is_some_and(|other| deep_equal(json, other)),
            _ => false,
        })
    }

    /// -1, 0 or 1, where the types have an order.
    pub fn compare(&self, other: &Value<'a>) -> Eval<Ordering> {
        match (self, other) {
            (
                Value::Int(_) | Value::Uint(_) | Value::Double(_),
                Value::Int(_) | Value::Uint(_) | Value::Double(_),
            ) => {
                compare_numbers(self, other).ok_or_else(|| EvalError::invalid("NaN values cannot be ordered"))
            }
            (Value::Double(double), _) if double.is_nan() => {
                Err(EvalError::invalid("NaN values cannot be ordered"))
            }
            (Value::Bool(a), Value::Bool(b)) => Ok(a.cmp(b)),
            (Value::String(a), Value::String(b)) => Ok((**a).cmp(&**b)),
            (Value::Bytes(a), Value::Bytes(b)) => Ok(a.cmp(b)),
            (Value::Duration(a), Value::Duration(b)) => Ok(a.cmp(b)),
            (Value::Timestamp(a), Value::Timestamp(b)) => Ok(a.cmp(b)),
            _ => Err(EvalError::no_such_overload()),
        }
    }

    /// Whether the type has an order.
    pub fn is_ordered(&self) -> bool {
        matches!(
            self,
            Value::Bool(_)
                | Value::Int(_)
                | Value::Uint(_)
                | Value::Double(_)
                | Value::String(_)
                | Value::Bytes(_)
                | Value::Duration(_)
                | Value::Timestamp(_)
        )
    }

    fn as_json(&self) -> Option<&'a Json> {
        match self {
            Value::Preserved(json) => Some(json),
            _ => None,
        }
    }
}

fn equal_structs<'a>(a: &Struct<'a>, b: &Struct<'a>, budget: &mut Budget) -> Eval<bool> {
    if a.name != b.name || a.fields.len() != b.fields.len() {
        return Ok(false);
    }
    for (name, value) in &a.fields {
        match b.get(name) {
            Some(other) if value.same(other, budget)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Numbers of any types by their mathematical value; `None` if one is not a number.
fn compare_numbers(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Uint(a), Value::Uint(b)) => Some(a.cmp(b)),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Int(a), Value::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Uint(a), Value::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Double(a), Value::Int(b)) => double_and_int(*a, *b),
        (Value::Int(a), Value::Double(b)) => double_and_int(*b, *a).map(Ordering::reverse),
        (Value::Double(a), Value::Uint(b)) => double_and_uint(*a, *b),
        (Value::Uint(a), Value::Double(b)) => double_and_uint(*b, *a).map(Ordering::reverse),
        _ => None,
    }
}

// As in cel-go the integer is rounded to a double, unless the double lies outside of the integers.

fn double_and_int(double: f64, int: i64) -> Option<Ordering> {
    if double < i64::MIN as f64 {
        return Some(Ordering::Less);
    }
    if double > i64::MAX as f64 {
        return Some(Ordering::Greater);
    }
    double.partial_cmp(&(int as f64))
}

fn double_and_uint(double: f64, uint: u64) -> Option<Ordering> {
    if double < 0.0 {
        return Some(Ordering::Less);
    }
    if double > u64::MAX as f64 {
        return Some(Ordering::Greater);
    }
    double.partial_cmp(&(uint as f64))
}

fn equal_opaques(a: &Opaque, b: &Opaque) -> Eval<bool> {
    Ok(match (a, b) {
        (Opaque::Ip(a), Opaque::Ip(b)) => a == b,
        (Opaque::Cidr(a), Opaque::Cidr(b)) => a == b,
        (Opaque::Url(a), Opaque::Url(b)) => a.to_string() == b.to_string(),
        (Opaque::Semver(a), Opaque::Semver(b)) => a.compare(b) == Ordering::Equal,
        (Opaque::Format(a), Opaque::Format(b)) => a.title == b.title,
        (Opaque::Quantity(a), Opaque::Quantity(b)) => a.compare(&**b) == Ordering::Equal,
        (Opaque::Host(a), Opaque::Host(b)) if a.type_name() == b.type_name() => a.equals(&**b),
        _ => return Err(EvalError::no_such_overload()),
    })
}

fn equal_lists<'a>(a: &List<'a>, b: &List<'a>, budget: &mut Budget) -> Eval<bool> {
    if a.len() != b.len() {
        return Ok(false);
    }
    match a.kind() {
        None => equal_plain_lists(a, b, budget),
        Some(ListType::Atomic) => {
            for (a, b) in a.iter().zip(b.iter()) {
                if !a?.same(&b?, budget)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Some(ListType::Set) => {
            let elements: std::collections::HashSet<String> =
                a.values()?.iter().map(Value::identity).collect();
            for value in b.iter() {
                budget.step()?;
                if !elements.contains(&value?.identity()) {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Some(ListType::Map(keys)) => {
            let elements: std::collections::HashMap<String, Value<'a>> =
                a.values()?.into_iter().map(|value| (value.map_key(keys), value)).collect();
            for value in b.iter() {
                let value = value?;
                let Some(own) = elements.get(&value.map_key(keys)) else { return Ok(false) };
                if !own.same(&value, budget)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
    }
}

/// Elements that cannot be compared do not make CEL's own lists unequal.
fn equal_plain_lists<'a>(a: &List<'a>, b: &List<'a>, budget: &mut Budget) -> Eval<bool> {
    for (a, b) in a.iter().zip(b.iter()) {
        match a?.equals(&b?, budget) {
            Ok(false) => return Ok(false),
            Err(error) if error.is_fatal() => return Err(error),
            _ => {}
        }
    }
    Ok(true)
}

fn equal_maps<'a>(a: &Map<'a>, b: &Map<'a>, budget: &mut Budget) -> Eval<bool> {
    if a.len() != b.len() {
        return Ok(false);
    }
    if !a.is_plain() {
        return equal_typed_maps(a, b, budget);
    }
    for (key, value) in a.entries()? {
        budget.step()?;
        let Some(other) = b.find(&key)? else { return Ok(false) };
        match value.equals(&other, budget) {
            Ok(false) => return Ok(false),
            Err(error) if error.is_fatal() => return Err(error),
            _ => {}
        }
    }
    Ok(true)
}

fn equal_typed_maps<'a>(a: &Map<'a>, b: &Map<'a>, budget: &mut Budget) -> Eval<bool> {
    for key in a.keys() {
        budget.step()?;
        match (a.find(&key)?, b.find(&key)?) {
            (Some(value), Some(other)) => {
                if !value.same(&other, budget)? {
                    return Ok(false);
                }
            }
            (None, None) => {}
            _ => return Ok(false),
        }
    }
    // What the schema does not name is compared as data, where both have it.
    let Some(entries) = a.json_entries() else { return Ok(true) };
    for (name, value) in entries.iter().filter(|(name, _)| !a.types_field(name)) {
        let Some(others) = b.json_entries() else { return Err(EvalError::no_such_overload()) };
        if others.get(name).is_some_and(|other| !deep_equal(value, other)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Equal data: empty and absent lists and maps are the same, as in Kubernetes' semantic equality.
fn deep_equal(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Array(a), Json::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| deep_equal(a, b))
        }
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len()
                && a.iter().all(|(key, value)| b.get(key).is_some_and(|other| deep_equal(value, other)))
        }
        (a, b) => a == b,
    }
}

impl<'a> List<'a> {
    /// `in`: whether an element equals the value.
    pub fn contains(&self, needle: &Value<'a>, budget: &mut Budget) -> Eval<bool> {
        let mut failed = None;
        for element in self.iter() {
            // CEL's own lists ask the value, the views of a schema ask their elements and report what cannot be asked.
            let outcome = match self.is_plain() {
                true => element.and_then(|element| needle.same(&element, budget)),
                false => element.and_then(|element| element.same(needle, budget)),
            };
            match outcome {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) if !self.is_plain() => failed = failed.or(Some(error)),
                Err(_) => {}
            }
        }
        failed.map_or(Ok(false), Err)
    }
}
