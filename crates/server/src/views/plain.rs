//! Reads what a member has without who set which field there: that is about half of most objects, and does not show.

use std::fmt;

use machinery::resource::Tree;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

/// The whole object but `metadata.managedFields`; `None`: it is no object.
pub fn read(object: &[u8]) -> Option<Tree> {
    let mut reader = serde_json::Deserializer::from_slice(object);
    let tree = Members { inside: Some("metadata"), skipped: "" }.deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    Some(tree)
}

/// The members of an object. One of them is left out, or one inside one of them.
struct Members {
    inside: Option<&'static str>,
    skipped: &'static str,
}

impl<'de> DeserializeSeed<'de> for Members {
    type Value = Tree;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Tree, D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Tree, A::Error> {
        let mut tree = Tree::new();
        while let Some(key) = members.next_key::<String>()? {
            if key == self.skipped {
                members.next_value::<IgnoredAny>()?;
            } else if Some(key.as_str()) == self.inside {
                let metadata = Members { inside: None, skipped: "managedFields" };
                tree.insert(key, Value::Object(members.next_value_seed(metadata)?));
            } else {
                tree.insert(key, members.next_value()?);
            }
        }
        Ok(tree)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_read_but_who_set_what() {
        let text = r#"{"kind": "Pod", "metadata": {"name": "a", "managedFields": [{"a": [1]}], "labels": {"managedFields": "x"}},
            "spec": {"managedFields": 1, "metadata": {"managedFields": 2}}}"#;
        let mut wanted: Tree = serde_json::from_str(text).unwrap();
        wanted["metadata"].as_object_mut().unwrap().remove("managedFields");
        assert_eq!(read(text.as_bytes()), Some(wanted));
        for text in ["", "[]", "{}x", r#"{"metadata": 7}"#, r#"{"metadata": {"managedFields": [}}"#] {
            assert_eq!(read(text.as_bytes()), None, "{text}");
        }
    }
}
