//! Values of expressions. JSON is looked at where it lies: lists and maps of it are views, typed by a schema.

mod equal;
mod json;
mod list;
mod map;
mod show;

use std::{fmt, sync::Arc};

pub use list::List;
pub use map::{Key, Made, Map};

use crate::{
    error::{Eval, EvalError},
    net::{Address, Prefix},
    semver::Version,
    time::Time,
    types::{self, Type},
    url::Url,
};

#[derive(Debug, Clone)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Arc<[u8]>),
    /// In nanoseconds.
    Duration(i64),
    Timestamp(Time),
    List(List<'a>),
    Map(Map<'a>),
    Type(Type),
    Optional(Option<Arc<Value<'a>>>),
    Opaque(Opaque),
    /// Data that a schema keeps without typing it.
    Preserved(&'a serde_json::Value),
    /// An object that the expression made.
    Struct(Arc<Struct<'a>>),
}

/// An object made by an expression: `Object{…}`, `JSONPatch{…}`.
#[derive(Debug, Clone)]
pub struct Struct<'a> {
    pub name: Arc<str>,
    pub fields: Vec<(Arc<str>, Value<'a>)>,
}

impl<'a> Struct<'a> {
    pub fn get(&self, field: &str) -> Option<&Value<'a>> {
        self.fields.iter().find(|(name, _)| &**name == field).map(|(_, value)| value)
    }
}

/// A string, borrowed from JSON or made by an expression.
#[derive(Debug, Clone)]
pub enum Text<'a> {
    Borrowed(&'a str),
    Shared(Arc<str>),
}

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Shared(text) => text,
        }
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Text<'_> {}

impl std::hash::Hash for Text<'_> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

/// A value of a library's type.
#[derive(Debug, Clone)]
pub enum Opaque {
    Ip(Address),
    Cidr(Prefix),
    Url(Arc<Url>),
    Semver(Arc<Version>),
    /// A named format, such as `format.dns1123Label()`.
    Format(&'static crate::library::format::NamedFormat),
    Quantity(Arc<dyn Quantity>),
    /// An object of the host, such as the authorizer.
    Host(Arc<dyn Object>),
}

/// A quantity of the host's making: this crate knows their library, not their arithmetic.
pub trait Quantity: fmt::Debug + Send + Sync {
    fn compare(&self, other: &dyn Quantity) -> std::cmp::Ordering;
    fn add(&self, other: &dyn Quantity) -> Arc<dyn Quantity>;
    fn subtract(&self, other: &dyn Quantity) -> Arc<dyn Quantity>;
    /// The value, if it is a whole number that fits.
    fn as_integer(&self) -> Option<i64>;
    fn as_approximate_float(&self) -> f64;
    /// -1, 0 or 1.
    fn sign(&self) -> i64;
    /// Lets an implementation find itself again in `compare`, `add` and `subtract`.
    fn as_any(&self) -> &dyn std::any::Any;
}

/// An object of the host that expressions call methods on: the authorizer and what it answers.
pub trait Object: fmt::Debug + Send + Sync {
    /// One of the declared names, such as `kubernetes.authorization.Authorizer`.
    fn type_name(&self) -> &'static str;
    /// Calls a method that is declared for the type; the arguments have their declared types.
    fn call(&self, method: &str, args: &[Value<'_>]) -> Eval<Value<'static>>;
    fn equals(&self, other: &dyn Object) -> bool;
    fn as_any(&self) -> &dyn std::any::Any;
}

impl<'a> Value<'a> {
    pub fn string(text: impl Into<Arc<str>>) -> Self {
        Value::String(Text::Shared(text.into()))
    }

    pub fn list(values: Vec<Value<'a>>) -> Self {
        Value::List(List::new(values))
    }

    pub fn optional(value: Option<Value<'a>>) -> Self {
        Value::Optional(value.map(Arc::new))
    }

    pub fn strings(values: impl IntoIterator<Item = String>) -> Self {
        Value::list(values.into_iter().map(Value::string).collect())
    }

    /// What `type()` answers.
    pub fn type_of(&self) -> Type {
        match self {
            Value::Null => Type::Null,
            Value::Bool(_) => Type::Bool,
            Value::Int(_) => Type::Int,
            Value::Uint(_) => Type::Uint,
            Value::Double(_) => Type::Double,
            Value::String(_) => Type::String,
            Value::Bytes(_) => Type::Bytes,
            Value::Duration(_) => Type::Duration,
            Value::Timestamp(_) => Type::Timestamp,
            Value::List(_) => Type::list(Type::Dyn),
            Value::Map(_) => Type::map(Type::Dyn, Type::Dyn),
            Value::Type(_) => Type::Type(None),
            Value::Optional(_) => Type::optional(Type::Dyn),
            Value::Opaque(opaque) => opaque.type_of(),
            Value::Preserved(_) => Type::Opaque("unknown".into(), Arc::new([])),
            Value::Struct(object) => Type::Object(object.name.clone()),
        }
    }

    /// The name of the type, without making the type.
    pub fn type_name(&self) -> &str {
        match self {
            Value::Null => "null_type",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Uint(_) => "uint",
            Value::Double(_) => "double",
            Value::String(_) => "string",
            Value::Bytes(_) => "bytes",
            Value::Duration(_) => "google.protobuf.Duration",
            Value::Timestamp(_) => "google.protobuf.Timestamp",
            Value::List(_) => "list",
            Value::Map(_) => "map",
            Value::Type(_) => "type",
            Value::Optional(_) => types::OPTIONAL,
            Value::Opaque(opaque) => opaque.type_name(),
            Value::Preserved(_) => "unknown",
            Value::Struct(object) => &object.name,
        }
    }

    /// Code points of a string, bytes, elements or entries; `None` for what has no size.
    pub fn size(&self) -> Option<u64> {
        Some(match self {
            Value::String(text) => text.chars().count() as u64,
            Value::Bytes(bytes) => bytes.len() as u64,
            Value::List(list) => list.len() as u64,
            Value::Map(map) => map.len() as u64,
            Value::Opaque(Opaque::Ip(address)) => address.byte_length(),
            Value::Opaque(Opaque::Cidr(prefix)) => u64::from(prefix.bits).div_ceil(8),
            _ => return None,
        })
    }

    /// Whether `optional.ofNonZeroValue` takes it for nothing.
    pub fn is_zero(&self) -> bool {
        match self {
            Value::Null => true,
            Value::Bool(value) => !value,
            Value::Int(value) | Value::Duration(value) => *value == 0,
            Value::Uint(value) => *value == 0,
            Value::Double(value) => *value == 0.0,
            Value::String(text) => text.is_empty(),
            Value::Bytes(bytes) => bytes.is_empty(),
            Value::Timestamp(time) => time.is_zero(),
            // Kubernetes' views of typed JSON do not say whether they are empty.
            Value::List(list) => list.is_plain() && list.is_empty(),
            Value::Map(map) => map.is_plain() && map.is_empty(),
            Value::Struct(object) => object.fields.is_empty(),
            Value::Type(_) | Value::Optional(_) | Value::Opaque(_) | Value::Preserved(_) => false,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }
}

impl Opaque {
    pub fn type_name(&self) -> &'static str {
        match self {
            Opaque::Ip(_) => types::IP,
            Opaque::Cidr(_) => types::CIDR,
            Opaque::Url(_) => types::URL,
            Opaque::Semver(_) => types::SEMVER,
            Opaque::Format(_) => types::FORMAT,
            Opaque::Quantity(_) => types::QUANTITY,
            Opaque::Host(object) => object.type_name(),
        }
    }

    fn type_of(&self) -> Type {
        match self {
            Opaque::Ip(_) | Opaque::Cidr(_) => Type::Opaque(self.type_name().into(), Arc::new([])),
            _ => Type::object(self.type_name()),
        }
    }
}

impl From<&crate::ast::Literal> for Value<'static> {
    fn from(literal: &crate::ast::Literal) -> Self {
        use crate::ast::Literal;
        match literal {
            Literal::Null => Value::Null,
            Literal::Bool(value) => Value::Bool(*value),
            Literal::Int(value) => Value::Int(*value),
            Literal::Uint(value) => Value::Uint(*value),
            Literal::Double(value) => Value::Double(*value),
            Literal::String(text) => Value::String(Text::Shared(text.clone())),
            Literal::Bytes(bytes) => Value::Bytes(bytes.clone()),
        }
    }
}

/// A position in a list from any number that is a whole one.
pub(crate) fn index_of(value: &Value<'_>) -> Eval<i64> {
    match value {
        Value::Int(index) => Ok(*index),
        Value::Double(double) => whole(*double)
            .ok_or_else(|| EvalError::invalid(format!("unsupported index value {value} in list"))),
        Value::Uint(index) => i64::try_from(*index)
            .map_err(|_| EvalError::invalid(format!("unsupported index value {value} in list"))),
        other => Err(EvalError::invalid(format!("unsupported index type '{}' in list", other.type_of()))),
    }
}

/// A double that is a whole number an int has.
pub(crate) fn whole(double: f64) -> Option<i64> {
    let fits = double > i64::MIN as f64 && double < i64::MAX as f64;
    (fits && double.trunc() == double).then_some(double as i64)
}

/// A double that is a whole number a uint has.
pub(crate) fn whole_unsigned(double: f64) -> Option<u64> {
    let fits = double >= 0.0 && double < u64::MAX as f64;
    (fits && double.trunc() == double).then_some(double as u64)
}
