//! Lists: Kubernetes' own library and cel-go's extension, version 3.

use std::cmp::Ordering;

use super::{arithmetic, strings::int};
use crate::{
    error::{ErrorKind, Eval, EvalError},
    functions::{Body, Context, Functions, Singleton},
    macros::MAP_INSERT,
    value::{List, Map, Value},
};

const ORDERED: &[&str] = &["int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"];

/// Kubernetes' own functions.
pub fn add_kubernetes(functions: &mut Functions) {
    for name in ORDERED {
        let is_sorted: Body = |_, args| is_sorted(args);
        functions.add_named(
            "isSorted",
            &format!("list_{name}_is_sorted_bool"),
            &format!("list({name}).() bool"),
            is_sorted,
        );
    }
    let sums: [(&str, Body); 4] = [
        ("int", |_, args| sum(args, Value::Int(0))),
        ("uint", |_, args| sum(args, Value::Uint(0))),
        ("double", |_, args| sum(args, Value::Double(0.0))),
        ("duration", |_, args| sum(args, Value::Duration(0))),
    ];
    for (name, body) in sums {
        functions.add_named(
            "sum",
            &format!("list_{name}_sum_{name}"),
            &format!("list({name}).() {name}"),
            body,
        );
    }
    let extremes: [(&str, Body); 2] = [
        ("max", |_, args| extreme(args, "max", Ordering::Less)),
        ("min", |_, args| extreme(args, "min", Ordering::Greater)),
    ];
    for (extreme, body) in extremes {
        for name in ORDERED {
            functions.add_named(
                extreme,
                &format!("list_{name}_{extreme}_{name}"),
                &format!("list({name}).() {name}"),
                body,
            );
        }
    }
    functions.add(&[
        ("indexOf", "list_a_index_of_int", "list(A).(A) int", |context, args| position(context, args, false)),
        ("lastIndexOf", "list_a_last_index_of_int", "list(A).(A) int", |context, args| {
            position(context, args, true)
        }),
    ]);
}

/// What two-variable comprehensions that make maps are rewritten to.
pub fn add_insert(functions: &mut Functions) {
    functions.add(&[
        (MAP_INSERT, "@mapInsert_map_key_value", "(map(K, V), K, V) map(K, V)", insert),
        (MAP_INSERT, "@mapInsert_map_map", "(map(K, V), map(K, V)) map(K, V)", insert),
    ]);
}

/// cel-go's extension library.
pub fn add_extended(functions: &mut Functions) {
    functions.add(&[
        ("slice", "list_slice", "list(T).(int, int) list(T)", slice),
        ("flatten", "list_flatten", "list(list(T)).() list(T)", flatten),
        ("flatten", "list_flatten_int", "list(dyn).(int) list(dyn)", flatten),
    ]);
    functions.unguard(&["flatten"]);
    let is_list = |value: &Value<'_>| matches!(value, Value::List(_));
    // The names of cel-go's types, not of the language's.
    let sortable = [
        ("int", "int"),
        ("uint", "uint"),
        ("double", "double"),
        ("bool", "bool"),
        ("google.protobuf.Duration", "duration"),
        ("google.protobuf.Timestamp", "timestamp"),
        ("string", "string"),
        ("bytes", "bytes"),
    ];
    let declare = |suffix: &str, keys: bool| -> Vec<(String, String)> {
        sortable
            .iter()
            .map(|(name, of)| {
                let signature = match keys {
                    false => format!("list({of}).() list({of})"),
                    true => format!("list(T).(list({of})) list(T)"),
                };
                (format!("list_{name}_{suffix}"), signature)
            })
            .collect()
    };
    let by_value: Body = |_, args| match args {
        [Value::List(list)] => sort(list, list),
        _ => Err(EvalError::no_such_overload()),
    };
    let by_keys: Body = |_, args| match args {
        [Value::List(list), Value::List(keys)] => sort(list, keys),
        _ => Err(EvalError::no_such_overload()),
    };
    for (name, body, rows) in [
        ("sort", by_value, declare("sort", false)),
        ("@sortByAssociatedKeys", by_keys, declare("sortByAssociatedKeys", true)),
    ] {
        let rows: Vec<(&str, &str)> =
            rows.iter().map(|(id, signature)| (id.as_str(), signature.as_str())).collect();
        functions.add_singleton(name, Singleton { body, accepts: is_list }, &rows);
    }
    functions.add(&[
        ("lists.range", "lists_range", "(int) list(int)", range),
        ("reverse", "list_reverse", "list(T).() list(T)", reverse),
        ("distinct", "list_distinct", "list(T).() list(T)", distinct),
    ]);
}

fn list<'v, 'a>(args: &'v [Value<'a>]) -> Eval<&'v List<'a>> {
    match args.first() {
        Some(Value::List(list)) => Ok(list),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn is_sorted<'a>(args: &[Value<'a>]) -> Eval<Value<'a>> {
    let mut previous: Option<Value<'a>> = None;
    for next in list(args)?.iter() {
        let next = next?;
        if !next.is_ordered() {
            return Err(EvalError::no_such_overload());
        }
        if let Some(previous) = previous
            && matches!(previous.compare(&next), Ok(Ordering::Greater))
        {
            return Ok(Value::Bool(false));
        }
        previous = Some(next);
    }
    Ok(Value::Bool(true))
}

fn sum<'a>(args: &[Value<'a>], zero: Value<'a>) -> Eval<Value<'a>> {
    list(args)?.iter().try_fold(zero, |sum, next| arithmetic::add(&sum, &next?))
}

fn extreme<'a>(args: &[Value<'a>], name: &str, prefer: Ordering) -> Eval<Value<'a>> {
    let mut best: Option<Value<'a>> = None;
    for next in list(args)?.iter() {
        let next = next?;
        if !next.is_ordered() {
            return Err(EvalError::no_such_overload());
        }
        let better = match &best {
            None => true,
            Some(best) => matches!(best.compare(&next), Ok(order) if order == prefer),
        };
        if better {
            best = Some(next);
        }
    }
    best.ok_or_else(|| EvalError::invalid(format!("{name} called on empty list")))
}

fn position<'a>(context: &mut Context<'_>, args: &[Value<'a>], last: bool) -> Eval<Value<'a>> {
    let list = list(args)?;
    let item = args.get(1).ok_or_else(EvalError::no_such_overload)?;
    let mut found = -1;
    for (index, element) in list.iter().enumerate() {
        match element.and_then(|element| element.same(item, context.budget)) {
            Ok(true) => found = index as i64,
            Err(error) if error.is_fatal() => return Err(error),
            _ => continue,
        }
        if !last {
            break;
        }
    }
    Ok(Value::Int(found))
}

/// Bytes are no keys: cel-go panics over them, here it is an ordinary failure.
pub fn check_key(key: &Value<'_>) -> Eval<()> {
    match key {
        Value::Bytes(_) => Err(EvalError::invalid("hash of unhashable type types.Bytes")),
        _ => Ok(()),
    }
}

/// Adds entries whose keys must be new.
pub fn insert_into<'a>(made: &mut crate::value::Made<'a>, key: &Value<'a>, value: &Value<'a>) -> Eval<()> {
    check_key(key)?;
    if made.find(key).is_some() {
        return Err(EvalError::invalid(format!("insert failed: key {key} already exists")));
    }
    made.insert(key.clone(), value.clone());
    Ok(())
}

fn insert<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let Some(Value::Map(map)) = args.first() else { return Err(EvalError::no_such_overload()) };
    let mut made = map.clone().into_made()?;
    match &args[1..] {
        [key, value] => insert_into(&mut made, key, value)?,
        [Value::Map(entries)] => {
            for (key, value) in entries.entries()? {
                insert_into(&mut made, &key, &value)?;
            }
        }
        _ => return Err(EvalError::no_such_overload()),
    }
    Ok(Value::Map(Map::made(made)))
}

fn slice<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let list = list(args)?;
    let (start, end) = (int(args, 1)?, int(args, 2)?);
    let refuse = |reason: String| Err(EvalError::invalid(format!("cannot slice({start}, {end}), {reason}")));
    if start < 0 || end < 0 {
        return refuse("negative indexes not supported".to_owned());
    }
    if start > end {
        return refuse("start index must be less than or equal to end index".to_owned());
    }
    if (list.len() as i64) < end {
        return refuse(format!("list is length {}", list.len()));
    }
    let elements: Eval<Vec<_>> = list.iter().skip(start as usize).take((end - start) as usize).collect();
    elements.map(Value::list)
}

fn flatten<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let (list, depth) = match args {
        [Value::List(list)] => (list, 1),
        [Value::List(list), Value::Int(depth)] => (list, *depth),
        _ => {
            let mut types = args.iter().map(|arg| arg.type_of().to_string());
            let (target, rest) = (types.next().unwrap_or_default(), types.collect::<Vec<_>>().join(", "));
            let message = format!("no such overload: {target}.flatten({rest})");
            return Err(EvalError::new(ErrorKind::NoSuchOverload, message));
        }
    };
    if depth < 0 {
        return Err(EvalError::invalid("level must be non-negative"));
    }
    let mut flat = Vec::new();
    flatten_into(context, list, depth, &mut flat)?;
    Ok(Value::list(flat))
}

fn flatten_into<'a>(
    context: &mut Context<'_>,
    list: &List<'a>,
    depth: i64,
    flat: &mut Vec<Value<'a>>,
) -> Eval<()> {
    for element in list.iter() {
        context.budget.step()?;
        match element? {
            Value::List(nested) if depth > 0 => flatten_into(context, &nested, depth - 1, flat)?,
            other => flat.push(other),
        }
    }
    Ok(())
}

fn sort<'a>(list: &List<'a>, keys: &List<'a>) -> Eval<Value<'a>> {
    if list.len() != keys.len() {
        return Err(EvalError::invalid(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} \
             elements respectively",
            list.len(),
            keys.len()
        )));
    }
    let keys = keys.values()?;
    let Some(first) = keys.first() else { return Ok(Value::List(list.clone())) };
    if !first.is_ordered() {
        return Err(EvalError::invalid("list elements must be comparable"));
    }
    if keys.iter().any(|key| key.type_name() != first.type_name()) {
        return Err(EvalError::invalid("list elements must have the same type"));
    }
    let mut positions: Vec<usize> = (0..keys.len()).collect();
    positions.sort_by(|a, b| keys[*a].compare(&keys[*b]).unwrap_or(Ordering::Equal));
    let values = list.values()?;
    Ok(Value::list(positions.into_iter().map(|position| values[position].clone()).collect()))
}

fn range<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let count = int(args, 0)?;
    // What the call will cost is known before it takes memory.
    context.budget.affords(u64::try_from(count).unwrap_or(0).saturating_add(11))?;
    Ok(Value::list((0..count).map(Value::Int).collect()))
}

fn reverse<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let mut values = list(args)?.values()?;
    values.reverse();
    Ok(Value::list(values))
}

fn distinct<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let list = list(args)?;
    if list.is_empty() {
        return Ok(Value::List(list.clone()));
    }
    let mut unique: Vec<Value<'a>> = Vec::new();
    'elements: for element in list.iter() {
        let element = element?;
        for other in &unique {
            match element.same(other, context.budget) {
                Ok(true) => continue 'elements,
                Err(error) if error.is_fatal() => return Err(error),
                _ => {}
            }
        }
        unique.push(element);
    }
    Ok(Value::list(unique))
}
