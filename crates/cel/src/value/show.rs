//! Values in messages, printed as Go's `%v` prints cel-go's.

use std::fmt;

use super::{Opaque, Value};
use crate::{number, time};

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // cel-go's null is an enumeration whose only member is 0.
            Value::Null => f.write_str("0"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Int(value) => write!(f, "{value}"),
            Value::Uint(value) => write!(f, "{value}"),
            Value::Double(value) => f.write_str(&number::shortest(*value)),
            Value::String(text) => f.write_str(text),
            Value::Bytes(bytes) => {
                f.write_str("[")?;
                for (index, byte) in bytes.iter().enumerate() {
                    write!(f, "{}{byte}", if index > 0 { " " } else { "" })?;
                }
                f.write_str("]")
            }
            Value::Duration(nanos) => f.write_str(&time::go_duration(*nanos)),
            Value::Timestamp(time) => f.write_str(&time.go_string()),
            Value::List(list) => {
                f.write_str("[")?;
                for (index, value) in list.iter().enumerate() {
                    let separator = if index > 0 { ", " } else { "" };
                    match value {
                        Ok(value) => write!(f, "{separator}{value}")?,
                        Err(error) => write!(f, "{separator}{error}")?,
                    }
                }
                f.write_str("]")
            }
            Value::Map(map) => {
                f.write_str("{")?;
                let entries = map.entries().unwrap_or_default();
                for (index, (key, value)) in entries.iter().enumerate() {
                    write!(f, "{}{key}: {value}", if index > 0 { ", " } else { "" })?;
                }
                f.write_str("}")
            }
            Value::Type(of) => write!(f, "{of}"),
            Value::Optional(Some(value)) => write!(f, "optional({value})"),
            Value::Optional(None) => f.write_str("optional.none()"),
            Value::Opaque(opaque) => opaque.fmt(f),
            Value::Preserved(json) => write!(f, "{json}"),
        }
    }
}

impl fmt::Display for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Opaque::Ip(address) => write!(f, "{address}"),
            Opaque::Cidr(prefix) => write!(f, "{prefix}"),
            Opaque::Url(url) => write!(f, "{url}"),
            Opaque::Semver(version) => write!(f, "{version}"),
            Opaque::Format(format) => f.write_str(format.title),
            Opaque::Quantity(quantity) => write!(f, "{quantity:?}"),
            Opaque::Host(object) => f.write_str(object.type_name()),
        }
    }
}
