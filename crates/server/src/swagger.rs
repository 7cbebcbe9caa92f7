//! OpenAPI v2 at `/openapi/v2`, in JSON and in the protobuf that Go clients ask for.
//!
//! A workspace's document is what the built-in kinds contribute, encoded once for all workspaces, and what its own
//! kinds add.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use machinery::{
    openapi::{
        gnostic,
        v2::{self, Part},
    },
    resource::Resource,
    status::Status,
};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::{
    body::{self, Body},
    negotiate,
};

/// What some resources contribute, encoded.
pub struct Swagger {
    /// The members of `paths`, without the braces around them.
    paths: String,
    definitions: String,
    /// The names of the definitions.
    defined: HashSet<String>,
    protobuf: Vec<u8>,
    hash: Vec<u8>,
}

impl Swagger {
    /// Of `resources`, without the definitions that `known` has.
    pub fn describe(resources: &[Arc<Resource>], known: &[&Swagger]) -> Swagger {
        let mut versions: BTreeMap<(&str, &str), Vec<&Resource>> = BTreeMap::new();
        for resource in resources {
            versions.entry((&resource.group, &resource.version)).or_default().push(resource);
        }
        let mut all = Part::default();
        for resources in versions.values() {
            let part = v2::part(resources);
            all.paths.extend(part.paths);
            all.definitions.extend(part.definitions);
        }
        all.definitions.retain(|name, _| !known.iter().any(|swagger| swagger.defined.contains(name)));
        let protobuf = gnostic::part(&all);
        Swagger {
            hash: Sha256::digest(&protobuf).to_vec(),
            protobuf,
            defined: all.definitions.keys().cloned().collect(),
            paths: members(all.paths),
            definitions: members(all.definitions),
        }
    }
}

/// The text of an object without its braces.
fn members(object: Map<String, Value>) -> String {
    let text = Value::Object(object).to_string();
    text[1..text.len() - 1].to_owned()
}

fn joined(texts: impl Iterator<Item = impl AsRef<str>>) -> String {
    let texts: Vec<String> =
        texts.map(|text| text.as_ref().to_owned()).filter(|text| !text.is_empty()).collect();
    texts.join(",")
}

pub fn answer(parts: &[&Swagger], headers: &HeaderMap) -> Result<Response<Body>, Status> {
    let protobuf = negotiate::swagger(headers)?;
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(&part.hash));
    let hash: String = hash.finalize().iter().map(|byte| format!("{byte:02X}")).collect();
    let etag = HeaderValue::from_str(&format!("\"{hash}\"")).map_err(Status::internal)?;
    let unchanged = headers.get(header::IF_NONE_MATCH).is_some_and(|given| *given == etag);
    let mut response = match (unchanged, protobuf) {
        (true, _) => body::encoded(StatusCode::NOT_MODIFIED, Bytes::new()),
        (false, Some(media)) => {
            let mut document = gnostic::head(&v2::head());
            parts.iter().for_each(|part| document.extend_from_slice(&part.protobuf));
            let mut response = body::encoded(StatusCode::OK, Bytes::from(document));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
            response
        }
        (false, None) => {
            let document = format!(
                "{{{},\"paths\":{{{}}},\"definitions\":{{{}}}}}",
                members(v2::head()),
                joined(parts.iter().map(|part| &part.paths)),
                joined(parts.iter().map(|part| &part.definitions)),
            );
            body::encoded(StatusCode::OK, Bytes::from(document))
        }
    };
    response.headers_mut().insert(header::ETAG, etag);
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    Ok(response)
}
