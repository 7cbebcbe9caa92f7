//! Semantic versions.

use std::{cmp::Ordering, sync::Arc};

use super::strings::text;
use crate::{
    error::{Eval, EvalError},
    functions::{Context, Functions},
    semver::Version,
    value::{Opaque, Value},
};

pub fn add(functions: &mut Functions) {
    functions.add(&[
        ("semver", "string_to_semver", "(string) kubernetes.Semver", make),
        ("semver", "string_bool_to_semver", "(string, bool) kubernetes.Semver", make),
        ("isSemver", "is_semver_string", "(string) bool", |_, args| Ok(Value::Bool(parse(args)?.is_ok()))),
        ("isSemver", "is_semver_string_bool", "(string, bool) bool", |_, args| {
            Ok(Value::Bool(parse(args)?.is_ok()))
        }),
        (
            "isGreaterThan",
            "semver_is_greater_than",
            "kubernetes.Semver.(kubernetes.Semver) bool",
            |_, args| Ok(Value::Bool(compare(args)? == Ordering::Greater)),
        ),
        ("isLessThan", "semver_is_less_than", "kubernetes.Semver.(kubernetes.Semver) bool", |_, args| {
            Ok(Value::Bool(compare(args)? == Ordering::Less))
        }),
        ("compareTo", "semver_compare_to", "kubernetes.Semver.(kubernetes.Semver) int", |_, args| {
            Ok(Value::Int(compare(args)? as i64))
        }),
        ("major", "semver_major", "kubernetes.Semver.() int", |_, args| {
            Ok(Value::Int(version(args, 0)?.major as i64))
        }),
        ("minor", "semver_minor", "kubernetes.Semver.() int", |_, args| {
            Ok(Value::Int(version(args, 0)?.minor as i64))
        }),
        ("patch", "semver_patch", "kubernetes.Semver.() int", |_, args| {
            Ok(Value::Int(version(args, 0)?.patch as i64))
        }),
    ]);
}

fn parse(args: &[Value<'_>]) -> Eval<Result<Version, String>> {
    let text = text(args, 0)?;
    Ok(match args.get(1) {
        Some(Value::Bool(true)) => Version::parse_tolerant(text),
        _ => Version::parse(text),
    })
}

fn make<'a>(_: &mut Context<'_>, args: &[Value<'a>]) -> Eval<Value<'a>> {
    let version = parse(args)?.map_err(EvalError::invalid)?;
    Ok(Value::Opaque(Opaque::Semver(Arc::new(version))))
}

fn version<'v>(args: &'v [Value<'_>], index: usize) -> Eval<&'v Version> {
    match args.get(index) {
        Some(Value::Opaque(Opaque::Semver(version))) => Ok(version),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn compare(args: &[Value<'_>]) -> Eval<Ordering> {
    Ok(version(args, 0)?.compare(version(args, 1)?))
}
