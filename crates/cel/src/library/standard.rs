//! Operators and the functions every CEL has.

use std::cmp::Ordering;

use super::arithmetic;
use crate::{
    ast::operator,
    error::{Eval, EvalError},
    functions::{Body, Functions, Singleton},
    value::Value,
};

const NUMBER_PAIRS: &[(&str, &str)] = &[
    ("bool", "(bool, bool) bool"),
    ("int64", "(int, int) bool"),
    ("int64_double", "(int, double) bool"),
    ("int64_uint64", "(int, uint) bool"),
    ("uint64", "(uint, uint) bool"),
    ("uint64_double", "(uint, double) bool"),
    ("uint64_int64", "(uint, int) bool"),
    ("double", "(double, double) bool"),
    ("double_int64", "(double, int) bool"),
    ("double_uint64", "(double, uint) bool"),
    ("string", "(string, string) bool"),
    ("bytes", "(bytes, bytes) bool"),
    ("timestamp", "(timestamp, timestamp) bool"),
    ("duration", "(duration, duration) bool"),
];

const fn always(_: &Value<'_>) -> bool {
    true
}

pub fn add(functions: &mut Functions) {
    add_logic(functions);
    add_operators(functions);
    add_comparisons(functions);
    add_aggregates(functions);
    functions.add(&[
        ("contains", "contains_string", "string.(string) bool", |_, args| {
            text_test(args, |s, p| s.contains(p))
        }),
        ("endsWith", "ends_with_string", "string.(string) bool", |_, args| {
            text_test(args, |s, p| s.ends_with(p))
        }),
        ("startsWith", "starts_with_string", "string.(string) bool", |_, args| {
            text_test(args, |s, p| s.starts_with(p))
        }),
    ]);
    functions.unguard(&["contains", "endsWith", "startsWith"]);
}

/// Logic is evaluated by the planner; here are only its declarations.
fn add_logic(functions: &mut Functions) {
    let planned = Singleton { body: |_, _| Err(EvalError::no_such_overload()), accepts: always };
    functions.add_singleton(operator::CONDITIONAL, planned, &[("conditional", "(bool, A, A) A")]);
    functions.add_singleton(operator::AND, planned, &[("logical_and", "(bool, bool) bool")]);
    functions.add_singleton(operator::OR, planned, &[("logical_or", "(bool, bool) bool")]);
    functions.add_singleton(operator::EQUALS, planned, &[("equals", "(A, A) bool")]);
    functions.add_singleton(operator::NOT_EQUALS, planned, &[("not_equals", "(A, A) bool")]);
    functions.add_singleton(
        operator::INDEX,
        planned,
        &[("index_list", "(list(A), int) A"), ("index_map", "(map(A, B), A) B")],
    );
    let not: Body = |_, args| match args {
        [Value::Bool(value)] => Ok(Value::Bool(!value)),
        _ => Err(EvalError::no_such_overload()),
    };
    let not = Singleton { body: not, accepts: always };
    functions.add_singleton(operator::NOT, not, &[("logical_not", "(bool) bool")]);
    let body: Body = |_, args| match args {
        [Value::Bool(value)] => Ok(Value::Bool(*value)),
        _ => Ok(Value::Bool(true)),
    };
    let overload = ("not_strictly_false", "(bool) bool");
    functions.add_singleton(operator::NOT_STRICTLY_FALSE, Singleton { body, accepts: always }, &[overload]);
}

fn add_operators(functions: &mut Functions) {
    let binary = |functions: &mut Functions, name, body: Body, accepts, overloads: &[(&str, &str)]| {
        functions.add_singleton(name, Singleton { body, accepts }, overloads);
    };
    binary(
        functions,
        operator::ADD,
        |_, args| pair(args, arithmetic::add),
        adds,
        &[
            ("add_bytes", "(bytes, bytes) bytes"),
            ("add_double", "(double, double) double"),
            ("add_duration_duration", "(duration, duration) duration"),
            ("add_duration_timestamp", "(duration, timestamp) timestamp"),
            ("add_timestamp_duration", "(timestamp, duration) timestamp"),
            ("add_int64", "(int, int) int"),
            ("add_list", "(list(A), list(A)) list(A)"),
            ("add_string", "(string, string) string"),
            ("add_uint64", "(uint, uint) uint"),
        ],
    );
    binary(
        functions,
        operator::DIVIDE,
        |_, args| pair(args, arithmetic::divide),
        is_number,
        &[
            ("divide_double", "(double, double) double"),
            ("divide_int64", "(int, int) int"),
            ("divide_uint64", "(uint, uint) uint"),
        ],
    );
    binary(
        functions,
        operator::MODULO,
        |_, args| pair(args, arithmetic::modulo),
        is_integer,
        &[("modulo_int64", "(int, int) int"), ("modulo_uint64", "(uint, uint) uint")],
    );
    binary(
        functions,
        operator::MULTIPLY,
        |_, args| pair(args, arithmetic::multiply),
        is_number,
        &[
            ("multiply_double", "(double, double) double"),
            ("multiply_int64", "(int, int) int"),
            ("multiply_uint64", "(uint, uint) uint"),
        ],
    );
    let negate: Body = |_, args| match args {
        [value] => arithmetic::negate(value),
        _ => Err(EvalError::no_such_overload()),
    };
    binary(
        functions,
        operator::NEGATE,
        negate,
        negates,
        &[("negate_double", "(double) double"), ("negate_int64", "(int) int")],
    );
    binary(
        functions,
        operator::SUBTRACT,
        |_, args| pair(args, arithmetic::subtract),
        subtracts,
        &[
            ("subtract_double", "(double, double) double"),
            ("subtract_duration_duration", "(duration, duration) duration"),
            ("subtract_int64", "(int, int) int"),
            ("subtract_timestamp_duration", "(timestamp, duration) timestamp"),
            ("subtract_timestamp_timestamp", "(timestamp, timestamp) duration"),
            ("subtract_uint64", "(uint, uint) uint"),
        ],
    );
}

fn add_comparisons(functions: &mut Functions) {
    let rows: [(&str, &str, Body); 4] = [
        (operator::LESS, "less", |_, args| order(args, Ordering::is_lt)),
        (operator::LESS_EQUALS, "less_equals", |_, args| order(args, Ordering::is_le)),
        (operator::GREATER, "greater", |_, args| order(args, Ordering::is_gt)),
        (operator::GREATER_EQUALS, "greater_equals", |_, args| order(args, Ordering::is_ge)),
    ];
    for (name, prefix, body) in rows {
        let ids: Vec<(String, &str)> = NUMBER_PAIRS
            .iter()
            .map(|(suffix, signature)| (format!("{prefix}_{suffix}"), *signature))
            .collect();
        let overloads: Vec<(&str, &str)> =
            ids.iter().map(|(id, signature)| (id.as_str(), *signature)).collect();
        functions.add_singleton(name, Singleton { body, accepts: |value| value.is_ordered() }, &overloads);
    }
}

fn add_aggregates(functions: &mut Functions) {
    let contains: Body = |context, args| match args {
        [needle, Value::List(list)] => list.contains(needle, context.budget).map(Value::Bool),
        [key, Value::Map(map)] => map.find(key).map(|found| Value::Bool(found.is_some())),
        _ => Err(EvalError::no_such_overload()),
    };
    let overloads = [("in_list", "(A, list(A)) bool"), ("in_map", "(A, map(A, B)) bool")];
    functions.add_singleton(operator::IN, Singleton { body: contains, accepts: always }, &overloads);
    let size: Body = |_, args| match args {
        [value] => value.size().map(|size| Value::Int(size as i64)).ok_or_else(EvalError::no_such_overload),
        _ => Err(EvalError::no_such_overload()),
    };
    let has_size = |value: &Value<'_>| {
        matches!(value, Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_))
    };
    functions.add_singleton(
        "size",
        Singleton { body: size, accepts: has_size },
        &[
            ("size_bytes", "(bytes) int"),
            ("bytes_size", "bytes.() int"),
            ("size_list", "(list(A)) int"),
            ("list_size", "list(A).() int"),
            ("size_map", "(map(A, B)) int"),
            ("map_size", "map(A, B).() int"),
            ("size_string", "(string) int"),
            ("string_size", "string.() int"),
        ],
    );
}

fn pair<'a>(args: &[Value<'a>], operation: fn(&Value<'a>, &Value<'a>) -> Eval<Value<'a>>) -> Eval<Value<'a>> {
    match args {
        [left, right] => operation(left, right),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn order<'a>(args: &[Value<'a>], test: fn(Ordering) -> bool) -> Eval<Value<'a>> {
    match args {
        [left, right] => left.compare(right).map(|order| Value::Bool(test(order))),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn text_test<'a>(args: &[Value<'a>], test: fn(&str, &str) -> bool) -> Eval<Value<'a>> {
    match args {
        [Value::String(text), Value::String(part)] => Ok(Value::Bool(test(text, part))),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn is_integer(value: &Value<'_>) -> bool {
    matches!(value, Value::Int(_) | Value::Uint(_))
}

fn is_number(value: &Value<'_>) -> bool {
    is_integer(value) || matches!(value, Value::Double(_))
}

fn subtracts(value: &Value<'_>) -> bool {
    is_number(value) || matches!(value, Value::Duration(_) | Value::Timestamp(_))
}

fn adds(value: &Value<'_>) -> bool {
    subtracts(value) || matches!(value, Value::String(_) | Value::Bytes(_) | Value::List(_))
}

fn negates(value: &Value<'_>) -> bool {
    matches!(value, Value::Int(_) | Value::Double(_) | Value::Duration(_) | Value::Bool(_))
}
