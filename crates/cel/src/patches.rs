//! The types of objects that expressions make to change others: parts of an object, named by the path that leads to
//! them (`Object.spec.template`), and the operations of a JSON patch.

use std::sync::Arc;

use crate::{
    error::{Eval, EvalError},
    eval::go_type,
    types::Type,
    value::{Struct, Value},
};

pub const OBJECT: &str = "Object";
pub const JSON_PATCH: &str = "JSONPatch";

pub fn is_patch_type(name: &str) -> bool {
    name == JSON_PATCH
        || name == OBJECT
        || name.strip_prefix(OBJECT).is_some_and(|rest| rest.starts_with('.'))
}

/// Any field may be in a part of an object, for there is no schema; the operations of a patch are known.
pub fn field_type(object: &str, field: &str) -> Type {
    match (object, field) {
        (JSON_PATCH, "op" | "path" | "from") => Type::String,
        (JSON_PATCH, "value") => Type::Dyn,
        // Upstream's checker has no type for other fields: only what is of any type fits.
        (JSON_PATCH, _) => Type::Opaque("".into(), Arc::new([])),
        _ => Type::Dyn,
    }
}

/// Whether an object can have these fields.
pub fn check(name: &str, fields: &[(Arc<str>, Value<'_>)]) -> Eval<()> {
    if name != JSON_PATCH {
        return Ok(());
    }
    for (name, value) in fields {
        match (&**name, value) {
            ("op" | "path" | "from", Value::String(_)) | ("value", _) => {}
            ("op" | "path" | "from", other) => {
                let of = go_type(other);
                let message = format!("unexpected type {of} for JSONPatchType '{name}' field");
                return Err(EvalError::invalid(message));
            }
            _ => return Err(EvalError::invalid(format!("unexpected JSONPatchType field: {name}"))),
        }
    }
    Ok(())
}

impl Struct<'_> {
    /// Where a part of an object is of another type than its place says: `Object.spec` must be under `spec`.
    pub fn misplaced(&self) -> Eval<Vec<String>> {
        let mut walk = Walk { path: vec![self.name.clone()], wrong: Vec::new(), room: MAX_PARTS };
        walk.object(self)?;
        Ok(walk.wrong)
    }
}

/// Values share their parts, so that one can have exponentially many. More are not looked at.
const MAX_PARTS: u32 = 1 << 20;

struct Walk {
    path: Vec<Arc<str>>,
    wrong: Vec<String>,
    room: u32,
}

impl Walk {
    fn object(&mut self, made: &Struct<'_>) -> Eval<()> {
        let expected = self.path.join(".");
        if *made.name != *expected {
            self.wrong.push(format!(
                "unexpected type name {:?}, expected {expected:?}, which matches field name path from root Object type",
                &*made.name
            ));
        }
        for (name, value) in &made.fields {
            self.path.push(name.clone());
            self.value(value)?;
            self.path.pop();
        }
        Ok(())
    }

    fn value(&mut self, value: &Value<'_>) -> Eval<()> {
        self.room = self.room.checked_sub(1).ok_or_else(EvalError::cost_limit)?;
        match value {
            Value::Struct(made) => self.object(made),
            Value::List(list) => list.iter().try_for_each(|element| self.value(&element?)),
            Value::Map(map) => map.entries()?.iter().try_for_each(|(_, value)| self.value(value)),
            _ => Ok(()),
        }
    }
}
