//! Values in messages, printed as Go's `%v` prints cel-go's.

use std::fmt;

use super::{Opaque, Value};
use crate::{number, time};

/// Values share their parts, so that one can be exponentially long when it is written out. What is longer is cut.
const MAX_SHOWN: usize = 16 * 1024;

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = String::new();
        write(self, &mut shown);
        f.write_str(&shown)
    }
}

fn write(value: &Value<'_>, out: &mut String) {
    if out.len() > MAX_SHOWN {
        if !out.ends_with('…') {
            out.push('…');
        }
        return;
    }
    match value {
        // cel-go's null is an enumeration whose only member is 0.
        Value::Null => out.push('0'),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Int(value) => out.push_str(&value.to_string()),
        Value::Uint(value) => out.push_str(&value.to_string()),
        Value::Double(value) => out.push_str(&number::shortest(*value)),
        Value::String(text) => out.push_str(text),
        Value::Bytes(bytes) => {
            let bytes: Vec<String> = bytes.iter().map(u8::to_string).collect();
            out.push_str(&format!("[{}]", bytes.join(" ")));
        }
        Value::Duration(nanos) => out.push_str(&time::go_duration(*nanos)),
        Value::Timestamp(time) => out.push_str(&time.go_string()),
        Value::List(list) => {
            out.push('[');
            for (index, element) in list.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                match element {
                    Ok(element) => write(&element, out),
                    Err(error) => out.push_str(error.message()),
                }
                if out.len() > MAX_SHOWN {
                    return;
                }
            }
            out.push(']');
        }
        Value::Map(map) => {
            out.push('{');
            for (index, (key, value)) in map.entries().unwrap_or_default().iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write(key, out);
                out.push_str(": ");
                write(value, out);
                if out.len() > MAX_SHOWN {
                    return;
                }
            }
            out.push('}');
        }
        Value::Type(of) => out.push_str(&of.to_string()),
        Value::Optional(Some(value)) => {
            out.push_str("optional(");
            write(value, out);
            out.push(')');
        }
        Value::Optional(None) => out.push_str("optional.none()"),
        Value::Opaque(opaque) => out.push_str(&opaque.to_string()),
        Value::Preserved(json) => out.push_str(&json.to_string()),
        Value::Struct(object) => out.push_str(&object.name),
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
