//! Conversion between the versions of a custom resource: by the name alone, or by a webhook.
//!
//! The call of the webhook is the server's; here are what it is asked and what its answer may be.

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use serde_json::{Map, Value, json};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::{gotext, metadata, resource::Tree, validation::policies::pem};

/// Strategy `None`: every version has the same fields.
pub fn rename(object: &mut Tree, api_version: &str) {
    object.insert("apiVersion".into(), api_version.into());
}

/// The version of the review that a webhook is sent: the first that it names and the server knows.
pub fn review_version(offered: &[String]) -> Result<&str, String> {
    let known = offered.iter().find(|version| matches!(version.as_str(), "v1" | "v1beta1"));
    known.map(String::as_str).ok_or_else(|| "no supported conversion review versions".to_owned())
}

/// The `ConversionReview` to send for `objects`, none of which is of `desired` already.
pub fn review(version: &str, uid: &str, desired: &str, objects: &[&Tree]) -> Value {
    json!({
        "kind": "ConversionReview",
        "apiVersion": format!("apiextensions.k8s.io/{version}"),
        "request": {"uid": uid, "desiredAPIVersion": desired, "objects": objects},
        "response": {"uid": "", "convertedObjects": null, "result": {"metadata": {}}},
    })
}

/// What is converted, for messages.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// `example.com/v1, Kind=Foo`
    pub kind: &'a str,
    /// Several objects, even if they are one.
    pub is_list: bool,
}

/// The objects that a webhook answered, in the order of `objects`, made fit: nothing but labels and annotations may
/// have changed in their metadata.
pub fn converted(
    version: &str,
    uid: &str,
    desired: &str,
    objects: &[&Tree],
    answer: &Value,
    subject: Subject<'_>,
) -> Result<Vec<Tree>, String> {
    let webhook = format!("conversion webhook for {}", subject.kind);
    let found = answered(version, uid, answer).map_err(|why| format!("{webhook} failed: {why}"))?;
    if found.len() != objects.len() {
        let (got, expected) = (found.len(), objects.len());
        return Err(format!("{webhook} returned {got} objects, expected {expected}"));
    }
    let mut out = Vec::with_capacity(found.len());
    for (at, (object, original)) in found.into_iter().zip(objects).enumerate() {
        let (typed, whole, metadata) = match subject.is_list {
            true => (
                format!("converted object at index {at}"),
                format!("converted object at index {at}"),
                format!("metadata in object at index {at}"),
            ),
            false => ("object at index 0".to_owned(), "object".to_owned(), "metadata".to_owned()),
        };
        let invalid = |what: &str, why: &str| format!("{webhook} returned invalid {what}: {why}");
        let Value::Object(mut object) = object else {
            return Err(invalid(&typed, "it is no object"));
        };
        check_type(&object, original, desired).map_err(|why| invalid(&typed, &why))?;
        check_identity(&object, original).map_err(|why| invalid(&whole, &why))?;
        restore_metadata(&mut object, original).map_err(|why| invalid(&metadata, &why))?;
        out.push(object);
    }
    Ok(out)
}

fn answered(version: &str, uid: &str, answer: &Value) -> Result<Vec<Value>, String> {
    let text = |pointer: &str| answer.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    if version == "v1" {
        let (kind, api_version) = (text("/kind"), text("/apiVersion"));
        if kind != "ConversionReview" || api_version != "apiextensions.k8s.io/v1" {
            return Err(format!(
                "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got {api_version}, Kind={kind}"
            ));
        }
    }
    if !answer["response"].is_object() {
        return Err("no response provided".to_owned());
    }
    let answered = text("/response/uid");
    if version == "v1" && answered != uid {
        let (expected, got) = (gotext::quote(uid), gotext::quote(answered));
        return Err(format!("expected response.uid={expected}, got {got}"));
    }
    let status = text("/response/result/status");
    if status != "Success" {
        return Err(match text("/response/result/message") {
            "" => format!("response.result.status was '{status}', not 'Success'"),
            message => message.to_owned(),
        });
    }
    let objects = answer.pointer("/response/convertedObjects").and_then(Value::as_array);
    Ok(objects.cloned().unwrap_or_default())
}

fn text<'t>(tree: &'t Tree, key: &str) -> &'t str {
    tree.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn check_type(object: &Tree, original: &Tree, desired: &str) -> Result<(), String> {
    let got = text(object, "apiVersion");
    if got != desired {
        return Err(format!("invalid groupVersion (expected {desired}, received {got})"));
    }
    let (expected, got) = (text(original, "kind"), text(object, "kind"));
    if expected != got {
        return Err(format!("invalid kind (expected {expected}, received {got})"));
    }
    Ok(())
}

fn check_identity(object: &Tree, original: &Tree) -> Result<(), String> {
    for (key, name) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let of = |tree: &Tree| {
            let value = tree.get("metadata").and_then(|metadata| metadata.get(key)).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        let (expected, got) = (of(original), of(object));
        if expected != got {
            return Err(format!("must have the same {name}: {expected} != {got}"));
        }
    }
    Ok(())
}

/// Only labels and annotations are the webhook's to change.
fn restore_metadata(object: &mut Tree, original: &Tree) -> Result<(), String> {
    let answered = match object.get("metadata") {
        None => return Err("missing metadata in converted object".to_owned()),
        Some(Value::Object(metadata)) => metadata.clone(),
        Some(other) => {
            return Err(format!("invalid metadata of type {} in converted object", gotext::type_of(other)));
        }
    };
    let mut restored = match original.get("metadata") {
        None => Map::new(),
        Some(Value::Object(metadata)) => metadata.clone(),
        Some(other) => {
            return Err(format!("invalid metadata of type {} in input object", gotext::type_of(other)));
        }
    };
    for key in ["labels", "annotations"] {
        match answered.get(key).filter(|value| !value.is_null()) {
            None => drop(restored.remove(key)),
            Some(value) => {
                check_texts(key, value, restored.get(key))?;
                restored.insert(key.into(), value.clone());
            }
        }
    }
    object.insert("metadata".into(), Value::Object(restored));
    Ok(())
}

fn check_texts(key: &str, value: &Value, original: Option<&Value>) -> Result<(), String> {
    let Some(members) = value.as_object() else {
        return Err(format!("invalid metadata.{key} of type {} in converted object", gotext::type_of(value)));
    };
    if let Some((name, value)) = members.iter().find(|(_, value)| !value.is_string()) {
        let type_of = gotext::type_of(value);
        return Err(format!("metadata.{key}[{name}] must be a string, but is {type_of} in converted object"));
    }
    if original == Some(value) {
        return Ok(());
    }
    let causes = match key {
        "labels" => metadata::labels(Some(value), "metadata.labels"),
        _ => metadata::annotations(Some(value), "metadata.annotation"),
    };
    crate::structural::aggregate(&causes).map_or(Ok(()), Err)
}

/// Why a bundle in base 64 holds no certificates that a webhook could be trusted by; an empty one is fine.
pub fn ca_bundle_mistake(bundle: &str) -> Option<String> {
    let bytes = BASE64.decode(bundle).unwrap_or_default();
    if bytes.is_empty() || holds_certificate(&bytes) {
        return None;
    }
    Some(format!("unable to load root certificates: {}", why_none(&bytes)))
}

fn is_certificate(block: &pem::Block) -> bool {
    block.label == "CERTIFICATE" && !block.has_headers
}

fn is_well_formed(block: &pem::Block) -> bool {
    X509Certificate::from_der(&block.bytes).is_ok()
}

fn holds_certificate(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let Some((block, after)) = pem::decode(rest) {
        if is_certificate(&block) && is_well_formed(&block) {
            return true;
        }
        rest = after;
    }
    false
}

fn why_none(bytes: &[u8]) -> &'static str {
    let mut rest = bytes;
    while !rest.is_empty() {
        let Some((block, after)) = pem::decode(rest) else { return "unable to parse bytes as PEM block" };
        if is_certificate(&block) && !is_well_formed(&block) {
            return "failed to parse certificate: x509: malformed certificate";
        }
        rest = after;
    }
    "no valid certificate authority data seen"
}
