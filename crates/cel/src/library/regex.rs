//! Regular expressions. Patterns are RE2's as Go reads them; Rust's engine shares their meaning but not all of their
//! grammar, so a pattern is checked and rewritten first.

use ::regex::Regex;

use super::strings::{int, text};
use crate::{
    error::{Eval, EvalError},
    functions::{Context, Functions, Singleton},
    value::Value,
};

/// Go bounds a pattern by its instructions; this bounds the compiled automaton.
const MAX_COMPILED: usize = 4 << 20;

pub fn add(functions: &mut Functions) {
    let matches = Singleton {
        body: |_, args| {
            let regex = compile(text(args, 1)?).map_err(EvalError::invalid)?;
            Ok(Value::Bool(regex.is_match(text(args, 0)?)))
        },
        accepts: |value| matches!(value, Value::String(_)),
    };
    functions.add_singleton(
        "matches",
        matches,
        &[("matches", "(string, string) bool"), ("matches_string", "string.(string) bool")],
    );
    functions.add(&[("find", "string_find_string", "string.(string) string", |_, args| {
        let regex = illegal(compile(text(args, 1)?))?;
        find_with(&regex, args)
    })]);
    functions.add(&[
        ("findAll", "string_find_all_string", "string.(string) list(string)", find_all),
        ("findAll", "string_find_all_string_int", "string.(string, int) list(string)", find_all),
    ]);
}

fn illegal(compiled: Result<Regex, String>) -> Eval<Regex> {
    compiled.map_err(|reason| EvalError::invalid(format!("Illegal regex: {reason}")))
}

pub(crate) fn find_with<'a>(regex: &Regex, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let found = regex.find(text(args, 0)?).map(|found| found.as_str()).unwrap_or("");
    Ok(Value::string(found))
}

fn find_all<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let regex = illegal(compile(text(args, 1)?))?;
    find_all_with(&regex, args)
}

pub(crate) fn find_all_with<'a>(regex: &Regex, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let limit = if args.len() > 2 { int(args, 2)? } else { -1 };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let found = regex.find_iter(text(args, 0)?).take(limit).map(|found| found.as_str().to_owned());
    Ok(Value::strings(found))
}

/// Compiles a pattern as Go would; an error in Go's words where they are known.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    let translated = crate::re2::translate(pattern)?;
    ::regex::RegexBuilder::new(&translated)
        .nest_limit(2048)
        .size_limit(MAX_COMPILED)
        .dfa_size_limit(MAX_COMPILED)
        .build()
        .map_err(|error| crate::re2::describe(pattern, &error))
}
