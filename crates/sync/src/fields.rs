//! Fields of built-in kinds: those of ours that an OpenAPI document of a member does not have.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::LazyLock,
};

use machinery::{
    builtin,
    openapi::component_name,
    resource::{Resource, Schema},
    schema::{Message, Type, Types},
};
use serde::{Deserialize, de::IgnoredAny};

use crate::apis::Lacks;

/// The types that the objects of one group version are made of.
pub type Ours = Vec<&'static Message>;

/// By the path of its document: `api/v1`, `apis/apps/v1`.
static DOCUMENTS: LazyLock<BTreeMap<String, Ours>> = LazyLock::new(|| {
    let mut roots: BTreeMap<String, Vec<&'static Message>> = BTreeMap::new();
    for row in builtin::rows() {
        let resource = Resource::new(row.clone());
        if let Schema::Typed(message) = &resource.schema {
            let path = match resource.group.as_str() {
                "" => format!("api/{}", resource.version),
                group => format!("apis/{group}/{}", resource.version),
            };
            roots.entry(path).or_default().push(message);
        }
    }
    roots.into_iter().map(|(path, roots)| (path, reached(&roots))).collect()
});

pub fn documents() -> impl Iterator<Item = (&'static str, &'static Ours)> {
    DOCUMENTS.iter().map(|(path, ours)| (path.as_str(), ours))
}

/// All types that `roots` are made of, themselves included.
fn reached(roots: &[&'static Message]) -> Ours {
    let types = Types::builtin();
    let mut seen: HashSet<&'static str> = HashSet::new();
    let mut left: Vec<&'static Message> = roots.to_vec();
    let mut found = Vec::new();
    while let Some(message) = left.pop() {
        if !seen.insert(message.name) {
            continue;
        }
        found.push(message);
        left.extend(types.fields(message).filter_map(|field| message_of(types, &field.ty)));
    }
    found
}

fn message_of(types: &'static Types, ty: &Type) -> Option<&'static Message> {
    match ty {
        Type::Message(id) => Some(types.message(*id)),
        Type::List(inner) | Type::Map(inner) | Type::Wrapped(inner) => message_of(types, inner),
        _ => None,
    }
}

#[derive(Deserialize)]
struct Document {
    components: Components,
}

#[derive(Deserialize)]
struct Components {
    schemas: HashMap<String, Component>,
}

#[derive(Deserialize)]
struct Component {
    #[serde(default)]
    properties: HashMap<String, IgnoredAny>,
}

/// What of `ours` the document does not have. A type that it does not have at all is not missing: the types that refer
/// to it say so.
pub fn missing(ours: &Ours, document: &[u8]) -> Result<Lacks, String> {
    let theirs: Document = serde_json::from_slice(document).map_err(|error| error.to_string())?;
    let types = Types::builtin();
    let mut lacks = Lacks::new();
    for message in ours {
        let Some(component) = theirs.components.schemas.get(&component_name(message.name)) else { continue };
        // Schemas of types with a JSON form of their own say nothing of their fields.
        if component.properties.is_empty() {
            continue;
        }
        let names: BTreeSet<&'static str> = types.fields(message).map(|field| field.name).collect();
        let absent: Vec<&'static str> =
            names.into_iter().filter(|name| !component.properties.contains_key(*name)).collect();
        if !absent.is_empty() {
            lacks.insert(message.name, absent);
        }
    }
    Ok(lacks)
}

#[cfg(test)]
mod tests {
    use machinery::openapi;

    use super::*;

    fn our_document(path: &str) -> serde_json::Value {
        let resources: Vec<Resource> = builtin::rows().map(|row| Resource::new(row.clone())).collect();
        let (group, version) = path.trim_start_matches("apis/").rsplit_once('/').unwrap_or_default();
        let chosen: Vec<&Resource> =
            resources.iter().filter(|it| it.group == group && it.version == version).collect();
        openapi::document(&chosen)
    }

    #[test]
    fn a_member_of_the_same_release_lacks_nothing() {
        let ours = &DOCUMENTS["apis/apps/v1"];
        assert!(ours.iter().any(|message| message.name == "core/v1.PodSpec"));
        let document = our_document("apis/apps/v1").to_string();
        assert_eq!(missing(ours, document.as_bytes()), Ok(Lacks::new()));
    }

    #[test]
    fn what_an_older_member_lacks_is_named_by_its_type() {
        let mut document = our_document("apis/apps/v1");
        let schemas = &mut document["components"]["schemas"];
        let properties = schemas["io.k8s.api.core.v1.PodSpec"]["properties"].as_object_mut().unwrap();
        properties.remove("hostUsers");
        properties.remove("os");
        schemas.as_object_mut().unwrap().remove("io.k8s.api.core.v1.PodOS");
        let found = missing(&DOCUMENTS["apis/apps/v1"], document.to_string().as_bytes()).unwrap();
        assert_eq!(found, Lacks::from([("core/v1.PodSpec", vec!["hostUsers", "os"])]));
    }

    #[test]
    fn what_is_no_document_is_refused() {
        for text in ["", "[]", "{}", r#"{"components":{}}"#] {
            assert!(missing(&DOCUMENTS["api/v1"], text.as_bytes()).is_err(), "{text}");
        }
    }
}
