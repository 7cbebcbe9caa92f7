//! The fields that an object uses, so that it is not sent where they are not known.

use std::collections::{BTreeMap, BTreeSet};

use machinery::schema::{Message, Type, Types};
use serde_json::Value;

/// Used fields by type, as in `core/v1.PodSpec`: the same names as a cluster lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(BTreeMap<&'static str, BTreeSet<String>>);

impl Fields {
    pub const fn none() -> Self {
        Self(BTreeMap::new())
    }

    /// Those of an object of a built-in kind; its status is the cluster's own. Of others nothing is known.
    pub fn used(object: &Value) -> Self {
        let mut fields = Self::none();
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        let (group, version) = text("apiVersion").rsplit_once('/').unwrap_or(("", text("apiVersion")));
        let types = Types::builtin();
        let (Some(message), Some(object)) =
            (types.get_kind(group, version, text("kind")), object.as_object())
        else {
            return fields;
        };
        for (name, value) in object.iter().filter(|(name, _)| *name != "status" && *name != "metadata") {
            fields.note(types, message, name, value);
        }
        fields
    }

    /// As deep as the types go, which is as deep as the API lets objects be.
    fn note(&mut self, types: &'static Types, message: &'static Message, name: &str, value: &Value) {
        let Some(field) = types.field(message, name) else { return };
        self.0.entry(message.name).or_default().insert(name.to_owned());
        self.inside(types, &field.ty, value);
    }

    fn inside(&mut self, types: &'static Types, ty: &'static Type, value: &Value) {
        match (ty, value) {
            (Type::Message(id), Value::Object(object)) => {
                let message = types.message(*id);
                object.iter().for_each(|(name, value)| self.note(types, message, name, value));
            }
            (Type::List(inner), Value::Array(list)) => {
                list.iter().for_each(|it| self.inside(types, inner, it));
            }
            (Type::Map(inner), Value::Object(map)) => {
                map.values().for_each(|it| self.inside(types, inner, it))
            }
            (Type::Wrapped(inner), value) => self.inside(types, inner, value),
            _ => {}
        }
    }

    /// The first that is lacked.
    pub fn first_in<'l>(&self, lacks: &'l BTreeMap<String, BTreeSet<String>>) -> Option<(&'l str, &'l str)> {
        lacks.iter().find_map(|(ty, missing)| {
            let used = self.0.get(ty.as_str())?;
            missing.iter().find(|field| used.contains(*field)).map(|field| (ty.as_str(), field.as_str()))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_named_by_their_type() {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "spec": {"template": {"spec": {"hostUsers": false, "containers": [{"name": "a", "image": "b"}]}}},
        });
        let fields = Fields::used(&object);
        let lacks =
            |ty: &str, field: &str| BTreeMap::from([(ty.to_owned(), BTreeSet::from([field.to_owned()]))]);
        assert_eq!(
            fields.first_in(&lacks("core/v1.PodSpec", "hostUsers")),
            Some(("core/v1.PodSpec", "hostUsers"))
        );
        assert!(fields.first_in(&lacks("core/v1.Container", "image")).is_some());
        assert!(fields.first_in(&lacks("core/v1.PodSpec", "os")).is_none());
        assert_eq!(
            Fields::used(&json!({"apiVersion": "a.b/v1", "kind": "Thing", "spec": {}})),
            Fields::none()
        );
    }
}
