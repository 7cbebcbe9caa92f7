//! Conversions between types.

use std::sync::Arc;

use crate::{
    error::{Eval, EvalError},
    functions::{Context, Functions, Singleton},
    number,
    time::{self, Time},
    types::Type,
    value::{Opaque, Value},
};

pub fn add(functions: &mut Functions) {
    let type_of = Singleton {
        body: |_, args| match args {
            [value] => Ok(Value::Type(value.type_of())),
            _ => Err(EvalError::no_such_overload()),
        },
        accepts: |_| true,
    };
    functions.add_singleton("type", type_of, &[("type", "(A) type(A)")]);
    functions.add_singleton("dyn", Singleton { body: same, accepts: |_| true }, &[("to_dyn", "(A) dyn")]);
    functions.add(&[
        ("bool", "bool_to_bool", "(bool) bool", same),
        ("bool", "string_to_bool", "(string) bool", to_bool),
        ("bytes", "bytes_to_bytes", "(bytes) bytes", same),
        ("bytes", "string_to_bytes", "(string) bytes", to_bytes),
        ("double", "double_to_double", "(double) double", same),
        ("double", "int64_to_double", "(int) double", to_double),
        ("double", "string_to_double", "(string) double", to_double),
        ("double", "uint64_to_double", "(uint) double", to_double),
        ("duration", "duration_to_duration", "(duration) duration", same),
        ("duration", "int64_to_duration", "(int) duration", to_duration),
        ("duration", "string_to_duration", "(string) duration", to_duration),
        ("int", "int64_to_int64", "(int) int", same),
        ("int", "double_to_int64", "(double) int", to_int),
        ("int", "duration_to_int64", "(duration) int", to_int),
        ("int", "string_to_int64", "(string) int", to_int),
        ("int", "timestamp_to_int64", "(timestamp) int", to_int),
        ("int", "uint64_to_int64", "(uint) int", to_int),
        ("string", "string_to_string", "(string) string", same),
        ("string", "bool_to_string", "(bool) string", to_string),
        ("string", "bytes_to_string", "(bytes) string", to_string),
        ("string", "double_to_string", "(double) string", to_string),
        ("string", "duration_to_string", "(duration) string", to_string),
        ("string", "int64_to_string", "(int) string", to_string),
        ("string", "timestamp_to_string", "(timestamp) string", to_string),
        ("string", "uint64_to_string", "(uint) string", to_string),
        ("timestamp", "timestamp_to_timestamp", "(timestamp) timestamp", same),
        ("timestamp", "int64_to_timestamp", "(int) timestamp", to_timestamp),
        ("timestamp", "string_to_timestamp", "(string) timestamp", to_timestamp),
        ("uint", "uint64_to_uint64", "(uint) uint", same),
        ("uint", "double_to_uint64", "(double) uint", to_uint),
        ("uint", "int64_to_uint64", "(int) uint", to_uint),
        ("uint", "string_to_uint64", "(string) uint", to_uint),
    ]);
}

/// The functions whose calls with a constant are computed before evaluation.
pub const CONVERSIONS: &[&str] =
    &["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];

fn one<'v, 'a>(args: &'v [Value<'a>]) -> Eval<&'v Value<'a>> {
    args.first().ok_or_else(EvalError::no_such_overload)
}

fn cannot<'a>(value: &Value<'a>, to: &Type) -> EvalError {
    EvalError::invalid(format!("type conversion error from '{}' to '{}'", value.type_name(), to.name()))
}

fn same<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    one(args).cloned()
}

fn to_bool<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let value = one(args)?;
    match value.as_str() {
        Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(Value::Bool(true)),
        Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(Value::Bool(false)),
        _ => Err(cannot(value, &Type::Bool)),
    }
}

fn to_bytes<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let value = one(args)?;
    let text = value.as_str().ok_or_else(|| cannot(value, &Type::Bytes))?;
    Ok(Value::Bytes(Arc::from(text.as_bytes())))
}

fn to_double<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let value = one(args)?;
    let double = match value {
        Value::Int(value) => Some(*value as f64),
        Value::Uint(value) => Some(*value as f64),
        Value::String(text) => number::parse_double(text),
        _ => None,
    };
    double.map(Value::Double).ok_or_else(|| cannot(value, &Type::Double))
}

fn to_duration<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let value = one(args)?;
    let nanos = match value {
        Value::String(text) => time::parse_duration(text),
        // cel-go declares the conversion from int and has none.
        _ => None,
    };
    nanos.map(Value::Duration).ok_or_else(|| cannot(value, &Type::Duration))
}

fn to_int<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let value = one(args)?;
    let overflow = || EvalError::overflow("integer overflow");
    let int = match value {
        Value::Double(double) => {
            let fits = *double > i64::MIN as f64 && *double < i64::MAX as f64;
            fits.then_some(*double as i64).ok_or_else(overflow)?
        }
        Value::Uint(uint) => i64::try_from(*uint).map_err(|_| overflow())?,
        Value::Duration(nanos) => *nanos,
        Value::Timestamp(time) => time.seconds(),
        Value::String(text) => number::parse_int(text).ok_or_else(|| cannot(value, &Type::Int))?,
        _ => return Err(cannot(value, &Type::Int)),
    };
    Ok(Value::Int(int))
}

fn to_uint<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let value = one(args)?;
    let overflow = || EvalError::overflow("unsigned integer overflow");
    let uint = match value {
        Value::Double(double) => {
            let fits = *double >= 0.0 && *double < u64::MAX as f64;
            fits.then_some(*double as u64).ok_or_else(overflow)?
        }
        Value::Int(int) => u64::try_from(*int).map_err(|_| overflow())?,
        Value::String(text) => number::parse_uint(text).ok_or_else(|| cannot(value, &Type::Uint))?,
        _ => return Err(cannot(value, &Type::Uint)),
    };
    Ok(Value::Uint(uint))
}

fn to_string<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    string_of(one(args)?)
}

/// `string(value)`, for those types that have it.
pub fn string_of<'a>(value: &Value<'a>) -> Eval<Value<'a>> {
    Ok(Value::string(match value {
        Value::String(_) => return Ok(value.clone()),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => number::shortest(*value),
        Value::Bytes(bytes) => std::str::from_utf8(bytes)
            .map_err(|_| EvalError::invalid("invalid UTF-8 in bytes, cannot convert to string"))?
            .to_owned(),
        Value::Duration(nanos) => time::cel_duration(*nanos),
        Value::Timestamp(time) => time.rfc3339(),
        Value::Type(of) => of.name().to_owned(),
        Value::Null => "null".to_owned(),
        Value::Opaque(opaque @ (Opaque::Ip(_) | Opaque::Cidr(_))) => opaque.to_string(),
        _ => return Err(cannot(value, &Type::String)),
    }))
}

fn to_timestamp<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let value = one(args)?;
    match value {
        Value::Int(seconds) => Time::from_unix(*seconds, 0, 0).map(Value::Timestamp),
        Value::String(text) => match Time::parse_rfc3339(text) {
            Some(time) if time.in_range() => Ok(Value::Timestamp(time)),
            Some(_) => Err(EvalError::overflow("timestamp overflow")),
            None => Err(cannot(value, &Type::Timestamp)),
        },
        _ => Err(cannot(value, &Type::Timestamp)),
    }
}
