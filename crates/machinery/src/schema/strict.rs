//! What field validation reports: fields that the type does not have, and fields that stand twice.
//!
//! A tree has neither, so this reads the text, in the order of the text. Upstream stops after 100 reports.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::{Message, Type, Types};
use crate::gotext;

const MAX_REPORTS: usize = 100;

/// The fields that stand twice anywhere in `bytes`: `duplicate field "data.a"`.
pub fn find_duplicates(bytes: &[u8]) -> Vec<String> {
    walk(None, Cursor::Untyped, bytes)
}

/// The unknown and the duplicate fields of an object of type `message`, in the order of the text.
pub fn strict_errors(types: &Types, message: &Message, bytes: &[u8]) -> Vec<String> {
    walk(Some(types), Cursor::Message(message), bytes)
}

/// Whether any field stands twice in the text that `tree` was read from: then the text has more members than the
/// tree. Much cheaper than [`find_duplicates`], which says which.
pub fn has_duplicates(bytes: &[u8], tree: &Value) -> bool {
    count_members(bytes) > members_of(tree)
}

/// Colons outside strings.
fn count_members(bytes: &[u8]) -> usize {
    let (mut count, mut in_string, mut escaped) = (0, false, false);
    for byte in bytes {
        match (in_string, *byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b':') => count += 1,
            _ => {}
        }
    }
    count
}

fn members_of(tree: &Value) -> usize {
    match tree {
        Value::Object(members) => members.len() + members.values().map(members_of).sum::<usize>(),
        Value::Array(items) => items.iter().map(members_of).sum(),
        _ => 0,
    }
}

fn walk(types: Option<&Types>, cursor: Cursor<'_>, bytes: &[u8]) -> Vec<String> {
    let mut report = Report { types, path: String::new(), seen: HashSet::new(), found: Vec::new() };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    // What is no JSON is reported by who decodes it.
    drop(Walk { report: &mut report, cursor }.deserialize(&mut deserializer));
    report.found
}

/// What is known about the value that comes next.
#[derive(Clone, Copy)]
enum Cursor<'a> {
    Message(&'a Message),
    Value(&'a Type),
    /// Anything may stand here, but nothing twice.
    Untyped,
    /// Nobody looks inside.
    Opaque,
}

struct Report<'a> {
    types: Option<&'a Types>,
    path: String,
    seen: HashSet<String>,
    found: Vec<String>,
}

impl<'a> Report<'a> {
    fn add(&mut self, what: &str, key: &str) {
        if self.found.len() >= MAX_REPORTS {
            return;
        }
        let dot = if self.path.is_empty() { "" } else { "." };
        let text = format!("{what} field {}", gotext::quote(&format!("{}{dot}{key}", self.path)));
        if self.seen.insert(text.clone()) {
            self.found.push(text);
        }
    }

    /// What a member of the object at `cursor` is; `None` if it does not exist.
    fn member(&self, cursor: Cursor<'a>, key: &str) -> Option<Cursor<'a>> {
        match (cursor, self.types) {
            (Cursor::Message(message), Some(types)) => {
                types.field(message, key).map(|field| Cursor::Value(&field.ty))
            }
            (Cursor::Value(Type::Message(id)), Some(types)) => {
                self.member(Cursor::Message(types.message(*id)), key)
            }
            (Cursor::Value(Type::Map(value)), _) => Some(Cursor::Value(value)),
            (Cursor::Untyped, _) => Some(Cursor::Untyped),
            _ => Some(Cursor::Opaque),
        }
    }
}

struct Walk<'r, 'a> {
    report: &'r mut Report<'a>,
    cursor: Cursor<'a>,
}

impl<'de> DeserializeSeed<'de> for Walk<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.cursor {
            Cursor::Opaque => deserializer.deserialize_ignored_any(IgnoredAny).map(drop),
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Walk<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut keys = HashSet::new();
        let len = self.report.path.len();
        // Where no object belongs, nothing is reported but the type.
        let opaque =
            matches!(self.cursor, Cursor::Value(ty) if !matches!(ty, Type::Message(_) | Type::Map(_)));
        while let Some(key) = map.next_key::<String>()? {
            let member = if opaque { Some(Cursor::Opaque) } else { self.report.member(self.cursor, &key) };
            match member {
                None => self.report.add("unknown", &key),
                Some(_) if opaque => {}
                Some(_) if keys.contains(&key) => self.report.add("duplicate", &key),
                Some(_) => drop(keys.insert(key.clone())),
            }
            if !self.report.path.is_empty() {
                self.report.path.push('.');
            }
            self.report.path.push_str(&key);
            map.next_value_seed(Walk { report: self.report, cursor: member.unwrap_or(Cursor::Opaque) })?;
            self.report.path.truncate(len);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let len = self.report.path.len();
        let cursor = match self.cursor {
            Cursor::Value(Type::List(element) | Type::Wrapped(element)) => Cursor::Value(element),
            Cursor::Untyped => Cursor::Untyped,
            _ => Cursor::Opaque,
        };
        let mut index = 0;
        loop {
            self.report.path.push_str(&format!("[{index}]"));
            if seq.next_element_seed(Walk { report: self.report, cursor })?.is_none() {
                self.report.path.truncate(len);
                return Ok(());
            }
            self.report.path.truncate(len);
            index += 1;
        }
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_pod(text: &str) -> Vec<String> {
        let types = Types::builtin();
        strict_errors(types, types.get("core/v1.Pod").unwrap(), text.as_bytes())
    }

    #[test]
    fn duplicates_are_found_anywhere() {
        assert_eq!(
            find_duplicates(br#"{"data":{"a":"1","a":"2","a":"3"},"x":[{"y":1,"y":2}],"data":{}}"#),
            [r#"duplicate field "data.a""#, r#"duplicate field "x[0].y""#, r#"duplicate field "data""#]
        );
        assert_eq!(find_duplicates(b"[1, {"), [""; 0]);
        assert_eq!(find_duplicates(br#"{"a":{"x":1},"b":{"x":1}}"#), [""; 0]);
    }

    #[test]
    fn whether_there_are_any_is_cheap_to_say() {
        for (text, any) in [
            (r#"{"a":":\":","b":[{"a":1}]}"#, false),
            (r#"{"a":1,"b":{"c":1,"c":2}}"#, true),
            (r#"[{"a":1},{"a":1}]"#, false),
            (r#""a:b""#, false),
        ] {
            assert_eq!(has_duplicates(text.as_bytes(), &serde_json::from_str(text).unwrap()), any, "{text}");
        }
    }

    #[test]
    fn unknown_fields_are_found_in_the_order_of_the_text() {
        assert_eq!(
            of_pod(
                r#"{"zzz":1,"spec":{"containers":[{"name":"a","Image":"b","name":"c"}],"foo":{"foo":1}},"aaa":2}"#
            ),
            [
                r#"unknown field "zzz""#,
                r#"unknown field "spec.containers[0].Image""#,
                r#"duplicate field "spec.containers[0].name""#,
                r#"unknown field "spec.foo""#,
                r#"unknown field "aaa""#,
            ]
        );
        assert_eq!(
            of_pod(
                r#"{"metadata":{"labels":{"any":"thing"}},"spec":{"volumes":[{"hostPath":{"path":"/"}}]}}"#
            ),
            [""; 0]
        );
    }

    #[test]
    fn what_nobody_decodes_nobody_reports() {
        assert_eq!(
            of_pod(
                r#"{"unknown":{"a":1,"a":2},"metadata":{"managedFields":[{"fieldsV1":{"f:a":1,"f:a":1}}]}}"#
            ),
            [r#"unknown field "unknown""#]
        );
    }

    #[test]
    fn reports_are_bounded() {
        let many: String = (0..200).map(|at| format!("\"x{at}\":1,")).collect();
        assert_eq!(of_pod(&format!("{{{many}\"kind\":\"Pod\"}}")).len(), MAX_REPORTS);
    }
}
