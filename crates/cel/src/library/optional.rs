//! Values that may be absent.

use crate::{
    ast::operator,
    error::{Eval, EvalError},
    functions::{Context, Functions},
    value::Value,
};

pub fn add(functions: &mut Functions) {
    functions.add(&[
        ("optional.of", "optional_of", "(V) optional(V)", |_, args| {
            Ok(Value::optional(args.first().cloned()))
        }),
        ("optional.ofNonZeroValue", "optional_ofNonZeroValue", "(V) optional(V)", |_, args| {
            Ok(Value::optional(args.first().filter(|value| !value.is_zero()).cloned()))
        }),
    ]);
    functions.add_variadic(&[("optional.none", "optional_none", "() optional(V)", |_, _| {
        Ok(Value::Optional(None))
    })]);
    functions.add(&[
        ("value", "optional_value", "optional(V).() V", |_, args| match args {
            [Value::Optional(Some(value))] => Ok((**value).clone()),
            [Value::Optional(None)] => Err(EvalError::invalid("optional.none() dereference")),
            _ => Err(EvalError::no_such_overload()),
        }),
        ("hasValue", "optional_hasValue", "optional(V).() bool", |_, args| match args {
            [Value::Optional(value)] => Ok(Value::Bool(value.is_some())),
            _ => Err(EvalError::no_such_overload()),
        }),
    ]);
    functions.declare("or", &[("optional_or_optional", "optional(V).(optional(V)) optional(V)")]);
    functions.declare("orValue", &[("optional_orValue_value", "optional(V).(V) V")]);
    functions.declare(operator::OPT_SELECT, &[("select_optional_field", "(dyn, string) optional(V)")]);
    functions.declare(
        operator::OPT_INDEX,
        &[
            ("list_optindex_optional_int", "(list(V), int) optional(V)"),
            ("optional_list_optindex_optional_int", "(optional(list(V)), int) optional(V)"),
            ("map_optindex_optional_value", "(map(K, V), K) optional(V)"),
            ("optional_map_optindex_optional_value", "(optional(map(K, V)), K) optional(V)"),
        ],
    );
    functions.declare(
        operator::INDEX,
        &[
            ("optional_list_index_int", "(optional(list(V)), int) optional(V)"),
            ("optional_map_index_value", "(optional(map(K, V)), K) optional(V)"),
        ],
    );
    functions.add(&[
        ("last", "list_last", "list(V).() optional(V)", |_, args| end(args, true)),
        ("first", "list_first", "list(V).() optional(V)", |_, args| end(args, false)),
        ("optional.unwrap", "optional_unwrap", "(list(optional(V))) list(V)", unwrap),
        ("unwrapOpt", "optional_unwrapOpt", "list(optional(V)).() list(V)", unwrap),
    ]);
}

fn end<'a>(args: &[Value<'a>], last: bool) -> Eval<Value<'a>> {
    let Some(Value::List(list)) = args.first() else { return Err(EvalError::no_such_overload()) };
    let index = if last { list.len().wrapping_sub(1) } else { 0 };
    list.get(index).transpose().map(Value::optional)
}

fn unwrap<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let Some(Value::List(list)) = args.first() else { return Err(EvalError::no_such_overload()) };
    let mut values = Vec::new();
    for element in list.iter() {
        match element? {
            Value::Optional(Some(value)) => values.push((*value).clone()),
            Value::Optional(None) => {}
            other => return Err(EvalError::invalid(format!("value {other} is not optional"))),
        }
    }
    Ok(Value::list(values))
}
