//! Pods and names from templates.

use serde_json::{Value, json};

use crate::{Kind, tree};

/// Longest name of an object.
pub const NAME_LIMIT: usize = 253;
const SAFE: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A pod as a template says, controlled by `owner`; the API server chooses its name.
pub fn pod(template: &Value, kind: Kind, owner: &Value) -> Value {
    let name = tree::name(owner);
    let prefix = if name.len() < NAME_LIMIT { format!("{name}-") } else { name.to_owned() };
    let mut metadata = json!({
        "generateName": prefix,
        "namespace": tree::namespace(owner),
        "ownerReferences": [tree::controller_reference(kind, owner)],
    });
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template.pointer("/metadata").and_then(|metadata| metadata.get(field)) {
            metadata[field] = value.clone();
        }
    }
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": template.get("spec").cloned().unwrap_or_else(|| json!({})),
    })
}

/// A short text that stands for `value`, made of letters that spell no words. Upstream hashes how Go prints the object;
/// which number comes out is nobody's business as long as it is the same for the same object.
pub fn hash(value: &Value, collisions: Option<i64>) -> String {
    let mut hash = Fnv::default();
    hash.add(value.to_string().as_bytes());
    if let Some(collisions) = collisions {
        hash.add(&collisions.to_le_bytes());
    }
    safe(&hash.0.to_string())
}

fn safe(text: &str) -> String {
    text.bytes()
        .map(|byte| SAFE.get(usize::from(byte) % SAFE.len()).map_or('b', |&letter| letter.into()))
        .collect()
}

/// `prefix-suffix`, the prefix cut so that it is a name.
pub fn name(prefix: &str, suffix: &str) -> String {
    let room = NAME_LIMIT.saturating_sub(suffix.len() + 1);
    let end = prefix
        .char_indices()
        .map(|(at, letter)| at + letter.len_utf8())
        .take_while(|&end| end <= room)
        .last();
    format!("{}-{suffix}", prefix.get(..end.unwrap_or(0)).unwrap_or_default())
}

struct Fnv(u32);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0x811c_9dc5)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        }
    }
}

/// Without members that are there without a value, which mean the same as none.
pub fn pruned(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.iter().map(|(key, value)| (key.clone(), pruned(value)));
            Value::Object(kept.filter(|(_, value)| !is_bare(value)).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(pruned).collect()),
        other => other.clone(),
    }
}

fn is_bare(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_suffix_whole() {
        assert_eq!(name("web", "abc"), "web-abc");
        let long = "x".repeat(300);
        assert_eq!(name(&long, "abc").len(), NAME_LIMIT);
        assert!(name(&long, "abc").ends_with("x-abc"));
    }

    #[test]
    fn a_hash_depends_on_what_is_hashed_and_on_collisions() {
        let (one, two) = (json!({ "a": 1 }), json!({ "a": 2 }));
        assert_eq!(hash(&one, None), hash(&one, None));
        assert_ne!(hash(&one, None), hash(&two, None));
        assert_ne!(hash(&one, None), hash(&one, Some(1)));
        assert!(hash(&one, None).bytes().all(|byte| SAFE.contains(&byte)));
    }
}
