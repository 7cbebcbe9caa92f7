//! Quantities of resources; the host computes with them.

use std::{cmp::Ordering, sync::Arc};

use super::strings::text;
use crate::{
    error::{Eval, EvalError},
    functions::{Context, Functions},
    value::{Opaque, Quantity, Value},
};

pub fn add(functions: &mut Functions) {
    functions.add(&[
        ("quantity", "string_to_quantity", "(string) kubernetes.Quantity", |context, args| {
            parse(context, text(args, 0)?).map(value).map_err(EvalError::invalid)
        }),
        ("isQuantity", "is_quantity_string", "(string) bool", |context, args| {
            Ok(Value::Bool(parse(context, text(args, 0)?).is_ok()))
        }),
        ("sign", "quantity_sign", "(kubernetes.Quantity) int", |_, args| {
            Ok(Value::Int(quantity(args, 0)?.sign()))
        }),
        (
            "isGreaterThan",
            "quantity_is_greater_than",
            "kubernetes.Quantity.(kubernetes.Quantity) bool",
            |_, args| Ok(Value::Bool(compare(args)? == Ordering::Greater)),
        ),
        (
            "isLessThan",
            "quantity_is_less_than",
            "kubernetes.Quantity.(kubernetes.Quantity) bool",
            |_, args| Ok(Value::Bool(compare(args)? == Ordering::Less)),
        ),
        ("compareTo", "quantity_compare_to", "kubernetes.Quantity.(kubernetes.Quantity) int", |_, args| {
            Ok(Value::Int(compare(args)? as i64))
        }),
        ("asApproximateFloat", "quantity_get_float", "kubernetes.Quantity.() double", |_, args| {
            Ok(Value::Double(quantity(args, 0)?.as_approximate_float()))
        }),
        ("asInteger", "quantity_get_int", "kubernetes.Quantity.() int", |_, args| {
            let integer = quantity(args, 0)?.as_integer();
            integer.map(Value::Int).ok_or_else(|| EvalError::invalid("cannot convert value to integer"))
        }),
        ("isInteger", "quantity_is_integer", "kubernetes.Quantity.() bool", |_, args| {
            Ok(Value::Bool(quantity(args, 0)?.as_integer().is_some()))
        }),
        ("add", "quantity_add", "kubernetes.Quantity.(kubernetes.Quantity) kubernetes.Quantity", sum),
        ("add", "quantity_add_int", "kubernetes.Quantity.(int) kubernetes.Quantity", sum),
        ("sub", "quantity_sub", "kubernetes.Quantity.(kubernetes.Quantity) kubernetes.Quantity", difference),
        ("sub", "quantity_sub_int", "kubernetes.Quantity.(int) kubernetes.Quantity", difference),
    ]);
}

fn value<'a>(quantity: Arc<dyn Quantity>) -> Value<'a> {
    Value::Opaque(Opaque::Quantity(quantity))
}

fn parse(context: &Context<'_>, text: &str) -> Result<Arc<dyn Quantity>, String> {
    context.host.parse_quantity(text)
}

fn quantity<'v>(args: &'v [Value<'_>], index: usize) -> Eval<&'v Arc<dyn Quantity>> {
    match args.get(index) {
        Some(Value::Opaque(Opaque::Quantity(quantity))) => Ok(quantity),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn compare(args: &[Value<'_>]) -> Eval<Ordering> {
    Ok(quantity(args, 0)?.compare(&**quantity(args, 1)?))
}

/// The second operand: a quantity, or an int that is one.
fn operand(context: &Context<'_>, args: &[Value<'_>]) -> Eval<Arc<dyn Quantity>> {
    match args.get(1) {
        Some(Value::Int(int)) => parse(context, &int.to_string()).map_err(EvalError::invalid),
        _ => quantity(args, 1).cloned(),
    }
}

fn sum<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let other = operand(context, args)?;
    Ok(value(quantity(args, 0)?.add(&*other)))
}

fn difference<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let other = operand(context, args)?;
    Ok(value(quantity(args, 0)?.subtract(&*other)))
}
