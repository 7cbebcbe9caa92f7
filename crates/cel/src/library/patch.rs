//! What helps to write JSON patches.

use crate::{error::EvalError, functions::Functions, value::Value};

pub fn add(functions: &mut Functions) {
    functions.add(&[(
        "jsonpatch.escapeKey",
        "string_jsonpatch_escapeKey_string",
        "(string) string",
        |_, args| match args {
            [Value::String(key)] => Ok(Value::string(key.replace('~', "~0").replace('/', "~1"))),
            _ => Err(EvalError::no_such_overload()),
        },
    )]);
}
