//! Does to a JSON tree what Go's typed decoding and encoding does on its way through upstream's server.
//!
//! Values of a wrong type are refused in the words of Go's decoder. Unknown fields go. Empty values of fields that
//! are omitted when empty go; fields that are not omitted appear with their zero value. Times, quantities and bytes
//! are written in their one canonical form. Upstream stores protobuf, which does not tell an empty list from none:
//! where a field always appears, both are `null`.

use serde_json::{Map, Value};

use super::{Field, Member, Message, MessageId, Type, Types, go_text, scalar};
use crate::{gojson, gotext, quantity::Quantity};

/// How to treat what the type does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Leaves unknown fields where they are, as for stored objects that a newer release may have written.
    pub keep_unknown: bool,
}

/// What was found besides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conformed {
    /// `unknown field "spec.foo"`, by path.
    pub unknown: Vec<String>,
}

/// A value of a wrong type, in the words of Go's decoder. Goes out as 400:
/// `ConfigMap in version "v1" cannot be handled as a ConfigMap: …`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TypeError(pub String);

/// Makes `value` a well-formed object of type `message`. On an error it is left half done.
pub fn conform(
    types: &Types,
    message: &Message,
    value: &mut Value,
    options: Options,
) -> Result<Conformed, TypeError> {
    let mut pass = Pass { types, options, conformed: Conformed::default() };
    match value {
        Value::Object(members) => pass.message(message, members, None)?,
        Value::Null => {
            let mut members = Map::new();
            pass.message(message, &mut members, None)?;
            *value = Value::Object(members);
        }
        other => {
            let (found, go_type) = (gojson::type_name(other), go_text(message.name));
            return Err(TypeError(format!("json: cannot unmarshal {found} into Go value of type {go_type}")));
        }
    }
    Ok(pass.conformed)
}

struct Pass<'a> {
    types: &'a Types,
    options: Options,
    conformed: Conformed,
}

/// Where in the tree a value is: a list of steps that grows on the stack.
struct Place<'p> {
    parent: Option<&'p Place<'p>>,
    depth: usize,
    step: Step<'p>,
}

enum Step<'p> {
    Field(&'p Message, &'p Member),
    Key(&'p str),
    Index(usize),
}

type Parent<'p> = Option<&'p Place<'p>>;

impl<'p> Place<'p> {
    fn new(parent: Parent<'p>, step: Step<'p>) -> Self {
        Self { parent, depth: parent.map_or(1, |parent| parent.depth + 1), step }
    }

    /// `spec.containers[0].name`
    fn path(&self, out: &mut String) {
        if let Some(parent) = self.parent {
            parent.path(out);
        }
        if let Step::Index(index) = self.step {
            out.push_str(&format!("[{index}]"));
            return;
        }
        if !out.is_empty() {
            out.push('.');
        }
        match self.step {
            Step::Field(_, member) => out.push_str(member.name),
            Step::Key(key) => out.push_str(key),
            Step::Index(_) => {}
        }
    }

    /// The innermost struct, and the names of fields that lead to the value: what Go's decoder remembers.
    fn go_context(&self, types: &Types) -> (&'static str, Vec<&'static str>) {
        let (outer, mut names) = self.parent.map_or(("", Vec::new()), |parent| parent.go_context(types));
        let Step::Field(message, member) = self.step else { return (outer, names) };
        names.extend(member.through.iter().map(|id| types.message(*id).short_name()));
        names.push(member.name);
        (message.short_name(), names)
    }
}

impl Pass<'_> {
    fn message(
        &mut self,
        message: &Message,
        members: &mut Map<String, Value>,
        parent: Parent<'_>,
    ) -> Result<(), TypeError> {
        let types = self.types;
        let unknown: Vec<String> =
            members.keys().filter(|key| message.member(key).is_none()).cloned().collect();
        for key in unknown {
            self.report_unknown(&key, parent);
            if !self.options.keep_unknown {
                members.remove(&key);
            }
        }
        for member in &message.members {
            let field = types.field_of(member);
            let place = Place::new(parent, Step::Field(message, member));
            let kept = match members.get_mut(member.name) {
                Some(value) if !value.is_null() => {
                    self.value(&field.ty, field.go_type.trim_start_matches('*'), value, &place)?;
                    field.pointer && !value.is_null() || !self.is_zero(message, field, value)
                }
                _ => false,
            };
            if kept {
                continue;
            }
            match self.zero_of(field, &place)? {
                Some(zero) => drop(members.insert(member.name.to_owned(), zero)),
                None => drop(members.remove(member.name)),
            }
        }
        Ok(())
    }

    fn report_unknown(&mut self, key: &str, parent: Parent<'_>) {
        let mut path = String::new();
        Place::new(parent, Step::Key(key)).path(&mut path);
        self.conformed.unknown.push(format!("unknown field {}", gotext::quote(&path)));
    }

    /// Whether Go would hold this value's zero, so that what is written is decided by [`Pass::zero_of`].
    fn is_zero(&self, holder: &Message, field: &Field, value: &Value) -> bool {
        match (&field.ty, value) {
            (_, Value::Null) => true,
            // Structs of Go's that happen to print as scalars are never empty.
            (Type::IntOrString | Type::Raw | Type::Quantity, _) => false,
            (_, Value::Bool(value)) => !value,
            (_, Value::Number(number)) => number.as_f64() == Some(0.0),
            (Type::Bytes, Value::String(text)) => text.is_empty() && field.omit_empty,
            (_, Value::String(text)) => text.is_empty(),
            (ty, Value::Array(items)) => {
                // What is stored as JSON, or wrapped, does know empty lists.
                let told_apart = holder.name.starts_with("apiextensions/") || matches!(ty, Type::Wrapped(_));
                items.is_empty() && (field.omit_empty || !told_apart)
            }
            (ty, Value::Object(members)) => members.is_empty() && matches!(ty, Type::Map(_)),
        }
    }

    /// What stands for a field that is not set; `None` if nothing does.
    fn zero_of(&mut self, field: &Field, place: &Place<'_>) -> Result<Option<Value>, TypeError> {
        let is_struct = !field.pointer
            && matches!(
                field.ty,
                Type::Message(_)
                    | Type::Time
                    | Type::MicroTime
                    | Type::Duration
                    | Type::Quantity
                    | Type::IntOrString
                    | Type::Raw
            );
        // Go leaves out empty values, but a struct is never empty.
        if field.omit_zero || field.omit_empty && !is_struct {
            return Ok(None);
        }
        if field.pointer {
            return Ok(Some(Value::Null));
        }
        self.zero(&field.ty, place).map(Some)
    }

    fn zero(&mut self, ty: &Type, place: &Place<'_>) -> Result<Value, TypeError> {
        Ok(match ty {
            Type::String => Value::from(""),
            Type::Bool => Value::from(false),
            Type::Int32 | Type::Int64 | Type::Float64 | Type::IntOrString => Value::from(0),
            Type::Quantity => Value::from("0"),
            Type::Duration => Value::from("0s"),
            Type::Message(id) => {
                let mut members = Map::new();
                self.message(self.types.message(*id), &mut members, Some(place))?;
                Value::Object(members)
            }
            Type::SchemaOrBool(_) => Value::from(false),
            Type::Bytes | Type::Time | Type::MicroTime | Type::Raw | Type::List(_) | Type::Map(_) => {
                Value::Null
            }
            Type::Wrapped(_) | Type::SchemaOrArray(_) | Type::SchemaOrStrings(_) => Value::Null,
        })
    }

    /// Checks one value that is not null, and makes it canonical.
    fn value(
        &mut self,
        ty: &Type,
        go_type: &'static str,
        value: &mut Value,
        place: &Place<'_>,
    ) -> Result<(), TypeError> {
        if place.depth > gojson::MAX_DEPTH {
            return Err(TypeError("exceeded max depth".to_owned()));
        }
        match (ty, &mut *value) {
            (Type::Raw, _) | (Type::String, Value::String(_)) | (Type::Bool, Value::Bool(_)) => Ok(()),
            (Type::Float64, Value::Number(number)) => {
                // Go prints whole numbers without a point.
                if let Some(whole) = number.as_f64().filter(|it| it.fract() == 0.0 && it.abs() < 1e15) {
                    *value = Value::from(whole as i64);
                }
                Ok(())
            }
            (Type::Int32, Value::Number(number)) => {
                let fits = number.as_i64().is_some_and(|number| i32::try_from(number).is_ok());
                self.check(fits, value, "int32", place)
            }
            (Type::Int64, Value::Number(number)) => self.check(number.is_i64(), value, "int64", place),
            (Type::Message(id), Value::Object(members)) => {
                self.message(self.types.message(*id), members, Some(place))
            }
            (Type::List(element) | Type::Wrapped(element), Value::Array(items)) => {
                self.items(element, self.types.element_of(go_type).unwrap_or(go_type), items, place)
            }
            (Type::Map(element), Value::Object(members)) => {
                self.entries(element, self.types.element_of(go_type).unwrap_or(go_type), members, place)
            }
            (Type::Bytes, Value::String(text)) => {
                *text = scalar::base64_canonical(text).map_err(TypeError)?;
                Ok(())
            }
            (Type::Bytes, Value::Array(items)) => {
                *value = self.bytes(items, place)?;
                Ok(())
            }
            (Type::Time | Type::MicroTime | Type::Duration | Type::Quantity | Type::IntOrString, _) => {
                self.special(ty, value, place)
            }
            (Type::SchemaOrBool(id) | Type::SchemaOrArray(id) | Type::SchemaOrStrings(id), _) => {
                self.schema_or(ty, *id, value, place)
            }
            _ => self.mismatch(value, &go_text(go_type), place),
        }
    }

    fn items(
        &mut self,
        element: &Type,
        go_type: &'static str,
        items: &mut [Value],
        place: &Place<'_>,
    ) -> Result<(), TypeError> {
        for (index, item) in items.iter_mut().enumerate() {
            let place = Place::new(Some(place), Step::Index(index));
            self.element(element, go_type, item, &place)?;
        }
        Ok(())
    }

    fn entries(
        &mut self,
        element: &Type,
        go_type: &'static str,
        members: &mut Map<String, Value>,
        place: &Place<'_>,
    ) -> Result<(), TypeError> {
        for (key, value) in members.iter_mut() {
            let place = Place::new(Some(place), Step::Key(key));
            self.element(element, go_type, value, &place)?;
        }
        Ok(())
    }

    /// Go takes a list of small numbers for bytes, too.
    fn bytes(&self, items: &[Value], place: &Place<'_>) -> Result<Value, TypeError> {
        let mut bytes = Vec::with_capacity(items.len());
        for item in items {
            match item {
                Value::Null => bytes.push(0),
                Value::Number(number) => match number.as_u64().map(u8::try_from) {
                    Some(Ok(byte)) => bytes.push(byte),
                    _ => self.check(false, item, "uint8", place)?,
                },
                other => self.mismatch(other, "uint8", place)?,
            }
        }
        Ok(scalar::base64_text(&bytes).into())
    }

    /// An item of a list or map: `null` is the type's zero there.
    fn element(
        &mut self,
        ty: &Type,
        go_type: &'static str,
        value: &mut Value,
        place: &Place<'_>,
    ) -> Result<(), TypeError> {
        if value.is_null() {
            *value = match ty {
                Type::Bytes => Value::from(""),
                Type::Wrapped(_) => Value::Array(Vec::new()),
                _ => self.zero(ty, place)?,
            };
            return Ok(());
        }
        self.value(ty, go_type, value, place)
    }

    /// Types with a JSON form of their own.
    fn special(&mut self, ty: &Type, value: &mut Value, place: &Place<'_>) -> Result<(), TypeError> {
        let canonical = match (ty, &*value) {
            (Type::Quantity, value) => canonical_quantity(value)?,
            (Type::IntOrString, Value::String(_)) => return Ok(()),
            (Type::IntOrString, Value::Number(number)) => {
                let fits = number.as_i64().is_some_and(|number| i32::try_from(number).is_ok());
                return self.check(fits, value, "int32", place);
            }
            (Type::IntOrString, _) => return self.mismatch(value, "int32", place),
            (Type::Time, Value::String(text)) => match scalar::parse_time(text).map_err(TypeError)? {
                (scalar::ZERO_TIME, 0) => Value::Null,
                (seconds, _) => scalar::time_text(seconds, None).into(),
            },
            (Type::MicroTime, Value::String(text)) => {
                match scalar::parse_micro_time(text).map_err(TypeError)? {
                    (scalar::ZERO_TIME, 0) => Value::Null,
                    (seconds, nanos) => scalar::time_text(seconds, Some(nanos / 1000)).into(),
                }
            }
            (Type::Duration, Value::String(text)) => {
                scalar::duration_text(scalar::parse_duration(text).map_err(TypeError)?).into()
            }
            _ => return self.mismatch(value, "string", place),
        };
        *value = canonical;
        Ok(())
    }

    fn schema_or(
        &mut self,
        ty: &Type,
        schema: MessageId,
        value: &mut Value,
        place: &Place<'_>,
    ) -> Result<(), TypeError> {
        let schema_name = "apiextensions/v1.JSONSchemaProps";
        match (ty, &mut *value) {
            (_, Value::Object(members)) => self.message(self.types.message(schema), members, Some(place)),
            (Type::SchemaOrBool(_), Value::Bool(_)) => Ok(()),
            (Type::SchemaOrBool(_), _) => Err(TypeError("boolean or JSON schema expected".to_owned())),
            (Type::SchemaOrArray(_), Value::Array(items)) if !items.is_empty() => {
                self.items(&Type::Message(schema), schema_name, items, place)
            }
            (Type::SchemaOrStrings(_), Value::Array(items)) => {
                self.items(&Type::String, "string", items, place)
            }
            // Upstream ignores what else stands here.
            _ => {
                *value = Value::Null;
                Ok(())
            }
        }
    }

    fn check(&self, fits: bool, value: &Value, go_type: &str, place: &Place<'_>) -> Result<(), TypeError> {
        if fits { Ok(()) } else { Err(self.cannot(&format!("number {value}"), go_type, place)) }
    }

    fn mismatch(&self, value: &Value, go_type: &str, place: &Place<'_>) -> Result<(), TypeError> {
        Err(self.cannot(gojson::type_name(value), go_type, place))
    }

    fn cannot(&self, found: &str, go_type: &str, place: &Place<'_>) -> TypeError {
        let (holder, names) = place.go_context(self.types);
        let names = names.join(".");
        TypeError(format!(
            "json: cannot unmarshal {found} into Go struct field {holder}.{names} of type {go_type}"
        ))
    }
}

/// Upstream reads the JSON text itself, whatever its type.
fn canonical_quantity(value: &Value) -> Result<Value, TypeError> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        other => other.to_string(),
    };
    let quantity = Quantity::parse(&text).map_err(|error| TypeError(error.to_string()))?;
    Ok(quantity.to_string().into())
}
