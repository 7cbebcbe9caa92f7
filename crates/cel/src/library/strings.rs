//! Strings: cel-go's extension library, version 2.

use crate::{
    error::{Eval, EvalError},
    functions::{Context, Functions},
    value::Value,
};

pub fn add(functions: &mut Functions) {
    functions.add(&[
        ("charAt", "string_char_at_int", "string.(int) string", char_at),
        ("indexOf", "string_index_of_string", "string.(string) int", index_of),
        ("indexOf", "string_index_of_string_int", "string.(string, int) int", index_of),
        ("lastIndexOf", "string_last_index_of_string", "string.(string) int", last_index_of),
        ("lastIndexOf", "string_last_index_of_string_int", "string.(string, int) int", last_index_of),
        ("lowerAscii", "string_lower_ascii", "string.() string", |_, args| {
            Ok(Value::string(text(args, 0)?.to_ascii_lowercase()))
        }),
        ("replace", "string_replace_string_string", "string.(string, string) string", replace),
        ("replace", "string_replace_string_string_int", "string.(string, string, int) string", replace),
        ("split", "string_split_string", "string.(string) list(string)", split),
        ("split", "string_split_string_int", "string.(string, int) list(string)", split),
        ("substring", "string_substring_int", "string.(int) string", substring),
        ("substring", "string_substring_int_int", "string.(int, int) string", substring),
        ("trim", "string_trim", "string.() string", |_, args| Ok(Value::string(trim(text(args, 0)?)))),
        ("upperAscii", "string_upper_ascii", "string.() string", |_, args| {
            Ok(Value::string(text(args, 0)?.to_ascii_uppercase()))
        }),
    ]);
    functions.add_variadic(&[(
        "format",
        "string_format",
        "string.(list(dyn)) string",
        super::string_format::format,
    )]);
    functions.add(&[
        ("strings.quote", "strings_quote", "(string) string", |_, args| {
            Ok(Value::string(quote(text(args, 0)?)))
        }),
        ("join", "list_join", "list(string).() string", join),
        ("join", "list_join_string", "list(string).(string) string", join),
    ]);
}

pub fn text<'v>(args: &'v [Value<'_>], index: usize) -> Eval<&'v str> {
    args.get(index).and_then(Value::as_str).ok_or_else(EvalError::no_such_overload)
}

pub fn int(args: &[Value<'_>], index: usize) -> Eval<i64> {
    match args.get(index) {
        Some(Value::Int(value)) => Ok(*value),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn out_of_range(index: i64) -> EvalError {
    EvalError::invalid(format!("index out of range: {index}"))
}

fn char_at<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let (text, index) = (text(args, 0)?, int(args, 1)?);
    let position = usize::try_from(index).map_err(|_| out_of_range(index))?;
    if position > text.chars().count() {
        return Err(out_of_range(index));
    }
    Ok(Value::string(text.chars().nth(position).map(String::from).unwrap_or_default()))
}

fn index_of<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let offset = if args.len() > 2 { int(args, 2)? } else { 0 };
    if text(args, 1)?.is_empty() {
        return Ok(Value::Int(offset));
    }
    let haystack: Vec<char> = text(args, 0)?.chars().collect();
    let needle: Vec<char> = text(args, 1)?.chars().collect();
    let start = usize::try_from(offset).map_err(|_| out_of_range(offset))?;
    if start >= haystack.len() {
        return Ok(Value::Int(-1));
    }
    for position in start..haystack.len() {
        context.budget.step()?;
        if haystack[position..].starts_with(&needle) {
            return Ok(Value::Int(position as i64));
        }
    }
    Ok(Value::Int(-1))
}

fn last_index_of<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let haystack: Vec<char> = text(args, 0)?.chars().collect();
    let needle: Vec<char> = text(args, 1)?.chars().collect();
    let given = if args.len() > 2 { Some(int(args, 2)?) } else { None };
    if needle.is_empty() {
        return Ok(Value::Int(given.unwrap_or(haystack.len() as i64)));
    }
    if given.is_none() && text(args, 0)?.len() < text(args, 1)?.len() {
        return Ok(Value::Int(-1));
    }
    let offset = given.unwrap_or(haystack.len() as i64 - 1);
    let start = usize::try_from(offset).map_err(|_| out_of_range(offset))?;
    if start >= haystack.len() || needle.len() > haystack.len() {
        return Ok(Value::Int(-1));
    }
    for position in (0..=start.min(haystack.len() - needle.len())).rev() {
        context.budget.step()?;
        if haystack[position..].starts_with(&needle) {
            return Ok(Value::Int(position as i64));
        }
    }
    Ok(Value::Int(-1))
}

fn replace<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let (whole, old, new) = (text(args, 0)?, text(args, 1)?, text(args, 2)?);
    let limit = if args.len() > 3 { int(args, 3)? } else { -1 };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let found = if old.is_empty() { whole.chars().count() + 1 } else { whole.matches(old).count() };
    let count = found.min(limit) as u64;
    context.budget.room((whole.len() as u64).saturating_add(count.saturating_mul(new.len() as u64)))?;
    Ok(Value::string(whole.replacen(old, new, limit.min(found))))
}

fn split<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let (whole, separator) = (text(args, 0)?, text(args, 1)?);
    let limit = if args.len() > 2 { int(args, 2)? } else { -1 };
    let limit = match limit {
        0 => return Ok(Value::list(Vec::new())),
        negative if negative < 0 => usize::MAX,
        positive => positive as usize,
    };
    context.budget.room(whole.len() as u64)?;
    if !separator.is_empty() {
        return Ok(Value::strings(whole.splitn(limit, separator).map(String::from)));
    }
    // Without a separator every character is a part, the last one takes the rest.
    let mut parts = Vec::new();
    let mut rest = whole;
    while let Some(character) = rest.chars().next() {
        if parts.len() + 1 == limit {
            parts.push(rest.to_owned());
            break;
        }
        parts.push(character.to_string());
        rest = &rest[character.len_utf8()..];
    }
    Ok(Value::strings(parts))
}

fn substring<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let whole = text(args, 0)?;
    let length = whole.chars().count() as i64;
    let start = int(args, 1)?;
    let end = if args.len() > 2 { int(args, 2)? } else { length };
    if args.len() > 2 && start > end {
        let message = format!("invalid substring range. start: {start}, end: {end}");
        return Err(EvalError::invalid(message));
    }
    for index in [start, end] {
        if !(0..=length).contains(&index) {
            return Err(out_of_range(index));
        }
    }
    let part: String = whole.chars().skip(start as usize).take((end - start) as usize).collect();
    Ok(Value::string(part))
}

/// Without white space as Go knows it at the ends.
fn trim(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace())
}

fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

fn join<'a>(context: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let Some(Value::List(list)) = args.first() else { return Err(EvalError::no_such_overload()) };
    let separator = if args.len() > 1 { text(args, 1)? } else { "" };
    let mut joined = String::new();
    for (index, element) in list.iter().enumerate() {
        let element = element?;
        if index > 0 {
            joined.push_str(separator);
        }
        let part =
            element.as_str().ok_or_else(|| EvalError::invalid(format!("join: invalid input: {element}")))?;
        context.budget.room((joined.len() + part.len()) as u64)?;
        joined.push_str(part);
    }
    Ok(Value::string(joined))
}
