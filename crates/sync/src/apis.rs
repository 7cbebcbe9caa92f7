//! What a member serves: its release, its resources, and the fields of built-in kinds that it lacks.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use store::WorkspaceId;

use crate::{
    client::{Client, Error, get, list_pages},
    copies::Type,
    fields, objects,
    reflect::METADATA_LIST,
};

/// Of every answer here; the longest is the OpenAPI document of a large group.
const MAX_DOCUMENT: usize = 32 << 20;
/// More are not kept in a status; it says that there are more.
const MAX_GROUP_VERSIONS: usize = 500;
const MAX_LACKS: usize = 200;
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                         application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

/// What was learned of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Learned {
    pub version: String,
    /// Resources by group version.
    pub apis: BTreeMap<String, Vec<String>>,
    /// Kinds that copies can be of, each in one version.
    pub kinds: BTreeSet<Type>,
    /// Fields that this hub knows and the member does not, by the type they are of.
    pub lacks: Arc<Lacks>,
    /// The names of its classes by their kind; `None`: they are not known.
    pub classes: Option<Classes>,
}

pub type Classes = BTreeMap<&'static str, BTreeSet<String>>;

/// Kinds of classes that pods, claims and ingresses name, and where members have them.
const CLASSES: [(&str, &str); 4] = [
    ("StorageClass", "/apis/storage.k8s.io/v1/storageclasses"),
    ("PriorityClass", "/apis/scheduling.k8s.io/v1/priorityclasses"),
    ("IngressClass", "/apis/networking.k8s.io/v1/ingressclasses"),
    ("RuntimeClass", "/apis/node.k8s.io/v1/runtimeclasses"),
];
/// With more the status would grow without bound; then none are said, and none are asked for.
const MAX_CLASSES: usize = 1000;

/// Missing fields by type, as in `core/v1.PodSpec`.
pub type Lacks = BTreeMap<&'static str, Vec<&'static str>>;

impl Learned {
    pub fn apis_json(&self) -> Value {
        let shown = self.apis.iter().take(MAX_GROUP_VERSIONS);
        shown.map(|(version, names)| json!({"groupVersion": version, "resources": names})).collect()
    }

    pub fn skew_json(&self) -> Value {
        let shown: BTreeMap<_, _> = self.lacks.iter().take(MAX_LACKS).collect();
        let mut skew = json!({"missingFields": shown});
        if self.lacks.len() > MAX_LACKS {
            skew["truncated"] = json!(true);
        }
        skew
    }
}

/// What documents of members lack, by their address, which has their hash: clusters of one release share them. Only
/// those of one workspace do, because it is the member that says what its hash is.
#[derive(Default)]
pub struct Compared(Mutex<BTreeMap<(WorkspaceId, String), Arc<Lacks>>>);

/// Releases times group versions; more are not of a fleet, but of somebody who makes them up.
const MAX_COMPARED: usize = 4096;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    git_version: String,
}

#[derive(Deserialize)]
struct Discovery {
    kind: String,
    #[serde(default)]
    items: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    metadata: Named,
    #[serde(default)]
    versions: Vec<GroupVersion>,
}

#[derive(Default, Deserialize)]
struct Named {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct GroupVersion {
    version: String,
    #[serde(default)]
    resources: Vec<ServedResource>,
}

#[derive(Deserialize)]
struct ServedResource {
    resource: String,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    verbs: BTreeSet<String>,
}

impl ServedResource {
    /// Whether objects of it can be placed, and be found by their labels.
    fn may_be_copied(&self, group: &str) -> bool {
        const IN_NO_NAMESPACE: [(&str, &str); 6] = [
            ("", "namespaces"),
            ("", "persistentvolumes"),
            ("storage.k8s.io", "storageclasses"),
            ("scheduling.k8s.io", "priorityclasses"),
            ("networking.k8s.io", "ingressclasses"),
            ("node.k8s.io", "runtimeclasses"),
        ];
        let may_be_named = IN_NO_NAMESPACE.contains(&(group, self.resource.as_str()));
        let is_served = |verb: &&str| self.verbs.contains(*verb);
        (self.scope == "Namespaced" || may_be_named) && ["list", "watch", "patch"].iter().all(is_served)
    }
}

#[derive(Deserialize)]
struct Index {
    paths: BTreeMap<String, Document>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(rename = "serverRelativeURL")]
    url: String,
}

async fn read<T: for<'a> Deserialize<'a>>(client: &Client, path: &str, accept: &str) -> Result<T, Error> {
    let whole = client.demand(get(path, accept)?, MAX_DOCUMENT).await?;
    serde_json::from_slice(&whole.bytes).map_err(|error| Error::Garbage(format!("{path}: {error}")))
}

/// Asks a member for all of it.
pub async fn learn(client: &Client, workspace: &WorkspaceId, compared: &Compared) -> Result<Learned, Error> {
    let version: Version = read(client, "/version", "application/json").await?;
    let (apis, kinds) = discover(client).await?;
    let lacks = lacks(client, workspace, compared).await?;
    let classes = classes(client).await?;
    Ok(Learned { version: version.git_version, apis, kinds, lacks, classes })
}

/// Kinds that copies can be of, each in one version.
pub async fn kinds(client: &Client) -> Result<BTreeSet<Type>, Error> {
    Ok(discover(client).await?.1)
}

/// Resources by group version, and kinds that copies can be of.
async fn discover(client: &Client) -> Result<(BTreeMap<String, Vec<String>>, BTreeSet<Type>), Error> {
    let (mut apis, mut kinds) = (BTreeMap::new(), BTreeSet::new());
    for path in ["/api", "/apis"] {
        let discovery: Discovery = read(client, path, DISCOVERY).await?;
        if discovery.kind != "APIGroupDiscoveryList" {
            return Err(Error::Garbage(format!(
                "{path} is answered as {}: aggregated discovery, of Kubernetes 1.26 or newer, is needed",
                discovery.kind
            )));
        }
        for group in discovery.items {
            note_kinds(&mut kinds, &group);
            note_group(&mut apis, group);
        }
    }
    Ok((apis, kinds))
}

/// `None`: the member does not let them be listed, or has too many.
async fn classes(client: &Client) -> Result<Option<Classes>, Error> {
    let mut classes = Classes::new();
    for (kind, path) in CLASSES {
        let names: &mut BTreeSet<String> = classes.entry(kind).or_default();
        let listed = list_pages(client, path, METADATA_LIST, |page| {
            let heads = page.items().filter_map(objects::head);
            names.extend(heads.map(|head| head.metadata.name.into_owned()));
            if names.len() > MAX_CLASSES { Err(Error::Overfull(MAX_CLASSES)) } else { Ok(()) }
        });
        match listed.await {
            Ok(_) => {}
            // It has no such kind, and so no such class.
            Err(error) if error.code() == Some(404) => {}
            Err(Error::Overfull(_) | Error::Refused { code: 403, .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(classes))
}

/// Each in the version that the member likes best.
fn note_kinds(kinds: &mut BTreeSet<Type>, group: &Group) {
    let mut seen = BTreeSet::new();
    let name = group.metadata.name.as_str();
    for version in &group.versions {
        for resource in version.resources.iter().filter(|it| it.may_be_copied(name)) {
            if seen.insert(&resource.resource) {
                let api_version = group_version(name, &version.version).into();
                kinds.insert(Type { api_version, plural: resource.resource.as_str().into() });
            }
        }
    }
}

fn group_version(group: &str, version: &str) -> String {
    match group {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    }
}

fn note_group(apis: &mut BTreeMap<String, Vec<String>>, group: Group) {
    for version in group.versions {
        let name = group_version(&group.metadata.name, &version.version);
        let mut resources: Vec<String> = version.resources.into_iter().map(|it| it.resource).collect();
        resources.sort();
        apis.insert(name, resources);
    }
}

/// Of the group versions that both have; what a member does not serve at all, its list of APIs says.
async fn lacks(client: &Client, workspace: &WorkspaceId, compared: &Compared) -> Result<Arc<Lacks>, Error> {
    let index: Index = read(client, "/openapi/v3", "application/json").await?;
    let mut all: BTreeMap<&'static str, BTreeSet<&'static str>> = BTreeMap::new();
    for (path, ours) in fields::documents() {
        let Some(document) = index.paths.get(path) else { continue };
        // The address says what is in it, so that it need not be read twice.
        let key = (workspace.clone(), format!("{path} {}", document.url));
        let known = compared.0.lock().get(&key).cloned();
        let found = match known {
            Some(found) => found,
            None => {
                let whole = client.demand(get(&document.url, "application/json")?, MAX_DOCUMENT).await?;
                let found = Arc::new(fields::missing(ours, &whole.bytes).map_err(Error::Garbage)?);
                let mut compared = compared.0.lock();
                if document.url.contains("hash=") && compared.len() < MAX_COMPARED {
                    compared.insert(key, found.clone());
                }
                found
            }
        };
        for (name, fields) in found.iter() {
            all.entry(*name).or_default().extend(fields.iter().copied());
        }
    }
    Ok(Arc::new(all.into_iter().map(|(name, fields)| (name, fields.into_iter().collect())).collect()))
}
