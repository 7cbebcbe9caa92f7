//! Arithmetic on values, checked: what does not fit is an error.

use crate::{
    error::{ErrorKind, Eval, EvalError},
    value::{Text, Value},
};

fn int_overflow() -> EvalError {
    EvalError::overflow("integer overflow")
}

fn uint_overflow() -> EvalError {
    EvalError::overflow("unsigned integer overflow")
}

pub fn add<'a>(left: &Value<'a>, right: &Value<'a>) -> Eval<Value<'a>> {
    Ok(match (left, right) {
        (Value::Int(a), Value::Int(b)) => Value::Int(a.checked_add(*b).ok_or_else(int_overflow)?),
        (Value::Uint(a), Value::Uint(b)) => Value::Uint(a.checked_add(*b).ok_or_else(uint_overflow)?),
        (Value::Double(a), Value::Double(b)) => Value::Double(a + b),
        (Value::String(a), Value::String(b)) => concat(a, b),
        (Value::Bytes(a), Value::Bytes(b)) => Value::Bytes([&a[..], &b[..]].concat().into()),
        (Value::List(a), Value::List(b)) => Value::List(a.concat(b)?),
        (Value::Duration(a), Value::Duration(b)) => {
            Value::Duration(a.checked_add(*b).ok_or_else(int_overflow)?)
        }
        (Value::Duration(nanos), Value::Timestamp(time))
        | (Value::Timestamp(time), Value::Duration(nanos)) => Value::Timestamp(time.add(*nanos)?),
        _ => return Err(EvalError::no_such_overload()),
    })
}

fn concat<'a>(a: &Text<'a>, b: &Text<'a>) -> Value<'a> {
    if a.is_empty() {
        return Value::String(b.clone());
    }
    if b.is_empty() {
        return Value::String(a.clone());
    }
    Value::string([&**a, &**b].concat())
}

pub fn subtract<'a>(left: &Value<'a>, right: &Value<'a>) -> Eval<Value<'a>> {
    Ok(match (left, right) {
        (Value::Int(a), Value::Int(b)) => Value::Int(a.checked_sub(*b).ok_or_else(int_overflow)?),
        (Value::Uint(a), Value::Uint(b)) => Value::Uint(a.checked_sub(*b).ok_or_else(uint_overflow)?),
        (Value::Double(a), Value::Double(b)) => Value::Double(a - b),
        (Value::Duration(a), Value::Duration(b)) => {
            Value::Duration(a.checked_sub(*b).ok_or_else(int_overflow)?)
        }
        (Value::Timestamp(time), Value::Duration(nanos)) => {
            Value::Timestamp(time.add(nanos.checked_neg().ok_or_else(int_overflow)?)?)
        }
        (Value::Timestamp(a), Value::Timestamp(b)) => Value::Duration(a.since(b)?),
        _ => return Err(EvalError::no_such_overload()),
    })
}

pub fn multiply<'a>(left: &Value<'a>, right: &Value<'a>) -> Eval<Value<'a>> {
    Ok(match (left, right) {
        (Value::Int(a), Value::Int(b)) => Value::Int(a.checked_mul(*b).ok_or_else(int_overflow)?),
        (Value::Uint(a), Value::Uint(b)) => Value::Uint(a.checked_mul(*b).ok_or_else(uint_overflow)?),
        (Value::Double(a), Value::Double(b)) => Value::Double(a * b),
        _ => return Err(EvalError::no_such_overload()),
    })
}

pub fn divide<'a>(left: &Value<'a>, right: &Value<'a>) -> Eval<Value<'a>> {
    let by_zero = || EvalError::new(ErrorKind::DivisionByZero, "division by zero");
    Ok(match (left, right) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => return Err(by_zero()),
        (Value::Int(a), Value::Int(b)) => Value::Int(a.checked_div(*b).ok_or_else(int_overflow)?),
        (Value::Uint(a), Value::Uint(b)) => Value::Uint(a / b),
        (Value::Double(a), Value::Double(b)) => Value::Double(a / b),
        _ => return Err(EvalError::no_such_overload()),
    })
}

pub fn modulo<'a>(left: &Value<'a>, right: &Value<'a>) -> Eval<Value<'a>> {
    let by_zero = || EvalError::new(ErrorKind::DivisionByZero, "modulus by zero");
    Ok(match (left, right) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => return Err(by_zero()),
        (Value::Int(a), Value::Int(b)) => Value::Int(a.checked_rem(*b).ok_or_else(int_overflow)?),
        (Value::Uint(a), Value::Uint(b)) => Value::Uint(a % b),
        _ => return Err(EvalError::no_such_overload()),
    })
}

pub fn negate<'a>(value: &Value<'a>) -> Eval<Value<'a>> {
    Ok(match value {
        Value::Int(value) => Value::Int(value.checked_neg().ok_or_else(int_overflow)?),
        Value::Double(value) => Value::Double(-value),
        Value::Duration(nanos) => Value::Duration(nanos.checked_neg().ok_or_else(int_overflow)?),
        _ => return Err(EvalError::no_such_overload()),
    })
}
