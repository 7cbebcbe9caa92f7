//! Values as Go's encoder writes them: the members of a struct in the order in which its type declares them.
//!
//! Error messages and annotations carry values in this form, and clients compare them. Messages mostly show
//! upstream's *internal* types, which have no JSON tags: their members are called as their Go fields are, and none is
//! left out.

mod internal;

use serde_json::{Map, Value};

use self::internal::go_name;
use super::{Field, Message, Type, Types};
use crate::gotext;

/// Deeper than any built-in type that is shown, but for the schemas of custom resources.
const MAX_DEPTH: usize = 64;

/// Which of a type's two forms is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// With the names of the API, empty members left out.
    Versioned,
    /// As upstream's internal types.
    Internal,
}

/// The text of a value of the type that the table calls `type_name`; null for `None`.
pub fn written(type_name: &str, value: Option<&Value>, spelling: Spelling) -> String {
    let types = Types::builtin();
    match (types.get(type_name), value) {
        (Some(message), Some(Value::Object(members))) => {
            let mut out = String::new();
            Writer { types, spelling }.message(message, members, &mut out, 0);
            out
        }
        (_, value) => gotext::json(value.unwrap_or(&Value::Null)),
    }
}

struct Writer<'a> {
    types: &'a Types,
    spelling: Spelling,
}

impl Writer<'_> {
    fn message(&self, message: &Message, members: &Map<String, Value>, out: &mut String, depth: usize) {
        out.push('{');
        let start = out.len();
        self.fields(message, members, out, start, depth);
        out.push('}');
    }

    fn fields(
        &self,
        message: &Message,
        members: &Map<String, Value>,
        out: &mut String,
        start: usize,
        depth: usize,
    ) {
        // Types of `meta` are shared by both forms.
        let internal = self.spelling == Spelling::Internal && !message.name.starts_with("meta/");
        let empty = Map::new();
        for field in self.ordered(message, internal) {
            let embedded = field.inline || internal && field.name == "metadata";
            if let (true, Type::Message(id)) = (embedded, &field.ty) {
                let own = members.get(field.name).and_then(Value::as_object);
                let inner = if field.inline { members } else { own.unwrap_or(&empty) };
                self.fields(self.types.message(*id), inner, out, start, depth);
                continue;
            }
            let value = members.get(field.name).filter(|value| !value.is_null());
            if value.is_none() && !internal && is_omitted(field) {
                continue;
            }
            self.key(message, field, internal, out, start);
            if internal && (message.name, field.name) == ("core/v1.PodSpec", "securityContext") {
                self.security_context(message, field, members, out, depth + 1);
            } else if value.is_none() && internal && internal::is_value(message.name, field.name) {
                self.zero(&field.ty, out, depth);
            } else {
                self.field(field, value, out, depth + 1);
            }
        }
    }

    fn ordered<'m>(&self, message: &'m Message, internal: bool) -> Vec<&'m Field> {
        match internal::order(message.name).filter(|_| internal) {
            Some(order) => {
                order.iter().filter_map(|name| message.fields.iter().find(|it| it.name == *name)).collect()
            }
            None => message.fields.iter().collect(),
        }
    }

    fn key(&self, message: &Message, field: &Field, internal: bool, out: &mut String, start: usize) {
        if out.len() > start {
            out.push(',');
        }
        let name = if internal { go_name(message.name, field.name) } else { field.name.to_owned() };
        out.push_str(&gotext::json(&name));
        out.push(':');
    }

    /// Some of what a pod's spec has is in its security context inside.
    fn security_context(
        &self,
        pod: &Message,
        field: &Field,
        members: &Map<String, Value>,
        out: &mut String,
        depth: usize,
    ) {
        let Type::Message(id) = &field.ty else { return };
        let empty = Map::new();
        let own = members.get(field.name).and_then(Value::as_object).unwrap_or(&empty);
        out.push('{');
        let start = out.len();
        for name in internal::OF_SECURITY_CONTEXT {
            if let Some(moved) = pod.fields.iter().find(|it| it.name == name) {
                self.key(pod, moved, true, out, start);
                self.field(moved, members.get(name).filter(|value| !value.is_null()), out, depth);
            }
        }
        self.fields(self.types.message(*id), own, out, start, depth);
        out.push('}');
    }

    fn field(&self, field: &Field, value: Option<&Value>, out: &mut String, depth: usize) {
        match value {
            Some(value) => self.value(&field.ty, value, out, depth),
            None if field.pointer => out.push_str("null"),
            None => self.zero(&field.ty, out, depth),
        }
    }

    fn value(&self, ty: &Type, value: &Value, out: &mut String, depth: usize) {
        match (ty, value) {
            _ if depth > MAX_DEPTH => out.push_str(&gotext::json(value)),
            (Type::Message(id), Value::Object(members)) => {
                self.message(self.types.message(*id), members, out, depth);
            }
            (Type::List(item) | Type::Wrapped(item), Value::Array(items)) => {
                out.push('[');
                for (at, value) in items.iter().enumerate() {
                    out.push_str(if at == 0 { "" } else { "," });
                    self.value(item, value, out, depth + 1);
                }
                out.push(']');
            }
            (Type::Map(item), Value::Object(members)) => {
                out.push('{');
                for (at, (key, value)) in members.iter().enumerate() {
                    out.push_str(if at == 0 { "" } else { "," });
                    out.push_str(&gotext::json(key));
                    out.push(':');
                    self.value(item, value, out, depth + 1);
                }
                out.push('}');
            }
            (_, value) => out.push_str(&gotext::json(value)),
        }
    }

    fn zero(&self, ty: &Type, out: &mut String, depth: usize) {
        match ty {
            Type::String => out.push_str("\"\""),
            Type::Bool => out.push_str("false"),
            Type::Int32 | Type::Int64 | Type::Float64 | Type::IntOrString => out.push('0'),
            Type::Quantity => out.push_str("\"0\""),
            Type::Duration => out.push_str("\"0s\""),
            Type::Message(id) if depth <= MAX_DEPTH => {
                self.message(self.types.message(*id), &Map::new(), out, depth);
            }
            _ => out.push_str("null"),
        }
    }
}

/// Whether an absent member is left out; structs are never empty, unless their zero is left out too.
fn is_omitted(field: &Field) -> bool {
    let is_struct = !field.pointer && matches!(field.ty, Type::Message(_) | Type::Time | Type::Quantity);
    field.omit_zero || field.omit_empty && !is_struct
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_have_the_order_of_their_declaration() {
        let selector =
            json!({"matchExpressions": [{"key": "a", "operator": "Exists"}], "matchLabels": {"b": "c"}});
        for spelling in [Spelling::Versioned, Spelling::Internal] {
            assert_eq!(
                written("meta/v1.LabelSelector", Some(&selector), spelling),
                r#"{"matchLabels":{"b":"c"},"matchExpressions":[{"key":"a","operator":"Exists"}]}"#
            );
        }
        assert_eq!(written("meta/v1.LabelSelector", None, Spelling::Versioned), "null");
    }

    #[test]
    fn internal_types_show_every_member_by_its_go_name() {
        let strategy = json!({"type": "X", "rollingUpdate": {"maxSurge": "1%", "maxUnavailable": 2}});
        assert_eq!(
            written("apps/v1.DeploymentStrategy", Some(&strategy), Spelling::Internal),
            r#"{"Type":"X","RollingUpdate":{"MaxUnavailable":2,"MaxSurge":"1%"}}"#
        );
        assert_eq!(
            written("apps/v1.DeploymentStrategy", Some(&json!({})), Spelling::Internal),
            r#"{"Type":"","RollingUpdate":null}"#
        );
        assert_eq!(
            written("core/v1.PodTemplate", Some(&json!({"metadata": {"name": "n"}})), Spelling::Versioned),
            r#"{"metadata":{"name":"n"},"template":{"metadata":{},"spec":{"containers":null}}}"#
        );
        assert_eq!(
            ["uid", "apiVersion", "caBundle", "matchLabels", "ipFamilies", "fsType", "tty", "httpGet"]
                .map(|name| go_name("", name)),
            ["UID", "APIVersion", "CABundle", "MatchLabels", "IPFamilies", "FSType", "TTY", "HTTPGet"]
        );
    }
}
