//! Request bodies in protobuf, as Go clients send them for built-in kinds.
//!
//! ```text
//!   6b 38 73 00 | Unknown { typeMeta { apiVersion, kind }, raw }
//!                                                          └── the message, by the field numbers of the table
//! ```
//!
//! The result is the JSON tree that the same object would have been sent as; [`crate::schema::conform`] makes it
//! well-formed like any other.

mod wire;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use compact_str::CompactString;
use serde_json::{Map, Value};

use crate::{
    gojson,
    schema::{self, Field, Message, MessageId, Type, Types},
};
use wire::{Payload, Reader};

/// How every body starts: `k8s` and a zero.
pub const PREFIX: [u8; 4] = *b"k8s\0";

/// Says why a body is not a message of a known kind. Goes out as 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtoError {
    #[error("empty data")]
    Empty,
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    Prefix,
    #[error("empty body")]
    EmptyBody,
    #[error("Object 'Kind' is missing in 'runtime.TypeMeta{{APIVersion:{api_version:?}, Kind:\"\"}}'")]
    MissingKind { api_version: String },
    #[error("Object 'apiVersion' is missing in 'runtime.TypeMeta{{APIVersion:\"\", Kind:{kind:?}}}'")]
    MissingVersion { kind: String },
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind { api_version: String, kind: String },
    /// The bytes end within a value.
    #[error("unexpected EOF")]
    Truncated,
    #[error("proto: integer overflow")]
    Overflow,
    #[error("proto: wrong wireType = {found} for field {field}")]
    WireType { found: u8, field: &'static str },
    #[error("proto: illegal wireType {0}")]
    IllegalWireType(u8),
    #[error("proto: {message}: illegal tag {tag}")]
    IllegalTag { message: &'static str, tag: u64 },
    #[error("exceeded max depth")]
    TooDeep,
    /// What should be JSON inside a message is not.
    #[error("{0}")]
    Json(String),
}

/// What kind of object a body is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupVersionKind {
    pub group: CompactString,
    pub version: CompactString,
    pub kind: CompactString,
}

impl GroupVersionKind {
    pub fn new(api_version: &str, kind: &str) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self { group: group.into(), version: version.into(), kind: kind.into() }
    }

    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The message of a kind. Options and the like belong to every group but are `meta/v1` messages.
    pub fn message<'t>(&self, types: &'t Types) -> Option<&'t Message> {
        let own = types.get_kind(&self.group, &self.version, &self.kind);
        own.or_else(|| types.get(&format!("meta/v1.{}", self.kind)))
    }
}

/// Reads a body: what kind it is, and the object with its `apiVersion` and `kind`.
pub fn decode(types: &Types, bytes: &[u8]) -> Result<(GroupVersionKind, Value), ProtoError> {
    let decoded = Decoder { types }.envelope(bytes, 0)?;
    // Raw JSON inside the message has a depth of its own.
    if gojson::depth(&decoded.1) > gojson::MAX_DEPTH {
        return Err(ProtoError::TooDeep);
    }
    Ok(decoded)
}

/// Reads a message without envelope.
pub fn decode_message(types: &Types, message: &Message, bytes: &[u8]) -> Result<Value, ProtoError> {
    let mut members = Map::new();
    Decoder { types }.message(message, bytes, &mut members, 0)?;
    Ok(Value::Object(members))
}

struct Decoder<'t> {
    types: &'t Types,
}

type Decoded<T> = Result<T, ProtoError>;

impl Decoder<'_> {
    fn envelope(&self, bytes: &[u8], depth: usize) -> Decoded<(GroupVersionKind, Value)> {
        if bytes.is_empty() {
            return Err(ProtoError::Empty);
        }
        let body = bytes.strip_prefix(&PREFIX).ok_or(ProtoError::Prefix)?;
        if body.is_empty() {
            return Err(ProtoError::EmptyBody);
        }
        let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
        let mut reader = Reader::new(body);
        while let Some((number, payload)) = reader.next("Unknown")? {
            match number {
                1 => (api_version, kind) = type_meta(payload.bytes("TypeMeta")?)?,
                2 => raw = payload.bytes("Raw")?,
                _ => {}
            }
        }
        if kind.is_empty() {
            return Err(ProtoError::MissingKind { api_version });
        }
        if api_version.is_empty() {
            return Err(ProtoError::MissingVersion { kind });
        }
        let gvk = GroupVersionKind::new(&api_version, &kind);
        let Some(message) = gvk.message(self.types) else {
            return Err(ProtoError::UnknownKind { api_version, kind });
        };
        let mut members = Map::new();
        self.message(message, raw, &mut members, depth)?;
        members.insert("apiVersion".to_owned(), api_version.into());
        members.insert("kind".to_owned(), kind.into());
        Ok((gvk, Value::Object(members)))
    }

    /// Reads a message into `members`, which may hold parts of it already.
    fn message(
        &self,
        message: &Message,
        bytes: &[u8],
        members: &mut Map<String, Value>,
        depth: usize,
    ) -> Decoded<()> {
        if depth > gojson::MAX_DEPTH {
            return Err(ProtoError::TooDeep);
        }
        let mut reader = Reader::new(bytes);
        while let Some((number, payload)) = reader.next(message.short_name())? {
            let Some(field) = message.numbered(number) else { continue };
            self.field(field, payload, members, depth)?;
        }
        Ok(())
    }

    fn field(
        &self,
        field: &Field,
        payload: Payload<'_>,
        members: &mut Map<String, Value>,
        depth: usize,
    ) -> Decoded<()> {
        if let (true, Type::Message(id)) = (field.inline, &field.ty) {
            return self.message(self.types.message(*id), payload.bytes(field.name)?, members, depth + 1);
        }
        let slot = members.entry(field.name).or_insert(Value::Null);
        match &field.ty {
            Type::List(element) => self.repeated(element, field.name, payload, items_of(slot), depth + 1),
            Type::Map(element) => {
                let (key, value) = self.entry(element, field.name, payload, depth + 1)?;
                members_of(slot).insert(key, value);
                Ok(())
            }
            // A message that comes in parts is the sum of them.
            Type::Message(id) => {
                self.message(self.types.message(*id), payload.bytes(field.name)?, members_of(slot), depth + 1)
            }
            other => {
                *slot = self.value(other, field.name, payload, depth + 1)?;
                Ok(())
            }
        }
    }

    /// One item, or several numbers in one payload.
    fn repeated(
        &self,
        element: &Type,
        name: &'static str,
        payload: Payload<'_>,
        items: &mut Vec<Value>,
        depth: usize,
    ) -> Decoded<()> {
        let packed = match (element, payload) {
            (Type::Bool | Type::Int32 | Type::Int64 | Type::Float64, Payload::Bytes(bytes)) => bytes,
            _ => {
                items.push(self.value(element, name, payload, depth)?);
                return Ok(());
            }
        };
        let mut reader = Reader::new(packed);
        while !reader.is_empty() {
            let payload = match element {
                Type::Float64 => Payload::Fixed64(reader.fixed64()?),
                _ => Payload::Varint(reader.varint()?),
            };
            items.push(self.value(element, name, payload, depth)?);
        }
        Ok(())
    }

    fn entry(
        &self,
        element: &Type,
        name: &'static str,
        payload: Payload<'_>,
        depth: usize,
    ) -> Decoded<(String, Value)> {
        let mut reader = Reader::new(payload.bytes(name)?);
        let (mut key, mut value) = (String::new(), None);
        while let Some((number, payload)) = reader.next(name)? {
            match number {
                1 => key = text(payload.bytes(name)?),
                2 => value = Some(self.value(element, name, payload, depth)?),
                _ => {}
            }
        }
        // Absent means zero; conforming writes it out.
        Ok((key, value.unwrap_or(Value::Null)))
    }

    fn value(&self, ty: &Type, name: &'static str, payload: Payload<'_>, depth: usize) -> Decoded<Value> {
        Ok(match ty {
            Type::String => text(payload.bytes(name)?).into(),
            Type::Bytes => BASE64.encode(payload.bytes(name)?).into(),
            Type::Bool => (payload.varint(name)? != 0).into(),
            // A negative number takes ten bytes; what is above its own width is cut off.
            Type::Int32 => (payload.varint(name)? as i32).into(),
            Type::Int64 => (payload.varint(name)? as i64).into(),
            Type::Float64 => f64::from_bits(payload.fixed64(name)?).into(),
            Type::Time | Type::MicroTime => time(ty, payload.bytes(name)?)?,
            Type::Duration => {
                schema::duration_text(self.varint_in(payload.bytes(name)?, name)? as i64).into()
            }
            Type::Quantity => quantity(payload.bytes(name)?)?,
            Type::IntOrString => int_or_string(payload.bytes(name)?)?,
            Type::Raw => self.raw(payload.bytes(name)?, depth)?,
            Type::Message(id) => self.sub_message(*id, payload.bytes(name)?, depth)?,
            Type::Wrapped(element) => self.wrapped(element, name, payload.bytes(name)?, depth)?,
            Type::SchemaOrBool(id) | Type::SchemaOrArray(id) | Type::SchemaOrStrings(id) => {
                self.schema_or(ty, *id, payload.bytes(name)?, depth)?
            }
            // The types have no lists of lists.
            Type::List(_) | Type::Map(_) => Value::Null,
        })
    }

    fn sub_message(&self, id: MessageId, bytes: &[u8], depth: usize) -> Decoded<Value> {
        let mut members = Map::new();
        self.message(self.types.message(id), bytes, &mut members, depth)?;
        Ok(Value::Object(members))
    }

    fn wrapped(&self, element: &Type, name: &'static str, bytes: &[u8], depth: usize) -> Decoded<Value> {
        let mut items = Vec::new();
        let mut reader = Reader::new(bytes);
        while let Some((number, payload)) = reader.next(name)? {
            if number == 1 {
                self.repeated(element, name, payload, &mut items, depth)?;
            }
        }
        Ok(Value::Array(items))
    }

    fn varint_in(&self, bytes: &[u8], name: &'static str) -> Decoded<u64> {
        let mut found = 0;
        let mut reader = Reader::new(bytes);
        while let Some((number, payload)) = reader.next(name)? {
            if number == 1 {
                found = payload.varint(name)?;
            }
        }
        Ok(found)
    }

    /// JSON in a bytes field, or an object in protobuf of its own.
    fn raw(&self, bytes: &[u8], depth: usize) -> Decoded<Value> {
        let mut reader = Reader::new(bytes);
        let mut raw = &[][..];
        while let Some((number, payload)) = reader.next("Raw")? {
            if number == 1 {
                raw = payload.bytes("Raw")?;
            }
        }
        if raw.is_empty() {
            return Ok(Value::Null);
        }
        if raw.starts_with(&PREFIX) {
            return self.envelope(raw, depth).map(|(_, object)| object);
        }
        gojson::parse(raw).map_err(ProtoError::Json)
    }

    fn schema_or(&self, ty: &Type, schema: MessageId, bytes: &[u8], depth: usize) -> Decoded<Value> {
        let (schema_at, other_at) = if matches!(ty, Type::SchemaOrBool(_)) { (2, 1) } else { (1, 2) };
        let (mut single, mut allows, mut items) = (None, false, Vec::new());
        let mut reader = Reader::new(bytes);
        while let Some((number, payload)) = reader.next("JSONSchemaPropsOr")? {
            match ty {
                _ if number == schema_at => {
                    single = Some(self.sub_message(schema, payload.bytes("Schema")?, depth)?)
                }
                _ if number != other_at => {}
                Type::SchemaOrBool(_) => allows = payload.varint("Allows")? != 0,
                Type::SchemaOrArray(_) => {
                    items.push(self.sub_message(schema, payload.bytes("JSONSchemas")?, depth)?)
                }
                _ => items.push(text(payload.bytes("Property")?).into()),
            }
        }
        Ok(match (single, ty) {
            (Some(schema), _) if items.is_empty() => schema,
            (_, Type::SchemaOrBool(_)) => allows.into(),
            _ if items.is_empty() => Value::Null,
            _ => Value::Array(items),
        })
    }
}

/// Go keeps whatever bytes a string has, and JSON shows those that are no text as U+FFFD.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn items_of(slot: &mut Value) -> &mut Vec<Value> {
    if !slot.is_array() {
        *slot = Value::Array(Vec::new());
    }
    match slot {
        Value::Array(items) => items,
        _ => unreachable!("it was just made an array"),
    }
}

fn members_of(slot: &mut Value) -> &mut Map<String, Value> {
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    match slot {
        Value::Object(members) => members,
        _ => unreachable!("it was just made an object"),
    }
}

fn type_meta(bytes: &[u8]) -> Decoded<(String, String)> {
    let (mut api_version, mut kind) = (String::new(), String::new());
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.next("TypeMeta")? {
        match number {
            1 => api_version = text(payload.bytes("APIVersion")?),
            2 => kind = text(payload.bytes("Kind")?),
            _ => {}
        }
    }
    Ok((api_version, kind))
}

/// `{ seconds = 1, nanos = 2 }`; nothing at all is no time.
fn time(ty: &Type, bytes: &[u8]) -> Decoded<Value> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0, 0);
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.next("Timestamp")? {
        match number {
            1 => seconds = payload.varint("Seconds")? as i64,
            2 => nanos = payload.varint("Nanos")? as i32,
            _ => {}
        }
    }
    let seconds = seconds.saturating_add(i64::from(nanos.div_euclid(1_000_000_000)));
    let micros = (nanos.rem_euclid(1_000_000_000) / 1000) as u32;
    Ok(schema::time_text(seconds, matches!(ty, Type::MicroTime).then_some(micros)).into())
}

/// `{ string = 1 }`
fn quantity(bytes: &[u8]) -> Decoded<Value> {
    let mut found = "0".to_owned();
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.next("Quantity")? {
        if number == 1 {
            found = text(payload.bytes("String_")?);
        }
    }
    Ok(found.into())
}

/// `{ type = 1, intVal = 2, strVal = 3 }`
fn int_or_string(bytes: &[u8]) -> Decoded<Value> {
    let (mut is_text, mut number_value, mut text_value) = (false, 0, String::new());
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.next("IntOrString")? {
        match number {
            1 => is_text = payload.varint("Type")? != 0,
            2 => number_value = payload.varint("IntVal")? as i32,
            3 => text_value = text(payload.bytes("StrVal")?),
            _ => {}
        }
    }
    Ok(if is_text { text_value.into() } else { number_value.into() })
}

#[cfg(test)]
mod tests;
