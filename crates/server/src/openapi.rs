//! OpenAPI v3: an index with hashed addresses and a document per group version, encoded when first asked for.

use std::{collections::BTreeMap, sync::OnceLock};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use machinery::{openapi, resource::Resource};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    body::{self, Body},
    registry::Registry,
};

/// The documents of one set of resources.
pub struct Documents {
    /// By path below `/openapi/v3/`: `api/v1`, `apis/<group>/<version>`.
    entries: BTreeMap<String, Entry>,
}

struct Entry {
    resources: Vec<std::sync::Arc<Resource>>,
    encoded: OnceLock<(Bytes, String)>,
}

impl Entry {
    /// The document and its hash.
    fn get(&self) -> &(Bytes, String) {
        self.encoded.get_or_init(|| {
            let resources: Vec<&Resource> = self.resources.iter().map(AsRef::as_ref).collect();
            let document = Bytes::from(openapi::document(&resources).to_string());
            let hash = Sha256::digest(&document).iter().map(|byte| format!("{byte:02X}")).collect();
            (document, hash)
        })
    }
}

impl Documents {
    pub fn describe(registry: &Registry) -> Documents {
        let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
        for resource in registry.all() {
            let path = match resource.group.as_str() {
                "" => format!("api/{}", resource.version),
                group => format!("apis/{group}/{}", resource.version),
            };
            let entry =
                entries.entry(path).or_insert_with(|| Entry { resources: vec![], encoded: OnceLock::new() });
            entry.resources.push(resource.clone());
        }
        Documents { entries }
    }
}

/// `None`: not one of the paths.
pub fn answer(documents: &Documents, path: &str, headers: &HeaderMap) -> Option<Response<Body>> {
    let below = path.strip_prefix("/openapi/v3")?.trim_matches('/');
    if below.is_empty() {
        let paths: BTreeMap<&String, Value> = documents
            .entries
            .iter()
            .map(|(path, entry)| {
                let address = format!("/openapi/v3/{path}?hash={}", entry.get().1);
                (path, json!({"serverRelativeURL": address}))
            })
            .collect();
        return Some(body::json(StatusCode::OK, &json!({"paths": paths})));
    }
    let (document, hash) = documents.entries.get(below)?.get();
    let etag = HeaderValue::from_str(&format!("\"{hash}\"")).ok()?;
    let unchanged = headers.get(header::IF_NONE_MATCH).is_some_and(|given| *given == etag);
    let mut response = match unchanged {
        true => body::encoded(StatusCode::NOT_MODIFIED, Bytes::new()),
        false => body::encoded(StatusCode::OK, document.clone()),
    };
    response.headers_mut().insert(header::ETAG, etag);
    Some(response)
}
