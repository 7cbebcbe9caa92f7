//! The merge schema of the built-in types, beside the one that the API server makes of its OpenAPI definitions.

use std::collections::{BTreeMap, HashSet};

use machinery::{
    apply::{ListMerge, Scalar, Schema, TypeId, TypeRef},
    openapi::component_name,
    schema::Types,
};
use serde_json::{Value, json};

pub struct Compared {
    pub agreed: usize,
    pub differences: Vec<String>,
}

pub fn compare(theirs: &Value) -> Compared {
    let list = theirs["types"].as_array().unwrap();
    let named = list.iter().map(|definition| (definition["name"].as_str().unwrap(), definition)).collect();
    let mut comparison = Comparison { named, seen: HashSet::new(), differences: Vec::new() };
    let mut agreed = 0;
    for message in Types::builtin().messages() {
        let name = component_name(message.name);
        if !comparison.named.contains_key(name.as_str()) {
            continue;
        }
        let before = comparison.differences.len();
        let ours = Schema::of_message(message).unwrap();
        comparison.types(&name, ours, &json!({"namedType": name}));
        agreed += usize::from(comparison.differences.len() == before);
    }
    Compared { agreed, differences: comparison.differences }
}

struct Comparison<'v> {
    named: BTreeMap<&'v str, &'v Value>,
    seen: HashSet<(TypeId, String)>,
    differences: Vec<String>,
}

impl Comparison<'_> {
    fn types(&mut self, place: &str, ours: TypeRef<'_>, reference: &Value) {
        let (definition, key) = match reference["namedType"].as_str() {
            Some(name) => (self.named.get(name).copied().cloned().unwrap_or_default(), reference.to_string()),
            None => (reference.clone(), reference.to_string()),
        };
        if !self.seen.insert((ours.id(), key)) {
            return;
        }
        let atom = ours.atom();
        let scalar = atom.scalar.map(|scalar| match scalar {
            Scalar::Numeric => "numeric",
            Scalar::String => "string",
            Scalar::Boolean => "boolean",
            Scalar::Untyped => "untyped",
        });
        self.same(place, "scalar", json!(scalar), definition["scalar"].clone());
        self.same(place, "list", json!(atom.list.is_some()), json!(definition["list"].is_object()));
        self.same(place, "map", json!(atom.map.is_some()), json!(definition["map"].is_object()));
        if atom.list.is_some() && definition["list"].is_object() {
            self.lists(place, ours, &definition["list"]);
        }
        if atom.map.is_some() && definition["map"].is_object() {
            // A use of a type may say otherwise than the type.
            let relationship =
                reference.get("elementRelationship").filter(|_| reference["namedType"].is_string());
            let relationship = relationship.unwrap_or(&definition["map"]["elementRelationship"]).clone();
            self.maps(place, ours, &definition["map"], relationship == "atomic");
        }
    }

    fn same(&mut self, place: &str, what: &str, ours: Value, theirs: Value) {
        if ours != theirs {
            self.differences.push(format!("{place}: {what}: ours {ours}, theirs {theirs}"));
        }
    }

    fn lists(&mut self, place: &str, ours: TypeRef<'_>, theirs: &Value) {
        let Some(list) = &ours.atom().list else { return };
        let (relationship, keys) = match &list.merge {
            ListMerge::Atomic => ("atomic", json!(null)),
            ListMerge::Set => ("associative", json!(null)),
            ListMerge::Keys(keys) => ("associative", keys.iter().map(|key| json!(key.as_str())).collect()),
        };
        self.same(place, "relationship", json!(relationship), theirs["elementRelationship"].clone());
        self.same(place, "keys", keys, theirs["keys"].clone());
        self.types(&format!("{place}[]"), ours.at(list.element), &theirs["elementType"]);
    }

    fn maps(&mut self, place: &str, ours: TypeRef<'_>, theirs: &Value, atomic: bool) {
        let Some(map) = &ours.atom().map else { return };
        self.same(place, "atomic", json!(map.is_atomic()), json!(atomic));
        self.same(place, "element", json!(map.element().is_some()), json!(theirs["elementType"].is_object()));
        if let Some(element) = map.element() {
            self.types(&format!("{place}.*"), ours.at(element), &theirs["elementType"]);
        }
        let fields: BTreeMap<&str, &Value> = theirs["fields"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|field| (field["name"].as_str().unwrap_or_default(), field))
            .collect();
        let names: Vec<&str> = map.fields().iter().map(|field| field.name.as_str()).collect();
        self.same(place, "fields", json!(names), json!(fields.keys().collect::<Vec<_>>()));
        for field in map.fields() {
            let Some(theirs) = fields.get(field.name.as_str()) else { continue };
            let place = format!("{place}.{}", field.name);
            // Only keys of items have a use for it, and those are scalars.
            let default =
                Some(theirs["default"].clone()).filter(|default| !default.is_object() && !default.is_array());
            self.same(&place, "default", json!(field.default), default.unwrap_or_default());
            self.types(&place, ours.at(field.ty), &theirs["type"]);
        }
    }
}
