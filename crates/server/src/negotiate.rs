//! Which form of an answer the client wants, and in which form it sent its body.

use http::{HeaderMap, header};
use machinery::status::{Reason, Status};

/// The shape of an answer. All of them are JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Object,
    Table,
    /// `PartialObjectMetadata` or its list.
    Partial,
}

/// The shape of a discovery document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discovery {
    Legacy,
    /// `APIGroupDiscoveryList`, in this version.
    Aggregated(&'static str),
}

/// One entry of an `Accept` header.
struct Entry<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl Entry<'_> {
    fn get(&self, name: &str) -> &str {
        self.parameters.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value)
    }

    fn is_json(&self) -> bool {
        matches!(self.media, "application/json" | "application/*" | "*/*")
    }
}

fn entries(headers: &HeaderMap) -> Vec<Entry<'_>> {
    let lines = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    lines
        .flat_map(|line| line.split(','))
        .map(|entry| {
            let mut parts = entry.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let parameters = parts.filter_map(|part| part.split_once('=')).collect();
            Entry { media, parameters }
        })
        .filter(|entry| !entry.media.is_empty())
        .collect()
}

fn not_acceptable(accepted: &str) -> Status {
    Status::new(Reason::NotAcceptable, format!("only the following media types are accepted: {accepted}"))
}

/// The first shape in the client's order that can be served. `tables`: the resource has rows to show.
pub fn shape(headers: &HeaderMap, tables: bool) -> Result<Shape, Status> {
    let entries = entries(headers);
    if entries.is_empty() {
        return Ok(Shape::Object);
    }
    let shape = entries.iter().filter(|entry| entry.is_json()).find_map(|entry| {
        let transformed = entry.get("g") == "meta.k8s.io" && matches!(entry.get("v"), "v1" | "v1beta1");
        match entry.get("as") {
            "" => Some(Shape::Object),
            "Table" if transformed && tables => Some(Shape::Table),
            "PartialObjectMetadata" | "PartialObjectMetadataList" if transformed => Some(Shape::Partial),
            _ => None,
        }
    });
    shape.ok_or_else(|| not_acceptable("application/json"))
}

pub fn discovery(headers: &HeaderMap) -> Result<Discovery, Status> {
    let entries = entries(headers);
    if entries.is_empty() {
        return Ok(Discovery::Legacy);
    }
    let wanted = entries.iter().filter(|entry| entry.is_json()).find_map(|entry| {
        match (entry.get("as"), entry.get("g"), entry.get("v")) {
            ("", _, _) => Some(Discovery::Legacy),
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => Some(Discovery::Aggregated("v2")),
            _ => None,
        }
    });
    wanted.ok_or_else(|| not_acceptable("application/json"))
}

/// The media types that OpenAPI v2 has in protobuf; the first is what an answer says.
const SWAGGER: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
];

/// The media type of an OpenAPI v2 document in protobuf; `None` for JSON.
pub fn swagger(headers: &HeaderMap) -> Result<Option<&'static str>, Status> {
    let entries = entries(headers);
    if entries.is_empty() {
        return Ok(None);
    }
    let wanted = entries.iter().find_map(|entry| match entry.media {
        media if SWAGGER.contains(&media) => Some(Some(SWAGGER[0])),
        _ => entry.is_json().then_some(None),
    });
    wanted.ok_or_else(|| not_acceptable(&format!("application/json, {}", SWAGGER[0])))
}

/// The form of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Json,
    Yaml,
    Protobuf,
}

fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// `typed`: the kind has numbers for its fields, which protobuf needs.
pub fn content(headers: &HeaderMap, typed: bool) -> Result<Content, Status> {
    match media_type(headers) {
        "" | "application/json" => Ok(Content::Json),
        "application/yaml" => Ok(Content::Yaml),
        "application/vnd.kubernetes.protobuf" if typed => Ok(Content::Protobuf),
        _ if !typed => Err(unsupported(&["application/json", "application/yaml"])),
        _ => {
            Err(unsupported(&["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"]))
        }
    }
}

/// The language of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    Json,
    Merge,
    Strategic,
    /// Server-side apply.
    Apply,
}

pub fn patch(headers: &HeaderMap, typed: bool) -> Result<PatchKind, Status> {
    match media_type(headers) {
        "application/json-patch+json" => Ok(PatchKind::Json),
        "application/merge-patch+json" => Ok(PatchKind::Merge),
        "application/strategic-merge-patch+json" if typed => Ok(PatchKind::Strategic),
        "application/apply-patch+yaml" => Ok(PatchKind::Apply),
        _ if typed => Err(unsupported(&[
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
            "application/apply-patch+yaml",
        ])),
        _ => Err(unsupported(&[
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/apply-patch+yaml",
        ])),
    }
}

fn unsupported(accepted: &[&str]) -> Status {
    let message = format!(
        "the body of the request was in an unknown format - accepted media types include: {}",
        accepted.join(", ")
    );
    Status::new(Reason::UnsupportedMediaType, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, value.parse().unwrap());
        headers
    }

    #[test]
    fn shapes_in_the_order_the_client_prefers() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(shape(&accept(kubectl), true).unwrap(), Shape::Table);
        assert_eq!(
            shape(&accept("application/vnd.kubernetes.protobuf,application/json"), true).unwrap(),
            Shape::Object
        );
        assert_eq!(shape(&accept("application/vnd.kubernetes.protobuf"), true).unwrap_err().code(), 406);
        assert_eq!(
            shape(&accept("application/json;as=Table;v=v9;g=meta.k8s.io, */*"), true).unwrap(),
            Shape::Object
        );
        assert_eq!(shape(&accept(kubectl), false).unwrap(), Shape::Object);
        let only_table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        assert_eq!(shape(&accept(only_table), false).unwrap_err().code(), 406);
        assert_eq!(shape(&HeaderMap::new(), true).unwrap(), Shape::Object);
    }

    #[test]
    fn discovery_in_both_forms() {
        let new = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        assert_eq!(discovery(&accept(new)).unwrap(), Discovery::Aggregated("v2"));
        assert_eq!(discovery(&accept("application/json")).unwrap(), Discovery::Legacy);
    }
}
