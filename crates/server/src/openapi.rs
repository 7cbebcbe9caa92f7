//! OpenAPI v3: an index with hashed addresses and a document per group version, encoded when first asked for.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

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
    entries: BTreeMap<String, Arc<Entry>>,
}

struct Entry {
    resources: Vec<Arc<Resource>>,
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
    /// The documents of `registry`; those of group versions that it does not add to are the ones of `below`.
    pub fn describe(registry: &Registry, below: Option<&Documents>) -> Documents {
        let mut entries = below.map(|below| below.entries.clone()).unwrap_or_default();
        let mut own: BTreeMap<String, Vec<Arc<Resource>>> = BTreeMap::new();
        for resource in registry.own() {
            own.entry(path_of(resource)).or_default().push(resource.clone());
        }
        for (path, resources) in own {
            let shared = entries.get(&path).map(|entry| entry.resources.clone()).unwrap_or_default();
            let resources = shared.into_iter().chain(resources).collect();
            entries.insert(path, Arc::new(Entry { resources, encoded: OnceLock::new() }));
        }
        Documents { entries }
    }
}

fn path_of(resource: &Resource) -> String {
    match resource.group.as_str() {
        "" => format!("api/{}", resource.version),
        group => format!("apis/{group}/{}", resource.version),
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
