//! What the built-in types look like: a table of every message, its fields and their types.
//!
//! ```text
//!   data/types.txt ──> Types ──> conform    a JSON tree made what the API serves
//!   (written by         │  ├───> strict     unknown and duplicate fields, for field validation
//!    `generate`)        │  ├───> protobuf   request bodies of Go clients
//!                       │  ├───> strategic  strategic merge patch
//!                       │  └───> openapi    what kubectl reads
//! ```

mod conform;
mod read;
mod scalar;
mod strict;
mod written;

use std::sync::LazyLock;

pub use conform::{Conformed, Options, TypeError, conform};
pub use scalar::{base64_canonical, duration_text, parse_duration, parse_micro_time, parse_time, time_text};
pub use strict::{find_duplicates, has_duplicates, strict_errors};
pub use written::{Spelling, written};

/// All messages, by name and by id.
#[derive(Debug)]
pub struct Types {
    messages: Vec<Message>,
    /// Sorted by name.
    names: Vec<(&'static str, MessageId)>,
    /// Named types that are no messages, sorted by name.
    aliases: Vec<Alias>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageId(u16);

/// A Go struct: in JSON an object, in protobuf a message.
#[derive(Debug)]
pub struct Message {
    /// `core/v1.ConfigMap`
    pub name: &'static str,
    /// Has one owner as a whole, wherever it is.
    pub atomic: bool,
    /// As declared; inlined ones stand here themselves.
    pub fields: Box<[Field]>,
    /// As JSON has them, those of inlined fields included; sorted by name.
    members: Box<[Member]>,
}

/// A field as JSON sees it.
#[derive(Debug)]
struct Member {
    name: &'static str,
    holder: MessageId,
    index: u16,
    /// The inlined messages on the way to it.
    through: Box<[MessageId]>,
}

/// A field of a message.
#[derive(Debug)]
pub struct Field {
    /// In JSON. Empty when [`Field::inline`].
    pub name: &'static str,
    /// In protobuf; 0 where it does not travel so.
    pub number: u32,
    pub ty: Type,
    /// The type in Go's notation, with the table's package names.
    pub(crate) go_type: &'static str,
    /// Can be unset besides being empty.
    pub pointer: bool,
    /// In JSON its members are the message's own.
    pub inline: bool,
    pub omit_empty: bool,
    pub omit_zero: bool,
    /// What a reader of the schema must expect and a writer must give.
    pub required: bool,
    pub list_type: Option<ListType>,
    pub map_keys: Box<[&'static str]>,
    /// Of maps and structs: `atomic`, with one owner as a whole, or `granular`.
    pub map_type: Option<&'static str>,
    pub patch_strategy: PatchStrategy,
    pub patch_merge_key: Option<&'static str>,
    /// JSON.
    pub default: Option<&'static str>,
}

impl Field {
    /// Whether any JSON may stand here, not only an object.
    pub fn is_any_json(&self) -> bool {
        self.ty == Type::Raw && self.go_type.trim_start_matches('*').ends_with("JSON")
    }
}

/// How lists merge in server-side apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListType {
    Atomic,
    Set,
    Map,
}

impl ListType {
    pub fn as_str(self) -> &'static str {
        match self {
            ListType::Atomic => "atomic",
            ListType::Set => "set",
            ListType::Map => "map",
        }
    }
}

/// How a field changes in a strategic merge patch. Both may be set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    pub merge: bool,
    pub retain_keys: bool,
    pub replace: bool,
    /// As the table and OpenAPI spell it.
    pub text: &'static str,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    String,
    Bytes,
    Bool,
    Int32,
    Int64,
    Float64,
    Time,
    MicroTime,
    Duration,
    Quantity,
    IntOrString,
    /// Any JSON.
    Raw,
    Message(MessageId),
    List(Box<Type>),
    /// Keys are strings.
    Map(Box<Type>),
    /// A list that is a message of its own in protobuf, with its items in field 1.
    Wrapped(Box<Type>),
    /// A schema, or whether anything goes.
    SchemaOrBool(MessageId),
    /// A schema, or one for each place.
    SchemaOrArray(MessageId),
    /// A schema, or names.
    SchemaOrStrings(MessageId),
}

/// A named type that is no message.
#[derive(Debug)]
struct Alias {
    name: &'static str,
    /// In Go's notation, as [`Field::go_type`].
    target: &'static str,
    wrapped: bool,
    values: Box<[&'static str]>,
}

static BUILTIN: LazyLock<Types> = LazyLock::new(|| read::read(include_str!("../data/types.txt")));

impl Types {
    /// The types of Kubernetes itself.
    pub fn builtin() -> &'static Types {
        &BUILTIN
    }

    /// The types of another table, in the form of `data/types.txt`.
    pub fn read(table: &'static str) -> Types {
        read::read(table)
    }

    /// By the table's name: `core/v1.ConfigMap`.
    pub fn get(&self, name: &str) -> Option<&Message> {
        self.id(name).map(|id| self.message(id))
    }

    pub fn id(&self, name: &str) -> Option<MessageId> {
        let at = self.names.binary_search_by_key(&name, |(name, _)| name).ok()?;
        Some(self.names[at].1)
    }

    pub fn message(&self, id: MessageId) -> &Message {
        &self.messages[usize::from(id.0)]
    }

    /// By group and version as requests name them: `get_kind("apps", "v1", "Deployment")`.
    pub fn get_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Message> {
        let package = match group {
            "" => "core",
            // Groups are named after their package, with a domain or without.
            _ => group.split('.').next().unwrap_or(group),
        };
        self.get(&format!("{package}/{version}.{kind}"))
    }

    pub fn messages(&self) -> impl Iterator<Item = &Message> {
        self.messages.iter()
    }

    /// The field that JSON calls `name`, also one of an inlined message.
    pub fn field(&self, message: &Message, name: &str) -> Option<&Field> {
        message.member(name).map(|member| self.field_of(member))
    }

    /// All fields as JSON has them, by name.
    pub fn fields<'a>(&'a self, message: &'a Message) -> impl Iterator<Item = &'a Field> {
        message.members.iter().map(|member| self.field_of(member))
    }

    fn field_of(&self, member: &Member) -> &Field {
        &self.message(member.holder).fields[usize::from(member.index)]
    }

    fn alias(&self, name: &str) -> Option<&Alias> {
        let at = self.aliases.binary_search_by_key(&name, |alias| alias.name).ok()?;
        Some(&self.aliases[at])
    }

    /// The values that an enumerated string may have; empty when it is not enumerated.
    pub fn enum_values(&self, field: &Field) -> &[&'static str] {
        let mut name = field.go_type.trim_start_matches('*');
        while let Some(element) = self.element_of(name) {
            name = element;
        }
        self.alias(name).map_or(&[], |alias| &alias.values)
    }

    /// What a list or a map of this Go type holds.
    pub(crate) fn element_of(&self, go_type: &'static str) -> Option<&'static str> {
        if go_type == "[]byte" {
            return None;
        }
        if let Some(element) = go_type.strip_prefix("[]") {
            return Some(element);
        }
        if let Some((_, element)) = go_type.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
            return Some(element);
        }
        self.alias(go_type).and_then(|alias| self.element_of(alias.target))
    }
}

impl Message {
    fn member(&self, name: &str) -> Option<&Member> {
        let at = self.members.binary_search_by_key(&name, |member| member.name).ok()?;
        Some(&self.members[at])
    }

    /// The Go name: `ConfigMap`.
    pub fn short_name(&self) -> &'static str {
        self.name.rsplit('.').next().unwrap_or_default()
    }

    /// The field with a protobuf number.
    pub fn numbered(&self, number: u32) -> Option<&Field> {
        self.fields.iter().find(|field| field.number == number && number != 0)
    }
}

/// A Go type as Go prints it: `[]v1.Container`.
fn go_text(go_type: &str) -> String {
    let go_type = go_type.trim_start_matches('*');
    if let Some(element) = go_type.strip_prefix("[]").filter(|element| *element != "byte") {
        return format!("[]{}", go_text(element));
    }
    if let Some((key, value)) = go_type.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
        return format!("map[{}]{}", go_text(key), go_text(value));
    }
    match go_type {
        "[]byte" => "[]uint8".to_owned(),
        "Time" | "MicroTime" | "Duration" => format!("v1.{go_type}"),
        "Quantity" => "resource.Quantity".to_owned(),
        "IntOrString" => "intstr.IntOrString".to_owned(),
        "RawExtension" => "runtime.RawExtension".to_owned(),
        "FieldsV1" | "JSON" => format!("v1.{go_type}"),
        "Any" => "interface {}".to_owned(),
        other => other.rsplit('/').next().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests;
