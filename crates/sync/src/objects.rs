//! What is read of a member's object without taking it apart.

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Deserialize;

/// The few things that every object says of itself.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Head<'a> {
    #[serde(borrow, default)]
    pub api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    pub kind: Cow<'a, str>,
    #[serde(borrow)]
    pub metadata: Metadata<'a>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata<'a> {
    #[serde(borrow, default)]
    pub name: Cow<'a, str>,
    #[serde(borrow, default)]
    pub namespace: Cow<'a, str>,
    #[serde(borrow, default)]
    pub uid: Cow<'a, str>,
    #[serde(borrow, default)]
    pub resource_version: Cow<'a, str>,
}

/// `None`: it is no object.
pub fn head(object: &[u8]) -> Option<Head<'_>> {
    serde_json::from_slice(object).ok()
}

/// The object with its kind, which items of lists leave out.
pub fn with_kind(object: &[u8], head: &Head<'_>, api_version: &str, kind: &str) -> Bytes {
    if !head.kind.is_empty() && !head.api_version.is_empty() {
        return Bytes::copy_from_slice(object);
    }
    let begins = object.iter().position(|byte| *byte == b'{').map_or(0, |at| at + 1);
    let rest = object.get(begins..).unwrap_or_default();
    let mut whole = BytesMut::with_capacity(rest.len() + kind.len() + api_version.len() + 28);
    // What head() has read has metadata at least, so something follows.
    whole.put_slice(format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","#).as_bytes());
    whole.put_slice(rest);
    whole.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_of_a_list_gets_its_kind() {
        for text in [
            r#" {"metadata":{"name":"a","uid":"u"}}"#,
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}"#,
        ] {
            let head = head(text.as_bytes()).unwrap();
            let whole = with_kind(text.as_bytes(), &head, "v1", "Pod");
            let value: serde_json::Value = serde_json::from_slice(&whole).unwrap();
            assert_eq!((&value["kind"], &value["metadata"]["name"]), (&"Pod".into(), &"a".into()));
        }
    }

    #[test]
    fn what_is_no_object_has_no_head() {
        for text in ["", "{}", "[]", "null", r#"{"metadata":7}"#] {
            assert!(head(text.as_bytes()).is_none(), "{text}");
        }
    }
}
