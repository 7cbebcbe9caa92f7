//! CEL's types: what a checked expression has and what `type()` answers.

use std::{fmt, sync::Arc};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    /// Unknown until evaluation: fits everything.
    Dyn,
    Any,
    /// What a wrong expression has, so that its users report nothing more.
    Error,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Arc<Type>),
    Map(Arc<Type>, Arc<Type>),
    /// The type of a type.
    Type(Option<Arc<Type>>),
    /// A type of a library, such as `net.IP` or `optional_type(int)`.
    Opaque(Arc<str>, Arc<[Type]>),
    /// An object with declared fields, or a library's object such as `kubernetes.Quantity`.
    Object(Arc<str>),
    /// A parameter of a function's declaration, or a variable while checking.
    Param(Arc<str>),
    /// A value of the type, or null.
    Nullable(Arc<Type>),
}

/// Longer names of types end in an ellipsis: shared parts can make a type's name exponentially long.
const MAX_NAME: usize = 8192;

pub const OPTIONAL: &str = "optional_type";
pub const IP: &str = "net.IP";
pub const CIDR: &str = "net.CIDR";
pub const URL: &str = "kubernetes.URL";
pub const QUANTITY: &str = "kubernetes.Quantity";
pub const SEMVER: &str = "kubernetes.Semver";
pub const FORMAT: &str = "kubernetes.NamedFormat";

/// The types of Kubernetes' authorizer library; their values come from the host.
pub const AUTHORIZER: &str = "kubernetes.authorization.Authorizer";
pub const PATH_CHECK: &str = "kubernetes.authorization.PathCheck";
pub const GROUP_CHECK: &str = "kubernetes.authorization.GroupCheck";
pub const RESOURCE_CHECK: &str = "kubernetes.authorization.ResourceCheck";
pub const DECISION: &str = "kubernetes.authorization.Decision";

impl Type {
    pub fn list(element: Type) -> Type {
        Type::List(Arc::new(element))
    }

    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new(key), Arc::new(value))
    }

    pub fn optional(value: Type) -> Type {
        Type::Opaque(OPTIONAL.into(), Arc::new([value]))
    }

    pub fn object(name: &str) -> Type {
        Type::Object(name.into())
    }

    pub fn of(self) -> Type {
        Type::Type(Some(Arc::new(self)))
    }

    /// What an optional holds.
    pub fn unwrap_optional(&self) -> Option<&Type> {
        match self {
            Type::Opaque(name, parameters) if &**name == OPTIONAL => parameters.first(),
            _ => None,
        }
    }

    pub fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn | Type::Any)
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        self.is_dyn() || matches!(self, Type::Error)
    }

    /// The type without its being nullable.
    pub(crate) fn inner(&self) -> &Type {
        match self {
            Type::Nullable(inner) => inner.inner(),
            other => other,
        }
    }

    /// The name a value of the type answers to `type()`, without parameters.
    pub fn name(&self) -> &str {
        match self {
            Type::Dyn => "dyn",
            Type::Any => "google.protobuf.Any",
            Type::Error => "error",
            Type::Null => "null_type",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Duration => "google.protobuf.Duration",
            Type::Timestamp => "google.protobuf.Timestamp",
            Type::List(_) => "list",
            Type::Map(..) => "map",
            Type::Type(_) => "type",
            Type::Opaque(name, _) | Type::Object(name) | Type::Param(name) => name,
            Type::Nullable(inner) => inner.name(),
        }
    }

    /// The same type but for the names of parameters.
    pub(crate) fn is_equivalent(&self, other: &Type) -> bool {
        match (self.inner(), other.inner()) {
            (Type::Param(_), Type::Param(_)) => true,
            (Type::List(a), Type::List(b)) => a.is_equivalent(b),
            (Type::Map(a, b), Type::Map(c, d)) => a.is_equivalent(c) && b.is_equivalent(d),
            (Type::Type(Some(a)), Type::Type(Some(b))) => a.is_equivalent(b),
            (Type::Opaque(a, left), Type::Opaque(b, right)) => {
                a == b
                    && left.len() == right.len()
                    && left.iter().zip(right.iter()).all(|(a, b)| a.is_equivalent(b))
            }
            (a, b) => a == b,
        }
    }

    /// As Kubernetes names the type of what an expression evaluates to.
    pub fn declared(&self) -> String {
        let mut out = String::new();
        self.write_declared(&mut out);
        cut(&mut out);
        out
    }

    fn write_declared(&self, out: &mut String) {
        if out.len() > MAX_NAME {
            return;
        }
        let parameters: &[&Type] = match self {
            Type::List(element) => &[element],
            Type::Map(key, value) => &[key, value],
            Type::Type(Some(of)) => &[of],
            Type::Opaque(_, parameters) => &parameters.iter().collect::<Vec<_>>(),
            _ => &[],
        };
        match self {
            Type::Nullable(inner) => out.push_str(&format!("wrapper({})", inner.name())),
            other => out.push_str(other.name()),
        }
        for (index, parameter) in parameters.iter().enumerate() {
            out.push_str(if index == 0 { "(" } else { ", " });
            parameter.write_declared(out);
        }
        if !parameters.is_empty() {
            out.push(')');
        }
    }

    /// As messages of the checker write it.
    fn write(&self, out: &mut String) {
        if out.len() > MAX_NAME {
            return;
        }
        let (name, parameters): (&str, &[&Type]) = match self {
            Type::Any => ("any", &[]),
            Type::Duration => ("duration", &[]),
            Type::Timestamp => ("timestamp", &[]),
            Type::Error => ("!error!", &[]),
            Type::Null => ("null", &[]),
            Type::List(element) => ("list", &[element]),
            Type::Map(key, value) => ("map", &[key, value]),
            Type::Type(Some(of)) => ("type", &[of]),
            Type::Nullable(inner) => ("wrapper", &[inner]),
            Type::Opaque(name, parameters) => {
                return Type::write_with(out, name, &parameters.iter().collect::<Vec<_>>());
            }
            other => (other.name(), &[]),
        };
        Type::write_with(out, name, parameters);
    }

    fn write_with(out: &mut String, name: &str, parameters: &[&Type]) {
        out.push_str(name);
        for (index, parameter) in parameters.iter().enumerate() {
            out.push_str(if index == 0 { "(" } else { ", " });
            parameter.write(out);
        }
        if !parameters.is_empty() {
            out.push(')');
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        self.write(&mut out);
        cut(&mut out);
        f.write_str(&out)
    }
}

fn cut(name: &mut String) {
    if name.len() > MAX_NAME {
        let end = (0..=MAX_NAME).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
        name.truncate(end);
        name.push('…');
    }
}

/// Reads a type as the tables of functions write it: `int`, `list(A)`, `map(string, dyn)`, `optional(V)`, `type(A)`;
/// one capital letter is a parameter, a name with a dot a library's type.
pub(crate) fn parse(text: &str) -> Type {
    let text = text.trim();
    if let Some(inner) = text.strip_suffix(')')
        && let Some((name, arguments)) = inner.split_once('(')
    {
        let arguments: Vec<Type> = split(arguments).into_iter().map(parse).collect();
        return match (name, arguments.as_slice()) {
            ("list", [element]) => Type::list(element.clone()),
            ("map", [key, value]) => Type::map(key.clone(), value.clone()),
            ("optional", [value]) => Type::optional(value.clone()),
            ("type", [of]) => of.clone().of(),
            _ => Type::Opaque(name.into(), arguments.into()),
        };
    }
    match text {
        "dyn" => Type::Dyn,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "null" => Type::Null,
        "type" => Type::Type(None),
        IP | CIDR => Type::Opaque(text.into(), Arc::new([])),
        _ if text.contains('.') => Type::object(text),
        _ => Type::Param(text.into()),
    }
}

/// The parts between commas that stand in no parentheses.
pub(crate) fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (index, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    if !text[start..].trim().is_empty() {
        parts.push(&text[start..]);
    }
    parts
}
