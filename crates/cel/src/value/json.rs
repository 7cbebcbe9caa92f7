//! JSON as values, typed by a schema or not at all.

use std::sync::Arc;

use base64::Engine;
use serde_json::Value as Json;

use super::{List, Map, Text, Value, map::View};
use crate::{
    decl::{Decl, Shape},
    error::{Eval, EvalError},
    time::{self, Time},
};

/// The most values a value becomes as JSON.
const MAX_JSON_VALUES: u32 = 1 << 20;

impl<'a> Value<'a> {
    /// JSON read as its schema says.
    pub fn from_json(json: &'a Json, decl: &'a Decl) -> Eval<Value<'a>> {
        if matches!(decl.shape, Shape::Dyn) {
            return Ok(Value::from_untyped_json(json));
        }
        if json.is_null() {
            if decl.nullable {
                return Ok(Value::Null);
            }
            return Err(EvalError::invalid("invalid data, got null for schema with nullable=false"));
        }
        match &decl.shape {
            Shape::Dyn => Ok(Value::from_untyped_json(json)),
            Shape::Preserved => Ok(Value::Preserved(json)),
            Shape::IntOrString => int_or_string(json),
            Shape::Object(object) => {
                object_entries(json).map(|m| Value::Map(Map::json_view(m, View::Object(object))))
            }
            Shape::Map(values) => {
                object_entries(json).map(|m| Value::Map(Map::json_view(m, View::Values(values))))
            }
            Shape::List(items, kind) => match json {
                Json::Array(elements) => Ok(Value::List(List::typed(elements, items, kind))),
                _ => Err(EvalError::invalid(
                    "invalid data, expected an array for the provided schema with type=array",
                )),
            },
            Shape::Bool => json.as_bool().map(Value::Bool).ok_or_else(|| unexpected("bool", json)),
            Shape::Int => json.as_i64().map(Value::Int).ok_or_else(|| unexpected("int", json)),
            Shape::Double => json.as_f64().map(Value::Double).ok_or_else(|| unexpected("float", json)),
            Shape::String | Shape::Bytes | Shape::Duration | Shape::Date | Shape::DateTime => {
                let text = json.as_str().ok_or_else(|| unexpected("string", json))?;
                formatted(text, &decl.shape)
            }
        }
    }

    /// JSON without a schema.
    pub fn from_untyped_json(json: &'a Json) -> Value<'a> {
        match json {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(number) => match number.as_i64() {
                Some(int) => Value::Int(int),
                None => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Value::String(Text::Borrowed(text)),
            Json::Array(items) => Value::List(List::dynamic(items)),
            Json::Object(entries) => Value::Map(Map::json_view(entries, View::Dynamic)),
        }
    }

    /// A JSON object without a schema.
    pub fn from_untyped_tree(tree: &'a serde_json::Map<String, Json>) -> Value<'a> {
        Value::Map(Map::json_view(tree, View::Dynamic))
    }

    /// The value as JSON, where it has that form. Values share their parts; one that would take too much memory when it
    /// is written out fails as one that costs too much.
    pub fn to_json(&self) -> Eval<Json> {
        self.write_json(&mut { MAX_JSON_VALUES })
    }

    fn write_json(&self, room: &mut u32) -> Eval<Json> {
        *room = room.checked_sub(1).ok_or_else(EvalError::cost_limit)?;
        Ok(match self {
            Value::Null | Value::Optional(None) => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Int(value) => Json::from(*value),
            Value::Uint(value) => Json::from(*value),
            Value::Double(value) => Json::from(*value),
            Value::String(text) => Json::String(text.to_string()),
            Value::Bytes(bytes) => Json::String(base64::engine::general_purpose::STANDARD.encode(bytes)),
            Value::Duration(nanos) => Json::String(time::cel_duration(*nanos)),
            Value::Timestamp(time) => Json::String(time.rfc3339()),
            Value::List(list) => {
                Json::Array(list.iter().map(|value| value?.write_json(room)).collect::<Eval<Vec<_>>>()?)
            }
            Value::Map(map) => {
                let mut object = serde_json::Map::new();
                for (key, value) in map.entries()? {
                    object.insert(key.to_string(), value.write_json(room)?);
                }
                Json::Object(object)
            }
            Value::Optional(Some(value)) => value.write_json(room)?,
            Value::Preserved(json) => (*json).clone(),
            Value::Struct(made) => {
                let mut object = serde_json::Map::new();
                for (name, value) in &made.fields {
                    object.insert(name.to_string(), value.write_json(room)?);
                }
                Json::Object(object)
            }
            Value::Type(_) | Value::Opaque(_) => {
                return Err(EvalError::invalid(format!("a value of type {} is no JSON", self.type_name())));
            }
        })
    }
}

fn object_entries(json: &Json) -> Eval<&serde_json::Map<String, Json>> {
    json.as_object().ok_or_else(|| {
        EvalError::invalid("invalid data, expected a map for the provided schema with type=object")
    })
}

fn int_or_string(json: &Json) -> Eval<Value<'_>> {
    match json {
        Json::String(text) => Ok(Value::String(Text::Borrowed(text))),
        _ => json.as_i64().map(Value::Int).ok_or_else(|| {
            EvalError::invalid("invalid data, expected XIntOrString value to be either a string or integer")
        }),
    }
}

fn unexpected(expected: &str, json: &Json) -> EvalError {
    let found = match json {
        Json::Null => "<nil>",
        Json::Bool(_) => "bool",
        Json::Number(number) if number.is_i64() => "int64",
        Json::Number(_) => "float64",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    };
    EvalError::invalid(format!("invalid data, expected {expected}, got {found}"))
}

/// Kubernetes' expressions take the alphabet of URLs for such strings, though its validation takes the other.
fn decode_base64(text: &str) -> Result<Vec<u8>, usize> {
    use base64::{
        DecodeError, alphabet,
        engine::{GeneralPurpose, GeneralPurposeConfig},
    };
    let config = GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true);
    let text = text.replace(['\n', '\r'], "");
    GeneralPurpose::new(&alphabet::URL_SAFE, config).decode(&text).map_err(|error| match error {
        DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => at,
        DecodeError::InvalidLength(_) | DecodeError::InvalidPadding => text.len() / 4 * 4,
    })
}

fn formatted<'a>(text: &'a str, shape: &Shape) -> Eval<Value<'a>> {
    match shape {
        Shape::Duration => time::parse_schema_duration(text)
            .map(Value::Duration)
            .map_err(|reason| EvalError::invalid(format!("Invalid duration {text}: {reason}"))),
        Shape::Date => Time::parse_date(text).map(Value::Timestamp).ok_or_else(|| {
            let reason = format!("parsing time {text:?} as \"2006-01-02\": cannot parse");
            EvalError::invalid(format!("Invalid date formatted string {text}: {reason}"))
        }),
        Shape::DateTime => Time::parse_schema_date_time(text).map(Value::Timestamp).map_err(|reason| {
            EvalError::invalid(format!("Invalid date-time formatted string {text}: {reason}"))
        }),
        Shape::Bytes => decode_base64(text).map(|bytes| Value::Bytes(Arc::from(bytes))).map_err(|at| {
            let reason = format!("illegal base64 data at input byte {at}");
            EvalError::invalid(format!("Invalid byte formatted string {text}: {reason}"))
        }),
        _ => Ok(Value::String(Text::Borrowed(text))),
    }
}
