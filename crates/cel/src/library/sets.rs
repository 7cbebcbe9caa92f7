//! Lists as sets: cel-go's extension library.

use crate::{
    error::{Eval, EvalError},
    functions::{Context, Functions},
    value::{List, Value},
};

pub fn add(functions: &mut Functions) {
    functions.add(&[
        ("sets.contains", "list_sets_contains_list", "(list(T), list(T)) bool", |context, args| {
            let (list, part) = pair(args)?;
            contains_all(context, list, part).map(Value::Bool)
        }),
        ("sets.equivalent", "list_sets_equivalent_list", "(list(T), list(T)) bool", |context, args| {
            let (a, b) = pair(args)?;
            Ok(Value::Bool(contains_all(context, a, b)? && contains_all(context, b, a)?))
        }),
        ("sets.intersects", "list_sets_intersects_list", "(list(T), list(T)) bool", |context, args| {
            let (a, b) = pair(args)?;
            for element in a.iter() {
                match b.contains(&element?, context.budget) {
                    Ok(true) => return Ok(Value::Bool(true)),
                    Err(error) if error.is_fatal() => return Err(error),
                    _ => {}
                }
            }
            Ok(Value::Bool(false))
        }),
    ]);
}

fn pair<'v, 'a>(args: &'v [Value<'a>]) -> Eval<(&'v List<'a>, &'v List<'a>)> {
    match args {
        [Value::List(a), Value::List(b)] => Ok((a, b)),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn contains_all<'a>(context: &mut Context<'_>, list: &List<'a>, part: &List<'a>) -> Eval<bool> {
    for element in part.iter() {
        if !list.contains(&element?, context.budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}
