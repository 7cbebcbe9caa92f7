//! What the server serves, in the old form (one document per group version) and the aggregated one.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use machinery::{
    resource::{Resource, group_version},
    status::Status,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    body::{self, Body},
    negotiate::{self, Discovery},
    registry::Registry,
};

/// Discovery documents, encoded once.
pub struct Discovered {
    /// By path: `/api`, `/apis`, `/apis/<group>`, `/api/v1`, `/apis/<group>/<version>`.
    documents: BTreeMap<String, Bytes>,
    /// By path (`/api`, `/apis`) and version of the aggregated form.
    aggregated: BTreeMap<(String, &'static str), (Bytes, HeaderValue)>,
}

const AGGREGATED_VERSIONS: [&str; 1] = ["v2"];

/// In which order groups are listed; it decides which one a bare resource name means. Others come after, by name, and
/// those of dialects last: `kubectl get clusters` asks for Hanse's.
const GROUP_ORDER: [&str; 20] = [
    "",
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "flowcontrol.apiserver.k8s.io",
];

/// A group and its versions, the preferred one first.
type Group<'a> = (&'a str, Vec<&'a str>);

fn groups(registry: &Registry) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for resource in registry.all() {
        match groups.iter_mut().find(|(group, _)| *group == resource.group) {
            Some((_, versions)) if versions.contains(&resource.version.as_str()) => {}
            Some((_, versions)) => versions.push(&resource.version),
            None => groups.push((&resource.group, vec![&resource.version])),
        }
    }
    let place = |group: &str| GROUP_ORDER.iter().position(|it| *it == group).unwrap_or(GROUP_ORDER.len());
    groups.sort_by_key(|(group, _)| (place(group), dialects::place(group), *group));
    groups
}

impl Discovered {
    pub fn describe(registry: &Registry) -> Discovered {
        let groups = groups(registry);
        let mut documents = BTreeMap::new();
        let mut put = |path: String, document: Value| {
            documents.insert(path, Bytes::from(document.to_string()));
        };
        put(
            "/api".into(),
            json!({
                "kind": "APIVersions",
                "versions": ["v1"],
                "serverAddressByClientCIDRs": [],
            }),
        );
        let named: Vec<Value> = groups.iter().filter(|(group, _)| !group.is_empty()).map(api_group).collect();
        put("/apis".into(), json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": named}));
        for entry @ (group, versions) in &groups {
            if !group.is_empty() {
                let mut document = api_group(entry);
                document["kind"] = json!("APIGroup");
                document["apiVersion"] = json!("v1");
                put(format!("/apis/{group}"), document);
            }
            for version in versions {
                let path = match *group {
                    "" => format!("/api/{version}"),
                    group => format!("/apis/{group}/{version}"),
                };
                put(path, resource_list(registry, group, version));
            }
        }
        let mut aggregated = BTreeMap::new();
        for version in AGGREGATED_VERSIONS {
            for (path, core) in [("/api", true), ("/apis", false)] {
                let shown: Vec<_> = groups.iter().filter(|(group, _)| group.is_empty() == core).collect();
                let document = Bytes::from(aggregate(registry, &shown, version).to_string());
                let hash: String =
                    Sha256::digest(&document).iter().map(|byte| format!("{byte:02X}")).collect();
                let etag = HeaderValue::from_str(&format!("\"{hash}\""));
                let etag = etag.unwrap_or(HeaderValue::from_static("\"\""));
                aggregated.insert((path.to_owned(), version), (document, etag));
            }
        }
        Discovered { documents, aggregated }
    }

    /// `None`: not a discovery path.
    pub fn answer(&self, path: &str, headers: &HeaderMap) -> Option<Result<Response<Body>, Status>> {
        let path = path.trim_end_matches('/');
        let document = self.documents.get(path)?;
        Some(self.choose(path, document, headers))
    }

    /// Whether `path` lies below a group version that is served.
    pub fn has_group(&self, path: &str) -> bool {
        self.documents.keys().any(|known| {
            known.matches('/').count() >= 2
                && path
                    .strip_prefix(known.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    fn choose(&self, path: &str, legacy: &Bytes, headers: &HeaderMap) -> Result<Response<Body>, Status> {
        let version = match negotiate::discovery(headers)? {
            Discovery::Aggregated(version) => version,
            Discovery::Legacy => return Ok(body::encoded(StatusCode::OK, legacy.clone())),
        };
        let Some((document, etag)) = self.aggregated.get(&(path.to_owned(), version)) else {
            return Ok(body::encoded(StatusCode::OK, legacy.clone()));
        };
        let unchanged = headers.get(header::IF_NONE_MATCH).is_some_and(|given| given == etag);
        let mut response = match unchanged {
            true => body::encoded(StatusCode::NOT_MODIFIED, Bytes::new()),
            false => body::encoded(StatusCode::OK, document.clone()),
        };
        let content_type =
            format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
        if let Ok(value) = HeaderValue::from_str(&content_type) {
            response.headers_mut().insert(header::CONTENT_TYPE, value);
        }
        response.headers_mut().insert(header::ETAG, etag.clone());
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
        Ok(response)
    }
}

fn api_group((group, versions): &Group<'_>) -> Value {
    let version = |version: &&str| json!({"groupVersion": group_version(group, version), "version": version});
    json!({
        "name": group,
        "versions": versions.iter().map(version).collect::<Vec<_>>(),
        "preferredVersion": versions.first().map(version),
    })
}

fn of<'a>(registry: &'a Registry, group: &'a str, version: &'a str) -> impl Iterator<Item = &'a Resource> {
    registry.all().map(AsRef::as_ref).filter(move |it| it.group == group && it.version == version)
}

fn resource_list(registry: &Registry, group: &str, version: &str) -> Value {
    let mut resources = Vec::new();
    for resource in of(registry, group, version) {
        let mut entry = json!({
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": resource.row.verbs,
        });
        if !resource.short_names.is_empty() {
            entry["shortNames"] = json!(resource.short_names);
        }
        if !resource.categories.is_empty() {
            entry["categories"] = json!(resource.categories);
        }
        if resource.is_stored() {
            entry["storageVersionHash"] = json!(storage_hash(resource));
        }
        resources.push(entry);
        for subresource in &resource.subresources {
            let (at_group, at_version, kind) = resource.kind_at(subresource);
            let mut entry = json!({
                "name": format!("{}/{}", resource.plural, subresource.name),
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": kind,
                "verbs": subresource.verbs,
            });
            if (at_group, at_version) != (group, version) {
                entry["group"] = json!(at_group);
                entry["version"] = json!(at_version);
            }
            resources.push(entry);
        }
    }
    let mut list = json!({
        "kind": "APIResourceList",
        "groupVersion": group_version(group, version),
        "resources": resources,
    });
    if !group.is_empty() {
        list["apiVersion"] = json!("v1");
    }
    list
}

/// Changes when the stored form does; clients only compare it.
fn storage_hash(resource: &Resource) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let version = resource.stored_api_version.rsplit('/').next().unwrap_or_default();
    let digest = Sha256::digest(format!("{}/{version}/{}", resource.stored_group, resource.kind));
    STANDARD.encode(&digest[..8])
}

fn aggregate(registry: &Registry, groups: &[&Group<'_>], form: &'static str) -> Value {
    let items: Vec<Value> = groups
        .iter()
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let resources: Vec<Value> =
                        of(registry, group, version).map(aggregated_resource).collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let mut metadata = json!({});
            if !group.is_empty() {
                metadata["name"] = json!(group);
            }
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{form}"),
        "metadata": {},
        "items": items,
    })
}

fn aggregated_resource(resource: &Resource) -> Value {
    // Empty where they are the resource's own.
    let response_kind = |group: &str, version: &str, kind: &str| match (group, version)
        == (resource.group.as_str(), resource.version.as_str())
    {
        true => json!({"group": "", "version": "", "kind": kind}),
        false => json!({"group": group, "version": version, "kind": kind}),
    };
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": response_kind(&resource.group, &resource.version, &resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.row.verbs,
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    let subresources: Vec<Value> = resource
        .subresources
        .iter()
        .map(|it| {
            let (group, version, kind) = resource.kind_at(it);
            json!({
                "subresource": it.name,
                "responseKind": response_kind(group, version, kind),
                "verbs": it.verbs,
            })
        })
        .collect();
    if !subresources.is_empty() {
        entry["subresources"] = json!(subresources);
    }
    entry
}
